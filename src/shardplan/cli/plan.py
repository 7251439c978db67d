"""``shardplan plan``, ``estimate`` and ``compare``: the best plans of a question, one plan, and plans side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from shardplan.ask.forms import HOW, PickField, PlanFields, QuestionForm, SearchForm
from shardplan.ask.task_forms import ObservedForm
from shardplan.base.errors import InputError, shown
from shardplan.base.fields import asked as field_asked
from shardplan.base.fields import dataclass
from shardplan.base.outputs import JsonTarget
from shardplan.cli.flags import DetailFlags, OutputFlags, PlanDetailFlags, flag, with_flags
from shardplan.cli.output import show_document
from shardplan.inputs.plan import Plan
from shardplan.inputs.readers.typed import values_of

if TYPE_CHECKING:
    from shardplan.estimation.estimate import Estimate
    from shardplan.estimation.question import PosedQuestion, Question
    from shardplan.launch.audit.observed import GapExplanation, Observed
    from shardplan.physics.frameworks.stack import Stack
    from shardplan.planner.result import SearchResult
    from shardplan.reports.plan_file import Pick, PlanFile


OURS: Final = "shardplan"
"""Name of our own search in `shardplan published methods`."""


@dataclass(frozen=True, kw_only=True)
class WantedFlags:
    """Which method searches, and which framework runs the plan."""

    method: str | None = field_asked(
        "Use another method instead of our search (see `shardplan published methods`): the question in its terms, "
        "what it ignores, its configurations, and our estimate of each.",
        panel="Search",
        is_rare=True,
        metavar="NAME",
        completes=("methods.catalogue", "list_methods"),
    )
    export: str | None = field_asked(
        "Plan for framework NAME and write its launch files.", panel="Output", metavar="NAME[=FILE]"
    )


PLANS, LISTED = 10, 5
"""Default numbers of plans in the file and on the terminal."""


@with_flags
def plan(
    *, flags: QuestionForm, search: SearchForm, output: OutputFlags, wanted: WantedFlags, details: DetailFlags
) -> int:
    """Find the fastest plan that fits, and say why.

    Every plan is priced. --assumptions lists the defaults that were taken.
    """
    target = output.checked_target(*flags.reads)
    from shardplan.ask.questions import choices_in, space_of
    from shardplan.cli.question import asked, given_by_user, words_of
    from shardplan.physics.frameworks.usual_stack import ALL, ANY

    launch, method = None, wanted.method
    if wanted.export is not None:
        from shardplan.cli.launch import asked_export

        launch = asked_export(wanted.export, output, stack=flags.stack, method=method)
        launch.files.check(*flags.reads, target.path)
        flags = replace(flags, stack=flags.stack or launch.stack)
    if method not in (None, OURS):
        of_none = replace(flags, stack=flags.stack or ANY)
        _check_other_method(method, search)
        from shardplan.answers.methods.question import ask_method, method_document, with_assumptions
        from shardplan.methods.catalogue import load_method

        other, posed = load_method(method), asked(of_none)
        report = with_assumptions(ask_method(other, posed.question, top=search.top or PLANS), posed.assumptions)
        return show_document(method_document(report), target)
    if (flags.stack or "").lower() == ALL:
        return _compare_frameworks(flags, search, details, target)
    posed = asked(flags, search)
    result, assumed = _search(posed, search), posed.restricted(choices_in(space_of(search))).assumptions
    stated = result.stating_what_was_not_searched().assuming(assumed)
    stated = replace(stated, estimates=tuple(stated.estimates))  # all are shown, so they are made together
    from shardplan.answers.search import search_document
    from shardplan.reports.explanation import explain

    document = search_document(
        stated,
        explain(stated),
        (*given_by_user(flags, search), *posed.warnings),
        detail=details.of_answer(),
        listed=LISTED if search.top is None and not details.explains else search.top or PLANS,
        target=target,
        asked=words_of(flags, with_size=not stated.question.num_idle),
    )
    show_document(document, target)
    if launch is not None and stated.recommended is not None:
        launch.write(stated.question, stated.recommended, is_shown=not target.is_stdout)
    return 0 if result.estimates else 1


def _compare_frameworks(flags: QuestionForm, search: SearchForm, details: DetailFlags, target: JsonTarget) -> int:
    """The recommended plan of every published framework, side by side."""
    from shardplan.answers.frameworks import frameworks_document
    from shardplan.ask.questions import choices_in, space_of
    from shardplan.cli.progress import progress_bar
    from shardplan.cli.question import asked, given_by_user, words_of
    from shardplan.physics.frameworks.usual_stack import ANY, published_stacks
    from shardplan.planner.related.frameworks import answers_of

    _refuse_flags_of_one_framework(search)
    of_none = asked(replace(flags, stack=ANY))
    question, restricted = of_none.question, choices_in(space_of(search))

    def posed(stack: Stack) -> tuple[Question, tuple[str, ...]]:
        named = asked(replace(flags, stack=stack.name))
        return named.question, named.restricted(restricted).assumptions

    with progress_bar("searching for each framework") as progress:
        stacks = published_stacks(question.cluster.accelerator.vendor)
        answers = answers_of(stacks, posed, **restricted, use_all=search.use_all, progress=progress)
    given = (*given_by_user(flags, search), *of_none.warnings)
    document = frameworks_document(
        question,
        answers,
        given,
        asked=words_of(replace(flags, stack=None), search),
        explains=details.explains,
        states_assumptions=details.states_assumptions,
    )
    return show_document(document, target)


def _refuse_flags_of_one_framework(search: SearchForm) -> None:
    """Raises InputError for flags that ``--stack all`` cannot use."""
    for name, value, rule in (
        ("--simulate-top", search.simulate_top, "the simulation ranks the plans of one framework"),
        ("--top", search.top, "frameworks are compared by one plan each"),
        ("--prune", search.prune or None, "frameworks are compared with the number of plans that fit"),
    ):
        if value is not None:
            raise InputError(
                f"both --stack all and {name} are given",
                rule=rule,
                hint=f"name a framework with --stack, or leave {name} out",
            )


def _check_other_method(method: str, search: SearchForm) -> None:
    """Refuses flags of our own search: another method has its own space. Raises InputError."""
    for name in ("fix", "limit", "exclude", "simulate-top", "use-all"):
        if getattr(search, name.replace("-", "_")):
            raise InputError(
                f"--{name} is given with --method {method:.60}",
                rule="--fix, --limit, --exclude, --simulate-top and --use-all belong to our own search",
                hint=f"leave out --{name}, or --method",
            )


def _search(posed: PosedQuestion, flags: SearchForm) -> SearchResult:
    """The answer."""
    from shardplan.ask.questions import choices_in, space_of
    from shardplan.cli.progress import progress_bars
    from shardplan.planner.search import search_question

    how: dict[str, Any] = {name: getattr(flags, name) for name in HOW} | {"top": flags.top or PLANS}
    with progress_bars("searching", "simulating the best plans") as (progress, simulated):
        return search_question(
            posed.question,
            progress=progress,
            stack=posed.stack,
            simulated=simulated,
            **how | choices_in(space_of(flags)),
        )


@dataclass(frozen=True, kw_only=True)
class FromFlags:
    """The plan file to start from."""

    file: Path | None = field_asked(
        "Start from a plan file instead of MODEL; flags replace its values.",
        flags=("--from",),
        panel="Plan file",
        metavar="FILE",
    )
    pick: PickField = None


@with_flags
def estimate(
    *,
    flags: QuestionForm,
    plan: PlanFields,
    output: OutputFlags,
    source: FromFlags,
    details: DetailFlags,
    more: PlanDetailFlags,
    measured: ObservedForm,
) -> int:
    """Predict time, memory and traffic of one plan.

    Fields of the plan that you leave out take the framework's defaults; nothing is searched. With --observed, the
    causes that would explain a measured step are priced and ranked.
    """
    file = source.file
    target = output.checked_target(*flags.reads, file)
    observed = _measured(measured.observed or ())
    from shardplan.answers.estimate import estimate_document
    from shardplan.cli.question import asked, asked_again, given_by_user, picked_from, words_of
    from shardplan.estimation.written import estimate_written

    if file is None:
        posed, base, given = asked(flags), Plan(), {*plan}
    else:
        found = _read(file, flags.model)
        before = picked_from(found, source.pick)
        posed, base = asked_again(found, flags, before.framework), before.plan
        given = _stated_fields(None if flags.stack is None else posed.stack) | {*plan}
    answer = estimate_written(posed.question, replace(base, **values_of(Plan, plan)), posed.stack, given)
    answer = replace(answer, assumptions=(*posed.assumptions, *answer.assumptions))
    detail = details.of_answer(more)
    said, words = (*given_by_user(flags), *posed.warnings), words_of(flags) if file is None else ""
    explained = _explained(posed.question, answer, observed)
    document = estimate_document(
        posed.question, answer, said, detail=detail, target=target, asked=words, observed=explained
    )
    return show_document(document, target)


def _measured(texts: Sequence[str]) -> list[Observed]:
    """Measurements. Raises InputError."""
    if not texts:
        return []
    from shardplan.launch.audit.observed import parse_observed

    return [parse_observed(text) for text in texts]


def _read(file: Path, model: str | None) -> PlanFile:
    """The plan file to start from."""
    from shardplan.reports.plan_file import read_plan_file

    if model is not None:
        raise InputError(
            f"both MODEL ({model[:100]}) and --from {file} are given",
            rule="a question comes from flags or from a file",
            hint="leave one of them out",
        )
    return read_plan_file(file)


def _stated_fields(named: Stack | None) -> set[str]:
    """Fields that the plan of a file states: all except those that a newly named framework changes."""
    from shardplan.physics.frameworks.defaults import SWITCHES

    others = () if named is None else named.plan_fields()
    return {field.name for field in fields(Plan)} - {name for name in SWITCHES if name in others}


def _explained(question: Question, answer: Estimate, observed: Sequence[Observed]) -> list[GapExplanation]:
    """Explanations of the gaps to the measurements."""
    if not observed:
        return []
    from shardplan.launch.audit.observed import explain

    return [explain(question, answer.plan, answer, each) for each in observed]


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
    """Compare two or more plans side by side, term by term."""
    target = output.checked_target(*files)
    picks = None if pick is None else _picks(pick, len(files))
    from shardplan.answers.comparison import compare as side_by_side
    from shardplan.answers.comparison import comparison_document, sides_of
    from shardplan.reports.plan_file import read_plan_file

    read = [read_plan_file(file) for file in files]
    same = len(files) > 1 and len({file.stem for file in files}) < len(files)
    sides = sides_of(read, [str(file) if same else file.stem for file in files], picks)
    return show_document(comparison_document(side_by_side(sides)), target)


def _picks(text: str, num_files: int) -> list[Pick]:
    """One plan for each side."""
    from shardplan.cli.question import picked

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
