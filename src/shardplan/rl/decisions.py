"""Decisions about an RL step: other sizes, changes, other hardware, and the whole run. Each plans the step again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, TypeVar

from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass
from shardplan.decide.goodput import DAY
from shardplan.decide.scale import (
    LEAST_GAIN,
    check_gain,
    checked_sizes,
    efficiencies,
    fewest,
    pays_up_to,
    sizes_of,
    soonest,
)
from shardplan.inputs.cluster import Cluster
from shardplan.rl.asked import AskedRl
from shardplan.rl.question import RlQuestion
from shardplan.rl.search import RlPlan, RlResult

Item = TypeVar("Item")
Progress = Callable[[int, int], None]
FACTOR: Final = 1.25
"""Parameters are divided and multiplied by this."""
MOST_TIMES: Final = 16
"""Sizes of a run are looked at up to this many times the size that was asked."""
PER_DOUBLING: Final = 4
"""Sizes of a run that are looked at from one power of two to the next, at most: each is a search of both pools."""


@dataclass(frozen=True, kw_only=True)
class RlVariant:
    """An RL step that differs from another in its size or by a change."""

    label: str
    result: RlResult
    against: RlPlan | None = None
    """What it is compared with."""
    marginal: float | None = None
    """Of sizes: tokens a second that each added accelerator brings, over those of one at the smallest size."""

    @property
    def best(self) -> RlPlan | None:
        """Its fastest plan."""
        return self.result.best

    @property
    def num_accelerators(self) -> int:
        """Accelerators of both pools."""
        task = self.result.task
        return self.best.num_accelerators if self.best else task.question.num_accelerators

    @property
    def change(self) -> float | None:
        """Relative change of the step time against what it is compared with."""
        if self.best is None or self.against is None:
            return None
        return self.best.step_time / self.against.step_time - 1

    @property
    def efficiency(self) -> float | None:
        """Tokens a second of an accelerator, over those of the plan that it is compared with."""
        if self.best is None or self.against is None:
            return None
        rates = [plan.tokens_per_second / plan.num_accelerators for plan in (self.best, self.against)]
        return rates[0] / rates[1]


@dataclass(frozen=True, kw_only=True)
class RlSizes:
    """The step on several numbers of accelerators, the smallest first."""

    variants: tuple[RlVariant, ...]
    least_gain: float = LEAST_GAIN

    @property
    def gains(self) -> list[tuple[int, float | None]]:
        """Sizes that have a plan, and what each added accelerator brings."""
        return [(each.num_accelerators, each.marginal) for each in self.variants if each.best is not None]

    @property
    def pays_up_to(self) -> int | None:
        """The largest size before the first step that does not pay; None where no size has a plan."""
        return pays_up_to(self.gains, self.least_gain)


@dataclass(frozen=True, kw_only=True)
class RlChanges:
    """The step as it was, and after each change; changes are made one after the other."""

    variants: tuple[RlVariant, ...]


@dataclass(frozen=True, kw_only=True)
class StepParameter:
    """Something of the hardware or the answers that can be larger or smaller, and what that does to the step."""

    name: str
    elasticity: float | None
    """Share by which the step gets longer for a share of the parameter; None where nothing fits at one end."""


@dataclass(frozen=True, kw_only=True)
class RlElasticities:
    """How the step follows hardware and answers, the most important first."""

    parameters: tuple[StepParameter, ...]
    factor: float = FACTOR


@dataclass(frozen=True, kw_only=True)
class RlRun:
    """A number of RL steps on one size."""

    variant: RlVariant
    plan: RlPlan
    steps: int

    @property
    def num_accelerators(self) -> int:
        """Accelerators of both pools."""
        return self.plan.num_accelerators

    @property
    def wall_time(self) -> float:
        """Of all steps. [s]"""
        return self.steps * self.plan.step_time

    @property
    def days(self) -> float:
        """The same. [days]"""
        return self.wall_time / DAY

    @property
    def money(self) -> float | None:
        """Price of both pools for that time; None where one is not known. [USD]"""
        task, plan = self.variant.result.task, self.plan
        train, generate = task.question.cluster.accelerator_price, task.generating.accelerator_price
        if train is None or generate is None:
            return None
        apart = 0 if plan.cycle.shares_pool else plan.num_rollout
        return (plan.num_train * train + apart * generate) * self.wall_time / 3600


@dataclass(frozen=True, kw_only=True)
class RlLimits:
    """How long a run is, and what it may take; None: no limit. Raises InputError."""

    steps: int | None = None
    days: float | None = None
    money: float | None = None
    """[USD]"""

    def __post_init__(self) -> None:
        if self.steps is None:
            given = next((f"--{name} is {getattr(self, name):g} and " for name in ("days", "money")
                          if getattr(self, name) is not None), "")  # fmt: skip
            raise InputError(
                f"{given}--steps is not given", rule="a run has a number of steps", hint="add --steps 1000"
            )

    def affords(self, run: RlRun) -> bool:
        """Whether a run is within the limits."""
        in_time = self.days is None or run.days <= self.days
        return in_time and (self.money is None or (run.money is not None and run.money <= self.money))


@dataclass(frozen=True, kw_only=True)
class RlBudget:
    """The run that meets the limits, and those that were looked at, the smallest first."""

    limits: RlLimits
    runs: tuple[RlRun, ...]
    best: RlRun | None
    """The fewest accelerators that are done in time; without a limit of time, what is done soonest."""
    without_plan: tuple[int, ...] = field(default=())
    """Sizes on which nothing fits."""

    @property
    def nearest(self) -> RlRun | None:
        """The best run; where none meets the limits, the one that is done soonest, or is cheapest."""
        by_time = self.limits.days is not None or any(each.money is None for each in self.runs)
        return self.best or min(self.runs, key=lambda run: run.wall_time if by_time else run.money or 0.0, default=None)


RlDecision = RlSizes | RlChanges | RlElasticities | RlBudget


def at_sizes(
    question: RlQuestion,
    sizes: Sequence[int],
    *,
    least_gain: float = LEAST_GAIN,
    known: Mapping[int, RlResult] | None = None,
    progress: Progress | None = None,
) -> RlSizes:
    """The step on each number of accelerators, against the smallest that has a plan. Raises InputError.

    ``known``: sizes that are answered already.
    """
    ordered = checked_sizes(sizes)
    check_gain(least_gain)
    asked = [question.on(size) for size in ordered]
    for each in asked:
        each.posed()  # so that a wrong one is refused before the search
    pairs = _counted([*zip(ordered, asked, strict=True)], progress)
    results = [(known or {}).get(size) or each.result() for size, each in pairs]
    smallest = next((result.best for result in results if result.best is not None), None)
    rates = [None if result.best is None else result.best.tokens_per_second for result in results]
    gains = efficiencies([*zip(ordered, rates, strict=True)])
    variants = [
        RlVariant(label=f"{size:,}", result=result, against=smallest, marginal=marginal)
        for size, result, (_, marginal) in zip(ordered, results, gains, strict=True)
    ]
    return RlSizes(variants=tuple(variants), least_gain=least_gain)


def after_changes(
    question: RlQuestion,
    changes: Sequence[tuple[str, Any]],
    *,
    known: RlResult | None = None,
    progress: Progress | None = None,
) -> RlChanges:
    """The step as it was, and after each change. Raises InputError. ``known``: the step as it was."""
    if not changes:
        raise InputError("no change is given", rule="at least one change is given", hint="add --change samples=16")
    asked = [question]
    for name, value in changes:
        asked.append(asked[-1].changed(name, value))
        asked[-1].posed()  # so that a wrong one is refused before the search
    labels = ["as it was", *(f"{name}={getattr(value, 'name', value)}" for name, value in changes)]
    variants: list[RlVariant] = []
    for label, each in _counted([*zip(labels, asked, strict=True)], progress):
        result = known if known is not None and not variants else each.result()
        variants.append(RlVariant(label=label, result=result, against=variants[0].best if variants else result.best))
    return RlChanges(variants=tuple(variants))


def run_within(
    question: RlQuestion,
    limits: RlLimits,
    sizes: Sequence[int] = (),
    *,
    known: Mapping[int, RlResult] | None = None,
    progress: Progress | None = None,
) -> RlBudget:
    """The run on the fewest accelerators that are done in time, or the one that is done soonest for the money.

    ``sizes``: those that are looked at; without them, whole nodes up to ``MOST_TIMES`` the size that was asked, and
    pools that were given as they are. Raises InputError.
    """
    results: dict[int, RlResult] = {**(known or {})}
    without: list[int] = []
    task = question.posed().task

    def run(size: int) -> RlRun | None:
        if progress is not None:
            progress(len(results), len(results) + 2)
        if size not in results:
            results[size] = (question if size == own else question.on(size)).result()
        result = results[size]
        if result.best is None:
            without.append(size)
            return None
        variant = RlVariant(label=f"{size:,}", result=result)
        return RlRun(variant=variant, plan=result.best, steps=limits.steps or 0)

    own = task.question.num_accelerators
    if not sizes and (task.num_rollout is not None or (limits.days is None and limits.money is None)):
        sizes = (own,)
    if sizes:
        looked = [found for size in checked_sizes(sizes) if (found := run(size)) is not None]
        good = [each for each in looked if limits.affords(each)]
        best = min(
            good, key=lambda each: each.wall_time if limits.days is None else each.num_accelerators, default=None
        )
    else:
        cluster = task.question.cluster
        most = min(own * MOST_TIMES, cluster.max_num_accelerators or own * MOST_TIMES)
        every = sizes_of(cluster.accelerators_per_node, most, PER_DOUBLING)
        if limits.days is not None:
            best, looked = fewest(every, run, limits.days * DAY)
            best = best if best is None or limits.affords(best) else None
        else:
            best, looked = soonest(every, run, limits.affords)
    ordered = tuple(sorted(looked, key=lambda each: each.num_accelerators))
    return RlBudget(limits=limits, runs=ordered, best=best, without_plan=tuple(without))


def elasticities(
    question: RlQuestion, asked: AskedRl | None = None, *, factor: float = FACTOR, progress: Progress | None = None
) -> RlElasticities:
    r"""How the step follows hardware and answers, the most important first.

    .. math:: \varepsilon_x = \frac{\ln T(f x) - \ln T(x / f)}{2 \ln f}
    """
    found = []
    for name, change in _counted([*_parameters(asked or question.posed())], progress):
        times = [_time(question.with_values(*change(by))) for by in (1 / factor, factor)]
        known = all(math.isfinite(time) for time in times)
        slope = math.log(times[1] / times[0]) / (2 * math.log(factor)) if known else None
        found.append(StepParameter(name=name, elasticity=slope))
    ordered = sorted(found, key=lambda each: -abs(math.inf if each.elasticity is None else each.elasticity))
    return RlElasticities(parameters=tuple(ordered), factor=factor)


def _counted(items: Sequence[Item], progress: Progress | None) -> Iterator[Item]:
    """The items, each told to ``progress`` when it begins."""
    for number, item in enumerate(items):
        if progress is not None:
            progress(number, len(items))
        yield item


Change = Callable[[float], tuple[dict[str, Any], dict[str, Any]]]
"""Overrides of the cluster and fields of the step that a factor gives."""


def _parameters(asked: AskedRl) -> Iterator[tuple[str, Change]]:
    cluster, answers = asked.task.question.cluster, asked.task.answers
    yield from _of_cluster(cluster)
    lengths = answers.lengths
    if not lengths.measured:

        def longer(factor: float) -> tuple[dict[str, Any], dict[str, Any]]:
            mean = min(round(lengths.mean * factor), lengths.cap)
            text = f"mean={mean},max={lengths.cap},spread={lengths.spread},endless={lengths.endless}"
            return {}, {"response_tokens": text}

        yield "mean length of answers", longer
    yield "prompts of a step", lambda factor: ({}, {"prompts": max(round(answers.prompts * factor), 1), "updates": 1})


def _of_cluster(cluster: Cluster) -> Iterator[tuple[str, Change]]:
    part, tiers = cluster.accelerator, cluster.tiers
    values = {
        "memory_bandwidth": part.memory_bandwidth,
        "intra_node_bandwidth": tiers[0].bandwidth,
        "inter_node_bandwidth": tiers[1].bandwidth if len(tiers) > 1 else None,
        "memory": part.memory_bytes,
    }
    for name, value in values.items():
        if value is not None:
            yield name.replace("_", " "), _scaled(name, value)
    peaks = dict(part.peak_flops)
    yield "peak rate", lambda factor: ({"peak_flops": {key: each * factor for key, each in peaks.items()}}, {})


def _scaled(name: str, value: float) -> Change:
    return lambda factor: ({name: value * factor}, {})


def _time(question: RlQuestion) -> float:
    """Step time; infinite where nothing fits. [s]"""
    best = question.result().best
    return math.inf if best is None else best.step_time
