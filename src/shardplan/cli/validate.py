"""``shardplan validate``: predictions against measured runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from shardplan.ask.forms import ProfileField
from shardplan.base.errors import InputError, UnknownNameError
from shardplan.base.outputs import HTML
from shardplan.cli.flags import OutputFlags, flag, one_of, with_flags
from shardplan.cli.output import show_document

if TYPE_CHECKING:
    from shardplan.answers.document import AnswerDocument
    from shardplan.calibrate.validate import Validation
    from shardplan.inputs.profile import Profile


LONGEST_HEADER: Final = 2**16
GROUPS = ("family", "accelerator", "framework", "tier", "precision", "kind")
RunsArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="RUNS.csv",
        show_default=False,
        help="Measured runs in the format of the documentation. Default: the published runs that ship with shardplan.",
    ),
]
ByFlag = Annotated[
    str,
    flag(
        f"Group errors by {', '.join(GROUPS)} (dense or MoE).",
        panel="Output",
        metavar="NAME",
        autocompletion=one_of(GROUPS),
    ),
]
RlFlag = Annotated[bool, flag("Compare the published RL steps instead of training runs.")]
RunFlag = Annotated[str | None, flag("One published run in full, with the reasons for its error.", metavar="NAME")]
HtmlFlag = Annotated[str | None, flag("Write a report with figures to this file.", panel="Output", metavar="FILE")]


@with_flags
def validate(
    *,
    output: OutputFlags,
    runs: RunsArgument = None,
    by: ByFlag = "family",
    profile: ProfileField = None,
    rl: RlFlag = False,
    run: RunFlag = None,
    html: HtmlFlag = None,
) -> int:
    """Compare predictions with measured runs.

    The error of a row is exp|ln(predicted / measured)| - 1: twice too slow and twice too fast are both 100 %. Rows that
    cannot be predicted are listed with the reason. With a profile, its constants apply to runs of its generation.
    A file of measured RL steps is recognised by its header; --rl is for the published ones.
    """
    target, page = output.target(), output.target(html, "--html", HTML)
    target.check(runs, profile)
    if html == "-":
        raise InputError("--html is '-'", rule="the report is written to a file", hint="--html report.html")
    page.check(runs, profile, other=target)
    if by not in GROUPS:
        raise UnknownNameError("group of --by", by[:60], GROUPS, hint=f"one of {', '.join(GROUPS)}")
    if run is not None:
        return show_document(_run_document(run, _others(runs, profile, html, rl=rl)), target)
    if rl or _has_rl_steps(runs):
        return show_document(_rl_document(runs, by, profile or html), target)
    found, constants, generation = _validation(runs, profile)
    page.check_content(b"")
    from shardplan.answers.validation import PUBLISHED, validation_document
    from shardplan.reports.accuracy.record import stated_accuracy

    stated = stated_accuracy(found) if runs is None and profile is None else None
    document = validation_document(
        found, by, named=runs or PUBLISHED, profile=profile, constants=constants, generation=generation, stated=stated
    )
    if html is not None:
        page.write_text(_report(found, profile, is_published=runs is None and profile is None))
    return show_document(document, target)


def _others(runs: str | None, profile: str | None, html: str | None, *, rl: bool) -> str | None:
    """The first of what does not go with one run."""
    given = {f"{runs}": runs, f"--profile {profile}": profile, f"--html {html}": html, "--rl": rl}
    return next((text for text, is_given in given.items() if is_given), None)


def _run_document(run: str, refused: str | None) -> AnswerDocument:
    """A published run in full. Raises ``InputError``."""
    from shardplan.answers.accuracy.known_runs import run_document
    from shardplan.reports.accuracy.known_runs import account_of

    if refused is not None:
        raise InputError(
            f"--run is given with {refused}", rule="--run shows one published run", hint=f"leave {refused} out"
        )
    return run_document(account_of(run))


def _has_rl_steps(runs: str | None) -> bool:
    """Whether the file has the header of measured RL steps."""
    from shardplan.rl.measured import is_rl

    if runs is None or not Path(runs).is_file():
        return False
    with Path(runs).open(encoding="utf-8", errors="replace") as file:
        return is_rl(file.readline(LONGEST_HEADER))


def _rl_document(runs: str | None, by: str, refused: str | None) -> AnswerDocument:
    """Errors of RL steps. Raises ``InputError``."""
    from shardplan.answers.rl_validation import PUBLISHED, rl_validation_document
    from shardplan.rl.accuracy import validate_rl
    from shardplan.rl.measured import read_steps, shipped_steps

    if refused is not None:
        raise InputError(
            f"--profile or --html is {refused!r} with measured RL steps",
            rule="RL steps are predicted with the shipped constants, and have no page",
            hint="leave --profile and --html out; --json has every row",
        )
    steps = shipped_steps() if runs is None else read_steps(Path(runs))
    return rl_validation_document(validate_rl(steps), by, named=runs or PUBLISHED)


def _validation(runs: str | None, profile: str | None) -> tuple[Validation, Profile | None, str | None]:
    """The comparison, the given constants, and the generation of accelerators to which they apply."""
    from shardplan.ask.names import profile_named
    from shardplan.calibrate.validate import validate as compare

    if profile is None:
        return compare(runs), None, None
    constants = profile_named(profile)
    return compare(runs, {constants.generation: constants}), constants, constants.generation


def _report(found: Validation, profile: str | None, *, is_published: bool) -> str:
    """The report as one page; left-out errors are known only for the published runs."""
    from shardplan.answers.accuracy.page import accuracy_parts
    from shardplan.calibrate.errors import read_needs
    from shardplan.inputs.readers.residuals import read_residuals
    from shardplan.render.html import parts_page
    from shardplan.reports.accuracy.record import Accuracy

    residuals, needs = (read_residuals(), read_needs()) if is_published else ((), None)
    return parts_page("Predicted against measured", accuracy_parts(Accuracy.of(found, residuals, profile, needs)))
