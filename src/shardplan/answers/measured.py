"""The answer of ``timeline --measured``: how far a prediction is from a measured step, by rank or by term."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from shardplan.answers.document import AnswerDocument, Block, Bullets, Column, Line, Part, RowTable
from shardplan.answers.timeline import LEAST_SHARE, MOST_RANKS, more_stages, written_lines
from shardplan.base.records import plain
from shardplan.base.units import format_bytes, format_time
from shardplan.estimation.parts.terms import term_label
from shardplan.reports.texts.answer import more_or_less, percent, signed_percent, signed_time
from shardplan.simulation.measured.answer import SPLIT_AS_PREDICTED, MeasuredAnswer
from shardplan.simulation.measured.comparison import SUM, PassComparison, PassName, TermComparison
from shardplan.simulation.measured.passes import IDLE, OFFLOAD, MeasuredStep
from shardplan.simulation.measured.profile import ProfiledStep

MOST_COLLECTIVES: Final = 4
LABELS: Final = {
    SUM: "all computation",
    IDLE: "idle: host, bubble and the like",
    OFFLOAD: "copies to and from the host",
}


def measured_document(
    answer: MeasuredAnswer, written: Sequence[str] = (), *, splits_gradients: bool = False
) -> AnswerDocument:
    """The whole answer. ``splits_gradients``: whether written times of gradients are split as predicted."""
    measurement = answer.measurement
    steps = "" if measurement.num_steps == 1 else f"; {measurement.num_steps} steps, of which --step chooses one"
    blocks: list[Block] = [Line(f"Measured step {measurement.step} ({measurement.source}{steps})", tone="good")]
    parts: list[Part] = []
    notes = [*answer.notes, *([SPLIT_AS_PREDICTED] if splits_gradients else [])]
    if answer.passes is not None:
        blocks += [Line(text, indent=2) for text in _differences(answer.passes)]
        parts += _compared_parts(answer.passes)
    elif measurement.passes is not None:
        time = format_time(measurement.passes.pipeline_time)
        blocks.append(Line(f"{time} from a stage's first pass to its last.", indent=2))
        parts.append(_measured_ranks(measurement.passes))
    if answer.profile is not None:
        # behind passes, too, the time of the profile comes before its terms
        lines = [Line(text, indent=2) for text in _profile_times(answer, answer.profile)]
        if parts:
            parts[-1] = parts[-1]._replace(blocks=[*parts[-1].blocks, *lines])
        else:
            blocks += lines
        parts.append(_terms(answer, answer.profile))
    parts += [Part("Notes", [Bullets(notes)])] if notes else []
    last = parts.pop()
    return AnswerDocument(
        name="measured-step",
        verdict=blocks,
        parts=[*parts, last._replace(blocks=[*last.blocks, *written_lines(written)])],
        record=lambda: _record(answer),
    )


def _measured_ranks(step: MeasuredStep) -> Part:
    """Of a step without a prediction."""
    memory, rates = step.memory_bytes, step.timeline.bubble_rates
    columns = [
        Column("", "stage"),
        Column("", "busy", lambda rank: step.busy_times[rank], format_time),
        Column("", "waits", lambda rank: rates[rank], percent),
    ]
    if memory is not None:
        columns.append(Column("", "peak memory", lambda rank: memory[rank], format_bytes))
    table = RowTable(range(min(step.num_ranks, MOST_RANKS)), columns)
    return Part("Stages", [table, *more_stages(step.num_ranks, MOST_RANKS)])


def _differences(compared: PassComparison) -> list[str]:
    """Times, the reason of their difference, and the order of the passes."""
    measured, predicted = compared.times
    name = compared.predicted.schedule.name
    if compared.first_other is None:
        order = f"Every stage ran its passes in the order of schedule {name}."
    else:
        first, planned = compared.first_other
        order = (
            f"The order is not that of schedule {name}: stage {first.rank} ran the {_pass(first)} "
            f"where the {_pass(planned)} was planned."
        )
    times = (
        f"{format_time(measured)} from a stage's first pass to its last; predicted {format_time(predicted)}, "
        f"{more_or_less(predicted / measured - 1)}."
    )
    reason = (
        f"Measured minus predicted is {signed_time(measured - predicted)}: {signed_time(compared.by_stage_times)} from "
        f"the times of the stages, {signed_time(compared.by_the_rest)} from slow passes and waiting."
    )
    return [times, reason, order]


def _compared_parts(compared: PassComparison) -> list[Part]:
    """Measured values of ranks, each with its distance from the prediction, and slow passes."""
    shown = compared.ranks[:MOST_RANKS]
    columns = [
        Column("", "stage", lambda rank: rank.rank),
        Column("", "forward", lambda rank: rank.forward, _against),
        Column("", "backward", lambda rank: rank.backward, _against),
        Column("", "waits", lambda rank: rank.bubble, lambda pair: f"{percent(pair[0])} ({percent(pair[1])})"),
    ]
    if any(rank.memory_bytes is not None for rank in shown):
        columns.append(
            Column(
                "",
                "peak memory",
                lambda rank: rank.memory_bytes,
                lambda pair: f"{format_bytes(pair[0])} ({_share(*pair)})",
                rank=1,
            )
        )
    table = RowTable(shown, columns)
    note = "measured, and how much more or less than predicted; passes of one micro-batch"
    slow = [
        f"{_pass(one.name)} on stage {one.name.rank}: {format_time(one.time)}, usually {format_time(one.usual_time)}"
        for one in compared.slow
    ]
    worst = Part("Slow passes", [Bullets(slow)], "those that lost most time against the median of their chunk")
    return [Part("Stages", [table, *more_stages(len(compared.ranks), MOST_RANKS)], note), *([worst] if slow else [])]


def _profile_times(answer: MeasuredAnswer, profile: ProfiledStep) -> list[str]:
    """The measured step next to the predicted one."""
    predicted, text = sum(answer.breakdown.values()), f"{format_time(profile.step_time)} a step"
    if answer.predicted is not None:
        text += f"; predicted {format_time(predicted)}, {more_or_less(predicted / profile.step_time - 1)}"
    end = "No step follows in the trace, so that it ends with its last kernel."
    return [f"{text}.", *([end] if profile.is_open else [])]


def _terms(answer: MeasuredAnswer, profile: ProfiledStep) -> Part:
    """Terms of the step on one rank, and its collectives."""
    least = LEAST_SHARE * profile.step_time
    rows = [row for row in answer.terms(profile) if max(row.measured or 0.0, row.predicted or 0.0) >= least]
    columns = [
        Column("", "term", lambda row: LABELS.get(row.name, term_label(row.name)), is_text=True),
        Column("", "measured", lambda row: _time(row.measured)),
    ]
    if answer.predicted is not None:
        columns += [
            Column("", "predicted", lambda row: _time(row.predicted)),
            Column("", "measured minus predicted", text=_difference),
        ]
    lines = ["Kernels do not show whether they run for recomputation: it is in the measured terms above."] * any(
        row.measured is None for row in rows
    )
    for one in profile.collectives[:MOST_COLLECTIVES]:
        where = "" if one.dimension == "communication" else f" ({term_label(one.dimension)})"
        lines.append(
            f"{one.count} {one.collective}{where}: {format_time(one.busy_time)}, "
            f"of which {format_time(one.exposed_time)} are exposed."
        )
    note = f"on {profile.label}; communication that no computation hides"
    table = RowTable(rows, columns, lambda row: "strong" if row.is_sum else "")
    return Part("Where the time goes", [table, *map(Line, lines)], note)


def _against(pair: tuple[float, float]) -> str:
    """A measured time with its distance from the prediction."""
    return f"{format_time(pair[0])} ({_share(*pair)})"


def _share(measured: float, predicted: float) -> str:
    return signed_percent(measured / predicted - 1, 0) if predicted else "not predicted"


def _time(time: float | None) -> str:
    return "" if time is None else format_time(time)


def _difference(row: TermComparison) -> str:
    return "" if row.measured is None or row.predicted is None else signed_time(row.measured - row.predicted)


def _pass(name: PassName) -> str:
    return f"{name.direction} pass of micro-batch {name.microbatch} in chunk {name.chunk}"


def _record(answer: MeasuredAnswer) -> dict[str, Any]:
    """``passes`` and ``profiles``: what the files have of them; ``predicted`` values are null without a plan."""
    measurement, passes = answer.measurement, answer.measurement.passes
    return {
        "source": measurement.source,
        "step": measurement.step,
        "num_steps": measurement.num_steps,
        "plan": None if answer.predicted is None else plain(answer.predicted.plan),
        "passes": None if passes is None else _passes_record(passes, answer.passes),
        "profiles": [_profile_record(answer, profile) for profile in measurement.profiles],
        "notes": [*answer.notes],
    }


def _passes_record(step: MeasuredStep, compared: PassComparison | None) -> dict[str, Any]:
    record: dict[str, Any] = {
        "pipeline_time_s": step.pipeline_time,
        "call_time_s": None if step.total_times is None else max(step.total_times),
        "ranks": [{"busy_s": busy} for busy in step.busy_times.tolist()],
        "bubble_rate": float(step.timeline.bubble_rates.min()),
    }
    if compared is None:
        return record
    other = compared.first_other
    return record | {
        "predicted_pipeline_time_s": compared.times[1],
        "with_measured_stage_times_s": compared.with_measured_times.step.step_time,
        "forward_ratio": compared.ratio("forward"),
        "backward_ratio": compared.ratio("backward"),
        "ranks": [
            {
                "forward_s": _pair(rank.forward),
                "backward_s": _pair(rank.backward),
                "busy_s": _pair(rank.busy),
                "bubble_rate": _pair(rank.bubble),
                "peak_memory_bytes": None if rank.memory_bytes is None else _pair(rank.memory_bytes),
            }
            for rank in compared.ranks
        ],
        "order_is_predicted": other is None,
        "first_other_pass": None if other is None else dict(zip(("measured", "predicted"), plain(other), strict=True)),
        "slow_passes": [{**plain(slow.name), **_without(slow, "name")} for slow in compared.slow],
    }


def _profile_record(answer: MeasuredAnswer, profile: ProfiledStep) -> dict[str, Any]:
    has_plan = answer.predicted is not None
    return {
        "rank": profile.rank,
        "step_time_s": profile.step_time,
        "predicted_step_time_s": sum(answer.breakdown.values()) if has_plan else None,
        "terms": [
            {
                "name": term.name,
                "measured_s": term.measured,
                "predicted_s": term.predicted if has_plan else None,
                "is_sum": term.is_sum,
            }
            for term in answer.terms(profile)
        ],
        "collectives": plain(profile.collectives),
    }


def _without(value: object, name: str) -> dict[str, Any]:
    """A record of all fields but one."""
    return {key: part for key, part in plain(value).items() if key != name}


def _pair(values: tuple[float, float]) -> dict[str, Any]:
    return {"measured": values[0], "predicted": values[1]}
