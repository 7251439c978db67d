"""The search done the slow way: every combination of the candidates checked and priced."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from shardplan.estimation.estimate import price_plans
from shardplan.estimation.priced import PricedPlan
from shardplan.estimation.question import Question
from shardplan.inputs.layers import MixtureOfExperts
from shardplan.inputs.plan import Plan, Sharding
from shardplan.inputs.plan_numbers import Setting
from shardplan.physics.validity import broken_rules

Candidates = Mapping[str, Sequence[Any]]

NEEDS = {"cp_comm": "cp", "sequence_parallel": "tp", "overlap_tp": "tp", "overlap_ep": "ep", "tp_kind": "tp"}
"""Fields that mean nothing where this degree is one."""
DEGREES = ("tp", "tp_rows", "cp", "pp", "ep", "etp")


def valid_plans(asked: Question, candidates: Candidates) -> list[Plan]:
    """Every valid plan of the product of candidates; of plans that are one in other words the first, simplest first."""
    setting = Setting.of(asked.model, asked.cluster, asked.num_accelerators, asked.job)
    found: dict[Plan, Plan] = {}
    plans = [*product_of(candidates)]
    for plan, rule in zip(plans, broken_rules(setting, plans), strict=True):
        if rule is None:
            found.setdefault(meaning(asked, plan), plan)
    return list(found.values())


def product_of(candidates: Candidates) -> Iterator[Plan]:
    """Every combination of candidates, valid or not, the simplest sharding first."""
    kinds = get_args(Sharding)
    simplest_first = {**candidates}
    if "sharding" in candidates:
        simplest_first["sharding"] = sorted(candidates["sharding"], key=kinds.index)
    for values in itertools.product(*simplest_first.values()):
        plan = Plan(**dict(zip(candidates, values, strict=True)))
        yield replace(plan, sharding_degree=None) if plan.sharding == "ddp" else plan


def meaning(asked: Question, plan: Plan) -> Plan:
    """The plan without what has no effect in it: plans that mean the same are one."""
    without = {name: None for name, degree in NEEDS.items() if getattr(plan, degree) == 1}
    without |= {"moe_dispatcher": None} if plan.ep == plan.etp == 1 else {}  # no token leaves its rank
    if not _has_replicas(asked, plan):
        without |= {"sharding": None, "sharding_degree": None}
    silent = {"dp": plan.dp(asked.num_accelerators), "pp": plan.pp}
    if asked.model.is_moe:  # replicas of experts lie where those of the dense layers would
        silent["dp"] *= asked.num_accelerators // (plan.pp * plan.ep * plan.etp)
    order = tuple(name for name in plan.placement.split("-") if silent.get(name) != 1)
    return _raw(plan, {**without, "placement": order})


def without_software(asked: Question, plan: Plan) -> Plan:
    """What a plan is, whatever runs it."""
    return meaning(asked, replace(plan, overlap_tp=False, overlap_ep=False, moe_dispatcher=None, cuda_graphs=None))


def _raw(plan: Plan, values: dict[str, Any]) -> Plan:
    """A copy with values that no plan may have: it is compared, never used."""
    copy = replace(plan)
    for name, value in values.items():
        object.__setattr__(copy, name, value)
    return copy


def _has_replicas(asked: Question, plan: Plan) -> bool:
    n = asked.num_accelerators
    experts = any(isinstance(kind.mlp, MixtureOfExperts) for kind in asked.model.layer_kinds)
    return n > plan.tp * plan.pp or (experts and n > plan.pp * plan.ep * plan.etp)


def priced(asked: Question, candidates: Candidates) -> list[PricedPlan]:
    """Every valid plan with its prices."""
    return price_plans(asked, valid_plans(asked, candidates))


def best_of_each(answers: Sequence[PricedPlan]) -> list[float]:
    """The least step time for every combination of degrees that fits, best first. [s]"""
    best: dict[tuple[int, ...], float] = {}
    for answer in answers:
        degrees = tuple(getattr(answer.plan, name) for name in DEGREES)
        best[degrees] = min(answer.step_time, best.get(degrees, answer.step_time))
    return sorted(best.values())
