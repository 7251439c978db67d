"""What an RL step is: the trainer's question, what is generated for it, and how the two are to share accelerators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, Literal, NamedTuple

from shardplan.base.errors import InputError, UnknownNameError, shown
from shardplan.base.fields import dataclass, described
from shardplan.base.words import joined
from shardplan.estimation.question import Question
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.rl.engine import generation_data
from shardplan.rl.generation import Responses
from shardplan.rl.trainer import Packing

Placement = Literal["colocated", "partial", "in-turns", "one-step-off", "async"]


class PlacementFacts(NamedTuple):
    """What a placement is."""

    title: str
    text: str
    two_pools: bool


PLACEMENTS: Final[Mapping[str, PlacementFacts]] = {
    name: PlacementFacts(**facts) for name, facts in generation_data()["kinds_of_placement"].items()
}


class Algorithm(NamedTuple):
    """What an algorithm computes besides the update."""

    reference: bool
    """Whether a reference model judges each answer (KL penalty)."""
    critic: bool
    """Whether a value model is trained as well."""


DRAFTERS: Final = ("mtp", "eagle")
"""Who may draft tokens: layers of multi-token prediction of the model, or a layer that was trained beside it."""
ROLLOUT: Final = ("tp", "pp", "ep")
"""Degrees of an engine that can be fixed."""
ALGORITHMS: Final[Mapping[str, Algorithm]] = {
    "grpo": Algorithm(reference=True, critic=False),
    "dapo": Algorithm(reference=False, critic=False),
    "reinforce++": Algorithm(reference=True, critic=False),
    "ppo": Algorithm(reference=True, critic=True),
}
"""GRPO: arXiv 2402.03300. DAPO: arXiv 2503.14476, no KL penalty; prompts whose answers all score alike are dropped,
which is not counted. REINFORCE++: arXiv 2501.03262. PPO as arXiv 2203.02155, with a critic."""


def algorithm_of(name: str) -> Algorithm:
    """The algorithm of that name. Raises ``UnknownNameError``."""
    found = ALGORITHMS.get(name.lower())
    if found is None:
        raise UnknownNameError("algorithm", name, ALGORITHMS, hint=f"one of {', '.join(ALGORITHMS)}")
    return found


@dataclass(frozen=True, kw_only=True)
class RlTask:
    """Everything about an RL step but the plans of its pools."""

    question: Question
    """Trainer on all accelerators that it may use; its job gives precision, optimizer and software."""
    answers: Responses
    packing: Packing
    algorithm: str = "grpo"
    old_pass: bool = True
    """Whether log-probabilities of the policy that generated are computed again by the trainer."""
    reference: bool = True
    """Whether a reference model judges each answer."""
    critic: ModelConfig | None = None
    """The value model that is trained beside the policy, on the same accelerators."""
    reward_time: float = 0.0
    """Seconds that rewards take after the last answer."""
    rollout_cluster: Cluster | None = None
    """Where generation runs if not on the trainer's cluster."""
    num_rollout: int | None = None
    """Accelerators of the generation pool, where given."""
    num_train: int | None = None
    """Accelerators of the trainer's pool, where given."""
    rollout_precision: str = "bf16"
    cache_precision: str = "bf16"
    drafter: str = "none"
    """Who drafts tokens, of ``DRAFTERS``."""
    drafts: int = 0
    engine: str = "vllm"
    transfer: str | None = None
    """Method by which weights reach the engines; None: the usual one of the placement."""
    placements: tuple[str, ...] = tuple(PLACEMENTS)
    staleness: int = 1
    """Steps by which answers may be older than the weights that train on them, under ``async``."""
    in_flight: bool = True
    """Whether new weights reach engines while they generate."""
    fixed_rollout: Mapping[str, int] = field(default_factory=dict)
    """Degrees of the generation replicas that are fixed."""
    memory_share: float | None = None
    """Share of an accelerator's memory that an engine takes; None: the usual one of the engine."""
    states_stay: bool = False
    """Whether states of the trainer stay on shared accelerators while they generate."""
    engine_stays: bool = False
    """Whether an engine on shared accelerators keeps its memory while they train."""

    def __post_init__(self) -> None:
        """Raises ``InputError``."""
        for name in self.placements:
            if name not in PLACEMENTS:
                raise UnknownNameError("placement", name, PLACEMENTS, hint=f"one of {', '.join(PLACEMENTS)}")
        self._check_counts()
        self._check_lengths()

    @property
    def passes(self) -> int:
        """Forward passes over all answers before training."""
        return self.old_pass + self.reference

    @property
    def critic_share(self) -> float:
        """Parameters of the value model that a token meets, over those of the policy."""
        return (
            0.0
            if self.critic is None
            else self.critic.num_active_parameters / self.question.model.num_active_parameters
        )

    @property
    def are_apart(self) -> bool:
        """Whether each pool has accelerators of its own, whatever the placement."""
        return self.rollout_cluster is not None or self.num_rollout is not None

    @property
    def may_share(self) -> bool:
        """Whether a placement is compared in which both pools are the same accelerators."""
        return not self.are_apart and not all(PLACEMENTS[name].two_pools for name in self.placements)

    @property
    def generating(self) -> Cluster:
        """Where generation runs."""
        return self.rollout_cluster or self.question.cluster

    def _check_counts(self) -> None:
        colocated = [name for name in self.placements if not PLACEMENTS[name].two_pools]
        if self.are_apart and colocated and len(colocated) == len(self.placements):
            raise InputError(
                f"the pools are apart and --placement is {joined(colocated)}",
                rule="a placement of one pool has the same accelerators for both",
                hint="leave --placement out, or give one number of accelerators and no --rollout-cluster",
            )
        if self.staleness < 0 or (self.staleness == 0 and self.placements == ("async",)):
            raise InputError(
                f"staleness is {self.staleness}",
                rule="answers of an asynchronous run are at least a step old",
                hint="set --staleness 1, or --placement in-turns",
            )

    def _check_lengths(self) -> None:
        longest = self.answers.prompt_tokens + self.answers.lengths.cap
        window = self.question.model.max_position_embeddings
        if window and longest > window:
            raise InputError(
                f"prompts of {self.answers.prompt_tokens:,} tokens and answers of up to {self.answers.lengths.cap:,} "
                f"have {longest:,} together; {self.question.model.name} is made for {window:,}",
                rule="a prompt and its longest answer fit in the model's window",
                hint=f"set max in --response-tokens to at most {window - self.answers.prompt_tokens}"
                if window > self.answers.prompt_tokens
                else f"set --prompt-tokens below {window}, or take a model with a longer window",
            )
        if longest > self.packing.pack_tokens and not self.packing.whole:
            raise InputError(
                f"a prompt and its longest answer have {longest:,} tokens, "
                f"a packed sequence {self.packing.pack_tokens:,}",
                rule="a packed sequence holds the longest answer",
                hint=f"set --pack-tokens to at least {longest}",
            )


def check_updates(prompts: int, samples: int, updates: int) -> None:
    """Refuses optimizer steps that cannot share the answers. Raises ``InputError``."""
    if prompts % updates:
        raise InputError(
            f"{prompts:,} prompts of {samples:,} answers do not divide evenly into {updates:,} optimizer steps",
            rule="optimizer steps share the prompts evenly",
            hint=f"set --updates to a divisor of {prompts}",
        )


def split_fixed(fixed: Mapping[str, Any] | None) -> tuple[dict[str, Any], dict[str, int]]:
    """``--fix train.pp=16`` and ``rollout.tp=32`` by pool. Raises ``InputError``."""
    train: dict[str, Any] = {}
    rollout: dict[str, int] = {}
    for name, value in (fixed or {}).items():
        pool, dot, degree = str(name).partition(".")
        values = value if isinstance(value, list | tuple) else [value]
        if dot and pool == "train":
            train[degree] = tuple(values)
        elif dot and pool == "rollout" and degree in ROLLOUT:
            rollout[degree] = _whole(name, values)
        else:
            raise InputError(
                f"--fix names {shown(name)}",
                rule="a fixed field names its pool: train.FIELD, or rollout.tp, rollout.pp, rollout.ep",
                hint=_right_keys(degree or pool, shown(values[0]).strip("'") if values else "2"),
            )
    return train, rollout


def _right_keys(name: str, value: str) -> str:
    """What to write for a name without its pool, or with one that has no such field."""
    pools = ["train"] * (name in described(Plan)) + ["rollout"] * (name in ROLLOUT)
    keys = [f"{pool}.{name}={value}" for pool in pools] or ["train.tp=2", "rollout.tp=2"]
    return f"write {' or '.join(f'--fix {key}' for key in keys)}"


def _whole(name: str, values: Any) -> int:
    try:
        (text,) = values
        number = int(text)
    except (TypeError, ValueError):
        number = 0
    if number < 1:
        raise InputError(
            f"--fix {name} is {', '.join(map(shown, values))}",
            rule="a degree is one whole number, 1 or more",
            hint=f"write --fix {name}=8",
        )
    return number
