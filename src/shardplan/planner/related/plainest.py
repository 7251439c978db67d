"""The plan to take without software that gains it nothing: the plainest of those that are alike.

A search looks at no choice that is never better than another (``planner.software``), so that the plan it finds may
capture graphs, or need a library, for less than anybody could measure. Each such choice goes back to what is usual, as
long as the step stays within ``ALIKE_TIME`` and the plan fits as well as before.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardplan.arrays import all_hold
from shardplan.estimation.estimate import price_plans
from shardplan.estimation.priced import PricedPlan
from shardplan.estimation.question import Question
from shardplan.fields import replace
from shardplan.frameworks.tested import all_tested
from shardplan.inputs.degrees import Degrees
from shardplan.inputs.plan import Plan
from shardplan.inputs.software import CHOSEN
from shardplan.planner.framework_axes import VARIED
from shardplan.planner.robustness import ALIKE_TIME
from shardplan.planner.space import Space
from shardplan.planner.tied import SAME, Needs, has_headroom


def plainest(space: Space, question: Question, plan: Plan, now: Needs) -> Plan:
    """``plan`` with the first candidate of each choice of its space that gains it nothing; ``now``: what it takes."""
    usual = {name: space.axes[name][0] for name in (*VARIED, *CHOSEN) if name in space.axes}
    changes = {name: value for name, value in usual.items() if getattr(plan, name) not in (None, value)}
    if space.framework is None or not changes:
        return plan
    singly = {name: replace(plan, **{name: value}) for name, value in changes.items()}
    priced = _priced(question, space, [*singly.values()])
    alike = {name: priced[each] for name, each in singly.items() if each in priced}
    names = [name for name in alike if _is_alike(question, alike[name], now)]
    for name in sorted(names, key=lambda each: alike[each].step_time):
        plainer = replace(plan, **{name: changes[name]})
        found = priced.get(plainer) or _priced(question, space, [plainer]).get(plainer)
        plan = plainer if found is not None and _is_alike(question, found, now) else plan
    return plan


def _priced(question: Question, space: Space, plans: Sequence[Plan]) -> dict[Plan, PricedPlan]:
    """Those of some plans that are in the space and that the framework is shown to run, priced."""
    assert space.framework is not None, "else nothing is known of software"
    setting = question.setting
    tested = all_tested(space.framework, setting, plans)
    runs = (all_hold(rule.holds(setting, Degrees.of(plan)) for rule in space.rules) for plan in plans)
    kept = [plan for plan, is_tested, can_run in zip(plans, tested, runs, strict=True) if is_tested and np.all(can_run)]
    return dict(zip(kept, price_plans(question, kept), strict=True)) if kept else {}


def _is_alike(question: Question, one: PricedPlan, now: Needs) -> bool:
    """Whether a plan takes as long as another and fits as well; needs as little, where the other does not fit."""
    if not now.fits:
        return one.peak_memory_bytes <= now.peak_memory_bytes * (1 + SAME)
    roomy, was_roomy = (bool(has_headroom(question, np.asarray(each.peak_memory_bytes))) for each in (one, now))
    return one.fits and (roomy or not was_roomy) and one.step_time <= now.step_time * (1 + ALIKE_TIME)
