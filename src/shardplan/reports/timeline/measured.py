"""A measured step as a record, next to the prediction of a plan."""

from __future__ import annotations

from typing import Any, Final

from shardplan.records import Record, plain
from shardplan.simulation.measured.answer import MeasuredAnswer
from shardplan.simulation.measured.comparison import PassComparison, PassName
from shardplan.simulation.measured.passes import MeasuredStep
from shardplan.simulation.measured.profile import ProfiledStep

SCHEMA: Final = "shardplan/measured-step/1"


def measured_record(answer: MeasuredAnswer) -> Record:
    """``passes`` and ``profiles``: what the files have of them; ``predicted`` values are null without a plan."""
    measurement = answer.measurement
    passes = measurement.passes
    return {
        "schema": SCHEMA,
        "source": measurement.source,
        "step": measurement.step,
        "num_steps": measurement.num_steps,
        "plan": None if answer.predicted is None else plain(answer.predicted.plan),
        "passes": None if passes is None else _passes(passes, answer.passes),
        "profiles": [_profile(answer, profile) for profile in measurement.profiles],
        "notes": [*answer.notes],
    }


def _passes(step: MeasuredStep, compared: PassComparison | None) -> Record:
    record: Record = {
        "pipeline_time_s": step.pipeline_time,
        "call_time_s": None if step.total_times is None else max(step.total_times),
        "ranks": [{"busy_s": busy} for busy in step.busy_times.tolist()],
        "bubble_rate": float(step.timeline.bubble_rates.max()),
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
        "first_other_pass": None if other is None else {"measured": _name(other[0]), "predicted": _name(other[1])},
        "slow_passes": [
            {**_name(slow.name), "start_s": slow.start, "time_s": slow.time, "usual_time_s": slow.usual_time}
            for slow in compared.slow
        ],
    }


def _profile(answer: MeasuredAnswer, profile: ProfiledStep) -> Record:
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
        "collectives": [
            {
                "dimension": one.dimension,
                "collective": one.collective,
                "count": one.count,
                "busy_s": one.busy_time,
                "exposed_s": one.exposed_time,
            }
            for one in profile.collectives
        ],
    }


def _pair(values: tuple[float, float]) -> Record:
    return {"measured": values[0], "predicted": values[1]}


def _name(name: PassName) -> dict[str, Any]:
    return {"rank": name.rank, "chunk": name.chunk, "microbatch": name.microbatch, "direction": name.direction}
