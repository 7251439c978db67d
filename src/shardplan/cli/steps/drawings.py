"""The files that show a step: a trace, a page and a picture, each by a flag of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shardplan.cli.flags.plan import OutputFlags
from shardplan.errors import InputError
from shardplan.fields import dataclass
from shardplan.outputs.target import HTML, SVG, TRACE, JsonTarget

if TYPE_CHECKING:
    from shardplan.simulation.timeline import StepTimeline


def _file(text: str) -> Any:
    return typer.Option(metavar="FILE", help=text, show_default=False, rich_help_panel="Output")


@dataclass(frozen=True, kw_only=True)
class DrawingFlags:
    """Which files show the step."""

    out: Annotated[str | None, _file("Write the step as a trace that ui.perfetto.dev opens.")] = None
    html: Annotated[str | None, _file("Write the step as a page to look around in, one file without a network.")] = None
    svg: Annotated[str | None, _file("Write the step as a picture.")] = None

    def drawings(self, output: OutputFlags) -> Drawings:
        """Where they go."""
        return Drawings(
            trace=output.target(self.out, "--out", TRACE),
            page=output.target(self.html, "--html", HTML),
            picture=output.target(self.svg, "--svg", SVG),
        )


@dataclass(frozen=True, kw_only=True)
class Drawings:
    """The files of a step; one that no flag names is not written."""

    trace: JsonTarget
    page: JsonTarget
    picture: JsonTarget

    @property
    def targets(self) -> tuple[JsonTarget, ...]:
        """All of them."""
        return self.trace, self.page, self.picture

    @property
    def are_on_stdout(self) -> bool:
        """Whether one of them takes the place of the text."""
        return any(each.is_stdout for each in self.targets)

    @property
    def written(self) -> list[str]:
        """Names of the files."""
        return [str(each.path) for each in self.targets if each.path is not None]

    def check(self, answer: JsonTarget, reads: Iterable[Path | None]) -> None:
        """Finds out early whether all files can be written, and ``answer`` as well. Raises InputError."""
        files, read = (answer, *self.targets), list(reads)
        to_stdout = [each.flag for each in files if each.is_stdout]
        if len(to_stdout) > 1:
            raise InputError(
                f"{' and '.join(to_stdout)} are both -",
                rule="standard output takes one answer",
                hint=f"give {to_stdout[-1]} a file",
            )
        for number, each in enumerate(files):
            each.check(*read, *(other.path for other in files[:number]))

    def write(self, step: StepTimeline) -> None:
        """Writes those that are asked for. Raises InputError."""
        for target, draw in zip(self.targets, (_trace, _page, _picture), strict=True):
            if target.where is not None:
                target.write_parts(draw(step))


def _trace(step: StepTimeline) -> Iterator[str]:
    from shardplan.reports.timeline.trace import trace_text

    yield from trace_text(step)


def _page(step: StepTimeline) -> Iterator[str]:
    from shardplan.reports.timeline.page import timeline_html

    yield timeline_html(step)


def _picture(step: StepTimeline) -> Iterator[str]:
    from shardplan.reports.timeline.picture import timeline_svg

    yield timeline_svg(step)
