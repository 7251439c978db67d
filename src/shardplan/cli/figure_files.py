"""Figures as files of a folder: a page (HTML), a picture (PNG) and a table (CSV) of each."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardplan.cli.json_target import JsonTarget
from shardplan.errors import InputError

if TYPE_CHECKING:
    from shardplan.plotting.chart import Chart


class FigureFiles:
    """The folder that ``--out`` names."""

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        """Finds out early whether figures of these names can be drawn and written. Raises InputError."""
        from shardplan.plotting.libraries import matplotlib_parts, plotly_parts

        plotly_parts()
        matplotlib_parts()
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            raise InputError(
                f"cannot write into {str(folder)[:200]!r}: {getattr(error, 'strerror', None) or error}",
                rule="--out is a folder that can be written",
                hint="give --out another folder",
            ) from None
        for name in names:
            self._file(f"{name}.html").check()

    def write(self, chart: Chart, rows: Sequence[Mapping[str, Any]]) -> str:
        """Draws and writes a figure; returns what was written as text. Raises InputError."""
        from shardplan.plotting.page import html_page
        from shardplan.plotting.picture import png_picture

        self._file(f"{chart.name}.html").write_text(html_page(chart))
        self._file(f"{chart.name}.csv").write_text(_table(rows))
        self._file(f"{chart.name}.png").write_bytes(png_picture(chart))
        return f"{self.folder / chart.name}: .html, .csv, .png"

    def _file(self, name: str) -> JsonTarget:
        return JsonTarget(str(self.folder / name), "--out")


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Records as CSV."""
    written = io.StringIO()
    table = csv.DictWriter(written, list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return written.getvalue()
