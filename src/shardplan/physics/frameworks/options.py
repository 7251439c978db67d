"""A plan in the option names of a framework, from the options of its capability record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final

import numpy as np

from shardplan.base.fields import dataclass
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import Degrees, Setting
from shardplan.inputs.software import CHOSEN
from shardplan.physics.frameworks.capabilities import ANY_PLACEMENT, Capabilities
from shardplan.physics.frameworks.conditions import FACTS, Condition, KnownFacts, parse_condition
from shardplan.physics.frameworks.entry_rules import TEMPLATES, Template
from shardplan.physics.frameworks.option_entries import SAID, VALUES, OptionEntry
from shardplan.physics.frameworks.stack import Stack


@dataclass(frozen=True, kw_only=True)
class OptionsOfPlan:
    """What a user gives a framework to get one plan."""

    framework: str
    """The stack's name and the version of its record, such as ``deepspeed 0.19.6``."""
    options: tuple[str, ...]
    """Options in the framework's own syntax; those whose default gives the plan are left out."""
    in_effect: tuple[str, ...]
    """Those of them that make a difference for this plan and its job: not what only repeats a degree of one."""
    unsaid: tuple[str, ...]
    """Fields of the plan or the job that matter for this plan and that these options do not express."""
    says: tuple[tuple[str, ...], ...]
    """Fields that each of ``options`` states."""
    source: str
    """Where the names were read: a path in the repository at the record's commit."""
    from_memory: bool = False


IN_EFFECT: Final[Mapping[str, str]] = {
    "tp": "tp > 1",
    "cp": "cp > 1",
    "pp": "pp > 1",
    "vp": "vp > 1",
    "ep": "ep > 1",
    "etp": "experts and (tp > 1 or etp > 1)",
    "sequence_parallel": "tp > 1",
    "sharding": "replicas > 1",
    "sharding_degree": 'sharding_degree < replicas and sharding != "ddp"',
    "schedule": "pp > 1",
    "microbatch_group_size": "vp > 1 and microbatch_group_size != pp",
    "recompute_num_layers": "recompute != () and recompute_num_layers > 0",
    "offload": 'offload != "none"',
    "offload_num_layers": 'offload == "activations" and offload_num_layers > 0',
    "tp_kind": "tp > 1",
    "tp_rows": 'tp_kind != "1d"',
    "cp_comm": "cp > 1",
    "overlap_tp": "tp > 1",
    "overlap_dp": "replicas > 1",
    "overlap_pp": "pp > 1",
    "overlap_ep": "ep > 1",
    "moe_dispatcher": "experts and (ep > 1 or etp > 1)",
    "cuda_graphs": 'cuda_graphs != "none"',
    "fused_loss": "fused_loss",
    "stage_layers": "pp > 1",
}
"""Fields that make a difference only in some plans. One that makes a difference must be expressed."""


def options_of(stack: Stack, setting: Setting, plan: Plan) -> OptionsOfPlan | None:
    """``plan`` in the stack's own option names; None where its record has no options."""
    can = stack.can_run
    if can is None or can.options is None:
        return None
    plan = _without_none_of(plan)
    degrees = Degrees.of(plan)
    known = KnownFacts(VALUES, setting, degrees)
    entries = [each for each in can.options.entries if each.holds(known)]
    said = {name for each in entries for name in each.says}
    written = [(each, each.written(known)) for each in entries if each.pieces]
    return OptionsOfPlan(
        framework=stack.label,
        options=tuple(text for _, text in written),
        in_effect=tuple(text for each, text in written if _is_in_effect(each, setting, degrees)),
        says=tuple(each.says for each, _ in written),
        unsaid=tuple(name for name in SAID if name not in said and _must_be_said(name, can, setting, degrees)),
        source=can.sources["options"],
        from_memory="options" in can.from_memory,
    )


def _is_in_effect(entry: OptionEntry, s: Setting, d: Degrees) -> bool:
    """Whether an option sets a field that makes a difference, or belongs to one that does."""
    return not entry.says or any(makes_a_difference(name, s, d) for name in entry.says)


def _without_none_of(plan: Plan) -> Plan:
    """The plan without policies that apply to no layer."""
    if plan.recompute_num_layers == 0:
        plan = replace(plan, recompute="none", recompute_num_layers=None)
    if plan.offload == "activations" and plan.offload_num_layers == 0:
        plan = replace(plan, offload="none", offload_num_layers=None)
    return plan


def _must_be_said(name: str, can: Capabilities, s: Setting, d: Degrees) -> bool:
    """Whether a field makes a difference that the framework does not make by itself."""
    return makes_a_difference(name, s, d) and not _is_given(name, can, s, d)


def makes_a_difference(name: str, s: Setting, d: Degrees) -> bool:
    """Whether a field of a plan or a job matters for one plan."""
    return name not in IN_EFFECT or bool(_in_effect(name).holds(s, d))


@cache
def _in_effect(name: str) -> Condition:
    return parse_condition(IN_EFFECT[name], name)


def _is_given(name: str, can: Capabilities, s: Setting, d: Degrees) -> bool:
    """Whether the framework has nothing else than what the plan has in this field, or that where nothing is stated."""
    if name in CHOSEN:
        return getattr(d.plan, name) is None  # as the software of the job says
    if name in _CHOICES:
        known = _choices(getattr(can, _CHOICES[name]))
        return len(known) == 1 and bool(FACTS[name](s, d) == known[0])
    if name not in _DEFAULTS:
        return False
    template, default_of = _DEFAULTS[name]
    entry = getattr(can, template.entry)
    default = None if entry is None else default_of(entry)
    return default is not None and bool(np.all(template.holds(default, s, d)))


def _choices(entry: Any) -> tuple[Any, ...]:
    """Values that an entry leaves to the user; none where the record is silent."""
    return () if entry is None else _SWITCHES[entry] if isinstance(entry, str) else tuple(entry)


_SWITCHES: Final = {"on": (True,), "off": (False,), "either": (True, False)}
_CHOICES: Final[Mapping[str, str]] = {
    "schedule": "schedules",
    "cp_comm": "cp_comm",
    "tp_kind": "tp_kinds",
    "precision": "precisions",
    "optimizer": "optimizers",
    **{name: name for name in ("sequence_parallel", "overlap_tp", "overlap_dp", "overlap_pp", "overlap_ep")},
}
"""Fields of which a framework may know one value only, with the entry of its record that lists them."""


def _template(field: str) -> Template:
    return next(each for each in TEMPLATES if each.field == field)


_DEFAULTS: Final[Mapping[str, tuple[Template, Callable[[Any], Any]]]] = {
    "etp": (_template("etp"), lambda degree: None if degree == "any" else degree),
    "microbatch_group_size": (_template("microbatch_group_size"), lambda size: None if size == "any" else size),
    "placement": (_template("placement"), lambda orders: None if ANY_PLACEMENT in orders else orders[:1]),
    "stage_layers": (_template("stage_layers"), lambda ways: tuple(way for way in ways if way != "counts")),
}
"""Fields with a rule of their own, and what a framework does where nothing is stated: of the orders of ranks
the first, and layers are shared without stated numbers."""
