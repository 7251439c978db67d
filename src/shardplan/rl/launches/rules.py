"""What rows cannot say: batches into optimizer steps, tokens of a micro-batch, pools and placement, by framework.

Sources are named in the records of ``data/dialects/rl``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any, Final

from shardplan.base.errors import InputError, shown
from shardplan.launch.dialects.models import named_model
from shardplan.launch.dialects.reading import GIVEN, Fact
from shardplan.launch.dialects.values import number, switch, whole
from shardplan.rl.asked import PROMPT_TOKENS, lengths_of
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

    def work_out(self) -> None:
        """All of it. Raises ``InputError`` for what contradicts."""
        self._leave_out_unplanned()
        BY_NAME[self.launch.name](self)
        self._lengths()
        self._updates()
        self._micro_batches()
        self._pools()

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
        if ANSWER not in facts.facts:
            facts.miss(ANSWER, (f"mean tokens of an answer, at most {cap:,}: in no launch file, in your logs",))
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


UNPLANNED: Final[Mapping[str, str]] = {
    "lora": "adapters are trained",
    "reward_model": "a reward model judges on accelerators",
    "turns": "answers have several turns, with tools between them",
    "turns_number": "answers have several turns, with tools between them",
    "agent": "an agent generates, with tools between its turns",
    "draft": "a draft model is trained beside the policy",
}


def _verl(own: Rules) -> None:
    facts = own.facts
    own.take_algorithm()
    own.take_reference(wanted=own.on("kl_loss") or own.on("kl_reward"))
    own.rl["old_pass"] = not own.on("bypass_old")
    mini, prompts = own.number("mini_prompts"), own.number("prompts")
    if mini >= prompts * max(own.number("samples"), 1) > prompts or (mini > prompts > 0 and own.number("samples") == 1):
        own.notes.append(f"{own.said('mini_prompts')}: one optimizer step of all answers, which newer versions refuse")
        facts.replace("mini_prompts", Fact(value=prompts, origin="derived", why=f"no more than {own.said('prompts')}"))
    elif mini > prompts > 0:
        raise own.refuse(
            f"{own.said('prompts')}; {own.said('mini_prompts')}",
            "a mini-batch is at most the batch of prompts",
            f"set it to a divisor of {prompts:,}",
        )
    if own.on("dynamic"):
        tokens = own.number("tokens_per_accelerator") * (own.number("cp") or 1)
        facts.derive("pack_tokens", tokens, "ppo_max_token_len_per_gpu x context-parallel ranks")
    elif not own.number("micro_answers"):
        total, world = own.number("micro_total"), own.number("nodes") * own.number("per_node")
        ranks = [own.number(key) or 1 for key in ("cp", "tp", "pp")]
        shared = world // (ranks[0] * ranks[1] * ranks[2])
        if total and shared and total % shared == 0:
            facts.derive("micro_answers", total // shared, "ppo_micro_batch_size over all replicas")
        else:
            facts.miss("micro_answers", ("ppo_micro_batch_size_per_gpu: --given micro_answers=N",))
    if own.number("cp") > 1 and facts.value("backend") == "fsdp":
        facts.derive("cp_comm", "a2a", "Ulysses")
    nodes, each = own.number("rollout_nodes"), own.number("rollout_per_node") or own.number("per_node")
    if nodes or own.on("one_step_off") or not own.on("hybrid"):
        if nodes:
            facts.derive("rollout_accelerators", nodes * each, "rollout.nnodes x rollout.n_gpus_per_node")
        own.rl["placement"] = "one-step-off"
    else:
        own.rl["placement"] = "colocated"
        stays = not (own.on("states_leave") and own.on("optimizer_leaves"))
        own.rl |= {"states_stay": stays, "engine_stays": not own.on("engine_sleeps")}
    _engine(own)


def _easyr1(own: Rules) -> None:
    if own.facts.value("moments") == "adamw_bf16":
        own.facts.doubt(f"{own.said('moments')}: weights and moments in bf16 are priced as fp32")
    _verl(own)


def _engine(own: Rules) -> None:
    """VLLM or SGLang; others are not planned. Formats of its weights and cache."""
    for key in ("rollout_precision", "cache_precision"):
        if own.facts.value(key) == "fp8":
            own.rl[key] = "fp8"
    engine = str(own.facts.value("engine") or "vllm").lower()
    if engine not in ("vllm", "sglang"):
        own.price_as("engine", "vllm", "an engine is vllm or sglang")
        engine = "vllm"
    own.rl["engine"] = engine


def _nemo(own: Rules) -> None:
    facts = own.facts
    facts.derive("advantage", facts.value("algorithm_name"), "adv_estimator")
    own.take_algorithm()
    own.take_reference(wanted=facts.value("kl") != 0 and not own.on("skip_reference"))
    own.rl["old_pass"] = not own.on("on_policy")
    _nemo_packs(own)
    nodes = own.number("nodes")
    if own.on("colocated"):
        own.rl["placement"] = "colocated"
        if own.on("async"):
            raise own.refuse(
                f"{own.said('async')} with {own.said('colocated')}",
                "an asynchronous run has a pool of its own for generation",
                "set policy.generation.colocated.enabled to false",
            )
    else:
        of_rollout, each = own.number("rollout_nodes"), own.number("rollout_per_node") or own.number("per_node")
        if nodes > 1 and of_rollout:
            left = (nodes - of_rollout) * own.number("per_node")
            facts.derive("rollout_accelerators", of_rollout * each, "nodes of generation")
        else:
            left = own.number("per_node") - own.number("rollout_per_node")
            facts.derive(
                "rollout_accelerators", own.number("rollout_per_node"), "accelerators of the node that generate"
            )
        if left < 1:
            raise own.refuse(
                f"{own.said('nodes')}; {own.said('rollout_nodes')}; {own.said('rollout_per_node')}",
                "generation leaves accelerators to the trainer",
                "set cluster.num_nodes to the nodes of both pools",
            )
        facts.derive("num_accelerators", left, "what generation leaves")
        own.rl["placement"] = "async" if own.on("async") else "in-turns"
        if own.on("async"):
            own.rl |= {"staleness": own.number("staleness") or 1, "in_flight": own.on("in_flight")}
    _engine(own)


def _nemo_packs(own: Rules) -> None:
    """Tokens of a micro-batch, in training and in passes without gradients."""
    facts = own.facts
    window, each = own.number("window"), own.number("micro_answers")
    if own.on("packing") or own.on("dynamic"):
        if own.on("dynamic"):
            facts.missing.pop("pack_tokens", None)
            if own.number("dynamic_tokens"):
                facts.derive("pack_tokens", own.number("dynamic_tokens"), "tokens of dynamic batching")
        if "pack_tokens" in facts.missing or not own.number("pack_tokens"):
            facts.missing.pop("pack_tokens", None)
            facts.derive("pack_tokens", window * each, "max_total_sequence_length x train_micro_batch_size")
        tokens = own.number("pass_tokens") or window * own.number("pass_answers")
        if tokens and own.number("pack_tokens"):
            own.rl["pass_packs"] = tokens / own.number("pack_tokens")
    else:
        facts.facts.pop("pack_tokens", None)


def _slime(own: Rules) -> None:
    facts = own.facts
    own.take_algorithm()
    own.take_reference(wanted=own.on("kl_loss") or facts.value("kl") != 0)
    own.rl |= {"old_pass": not own.on("bypass_old"), "engine": "sglang"}
    if facts.value("train_backend") != "megatron":
        own.price_as("train_backend", "megatron", "slime's Megatron backend is read")
    facts.derive("unpadded", value=True, rule="slime packs without padding")
    if own.on("dynamic"):
        tokens = own.needed("tokens_per_accelerator") * (own.number("cp") or 1)
        if tokens:
            facts.derive("pack_tokens", tokens, "max-tokens-per-gpu x context-parallel ranks")
    train = own.number("nodes") * own.number("per_node")
    if own.on("colocated"):
        own.rl["placement"] = "partial" if own.on("partial") else "colocated"
        own.rl["states_stay"] = facts.value("offload_train") is not None and not own.on("offload_train")
    else:
        own.rl["placement"] = "one-step-off" if own.on("one_step_off") else "in-turns"
    facts.derive("num_accelerators", train, "actor nodes x accelerators of a node")
    if facts.value("weights_by") == "delta":
        own.rl["transfer"] = "delta"
    if own.number("drafts"):
        own.rl["speculative"] = f"mtp:{own.number('drafts')}"
    if own.number("layers_per_chunk") and own.number("pp") > 1:
        facts.miss("vp", ("num-layers-per-virtual-pipeline-stage: --given vp=N",))
    if facts.value("memory_share") is None:
        own.notes.append("memory of the engine as usual: no --sglang-mem-fraction-static")


def _openrlhf(own: Rules) -> None:
    facts = own.facts
    own.take_algorithm()
    own.rl["algorithm"] = {"reinforce": "reinforce++"}.get(str(facts.value("advantage")), own.rl["algorithm"])
    own.take_reference(wanted=facts.value("kl") != 0)
    own.rl["engine"] = "vllm"
    facts.derive("filled_together", own.number("micro_answers"), "answers of a micro-batch")
    facts.derive("sharding", facts.value("zero"), "zero_stage")
    if own.on("dynamic"):
        facts.derive(
            "pack_tokens", own.needed("tokens_per_accelerator") * own.number("cp"), "tokens of dynamic batches"
        )
    if own.on("reward_url") or facts.value("reward_url"):
        own.notes.append("rewards come from another program and are counted as no time")
    size = own.needed("rollout_tp")
    if not own.number("engines"):
        own.facts.miss("engines", ("vLLM generates the answers that are priced: set --vllm_num_engines",))
    pool = own.number("engines") * size
    if own.on("colocated"):
        own.rl["placement"] = "partial" if own.on("partial") else "colocated"
        own.rl |= {"states_stay": not own.on("sleeps"), "engine_stays": not own.on("engine_sleeps")}
        facts.derive("rollout_accelerators", pool, "engines x their accelerators")
        return
    if (own.rl["reference"] and not own.on("with_reference")) or own.rl["algorithm"] == "ppo":
        raise own.refuse(
            f"{own.said('with_reference')}; {own.said('colocated')}",
            "reference and critic that are priced share the accelerators of the actor",
            "price it so: --given with_reference=yes, and another estimator than gae",
        )
    facts.derive("rollout_accelerators", pool, "engines x their accelerators")
    own.rl["placement"] = "async" if own.on("async") else "in-turns"


def _skyrl(own: Rules) -> None:
    facts = own.facts
    own.take_algorithm()
    own.take_reference(wanted=own.on("kl_loss") or own.on("kl_reward"))
    if facts.value("judge") not in (None, facts.value("model")):
        facts.doubt(f"{own.said('judge')}: priced as a reference of the policy's size")
    own.rl["old_pass"] = True
    if own.number("cp") > 1 and facts.value("backend") == "fsdp":
        facts.derive("cp_comm", "a2a", "Ulysses")
    size = (own.number("rollout_tp") or 1) * (own.number("rollout_pp") or 1)
    facts.derive("rollout_accelerators", own.needed("engines") * size, "engines x their accelerators")
    if own.on("colocated"):
        own.rl |= {"placement": "colocated", "states_stay": False, "engine_stays": False}
    elif own.on("async"):
        own.rl |= {"placement": "async", "staleness": own.number("staleness") or 1, "in_flight": True}
        facts.replace("prompts", Fact(value=own.number("mini_prompts"), origin="derived", why="one mini-batch a step"))
    else:
        own.rl["placement"] = "in-turns"
    if facts.value("weights_by") == "delta":
        own.rl["transfer"] = "delta"
    _engine(own)


def _oat(own: Rules) -> None:
    facts, gpus = own.facts, own.number("num_accelerators")
    own.take_algorithm()
    own.take_reference(wanted=facts.value("kl") != 0)
    if own.on("fp16"):
        facts.derive("precision", "fp16", own.said("fp16"))
    facts.derive("filled_together", own.number("micro_answers"), "answers of a micro-batch")
    own.rl |= {"engine": "vllm", "old_pass": True}
    if own.on("colocated"):
        own.rl |= {"placement": "colocated", "states_stay": True, "engine_stays": not own.on("engine_sleeps")}
        return
    facts.derive("rollout_accelerators", gpus // 2, "actors have half of the accelerators")
    facts.replace("num_accelerators", Fact(value=gpus - gpus // 2, origin="derived", why="the other half trains"))
    own.rl["placement"] = "one-step-off" if own.on("async") else "in-turns"


def _trl(own: Rules) -> None:
    facts = own.facts
    own.take_algorithm()
    own.take_reference(wanted=facts.value("kl") not in (0, None))
    own.rl |= {"engine": "vllm", "old_pass": True}
    if not own.on("uses_engine"):
        own.price_as("uses_engine", "yes", "vLLM generates, and not generate() of transformers")
    if facts.value("train_type") not in (None, "full"):
        own.price_as("train_type", "full", "the policy is trained in full")
    mode = str(facts.value("mode") or "")
    if not mode and own.launch.name == "ms-swift":
        facts.miss("mode", ("vllm_mode is not in the file (--given mode=colocate, or server)",))
    nodes, each = own.number("nodes"), own.number("per_node")
    world = own.number("num_accelerators") or nodes * each
    if world:
        facts.derive("num_accelerators", world, "processes")
    world = own.needed("num_accelerators")
    batch = own.number("micro_answers") * world
    steps = own.number("steps_per_generation") or own.number("accumulation")
    generated = own.number("generation_batch") or batch * steps
    samples = own.needed("samples")
    if world and samples and batch and (generated % samples or generated % batch):
        raise own.refuse(
            f"{generated:,} answers of a generation, {samples:,} to a prompt, {batch:,} in a batch of all processes",
            "the answers of a generation are whole prompts and whole batches",
            f"set num_generations to a divisor of {generated:,}",
        )
    per_update = batch * own.number("accumulation")
    if world and per_update and generated % per_update:
        raise own.refuse(
            f"{generated:,} answers of a generation; an optimizer step takes {per_update:,}",
            "optimizer steps share the answers of a generation evenly",
            "set gradient_accumulation_steps to a divisor of steps_per_generation",
        )
    each_process = own.number("micro_answers") * steps
    facts.derive("filled_together", each_process, "answers of a generation on a process")
    if world and samples:
        facts.derive("prompts", generated // samples, "answers of a generation / num_generations")
        facts.derive("mini_batch", per_update, "answers of an optimizer step")
    if mode == "colocate":
        own.rl["placement"] = "colocated"
        own.rl |= {"states_stay": not own.on("states_leave") or own.launch.name == "trl"}
        own.rl["engine_stays"] = own.launch.name == "trl" and not own.on("states_leave")
    else:
        own.rl["placement"] = "colocated" if not mode else "one-step-off" if own.on("async") else "in-turns"
        if mode and "rollout_accelerators" not in facts.facts:
            facts.miss("rollout_accelerators", ("the server's line: --given rollout_accelerators=N",))


BY_NAME: Final[Mapping[str, Callable[[Rules], None]]] = {
    "verl": _verl, "easyr1": _easyr1, "nemo-rl": _nemo, "slime": _slime, "openrlhf": _openrlhf,
    "skyrl": _skyrl, "oat": _oat, "trl": _trl, "ms-swift": _trl,
}  # fmt: skip
