"""The files that show a step: a trace, a page and a picture, each by a flag of its own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from shardplan.cli.flags.plan import OutputFlags
from shardplan.fields import asked, dataclass
from shardplan.outputs.target import HTML, SVG, TRACE, JsonTarget, check_one_on_stdout, check_together

if TYPE_CHECKING:
    from shardplan.simulation.timeline import StepTimeline


@dataclass(frozen=True, kw_only=True)
class DrawingFlags:
    """Which files show the step."""

    PANEL = "Output"

    out: str | None = asked("Write the step as a trace that ui.perfetto.dev opens.", metavar="FILE")
    html: str | None = asked("Write the step as a page to look around in, one file without a network.", metavar="FILE")
    svg: str | None = asked("Write the step as a picture.", metavar="FILE")

    def drawings(self, output: OutputFlags) -> Drawings:
        """Where they go."""
        return Drawings(
            trace=output.target(self.out, "--out", TRACE),
            page=output.target(self.html, "--html", HTML),
            picture=output.target(self.svg, "--svg", SVG),
        )


class Drawings(NamedTuple):
    """The files of a step; one that no flag names is not written."""

    trace: JsonTarget
    page: JsonTarget
    picture: JsonTarget

    @property
    def are_on_stdout(self) -> bool:
        """Whether one of them takes the place of the text."""
        return any(each.is_stdout for each in self)

    @property
    def written(self) -> list[str]:
        """Names of the files."""
        return [str(each.path) for each in self if each.path is not None]

    def check(self, answer: JsonTarget, reads: Iterable[Path | None]) -> None:
        """Finds out early whether all files can be written, and ``answer`` as well. Raises InputError."""
        check_one_on_stdout((answer, *self))
        check_together((answer, *self), list(reads))

    def write(self, step: StepTimeline) -> None:
        """Writes those that are asked for. Raises InputError."""
        if self.trace.where is not None:
            from shardplan.reports.timeline.trace import trace_text

            self.trace.write_parts(trace_text(step))
        if self.page.where is not None:
            from shardplan.reports.timeline.page import timeline_html

            self.page.write_text(timeline_html(step))
        if self.picture.where is not None:
            from shardplan.reports.timeline.picture import timeline_svg

            self.picture.write_text(timeline_svg(step))
