"""``shardplan sensitivity``: which hardware parameter pays."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from shardplan.cli.decisions.files import ChartFlags
from shardplan.cli.flags.flag import flag
from shardplan.cli.flags.option_groups import with_flags
from shardplan.cli.flags.plan import OutputFlags, QuestionFlags, SpaceFlags
from shardplan.inputs.readers.typed import number

FactorFlag = Annotated[
    str | None,
    flag("Every parameter is divided and multiplied by this. Default: 1.25.", panel="Search", metavar="FACTOR"),
]


@with_flags
def sensitivity(
    *,
    flags: QuestionFlags,
    space: SpaceFlags,
    output: OutputFlags,
    charts: ChartFlags,
    factor: FactorFlag = None,
) -> int:
    """Say which hardware parameter pays: the elasticity of the best step time to each of them.

    The fastest plan is searched again with every parameter worse and better. What these searches share is worked
    out once.
    """
    files = charts.files(output)
    files.check(*flags.reads)
    from shardplan.answers.decisions.sensitivity import sensitivity_document
    from shardplan.cli.progress import progress_bar
    from shardplan.cli.question import ask, given_by_user, searches_of
    from shardplan.decisions.sensitivity import FACTOR, sensitivity_of

    by = FACTOR if factor is None else number(factor, "--factor", least=1.0, most=10.0)
    asked = ask(flags, space)
    searches, assumed = searches_of(asked, space)
    with progress_bar("planning with other hardware") as progress:
        found = sensitivity_of(asked.question, searches, factor=by, progress=progress)
    answer = replace(found, assumptions=assumed)
    return files.show(sensitivity_document(answer, (*given_by_user(flags, space), *asked.warnings)))
