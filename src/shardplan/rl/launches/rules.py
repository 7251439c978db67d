"""What rows cannot say, in every framework: batches into optimizer steps, tokens of a micro-batch, pools."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any, Final

from shardplan.base.errors import InputError, shown
from shardplan.launch.dialects.models import named_model
from shardplan.launch.dialects.reading import GIVEN, Fact
from shardplan.launch.dialects.values import number, switch, whole
from shardplan.rl.asked import PROMPT_TOKENS, lengths_of
from shardplan.rl.engine import constant
from shardplan.rl.launches.reading import EXAMPLES, RlLaunch

ALGORITHMS: Final[Mapping[str, str]] = {
    "gae": "ppo", "ppo": "ppo", "grpo": "grpo", "gspo": "grpo", "cispo": "grpo", "rloo": "grpo", "opo": "grpo",
    "grpo_passk": "grpo", "group_norm": "grpo", "dr_grpo": "grpo", "gdpo": "grpo", "reinforce": "grpo",
    "reinforce_plus_plus": "reinforce++", "reinforce++": "reinforce++", "reinforce_plus_plus_baseline": "reinforce++",
    "reinforce_baseline": "grpo",
}  # fmt: skip
"""Estimators of the advantage, by what they compute beside the update."""
ANSWER: Final = "response_mean"
TOKENS: Final = "tokens of a micro-batch hold the longest prompt with its answer"


class Rules:
    """What a file says, worked out for the question of a step."""

    def __init__(self, launch: RlLaunch) -> None:
        self.launch, self.facts = launch, launch.facts
        self.rl: dict[str, Any] = {}
        """Fields of the step."""
        self.longest_batch = 0
        """Tokens of the longest micro-batch, where micro-batches have a number of answers; 0: of a number of tokens."""
        self.instead: dict[str, tuple[object, str]] = {}
        """What is not priced as the file has it: the value that would be, and why."""
        self.likely: dict[str, str] = {}
        """What no launch file states and is taken as it usually is: why."""
        self.notes: list[str] = []
        """What was taken for granted."""

    def number(self, key: str) -> int:
        """A whole number that is known; 0 where it is not. Raises ``InputError`` for a given value that is none."""
        found, fact = self.facts.number(key), self.facts.facts.get(key)
        if found is None and fact is not None and fact.why == GIVEN:
            example = EXAMPLES.get(key, "8")
            raise self.refuse(self.said(key), f"{key} is a whole number", f"write --given {key}={example}")
        return found or 0

    def needed(self, key: str) -> int:
        """A whole number without which nothing follows; it is asked for where it is not known."""
        found = self.number(key)
        if self.facts.number(key) is None and key not in self.facts.missing:
            self.facts.miss(key, (f"not in the file (--given {key}=N)",))
        return found

    def on(self, key: str) -> bool:
        """Whether a switch is on."""
        return bool(switch(self.facts.value(key)))

    def refuse(self, what: str, rule: str, hint: str) -> InputError:
        """What decides the step and is not planned."""
        return InputError(f"{self.facts.file}: {what}", rule=rule, hint=hint)

    def price_as(self, key: str, value: object, why: str) -> None:
        """Goes on as if ``key`` were ``value``, which the user is asked to agree to, with all else that is open."""
        self.instead[key] = (value, f"{self.said(key)}, which is not priced: {why}")
        self.facts.replace(key, Fact(value=value, origin="assumed", why=why))

    def said(self, key: str) -> str:
        """Value and place of a key, as they are quoted."""
        fact = self.facts.facts.get(key)
        return f"{key} is not given" if fact is None else f"{key} is {shown(fact.value)} ({fact.why})"

    def work_out(self, of_framework: Callable[[Rules], None]) -> None:
        """All of it, with the rules of its framework. Raises ``InputError`` for what contradicts."""
        self._refuse_diffusion()
        self._leave_out_unplanned()
        of_framework(self)
        self._lengths()
        self._updates()
        self._micro_batches()
        self._pools()

    def _refuse_diffusion(self) -> None:
        """Models that denoise: their steps have no answers that are written token by token."""
        for key in ("diffusion", "model"):
            value = self.facts.value(key)
            if (key == "diffusion" and value) or (key == "model" and _DENOISES.search(str(value).lower())):
                raise self.refuse(
                    f"{self.said(key)}: a model that denoises, and does not write its answers token by token",
                    "a step that is priced has an autoregressive language model",
                    "describe the update alone: `shardplan estimate`",
                )

    def _leave_out_unplanned(self) -> None:
        """Parts of a step that nothing here prices: one that is has a policy trained in full, and rewards by rule."""
        for key, what in UNPLANNED.items():
            value = self.facts.value(key)
            count = whole(value)
            is_on = switch(value) if switch(value) is not None else count > 0 if count is not None else bool(value)
            if is_on and not (key == "turns_number" and count == 1):
                self.price_as(key, 1 if key == "turns_number" else "no", what)

    def _lengths(self) -> None:
        facts = self.facts
        window, cap, prompt = self.number("window"), self.number("response_max"), self.number("prompt_max")
        if window and not cap:
            facts.derive("response_max", window - 1, f"all of the window of {window:,} tokens: no other cap is set")
        cap = self.needed("response_max")
        prompt = min(prompt, window) if window and prompt else prompt or max(window - cap, 0)
        facts.assume_because(
            "prompt_mean", min(PROMPT_TOKENS, prompt or PROMPT_TOKENS),
            "usual of shardplan: a file has the longest prompt alone (--given prompt_mean=N)",
        )  # fmt: skip
        mean = self.number("prompt_mean")
        if window and mean + cap > window:
            cap = window - mean
            self.notes.append(f"answers end at the window of {window:,} tokens: {cap:,} after a prompt of {mean:,}")
        if ANSWER not in facts.facts and cap:
            self.likely[ANSWER] = f"mean tokens of an answer, at most {cap:,}: in no launch file, in your logs"
            facts.assume_because(
                ANSWER,
                max(round(cap * constant("answer_share")), 1),
                f"of at most {cap:,}, as in the middle of measured steps",
            )
        average = self.number(ANSWER)
        shape = "".join(
            f",{name}={facts.value(f'response_{name}')}"
            for name in ("spread", "endless")
            if f"response_{name}" in facts
        )
        self.rl |= {"prompt_tokens": mean, "response_tokens": f"mean={average},max={cap}{shape}"}
        self.rl["reward_seconds"] = number(facts.value("reward_seconds"))
        self.longest = window or (prompt or mean) + cap

    def _updates(self) -> None:
        """Optimizer steps of an RL step, each on whole prompts."""
        is_counted = self.launch.name in ("trl", "ms-swift") and not self.number("num_accelerators")
        prompts = 0 if is_counted else self.needed("prompts")  # they follow from the processes
        samples = self.needed("samples")
        answers, mini = prompts * samples, self.number("mini_batch") or self.number("mini_prompts") * samples
        if self.number("mini_batch") and self.number("updates") and answers != mini * self.number("updates"):
            raise self.refuse(
                f"{prompts:,} prompts x {samples:,} answers are {answers:,}; {self.said('updates')} and "
                f"{self.said('mini_batch')} make {mini * self.number('updates'):,}",
                "optimizer steps and their batch make the answers of an RL step",
                "leave one of the two out",
            )
        if mini and answers and answers % mini:
            key = "mini_batch" if self.number("mini_batch") else "mini_prompts"
            raise self.refuse(
                f"{prompts:,} prompts x {samples:,} answers are {answers:,}; {self.said(key)}",
                "the batch of an optimizer step divides the answers of an RL step",
                f"set it to a divisor of {answers if key == 'mini_batch' else prompts:,}",
            )
        updates = self.number("updates") or (answers // mini if mini else 1)
        if answers and prompts % updates:
            self.notes.append(
                f"{updates:,} optimizer steps do not share {prompts:,} prompts evenly; answers are shared"
            )
        self.rl |= {"prompts": prompts, "samples": samples, "updates": updates, "epochs": self.number("epochs") or 1}

    def _micro_batches(self) -> None:
        """Packed sequences of a number of tokens, or a number of answers, which are padded or not."""
        facts, each = self.facts, self.number("micro_answers") or 1
        tokens = self.number("pack_tokens")
        if tokens:
            if tokens < self.longest:
                raise self.refuse(
                    f"{self.said('pack_tokens')}; a prompt and its answer have up to {self.longest:,}",
                    TOKENS,
                    f"set it to at least {self.longest:,}",
                )
            self.rl["pack_tokens"] = tokens
            facts.derive("micro_batch_size", 1, "a packed sequence")
        elif self.on("unpadded") or "unpadded" in facts.missing:
            mean = self.rl["prompt_tokens"] + self.number(ANSWER)
            self.rl |= {"pack_tokens": max(each * mean, 1), "whole": True}
            self.longest_batch = max(self.longest, each * mean)
            facts.derive("micro_batch_size", 1, f"{each} answers without padding")
        else:
            filled = self._filled()
            self.rl |= {"pack_tokens": round(each * filled), "padded": filled, "whole": True}
            self.longest_batch = each * self.longest
            facts.derive("micro_batch_size", 1, f"{each} answers, filled up")
            self.notes.append(f"every answer is filled up, to {filled:,.0f} tokens with its prompt on average")

    def _filled(self) -> float:
        """Tokens to which an answer is filled up: all that there may be, or the longest of some answers. [tokens]"""
        together = self.number("filled_together")
        if not together or not self.number(ANSWER):
            return float(self.longest)
        return float(self.rl["prompt_tokens"]) + lengths_of(self.rl["response_tokens"]).longest_of(together)

    def _pools(self) -> None:
        """Accelerators of both, and how the engines lie on theirs."""
        facts = self.facts
        nodes, each = self.number("nodes"), self.number("per_node")
        if nodes and each:
            facts.derive("num_accelerators", nodes * each, f"{nodes} nodes x {each} accelerators")
        for key in sorted({"nodes", "per_node"} & facts.missing.keys()):
            facts.miss("num_accelerators", facts.missing[key])
        train = self.needed("num_accelerators")
        apart = self.rl["placement"] not in ("colocated", "partial")
        rollout = self.needed("rollout_accelerators") if apart else train
        if not apart and self.number("rollout_accelerators") not in (0, train):
            raise self.refuse(
                f"{self.said('rollout_accelerators')}; the trainer has {train:,}, which both share",
                "pools on the same accelerators have the same number",
                "leave it out, or take them apart",
            )
        size = (self.number("rollout_tp") or 1) * (self.number("rollout_pp") or 1)
        if rollout % size:
            raise self.refuse(
                f"{self.said('rollout_tp')}: an engine takes {size:,} accelerators, of {rollout:,}",
                "engines fill the accelerators that generate",
                f"set it to a divisor of {rollout:,}",
            )
        ep = self.number("rollout_ep") or 1
        if self.number("rollout_dp") > 1 or ep not in (1, size):
            self.price_as(
                "rollout_dp" if self.number("rollout_dp") > 1 else "rollout_ep", 1,
                "an engine shares its experts over its tensor-parallel ranks, or has a slice of each",
            )  # fmt: skip

    def take_algorithm(self) -> None:
        """Algorithm, critic and the passes for log-probabilities."""
        said = str(self.facts.value("advantage") or "grpo").lower().rpartition(".")[2]
        if said not in ALGORITHMS:
            self.price_as("advantage", "grpo", f"the estimator of the advantage is one of {', '.join(ALGORITHMS)}")
        name = ALGORITHMS.get(said, "grpo")
        if self.facts.value("critic_on") is not None and self.on("critic_on") != (name == "ppo"):
            raise self.refuse(
                f"{self.said('critic_on')} with {self.said('advantage')}",
                "PPO trains a critic, and no other algorithm does",
                "leave one of the two out",
            )
        if self.on("filtered") or (self.launch.name == "slime" and self.facts.value("filtered")):
            name = "dapo" if name == "grpo" else name
            self.notes.append("answers that are dropped and generated again are not counted")
            if self.number("generated") > self.number("prompts") > 0:
                self.price_as("generated", self.number("prompts"), "prompts are generated to be dropped")
        self.rl["algorithm"] = name
        if name == "ppo":
            self._take_critic()

    def _take_critic(self) -> None:
        critic, policy = self.facts.value("critic_model"), self.facts.value("model")
        if critic in (None, policy):
            return
        model = named_model(critic) or named_model(PurePath(str(critic)).name.lower())
        if model is None:
            self.facts.miss("critic_model", (f"{critic} is not in the catalogue (--given critic_model=NAME)",))
        self.rl["critic"] = model

    def take_reference(self, *, wanted: bool) -> None:
        """Whether a reference model judges."""
        self.rl["reference"] = wanted


_DENOISES: Final = re.compile(r"diffus|flux[.-]|(?:^|/)(?:llada|dream-|wan2|sd3|hunyuanvideo)")
"""Names of models that denoise."""
UNPLANNED: Final[Mapping[str, str]] = {
    "lora": "adapters are trained",
    "reward_model": "a reward model judges on accelerators",
    "turns": "answers have several turns, with tools between them",
    "turns_number": "answers have several turns, with tools between them",
    "agent": "an agent generates, with tools between its turns",
    "draft": "a draft model is trained beside the policy",
}
