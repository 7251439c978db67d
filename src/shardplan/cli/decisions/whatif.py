"""``shardplan whatif``: what becomes of a plan where the cluster or the job changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from shardplan.ask.forms import PickField, QuestionForm, SpaceForm, StackField
from shardplan.ask.task_forms import WhatIfForm
from shardplan.cli.decisions.files import ChartFlags
from shardplan.cli.flags.option_groups import with_flags
from shardplan.cli.flags.plan import OutputFlags
from shardplan.cli.pick import picked_from
from shardplan.inputs.readers.typed import pairs_of

FileArgument = Annotated[Path, typer.Argument(metavar="PLAN.json", help="A plan file that `plan` or `estimate` wrote.")]


@with_flags
def whatif(
    *,
    file: FileArgument,
    space: SpaceForm,
    output: OutputFlags,
    charts: ChartFlags,
    wanted: WhatIfForm,
    pick: PickField = None,
    stack: StackField = None,
) -> int:
    """Change the cluster or the job of a plan, plan again, and compare term by term.

    Changes are made one after the other. Bandwidths are in GB/s per accelerator and direction.
    """
    files = charts.files(output)
    files.check(file, stack)
    from shardplan.answers.decisions.whatif import whatif_document
    from shardplan.cli.progress import progress_bar
    from shardplan.cli.question import asked_again, searches_of
    from shardplan.decisions.whatif import what_if
    from shardplan.reports.plan_file import read_plan_file

    changes = changes_of(wanted.change or ())
    read = read_plan_file(file)
    before = picked_from(read, pick)
    put = asked_again(read, QuestionForm(stack=stack), before.framework)
    searches, assumed = searches_of(put, space)
    with progress_bar("planning again") as progress:
        found = what_if(put.question, before.plan, changes, searches, progress=progress)
    answer = replace(found, assumptions=assumed)
    return files.show(whatif_document(answer, put.warnings))


def changes_of(texts: Sequence[str]) -> dict[str, Any]:
    """Values by name from ``name=value``, read as the flags of the same names. Raises InputError."""
    from shardplan.decisions.whatif import change_of, check_named_once

    found = [(name.strip("-").replace("-", "_"), value) for name, value in pairs_of("--change", texts)]
    check_named_once([name for name, _ in found])
    return dict(change_of(name, text) for name, text in found)
