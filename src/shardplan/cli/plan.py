"""``shardplan plan``: the best plans for a model, a cluster and a job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from shardplan.cli.flags.option_groups import with_flags
from shardplan.cli.flags.plan import DetailFlags, OutputFlags, QuestionFlags, SearchFlags
from shardplan.cli.launch.export import ExportFlag, asked_export
from shardplan.cli.published.methods_plan import OURS, MethodFlag, plan_with_method
from shardplan.errors import InputError
from shardplan.inputs.readers.typed import whole
from shardplan.outputs.target import JsonTarget

if TYPE_CHECKING:
    from shardplan.cli.question import Asked
    from shardplan.estimation.question import Question
    from shardplan.frameworks.stack import Stack
    from shardplan.planner.result import SearchResult


MOST_PLANS = 1000
PLANS, LISTED = 10, 5
"""Plans in the file and on the terminal where ``--top`` is not given."""


@with_flags
def plan(
    *,
    flags: QuestionFlags,
    search: SearchFlags,
    output: OutputFlags,
    method: MethodFlag = None,
    export: ExportFlag = None,
    details: DetailFlags,
) -> int:
    """Find the fastest plan that fits, and say why.

    Every plan of the search space is priced. What is left out takes defaults, which --assumptions lists.
    """
    target = output.checked_target(*flags.reads)
    from shardplan.cli.question import ask, given_by_user
    from shardplan.frameworks.usual_stack import ALL, ANY

    launch = None if export is None else asked_export(export, output, stack=flags.stack, method=method)
    if launch is not None:
        launch.files.check(*flags.reads, output.json)
        flags = replace(flags, stack=flags.stack or launch.stack)
    if method not in (None, OURS):
        of_none = replace(flags, stack=flags.stack or ANY)
        return plan_with_method(method, lambda: ask(of_none), search, target)
    if (flags.stack or "").lower() == ALL:
        return _compare_frameworks(flags, search, details, target)
    asked = ask(flags, search)
    result, of_stack = _search(asked, search)
    stated = result.stating_what_was_not_searched().assuming((*asked.assumptions, *of_stack))
    _answer(stated, target, details, (*given_by_user(flags, search), *asked.warnings), _num_listed(search, details))
    if launch is not None and stated.recommended is not None:
        launch.write(stated.question, stated.recommended, is_shown=not target.is_stdout)
    return 0 if result.estimates else 1


def _compare_frameworks(flags: QuestionFlags, search: SearchFlags, details: DetailFlags, target: JsonTarget) -> int:
    """The plan to take of every published framework, side by side."""
    from shardplan.answers.frameworks import frameworks_document
    from shardplan.cli.progress import progress_bar
    from shardplan.cli.question import ask, given_by_user, restrictions
    from shardplan.cli.show.document import show_document
    from shardplan.frameworks.defaults import switches_in_stack
    from shardplan.frameworks.usual_stack import ANY, published_stacks
    from shardplan.planner.related.frameworks import answers_of

    _refuse_what_is_of_one_framework(search)
    asked = ask(replace(flags, stack=ANY))
    question = asked.question
    restricted = restrictions(search)
    fields = {name for each in restricted.values() for name in each}

    def put(stack: Stack) -> tuple[Question, tuple[str, ...]]:
        asked = ask(replace(flags, stack=stack.name))
        return asked.question, (*asked.assumptions, *switches_in_stack(stack, fields))

    with progress_bar("searching for each framework") as progress:
        stacks = published_stacks(question.cluster.accelerator.vendor)
        answers = answers_of(stacks, put, **restricted, use_all=search.use_all, progress=progress)
    given = (*given_by_user(flags, search), *asked.warnings)
    document = frameworks_document(
        question, answers, given, explains=details.explains, states_assumptions=details.states_assumptions
    )
    return show_document(document, target)


def _refuse_what_is_of_one_framework(search: SearchFlags) -> None:
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


def _search(asked: Asked, flags: SearchFlags) -> tuple[SearchResult, tuple[str, ...]]:
    """The answer, and what was taken from the stack."""
    from shardplan.cli.progress import progress_bars
    from shardplan.cli.question import restrictions
    from shardplan.frameworks.defaults import switches_in_stack
    from shardplan.planner.search import search_question

    restricted = restrictions(flags)
    of_stack = switches_in_stack(asked.stack, {name for each in restricted.values() for name in each})
    most = None if flags.simulate_top is None else whole(flags.simulate_top, "--simulate-top", most=MOST_PLANS)
    with progress_bars("searching", "simulating the best plans") as (progress, simulated):
        result = search_question(
            asked.question,
            top=_num_plans(flags),
            progress=progress,
            stack=asked.stack,
            simulate_top=most,
            simulated=simulated,
            prune=flags.prune,
            use_all=flags.use_all,
            **restricted,
        )
    return result, of_stack


def _num_plans(flags: SearchFlags) -> int:
    """Plans to answer with. Raises InputError."""
    return PLANS if flags.top is None else whole(flags.top, "--top", most=MOST_PLANS)


def _num_listed(flags: SearchFlags, details: DetailFlags) -> int:
    """Plans to print; reasons refer to all of them."""
    return LISTED if flags.top is None and not details.explains else _num_plans(flags)


def _answer(result: SearchResult, target: JsonTarget, flags: DetailFlags, given: Sequence[str], listed: int) -> None:
    """Writes the file, then prints the answer."""
    from shardplan.answers.estimate import AnswerDetail
    from shardplan.answers.search import search_document
    from shardplan.cli.show.document import show_document
    from shardplan.reports.explanation import explain

    result = replace(result, estimates=tuple(result.estimates))  # all are shown: they are made together
    detail = AnswerDetail(flags.explains, flags.states_assumptions)
    show_document(search_document(result, explain(result), given, detail=detail, listed=listed, target=target), target)
