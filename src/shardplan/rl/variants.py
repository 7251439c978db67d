"""The same RL step on other sizes, after changes, and with better or worse hardware: each is planned again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from shardplan.ask.forms import Replaced
from shardplan.ask.rl_forms import RlForm
from shardplan.base.errors import InputError, UnknownNameError
from shardplan.base.fields import dataclass, described
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.job import Job
from shardplan.inputs.readers.typed import values_of
from shardplan.rl.asked import AskedRl, ask_rl
from shardplan.rl.search import RlPlan, RlResult, search_rl

Record = Mapping[str, Any]
Progress = Callable[[int, int], None]
Ask = Callable[..., AskedRl]
"""How a question is put: :func:`ask_rl`, which a server lets read no files and stop."""
FACTOR: Final = 1.25
"""Parameters are divided and multiplied by this."""
OF_RECORD: Final = ("gpus", "cluster", "accelerator", "stack", "profile")
DERIVED: Final = ("sequence_length", "global_batch_size")


class RlVariant(NamedTuple):
    """An RL step that differs from the one that was asked in one respect."""

    label: str
    result: RlResult
    against: RlPlan | None = None
    """What it is compared with."""

    @property
    def best(self) -> RlPlan | None:
        """Its fastest plan."""
        return self.result.best

    @property
    def change(self) -> float | None:
        """Relative change of the step time against the plan that was asked for."""
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


class RlRun(NamedTuple):
    """A number of RL steps, and the days in which they are to be done."""

    steps: int
    days: float | None = None

    def duration(self, plan: RlPlan) -> float:
        """Seconds of all steps."""
        return self.steps * plan.step_time

    def money(self, result: RlResult, plan: RlPlan) -> float | None:
        """Price of both pools for that time; None where one is not known. [USD]"""
        train, generate = result.task.question.cluster.accelerator_price, result.task.generating.accelerator_price
        if train is None or generate is None:
            return None
        apart = 0 if plan.cycle.shares_pool else plan.num_rollout
        hourly = plan.num_train * train + apart * generate
        return hourly * self.duration(plan) / 3600


def run_of(steps: int | None, days: float | None) -> RlRun | None:
    """The run that is asked for. Raises InputError where days are given and no steps."""
    if steps is None and days is not None:
        raise InputError(
            f"--days is {days:g} and --steps is not given",
            rule="a run has a number of steps",
            hint="add --steps 1000",
        )
    return None if steps is None else RlRun(steps, days)


@dataclass(frozen=True, kw_only=True)
class StepParameter:
    """Something of the hardware or the answers that can be larger or smaller, and what that does to the step."""

    name: str
    elasticity: float | None
    """Share by which the step gets longer for a share of the parameter; None where nothing fits at one end."""


def sizes(
    record: Record, rl: Record, counts: Sequence[int], progress: Progress | None = None, *, ask: Ask = ask_rl
) -> tuple[RlVariant, ...]:
    """The step on each number of accelerators, compared with the smallest that has a plan. Raises InputError."""
    found: list[RlVariant] = []
    smallest: RlPlan | None = None
    for number, count in enumerate(counts):
        if progress is not None:
            progress(number, len(counts))
        asked = ask({**record, "num_accelerators": count}, rl)
        result = search_rl(asked.task, asked.searches)
        smallest = smallest or result.best
        found.append(RlVariant(f"{count:,}", result, smallest))
    return tuple(found)


def changed(
    record: Record,
    rl: Record,
    changes: Sequence[tuple[str, str]],
    base: RlPlan | None,
    progress: Progress | None = None,
    *,
    ask: Ask = ask_rl,
) -> tuple[RlVariant, ...]:
    """The step after each change alone, in the order given. Raises InputError."""
    found = []
    for number, (name, text) in enumerate(changes):
        if progress is not None:
            progress(number, len(changes))
        asked = ask(*with_change(record, rl, name, text))
        found.append(RlVariant(f"{name}={text}", search_rl(asked.task, asked.searches), base))
    return tuple(found)


def with_change(record: Record, rl: Record, name: str, text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is asked with another value of a field, read as its flag reads it. Raises InputError."""
    field = name.strip("-").replace("-", "_")
    if field in described(RlForm) and field not in ("observed", "change"):
        return {**record}, {**rl, field: values_of(RlForm, {field: text})[field]}
    if field in OF_RECORD:
        return {**record, "num_accelerators" if field == "gpus" else field: text}, {**rl}
    if field in described(Replaced):
        return {**record, "overrides": {**record.get("overrides", {}), field: text}}, {**rl}
    if field in described(Job) and field not in DERIVED:
        return {**record, **values_of(Job, {field: text})}, {**rl}
    known = (*described(RlForm), *OF_RECORD, *described(Replaced))
    raise UnknownNameError("change", name[:60], known, hint="write --change samples=16 or --change memory=141GB")


def sensitivities(
    record: Record, rl: Record, asked: AskedRl, progress: Progress | None = None, *, ask: Ask = ask_rl
) -> tuple[StepParameter, ...]:
    r"""How the step follows hardware and answers, the most important first.

    .. math:: \varepsilon_x = \frac{\ln T(f x) - \ln T(x / f)}{2 \ln f}
    """
    parameters = list(_parameters(asked))
    found = []
    for number, (name, change) in enumerate(parameters):
        if progress is not None:
            progress(number, len(parameters))
        times = [_time(record, rl, change(factor), ask) for factor in (1 / FACTOR, FACTOR)]
        known = all(math.isfinite(time) for time in times)
        slope = math.log(times[1] / times[0]) / (2 * math.log(FACTOR)) if known else None
        found.append(StepParameter(name=name, elasticity=slope))
    return tuple(sorted(found, key=lambda each: -abs(each.elasticity or math.inf)))


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


def _time(record: Record, rl: Record, change: tuple[dict[str, Any], dict[str, Any]], ask: Ask) -> float:
    """Step time with overrides of the cluster and fields of the step; infinite where nothing fits. [s]"""
    overrides, fields = change
    asked = ask({**record, "overrides": {**record.get("overrides", {}), **overrides}}, {**rl, **fields})
    best = search_rl(asked.task, asked.searches).best
    return math.inf if best is None else best.step_time
