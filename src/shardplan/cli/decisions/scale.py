"""``shardplan scale``: one job on clusters of several sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from shardplan.cli.decisions.files import ChartFlags
from shardplan.cli.flags.flag import flag
from shardplan.cli.flags.option_groups import with_flags
from shardplan.cli.flags.plan import OutputFlags, QuestionFlags, SpaceFlags
from shardplan.inputs.readers.typed import number

LeastGainFlag = Annotated[
    str | None,
    flag(
        "What an added accelerator must bring to pay, relative to one at the smallest size. Default: 0.5.",
        panel="Search",
        metavar="SHARE",
    ),
]


@with_flags
def scale(
    *,
    flags: QuestionFlags,
    space: SpaceFlags,
    output: OutputFlags,
    charts: ChartFlags,
    least_gain: LeastGainFlag = None,
) -> int:
    """Plan one job on clusters of several sizes, and say where more accelerators stop paying.

    --gpus and --nodes take a range, whose sizes double (64..4096), or a list (64,96,128). The global batch is the same
    at every size: that of `plan` at the largest, if --global-batch-size is not given.
    """
    files = charts.files(output)
    files.check(*flags.reads)
    from shardplan.answers.decisions.scale import scale_document
    from shardplan.cli.decisions.sizes import asked_at_sizes
    from shardplan.cli.progress import progress_bar
    from shardplan.cli.question import given_by_user, searches_of
    from shardplan.decisions.scale import LEAST_GAIN, scaling

    least = LEAST_GAIN if least_gain is None else number(least_gain, "--least-gain", most=1.0)
    asked, sizes = asked_at_sizes(flags, space)
    searches, assumed = searches_of(asked, space)
    with progress_bar("planning each size") as progress:
        found = scaling(asked.question, sizes, searches, least_gain=least, progress=progress)
    answer = replace(found, assumptions=assumed)
    return files.show(scale_document(answer, (*given_by_user(flags, space), *asked.warnings)))
