"""Random questions and plans that a framework runs: what an export can be asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from hypothesis import assume, reject
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

MODELS: Final = ("llama-3.1-8b", "qwen3-30b-a3b", "llama-3.2-1b", "qwen3-32b", "deepseek-v3")
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


@st.composite
def runnable(draw: st.DrawFn, to: str, version: str | None = None, models: tuple[str, ...] = MODELS) -> Runnable:
    """A plan that the framework ``to`` runs."""
    stack = stack_of(target_named(to), version)
    model, cluster = load_model(draw(st.sampled_from(models))), load_cluster("dgx-h100")
    total = draw(st.sampled_from((8, 16, 64, 512)))
    fields = draw(_degrees(stack, model, total))
    replicas = total // (fields["tp"] * fields["cp"] * fields["pp"])
    batch = fields["micro_batch_size"] * replicas * fields["pp"] * draw(st.sampled_from((1, 2, 4)))
    given = {"sequence_length": draw(st.sampled_from((4096, 8192))), "global_batch_size": batch}
    given |= draw(_some(OF_JOB, one_in=5))
    try:
        job, _ = job_in_stack(Job(**given), stack, given)
        plan, _ = plan_in_stack(Plan(**fields), stack, model=model, job=job, num_accelerators=total, given=fields)
        question = Question(model=model, cluster=cluster, num_accelerators=total, job=job)
        setting = Setting.of(model, cluster, total, job)
        check_plans((plan,), setting)
    except ShardplanError:
        reject()
    assume(not any(True for _ in refusals(stack, plan, setting)))
    return Runnable(question, plan, stack)


@st.composite
def _some(draw: st.DrawFn, candidates: Mapping[str, tuple[Any, ...]], one_in: int) -> dict[str, Any]:
    chosen = [name for name in candidates if draw(st.integers(1, one_in)) == 1]
    return {name: draw(st.sampled_from(candidates[name])) for name in chosen}


@st.composite
def _degrees(draw: st.DrawFn, stack: Stack, model: ModelConfig, total: int) -> dict[str, Any]:
    """Degrees that divide the accelerators; kinds of sharding and recomputation that the framework has."""
    can = stack.can_run
    assert can is not None
    small = [each for each in divisors(total) if each <= 16]
    tp = draw(st.sampled_from([each for each in small if each <= 8]))
    cp = draw(st.sampled_from([each for each in (1, 1, 1, 2, 4) if total // tp % each == 0]))
    pp = draw(st.sampled_from([1, 1, *(each for each in small if total // (tp * cp) % each == 0)]))
    vp = draw(st.sampled_from((1, 1, 2, 4))) if pp > 1 else 1
    found: dict[str, Any] = {
        "tp": tp,
        "cp": cp,
        "pp": pp,
        "vp": vp,
        "micro_batch_size": draw(st.sampled_from((1, 2, 4))),
    }
    experts = [kind.mlp for kind in model.layer_kinds if isinstance(kind.mlp, MixtureOfExperts)]
    if experts:
        found["ep"] = draw(
            st.sampled_from([each for each in divisors(total // pp) if experts[0].num_experts % each == 0])
        )
    found["sharding"] = draw(st.sampled_from(can.shardings or REPLICAS))
    replicas = total // (tp * pp)
    smaller = [each for each in divisors(replicas) if 1 < each < replicas]
    if found["sharding"] in (can.partial_shardings or ()) and smaller and draw(st.booleans()):
        found["sharding_degree"] = draw(st.sampled_from(smaller))
    found["recompute"] = draw(st.sampled_from(POLICIES))
    return found | draw(_some(SOMETIMES, one_in=8))
