"""A simulated step as texts and figures."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, Final

from shardplan.errors import ShardplanError
from shardplan.estimation.estimate import Estimate, estimate_plan
from shardplan.fields import dataclass
from shardplan.inputs.plan import Plan
from shardplan.planner.stopping import SearchStopped, Stop, check
from shardplan.reports.texts.answer import percent
from shardplan.reports.texts.plan import plan_words
from shardplan.schedules.registry import list_all_schedules, load_any_schedule
from shardplan.simulation.plan import SimulatedPlan, simulate_plan
from shardplan.simulation.show import timeline_of
from shardplan.simulation.timeline import StepTimeline
from shardplan.units import format_bytes, format_rate, format_time
from shardplan.web.figures.estimates import estimate_texts
from shardplan.web.figures.step import memory_figure, operators_figure, roofline_figure, traffic_figure
from shardplan.web.planning.answered import PageAnswer


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """A plan, simulated, with its estimate."""

    simulated: SimulatedPlan
    estimate: Estimate

    @cached_property
    def timeline(self) -> StepTimeline:
        """From event to event."""
        return timeline_of(self.simulated)


def simulated_plan(found: PageAnswer, plan: Plan, schedule: str, stop: Stop) -> Simulated:
    """The step of a plan, under another schedule if one is named. Raises InputError."""
    question = found.put.question
    named = load_any_schedule((schedule or plan.effective_schedule).strip().lower())
    made = simulate_plan(question, plan, named, between=lambda: check(stop))
    return Simulated(simulated=made, estimate=estimate_plan(question, made.plan))


def step_texts(shown: Simulated, found: PageAnswer) -> dict[str, Any]:
    """What the template shows."""
    step, timeline, estimate = shown.simulated, shown.timeline, shown.estimate
    closed = step.closed_form_time
    roofline = step.priced.roofline
    return {
        "plan": ", ".join(plan_words(estimate)),
        "schedule": step.schedule.title,
        "step": format_time(step.step_time),
        "bubble": percent(step.step.bubble_rate),
        "closed": "" if closed is None else f"{format_time(closed)} ({100 * (closed / step.step_time - 1):+.1f} %)",
        "estimate": estimate_texts(estimate),
        "num_events": f"{len(timeline.events):,}",
        "memory_figure": memory_figure(timeline, estimate.usable_memory_bytes),
        "peaks": [
            (name, format_bytes(trace.peak_bytes), format_time(trace.peak_time), format_bytes(trace.baseline_bytes))
            for name, trace in zip(timeline.rank_names, timeline.memory, strict=True)
        ],
        "operators_figure": operators_figure(timeline.drawn_layer),
        "operators": [
            (_words(each.name), each.direction, format_time(each.time), format_time(each.exposed_time), each.bound)
            for each in timeline.drawn_layer
        ],
        "roofline_figure": roofline_figure(roofline),
        "roofline": [
            (
                _words(each.name),
                each.kind,
                f"{each.intensity:,.3g}" if each.intensity < 10 else f"{each.intensity:,.0f}",
                format_rate(each.rate, "FLOP"),
                percent(each.rate / roofline.peak),
                format_rate(each.bandwidth),
                percent(each.bandwidth / roofline.memory_bandwidth),
            )
            for each in roofline.points
        ],
        "traffic_figure": traffic_figure(estimate.communication),
        "traffic": _traffic(estimate),
        "tiers": [tier.name for tier in found.put.question.cluster.tiers],
    }


def _words(name: str) -> str:
    return name.replace("_", " ")


def _traffic(estimate: Estimate) -> list[tuple[str, list[str]]]:
    return [(name, [format_bytes(each) for each in tiers.values()]) for name, tiers in estimate.communication.items()]


VIRTUAL: Final = (None, 2, 1)
"""Virtual stages that a schedule is tried with: those of the plan, two, one."""


def schedule_rows(found: PageAnswer, plan: Plan, stop: Stop) -> dict[str, Any]:
    """The plan under every schedule that can run it, with as many virtual stages as that one takes."""
    rows, refused = [], []
    for name in list_all_schedules() if plan.pp > 1 else ():
        made, why = _under(found, plan, name, stop)
        if made is None:
            refused.append((name, why))
        else:
            rows.append(_row(made, name, plan))
    rows.sort(key=lambda each: each["time"])
    fastest = rows[0]["time"] if rows else 0.0
    for row in rows:
        row["more"] = "" if row["time"] == fastest else f"+{100 * (row['time'] / fastest - 1):.1f} %"
        row["share"] = row["time"] / max(each["time"] for each in rows)
    return {"rows": rows, "refused": refused, "pp": plan.pp}


def _under(found: PageAnswer, plan: Plan, name: str, stop: Stop) -> tuple[Simulated | None, str]:
    """The plan under a schedule, or why there is none."""
    why = ""
    for vp in dict.fromkeys(plan.vp if each is None else each for each in VIRTUAL):
        layers = plan.stage_layers if vp == plan.vp else None
        try:
            return simulated_plan(found, replace(plan, vp=vp, stage_layers=layers, schedule=None), name, stop), ""
        except SearchStopped:
            raise
        except ShardplanError as error:
            why = why or error.message
    return None, why


def _row(made: Simulated, name: str, plan: Plan) -> dict[str, Any]:
    step, peak = made.simulated, max(trace.peak_bytes for trace in made.timeline.memory)
    usable = made.estimate.usable_memory_bytes
    return {
        "name": name,
        "title": step.schedule.title,
        "is_own": name == plan.effective_schedule,
        "vp": step.plan.vp,
        "time": step.step_time,
        "step": format_time(step.step_time),
        "bubble": percent(step.step.bubble_rate),
        "flight": max(rank.peak_in_flight for rank in step.step.ranks),
        "memory": format_bytes(peak),
        "fits": "yes" if peak <= usable else f"no, by {format_bytes(peak - usable)}",
    }
