"""What is shown of a step besides its timeline: the operators of a layer, and the plan under other schedules."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from shardplan.answers.document import AnswerDocument, Bullets, Column, Line, Part, RowTable
from shardplan.base.records import plain
from shardplan.base.units import format_bytes, format_rate, format_time
from shardplan.estimation.parts.layer_operators import LayerOperator, LayerRoofline, RooflinePoint
from shardplan.reports.texts.answer import longer_or_shorter, percent, signed_percent
from shardplan.simulation.schedules import ComparedSchedules, UnderSchedule


def _name(each: LayerOperator | RooflinePoint) -> str:
    return each.name.replace("_", " ")


def _intensity(value: float) -> str:
    return f"{value:,.3g}" if value < 10 else f"{value:,.0f}"


OPERATORS: Final = (
    Column("", "operator", _name, is_text=True),
    Column("", "pass", attrgetter("direction"), is_text=True),
    Column("", "alone", attrgetter("time"), format_time),
    Column("", "adds", attrgetter("exposed_time"), format_time),
    Column("", "limited by", attrgetter("bound"), is_text=True),
)


def operators_table(layer: Sequence[LayerOperator]) -> RowTable:
    """What every operator of a layer adds to the pass of a micro-batch."""
    return RowTable(layer, OPERATORS)


def roofline_table(roofline: LayerRoofline) -> RowTable:
    """What every operator reaches of the peak and of the bandwidth of the data sheet."""
    columns = (
        Column("", "operator", _name, is_text=True),
        Column("", "kind", attrgetter("kind"), is_text=True),
        Column("", "FLOP/byte", attrgetter("intensity"), _intensity),
        Column("", "FLOP/s", attrgetter("rate"), lambda rate: format_rate(rate, "FLOP")),
        Column("", "of peak", lambda each: each.rate / roofline.peak, percent),
        Column("", "bytes/s", attrgetter("bandwidth"), format_rate),
        Column("", "of bandwidth", lambda each: each.bandwidth / roofline.memory_bandwidth, percent),
    )
    return RowTable(roofline.points, columns)


def _fit(each: UnderSchedule) -> str:
    """Whether it fits, and how much is missing."""
    missing = each.peak_memory_bytes - each.usable_memory_bytes
    return f"no, by {format_bytes(missing)}" if missing > 0 else "yes"


def _fits(each: UnderSchedule) -> dict[str, bool]:
    return {"fits": each.peak_memory_bytes <= each.usable_memory_bytes}


NOTE: Final = "simulated; * this plan's; in flight: passes whose activations a stage keeps"


def schedules_document(found: ComparedSchedules) -> AnswerDocument:
    """The plan under every schedule that can run it, the fastest first."""
    rows = found.rows
    fastest = rows[0].simulated.step_time if rows else 0.0
    columns = (
        Column("is_own", "", attrgetter("is_own"), lambda is_own: "*" if is_own else "", is_text=True),
        Column("schedule", "schedule", attrgetter("simulated.schedule.name"), is_text=True),
        Column("step_time_s", "step", attrgetter("simulated.step_time"), format_time),
        Column("", "against", lambda each: each.simulated.step_time / fastest - 1, signed_percent, rank=1),
        Column("bubble_rate", "bubble", attrgetter("simulated.bubble_rate"), percent),
        Column("vp", "vp", attrgetter("simulated.plan.vp")),
        Column("most_in_flight", "in flight", attrgetter("most_in_flight"), rank=2),
        Column("peak_memory_bytes", "peak memory", attrgetter("peak_memory_bytes"), format_bytes),
        Column("fits", "fits", text=_fit, is_text=True, record=_fits),
    )
    table = RowTable(rows, columns, lambda each: "strong" if each.is_own else "")
    refused = [f"{name}: {why}" for name, why in found.refused]
    return AnswerDocument(
        name="schedules",
        verdict=[_verdict(found)],
        parts=[
            *([Part("Schedules side by side", [table], NOTE)] if rows else []),
            *([Part("Schedules that cannot run it", [Bullets(refused, "quiet")])] if refused else []),
        ],
        table=table,
        record=lambda: {"plan": plain(found.plan), "schedules": table, "refused": dict(found.refused)},
        is_yes=bool(rows) or found.plan.pp == 1,
    )


def _verdict(found: ComparedSchedules) -> Line:
    """The fastest schedule, and what the plan's own takes."""
    if found.plan.pp == 1:
        return Line("The plan has one pipeline stage, so there is nothing to schedule.")
    if not found.rows:
        return Line("No schedule can run this plan.", tone="bad")
    best = next((each for each in found.rows if _fits(each)["fits"]), None)
    taken = (best or found.rows[0]).simulated
    what = "the fastest; none fits" if best is None else "the fastest that fits"
    own = next((each.simulated.step_time for each in found.rows if each.is_own), taken.step_time)
    than = "" if own == taken.step_time else f", {longer_or_shorter(own, taken.step_time)} than the plan's own"
    return Line(f"{taken.schedule.title} is {what}: {format_time(taken.step_time)} a step{than}")
