"""What a search answers, as plain records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, fields
from typing import Any, overload

from shardplan.base.fields import dataclass, in_files, replace
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan
from shardplan.physics.frameworks.runnable import untested_aspects
from shardplan.physics.frameworks.stack import Stack
from shardplan.planner.evaluation import PlanSample
from shardplan.planner.robustness import Ties


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """A change that would make something fit, checked by the estimate."""

    change: str
    """The change as text, with the flags that make it."""
    num_accelerators: int
    """World size under the change."""
    taken: Sequence[Estimate]
    """The recommended plan then: one answer, which may be made when it is read."""

    @property
    def estimate(self) -> Estimate:
        """The recommended plan then."""
        return self.taken[0]


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A neighbouring count of accelerators or batch that trains more tokens a second."""

    num_accelerators: int
    """Accelerators that it uses."""
    global_batch_size: int
    """Sequences per step."""
    gain: float
    """Share by which it trains more tokens a second than the fastest plan that was asked for."""
    estimate: Estimate
    """Its fastest plan."""


@dataclass(frozen=True, kw_only=True)
class FewerCounts:
    """Smaller numbers of accelerators that were searched beside all that were given."""

    counts: tuple[int, ...]
    """The numbers, in the order of their search."""
    search_time: float = field(metadata=in_files("search_time_s"))
    """Wall time of these searches. [s]"""
    step_time_of_all: float | None = field(metadata=in_files("step_time_of_all_s"))
    """The fastest step on all accelerators; None where no plan of them fits. [s]"""


@dataclass(frozen=True, kw_only=True)
class WithoutLibraries:
    """What becomes of the answer where libraries that its plan needs are not installed."""

    missing: tuple[str, ...]
    """Names of the libraries, as ``--without`` takes them."""
    step_time: float | None = field(metadata=in_files("step_time_s"))
    """Of the recommended plan then; None where nothing fits. [s]"""


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The best plans of a declared space, and the account of the whole of it."""

    question: Question
    """What is answered: what was asked, on fewer of the accelerators where these take less time (``num_idle``)."""
    space: dict[str, tuple[object, ...]]
    """Declared candidates of every axis."""
    estimates: Sequence[Estimate]
    """Best first, different in their degrees; empty where nothing fits. Each may be made when it is read."""
    num_plans_evaluated: int
    """Valid plans whose memory was found, with the step time of all that an answer can need."""
    num_plans_feasible: int
    """Those of them that fit in memory; of a pruned search no more than that: plans that were left out may fit too."""
    rejected: dict[str, int]
    """Combinations of the space that break a rule, by the first rule broken."""
    search_time: float
    """Wall time of the search over all given accelerators. [s]"""
    num_plans_pruned: int = 0
    """Valid plans that a pruned search left out, because a bound shows that they are too slow for its answer."""
    fewer: FewerCounts | None = None
    """Smaller numbers of accelerators that were searched too; None where all were to be used."""
    ties: Ties | None = None
    """Plans that are too close to the fastest to call, and which of them is recommended; None where nothing fits."""
    offers: tuple[Offer, ...] = ()
    """Where something fits: neighbouring counts and batches that train more tokens a second, the best first."""
    suggestions: tuple[Suggestion, ...] = ()
    """Where nothing fits: the nearest changes that would."""
    causes: tuple[str, ...] = ()
    """Where nothing fits: numbers of the question that divide badly, each with what comes of one that divides well."""
    lightest: Sequence[Estimate] = ()
    """Where nothing fits: the valid plan that needs least memory, one answer, which may be made when it is read. Plans
    with states or activations in host memory are among them, unless one of these fits, which is then suggested."""
    without_libraries: Callable[[], tuple[WithoutLibraries, ...]] = field(default=tuple, repr=False, compare=False)
    """Without the libraries that the recommended plan needs, then without those that the next one needs as well."""
    best_where: Callable[..., Estimate | None] = field(default=lambda **_fields: None, repr=False, compare=False)
    """The best feasible plan with the given field values, such as ``best_where(tp=8, pp=4, recompute="none")``; fields:
    tp, cp, pp, ep, etp, micro_batch_size, recompute, recompute_num_layers, sharding."""
    best_of_each: Callable[[Sequence[Mapping[str, Any]]], Sequence[Estimate | None]] = field(
        default=lambda wanted: [None for _ in wanted], repr=False, compare=False
    )
    """The same for several sets of values, in less time than one by one."""
    sample: Callable[[int], PlanSample | None] = field(default=lambda _most: None, repr=False, compare=False)
    """About this number of plans of the space, also ones that do not fit; None for an answer that was loaded."""

    @property
    def num_plans_valid(self) -> int:
        """Plans of the space: those that were priced, and those that a pruned search left out."""
        return self.num_plans_evaluated + self.num_plans_pruned

    @property
    def recommended(self) -> Estimate | None:
        """The recommended plan (``planner.robustness``); None where nothing fits."""
        return None if self.ties is None else self.ties.recommended

    @property
    def smallest(self) -> Estimate | None:
        """The valid plan that needs least memory, where nothing fits."""
        return self.lightest[0] if self.lightest else None

    def assuming(self, assumptions: tuple[str, ...]) -> SearchResult:
        """The same, with what was assumed in putting the question said of every estimate."""
        return self.with_each(lambda estimate: replace(estimate, assumptions=(*assumptions, *estimate.assumptions)))

    def run_by(self, stack: Stack) -> SearchResult:
        """The same, with the framework that every plan is for, and what of each nothing shows it to run."""
        setting = self.question.setting

        def run(estimate: Estimate) -> Estimate:
            return replace(estimate, framework=stack.label, untested=untested_aspects(stack, setting, estimate.plan))

        return self.with_each(run)

    def stating_what_was_not_searched(self) -> SearchResult:
        """The same, with the value of every field that the space leaves alone among the assumptions."""
        names = [each.name for each in fields(Plan) if each.name not in self.space]

        def stated(estimate: Estimate) -> Estimate:
            values = {name: getattr(estimate.plan, name) for name in names}
            texts = ", ".join(f"{name} {value}".lower() for name, value in values.items() if value is not None)
            line = (f"not searched: {texts}",) if texts else ()
            return replace(estimate, assumptions=(*line, *estimate.assumptions))

        return self.with_each(stated)

    def with_each(self, change: Callable[[Estimate], Estimate]) -> SearchResult:
        """The same, with every estimate changed."""
        ties = self.ties
        return replace(
            self,
            estimates=Answers.of(self.estimates).changed(change),
            ties=None if ties is None else replace(ties, taken=Answers.of(ties.taken).changed(change)),
            lightest=Answers.of(self.lightest).changed(change),
            suggestions=tuple(replace(each, taken=Answers.of(each.taken).changed(change)) for each in self.suggestions),
            offers=tuple(replace(each, estimate=change(each.estimate)) for each in self.offers),
        )


Make = Callable[[Sequence[int]], Sequence[Estimate]]
"""The answers for the plans at these places."""


class Answers(Sequence[Estimate]):
    """Answers as a list, each made once. Equal to any sequence of the same answers."""

    def __init__(self, number: int, make: Make) -> None:
        self._number, self._make = number, make
        self._made: dict[int, Estimate] = {}

    @classmethod
    def of(cls, given: Sequence[Estimate]) -> Answers:
        """Answers that are at hand, or that are made when they are read."""
        return given if isinstance(given, Answers) else cls(len(given), lambda places: [given[at] for at in places])

    def changed(self, change: Callable[[Estimate], Estimate]) -> Answers:
        """The same answers, each changed when it is read."""
        return Answers(len(self), lambda places: [change(each) for each in self.at(places)])

    def at(self, places: Sequence[int]) -> tuple[Estimate, ...]:
        """Those at some places, counted from the first; what is missing is made together."""
        missing = [place for place in dict.fromkeys(places) if place not in self._made]
        if missing:
            self._made.update(zip(missing, self._make(missing), strict=True))
        return tuple(self._made[place] for place in places)

    def __len__(self) -> int:
        return self._number

    @overload
    def __getitem__(self, index: int) -> Estimate: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Estimate, ...]: ...
    def __getitem__(self, index: int | slice) -> Estimate | tuple[Estimate, ...]:
        places = range(len(self))[index]
        return self.at([places])[0] if isinstance(places, int) else self.at(places)

    def __iter__(self) -> Iterator[Estimate]:
        return iter(self[:])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # as a list

    def __repr__(self) -> str:
        return repr(self[:])

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (self[:],)
