"""``shardplan export``: the plan of a file as launch files of a training framework."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardplan.ask.forms import PickField
from shardplan.base.errors import InputError
from shardplan.base.words import joined
from shardplan.cli.flags.flag import flag
from shardplan.cli.flags.option_groups import OutputFlags, with_flags
from shardplan.cli.pick import picked_from
from shardplan.inputs.readers.typed import whole

if TYPE_CHECKING:
    from shardplan.estimation.estimate import Estimate
    from shardplan.estimation.question import Question
    from shardplan.launch.export.shell import ExportTarget
    from shardplan.launch.export.written import Export

NAMES = "megatron-lm, megatron-bridge, nemo, torchtitan, deepspeed, accelerate, nanotron or maxtext"
RL_NAMES = ("verl", "nemo-rl", "slime")
"""Frameworks that RL steps are written for."""

PlanArgument = Annotated[
    Path,
    typer.Argument(metavar="PLAN.json", show_default=False, help="A plan file that `plan`, `estimate` or `rl` wrote."),
]
ToFlag = Annotated[
    str, flag(f"Framework: {NAMES}; of an RL step: verl, nemo-rl or slime.", "--to", metavar="NAME", show_default=False)
]
OutFlag = Annotated[
    str | None,
    flag(
        "Write the launch script here, and files that belong to it next to it. Default: print them.",
        "--out",
        panel="Output",
        metavar="FILE",
    ),
]
VersionFlag = Annotated[
    str | None, flag("Version of the framework: main, 0.3.0. Default: that of the plan.", "--version", metavar="V")
]
ExportFlag = Annotated[
    str | None,
    flag(
        "Plan for framework NAME and write its launch files.",
        "--export",
        panel="Output",
        metavar="NAME[=FILE]",
    ),
]


@with_flags
def export(
    *,
    plan: PlanArgument,
    to: ToFlag,
    out: OutFlag = None,
    version: VersionFlag = None,
    pick: PickField = None,
    output: OutputFlags,
) -> int:
    """Write a plan as launch files of a training framework.

    What the files do not express is named. Data, tokenizer and learning rate are in one marked block, to be filled in.
    """
    from shardplan.launch.export.shell import ExportTarget
    from shardplan.launch.export.targets import export_estimate, target_named
    from shardplan.reports.plan_file import read_plan_file

    target = output.checked_target(plan)
    if to.strip().lower() in RL_NAMES:
        return _export_rl(plan, to.strip().lower(), out, pick, output)
    beside = target_named(to).beside
    files = None if out is None else ExportTarget(out, "--out", beside=beside, is_forced=output.force)
    if files is not None:
        files.check(plan, target.path)
    found = read_plan_file(plan)
    answer = picked_from(found, pick)
    made = export_estimate(to, found.question, answer, version=version, stem="launch" if files is None else files.stem)
    written = () if files is None else files.write(made)
    if target.where is not None:
        from shardplan.reports.forms import export_record

        target.write(export_record(made))
    if not target.is_stdout:
        _show(made, written)
    return 0


def _export_rl(plan: Path, to: str, out: str | None, pick: str | None, output: OutputFlags) -> int:
    """The launch file of an RL step."""
    from shardplan.launch.export.shell import ExportTarget
    from shardplan.reports.forms import export_record
    from shardplan.rl.launches.export import export_rl

    target = output.checked_target(plan)
    files = None if out is None else ExportTarget(out, "--out", is_forced=output.force)
    if files is not None:
        files.check(plan, target.path)
    number = None if pick in (None, "recommended") else whole(str(pick), "--pick", most=1000)
    made = export_rl(plan, to, number, "launch" if files is None else files.stem)
    written = () if files is None else files.write(made)
    if target.where is not None:
        target.write(export_record(made))
    if not target.is_stdout:
        _show(made, written)
    return 0


@dataclass(frozen=True, kw_only=True)
class AskedExport:
    """What ``plan --export`` asks for."""

    to: str
    files: ExportTarget

    @property
    def stack(self) -> str:
        """The framework that is planned for where no other is named."""
        from shardplan.launch.export.targets import stack_name

        return stack_name(self.to)

    def write(self, question: Question, answer: Estimate, *, is_shown: bool) -> None:
        """Writes the launch files of ``answer``. Raises ``InputError``."""
        from shardplan.launch.export.targets import export_estimate

        made = export_estimate(self.to, question, answer, stem=self.files.stem)
        written = self.files.write(made)
        if is_shown:
            sys.stdout.write("\n")
            _show(made, written)


def asked_export(flag: str, output: OutputFlags, *, stack: str | None, method: str | None) -> AskedExport:
    """The framework and the file of ``--export NAME[=FILE]``. Raises ``InputError``."""
    from shardplan.launch.export.shell import ExportTarget
    from shardplan.launch.export.targets import target_named

    if (stack or "").lower() == "all" or method not in (None, "shardplan"):
        given = f"--stack {stack}" if method is None else f"--method {method}"
        raise InputError(
            f"--export is given with {given}",
            rule="one plan of one framework is exported, of a search by shardplan's own method",
            hint="leave one of the two out",
        )
    name, _, where = flag.partition("=")
    to = target_named(name)
    where = where if "=" in flag else f"{to.name}.sh"
    files = ExportTarget(where, "--export", beside=to.beside, is_forced=output.force)
    return AskedExport(to=to.name, files=files)


def _show(made: Export, written: tuple[Path, ...]) -> None:
    """The files themselves; where they were written, these, what a user fills in, and what the files do not say."""
    if not written:
        for name, text in made.files.items():
            sys.stdout.write(f"# ---- {name}\n{text}" if len(made.files) > 1 else text)
        return
    from shardplan.render.page import Page

    page = Page()
    page.labelled("Written", f"{joined(str(path) for path in written)}, for {made.framework}")
    page.labelled("Fill in", ", ".join(made.placeholders))
    if made.not_expressed:
        page.line("Not expressed:", style="bold")
        page.bullets(made.not_expressed)
    if made.relies_on:
        page.line("Left to the framework's defaults:", style="dim")
        page.bullets(made.relies_on, style="dim")
