"""The most valuable changes of a plan: found by the search near it, told apart by what each changes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Final, NamedTuple

from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass
from shardplan.estimation.band import band_of
from shardplan.estimation.estimate import Estimate, estimates_of, in_framework, price_plans
from shardplan.estimation.priced import PricedPlan
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan
from shardplan.inputs.software import CHOSEN
from shardplan.launch.audit.nearby import Change, changes, nearby_plans
from shardplan.launch.dialects import torchtitan
from shardplan.launch.dialects.megatron_core import flagscale, forks, megatron, neox, swift
from shardplan.launch.dialects.megatron_core.nemo import NEMO
from shardplan.launch.dialects.reading import Reading, plain_name
from shardplan.physics.frameworks.options import options_of
from shardplan.physics.frameworks.stack import Stack
from shardplan.planner.related.software import OtherSoftware, other_software
from shardplan.planner.robustness import complexity_of
from shardplan.planner.stopping import Stop

MOST: Final = 3
LEAST_GAIN: Final = 0.01
"""Gain in step time from which a change is worth a line."""
GAIN_OF_A_FIELD: Final = 0.02
"""Gain in step time for which one more field is worth changing."""
SWITCHES: Final = frozenset({*CHOSEN, "overlap_tp", "overlap_ep"})
"""Fields of a plan that a search chooses together with the degrees, and that a framework may have no options for."""
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
    is_own: bool = False
    """Whether the file's names are not those of the record that prices it: changes are said by its own names."""
    names: frozenset[str] = frozenset()
    """Options and keys of the file; none where they are not known."""
    instead: Mapping[tuple[str, object], str] = MappingProxyType({})
    """What the file has to say where leaving an option out gives another value than in the record."""
    spell: Callable[[str], tuple[str, ...]] = lambda option: (option,)
    """Options of the record as the file spells them."""
    known: frozenset[str] = frozenset()
    """Options of the record that the framework of the file has too; empty where it has all."""


NO_WORDING: Final = Wording({}, frozenset())


INSTEAD: Final[Mapping[tuple[str, str], Mapping[tuple[str, object], str]]] = {
    (swift.NAME, swift.VERSION): swift.INSTEAD
}
"""Dialects whose defaults are not those of the record that prices them."""
OWN_NAMES: Final = frozenset({("nemo", NEMO.version), (neox.NAME, neox.VERSION)})
"""Dialects that are priced by the record of a framework with other names."""
SPELLINGS: Final[Mapping[tuple[str, str], Callable[[str], tuple[str, ...]]]] = {
    (flagscale.NAME, flagscale.VERSION): flagscale.as_settings,
    (megatron.NAME, forks.EPFL): forks.with_underscores,
    (swift.NAME, swift.VERSION): swift.as_options,
    (torchtitan.NAME, torchtitan.TOML): torchtitan.as_keys,
}
"""How dialects spell the options of their record, where it is not the record's way."""
KNOWN: Final[Mapping[tuple[str, str], frozenset[str]]] = {
    (megatron.NAME, forks.EPFL): forks.EPFL_PLANS,
    (swift.NAME, swift.VERSION): swift.OF_PLANS,
}
"""What forks have of the options of their record, where they lack some."""


_PLACE: Final = re.compile(r"(.*?:\d+) (\S+)")
"""The beginning of a reason: file and line, and the option as it is written."""


def wording_of(reading: Reading) -> Wording:
    """The options of a launch file."""
    places = {key: _PLACE.match(fact.why) for key, fact in reading.facts.items() if fact.origin != "assumed"}
    stated = {
        _field(key): FileOption(found[2].removesuffix(":"), found[1])
        for key, found in places.items()
        if key in reading.options and found is not None
    }
    whose = reading.framework, reading.version
    spell = SPELLINGS.get(whose, NO_WORDING.spell)
    return Wording(
        stated,
        frozenset(map(_field, reading.assumed)),
        whose in OWN_NAMES,
        reading.names,
        INSTEAD.get(whose, {}),
        spell,
        KNOWN.get(whose, NO_WORDING.known),
    )


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
    priced: PricedPlan
    """The changed plan, under other software where that is the change."""
    makes_uneven: bool
    """Whether stages have unequal layers that have equal ones now."""

    @property
    def step_time(self) -> float:
        """Of the changed plan. [s]"""
        return self.priced.step_time

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
    kept = {*keep, *_unsayable_switches(stack, wording)}
    priced = price_plans(question, nearby_plans(question, plan, stack, sorted(kept), stop))
    every = () if stack is None or now is None else other_software(question, now, stack)
    others = [each for each in every if _field(each.key) not in kept]
    most = _most_memory(question, now)
    worth = [each for each in (*priced, *(each.priced for each in others)) if _is_worth(each, base)]
    roomy = {id(each) for each in worth if each.peak_memory_bytes <= most} or set(map(id, worth))
    found = [
        *(_change(question, plan, each) for each in priced if id(each) in roomy),
        *(_software_change(each) for each in others if id(each.priced) in roomy),
    ]
    before = _options(question, plan, stack)
    sayable = [each for each in found if _is_sayable(each, before, stack, wording)]
    return tuple(_improvement(each, base, before, stack, wording) for each in _best(sayable))


def _unsayable_switches(stack: Stack | None, wording: Wording) -> Iterator[str]:
    """Switches that stay as they are, since the framework of the file has not all options that the record has for them.

    Where its names are its own, no switch can be said.
    """
    if wording.is_own:
        yield from SWITCHES
    can = None if stack is None or not wording.known else stack.can_run
    for entry in () if can is None or can.options is None else can.options.entries:
        if not wording.known.issuperset(_NAME.findall(entry.text)):
            yield from SWITCHES.intersection(entry.says)


def _is_sayable(found: _Change, before: StatedOptions, stack: Stack | None, wording: Wording) -> bool:
    """Whether the framework of the file has the options that a change puts in."""
    if not wording.known:
        return True
    after = _options(found.priced.question, found.priced.plan, stack)
    return all(wording.known.issuperset(_NAME.findall(each)) for each in after.says if each not in before.says)


def _change(question: Question, plan: Plan, priced: PricedPlan) -> _Change:
    layers = question.model.num_hidden_layers
    is_uneven, was_uneven = (complexity_of(each, layers)[0] for each in (priced.plan, plan))
    fields = changes(question.with_software(plan), question.with_software(priced.plan))
    return _Change(fields, priced, is_uneven and not was_uneven)


def _software_change(other: OtherSoftware) -> _Change:
    fields: Change = {_field(other.key): (other.old, other.new)}
    return _Change(fields, other.priced, makes_uneven=False)


def _field(key: str) -> str:
    """What a record names by ``key``: software that plans choose is a field of theirs."""
    name = key.removeprefix("software.")
    return name if name in CHOSEN else key


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


def _improvement(
    found: _Change, base: float | None, before: StatedOptions, stack: Stack | None, wording: Wording
) -> Improvement:
    """``before``: options of the plan as it is."""
    priced = found.priced
    estimate = in_framework(estimates_of(priced.question, [priced])[0], stack, priced.question)
    difference = (
        _by_own_names(found.fields, wording)
        if wording.is_own or stack is None
        else _difference(found.fields, before, _options(priced.question, priced.plan, stack), wording)
    )
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
        added=(*_added(before, after, wording), *_instead(change, wording)),
        unsaid=tuple(name for name in after.unsaid if name in change),
    )


def _by_own_names(change: Change, wording: Wording) -> OptionsChange:
    """Numbers that the file states, under its own names; how it says other fields is not known."""
    numbers = {name: new for name, (_, new) in change.items() if name in wording.stated and type(new) is int}
    own = {name: wording.stated[name] for name in numbers}
    signs = {name: " " if each.option.startswith("--") else ": " for name, each in own.items()}
    return OptionsChange(
        removed=tuple(f"{each.option} ({each.place})" for each in own.values()),
        added=tuple(f"{own[name].option}{signs[name]}{new}" for name, new in numbers.items()),
        unsaid=tuple(name for name in change if name not in numbers and name != "schedule"),
    )


def _added(before: StatedOptions, after: StatedOptions, wording: Wording) -> Iterator[str]:
    return (piece for each in after.says if each not in before.says for piece in wording.spell(each))


def _instead(change: Change, wording: Wording) -> Iterator[str]:
    found = (wording.instead.get((name, new)) for name, (_, new) in change.items())
    return (each for each in found if each is not None)


def _removed(before: StatedOptions, after: StatedOptions, change: Change, wording: Wording) -> Iterator[str]:
    """Options to take out, in the words of the file; none that the file leaves at its default."""
    known = " ".join(before.says).replace("-", "_")
    for option, says in before.says.items():
        if option in after.says or (says and wording.defaults.issuperset(says)):
            continue
        own = [wording.stated[name] for name in says if name in change and name in wording.stated]
        others = [f"{each.option} ({each.place})" for each in own if each.name not in known]
        yield from others or (spelt for piece in _pieces(option, wording) for spelt in wording.spell(piece))


def _pieces(option: str, wording: Wording) -> Iterator[str]:
    """What the file has of an option that the record writes in several pieces."""
    pieces = [each for each in _PIECE.split(option) if not wording.names or plain_name(each) in wording.names]
    if pieces:
        yield " ".join(pieces)


_NAME: Final = re.compile(r"--[a-z][a-z0-9-]*")
_PIECE: Final = re.compile(r" (?=--|\w[\w.]*=)")


def _options(question: Question, plan: Plan, stack: Stack | None) -> StatedOptions:
    """Options of a plan, each with the fields that it states."""
    found = None if stack is None else options_of(stack, question.setting, plan)
    return (
        StatedOptions({}, ())
        if found is None
        else StatedOptions(dict(zip(found.options, found.says, strict=True)), found.unsaid)
    )
