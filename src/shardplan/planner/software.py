"""The software that plans are run by: which choices a search makes, and which of them need not be looked at.

Some choices change prices alone, of the blocks of a micro-batch: the plans that one of them can run are a part of a
family whose pipelines, groups and states are found once. Others are no better than another choice at any plan: graphs
that capture more of a layer leave the host less to do; DeepEP sends a token once where the framework's all-to-all sends
every copy and, where a rank has several experts, sorts them; HybridEP does what DeepEP does without filling up rows
(``workload.moe.permuted_rows``). They are looked at only where the better choice is refused.

And what a framework can do with the same plan: values of its software that the user could choose instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import Flags, all_hold
from shardplan.base.fields import replace
from shardplan.estimation.estimate import Estimate, price_plans
from shardplan.estimation.priced import PricedPlan
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan
from shardplan.inputs.profile import Profile
from shardplan.inputs.software import CHOSEN, OF_EXPERTS
from shardplan.physics.costs.block import needs_one_queue
from shardplan.physics.frameworks.options import options_of
from shardplan.physics.frameworks.runnable import refusals
from shardplan.physics.frameworks.stack import Stack
from shardplan.planner.family import Family
from shardplan.planner.framework_axes import VARIED
from shardplan.planner.restrictions import Restrictions

CHOICES_OF_SOFTWARE: Final = (*VARIED, *CHOSEN)
Limited = TypeVar("Limited", bound=Restrictions)


def limited_to(scope: Limited, axes: Mapping[str, Sequence[Any]], plans: Sequence[Any]) -> Limited:
    """Restrictions to the software by which some plans are run, given as their fields; as they are without plans.

    Searches of other counts and batches, of which few become an answer, look at no other software.
    """
    names = [name for name in CHOICES_OF_SOFTWARE if len(axes.get(name, ())) > 1 and name not in scope.fix]
    found = {name: tuple(dict.fromkeys(each[name] for each in plans if each.get(name) is not None)) for name in names}
    return scope.limiting(**{name: values for name, values in found.items() if values})


KEEP_MORE: Final[Mapping[str, Any]] = {"overlap_ep": True}
"""Choices with which plans may need more memory."""
STASHES: Final = "hybridep"
"""The dispatcher that copies what experts keep where one kernel runs them all (``workload.moe.stashed``)."""


def orders(profile: Profile, *, experts: bool) -> Mapping[str, tuple[str, ...]]:
    """Values of fields in an order in which plans get no slower, as far as the constants say so.

    Without experts graphs of the parts of a layer capture all of it, as those of the whole iteration do.
    """
    host, dispatcher = profile.graph_host_share, profile.dispatcher_host_share
    found: dict[str, tuple[str, ...]] = {}
    if max(np.max(host["partial"]), np.max(host["full"])) <= np.min(host["none"]):
        found["cuda_graphs"] = ("none", "router", "partial") if experts else ("none", "router", "full", "partial")
    dispatchers = ("alltoall", "deepep", "hybridep")
    if all(np.all(dispatcher[better] <= dispatcher[each]) for each, better in pairwise(dispatchers)):
        found["moe_dispatcher"] = dispatchers
    return found


def without_worse(question: Question, parts: Sequence[Family]) -> list[Family]:
    """The plans of each part that no other part runs as fast or faster, of those that have any.

    In the order of ``_order``.
    """
    known = {tuple(part.switches.items()): part for part in parts}
    found = (_without_worse(question, part, known) for part in parts)
    left = (part for part in found if part is not None and part.recomputes.any())
    return sorted(left, key=partial(_order, experts=question.model.is_moe))


def _without_worse(question: Question, part: Family, known: Mapping[Any, Family]) -> Family | None:
    """The plans of a part that no other part runs as fast or faster; None where there are none."""
    better = ((known.get(tuple(switches.items())), where) for switches, where in _better(question, part))
    others = [(other, where) for other, where in better if other is not None]
    for other, where in others:
        if where is True and all(getattr(other, name) is getattr(part, name) for name in MASKS):
            return None  # the very same plans, as no rule tells them apart
    cells = part.recomputes & part.shards.any(axis=0) & (part.num_chunks() > 0)
    for other, where in others:
        if not cells.any():
            return None
        covered = all_hold([where, _covers(other, part)])  # one number mostly, and the masks of all plans are large
        cells = cells & ~(other.recomputes if covered is True else other.recomputes & covered)
    return replace(part, recomputes=cells)


def _order(part: Family, *, experts: bool) -> tuple[bool, bool, bool, int]:
    """First the part that needs least memory and whose products take least time: bounds of all parts rest on it.

    A graph of the whole iteration runs all experts of a rank in one product.
    """
    switches, best = part.switches, "full" if experts else "partial"
    in_pieces, one_by_one = bool(switches.get("overlap_tp")), switches.get("cuda_graphs") != best
    return _keeps_more(part), in_pieces, one_by_one, -int(np.count_nonzero(part.recomputes))


def _better(question: Question, part: Family) -> Iterator[tuple[dict[str, Any], Flags]]:
    """Switches under which no plan of a part takes longer, each with the points where that is so."""
    whole_experts = question.running(part.switches).job.whole_experts
    for name, order in orders(question.profile, experts=question.model.is_moe).items():
        value = part.switches.get(name)
        last = order.index(STASHES) if name == "moe_dispatcher" and whole_experts else len(order)
        for better in order[order.index(value) + 1 : last] if value in order else ():
            ep, num_experts = part.points["ep"], min(question.setting.num_experts, default=1)
            several = (ep > 1) & (ep < num_experts)  # experts are shared among ranks, and each rank has several
            yield part.switches | {name: better}, several if value == "alltoall" else True
    if part.switches.get("overlap_tp") and part.switches.get("overlap_ep") and needs_one_queue(question.machine):
        yield part.switches | {"overlap_tp": False}, part.points["ep"] > 1


def _keeps_more(part: Family) -> bool:
    return any(part.switches.get(name) == value for name, value in KEEP_MORE.items())


def keeps_as_much(one: Family, other: Family) -> bool:
    """Whether the plans of two families that differ in these choices need as much memory."""
    return _keeps_more(one) == _keeps_more(other)


MASKS: Final = ("shards", "recomputes", "single", "interleaves", "together")


def _covers(one: Family, other: Family) -> Flags:
    """At which points one part has all kinds of sharding and chunks per rank that the other has."""
    if all(getattr(one, name) is getattr(other, name) for name in MASKS if name != "recomputes"):
        return True
    least, most = one.together, other.together
    if least is not most and least is not None and (most is None or not np.all(least >= most)):
        return np.zeros(one.num_points, dtype=bool)
    chunks = (one.single >= other.single) & (one.interleaves >= other.interleaves)
    covered: NDArray[np.bool_] = chunks & (one.shards >= other.shards).all(axis=0)
    return covered


def joined_parts(family: Family, parts: Sequence[Family]) -> Family:
    """The plans of a family that some part runs, under the switches of the first."""
    together = None if any(part.together is None for part in parts) else [part.together for part in parts]
    either = partial(np.logical_or.reduce)
    return replace(
        family,
        switches=parts[0].switches,
        **{name: either(_distinct(getattr(part, name) for part in parts)) for name in MASKS if name != "together"},
        together=None if together is None else either(together),
    )


def _distinct(masks: Iterable[NDArray[np.bool_]]) -> list[NDArray[np.bool_]]:
    return [*{id(mask): mask for mask in masks}.values()]


def has_same_plans(one: Family, other: Family) -> bool:
    """Whether two families of the same points have the same plans."""
    masks = [(getattr(one, name), getattr(other, name)) for name in MASKS]
    return all(mine is its or (mine is not None and np.array_equal(mine, its)) for mine, its in masks)


class OtherSoftware(NamedTuple):
    """A plan under another value of one field of the software."""

    field: str
    old: str | bool
    new: str | bool
    question: Question
    """The question with the new value."""
    priced: PricedPlan
    """The plan under it."""

    @property
    def key(self) -> str:
        """The field as records name it: ``software.moe_dispatcher``."""
        return f"software.{self.field}"


def other_software(question: Question, now: Estimate, stack: Stack) -> Iterator[OtherSoftware]:
    """The plan of ``now`` under every other value that its framework has and allows for it, where that matters."""
    can, software, plan = stack.can_run, question.job.software, now.plan
    for field, values in ({} if can is None or can.software is None else can.software).items():
        if field in OF_EXPERTS and not question.model.is_moe:
            continue
        old = getattr(software, field)
        for new in (value for value in values if value != old):
            changed: dict[str, Any] = {field: new}
            other = replace(question, job=replace(question.job, software=replace(software, **changed)))
            if refusals(stack, plan, other.setting):
                continue
            priced = price_plans(other, [plan])[0]
            if (priced.step_time, priced.peak_memory_bytes) != (now.step_time, now.peak_memory_bytes):
                yield OtherSoftware(field, old, new, other, priced)


def options_for(other: OtherSoftware, plan: Plan, stack: Stack, question: Question) -> tuple[str, ...]:
    """Options of the framework that the new value needs, and the plan alone does not."""
    before, after = (options_of(stack, each.setting, plan) for each in (question, other.question))
    if before is None or after is None:
        return ()
    return tuple(option for option in after.options if option not in before.options)
