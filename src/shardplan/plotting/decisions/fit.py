"""The least memory of all plans over what is sought, and the memory that there is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from shardplan.plotting.chart import PALETTE, Axis, Chart, Panel, Series

TITLES: Final = {
    "sequence_length": "sequence length [tokens]",
    "micro_batch_size": "micro-batch size [sequences]",
    "layers": "layers",
    "gpus": "accelerators",
}


def fit_chart(record: Mapping[str, Any]) -> Chart:
    """The chart of a record of ``fit``."""
    tried = [each for each in record["tried"] if each["least_memory_bytes"] is not None]
    x = [each["value"] for each in tried]
    usable = record["usable_memory_bytes"] / 1e9
    kinds = (("fits", True, PALETTE[2], "circle"), ("does not fit", False, PALETTE[3], "square"))
    points = tuple(
        Series(
            name=name,
            x=[each["value"] for each in tried if each["fits"] == fits],
            y=[each["least_memory_bytes"] / 1e9 for each in tried if each["fits"] == fits],
            kind="points",
            colour=colour,
            marker=marker,  # type: ignore[arg-type]  # one of the markers
        )
        for name, fits, colour, marker in kinds
    )
    limit = Series(name="usable memory", x=[min(x), max(x)] if x else [], y=[usable] * 2 if x else [], is_dashed=True)
    panel = Panel(
        title="least memory of all plans",
        x=Axis(title=TITLES[record["sought"]], scale="log2"),
        y=Axis(title="peak memory of the fullest accelerator [GB]", scale="log2"),
        series=tuple(each for each in (*points, limit) if each.x),
    )
    what = f"{'largest' if record['is_largest'] else 'smallest'} {record['sought'].replace('_', ' ')} that fits"
    value = "none" if record["value"] is None else f"{record['value']:,}"
    return Chart(
        name="fit",
        title=f"{record['model']} on {record['cluster']}: {what}: {value}",
        panels=(panel,),
        num_columns=1,
        note="Each point is the plan that needs least memory of all valid plans at that value. Predicted by shardplan.",
        panel_size=(760, 420),
    )
