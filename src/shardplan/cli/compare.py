"""``shardplan compare``: plans of plan files side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardplan.cli.flags.option_groups import with_flags
from shardplan.cli.flags.plan import OutputFlags
from shardplan.cli.numbers import picked
from shardplan.errors import InputError, shown

if TYPE_CHECKING:
    from shardplan.reports.comparison import Side
    from shardplan.reports.plan_file import Pick, PlanFile


MOST_SIDES = 20
FilesArgument = Annotated[
    list[Path], typer.Argument(metavar="FILE...", help="Plan files that `plan` or `estimate` wrote.")
]
PicksFlag = Annotated[
    str | None,
    typer.Option(
        metavar="N[,N...]",
        help="Plan of each file, from 1, or `recommended`: one for all or one for each; of a single file, those to "
        "compare. Default: the recommended one; of a single file the fastest with it, or the first two.",
        rich_help_panel="Plan file",
    ),
]


@with_flags
def compare(*, files: FilesArgument, output: OutputFlags, pick: PicksFlag = None) -> int:
    """Put two or more plans side by side, term by term."""
    target = output.target()
    target.check(*files)
    picks = None if pick is None else _picks(pick, len(files))
    from shardplan.reports.comparison import compare as side_by_side
    from shardplan.reports.comparison import comparison_record

    comparison = side_by_side(_sides(files, picks))
    target.write(comparison_record(comparison))
    if not target.is_stdout:
        from shardplan.cli.layout import Page
        from shardplan.cli.show.comparison import show_comparison

        show_comparison(Page(), comparison)
    return 0


def _usual_picks(read: Sequence[PlanFile]) -> list[Pick]:
    """One plan for each side where none is named."""
    if len(read) > 1:
        return [each.best_pick for each in read]
    first = read[0].estimates[0].plan if read[0].estimates else None
    is_other = read[0].best_pick != 1 and read[0].pick(read[0].best_pick).plan != first
    return [1, read[0].best_pick if is_other else 2]


def _picks(text: str, num_files: int) -> list[Pick]:
    """One plan for each side."""
    parts = text.split(",")
    if len(parts) > MOST_SIDES:
        raise _wrong_pick(text, f"at most {MOST_SIDES} plans stand side by side")
    picks = [picked(part) for part in parts]
    if num_files > 1 and len(picks) == 1:
        picks *= num_files
    if num_files > 1 and len(picks) != num_files:
        raise _wrong_pick(text, f"it has {len(picks)} numbers for {num_files} files")
    return picks


def _wrong_pick(text: str, why: str) -> InputError:
    return InputError(
        f"--pick is {shown(text)}; {why}",
        rule="--pick names plans of the files",
        hint="--pick 1,2 compares two plans of one file, or plan 1 of the first file with plan 2 of the second",
    )


def _sides(files: list[Path], named: list[Pick] | None) -> list[Side]:
    from shardplan.reports.comparison import Side
    from shardplan.reports.plan_file import read_plan_file

    read = [read_plan_file(file) for file in files]
    picks = _usual_picks(read) if named is None else named
    if len(files) == 1:
        return [Side(label=f"{files[0].stem}:{pick}", file=read[0], pick=pick) for pick in picks]
    same = len({file.stem for file in files}) < len(files)
    names = [str(file) if same else file.stem for file in files]
    return [
        Side(label=name if pick == each.best_pick else f"{name}:{pick}", file=each, pick=pick)
        for name, each, pick in zip(names, read, picks, strict=True)
    ]
