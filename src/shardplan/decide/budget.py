"""How many accelerators, for how long, at what cost: the missing one of days, accelerators, money and energy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any, Final, NamedTuple

from shardplan.base.errors import InputError, shown
from shardplan.base.fields import dataclass
from shardplan.decide.batches import BatchLimits, RampStage, stages_of, with_batch
from shardplan.decide.goodput import (
    DAY,
    Duration,
    StageRun,
    check_tokens,
    duration_of,
    longest_productive,
    num_steps,
    spares_needed,
)
from shardplan.decide.operations import Energy, HourlyPrice, Operations, carbon_of, energy_of, needed_price, price_of
from shardplan.decide.scale import fewest, sizes_of, soonest
from shardplan.decide.searching import Progress, Searches
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.question import Question
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.defaults import usual_batch, with_usual_batch
from shardplan.planner.result import SearchResult

USUAL_DAYS: Final = 90.0
"""Days within which a run must finish if nothing limits it."""
HOUR: Final = 3600.0
ROUNDING: Final = 1e-9
"""Share by which two ways to add up a run may differ."""


class RunQuestion(NamedTuple):
    """What is trained, for any size."""

    question: Question
    """The question, with any number of accelerators."""
    searches: Searches
    """How plans are searched: framework and restrictions."""
    assumptions: tuple[str, ...]
    """Assumptions made when the question was read."""
    has_batch: bool
    """Whether the batch is that of the question; otherwise it is the usual one of the size, as in a search."""
    batch_limits: BatchLimits | None = None
    """Limits within which the batch is chosen for every size; None if it is not chosen."""

    def check(self, num_accelerators: int | None) -> None:
        """Raises InputError if limits of the batch contradict the given batch or this number of accelerators."""
        limits = self.batch_limits
        if limits is None:
            return
        if self.has_batch:
            limits.check(self.question.job.global_batch_size)
        if num_accelerators is not None and not self._batches(self.on(num_accelerators, {})):
            raise limits.no_batch(num_accelerators)

    def on(self, num_accelerators: int, fields: Mapping[str, Any]) -> Question:
        """The question on this number of accelerators, with some fields of the job replaced. Raises InputError."""
        job = replace(self.question.job, **fields)
        if not self.has_batch and "global_batch_size" not in fields:
            if self.batch_limits is not None:
                job = replace(job, global_batch_size=self.batch_limits.low)
            else:
                job = with_usual_batch(job, self.question.model, num_accelerators)[0]
        return replace(self.question, num_accelerators=num_accelerators, job=job)

    def with_batches(self, num_accelerators: int, fields: Mapping[str, Any]) -> tuple[Question, ...]:
        """The same with every batch to search; empty if no batch within the limits suits the size."""
        question = self.on(num_accelerators, fields)
        if "global_batch_size" in fields:
            return (question,)
        return tuple(with_batch(question, batch) for batch in self._batches(question))

    def _batches(self, question: Question) -> tuple[int, ...]:
        """Batches to search on the accelerators of a question, of no more tokens than are trained."""
        if self.batch_limits is None:
            return (question.job.global_batch_size,)
        most = (question.job.tokens or math.inf) / question.job.sequence_length
        own = (question.job.global_batch_size,) if self.has_batch else ()
        found = dict.fromkeys((*own, *self.batch_limits.batches(question)))
        return tuple(batch for batch in found if batch <= most)

    def assumed(self, question: Question) -> tuple[str, ...]:
        """All assumptions, including the batch."""
        if self.has_batch and self.batch_limits is None:
            return self.assumptions
        job, usual = question.job, usual_batch(question.model, question.job, question.num_accelerators)
        text = f"global batch {job.global_batch_size:,} sequences ({job.tokens_per_step / 1e6:.3g} M tokens)"
        if self.batch_limits is not None:
            text = f"{text}: the best of those looked at from {self.batch_limits}"
        elif job.global_batch_size == usual.num_sequences:
            text = usual.assumption
        return (text, *self.assumptions)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a run; None is no limit. Raises InputError for values that are not positive."""

    days: float | None = None
    """Wall time. [days]"""
    num_accelerators: int | None = None
    """Exactly this number of accelerators."""
    money: float | None = None
    """Cost in the currency of the price."""
    energy: float | None = None
    """Energy of the data centre. [kWh]"""

    def __post_init__(self) -> None:
        for name in ("days", "money", "energy"):
            value = getattr(self, name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (is_number and 0 < value < math.inf):
                raise InputError(
                    f"{name} is {shown(value)}",
                    rule=f"{name} is a number above 0",
                    hint=f"correct {name}, or leave it out to have it worked out",
                )


@dataclass(frozen=True, kw_only=True)
class BudgetOption:
    """A run on one cluster and size: time, cost and energy."""

    question: Question
    """The question of the last stage of the run."""
    stages: tuple[StageRun, ...]
    """Stages of the run, each with one batch and plan; one if the batch does not grow."""
    duration: Duration
    spares: int
    """Waiting accelerators that are paid for."""
    spares_needed: int
    """Spare accelerators that would suffice to replace failed ones at once 99 % of the time."""
    price: HourlyPrice | None
    """Price of an accelerator-hour; None if none is known."""
    energy: Energy | None
    """None if the power of the accelerator is not known."""
    carbon: float | None
    """Carbon dioxide. [t]"""
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    """Assumptions that are shown with every answer: what nobody has measured."""
    shortfalls: tuple[str, ...] = ()
    """Limits that the run breaks, and by how much; empty if it meets all."""

    @property
    def num_accelerators(self) -> int:
        """Working accelerators."""
        return self.question.num_accelerators

    @property
    def estimate(self) -> Estimate:
        """The plan of the last stage."""
        return self.stages[-1].estimate

    @property
    def wall_time(self) -> float:
        """Mean time of the whole run. [s]"""
        return self.duration.accounts.wall_time

    @property
    def days(self) -> float:
        """Mean time of the whole run. [days]"""
        return self.wall_time / DAY

    @property
    def num_steps(self) -> int:
        """Steps that are kept."""
        return sum(stage.num_steps for stage in self.stages)

    @property
    def accelerator_hours(self) -> float:
        """Hours of all accelerators that are paid for."""
        return (self.num_accelerators + self.spares) * self.wall_time / HOUR

    @property
    def money(self) -> float | None:
        """Price of the accelerators; None if it is not known."""
        return None if self.price is None else self.price.per_hour * self.accelerator_hours


@dataclass(frozen=True, kw_only=True)
class ClusterBudget:
    """The answer for one cluster."""

    cluster: Cluster
    option: BudgetOption | None
    """The run that meets the limits, or the nearest one; None if no plan fits on any size."""
    reason: str | None
    """Why there is no option."""
    num_sizes: int
    """Number of sizes that were searched."""


def budget_of(
    asked: RunQuestion,
    limits: Limits,
    operations: Operations,
    *,
    batch_ramp: str | None = None,
    progress: Progress | None,
) -> ClusterBudget:
    """The fewest accelerators that meet the limits; if only money or energy is limited, the run that finishes first.

    Without limits, the run may take ``USUAL_DAYS``. Raises InputError.
    """
    cluster = asked.question.cluster
    asked.check(limits.num_accelerators)
    if limits.money is not None:
        needed_price(cluster, operations)
    runs = _Runs(asked, operations, batch_ramp, progress)
    is_usual = limits == Limits()
    in_force = Limits(days=USUAL_DAYS) if is_usual else limits
    found, looked = _best_run(runs, cluster, in_force)
    # If nothing meets the limits: the run that finishes first, or that takes least if time is not limited.
    takes = attrgetter("accelerator_hours" if in_force.days is None else "wall_time")
    best = found or min(looked, key=takes, default=None)
    if best is None:
        number = limits.num_accelerators
        where = "on any size" if number is None else f"on {number:,} accelerators"
        why = f"failures leave no time to train {where}" if runs.never_ends else f"no plan fits {where}"
        return ClusterBudget(cluster=cluster, option=None, reason=why, num_sizes=runs.num_searches)
    assumed = (f"done within {USUAL_DAYS:g} days, as nothing else is limited",) if is_usual else ()
    missed = tuple(_shortfalls(best, in_force))
    best = replace(best, shortfalls=missed, assumptions=(*assumed, *best.assumptions))
    return ClusterBudget(cluster=cluster, option=best, reason=None, num_sizes=runs.num_searches)


def _best_run(runs: _Runs, cluster: Cluster, limits: Limits) -> tuple[BudgetOption | None, list[BudgetOption]]:
    """The run that meets the limits, and all runs that were searched."""
    if limits.num_accelerators is not None:
        option = runs.option(limits.num_accelerators)
        return option, []
    sizes = sizes_of(cluster.accelerators_per_node, cluster.max_num_accelerators)
    if limits.days is not None:
        return fewest(sizes, runs.option, limits.days * DAY, runs.is_slower)
    return soonest(sizes, runs.option, lambda option: not [*_shortfalls(option, limits)])


def _shortfalls(option: BudgetOption, limits: Limits) -> Iterator[str]:
    """Limits that a run breaks, and by how much."""
    taken = {
        "days": (option.days, limits.days, "days"),
        "money": (option.money, limits.money, option.price.currency if option.price else ""),
        "energy": (None if option.energy is None else option.energy.total, limits.energy, "kWh"),
    }
    for name, (value, most, unit) in taken.items():
        if most is not None and value is None:
            yield f"{name} cannot be worked out: the power of {option.question.cluster.accelerator.name} is not known"
        elif most is not None and value is not None and value > most:
            yield f"{name}: {value:,.4g} {unit}, {100 * (value / most - 1):.3g} % above the limit of {most:,.4g}"


class _Runs:
    """Runs on any size, each searched once; searches share pipelines."""

    def __init__(
        self, asked: RunQuestion, operations: Operations, batch_ramp: str | None, progress: Progress | None
    ) -> None:
        self.asked, self.operations, self.batch_ramp, self.progress = asked, operations, batch_ramp, progress
        self.num_searches, self.never_ends = 0, False
        self.found: dict[tuple[int, int], SearchResult] = {}

    def option(self, num_accelerators: int) -> BudgetOption | None:
        """The run on this number of accelerators; None if no plan fits, or failures leave no time to train."""
        runs: list[StageRun] = []
        for stage in stages_of(self.batch_ramp, check_tokens(self.asked.on(num_accelerators, {}))):
            found = self._stage(num_accelerators, stage)
            if found is None:
                return None
            runs.append(found)
        duration = duration_of(runs, self.operations)
        if duration is None:
            self.never_ends = True
            return None
        return _option(self.asked, tuple(runs), duration, self.operations)

    def is_slower(self, num_accelerators: int, wall_time: float) -> bool:
        """Whether the run on this number of accelerators takes longer for any plan; the result is kept."""
        stages = stages_of(self.batch_ramp, check_tokens(self.asked.on(num_accelerators, {})))
        if len(stages) > 1:
            return False
        self.found = {}
        fit = False
        for each in self.asked.with_batches(num_accelerators, stages[0].fields):
            productive = longest_productive(each, self.operations, wall_time)
            result = self._search(each, productive / num_steps(each, stages[0].tokens) * (1 + ROUNDING))
            self.found[_size(each)] = result
            if result.recommended is not None:
                return False
            fit = fit or result.num_plans_feasible > 0
        return fit

    def _stage(self, num_accelerators: int, stage: RampStage) -> StageRun | None:
        """The stage with its fastest batch; None if no plan fits."""
        best: StageRun | None = None
        for question in self.asked.with_batches(num_accelerators, stage.fields):
            limit = math.inf if best is None else best.productive_time / num_steps(question, stage.tokens)
            result = self.found.pop(_size(question), None) or self._search(question, limit)
            if result.recommended is not None:
                run = StageRun.of(question, result.recommended, stage.tokens)
                best = run if best is None or run.productive_time < best.productive_time else best
        return best

    def _search(self, question: Question, within: float = math.inf) -> SearchResult:
        self.num_searches += 1
        return self.asked.searches.result(question, within=within, progress=self.progress)


def _size(question: Question) -> tuple[int, int]:
    """Accelerators and batch."""
    return question.num_accelerators, question.job.global_batch_size


def _option(asked: RunQuestion, runs: tuple[StageRun, ...], duration: Duration, operations: Operations) -> BudgetOption:
    question = runs[-1].question
    cluster, number, wall_time = question.cluster, question.num_accelerators, duration.accounts.wall_time
    price = price_of(cluster, operations)
    energy = energy_of(cluster, number, wall_time, operations)
    quoted = (f"price {price.per_hour:g} {price.currency}/h: {price.source}",) if price and price.source else ()
    rate, warning = duration.recovery.failures_per_second, operations.extrapolation(number)
    unsure, of_plan = () if warning is None else (warning,), runs[-1].estimate.assumptions
    return BudgetOption(
        question=question,
        stages=runs,
        duration=duration,
        spares=operations.spares or 0,
        spares_needed=spares_needed(rate, cluster.accelerators_per_node, operations),
        price=price,
        energy=energy,
        carbon=None if energy is None else carbon_of(energy.total, operations),
        warnings=unsure,
        assumptions=(*unsure, *operations.assumptions(), *quoted, *asked.assumed(question), *of_plan),
    )
