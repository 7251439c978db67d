"""The most valuable changes of a plan: found by the search near it, told apart by what each changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final, NamedTuple

from shardplan.errors import InputError, ShardplanError
from shardplan.estimation.band import band_of
from shardplan.estimation.estimate import Estimate, estimate_plans, price_plans
from shardplan.estimation.priced import PricedPlan
from shardplan.estimation.question import Question
from shardplan.fields import dataclass
from shardplan.frameworks.options import options_of
from shardplan.frameworks.runnable import refusals
from shardplan.frameworks.stack import Stack
from shardplan.inputs.plan import Plan, placement_tokens
from shardplan.launch.dialects.reading import Reading
from shardplan.planner.pruning.goals import Listing
from shardplan.planner.ranking import different_cells
from shardplan.planner.related.software import OtherSoftware, other_software, setting_of
from shardplan.planner.restrictions import Restrictions, as_lists
from shardplan.planner.robustness import complexity_of, recommended_of
from shardplan.planner.space import declare
from shardplan.planner.stopping import SearchStopped, Stop
from shardplan.planner.survey import Survey, survey_of
from shardplan.validity.rules import broken_rules

Change = dict[str, tuple[object, object]]
"""Old and new value of every field that changes."""
MOST: Final = 3
LEAST_GAIN: Final = 0.01
"""Gain in step time from which a change is worth a line."""
GAIN_OF_A_FIELD: Final = 0.02
"""Gain in step time for which one more field is worth changing."""
DEGREES: Final = ("tp", "pp", "cp", "ep")
KEEPABLE: Final = frozenset(each.name for each in fields(Plan))


class StatedOptions(NamedTuple):
    """A plan in the framework's words."""

    says: Mapping[str, tuple[str, ...]]
    """Every option, with the fields that it states."""
    unsaid: tuple[str, ...]
    """Fields that no option states."""


class OptionsChange(NamedTuple):
    """What a change takes out and puts in."""

    removed: tuple[str, ...]
    added: tuple[str, ...]
    unsaid: tuple[str, ...]


class FileOption(NamedTuple):
    """An option of the file that states a field."""

    option: str
    """As it is written: ``--num-layers-per-virtual-pipeline-stage``."""
    place: str
    """File and line."""

    @property
    def name(self) -> str:
        """What names it however it is spelt."""
        return self.option.lstrip("-").replace("-", "_")


class Wording(NamedTuple):
    """How a file states a plan."""

    stated: Mapping[str, FileOption]
    """The option of each field that the file states."""
    defaults: frozenset[str]
    """Fields that the file leaves at the framework's default."""


NO_WORDING: Final = Wording({}, frozenset())


def wording_of(reading: Reading) -> Wording:
    """The options of a launch file."""
    places = {key: fact.why.partition(": ")[0].rpartition(" ") for key, fact in reading.facts.items()}
    stated = {
        key: FileOption(option, place)
        for key, (place, _, option) in places.items()
        if key in reading.options and ":" in place and reading.facts[key].origin != "assumed"
    }
    return Wording(stated, frozenset(reading.assumed))


@dataclass(frozen=True, kw_only=True)
class Improvement:
    """A change with what it is predicted to give."""

    change: Change
    """Old and new value of every field that changes."""
    removed: tuple[str, ...]
    """Options to take out, as the framework calls them."""
    added: tuple[str, ...]
    """Options to put in."""
    unsaid: tuple[str, ...]
    """Fields of the change that no option of the framework states: its configuration in code does, or nothing."""
    estimate: Estimate
    """The changed plan."""
    gain: float | None
    """Share of the step time that is saved; None where the plan as it is does not run."""


def check_keep(keep: Sequence[str]) -> tuple[str, ...]:
    """The fields that stay. Raises InputError for a name that no plan has."""
    for name in keep:
        if name not in KEEPABLE:
            raise InputError(
                f"--keep has {name[:40]}, which is no field of a plan",
                rule="--keep names fields of a plan",
                hint="such as --keep tp,pp,micro_batch_size",
            )
    return tuple(keep)


class _Change(NamedTuple):
    """A candidate."""

    fields: Change
    question: Question
    """The question, with other software where that is the change."""
    plan: Plan
    step_time: float
    makes_uneven: bool
    """Whether stages have unequal layers that have equal ones now."""

    @property
    def num_fields(self) -> int:
        """Fields to change, with the layers of stages where these become unequal.

        The schedule follows from the chunks per rank.
        """
        return len(self.fields.keys() - {"schedule"}) + self.makes_uneven

    def is_better(self, other: _Change) -> bool:
        """Whether the other changes more fields, and gains too little by them."""
        more = other.num_fields - self.num_fields
        return more > 0 and self.step_time <= other.step_time * (1 + GAIN_OF_A_FIELD * more)

    def differs(self, faster: _Change) -> bool:
        """Whether it does more than leave out what a faster one changes to other values."""
        mine, theirs = self.fields.keys(), faster.fields.keys()
        return bool(mine - theirs) or len(mine) < len(theirs)


def improvements(
    question: Question,
    plan: Plan,
    now: Estimate | None,
    stack: Stack | None,
    keep: Sequence[str],
    *,
    wording: Wording = NO_WORDING,
    stop: Stop | None = None,
) -> tuple[Improvement, ...]:
    """At most three changes that run, fit, and are faster; where the plan does not run, the fastest that do.

    ``wording``: how the file states the plan. Raises ``SearchStopped`` where ``stop`` says so.
    """
    base = now.step_time if now is not None and now.feasible else None
    near = _single(question, plan, stack, keep)
    candidates = list(dict.fromkeys((*near, *_searched(question, plan, stack, keep, stop))))
    priced = price_plans(question, candidates) if candidates else []
    others = [] if stack is None or now is None else list(other_software(question, plan, stack))
    most = _most_memory(question, now)
    worth = [each for each in (*priced, *(each.priced for each in others)) if _is_worth(each, base)]
    roomy = {id(each) for each in worth if each.peak_memory_bytes <= most} or set(map(id, worth))
    found = [
        *(_change(question, plan, each) for each in priced if id(each) in roomy),
        *(_software_change(each) for each in others if id(each.priced) in roomy),
    ]
    before = _options(question, plan, stack)
    return tuple(_improvement(each, base, before, stack, wording) for each in _best(found))


def _change(question: Question, plan: Plan, priced: PricedPlan) -> _Change:
    layers = question.model.num_hidden_layers
    is_uneven, was_uneven = (complexity_of(each, layers)[0] for each in (priced.plan, plan))
    fields = changes(plan, priced.plan)
    return _Change(fields, question, priced.plan, priced.step_time, is_uneven and not was_uneven)


def _software_change(other: OtherSoftware) -> _Change:
    fields: Change = {other.key: (other.old, other.new)}
    return _Change(fields, other.question, other.priced.plan, other.priced.step_time, makes_uneven=False)


def _is_worth(priced: PricedPlan, base: float | None) -> bool:
    return priced.fits and (base is None or priced.step_time < base * (1 - LEAST_GAIN))


def _most_memory(question: Question, now: Estimate | None) -> float:
    """What a plan may need: it fits at the upper end of its band too, or it needs no more than now. [bytes]"""
    surely = float(question.usable_memory) / band_of(question, "memory").high
    return max(surely, now.peak_memory_bytes if now is not None and now.feasible else 0.0)


def _best(candidates: Sequence[_Change]) -> list[_Change]:
    """The fastest, then those that change fewest fields for their gain; the most valuable first."""
    found: list[_Change] = []
    those = [each for each in candidates if each.fields]
    for each in sorted(those, key=lambda one: one.step_time):
        if not any(one.is_better(each) for one in those) and all(map(each.differs, found)):
            found.append(each)
    simple = sorted(found[1:], key=lambda each: len(each.fields))[: MOST - 1]
    return [each for each in found if each is found[0] or each in simple]


def changes(old: Plan, new: Plan) -> Change:
    """Fields that differ, with both values; the schedule by its effect."""
    found = {each.name: (getattr(old, each.name), getattr(new, each.name)) for each in fields(Plan)}
    found["schedule"] = (old.effective_schedule, new.effective_schedule)
    silent = {"overlap_pp"} | ({"sequence_parallel", "overlap_tp"} if new.tp == 1 else set())
    used = {name for name in ("tp", "cp", "pp", "ep") if getattr(old, name) > 1 or getattr(new, name) > 1} | {"dp"}
    orders = [[each for each in placement_tokens(plan.placement) if each[0] in used] for plan in (old, new)]
    if orders[0] == orders[1]:
        silent.add("placement")
    return {key: pair for key, pair in found.items() if pair[0] != pair[1] and key not in silent}


def _improvement(
    found: _Change, base: float | None, before: StatedOptions, stack: Stack | None, wording: Wording
) -> Improvement:
    """``before``: options of the plan as it is."""
    (estimate,) = estimate_plans(found.question, [found.plan])
    difference = _difference(found.fields, before, _options(found.question, found.plan, stack), wording)
    return Improvement(
        change=found.fields,
        removed=difference.removed,
        added=difference.added,
        unsaid=difference.unsaid,
        estimate=estimate,
        gain=None if base is None else 1 - estimate.step_time / base,
    )


def _difference(change: Change, before: StatedOptions, after: StatedOptions, wording: Wording) -> OptionsChange:
    return OptionsChange(
        removed=tuple(dict.fromkeys(_removed(before, after, change, wording))),
        added=tuple(each for each in after.says if each not in before.says),
        unsaid=tuple(name for name in after.unsaid if name in change),
    )


def _removed(before: StatedOptions, after: StatedOptions, change: Change, wording: Wording) -> Iterator[str]:
    """Options to take out, in the words of the file; none that the file leaves at its default."""
    known = " ".join(before.says).replace("-", "_")
    for option, says in before.says.items():
        if option in after.says or (says and wording.defaults.issuperset(says)):
            continue
        own = [wording.stated[name] for name in says if name in change and name in wording.stated]
        others = [f"{each.option} ({each.place})" for each in own if each.name not in known]
        yield from others or [option]


def _options(question: Question, plan: Plan, stack: Stack | None) -> StatedOptions:
    """Options of a plan, each with the fields that it states."""
    found = None if stack is None else options_of(stack, setting_of(question), plan)
    return (
        StatedOptions({}, ())
        if found is None
        else StatedOptions(dict(zip(found.options, found.says, strict=True)), found.unsaid)
    )


def _single(question: Question, plan: Plan, stack: Stack | None, keep: Sequence[str]) -> list[Plan]:
    """Plans that differ in one field, or in one degree with what must follow."""
    setting = setting_of(question)
    near = list(dict.fromkeys(each for each in _neighbours(plan) if not set(changes(plan, each)) & set(keep)))
    valid = [each for each, rule in zip(near, broken_rules(setting, near), strict=True) if rule is None] if near else []
    return [each for each in valid if stack is None or not refusals(stack, each, setting)]


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


def _searched(
    question: Question, plan: Plan, stack: Stack | None, keep: Sequence[str], stop: Stop | None
) -> Iterator[Plan]:
    """The best plans with what is kept, and the best with the degrees as they are; of both the one to take first."""
    kept = _values(plan, keep)
    for fixed in dict.fromkeys((tuple(kept.items()), tuple((_values(plan, DEGREES) | kept).items()))):
        survey = _survey(question, stack, dict(fixed), stop)
        if survey is not None:
            yield from survey.plans(different_cells(survey.tables, MOST))
            yield from _recommended(survey)


def _recommended(survey: Survey) -> Iterator[Plan]:
    """Of the plans that tie with the fastest, the one to take; none where nothing fits."""
    priced = survey.with_prices(()).priced
    if priced is not None:
        yield priced.plan(recommended_of(survey.question, priced, fastest=None))


def _values(plan: Plan, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in names if getattr(plan, name) is not None}


def _survey(question: Question, stack: Stack | None, fixed: dict[str, Any], stop: Stop | None) -> Survey | None:
    """The best plans with these values; None where what is kept contradicts the question."""
    try:
        return survey_of(
            question, declare(question, Restrictions(fix=as_lists(fixed)), stack), goal=Listing(MOST), stop=stop
        )
    except SearchStopped:
        raise
    except ShardplanError:
        return None
