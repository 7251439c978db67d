"""What the figures of arXiv 2410.00273 have in common: lines by system, titles, the source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from shardplan.plotting.chart import GREY, Axis, Marker, Series

Row = Mapping[str, Any]

SOURCE: Final = "Computed by shardplan with the model of S. Subramanian et al., arXiv 2410.00273."
STRATEGY_NAMES: Final = {"1d": "1D", "2d-seqp": "2D context parallel", "2d": "2D SUMMA"}
COLOURS: Final = {"A100": "#E69F00", "H200": "#0072B2", "B200": "#009E73"}
MARKERS: Final[dict[int, Marker]] = {4: "circle", 8: "square", 64: "triangle"}
SIZES: Final = Axis(title="accelerators", scale="log2")


def only(rows: Iterable[Row], **wanted: object) -> list[Row]:
    """Rows whose fields have these values."""
    return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]


def values_of(rows: Iterable[Row], name: str) -> list[Any]:
    """Different values of a field, in order of appearance."""
    return list(dict.fromkeys(row[name] for row in rows))


def label_of(row: Row) -> str:
    """A system and its scale-up domain."""
    return str(row["system"]) if row["nvs"] is None else f"{row['system']}, domain {row['nvs']}"


def titled(model: str, strategy: str) -> str:
    """Title of a panel."""
    return f"{model}, {STRATEGY_NAMES.get(strategy, strategy)}"


def system_lines(rows: Sequence[Row], quantity: str) -> Iterator[Series]:
    """One line for each system: colour by accelerator, marker by scale-up domain; guides dashed."""
    for name in dict.fromkeys(label_of(row) for row in rows):
        points = [row for row in rows if label_of(row) == name and row[quantity] is not None]
        if not points:
            continue
        first = points[0]
        is_guide = first["nvs"] is None
        yield Series(
            name=name,
            x=[row["num_gpus"] for row in points],
            y=[row[quantity] for row in points],
            colour=GREY if is_guide else COLOURS.get(first["system"], "#000000"),
            marker="none" if is_guide else MARKERS.get(first["nvs"], "circle"),
            is_dashed=is_guide,
        )
