"""The waterfall of a what-if: from the step before, term by term, to the step after; and the step after each change."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Any, Final

from shardplan.plotting.chart import GREY, PALETTE, Axis, Chart, Panel, Series

SMALLEST: Final = 0.002
"""Terms that change by less than this share of the step are drawn as one."""
SECONDS: Final = Axis(title="step time [s]")
NAMES: Final = Axis(title="", scale="names")


def whatif_chart(record: Mapping[str, Any]) -> Chart:
    """The chart of a record of ``whatif``."""
    changes = [step["change"] for step in record["steps"][1:]]
    return Chart(
        name="whatif",
        title=f"{record['model']} on {record['cluster']}: {'; '.join(changes)}",
        panels=(_waterfall(record), _steps(record)),
        num_columns=2,
        note="Left: the step of the plan to take before, its terms that change, and the step after all changes. "
        "Right: the step after each change, with the plan of before as it stands and with the plan to take. "
        "Predicted by shardplan.",
        panel_size=(560, 420),
    )


def _waterfall(record: Mapping[str, Any]) -> Panel:
    title = "before and after, term by term"
    if not record["terms"]:
        return Panel(title=title, x=NAMES, y=SECONDS, is_horizontal=True)
    first, last = record["steps"][0]["step_time_s"], record["steps"][-1]["step_time_s"]
    shown = [each for each in record["terms"] if abs(each["change_s"]) >= SMALLEST * first]
    parts = [(each["label"], each["change_s"]) for each in shown]
    rest = last - first - sum(change for _, change in parts)
    parts += [("other terms", rest)] if abs(rest) >= SMALLEST * first else []
    starts = list(accumulate((change for _, change in parts), initial=first))
    ends = Series(
        name="step", x=["before", "after"], y=[first, last], kind="bars", colour=GREY, starts=[0.0, 0.0]
    )  # fmt: skip
    moved = [(name, start, change) for (name, change), start in zip(parts, starts, strict=False)]
    bars = [
        Series(
            name=name,
            x=[label for label, _, change in moved if (change > 0) == longer],
            y=[change for _, _, change in moved if (change > 0) == longer],
            starts=[start for _, start, change in moved if (change > 0) == longer],
            kind="bars",
            colour=colour,
        )
        for name, longer, colour in (("takes longer", True, PALETTE[3]), ("takes less", False, PALETTE[2]))
    ]
    order = Series(name="", x=["before", *(label for label, _ in parts), "after"], y=[0.0] * (len(parts) + 2),
                   starts=[0.0] * (len(parts) + 2), kind="bars", colour=GREY)  # fmt: skip
    return Panel(
        title=title, x=NAMES, y=SECONDS, series=(order, ends, *(each for each in bars if each.x)), is_horizontal=True
    )


def _steps(record: Mapping[str, Any]) -> Panel:
    """The step after each change, with either plan."""
    steps = record["steps"]
    names = [step["change"] or "before" for step in steps]
    kinds = (("same plan", "same_plan_step_time_s", PALETTE[5]), ("plan to take", "step_time_s", PALETTE[0]))
    series = tuple(
        Series(name=title, x=names, y=[_height(step, key) for step in steps], kind="bars", colour=colour)
        for title, key, colour in kinds
    )
    return Panel(title="after each change", x=NAMES, y=SECONDS, series=series)


def _height(step: Mapping[str, Any], key: str) -> float:
    """The step time; none is drawn where the plan does not fit."""
    is_too_big = key.startswith("same") and not step["same_plan_fits"]
    return 0.0 if is_too_big or step[key] is None else float(step[key])
