"""``shardplan pareto``: the plans that no other is better than in every respect."""

from __future__ import annotations

from dataclasses import replace

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


@with_flags
def pareto(
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
) -> int:
    """List the plans that no other is better than: in step time, memory headroom and robustness.

    The front is exact over all plans of the search space that fit. Robustness is the step time where things are worse.
    """
    files = charts.files(output)
    files.check(model, cluster.cluster, cluster.accelerator, stack, profile)
    from shardplan.cli.decisions.asking import check_one_stack, searches_of
    from shardplan.cli.question import QuestionFlags, ask, given_by_user
    from shardplan.decisions.pareto import pareto_front
    from shardplan.plotting.decisions.pareto import pareto_chart
    from shardplan.reports.decisions.pareto import pareto_record, pareto_rows

    check_one_stack(stack, "pareto")
    flags = QuestionFlags(
        cluster=cluster, overrides=overrides, job=job, software=software, stack=stack, profile=profile
    )
    asked = ask(model, flags)
    searches, assumed = searches_of(asked, space)
    front = replace(pareto_front(asked.question, searches), assumptions=assumed)
    files.write(pareto_record(front), lambda: pareto_rows(front), pareto_chart)
    if not files.are_on_stdout:
        from shardplan.cli.layout import Page
        from shardplan.cli.show.decisions.pareto import show_pareto

        show_pareto(Page(), front, (*given_by_user(flags, space), *asked.warnings), files.written)
    return 0 if front.points else 1
