"""``shardplan pareto``: the plans that no other is better than in every respect."""

from __future__ import annotations

from dataclasses import replace

from shardplan.ask.forms import QuestionForm, SpaceForm
from shardplan.cli.decisions.files import ChartFiles, ChartFlags
from shardplan.cli.flags.option_groups import OutputFlags, with_flags


@with_flags
def pareto(
    *,
    flags: QuestionForm,
    space: SpaceForm,
    output: OutputFlags,
    charts: ChartFlags,
) -> int:
    """List the best compromises: plans or sizes that no other beats in time, memory, robustness and money.

    The front is exact over all plans of the search space that fit. Robustness is the step time where things are worse.

    If --gpus is a range (64..4096) or a list (64,96,128), sizes are compared, each with the plan to take: in time,
    accelerators and money. With --tokens the time is that of the whole run, failures included.
    """
    files = charts.files(output)
    files.check(*flags.reads)
    from shardplan.cli.decisions.sizes import are_several

    answer = _of_sizes if are_several(flags) else _of_plans
    return answer(flags, space, files)


def _of_plans(flags: QuestionForm, space: SpaceForm, files: ChartFiles) -> int:
    """The front of all plans of one size."""
    from shardplan.answers.decisions.pareto import pareto_document
    from shardplan.cli.question import asked, given_by_user, searches_of
    from shardplan.decide.pareto import pareto_front

    put = asked(flags, space)
    searches, assumed = searches_of(put, space)
    front = replace(pareto_front(put.question, searches), assumptions=assumed)
    return files.show(pareto_document(front, (*given_by_user(flags, space), *put.warnings)))


def _of_sizes(flags: QuestionForm, space: SpaceForm, files: ChartFiles) -> int:
    """The front of several sizes."""
    from shardplan.answers.decisions.pareto_sizes import pareto_sizes_document
    from shardplan.cli.decisions.sizes import asked_at_sizes
    from shardplan.cli.progress import progress_bar
    from shardplan.cli.question import given_by_user, searches_of
    from shardplan.decide.pareto import sizes_front

    put, sizes = asked_at_sizes(flags, space)
    searches, assumed = searches_of(put, space)
    with progress_bar("planning each size") as progress:
        found = sizes_front(put.question, sizes, searches, progress=progress)
    front = replace(found, assumptions=(*assumed, *found.assumptions))
    return files.show(pareto_sizes_document(front, (*given_by_user(flags, space), *put.warnings)))
