"""Random questions and plans that a framework runs: what an export can be asked for."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tests.launch.export.cases import Launch
from tests.strategies import divisors

from shardplan import load_cluster, load_model
from shardplan.base.errors import ShardplanError
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.layers import MixtureOfExperts
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import Setting
from shardplan.launch.export.targets import export_plan, stack_of, target_named
from shardplan.launch.export.written import Export
from shardplan.physics.frameworks.defaults import job_in_stack, plan_in_stack
from shardplan.physics.frameworks.runnable import refusals
from shardplan.physics.frameworks.stack import Stack
from shardplan.physics.validity import check_plans

MODELS: Final = (
    "llama-3.1-8b", "qwen3-30b-a3b", "llama-3.2-1b", "qwen3-32b", "deepseek-v3", "llama-3.1-70b", "mixtral-8x7b",
    "qwen2.5-7b", "gpt-oss-20b", "gemma-2-9b", "mistral-7b",
)  # fmt: skip
CLUSTERS: Final[Mapping[str, tuple[str, ...]]] = {"maxtext": ("dgx-h100", "tpu-v5p-pod", "tpu-v5e-pod")}
"""Where plans of a framework run, if not on ``dgx-h100`` alone."""
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
NAMED_ALONE: Final = (("maxtext", "overlap_tp"),)
"""Fields that an export only names as not expressed: flags of XLA turn them off."""
MOST_MENDED: Final = 4
"""Times that fields are left out which a framework refuses."""
REPLICAS: Final = ("ddp", "zero1", "zero2", "zero3", "hsdp", "hpz")
POLICIES: Final = ("none", "full", "selective", "op_sac", "layernorm", "layernorm,activation", "core_attn,mlp", "moe")


class Runnable(NamedTuple):
    """A plan that a framework runs, with its question."""

    question: Question
    plan: Plan
    stack: Stack

    @classmethod
    def of(cls, launch: Launch) -> Runnable:
        """A plan of the cases."""
        job, plan = launch.question()
        question = Question(
            model=load_model(launch.model), cluster=load_cluster(launch.cluster),
            num_accelerators=launch.num_accelerators, job=job,
        )  # fmt: skip
        return cls(question, plan, stack_of(target_named(launch.to), launch.version))

    def export(self) -> Export:
        """Its launch files."""
        q, can = self.question, self.stack.can_run
        return export_plan(
            self.stack.name, model=q.model, cluster=q.cluster, num_accelerators=q.num_accelerators, job=q.job,
            plan=self.plan, version=None if can is None else can.version,
        )  # fmt: skip


def varied(to: str, version: str | None, number: int, models: Sequence[str] = MODELS) -> Iterator[Runnable]:
    """Plans that the framework ``to`` runs, the same at every call, and no two alike."""
    rng = random.Random(f"{to} {version}")  # noqa: S311  # a sample, no secret
    known = set[object]()
    while len(known) < number:
        found = _drawn(rng, to, version, models)
        if found is not None and (key := (found.question.model.name, found.plan, found.question.job)) not in known:
            known.add(key)
            yield found


def _drawn(rng: random.Random, to: str, version: str | None, models: Sequence[str]) -> Runnable | None:
    """A plan that the framework runs: what was drawn, without the fields that it refuses; None where it has none."""
    stack = stack_of(target_named(to), version)
    model, cluster = load_model(rng.choice(models)), load_cluster(rng.choice(CLUSTERS.get(to, ("dgx-h100",))))
    total, rounds = rng.choice((8, 16, 64, 512)), rng.choice((1, 2, 4))
    of_plan = _degrees(rng, stack, model, total)
    of_job = {"sequence_length": rng.choice((4096, 8192)), **_some(rng, OF_JOB, one_in=5)}
    for _ in range(MOST_MENDED):
        ranks = of_plan.get("tp", 1) * of_plan.get("cp", 1)
        given = {"global_batch_size": of_plan["micro_batch_size"] * total // ranks * rounds, **of_job}
        try:
            job, _ = job_in_stack(Job(**given), stack, given)
            plan, _ = plan_in_stack(Plan(**of_plan), stack, model=model, job=job, num_accelerators=total, given=of_plan)
            question = Question(model=model, cluster=cluster, num_accelerators=total, job=job)
            setting = Setting.of(model, cluster, total, job)
            check_plans((plan,), setting)
        except ShardplanError:
            return None
        refused = {each.field for each in refusals(stack, plan, setting)}
        if not refused:
            return Runnable(question, plan, stack)
        of_plan = {name: value for name, value in of_plan.items() if name not in refused}
        of_job = {name: value for name, value in of_job.items() if name not in refused}
    return None


def _some(rng: random.Random, candidates: Mapping[str, tuple[Any, ...]], one_in: int) -> dict[str, Any]:
    return {name: rng.choice(values) for name, values in candidates.items() if rng.randrange(one_in) == 0}


def _degrees(rng: random.Random, stack: Stack, model: ModelConfig, total: int) -> dict[str, Any]:
    """Degrees that divide the accelerators; kinds of sharding and recomputation that the framework has."""
    can = stack.can_run
    assert can is not None
    small = [each for each in divisors(total) if each <= 16]
    tp = rng.choice([each for each in small if each <= 8])
    cp = rng.choice([each for each in (1, 1, 1, 2, 4) if total // tp % each == 0])
    pp = rng.choice([1, 1, *(each for each in small if total // (tp * cp) % each == 0)])
    found: dict[str, Any] = {
        "tp": tp,
        "cp": cp,
        "pp": pp,
        "vp": rng.choice((1, 1, 2, 4)) if pp > 1 else 1,
        "micro_batch_size": rng.choice((1, 2, 4)),
    }
    experts = [kind.mlp for kind in model.layer_kinds if isinstance(kind.mlp, MixtureOfExperts)]
    if experts:
        found["ep"] = rng.choice([each for each in divisors(total // pp) if experts[0].num_experts % each == 0])
    found["sharding"] = rng.choice(can.shardings or REPLICAS)
    smaller = [each for each in divisors(total // (tp * pp)) if 1 < each < total // (tp * pp)]
    if found["sharding"] in (can.partial_shardings or ()) and smaller and rng.random() < 0.5:
        found["sharding_degree"] = rng.choice(smaller)
    found["recompute"] = rng.choice(POLICIES)
    sometimes = {name: values for name, values in SOMETIMES.items() if (stack.name, name) not in NAMED_ALONE}
    return found | _some(rng, sometimes, one_in=8)
