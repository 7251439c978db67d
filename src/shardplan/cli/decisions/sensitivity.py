"""``shardplan sensitivity``: which hardware parameter pays."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from shardplan.cli.decisions.files import ChartFlags
from shardplan.cli.flags.option_groups import with_flags
from shardplan.cli.flags.plan import (
    ClusterFlags,
    JobFlags,
    ModelArgument,
    OutputFlags,
    OverrideFlags,
    ProfileFlag,
    SoftwareFlags,
    SpaceFlags,
    StackFlag,
)
from shardplan.inputs.readers.typed import number

FactorFlag = Annotated[
    str | None,
    typer.Option(
        metavar="FACTOR",
        help="Every parameter is divided and multiplied by this. Default: 1.25.",
        rich_help_panel="Search",
    ),
]


@with_flags
def sensitivity(
    *,
    model: ModelArgument = None,
    cluster: ClusterFlags,
    job: JobFlags,
    software: SoftwareFlags,
    space: SpaceFlags,
    overrides: OverrideFlags,
    output: OutputFlags,
    charts: ChartFlags,
    stack: StackFlag = None,
    profile: ProfileFlag = None,
    factor: FactorFlag = None,
) -> int:
    """Say which hardware parameter pays: the elasticity of the best step time to each of them.

    The fastest plan is sought anew with every parameter worse and better: twice as many searches as parameters.
    """
    files = charts.files(output)
    files.check(model, cluster.cluster, cluster.accelerator, stack, profile)
    from shardplan.cli.decisions.asking import check_one_stack, searches_of
    from shardplan.cli.progress import progress_bar
    from shardplan.cli.question import QuestionFlags, ask, given_by_user
    from shardplan.decisions.sensitivity import FACTOR, sensitivity_of
    from shardplan.plotting.decisions.sensitivity import sensitivity_chart
    from shardplan.reports.decisions.sensitivity import sensitivity_record, sensitivity_rows

    check_one_stack(stack, "sensitivity")
    by = FACTOR if factor is None else number(factor, "--factor", least=1.0, most=10.0)
    flags = QuestionFlags(
        cluster=cluster, overrides=overrides, job=job, software=software, stack=stack, profile=profile
    )
    asked = ask(model, flags)
    searches, assumed = searches_of(asked, space)
    with progress_bar("planning with other hardware") as progress:
        found = sensitivity_of(asked.question, searches, factor=by, progress=progress)
    answer = replace(found, assumptions=assumed)
    files.write(sensitivity_record(answer), lambda: sensitivity_rows(answer), sensitivity_chart)
    if not files.are_on_stdout:
        from shardplan.cli.layout import Page
        from shardplan.cli.show.decisions.sensitivity import show_sensitivity

        show_sensitivity(Page(), answer, (*given_by_user(flags, space), *asked.warnings), files.written)
    return 0 if answer.base.estimate is not None else 1
