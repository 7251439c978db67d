"""``shardplan sweep`` answers every question of a grid in a folder; ``shardplan plot`` draws the results."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardplan.base.errors import InputError, shown
from shardplan.base.fields import asked, dataclass, switch
from shardplan.base.outputs import HTML, PNG, JsonTarget
from shardplan.cli.flags import with_flags
from shardplan.cli.progress import MOST_WORKERS

if TYPE_CHECKING:
    from shardplan.decide.sweeps.grid import SweepGrid
    from shardplan.decide.sweeps.run import OnProgress, SweepProgress


@dataclass(frozen=True, kw_only=True)
class SweepFlags:
    """A grid, and the workers that answer it."""

    PANEL = "Sweep"

    grid: Path | None = asked(
        "File with the fields and their values; not needed to resume a sweep.", is_argument=True, metavar="GRID"
    )
    out: Path | None = asked("Folder of the results.", panel="Output", metavar="DIR")
    workers: int | None = asked("Number of worker processes. Default: 1.", least=1, most=MOST_WORKERS, metavar="N")
    scheduler: str | None = asked("Dask scheduler whose workers run the searches.", metavar="tcp://HOST:PORT")
    resume: bool = switch("Continue the sweep in the folder.")
    status: bool = switch("Show the progress of the sweep in the folder.")


@with_flags
def sweep(*, wanted: SweepFlags) -> int:
    """Run a grid of searches: thousands of models, clusters, sizes and networks.

    Each is an exhaustive search, like `shardplan plan`. Rows are saved as they come: a killed sweep continues
    with --resume, and ends with the same table. Exits with 1 if questions failed, which --resume repeats.
    """
    out, resume, num_workers = wanted.out, wanted.resume, wanted.workers or 1
    if out is None:
        raise InputError("missing: the folder of the results", rule="a sweep has a folder", hint="add --out results")
    if wanted.status:
        return _status(out)
    from shardplan.decide.sweeps.folder import check_free, open_folder
    from shardplan.decide.sweeps.grid import read_grid
    from shardplan.decide.sweeps.rows import FAILED
    from shardplan.decide.sweeps.run import sweep as run

    grid = None if wanted.grid is None else read_grid(wanted.grid)
    if resume:
        grid = open_folder(out, grid).grid
    if grid is None:
        raise InputError("missing: the grid", rule="a new sweep has a grid", hint="name its file, or add --resume")
    if not resume:
        check_free(out)
    _print_size(grid, num_workers, is_timed=not resume and wanted.scheduler is None)
    try:
        with _progress() as progress:
            rows = run(grid, out=out, workers=num_workers, scheduler=wanted.scheduler, resume=resume, progress=progress)
    except (KeyboardInterrupt, InputError):
        _print_how_to_resume(out)
        raise
    counts = dict(rows["outcome"].value_counts().rows())
    sys.stdout.write(f"{len(rows):,} rows in {out / 'results.parquet'}: {_counted(counts)}.\n")
    if FAILED in counts:
        sys.stderr.write(f"To ask the failed ones again: {_resume(out)}\n")
    return 1 if FAILED in counts else 0


def _print_size(grid: SweepGrid, num_workers: int, *, is_timed: bool) -> None:
    """Prints the number of questions and their approximate time, before the first one."""
    from shardplan.decide.sweeps.grid import check_names
    from shardplan.decide.sweeps.run import FEW, expected_time

    check_names(grid)
    number = grid.num_questions
    text = f"{number:,} question{'s' * (number > 1)}"
    if is_timed and number > FEW:
        text += f", about {duration(expected_time(grid, num_workers))}"
        text += f" with {num_workers} workers" if num_workers > 1 else ""
    sys.stderr.write(f"{text}.\n")


def _status(out: Path) -> int:
    from shardplan.decide.sweeps.folder import holder_of, open_folder

    folder, holder = open_folder(out), holder_of(out)
    total, done = folder.grid.num_questions, folder.num_done
    state = (
        "complete" if folder.results.exists() else f"running: {holder}" if holder else "not running; --resume goes on"
    )
    sys.stdout.write(f"{done:,} of {total:,} questions answered ({100 * done / total:.0f} %); {state}.\n")
    return 0


def _print_how_to_resume(out: Path) -> None:
    """Prints what is saved of a sweep that was ended; nothing if none was begun."""
    from shardplan.decide.sweeps.folder import MANIFEST, open_folder

    if (out / MANIFEST).exists():
        folder = open_folder(out)
        done = f"{folder.num_done:,} of {folder.grid.num_questions:,} questions are kept."
        sys.stderr.write(f"{done} To go on: {_resume(out)}\n")


def _resume(out: Path) -> str:
    return f"shardplan sweep --out {shown(str(out))} --resume"


def _counted(counts: dict[str, int]) -> str:
    names = {"fits": "have a plan that fits", "nothing fits": "have none", "refused": "refused", "failed": "failed"}
    return ", ".join(f"{counts[name]:,} {text}" for name, text in names.items() if name in counts)


@contextmanager
def _progress() -> Iterator[OnProgress | None]:
    """A bar on standard error with rate, time left and failures, if that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, rate="", note="")

        def advance(now: SweepProgress) -> None:
            speed = bar.tasks[0].speed
            rate = "" if speed is None else f"{speed:,.1f}/s"
            notes = (f"{now.num_failed:,} refused or failed" * (now.num_failed > 0), now.dashboard)
            note = ", ".join(filter(None, notes))
            bar.update(task, completed=now.num_done, total=now.num_questions, rate=rate, note=note)

        yield advance


def duration(seconds: float) -> str:
    """A time in words: 40 seconds, 6 minutes, 3 hours."""
    for size, name in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{max(round(seconds), 1)} second{'s' * (round(seconds) > 1)}"


FolderArgument = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a finished sweep.")]


@dataclass(frozen=True, kw_only=True)
class PlotFlags:
    """What is drawn, and where."""

    PANEL = "Plot"

    x: str | None = asked("Field of the grid along the axis: gpus, inter_node_bandwidth.", metavar="FIELD")
    y: str | None = asked("Quantity: step_time, mfu, tokens_per_s_per_accelerator.", metavar="COLUMN")
    colour: str | None = asked("A line for each value of this field.", metavar="FIELD")
    facet: str | None = asked("A panel for each value of this field.", metavar="FIELD")
    where: list[str] | None = asked("Draw these rows only: memory=80. Can be repeated.", metavar="FIELD=VALUE")
    out: Path | None = asked("File: .html for a page, .png for a picture.", panel="Output", metavar="FILE")
    force: bool = switch("Overwrite a file that shardplan did not write.", panel="Output")


@with_flags
def plot(*, results: FolderArgument, wanted: PlotFlags) -> int:
    """Draw the results of a sweep."""
    x, y, out = wanted.x, wanted.y, wanted.out
    missing = [flag for flag, value in (("--x gpus", x), ("--y step_time", y), ("--out FILE", out)) if value is None]
    if missing or x is None or y is None or out is None:
        raise InputError(
            f"missing: {', '.join(missing)}", rule="a plot has an x, a y and a file", hint=f"add {' '.join(missing)}"
        )
    kind = {".html": HTML, ".png": PNG}.get(out.suffix.lower())
    if kind is None:
        raise InputError(
            f"--out is a file of the kind '{out.suffix}'",
            rule="a plot is a page or a picture",
            hint="end --out in .html or .png",
        )
    target = JsonTarget(str(out), "--out", kind=kind, is_forced=wanted.force)
    target.check(results)
    from shardplan.plotting.page import html_page
    from shardplan.plotting.picture import png_picture
    from shardplan.plotting.sweeps import SweepPlot, assignments, read_results, sweep_chart

    chosen = assignments(wanted.where or ())
    rows, varied = read_results(results)
    chart = sweep_chart(rows, varied, SweepPlot(x=x, y=y, colour=wanted.colour, facet=wanted.facet), where=chosen)
    target.write_bytes(html_page(chart).encode() if kind is HTML else png_picture(chart))
    sys.stdout.write(f"{out}\n")
    return 0
