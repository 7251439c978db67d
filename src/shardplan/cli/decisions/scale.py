"""``shardplan scale``: one job on clusters of several sizes."""

from __future__ import annotations

from dataclasses import replace

from shardplan.ask.forms import QuestionForm, SpaceForm
from shardplan.ask.task_forms import ScaleForm
from shardplan.cli.decisions.files import ChartFlags
from shardplan.cli.flags.option_groups import with_flags
from shardplan.cli.flags.plan import OutputFlags


@with_flags
def scale(
    *,
    flags: QuestionForm,
    space: SpaceForm,
    output: OutputFlags,
    charts: ChartFlags,
    wanted: ScaleForm,
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

    put, sizes = asked_at_sizes(flags, space)
    searches, assumed = searches_of(put, space)
    with progress_bar("planning each size") as progress:
        found = scaling(put.question, sizes, searches, least_gain=wanted.least_gain or LEAST_GAIN, progress=progress)
    answer = replace(found, assumptions=assumed)
    return files.show(scale_document(answer, (*given_by_user(flags, space), *put.warnings)))
