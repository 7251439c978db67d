"""Figures as files of a folder: a page (HTML), a picture (PNG) and a table (CSV) of each."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from shardplan.base.errors import InputError
from shardplan.base.outputs import CSV, HTML, PNG, JsonTarget, OwnFile

if TYPE_CHECKING:
    from shardplan.plotting.chart import Chart


KINDS: Final[Mapping[str, OwnFile]] = {".html": HTML, ".csv": CSV, ".png": PNG}
"""Files of a figure, by suffix."""
FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""Starts of a text that a spreadsheet takes for a formula."""


class Drawn(NamedTuple):
    """A figure that is drawn and not yet written."""

    name: str
    files: Mapping[str, bytes]
    """Contents by the name of the file."""


class FigureFiles:
    """The folder that ``--out`` names."""

    def __init__(self, folder: Path, names: Iterable[str], answer: JsonTarget) -> None:
        """Finds out early whether figures of these names can be drawn and written. Raises InputError.

        ``answer``: where the same command writes its JSON.
        """
        from shardplan.plotting.chart import matplotlib_parts, subplots_of_plotly

        subplots_of_plotly()
        matplotlib_parts()
        self.folder, self.answer = folder, answer
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            raise InputError(
                f"cannot write into {str(folder)[:200]!r}: {getattr(error, 'strerror', None) or error}",
                rule="--out is a folder that can be written",
                hint="give --out another folder",
            ) from None
        for name in names:
            for suffix, kind in KINDS.items():
                self._file(f"{name}{suffix}", kind).check(other=answer)

    def drawn(self, chart: Chart, rows: Sequence[Mapping[str, Any]]) -> Drawn:
        """A figure as the contents of its files; none of them is written. Raises InputError."""
        from shardplan.plotting.page import html_page
        from shardplan.plotting.picture import png_picture

        contents = (html_page(chart).encode(), table_text(rows).encode(), png_picture(chart))
        files = {f"{chart.name}{suffix}": content for suffix, content in zip(KINDS, contents, strict=True)}
        for name, content in files.items():
            self._file(name, KINDS[Path(name).suffix]).check_content(content)
        return Drawn(chart.name, files)

    def write(self, figures: Iterable[Drawn]) -> list[str]:
        """Writes figures; returns what was written, as text. Raises InputError."""
        written = []
        for figure in figures:
            for name, content in figure.files.items():
                self._file(name, KINDS[Path(name).suffix]).write_bytes(content)
            written.append(f"{self.folder / figure.name}: {', '.join(KINDS)}")
        return written

    def _file(self, name: str, kind: OwnFile) -> JsonTarget:
        return JsonTarget(str(self.folder / name), "--out", kind=kind, is_forced=self.answer.is_forced)


def table_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Records as CSV for a spreadsheet."""
    written = io.StringIO()
    table = csv.DictWriter(written, list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return written.getvalue()


def _cell(value: Any) -> Any:
    """A value as a cell; an apostrophe keeps a spreadsheet from running a text as a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value
