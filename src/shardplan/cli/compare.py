"""``shardplan compare``: plans of plan files side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardplan.base.errors import InputError, shown
from shardplan.cli.flags.flag import flag
from shardplan.cli.flags.option_groups import OutputFlags, with_flags
from shardplan.cli.pick import picked

if TYPE_CHECKING:
    from shardplan.answers.comparison import Side
    from shardplan.reports.plan_file import Pick


MOST_SIDES = 20
FilesArgument = Annotated[
    list[Path], typer.Argument(metavar="FILE...", help="Plan files that `plan` or `estimate` wrote.")
]
PicksFlag = Annotated[
    str | None,
    flag(
        "Plan of each file, from 1, or `recommended`: one for all or one for each; of a single file, those to "
        "compare. Default: the recommended one; of a single file the fastest with it, or the first two.",
        panel="Plan file",
        metavar="N[,N...]",
    ),
]


@with_flags
def compare(*, files: FilesArgument, output: OutputFlags, pick: PicksFlag = None) -> int:
    """Put two or more plans side by side, term by term."""
    target = output.checked_target(*files)
    picks = None if pick is None else _picks(pick, len(files))
    from shardplan.answers.comparison import compare as side_by_side
    from shardplan.answers.comparison import comparison_document
    from shardplan.cli.show.document import show_document

    return show_document(comparison_document(side_by_side(_sides(files, picks))), target)


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


def _sides(files: list[Path], picks: list[Pick] | None) -> tuple[Side, ...]:
    from shardplan.answers.comparison import sides_of
    from shardplan.reports.plan_file import read_plan_file

    read = [read_plan_file(file) for file in files]
    same = len(files) > 1 and len({file.stem for file in files}) < len(files)
    return sides_of(read, [str(file) if same else file.stem for file in files], picks)
