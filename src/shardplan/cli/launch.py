"""``shardplan audit``, ``resume`` and ``export``: reading launch files, their checkpoints, and writing launch files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardplan.ask.forms import PickField
from shardplan.ask.task_forms import LaunchForm, ResumeForm
from shardplan.base.errors import InputError, shown
from shardplan.base.fields import asked, dataclass
from shardplan.base.words import joined
from shardplan.cli.flags import DetailFlags, OutputFlags, flag, with_flags
from shardplan.cli.groups import ARGUMENTS
from shardplan.cli.output import show_document
from shardplan.inputs.readers.typed import model_argument, whole

if TYPE_CHECKING:
    from shardplan.estimation.estimate import Estimate
    from shardplan.estimation.question import Question
    from shardplan.launch.export.shell import ExportTarget
    from shardplan.launch.export.written import Export

FilesArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE",
        help="Script or configuration, then files that it names or that go with it. They are read, never run. "
        "Arguments of the script come after --.",
        show_default=False,
    ),
]
RootFlag = Annotated[
    Path | None,
    flag(
        "Folder that the script is launched from. Without it, the root of its repository is tried.",
        panel=LaunchForm.PANEL,
        metavar="DIR",
    ),
]


@with_flags
def audit(
    *,
    context: typer.Context,
    files: FilesArgument,
    root: RootFlag = None,
    asked: LaunchForm,
    output: OutputFlags,
    details: DetailFlags,
) -> int:
    """Say what a launch script runs, which rules it breaks, and what would be better.

    Nothing in the file is executed. Exits with 1 if a broken rule stops the run or it does not fit in memory.
    """
    target = output.checked_target(*files, asked.model, asked.cluster)
    from shardplan.answers.audit import audit_document
    from shardplan.api.audits import AuditAnswer
    from shardplan.api.audits import audit as audited

    found = audited(
        *files,
        root=root,
        model=None if asked.model is None else model_argument(asked.model),
        cluster=asked.cluster,
        num_accelerators=asked.num_accelerators,
        env=dict(_pairs("--env", asked.env)),
        arguments=tuple(context.meta[ARGUMENTS]),
        entry=asked.entry,
        given=dict(_pairs("--given", asked.given)),
        keep=tuple(name.strip() for name in (asked.keep or "").split(",") if name.strip()),
        observed=tuple(asked.observed or ()),
    )
    if not isinstance(found, AuditAnswer):
        return show_document(found.document(is_whole=details.all), target)
    document = audit_document(found, states_assumptions=details.states_assumptions, is_whole=details.all)
    return show_document(document, target)


def _pairs(flag: str, texts: Sequence[str] | None) -> list[tuple[str, str]]:
    """``NAME=VALUE`` as two texts; the value may be empty. Raises InputError."""
    found = []
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not name.strip() or not equals:
            raise InputError(
                f"{flag} is {shown(text)}; it takes NAME=VALUE",
                rule=f"{flag} takes NAME=VALUE",
                hint=f"write {flag} NODES=64",
            )
        found.append((name.strip(), value))
    return found


OldArgument = Annotated[
    Path,
    typer.Argument(metavar="OLD", help="Launch file or plan file of the run that saved.", show_default=False),
]
NewArgument = Annotated[
    Path,
    typer.Argument(metavar="NEW", help="Launch file or plan file of the run that loads.", show_default=False),
]


@with_flags
def resume(*, old: OldArgument, new: NewArgument, asked: ResumeForm, output: OutputFlags) -> int:
    """Say whether NEW can load the checkpoint that OLD saved, and what is lost.

    The answer comes from a dated record of the framework; what it does not say is unknown. `--env new.NODES=64` and
    `--given old.num_accelerators=512` are for one of the two files. Exits with 1 if it does not load, or is unknown.
    """
    target = output.checked_target(old, new, asked.model, asked.cluster)
    from shardplan.answers.resume import resume_document
    from shardplan.api.resuming import will_resume
    from shardplan.decide.operations import Operations

    found = will_resume(
        old,
        new,
        framework=asked.framework,
        model=None if asked.model is None else model_argument(asked.model),
        cluster=asked.cluster,
        env=dict(_pairs("--env", asked.env)),
        given=dict(_pairs("--given", asked.given)),
        operations=Operations(checkpoint_bandwidth=asked.checkpoint_bandwidth),
    )
    return show_document(resume_document(found, found.load), target)


NAMES = "megatron-lm, megatron-bridge, nemo, torchtitan, deepspeed, accelerate, nanotron or maxtext"
RL_NAMES = ("verl", "nemo-rl", "slime")
"""Frameworks for which RL steps are exported."""

PlanArgument = Annotated[
    Path,
    typer.Argument(metavar="PLAN.json", show_default=False, help="A plan file that `plan`, `estimate` or `rl` wrote."),
]
ToFlag = Annotated[
    str, flag(f"Framework: {NAMES}; of an RL step: verl, nemo-rl or slime.", "--to", metavar="NAME", show_default=False)
]


@dataclass(frozen=True, kw_only=True)
class ExportFlags:
    """Where the files go, and what they hold."""

    out: str | None = asked(
        "Write the launch script here, and files that belong to it next to it. Default: print them.",
        panel="Output",
        metavar="FILE",
    )
    version: str | None = asked("Version of the framework: main, 0.3.0. Default: that of the plan.", metavar="V")
    pick: PickField = None


@with_flags
def export(*, plan: PlanArgument, to: ToFlag, wanted: ExportFlags, output: OutputFlags) -> int:
    """Write a plan as launch files of a training framework.

    What the files cannot express is listed. Data, tokenizer and learning rate are in one marked block to fill in.
    """
    from shardplan.launch.export.shell import ExportTarget
    from shardplan.launch.export.targets import target_named

    target = output.checked_target(plan)
    from shardplan.rl.question import is_rl_file

    is_rl = to.strip().lower() in RL_NAMES or is_rl_file(plan)
    beside = "" if is_rl else target_named(to).beside
    out, pick = wanted.out, wanted.pick
    files = None if out is None else ExportTarget(out, "--out", beside=beside, is_forced=output.force)
    if files is not None:
        files.check(plan, target.path)
    stem = "launch" if files is None else files.stem
    made = _rl_export(plan, to, pick, stem) if is_rl else _plan_export(plan, to, pick, wanted.version, stem)
    written = () if files is None else files.write(made)
    if target.where is not None:
        from shardplan.reports.forms import export_record

        target.write(export_record(made))
    if not target.is_stdout:
        _show(made, written)
    return 0


def _plan_export(file: Path, to: str, pick: str | None, version: str | None, stem: str) -> Export:
    """The launch files of a plan."""
    from shardplan.cli.question import picked_from
    from shardplan.launch.export.targets import export_estimate
    from shardplan.reports.plan_file import read_plan_file

    found = read_plan_file(file)
    return export_estimate(to, found.question, picked_from(found, pick), version=version, stem=stem)


def _rl_export(file: Path, to: str, pick: str | None, stem: str) -> Export:
    """The launch file of an RL step."""
    from shardplan.rl.launches.export import export_rl

    number = None if pick in (None, "recommended") else whole(str(pick), "--pick", most=1000)
    return export_rl(file, to.strip().lower(), number, stem)


@dataclass(frozen=True, kw_only=True)
class AskedExport:
    """The request of ``plan --export``."""

    to: str
    files: ExportTarget

    @property
    def stack(self) -> str:
        """The framework to plan for if no other is named."""
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
    """Prints the files, or if they were written, their names, what to fill in, and what they cannot express."""
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
