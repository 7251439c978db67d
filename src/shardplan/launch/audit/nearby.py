"""Plans that are near to another, and what differs between two.

The search is asked for two lists: the best plans with what is kept, and the best of those with the degrees as they are.
The second are among the first wherever the framework's record leaves the same choices, so that one search answers both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.errors import ShardplanError
from shardplan.base.fields import dataclass
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan, placement_tokens
from shardplan.physics.frameworks.runnable import all_run
from shardplan.physics.frameworks.stack import Stack
from shardplan.physics.validity import broken_rules
from shardplan.planner.evaluation import Table
from shardplan.planner.family import Family
from shardplan.planner.pruning.pruned import tables_of_pruned
from shardplan.planner.ranking import cells_with, different_cells
from shardplan.planner.related.forms import recommended_with_software
from shardplan.planner.robustness import PlanFacts
from shardplan.planner.scope import Scope
from shardplan.planner.space import Space
from shardplan.planner.stopping import SearchStopped, Stop
from shardplan.planner.survey import Goal, Listing, Survey

Change = dict[str, tuple[object, object]]
"""Old and new value of every field that changes."""


def changes(old: Plan, new: Plan) -> Change:
    """Fields that differ, with both values; the schedule by its effect.

    Both plans state their software (``Question.with_software``): what one leaves open differs from what another states.
    """
    found = {each.name: (getattr(old, each.name), getattr(new, each.name)) for each in fields(Plan)}
    found["schedule"] = (old.effective_schedule, new.effective_schedule)
    silent = {"overlap_pp"} | ({"sequence_parallel", "overlap_tp"} if new.tp == 1 else set())
    silent |= {"moe_dispatcher", "overlap_ep"} if new.ep == new.etp == 1 else set()
    used = {name for name in ("tp", "cp", "pp", "ep") if getattr(old, name) > 1 or getattr(new, name) > 1} | {"dp"}
    orders = [[each for each in placement_tokens(plan.placement) if each[0] in used] for plan in (old, new)]
    if orders[0] == orders[1]:
        silent.add("placement")
    return {key: pair for key, pair in found.items() if pair[0] != pair[1] and key not in silent}


MOST: Final = 3
"""Plans of each list."""
DEGREES: Final = ("tp", "pp", "cp", "ep")


def nearby_plans(
    question: Question, plan: Plan, stack: Stack | None, keep: Sequence[str], stop: Stop | None
) -> list[Plan]:
    """All of them, each once; ``keep``: fields that stay. Raises ``SearchStopped`` where ``stop`` says so."""
    searched = _searched(question, plan, keep, Scope(stack=stack, stop=stop))
    return list(dict.fromkeys((*_single(question, plan, stack, keep), *searched)))


def _single(question: Question, plan: Plan, stack: Stack | None, keep: Sequence[str]) -> list[Plan]:
    """Plans that differ in one field, or in one degree with what must follow."""
    setting = question.setting
    near = list(dict.fromkeys(each for each in _neighbours(plan) if not set(changes(plan, each)) & set(keep)))
    valid = [each for each, rule in zip(near, broken_rules(setting, near), strict=True) if rule is None]
    if stack is None:
        return valid
    return [each for each, can_run in zip(valid, all_run(stack, setting, valid), strict=True) if can_run]


def _neighbours(plan: Plan) -> Iterator[Plan]:
    """One field to another value each."""
    choices: dict[str, Sequence[Any]] = {
        "recompute": ("none", "selective", "full"),
        "micro_batch_size": (plan.micro_batch_size * 2, max(plan.micro_batch_size // 2, 1), 1, 2, 4),
        "vp": (1, 2, 3, 4, 5, 6, 8, 10),
        "sharding": ("zero1", "zero2", "zero3"),
        "overlap_dp": (True,),
        "overlap_tp": (True,),
        "overlap_ep": (True,),
        "sequence_parallel": (True,),
        "tp": (plan.tp * 2, max(plan.tp // 2, 1)),
        "pp": (plan.pp * 2, max(plan.pp // 2, 1)),
        "cp": (plan.cp * 2, max(plan.cp // 2, 1)),
        "ep": (plan.ep * 2, max(plan.ep // 2, 1)),
        "etp": (1,),
    }
    for name, values in choices.items():
        for value in values:
            if value != getattr(plan, name) and not (name == "vp" and plan.pp == 1):
                yield _changed(plan, name, value)


def _changed(plan: Plan, name: str, value: object) -> Plan:
    """The plan with one field changed, and what depends on it left open."""
    others: dict[str, Any] = {name: value}
    if name in {"vp", "pp"}:
        others |= {"schedule": None, "stage_layers": None, "microbatch_group_size": None, "overlap_pp": None}
    if name == "recompute":
        others["recompute_num_layers"] = None
    if name == "sharding":
        others["sharding_degree"] = None
    return replace(plan, **others)


def _searched(question: Question, plan: Plan, keep: Sequence[str], scope: Scope) -> Iterator[Plan]:
    """The best plans with what is kept, and the best with the degrees as they are; of both the one to take first."""
    kept = _values(question.with_software(plan), keep)
    degrees = {name: value for name, value in _values(plan, DEGREES).items() if name not in kept}
    for survey in _surveys(question, scope, kept, degrees):
        cells = different_cells(survey.tables, MOST)
        listed = survey.with_prices(cells)
        yield from listed.plans(cells)
        if listed.priced is not None:
            facts = PlanFacts(question, listed.priced, scope.tested(question))
            priced, best = recommended_with_software(question, facts, None, survey.space)
            yield priced.plan(best)


def _values(plan: Plan, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in names if getattr(plan, name) is not None}


def _surveys(question: Question, scope: Scope, kept: dict[str, Any], degrees: dict[str, Any]) -> Iterator[Survey]:
    """Plans with what is kept, and plans with these degrees too; none that contradict the question."""
    all_kept = _space(question, scope.fixing(**kept))
    near = _space(question, scope.fixing(**kept, **degrees)) if degrees else None
    if all_kept is not None and near is not None and _is_part(near, all_kept, degrees):
        survey = _survey(question, scope, all_kept, Listing(MOST), _ListingWith(MOST, wanted=degrees))
        if survey is not None:
            yield survey
            pruned = tuple(each.only(cells_with(each.tables.family, degrees)) for each in survey.pruned)
            yield replace(survey, space=near, tables=tuple(tables_of_pruned(pruned)), pruned=pruned)
        return
    for space in (all_kept, near):
        survey = None if space is None else _survey(question, scope, space, Listing(MOST))
        if survey is not None:
            yield survey


def _space(question: Question, scope: Scope) -> Space | None:
    """Plans with these values; None where they contradict the question."""
    try:
        return scope.space(question)
    except ShardplanError:
        return None


def _is_part(near: Space, whole: Space, fixed: Mapping[str, Any]) -> bool:
    """Whether a space holds those plans of the whole that have fixed values, and no others."""
    own, axes = near.axes, whole.axes
    alike = {name: values for name, values in own.items() if name not in fixed}
    return alike == {name: values for name, values in axes.items() if name not in fixed} and all(
        value in axes.get(name, ()) for name, value in fixed.items()
    )


def _survey(question: Question, scope: Scope, space: Space, *goals: Goal) -> Survey | None:
    """The plans of a space, priced as far as the goals ask for them; None where they contradict the question."""
    try:
        return scope.survey(question, *goals, space=space)
    except SearchStopped:
        raise
    except ShardplanError:
        return None


@dataclass(frozen=True, kw_only=True)
class _ListingWith(Listing):
    """The best plans with given degrees."""

    wanted: Mapping[str, int]

    def limit(self, tables: Sequence[Table]) -> float:
        """As of a search for these alone."""
        wanted = [cells_with(each.family, self.wanted) for each in tables]
        best = [np.where(cells, each.best, np.inf) for each, cells in zip(tables, wanted, strict=True)]
        return super().limit([replace(each, best=left) for each, left in zip(tables, best, strict=True)])

    def cells(self, family: Family) -> NDArray[np.bool_]:
        """Plans with these degrees."""
        return cells_with(family, self.wanted)
