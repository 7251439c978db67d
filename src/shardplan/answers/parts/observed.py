"""A measurement held against the prediction of a plan, as a section of its answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shardplan.answers.document import Block, Bullets, Line, Part
from shardplan.base.records import plain
from shardplan.base.units import format_bytes, format_time

if TYPE_CHECKING:
    from shardplan.launch.audit.observed import GapCause, GapExplanation


def observed_part(each: GapExplanation) -> Part:
    """A measurement, and what explains it, best first."""
    blocks: list[Block] = []
    if each.ratio is not None:
        place = "within" if each.is_in_band else "outside"
        blocks.append(Line(f"{each.ratio:.2f} times the predicted step time, {place} its band."))
    if not each.causes:
        blocks.append(Line("No known cause is needed, or none bridges the gap."))
    else:
        blocks.append(Bullets([f"{cause.cause}: {_share(cause)}. Check: {cause.check}." for cause in each.causes]))
    return Part("Observed", blocks, f"{each.observed.text}: {each.meaning}")


def _share(cause: GapCause) -> str:
    """How much of the gap a cause explains, and what the plan would take with it."""
    if not cause.bridges:
        return "nearby"
    if cause.change and cause.step_time is not None and cause.bridges > 1:
        return f"would be more than the gap, {format_time(cause.step_time)} a step; explains it in part"
    if cause.bridges > 1:
        held = "" if cause.peak_memory_bytes is None else f", {format_bytes(cause.peak_memory_bytes)}"
        return f"would be more than the gap{held}; explains it in part"
    return f"explains {100 * cause.explains:.0f} % of the gap"


def observed_records(observed: Sequence[GapExplanation]) -> dict[str, Any]:
    """All measurements; nothing where there are none."""
    return {"observed": [observed_record(each) for each in observed]} if observed else {}


def observed_record(each: GapExplanation) -> dict[str, Any]:
    """The measurement with its causes; docs/output.md has every key."""
    return {
        "text": each.observed.text,
        "kind": each.observed.kind,
        **{key: value for key, value in plain(each).items() if key not in ("observed", "causes")},
        "causes": [{**plain(cause), "explains": cause.explains} for cause in each.causes],
    }
