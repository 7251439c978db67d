"""A plan in numbers, which the formulas read, for one plan or for an array of plans.

``PlanNumbers.of`` turns a ``Plan`` into plain numbers. The search builds the same record with arrays, each field along
an axis of its own, so that every formula runs over the product of just those axes that it uses. Fields that select a
formula rather than scale it (schedule, placement, exchange of context, kind of tensor parallelism) are single values
either way.

``Setting`` and ``Degrees`` are the inputs of the rules of validity: the facts of a question, and the degrees of one
plan or of many candidates.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, fields, replace
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import Any, Final

import numpy as np

from shardplan.base.arrays import Flags, Numbers, any_holds, ceil_divide, column
from shardplan.base.fields import dataclass
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.companions import NONE, GivenModels, companions_of
from shardplan.inputs.job import Job
from shardplan.inputs.layers import MLP, Attention, Mixer, MixtureOfExperts
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import OP_SAC, RECOMPUTE_MODULES, CpComm, Plan, TpKind, placement_tokens, recompute_modules
from shardplan.inputs.sharding import EACH_PASS, SHARDINGS, expert_ranks, sharding_fields

AS_STATED: Final = (
    *(
        "tp",
        "cp",
        "pp",
        "vp",
        "ep",
        "etp",
        "micro_batch_size",
        "tp_rows",
        "sequence_parallel",
        "schedule",
        "overlap_tp",
    ),
    *("overlap_dp", "overlap_ep", "tp_kind", "cp_comm", "placement", "stage_layers"),
)
"""Fields of ``PlanNumbers`` with the same value as in the plan."""


@dataclass(frozen=True)
class Digit:
    """A run of ranks of one dimension: ``size`` ranks that lie ``stride`` accelerators apart."""

    size: Numbers
    stride: Numbers


@dataclass(frozen=True, kw_only=True)
class PlanNumbers:
    """Degrees, flags and derived counts of one plan, or arrays of them."""

    num_accelerators: int
    """World size."""
    tp: Numbers
    cp: Numbers
    pp: Numbers
    vp: Numbers
    ep: Numbers
    etp: Numbers
    micro_batch_size: Numbers
    dp: Numbers
    """Data-parallel replicas: accelerators / (tp cp pp)."""
    edp: Numbers
    """Replicas of every expert: accelerators / (pp ep etp)."""
    num_microbatches: Numbers
    """Micro-batches of one replica and step."""
    tp_rows: Numbers
    """Rows of the two-dimensional tensor-parallel grid (1: one-dimensional)."""
    sequence_parallel: Flags
    shards_optimizer: Flags
    """Whether optimizer states are sharded (zero1 and up)."""
    shards_gradients: Flags
    """Whether gradients are reduced to shards in every micro-batch; otherwise they are whole to the last one."""
    scatters_gradients: Flags
    """Whether each rank keeps a shard of the gradients after the last micro-batch (zero2 and up)."""
    shards_weights: Flags
    """Whether gradients are reduced to shards in every micro-batch; otherwise they are whole until the last one."""
    weight_gathers: Numbers
    """How often a micro-batch gathers weights: 2, for each pass, 1, for both, or 0: they stay through a step."""
    sharding_degree: Numbers
    """Ranks over which it shards, at most ``dp * cp``."""
    second_degree: Numbers | None
    """Ranks that share a second copy of the weights, from which the backward pass gathers (hpz); ``sharding_degree``
    where a plan has none, and None where no plan has one."""
    microbatch_group_size: Numbers
    schedule: str | None = None
    """Name of the pipeline schedule; it follows from ``vp`` where None."""
    recompute: dict[str, Flags] = field(default_factory=dict)
    """For each module, and for ``op_sac``, whether it is recomputed."""
    recompute_full: Flags = False
    """Whether whole layers are recomputed from their input."""
    recompute_num_layers: Numbers = np.inf
    """Layers of each stage to which recomputation applies."""
    offload_optimizer: Flags = False
    offload_activations: Flags = False
    offload_num_layers: Numbers = np.inf
    """Layers of each stage whose activations are offloaded to the host."""
    overlap_tp: Flags = False
    overlap_dp: Flags = True
    overlap_pp: Flags = False
    overlap_ep: Flags = False
    tp_kind: TpKind = "1d"
    cp_comm: CpComm = "p2p"
    placement: str = "tp-cp-ep-dp-pp"
    stage_layers: tuple[int, ...] | None = None

    @classmethod
    def of(cls, plan: Plan, num_accelerators: int, job: Job) -> PlanNumbers:
        """One plan's numbers (the plan is assumed valid for this world size and job)."""
        dp = plan.dp(num_accelerators)
        modules = recompute_modules(plan.recompute)
        return cls(
            **{name: getattr(plan, name) for name in AS_STATED},
            **sharding_fields(
                plan.sharding, plan.sharding_degree or 0, job.software, replicas=dp * plan.cp, pp=plan.pp
            ),
            num_accelerators=num_accelerators,
            dp=dp,
            edp=num_accelerators // (plan.pp * plan.ep * plan.etp),
            num_microbatches=job.global_batch_size // (dp * plan.micro_batch_size),
            microbatch_group_size=plan.microbatch_group_size or plan.pp,
            recompute={module: module in modules for module in (*RECOMPUTE_MODULES, OP_SAC)},
            recompute_full=plan.recompute == "full",
            recompute_num_layers=np.inf if plan.recompute_num_layers is None else plan.recompute_num_layers,
            offload_optimizer=plan.offload == "optimizer",
            offload_activations=plan.offload == "activations",
            offload_num_layers=np.inf if plan.offload_num_layers is None else plan.offload_num_layers,
            overlap_pp=plan.vp > 1 if plan.overlap_pp is None else plan.overlap_pp,
        )

    @property
    def replicas(self) -> Numbers:
        """Ranks that hold the same dense weights: data and context parallelism share one group."""
        return self.dp * self.cp

    @cached_property
    def expert_sharding_degree(self) -> Numbers:
        """Ranks over which expert states are sharded: the same share of their replicas as for dense ones."""
        return expert_ranks(self.sharding_degree, self.replicas, self.edp)

    @cached_property
    def expert_second_degree(self) -> Numbers:
        """Ranks that share a second copy of the experts' weights."""
        assert self.second_degree is not None, "some plan has a second copy"
        return expert_ranks(self.second_degree, self.replicas, self.edp)

    @property
    def exchanges_tokens(self) -> Flags:
        """Whether tokens reach experts of other ranks, so that the dispatcher matters."""
        return np.greater(self.ep, 1) | np.greater(self.etp, 1)

    @property
    def overlaps_experts(self) -> Flags:
        """Whether an exchange of experts overlaps with another micro-batch."""
        return np.logical_and(self.overlap_ep, np.greater(self.ep, 1)) if any_holds(self.overlap_ep) else False

    @property
    def frees_weights(self) -> Flags:
        """Whether weights are freed after each pass, so that a rank holds its shards and a layer or two."""
        return np.equal(self.weight_gathers, EACH_PASS)

    @property
    def tp_columns(self) -> Numbers:
        """Tensor-parallel ranks that share heads and intermediate width (all, unless the grid has rows)."""
        return self.tp / self.tp_rows

    @property
    def sequence_shards(self) -> Numbers:
        """Ranks that share every sequence inside attention."""
        return self.cp * self.tp_rows


def digits(numbers: PlanNumbers) -> dict[str, tuple[Digit, ...]]:
    """The position of the ranks of every dimension, innermost digit first.

    Ranks are numbered in mixed radix along the placement; dense layers and experts number the same accelerators along
    (tp, cp, dp, pp) and (etp, ep, edp, pp) (parallel folding, arXiv 2504.14960).
    """
    tokens = placement_tokens(numbers.placement)
    dense = _digits_along(tokens, {"tp": numbers.tp, "cp": numbers.cp, "dp": numbers.dp, "pp": numbers.pp})
    renamed = tuple(({"tp": "etp", "dp": "edp"}.get(name, name), None) for name, number in tokens if number is None)
    experts = _digits_along(renamed, {"etp": numbers.etp, "ep": numbers.ep, "edp": numbers.edp, "pp": numbers.pp})
    return {**experts, **dense}


def _digits_along(
    tokens: tuple[tuple[str, int | None], ...], degrees: dict[str, Numbers]
) -> dict[str, tuple[Digit, ...]]:
    left = dict(degrees)
    laid: dict[str, tuple[Digit, ...]] = dict.fromkeys(degrees, ())
    stride: Numbers = 1
    for name, number in tokens:
        if name not in left:
            continue
        size = left[name] if number is None else np.gcd(np.asarray(left[name], dtype=np.int64), number)
        laid[name] += (Digit(size, stride),)
        left[name] = ceil_divide(left[name], size)
        stride = stride * size
    return laid


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What the rules know in addition to the plan."""

    model: ModelConfig
    cluster: Cluster
    num_accelerators: int
    job: Job
    heads: tuple[int, ...]
    """Numbers of heads that tensor parallelism divides, one for every kind of mixer."""
    kv_heads: tuple[int, ...]
    widths: tuple[int, ...]
    """Intermediate widths of dense and shared MLPs."""
    num_experts: tuple[int, ...]
    expert_widths: tuple[int, ...]
    plain: bool
    """Whether all layers are grouped-query attention and dense MLP."""
    companions: tuple[Setting, ...] = ()
    """The same for frozen models of the job."""

    @classmethod
    def of(
        cls, model: ModelConfig, cluster: Cluster, num_accelerators: int, job: Job, companions: GivenModels = ()
    ) -> Setting:
        """The facts of ``model`` that rules use; ``companions`` are models of its job that are not built in."""
        mixers = [mixer for kind in model.layer_kinds for mixer in kind.mixers]
        mlps = [kind.mlp for kind in model.layer_kinds]
        experts = [m for m in mlps if isinstance(m, MixtureOfExperts)]
        shared = [m.shared_intermediate_size for m in experts if m.shared_intermediate_size]
        return cls(
            model=model,
            cluster=cluster,
            num_accelerators=num_accelerators,
            job=job,
            heads=_distinct(head for mixer in mixers for head in heads_of(mixer)),
            kv_heads=_distinct(m.num_kv_heads for m in mixers if isinstance(m, Attention)),
            widths=_distinct([*(m.intermediate_size for m in mlps if isinstance(m, MLP)), *shared]),
            num_experts=_distinct(m.num_experts for m in experts),
            expert_widths=_distinct(m.intermediate_size for m in experts),
            plain=all(type(kind.mixer) is Attention for kind in model.layer_kinds)
            and len(mixers) == len(model.layer_kinds)
            and not experts
            and None not in mlps,
            companions=tuple(
                cls.of(each.config(model, companions), cluster, num_accelerators, replace(job, companion=NONE))
                for each in companions_of(job.companion)
            ),
        )


@dataclass(frozen=True, kw_only=True)
class Degrees:
    """The fields that rules read: numbers of one plan, or arrays of candidates."""

    tp: Numbers
    cp: Numbers
    pp: Numbers
    vp: Numbers
    ep: Numbers
    etp: Numbers
    micro_batch_size: Numbers
    tp_rows: Numbers
    sharding_degree: Numbers
    """0 for all data- and context-parallel ranks."""
    hybrid: Flags
    """Whether the kind of sharding needs a degree below the number of replicas (hsdp, hpz)."""
    microbatch_group_size: Numbers
    """0 for pp."""
    interleaved: Flags
    plan: Plan
    """Fields that are not numbers, and text for explanations."""

    @classmethod
    def of(cls, plan: Plan) -> Degrees:
        """The numbers of one plan."""
        return cls(
            tp=plan.tp, cp=plan.cp, pp=plan.pp, vp=plan.vp, ep=plan.ep, etp=plan.etp,
            micro_batch_size=plan.micro_batch_size, tp_rows=plan.tp_rows, sharding_degree=plan.sharding_degree or 0,
            hybrid=SHARDINGS[plan.sharding].in_groups, microbatch_group_size=plan.microbatch_group_size or 0,
            interleaved=plan.effective_schedule == "interleaved", plan=plan,
        )  # fmt: skip

    @classmethod
    def of_all(cls, plans: Sequence[Plan]) -> Degrees:
        """The numbers of plans that differ in nothing else; a value that is the same in all is one number."""
        each = [cls.of(plan) for plan in plans]
        return replace(each[0], **{name: column([getattr(one, name) for one in each]) for name in COLUMNS})


def degrees_with(values: Mapping[str, Any]) -> Degrees:
    """The numbers of a plan with these values of its fields, cached for recent plans."""
    return _degrees_with(tuple(values), tuple(values.values()))


@lru_cache(maxsize=4096)
def _degrees_with(names: tuple[str, ...], values: tuple[Any, ...]) -> Degrees:
    return Degrees.of(Plan(**dict(zip(names, values, strict=True))))


COLUMNS = tuple(each.name for each in fields(Degrees) if each.name != "plan")
"""Fields of ``Degrees`` that can be columns."""
WORDS = tuple(each.name for each in fields(Plan) if each.name not in COLUMNS)
"""Fields of a plan that rules do not read as numbers."""


def differing_in_numbers(plans: Sequence[Plan], besides: Collection[str] = ()) -> Iterable[list[int]]:
    """Indices of plans that differ only in numbers, and in fields ``besides``.

    Stated layers belong to one pipeline.
    """
    words = attrgetter(*(name for name in WORDS if name not in besides))
    groups: dict[object, list[int]] = {}
    for place, plan in enumerate(plans):
        pipeline = None if plan.stage_layers is None else (plan.pp, plan.vp)
        groups.setdefault((pipeline, words(plan)), []).append(place)
    return groups.values()


def columns(d: Degrees) -> Numbers:
    """Tensor-parallel ranks that share heads and widths: tp over its rows."""
    return np.maximum(np.floor_divide(d.tp, d.tp_rows), 1)


def replicas(s: Setting, d: Degrees) -> Numbers:
    """Ranks that hold the same weights, dp cp; 1 if the degrees exceed the accelerators."""
    return np.maximum(np.floor_divide(s.num_accelerators, d.tp * d.pp), 1)


def data_parallel_degree(s: Setting, d: Degrees) -> Numbers:
    """Replicas that read different sequences, dp; 1 if the degrees exceed the accelerators."""
    return np.maximum(np.floor_divide(s.num_accelerators, d.tp * d.cp * d.pp), 1)


def num_microbatches(s: Setting, d: Degrees) -> Numbers:
    """Micro-batches per replica, rounded down."""
    return np.floor_divide(s.job.global_batch_size, data_parallel_degree(s, d) * d.micro_batch_size)


def _distinct(values: Any) -> tuple[int, ...]:
    return tuple(dict.fromkeys(values))


def heads_of(mixer: Mixer) -> tuple[int, ...]:
    """Numbers that tensor parallelism divides: heads, groups of heads, or channels if there are no heads."""
    return tuple(getattr(mixer, name) for name in mixer.shared_by_tp)
