"""Random questions and plans that a framework runs: what an export can be asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count, islice
from random import Random
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from hypothesis import reject
from hypothesis import strategies as st
from tests.strategies import divisors

from shardplan import load_cluster, load_model
from shardplan.base.errors import ShardplanError
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.layers import MixtureOfExperts
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import Setting
from shardplan.launch.export.targets import stack_of, target_named
from shardplan.physics.frameworks.defaults import job_in_stack, plan_in_stack
from shardplan.physics.frameworks.runnable import refusals
from shardplan.physics.frameworks.stack import Stack
from shardplan.physics.validity import check_plans

T = TypeVar("T")
MODELS: Final = ("llama-3.1-8b", "qwen3-30b-a3b", "llama-3.2-1b", "qwen3-32b", "deepseek-v3")
ALL_MODELS: Final = (
    *MODELS, "llama-3.1-70b", "mixtral-8x7b", "qwen3-235b-a22b", "gpt-oss-20b", "kimi-k2", "gemma-2-2b", "qwen2.5-7b",
    "deepseek-v2-lite", "llama-4-scout", "gpt3-175b", "mistral-7b", "glm-4.5-air", "llama-3.1-405b", "minimax-m2.5",
)  # fmt: skip
"""Models of every kind that exports state."""
SEVERAL: Final = ("dgx-h100", "dgx-h100", "dgx-b200")
SOMETIMES: Final[Mapping[str, tuple[Any, ...]]] = {
    "sequence_parallel": (True, False),
    "recompute_num_layers": (2, 4),
    "offload": ("optimizer", "activations"),
    "cp_comm": ("p2p", "allgather", "a2a"),
    "overlap_tp": (True, False),
    "overlap_dp": (True, False),
    "overlap_pp": (True, False),
    "overlap_ep": (True, False),
    "schedule": ("1f1b", "gpipe", "interleaved", "breadth-first", "zb-v", "dualpipe-v"),
    "microbatch_group_size": (8, 16),
    "placement": ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", "tp-cp-dp-pp-ep"),
    "etp": (1, 2),
}
"""Candidates of fields that a framework decides where they are not drawn."""
OF_JOB: Final[Mapping[str, tuple[Any, ...]]] = {
    "precision": ("fp8", "fp16", "fp32", "mxfp8"),
    "optimizer": ("sgd", "muon"),
    "grad_dtype": ("bf16", "fp32"),
}
REPLICAS: Final = ("ddp", "zero1", "zero2", "zero3", "hsdp", "hpz")
POLICIES: Final = ("none", "full", "selective", "op_sac", "layernorm", "layernorm,activation", "core_attn,mlp", "moe")


class Runnable(NamedTuple):
    """A plan that a framework runs, with its question."""

    question: Question
    plan: Plan
    stack: Stack


class Pick(Protocol):
    """Takes one of several candidates."""

    def __call__(self, candidates: Sequence[T], /) -> T: ...


@st.composite
def runnable(draw: st.DrawFn, to: str, version: str | None = None, models: tuple[str, ...] = MODELS) -> Runnable:
    """A plan that the framework ``to`` runs."""
    found = drawn(lambda candidates: draw(st.sampled_from(candidates)), to, version, models)
    return reject() if found is None else found


def varied(to: str, number: int, version: str | None = None) -> list[Runnable]:
    """So many plans that the framework ``to`` runs, of all models in turn, the same on every call."""
    pick = Random(f"{to} {version}").choice  # noqa: S311  # the same plans at every run
    endless = (drawn(pick, to, version, (model,), SEVERAL) for _ in count() for model in ALL_MODELS)
    return list(islice((each for each in endless if each is not None), number))


def drawn(
    pick: Pick, to: str, version: str | None, models: Sequence[str], clusters: Sequence[str] = ("dgx-h100",)
) -> Runnable | None:
    """A plan as ``pick`` chooses it; None where the framework does not run it."""
    stack = stack_of(target_named(to), version)
    model, cluster = load_model(pick(models)), load_cluster(pick(clusters))
    total = pick((8, 16, 64, 512))
    fields = _degrees(pick, stack, model, total)
    replicas = total // (fields["tp"] * fields["cp"] * fields["pp"])
    batch = fields["micro_batch_size"] * replicas * fields["pp"] * pick((1, 2, 4))
    given = {"sequence_length": pick((4096, 8192)), "global_batch_size": batch} | _some(pick, OF_JOB, one_in=5)
    try:
        job, _ = job_in_stack(Job(**given), stack, given)
        plan, _ = plan_in_stack(Plan(**fields), stack, model=model, job=job, num_accelerators=total, given=fields)
        question = Question(model=model, cluster=cluster, num_accelerators=total, job=job)
        setting = Setting.of(model, cluster, total, job)
        check_plans((plan,), setting)
    except ShardplanError:
        return None
    return None if any(True for _ in refusals(stack, plan, setting)) else Runnable(question, plan, stack)


def _some(pick: Pick, candidates: Mapping[str, tuple[Any, ...]], one_in: int) -> dict[str, Any]:
    chosen = [name for name in candidates if pick(range(one_in)) == 0]
    return {name: pick(candidates[name]) for name in chosen}


def _degrees(pick: Pick, stack: Stack, model: ModelConfig, total: int) -> dict[str, Any]:
    """Degrees that divide the accelerators; kinds of sharding and recomputation that the framework has."""
    can = stack.can_run
    assert can is not None
    small = [each for each in divisors(total) if each <= 16]
    tp = pick([each for each in small if each <= 8])
    cp = pick([each for each in (1, 1, 1, 2, 4) if total // tp % each == 0])
    pp = pick([1, 1, *(each for each in small if total // (tp * cp) % each == 0)])
    vp = pick((1, 1, 2, 4)) if pp > 1 else 1
    found: dict[str, Any] = {
        "tp": tp,
        "cp": cp,
        "pp": pp,
        "vp": vp,
        "micro_batch_size": pick((1, 2, 4)),
    }
    experts = [kind.mlp for kind in model.layer_kinds if isinstance(kind.mlp, MixtureOfExperts)]
    if experts:
        found["ep"] = pick([each for each in divisors(total // pp) if experts[0].num_experts % each == 0])
    found["sharding"] = pick(can.shardings or REPLICAS)
    replicas = total // (tp * pp)
    smaller = [each for each in divisors(replicas) if 1 < each < replicas]
    if found["sharding"] in (can.partial_shardings or ()) and smaller and pick((True, False)):
        found["sharding_degree"] = pick(smaller)
    found["recompute"] = pick(POLICIES)
    return found | _some(pick, SOMETIMES, one_in=8)
