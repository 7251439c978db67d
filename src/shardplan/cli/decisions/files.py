"""The files of a decision besides its JSON: a table (CSV) and a figure as a page or a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from shardplan.base.errors import InputError
from shardplan.base.fields import asked, dataclass
from shardplan.base.outputs import CSV, HTML, PNG, SVG, JsonTarget, check_one_on_stdout, check_together
from shardplan.cli.figure_files import table_text
from shardplan.cli.flags.option_groups import OutputFlags

if TYPE_CHECKING:
    from shardplan.answers.document import AnswerDocument
    from shardplan.plotting.chart import Chart


@dataclass(frozen=True, kw_only=True)
class ChartFlags:
    """Which files show the answer."""

    PANEL = "Output"

    csv: str | None = asked("Write the answer as a table.", metavar="FILE")
    html: str | None = asked("Write the figure as a page, one file without a network.", metavar="FILE")
    png: str | None = asked("Write the figure as a picture (PNG).", metavar="FILE")
    svg: str | None = asked("Write the figure as a picture (SVG).", metavar="FILE")

    def files(self, output: OutputFlags) -> ChartFiles:
        """Where they go, with the answer itself."""
        return ChartFiles(
            answer=output.target(),
            table=output.target(self.csv, "--csv", CSV),
            page=output.target(self.html, "--html", HTML),
            picture=output.target(self.png, "--png", PNG),
            drawing=output.target(self.svg, "--svg", SVG),
        )


class ChartFiles(NamedTuple):
    """The files of an answer; one that no flag names is not written."""

    answer: JsonTarget
    table: JsonTarget
    page: JsonTarget
    picture: JsonTarget
    drawing: JsonTarget

    @property
    def are_on_stdout(self) -> bool:
        """Whether one of them takes the place of the text."""
        return any(each.is_stdout for each in self)

    @property
    def written(self) -> list[str]:
        """Names of the files other than the JSON."""
        return [str(each.path) for each in self[1:] if each.path is not None]

    def check(self, *reads: str | Path | None) -> None:
        """Finds out early whether all files can be drawn and written. Raises InputError."""
        check_one_on_stdout(self)
        if self.picture.is_stdout:
            raise InputError("--png is -", rule="--png is a file", hint="give --png a file")
        self._check_libraries()
        check_together(self, reads)

    def _check_libraries(self) -> None:
        from shardplan.plotting.chart import matplotlib_parts, subplots_of_plotly

        if self.page.where is not None:
            subplots_of_plotly()
        if self.picture.where is not None or self.drawing.where is not None:
            matplotlib_parts()

    def show(self, document: AnswerDocument) -> int:
        """Writes the files that are asked for and prints the answer; the exit code. Raises InputError."""
        from shardplan.render.record import document_record, frame_rows

        if self.answer.where is not None:
            self.answer.write(document_record(document))
        if self.table.where is not None and document.table is not None:
            self.table.write_text(table_text(frame_rows(document)))
        if document.chart is not None and any(
            each.where is not None for each in (self.page, self.picture, self.drawing)
        ):
            self._draw(document.chart())
        if not self.are_on_stdout:
            from shardplan.render.page import Page
            from shardplan.render.terminal import show

            show(Page(), document, () if document.chart is None else self.written)
        return 0 if document.is_yes else 1

    def _draw(self, chart: Chart) -> None:
        from shardplan.plotting.page import html_page
        from shardplan.plotting.picture import png_picture, svg_picture

        if self.page.where is not None:
            self.page.write_text(html_page(chart))
        if self.picture.where is not None:
            self.picture.write_bytes(png_picture(chart))
        if self.drawing.where is not None:
            self.drawing.write_text(svg_picture(chart))
