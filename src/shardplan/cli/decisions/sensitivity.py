"""``shardplan sensitivity``: which hardware parameter pays."""

from __future__ import annotations

from dataclasses import replace

from shardplan.ask.forms import QuestionForm, SpaceForm
from shardplan.ask.task_forms import SensitivityForm
from shardplan.cli.decisions.files import ChartFlags
from shardplan.cli.flags.option_groups import with_flags
from shardplan.cli.flags.plan import OutputFlags


@with_flags
def sensitivity(
    *,
    flags: QuestionForm,
    space: SpaceForm,
    output: OutputFlags,
    charts: ChartFlags,
    wanted: SensitivityForm,
) -> int:
    """Say which hardware parameter pays: the elasticity of the best step time to each of them.

    The fastest plan is searched again with every parameter worse and better. What these searches share is worked
    out once.
    """
    files = charts.files(output)
    files.check(*flags.reads)
    from shardplan.answers.decisions.sensitivity import sensitivity_document
    from shardplan.cli.progress import progress_bar
    from shardplan.cli.question import asked, given_by_user, searches_of
    from shardplan.decisions.sensitivity import FACTOR, sensitivity_of

    put = asked(flags, space)
    searches, assumed = searches_of(put, space)
    with progress_bar("planning with other hardware") as progress:
        found = sensitivity_of(put.question, searches, factor=wanted.factor or FACTOR, progress=progress)
    answer = replace(found, assumptions=assumed)
    return files.show(sensitivity_document(answer, (*given_by_user(flags, space), *put.warnings)))
