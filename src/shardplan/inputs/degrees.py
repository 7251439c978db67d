"""What the rules of validity read: the facts of a question, and the degrees of one plan or of many candidates."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any

import numpy as np

from shardplan.arrays import Flags, Numbers, column
from shardplan.fields import dataclass
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.job import Job
from shardplan.inputs.layers import MLP, Attention, Mixer, MixtureOfExperts
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.inputs.sharding import SHARDINGS


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What the rules know besides the plan."""

    model: ModelConfig
    cluster: Cluster
    num_accelerators: int
    job: Job
    heads: tuple[int, ...]
    """Numbers of heads that tensor parallelism shares, one for every kind of mixer."""
    kv_heads: tuple[int, ...]
    widths: tuple[int, ...]
    """Intermediate widths of dense and shared MLPs."""
    num_experts: tuple[int, ...]
    expert_widths: tuple[int, ...]
    plain: bool
    """Whether all layers are grouped-query attention and dense MLP."""

    @classmethod
    def of(cls, model: ModelConfig, cluster: Cluster, num_accelerators: int, job: Job) -> Setting:
        """The facts of ``model`` that rules ask for."""
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
    """0: all data- and context-parallel ranks."""
    hybrid: Flags
    """Whether the kind of sharding needs a degree below the number of replicas (hsdp, hpz)."""
    microbatch_group_size: Numbers
    """0: pp."""
    interleaved: Flags
    plan: Plan
    """Fields that are not numbers, and the words of an explanation."""

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
        """The numbers of plans that differ in nothing else; what is the same in all is one number."""
        each = [cls.of(plan) for plan in plans]
        return replace(each[0], **{name: column([getattr(one, name) for one in each]) for name in COLUMNS})


def degrees_with(values: Mapping[str, Any]) -> Degrees:
    """The numbers of a plan with these values of its fields; of plans that were asked for lately they are known."""
    return _degrees_with(tuple(values), tuple(values.values()))


@lru_cache(maxsize=4096)
def _degrees_with(names: tuple[str, ...], values: tuple[Any, ...]) -> Degrees:
    return Degrees.of(Plan(**dict(zip(names, values, strict=True))))


COLUMNS = tuple(each.name for each in fields(Degrees) if each.name != "plan")
"""Fields of ``Degrees`` that can be columns."""
WORDS = tuple(each.name for each in fields(Plan) if each.name not in COLUMNS)
"""Fields of a plan that rules do not read as numbers."""


def differing_in_numbers(plans: Sequence[Plan], besides: Collection[str] = ()) -> Iterable[list[int]]:
    """Positions of plans that differ in numbers alone, and in fields ``besides``.

    Stated layers are those of some pipeline.
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
    """Ranks that hold the same weights, dp cp; 1 where the degrees exceed the accelerators."""
    return np.maximum(np.floor_divide(s.num_accelerators, d.tp * d.pp), 1)


def data_parallel_degree(s: Setting, d: Degrees) -> Numbers:
    """Replicas that read different sequences, dp; 1 where the degrees exceed the accelerators."""
    return np.maximum(np.floor_divide(s.num_accelerators, d.tp * d.cp * d.pp), 1)


def num_microbatches(s: Setting, d: Degrees) -> Numbers:
    """Micro-batches per replica, rounded down."""
    return np.floor_divide(s.job.global_batch_size, data_parallel_degree(s, d) * d.micro_batch_size)


def _distinct(values: Any) -> tuple[int, ...]:
    return tuple(dict.fromkeys(values))


def heads_of(mixer: Mixer) -> tuple[int, ...]:
    """Numbers that tensor parallelism divides: heads, groups of heads, or channels where there are no heads."""
    return tuple(getattr(mixer, name) for name in mixer.shared_by_tp)
