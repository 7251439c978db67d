"""Step time and memory of measured runs: one prediction each, or all of them under many sets of constants at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import Numbers
from shardplan.base.errors import InputError, ShardplanError, UnknownNameError
from shardplan.base.fields import dataclass
from shardplan.base.units import format_bytes, format_time
from shardplan.calibrate.runs.questions import AskedRun, questions_of
from shardplan.calibrate.runs.rows import MeasuredRun, UnreadableRun
from shardplan.estimation.band import band_of
from shardplan.estimation.charge import step_flops
from shardplan.estimation.layout import pipeline_of, whole_model
from shardplan.estimation.priced import PricedPlan
from shardplan.estimation.pricing import price
from shardplan.estimation.question import Question
from shardplan.estimation.step import Step, step_of
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.profile import Profile
from shardplan.inputs.readers.residuals import Shares
from shardplan.physics.workload.stage import Stage, kinds_of_stage

Profiles = Mapping[str, Profile] | Callable[[str], Profile]
"""Constants by generation of accelerator. Of a mapping, those that are shipped serve a generation that is missing."""


@dataclass(frozen=True, kw_only=True)
class SkippedRun:
    """A run that cannot be predicted, and why."""

    run: MeasuredRun | UnreadableRun
    rule: str
    """The broken rule."""
    reason: str
    """In words, values included."""
    others: tuple[tuple[str, str], ...] = ()
    """Further problems of the row: rule and reason."""

    @property
    def problems(self) -> tuple[tuple[str, str], ...]:
        """All that is wrong with the row: rule and reason."""
        return ((self.rule, self.reason), *self.others)

    @property
    def said(self) -> str:
        """All reasons."""
        return "; also: ".join(reason for _, reason in self.problems)


@dataclass(frozen=True, kw_only=True)
class PosedRun:
    """A run with all that does not depend on the constants."""

    asked: AskedRun
    numbers: PlanNumbers
    kinds: tuple[Stage, ...]
    """Stages that can be slowest or fullest; at the end the one whose memory was measured, where that is stated."""
    whole: Stage
    rounds: tuple[tuple[Stage, ...], ...]
    """The longest ways through uneven chunks, in groups of which the slowest counts."""

    @classmethod
    def of(cls, asked: AskedRun) -> PosedRun:
        """The run's plan in numbers."""
        question, plan = asked.question, asked.plan
        laid_out, rounds = pipeline_of(question.model, plan.pp, plan.vp, plan.stage_layers, schedule=plan.schedule)
        metered = () if asked.metered_rank is None else (laid_out[asked.metered_rank],)
        return cls(
            asked=asked,
            numbers=PlanNumbers.of(plan, question.num_accelerators, question.job),
            kinds=(*kinds_of_stage(laid_out), *metered),
            whole=whole_model(question.model),
            rounds=tuple(tuple(chunk.as_stage() for chunk in group) for group in rounds),
        )

    @property
    def generation(self) -> str:
        """Generation of the accelerator, whose constants apply."""
        return self.asked.question.cluster.accelerator.generation

    def step(self, profiles: Profiles) -> tuple[Question, Step]:
        """Outcome under the constants of its generation: numbers, or arrays over sets of constants."""
        question = self._question(profiles)
        prices = price(question, self.numbers)
        return question, step_of(question, self.numbers, prices, self.kinds, self.whole, rounds=self.rounds)

    def shares(self, profiles: Profiles) -> Shares:
        """Uncertain shares of the predicted step, under single constants."""
        return PricedPlan.of(self._question(profiles), self.asked.plan).shares

    def _question(self, profiles: Profiles) -> Question:
        return with_constants(self.asked.question, profiles)


def with_constants(question: Question, profiles: Profiles) -> Question:
    """The question under the constants of its accelerator's generation."""
    generation = question.cluster.accelerator.generation
    profile = profiles.get(generation) if isinstance(profiles, Mapping) else profiles(generation)
    return question if profile is None else replace(question, given_profile=profile)


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A run and what shardplan says of it."""

    asked: AskedRun
    step_time: float
    """[s]"""
    step_time_p10: float
    """A tenth of comparable runs were faster. [s]"""
    step_time_p90: float
    """A tenth were slower. [s]"""
    peak_memory_bytes: float
    """As the run's meter counts it, of the stage that it was on. [bytes]"""
    fits: bool
    """Whether it is predicted to fit in memory."""
    needed_memory_bytes: float
    """Tensors on the fullest accelerator. [bytes]"""
    usable_memory_bytes: float
    """What they can fill. [bytes]"""

    @property
    def run(self) -> MeasuredRun:
        """The measured run."""
        return self.asked.run

    @property
    def free_share(self) -> float:
        """Share of the usable memory that the prediction leaves free; below zero where it does not fit."""
        return 1 - self.needed_memory_bytes / self.usable_memory_bytes

    @property
    def log_time_ratio(self) -> float | None:
        """ln(predicted / measured) of the step time."""
        return None if self.run.step_time is None else float(np.log(self.step_time / self.run.step_time))

    @property
    def log_memory_ratio(self) -> float | None:
        """ln(predicted / measured) of the peak memory."""
        measured = self.run.peak_memory_bytes
        return None if measured is None else float(np.log(self.peak_memory_bytes / measured))


def ask_all(runs: Iterable[MeasuredRun]) -> tuple[tuple[AskedRun, ...], tuple[SkippedRun, ...]]:
    """Every run as a question, and those that cannot be one, with the reason."""
    listed = tuple(runs)
    found = questions_of(listed)
    least: dict[int, float] = {}  # what the model's FLOP of a step take at the accelerators' peak, by question [s]
    asked: list[AskedRun] = []
    skipped: list[SkippedRun] = []
    for run, one in zip(listed, found, strict=True):
        if isinstance(one, AskedRun):
            question = one.question
            if id(question) not in least:
                peak = question.cluster.accelerator.peak(question.job.recipe.matmul)
                least[id(question)] = step_flops(question) / (question.num_accelerators * peak)
        error = one if isinstance(one, ShardplanError) else _too_fast(one, least[id(one.question)])
        if error is not None:
            skipped.append(SkippedRun(run=run, rule=error.rule, reason=_reason(error)))
        elif isinstance(one, AskedRun):
            asked.append(one)
    return tuple(asked), tuple(skipped)


def skipped_rows(rows: Iterable[UnreadableRun]) -> tuple[SkippedRun, ...]:
    """Rows with a cell that cannot be read, as runs that cannot be predicted."""
    skipped = []
    for row in rows:
        at = f"line {row.line}"  # line, value, what may be there and the knob; the file is that of all rows
        said = [(each.rule, f"{at}{each.message.partition(f', {at}')[2]}; {each.hint}") for each in row.errors]
        skipped.append(SkippedRun(run=row, rule=said[0][0], reason=said[0][1], others=tuple(said[1:])))
    return tuple(skipped)


MOST_OVER: Final = 3.0
"""Needed over usable memory above which a run cannot have run as it is written. Of the published runs the one that is
furthest above 1 (a row of tier B, which leaves out what matters) is predicted to need 2.8 times what is usable."""
FITTED_IN_MEMORY: Final = "the tensors of a run that ran fitted in memory"


def cannot_have_run(run: MeasuredRun, needed: float, usable: float) -> str:
    """Why a run cannot have run as it is written; empty where it may have. ``needed``, ``usable``: memory. [bytes]"""
    if not run.ran or needed <= MOST_OVER * usable:
        return ""
    return (
        f"line {run.line}, run '{run.id:.80}': cannot have run as written, since it needs {format_bytes(needed)} of "
        f"{format_bytes(usable)} on an accelerator; check model, num_accelerators, tp, pp, sharding and recompute"
    )


def _too_fast(asked: AskedRun, least: float) -> InputError | None:
    """What is wrong with a step shorter than the ``least`` time. [s]"""
    run, question = asked.run, asked.question
    if run.step_time is None or run.step_time >= least:
        return None
    return InputError(
        f"run '{run.id}' (line {run.line}): {format_time(run.step_time)} a step is {least / run.step_time:.3g} times "
        f"the {question.job.precision} peak of {question.cluster.accelerator.name}",
        rule="a step takes at least the model's FLOP at the accelerators' peak",
        hint="check step_time_s (seconds of an optimizer step), global_batch_size (sequences), num_accelerators",
    )


def not_understood(asked: Iterable[AskedRun]) -> dict[str, int]:
    """Options, values and columns that shardplan does not know, with the number of runs that state them."""
    return dict(Counter(text for one in asked for text in one.unknown).most_common())


def taken_as(asked: Iterable[AskedRun]) -> dict[str, int]:
    """Names and words of rows that are taken as others, with the number of runs that have them."""
    return dict(Counter(text for one in asked for text in one.taken).most_common())


def _reason(error: ShardplanError) -> str:
    """Rule and values; for a name like no other, which its message says nothing of, also where to look."""
    said = f"{error.rule}: {error.message}"
    lacks_guess = isinstance(error, UnknownNameError) and not error.message.endswith("?")
    return f"{said}; {error.hint}" if lacks_guess and error.hint else said


def cases_of(asked: Iterable[AskedRun]) -> tuple[PosedRun, ...]:
    """Runs made ready to be priced many times."""
    return tuple(PosedRun.of(one) for one in asked)


def predict(asked: Iterable[AskedRun], profiles: Profiles | None = None) -> tuple[Prediction, ...]:
    """Predictions under single constants (those that are shipped where none are given)."""
    groups: dict[tuple[object, ...], dict[int, AskedRun]] = {}
    for number, one in enumerate(asked):
        question = one.question  # plans of one are priced together; models and clusters are objects that rows share
        key = (id(question.model), id(question.cluster), question.num_accelerators, question.job)
        groups.setdefault(key, {})[number] = one
    found: dict[int, Prediction] = {}
    for alike in groups.values():
        question = with_constants(next(iter(alike.values())).question, profiles or {})
        priced = PricedPlan.of_all(question, [one.plan for one in alike.values()])
        found |= zip(alike, map(_prediction, alike.values(), priced), strict=True)
    return tuple(found[number] for number in range(len(found)))


def _prediction(asked: AskedRun, priced: PricedPlan) -> Prediction:
    question, time, memory = priced.question, priced.step_time, priced.peak_memory_bytes
    sure = band_of(question, shares=priced.shares, plan=asked.plan)
    rank = asked.metered_rank
    metered = memory if rank is None else priced.memory_of(rank % asked.plan.pp).total
    return Prediction(
        asked=asked,
        step_time=time,
        step_time_p10=time * sure.low,
        step_time_p90=time * sure.high,
        peak_memory_bytes=float(measured_memory(metered, asked.run, question)),
        fits=priced.fits,
        needed_memory_bytes=memory,
        usable_memory_bytes=float(question.usable_memory),
    )


def log_ratios(
    asked_runs: Sequence[AskedRun | PosedRun], profiles: Profiles
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """ln(predicted / measured) of step time and of peak memory, (runs, K) for K sets of constants; NaN: not measured.

    ``profiles``: for every generation a profile whose constants are numbers or arrays of shape (K,).
    """
    cases = [one if isinstance(one, PosedRun) else PosedRun.of(one) for one in asked_runs]
    time, memory, _ = log_ratios_and_needs(cases, profiles, has_needs=False)
    return time, memory


def log_ratios_and_needs(
    cases: Sequence[PosedRun], profiles: Profiles, *, has_needs: bool = True
) -> NDArray[np.float64]:
    """The same, and ln(needed / usable memory) of every run: three tables; what is not asked for is not predicted."""
    rows: list[tuple[Numbers, Numbers, Numbers]] = []
    for case in cases:
        run, (question, step) = case.asked.run, case.step(profiles)
        time, memory = run.step_time, run.peak_memory_bytes
        metered = step.peak_memory_bytes if case.asked.metered_rank is None else step.peaks[-1]
        rows.append(
            (
                np.nan if time is None else np.log(step.step_time / time),
                np.nan if memory is None else np.log(measured_memory(metered, run, question) / memory),
                np.log(step.peak_memory_bytes / question.usable_memory) if has_needs else np.nan,
            )
        )
    tables = np.empty((3, len(rows), max((np.size(value) for row in rows for value in row), default=1)))
    for number, row in enumerate(rows):
        for place, value in enumerate(row):
            tables[place, number] = value
    return tables


def measured_memory(tensors: Numbers, run: MeasuredRun, question: Question) -> Numbers:
    r"""Peak memory as the run's meter counts it. [bytes]

    Of tensors of :math:`B` bytes the allocator reserves :math:`B (1 + f)`; the process counts
    :math:`B (1 + f_p) + b_p`, with its context and communicators. Neither exceeds the device: an allocator that finds
    it full gives back what it does not use, down to :math:`B (1 + f_{full})`. Where the meter is not stated it is
    taken as that of the tensors in use.
    """
    profile, device = question.profile, question.cluster.accelerator.memory_bytes
    pressed = tensors * (1 + profile.fragmentation_when_full)
    if run.memory_kind == "reserved":
        at_ease, around = tensors * (1 + profile.fragmentation), profile.context_bytes
        return np.maximum(np.minimum(at_ease, device - around), pressed)
    if run.memory_kind == "process":
        at_ease = tensors * (1 + profile.fragmentation_of_process) + profile.process_bytes
        return np.maximum(np.minimum(at_ease, device), pressed + profile.context_bytes)
    return tensors
