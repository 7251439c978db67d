"""The answer of ``validate`` for measured RL steps: errors by part and group, order, bands, rows without a price."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from shardplan.answers.document import AnswerDocument, Bullets, Column, Item, Line, Part, RowTable
from shardplan.answers.validation import MEANING, MOST_WORST, error_parts
from shardplan.base.units import format_time
from shardplan.calibrate.errors import Errors, grouped
from shardplan.reports.texts.answer import percent
from shardplan.rl.accuracy import Ordered, RlValidation, left_out
from shardplan.rl.measured import PARTS, Priced

PUBLISHED = "the published RL steps"
STEPS = (
    Column("id", "row", lambda each: each.step.id, is_text=True),
    Column("family", None, lambda each: each.step.family),
    Column("tier", None, lambda each: each.step.tier),
    Column("placement", "placement", lambda each: each.step.placement, is_text=True),
    Column("measured_s", "measured", lambda each: each.step.step_time_s, format_time),
    Column("predicted_s", "predicted", lambda each: each.plan.step_time, format_time),
    Column("ratio", "ratio", lambda each: math.exp(each.error), "{:.2f}".format),
    Column("", None, lambda each: each, record=lambda each: {"parts": _parts_of(each), "assumed": each.assumed}),
)


def rl_validation_document(found: RlValidation, by: str, *, named: str = PUBLISHED) -> AnswerDocument:
    """The whole answer. ``by``: one of the groups of errors; ``named``: what the steps are called."""
    left = left_out()
    total = len(found.priced) + len(found.unpriced)
    words = f"{total:,} rows of {named}: {len(found.priced):,} predicted, {len(found.unpriced):,} without a price"
    stated = f"{percent(left.all.median or 0.0)} median and {percent(left.all.p90 or 0.0)} at the 90th percentile"
    verdict = [
        Line(words, tone="strong"),
        MEANING,
        Line(f"Of {left.all.n} published steps, each by constants that never saw its family: {stated}."),
    ]
    return AnswerDocument(
        name="rl-validation",
        verdict=verdict,
        parts=_parts(found, by) if found.priced else _unpriced(found),
        record=lambda: {
            "parts": _plain(found.parts()),
            f"by_{by}": _plain(found.step_by(by)),
            "by_tier": _plain(found.step_by("tier")),
            "pairs_in_order": _order(found.order),
            "coverage": None if found.coverage is None else asdict(found.coverage),
            "left_out": {
                "all": asdict(left.all),
                "by_family": _plain(left.by_family),
                "pairs_in_order": _order(left.order),
            },
            "rows": RowTable(found.priced, STEPS),
            "without_price": [{"id": each.step.id, "reason": each.reason} for each in found.unpriced],
        },
        is_yes=bool(found.priced),
    )


def _parts_of(each: Priced) -> dict[str, dict[str, float | None]]:
    """Measured and predicted seconds of the parts that the row states."""
    return {
        part: {"measured_s": measured, "predicted_s": each.plan.cycle.time_of(*PARTS[part])}
        for part, measured in each.step.parts.items()
        if measured is not None
    }


def _parts(found: RlValidation, by: str) -> list[Part]:
    groups = [*found.step_by(by).items()]
    worst = sorted(found.priced, key=lambda each: -abs(each.error))[:MOST_WORST]
    notes = [f"{each.step.id}: {each.step.notes}" for each in worst if each.step.notes]
    order, inside = found.order, found.coverage
    texts = [] if order.share is None else [f"{percent(order.share)} of {order.pairs:,} pairs in order"]
    if inside is not None:
        texts.append(f"{percent(inside.share)} of {inside.n} measured times lie inside their band; it should be 80 %")
    return [
        *error_parts("Whole step and parts", [*found.parts().items()]),
        *error_parts(f"Step by {by}", groups),
        *(error_parts("Step by tier", [*found.step_by("tier").items()]) if by != "tier" else ()),
        Part("Order and bands", [Line("; ".join(texts) + ".")], "pairs of one family that differ by more than 5 %"),
        Part("Furthest off", [RowTable(worst, STEPS), Bullets(notes, "quiet", 2)]),
        *_unpriced(found),
    ]


def _unpriced(found: RlValidation) -> list[Part]:
    groups = grouped(found.unpriced, lambda each: each.reason)
    items = [Item(f"{len(rows):,}".rjust(4), f"{reason} ({rows[0].step.id})") for reason, rows in groups.items()]
    return [Part("Without a price", items, "rows by what they do not state")] if items else []


def _plain(rows: Mapping[str, Errors]) -> dict[str, dict[str, Any]]:
    return {name: asdict(errors) for name, errors in rows.items()}


def _order(order: Ordered) -> dict[str, Any]:
    return {"pairs": order.pairs, "in_order": order.share}
