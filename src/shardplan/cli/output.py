"""Where the answer of a command goes: its text, its JSON, and the table, figures and traces that flags name."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from shardplan.base.errors import InputError, visible
from shardplan.base.fields import asked, dataclass, described
from shardplan.base.outputs import (
    CSV,
    HTML,
    PNG,
    SVG,
    TRACE,
    JsonTarget,
    OwnFile,
    check_one_on_stdout,
    check_together,
)
from shardplan.cli.flags import OutputFlags

if TYPE_CHECKING:
    from shardplan.answers.document import AnswerDocument
    from shardplan.plotting.chart import Chart


def show_document(
    document: AnswerDocument, target: JsonTarget, *, is_silent: bool = False, written: Sequence[str] = ()
) -> int:
    """Writes the record if asked for and prints the answer; returns the exit code. Raises InputError.

    ``is_silent``: whether another file of the command replaces the text; ``written``: names of its files.
    """
    if target.where is not None:
        from shardplan.render.record import document_record

        target.write(document_record(document))
    if not is_silent:
        print_document(document, target, written)
    return 0 if document.is_yes else 1


def print_document(document: AnswerDocument, target: JsonTarget, written: Sequence[str] = ()) -> None:
    """Prints the answer, unless its record replaces the text."""
    if target.is_stdout:
        return
    from shardplan.render.page import Page
    from shardplan.render.terminal import show

    show(Page(), document, written)


KINDS: Final[Mapping[str, OwnFile]] = {"csv": CSV, "html": HTML, "png": PNG, "svg": SVG, "out": TRACE}
"""Files by the name of their flag."""


@dataclass(frozen=True, kw_only=True)
class ChartFlags:
    """Files that show the answer."""

    PANEL = "Output"

    csv: str | None = asked("Write the answer as a table.", metavar="FILE")
    html: str | None = asked("Write the figure as a page that works offline.", metavar="FILE")
    png: str | None = asked("Write the figure as a picture (PNG).", metavar="FILE")
    svg: str | None = asked("Write the figure as a picture (SVG).", metavar="FILE")

    def files(self, output: OutputFlags, *reads: str | Path | None) -> ChartFiles:
        """Targets, after checking that all can be drawn and written and are none of ``reads``.

        Raises InputError.
        """
        files = ChartFiles(output, self)
        files.check(*reads)
        return files


class AnswerFiles:
    """The files of an answer: its JSON, and those that the fields of a form name."""

    def __init__(self, output: OutputFlags, form: object) -> None:
        """Every field of ``form`` is a file, with the name of a row of ``KINDS``."""
        names = described(type(form))
        self.answer = output.target()
        self.others = {name: output.target(getattr(form, name), f"--{name}", KINDS[name]) for name in names}

    @property
    def all(self) -> tuple[JsonTarget, ...]:
        """The JSON, then the others."""
        return self.answer, *self.others.values()

    @property
    def are_on_stdout(self) -> bool:
        """Whether one of them replaces the text."""
        return any(each.is_stdout for each in self.all)

    @property
    def written(self) -> list[str]:
        """Names of the files other than the JSON."""
        return [str(each.path) for each in self.others.values() if each.path is not None]

    def wants(self, *names: str) -> bool:
        """Whether any of the files is asked for."""
        return any(self.others[name].where is not None for name in names)

    def check(self, *reads: str | Path | None) -> None:
        """Checks early whether all files can be written and are distinct. Raises InputError."""
        check_one_on_stdout(self.all)
        check_together(self.all, reads)

    def write(self, name: str, content: Callable[[], str | bytes]) -> None:
        """Writes a file if it is asked for. Raises InputError."""
        if self.wants(name):
            made = content()
            if isinstance(made, str):
                self.others[name].write_text(made)
            else:
                self.others[name].write_bytes(made)


class ChartFiles(AnswerFiles):
    """The files of a decision: a table, and a figure as a page or a picture."""

    def check(self, *reads: str | Path | None) -> None:
        """Checks early whether all files can be drawn and written. Raises InputError."""
        check_one_on_stdout(self.all)
        if self.others["png"].is_stdout:
            raise InputError("--png is -", rule="--png is a file", hint="give --png a file")
        from shardplan.plotting.chart import matplotlib_parts, subplots_of_plotly

        if self.wants("html"):
            subplots_of_plotly()
        if self.wants("png", "svg"):
            matplotlib_parts()
        check_together(self.all, reads)

    def show(self, document: AnswerDocument) -> int:
        """Writes the files that are asked for and prints the answer; returns the exit code. Raises InputError."""
        from shardplan.render.record import frame_rows

        if document.table is not None:
            self.write("csv", lambda: table_text(frame_rows(document)))
        if document.chart is not None and self.wants("html", "png", "svg"):
            self._draw(document.chart())
        written = () if document.chart is None else self.written
        return show_document(document, self.answer, is_silent=self.are_on_stdout, written=written)

    def _draw(self, chart: Chart) -> None:
        from shardplan.plotting.page import html_page
        from shardplan.plotting.picture import png_picture, svg_picture

        self.write("html", lambda: html_page(chart))
        self.write("png", lambda: png_picture(chart))
        self.write("svg", lambda: svg_picture(chart))


FIGURES: Final[Mapping[str, OwnFile]] = {".html": HTML, ".csv": CSV, ".png": PNG}
"""Files of a figure in a folder, by suffix."""
FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""First characters of a text that a spreadsheet takes for a formula."""


class Drawn(NamedTuple):
    """A drawn figure that is not yet written."""

    name: str
    files: Mapping[str, bytes]
    """Contents by the name of the file."""


class FigureFiles:
    """The folder that ``--out`` names, with a page (HTML), a picture (PNG) and a table (CSV) of each figure."""

    def __init__(self, folder: Path, names: Iterable[str], answer: JsonTarget) -> None:
        """Checks early whether figures of these names can be drawn and written. Raises InputError.

        ``answer`` is the target of the same command's JSON.
        """
        from shardplan.plotting.chart import matplotlib_parts, subplots_of_plotly

        subplots_of_plotly()
        matplotlib_parts()
        self.folder, self.answer = folder, answer
        make_folder(folder, "--out", "give --out another folder")
        for name in names:
            for suffix, kind in FIGURES.items():
                self._file(f"{name}{suffix}", kind).check(other=answer)

    def drawn(self, chart: Chart, rows: Sequence[Mapping[str, Any]]) -> Drawn:
        """A figure as the contents of its files, not yet written. Raises InputError."""
        from shardplan.plotting.page import html_page
        from shardplan.plotting.picture import png_picture

        contents = (html_page(chart).encode(), table_text(rows).encode(), png_picture(chart))
        files = {f"{chart.name}{suffix}": content for suffix, content in zip(FIGURES, contents, strict=True)}
        for name, content in files.items():
            self._file(name, FIGURES[Path(name).suffix]).check_content(content)
        return Drawn(chart.name, files)

    def write(self, figures: Iterable[Drawn]) -> list[str]:
        """Writes figures; returns what was written, as text. Raises InputError."""
        written = []
        for figure in figures:
            for name, content in figure.files.items():
                self._file(name, FIGURES[Path(name).suffix]).write_bytes(content)
            written.append(f"{self.folder / figure.name}: {', '.join(FIGURES)}")
        return written

    def _file(self, name: str, kind: OwnFile) -> JsonTarget:
        return JsonTarget(str(self.folder / name), "--out", kind=kind, is_forced=self.answer.is_forced)


def make_folder(folder: Path, name: str, hint: str) -> None:
    """Makes the folder ``name`` of a command if needed. Raises InputError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot write into '{visible(str(folder)[:200])}': {getattr(error, 'strerror', None) or error}",
            rule=f"{name} is a folder that can be written",
            hint=hint,
        ) from None


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
