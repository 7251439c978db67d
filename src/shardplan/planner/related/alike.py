r"""Questions that differ in memory and rates of the accelerator and in rates of the network alone, answered together.

Plans, pipelines and the memory of every plan are the same for such questions; they are found once. Memory decides
which plans fit, and nothing else: plans fall into classes, by the smallest capacity in which they fit, and the
fastest plan of a capacity is that of its own class or of a smaller one. Systems, each with the rates of its
accelerator and its network, stand side by side on an axis of their own, in front of those of the plans; what computes
is the same for all systems whose accelerators have the same rates. A plan is left out of the pricing only where a
bound shows that it is slower than one that fits as small a memory (``planner.pruning.bounds``). So the fastest plan
is that of an exhaustive search of each question.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardplan.arrays import Numbers, all_hold
from shardplan.costs.network import Network
from shardplan.costs.roofline import MachineRates
from shardplan.estimation.estimate import Estimate, estimate_plans, with_memory_of
from shardplan.estimation.question import Question
from shardplan.estimation.step import whole_step
from shardplan.fields import dataclass
from shardplan.frameworks.stack import Stack
from shardplan.inputs.plan import Plan
from shardplan.planner.family import Family
from shardplan.planner.layouts import KnownPipelines
from shardplan.planner.listed import outcomes, with_chunks
from shardplan.planner.points import families
from shardplan.planner.pricing.pieces import TablePiece, pieces_of
from shardplan.planner.pricing.tables import Tables
from shardplan.planner.pruning.bounds import least_of_piece, least_of_points
from shardplan.planner.related.leaders import Leaders, Place
from shardplan.planner.restrictions import Restrictions
from shardplan.planner.space import declare

NUM_AXES = 2
"""Axes of the plans behind that of the networks: slots of recomputation (or kinds of sharding), and points."""
MOST_SYSTEMS = 16
"""Systems that stand side by side: their arrays stay small."""
Rates = tuple[object, ...]
"""Of an accelerator and its network: what tells systems apart."""


class Fastest(NamedTuple):
    """The fastest plan of a question."""

    estimate: Estimate | None
    """None where nothing fits."""
    num_plans_evaluated: int
    """Valid plans, each priced, or shown to be slower; their number depends on neither memory nor network."""


def best_of_alike(
    questions: Sequence[Question],
    *,
    restrictions: Restrictions | None = None,
    stack: Stack | None = None,
    known: KnownPipelines | None = None,
) -> list[Fastest]:
    """The fastest plan of each of ``questions``, which differ in memory and rates of accelerator and network alone.

    Each answer is that of a search of its own. Raises InputError as ``search`` does.
    """
    known = known or KnownPipelines()
    space = declare(questions[0], restrictions or Restrictions(), stack)
    found: dict[int, Fastest] = {}
    every = list(families(questions[0], space, Counter()))
    num_plans = sum(family.num_plans() for family in every)
    for numbers in _by_system(questions):
        asked = _Asked.of([questions[number] for number in numbers])
        plans = asked.fastest([_Both.of(asked, family, known) for family in every])
        estimates = _estimates(asked.questions, plans, stack)
        found |= {number: Fastest(each, num_plans) for number, each in zip(numbers, estimates, strict=True)}
    return [found[number] for number in range(len(questions))]


def _by_system(questions: Sequence[Question]) -> Iterator[list[int]]:
    """Positions of the questions, those of some systems together; systems with the same accelerator are neighbours."""
    numbers: dict[Rates, dict[Rates, list[int]]] = {}
    for number, question in enumerate(questions):
        of_accelerator = numbers.setdefault(_rates_of_accelerator(question), {})
        of_accelerator.setdefault(_rates(question), []).append(number)
    groups = [group for of_accelerator in numbers.values() for group in of_accelerator.values()]
    for start in range(0, len(groups), MOST_SYSTEMS):
        yield [number for group in groups[start : start + MOST_SYSTEMS] for number in group]


def _rates(question: Question) -> Rates:
    network = question.network
    return network.bandwidth, network.latency, _rates_of_accelerator(question)


def _rates_of_accelerator(question: Question) -> Rates:
    accelerator, recipe = question.cluster.accelerator, question.job.recipe
    return accelerator.memory_bandwidth, accelerator.peak(recipe.matmul), accelerator.peak(recipe.dense_math)


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """Questions side by side."""

    questions: tuple[Question, ...]
    systems: tuple[int, ...]
    """System of every question, by number."""
    capacities: tuple[int, ...]
    """Capacity of every question, by number."""
    usable: NDArray[np.float64]
    """What tensors can fill of each capacity, ascending. [bytes]"""
    alone: Question
    """The question with most memory."""
    joint: Question
    """The same with all systems."""

    @classmethod
    def of(cls, questions: Sequence[Question]) -> _Asked:
        """Questions that differ in memory and rates alone."""
        systems = {_rates(question): question for question in questions}
        order = {rates: number for number, rates in enumerate(systems)}
        memory = [float(question.usable_memory) for question in questions]
        usable, capacities = np.unique(memory, return_inverse=True)
        alone = questions[int(np.argmax(memory))]
        return cls(
            questions=tuple(questions),
            systems=tuple(order[_rates(question)] for question in questions),
            capacities=tuple(capacities.tolist()),
            usable=usable,
            alone=alone,
            joint=alone if len(systems) == 1 else _side_by_side(alone, [*systems.values()]),
        )

    def fastest(self, tables: Sequence[_Both]) -> list[Plan | None]:
        """The fastest plan of every question."""
        leaders = Leaders(1 + max(self.systems), len(self.usable))
        for family, both in enumerate(tables):
            for piece in (piece for _, pieces in pieces_of(both.memory) for piece in pieces):
                self._look_at(both, family, piece, leaders)
        places = [leaders.best(*each) for each in zip(self.systems, self.capacities, strict=True)]
        return self._plans(tables, places)

    def _look_at(self, both: _Both, family: int, piece: TablePiece, leaders: Leaders) -> None:
        """Plans of a piece that could be the fastest for some question."""
        classes = {sharding: self._classes(piece, sharding) for sharding in piece.at.shardings}
        bound = np.asarray(least_of_points(both.times, piece.at.points, piece.at.slots))
        columns = _columns(leaders.may_lead(bound, np.minimum.reduce([*classes.values()])))
        if not len(columns):
            return
        near = piece.within(both.times, columns)
        for sharding, of_all in classes.items():
            self._look_closer(near, sharding, of_all[:, columns], family, leaders)

    def _look_closer(
        self, piece: TablePiece, sharding: int, classes: NDArray[np.intp], family: int, leaders: Leaders
    ) -> None:
        """Plans of a piece under a kind of sharding whose slowest stage might be fast enough."""
        columns = _columns(leaders.may_lead(self._spread(least_of_piece(self.joint, piece), classes), classes))
        if 0 < len(columns) < len(piece.at.points):
            piece, classes = piece.within(piece.at.tables, columns), classes[:, columns]
        if len(columns):
            times, at = self._spread(whole_step(self.joint, piece.step(sharding, "times").busiest), classes), piece.at
            leaders.look_at(times, classes, family=family, sharding=sharding, slots=at.slots, points=at.points)

    def _classes(self, piece: TablePiece, sharding: int) -> NDArray[np.intp]:
        """The smallest capacity in which each plan fits, by slot and point; their number where it fits none."""
        step = piece.step(sharding, "memory")
        kept = all_hold([step.host_fits, piece.valid_under(sharding)])
        classes = np.searchsorted(self.usable, step.peak_memory_bytes)
        shape = len(piece.at.slots), len(piece.at.points)
        return np.broadcast_to(np.where(kept, classes, len(self.usable)), shape)

    def _spread(self, times: Numbers, classes: NDArray[np.intp]) -> NDArray[np.float64]:
        """Step times by system, slot and point. [s]"""
        return np.broadcast_to(times, (1 + max(self.systems), *classes.shape))

    def _plans(self, tables: Sequence[_Both], places: Sequence[Place | None]) -> list[Plan | None]:
        """Of every question the fastest plan over the chunks per rank at its place."""
        found: list[Plan | None] = [None] * len(places)
        for family, both in enumerate(tables):
            here = [number for number, place in enumerate(places) if place is not None and place[0] == family]
            cells = [*dict.fromkeys(_cell(places[number]) for number in here)]
            if not cells:
                continue
            plans, cell = with_chunks(both.times, *np.asarray(cells, dtype=np.intp).T)
            step = outcomes(self.joint, both.times, plans)
            times = np.broadcast_to(step.step_time, (*step.step_time.shape[:-1], len(plans)))
            times = np.broadcast_to(times.reshape(-1, len(plans)), (1 + max(self.systems), len(plans)))
            for number in here:
                fits = step.fits & (step.peak_memory_bytes <= self.usable[self.capacities[number]])
                of_cell = np.flatnonzero(fits & (cell == cells.index(_cell(places[number]))))
                best = of_cell[times[self.systems[number], of_cell].argmin()]
                found[number] = plans.plan(both.times, int(best))
        return found


@dataclass(frozen=True, kw_only=True)
class _Both:
    """A family priced for one system, of which memory is read, and for all of them."""

    memory: Tables
    times: Tables

    @classmethod
    def of(cls, asked: _Asked, family: Family, known: KnownPipelines) -> _Both:
        """Of the plans of a family."""
        times = Tables(question=asked.joint, family=family, known=known)
        if asked.joint is asked.alone:
            return cls(memory=times, times=times)
        return cls(memory=Tables(question=asked.alone, family=family, known=known), times=times)


def _side_by_side(question: Question, systems: Sequence[Question]) -> Question:
    """``question`` with the rates of all systems."""
    accelerators = [each.cluster.accelerator for each in systems]
    return replace(
        question,
        given_network=Network.side_by_side([each.network for each in systems], num_axes=NUM_AXES),
        given_rates=MachineRates.side_by_side(accelerators, question.job.recipe, num_axes=NUM_AXES),
    )


def _columns(flags: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Points at which any flag is set."""
    return np.flatnonzero(flags.any(axis=(0, 1)))


def _cell(place: Place | None) -> tuple[int, int, int]:
    """Sharding, slot of recomputation and point."""
    assert place is not None
    _, point, sharding, slot = place
    return sharding, slot, point


def _estimates(
    questions: Sequence[Question], plans: Sequence[Plan | None], stack: Stack | None
) -> list[Estimate | None]:
    """The full answers; a plan of several capacities is answered once for each system."""
    of_system: dict[Rates, list[int]] = {}
    for number, question in enumerate(questions):
        if plans[number] is not None:
            of_system.setdefault(_rates(question), []).append(number)
    found: list[Estimate | None] = [None] * len(plans)
    for numbers in of_system.values():
        chosen = {number: plan for number in numbers if (plan := plans[number]) is not None}
        different = [*dict.fromkeys(chosen.values())]
        answers = dict(zip(different, estimate_plans(questions[numbers[0]], different), strict=True))
        for number, plan in chosen.items():
            answer = with_memory_of(answers[plan], questions[number])
            found[number] = answer if stack is None else replace(answer, framework=stack.label)
    return found
