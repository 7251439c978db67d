"""``shardplan plan``: the best plans for a model, a cluster and a job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shardplan.ask.forms import HOW, QuestionForm, SearchForm
from shardplan.base.errors import InputError
from shardplan.base.outputs import JsonTarget
from shardplan.cli.flags.option_groups import DetailFlags, OutputFlags, with_flags
from shardplan.cli.launch.export import ExportFlag, asked_export
from shardplan.cli.published.methods import OURS, MethodFlag, plan_with_method

if TYPE_CHECKING:
    from shardplan.estimation.question import PutQuestion, Question
    from shardplan.physics.frameworks.stack import Stack
    from shardplan.planner.result import SearchResult


PLANS, LISTED = 10, 5
"""Plans in the file and on the terminal where ``--top`` is not given."""


@with_flags
def plan(
    *,
    flags: QuestionForm,
    search: SearchForm,
    output: OutputFlags,
    method: MethodFlag = None,
    export: ExportFlag = None,
    details: DetailFlags,
) -> int:
    """Find the fastest plan that fits, and say why.

    Every plan is priced. --assumptions lists the defaults of what is left out.
    """
    target = output.checked_target(*flags.reads)
    from shardplan.ask.questions import choices_in, space_of
    from shardplan.cli.question import asked, given_by_user, words_of
    from shardplan.physics.frameworks.usual_stack import ALL, ANY

    launch = None if export is None else asked_export(export, output, stack=flags.stack, method=method)
    if launch is not None:
        launch.files.check(*flags.reads, target.path)
        flags = replace(flags, stack=flags.stack or launch.stack)
    if method not in (None, OURS):
        of_none = replace(flags, stack=flags.stack or ANY)
        return plan_with_method(method, lambda: asked(of_none), search, target)
    if (flags.stack or "").lower() == ALL:
        return _compare_frameworks(flags, search, details, target)
    put = asked(flags, search)
    result, assumed = _search(put, search), put.restricted(choices_in(space_of(search))).assumptions
    stated = result.stating_what_was_not_searched().assuming(assumed)
    first, listed = (*given_by_user(flags, search), *put.warnings), _num_listed(search, details)
    words = words_of(flags, with_size=not stated.question.num_idle)
    _answer(stated, target, details, first, listed=listed, asked=words)
    if launch is not None and stated.recommended is not None:
        launch.write(stated.question, stated.recommended, is_shown=not target.is_stdout)
    return 0 if result.estimates else 1


def _compare_frameworks(flags: QuestionForm, search: SearchForm, details: DetailFlags, target: JsonTarget) -> int:
    """The plan to take of every published framework, side by side."""
    from shardplan.answers.frameworks import frameworks_document
    from shardplan.ask.questions import choices_in, space_of
    from shardplan.cli.progress import progress_bar
    from shardplan.cli.question import asked, given_by_user, words_of
    from shardplan.cli.show.document import show_document
    from shardplan.physics.frameworks.usual_stack import ANY, published_stacks
    from shardplan.planner.related.frameworks import answers_of

    _refuse_what_is_of_one_framework(search)
    of_none = asked(replace(flags, stack=ANY))
    question, restricted = of_none.question, choices_in(space_of(search))

    def put(stack: Stack) -> tuple[Question, tuple[str, ...]]:
        named = asked(replace(flags, stack=stack.name))
        return named.question, named.restricted(restricted).assumptions

    with progress_bar("searching for each framework") as progress:
        stacks = published_stacks(question.cluster.accelerator.vendor)
        answers = answers_of(stacks, put, **restricted, use_all=search.use_all, progress=progress)
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


def _refuse_what_is_of_one_framework(search: SearchForm) -> None:
    """Raises InputError for flags that ``--stack all`` has no use for."""
    for flag, value, rule in (
        ("--simulate-top", search.simulate_top, "the simulation ranks the plans of one framework"),
        ("--top", search.top, "frameworks are compared by one plan each"),
        ("--prune", search.prune or None, "frameworks are compared with the number of plans that fit"),
    ):
        if value is not None:
            raise InputError(
                f"both --stack all and {flag} are given",
                rule=rule,
                hint=f"name a framework with --stack, or leave {flag} out",
            )


def _search(put: PutQuestion, flags: SearchForm) -> SearchResult:
    """The answer."""
    from shardplan.ask.questions import choices_in, space_of
    from shardplan.cli.progress import progress_bars
    from shardplan.planner.search import search_question

    how: dict[str, Any] = {name: getattr(flags, name) for name in HOW} | {"top": flags.top or PLANS}
    with progress_bars("searching", "simulating the best plans") as (progress, simulated):
        return search_question(
            put.question,
            progress=progress,
            stack=put.stack,
            simulated=simulated,
            **how | choices_in(space_of(flags)),
        )


def _num_listed(flags: SearchForm, details: DetailFlags) -> int:
    """Plans to print; reasons refer to all of them."""
    return LISTED if flags.top is None and not details.explains else flags.top or PLANS


def _answer(
    result: SearchResult, target: JsonTarget, flags: DetailFlags, given: Sequence[str], *, listed: int, asked: str
) -> None:
    """Writes the file, then prints the answer."""
    from shardplan.answers.estimate import AnswerDetail
    from shardplan.answers.search import search_document
    from shardplan.cli.show.document import show_document
    from shardplan.reports.explanation import explain

    result = replace(result, estimates=tuple(result.estimates))  # all are shown: they are made together
    detail = AnswerDetail(flags.explains, flags.states_assumptions)
    document = search_document(result, explain(result), given, detail=detail, listed=listed, target=target, asked=asked)
    show_document(document, target)
