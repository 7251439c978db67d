"""``shardplan budget``: how many accelerators, for how long, for how much."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from shardplan.cli.flags.option_groups import with_flags
from shardplan.cli.flags.options import named
from shardplan.cli.flags.plan import (
    ClusterFlags,
    JobFlags,
    ModelArgument,
    OutputFlags,
    OverrideFlags,
    ProfileFlag,
    SoftwareFlags,
    StackFlag,
)
from shardplan.cli.flags.records import FlagsOf, Given
from shardplan.decisions.operations import Operations
from shardplan.errors import InputError
from shardplan.fields import dataclass
from shardplan.inputs.readers.typed import number, values_of
from shardplan.outputs.target import CSV, HTML, PNG, JsonTarget
from shardplan.units import parse_count, parse_quantity

if TYPE_CHECKING:
    from shardplan.cli.question import QuestionFlags
    from shardplan.decisions.budget import ClusterBudget, Limits, Restricted, RunQuestion

MOST_CLUSTERS: Final = 20
JOULES_PER_KWH: Final = 3.6e6
OperationsFlags = Annotated[Given, FlagsOf(Operations, "Operations")]


def _limit(name: str, text: str, metavar: str) -> Any:
    return typer.Option(name, help=text, metavar=metavar, rich_help_panel="Budget: the others are worked out")


def _search(text: str) -> Any:
    return typer.Option(help=text, metavar="FIELD=VALUES", rich_help_panel="Search")


def _file(name: str, text: str) -> Any:
    return typer.Option(name, help=text, metavar="FILE", rich_help_panel="Output")


@dataclass(frozen=True, kw_only=True)
class BudgetFlags:
    """Where, and what the run may take."""

    clusters: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            "--clusters",
            metavar="NAME|FILE[,...]",
            help="Clusters (see `shardplan clusters`), or paths of files; several are set side by side.",
            rich_help_panel="Cluster",
            autocompletion=named("clusters"),
        ),
    ] = None
    days: Annotated[str | None, _limit("--days", "The run takes at most this many days.", "N")] = None
    num_accelerators: Annotated[str | None, _limit("--gpus", "It uses exactly this many accelerators.", "N")] = None
    money: Annotated[str | None, _limit("--money", "It costs this at most: 50M.", "N")] = None
    energy: Annotated[str | None, _limit("--energy", "It takes this at most: 20GWh; bare in kWh.", "VALUE")] = None
    batch_ramp: Annotated[
        str | None,
        typer.Option(
            metavar="BATCH[xLENGTH]:TOKENS,...",
            help="A batch, or batch x sequence length, until a number of tokens is done: 512x4096:252M,1024:2.87T.",
            rich_help_panel="Job",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class BudgetSpaceFlags:
    """The plans that are searched."""

    fix: Annotated[list[str] | None, _search("Fix a field of the plan: tp=4.")] = None
    limit: Annotated[list[str] | None, _search("Search these values only: pp=1,2,4,8.")] = None
    exclude: Annotated[list[str] | None, _search("Leave these values out: sharding=zero3.")] = None


@dataclass(frozen=True, kw_only=True)
class FileFlags:
    """Tables, figures, and how much is printed."""

    csv: Annotated[str | None, _file("--csv", "Write a row for each cluster.")] = None
    html: Annotated[str | None, _file("--html", "Write a page with figures.")] = None
    png: Annotated[str | None, _file("--png", "Write the figures as a picture.")] = None
    assumptions: Annotated[
        bool, typer.Option("--assumptions", help="Also print all that was assumed.", rich_help_panel="Output")
    ] = False


@with_flags
def budget(
    *,
    model: ModelArgument = None,
    wanted: BudgetFlags,
    job: JobFlags,
    operations: OperationsFlags,
    software: SoftwareFlags,
    space: BudgetSpaceFlags,
    overrides: OverrideFlags,
    output: OutputFlags,
    files: FileFlags,
    stack: StackFlag = None,
    profile: ProfileFlag = None,
) -> int:
    """Say how many accelerators, days and how much money and energy a training run takes.

    Give --tokens and what the run may take. The rest is worked out: the fewest accelerators that are done within
    --days, or the run that is done soonest for --money or --energy. Without any of these it may take 90 days.
    """
    target = output.target()
    targets = _targets(files, output)
    for each in (target, *targets.values()):
        each.check(model, stack, profile)
    from shardplan.cli.question import QuestionFlags

    flags = QuestionFlags(
        cluster=ClusterFlags(num_accelerators=wanted.num_accelerators),
        overrides=overrides,
        job=job,
        software=software,
        stack=stack,
        profile=profile,
    )
    budgets = _budgets(model, flags, wanted, Operations(**values_of(Operations, operations)), space)
    _write(budgets, target, targets)
    if not target.is_stdout:
        from shardplan.cli.layout import Page
        from shardplan.cli.show.decisions.budget import show_budget

        show_budget(Page(), budgets, states_assumptions=files.assumptions)
    return 0 if all(each.option is not None and not each.option.shortfalls for each in budgets) else 1


def _targets(files: FileFlags, output: OutputFlags) -> dict[str, JsonTarget]:
    """Where tables and figures go, by flag."""
    kinds = {"csv": CSV, "html": HTML, "png": PNG}
    return {
        name: output.target(getattr(files, name), f"--{name}", kind)
        for name, kind in kinds.items()
        if getattr(files, name) is not None
    }


def _budgets(
    model: str | None, flags: QuestionFlags, wanted: BudgetFlags, operations: Operations, space: BudgetSpaceFlags
) -> tuple[ClusterBudget, ...]:
    """The answer for each cluster. Raises InputError."""
    from shardplan.cli.progress import progress_bar
    from shardplan.decisions.budget import budget_of

    limits, restricted = _limits(wanted), _restricted(space)
    asked = [_asked(model, name, flags) for name in _names(wanted.clusters)]
    with progress_bar("searching") as progress:
        return tuple(
            budget_of(each, limits, operations, batch_ramp=wanted.batch_ramp, restricted=restricted, progress=progress)
            for each in asked
        )


def _names(text: str | None) -> Iterator[str | None]:
    """The clusters that are named. Raises InputError."""
    names = [None] if text is None else text.split(",")
    if len(names) > MOST_CLUSTERS or "" in names:
        raise InputError(
            f"--cluster names {len(names)} clusters" + (", one of them empty" if "" in names else ""),
            rule=f"--cluster is a list of 1 to {MOST_CLUSTERS} names or files",
            hint="write --cluster dgx-h100,dgx-b200",
        )
    yield from names


def _asked(model: str | None, cluster: str | None, flags: QuestionFlags) -> RunQuestion:
    """What is trained on a cluster. Raises InputError."""
    from shardplan.cli.question import ask
    from shardplan.decisions.budget import RunQuestion

    has_batch = "global_batch_size" in flags.job
    job = flags.job if has_batch else {**flags.job, "global_batch_size": "1"}
    of_cluster = replace(flags.cluster, cluster=cluster, num_accelerators=flags.cluster.num_accelerators or "1")
    put = ask(model, replace(flags, cluster=of_cluster, job=job))
    return RunQuestion(put.question, put.stack, put.assumptions, has_batch)


def _limits(wanted: BudgetFlags) -> Limits:
    """What the run may take. Raises InputError."""
    from shardplan.decisions.budget import Limits
    from shardplan.estimation.question import MAX_NUM_ACCELERATORS
    from shardplan.inputs.readers.typed import whole

    gpus, money, energy = wanted.num_accelerators, wanted.money, wanted.energy
    return Limits(
        days=None if wanted.days is None else number(wanted.days, "--days"),
        num_accelerators=None if gpus is None else whole(gpus, "--gpus", most=MAX_NUM_ACCELERATORS),
        money=None if money is None else float(parse_count(money, field="--money")),
        energy=None if energy is None else parse_quantity(energy, "energy", field="--energy") / JOULES_PER_KWH,
    )


def _restricted(space: BudgetSpaceFlags) -> Restricted:
    """Values of ``--fix``, ``--limit`` and ``--exclude``. Raises InputError."""
    from shardplan.cli.question import choices
    from shardplan.decisions.budget import Restricted

    return Restricted(**{name: choices(f"--{name}", getattr(space, name)) for name in ("fix", "limit", "exclude")})


def _write(budgets: tuple[ClusterBudget, ...], target: JsonTarget, targets: dict[str, JsonTarget]) -> None:
    """The files that were asked for. Raises InputError."""
    from shardplan.reports.decisions.budget import budget_record, budget_rows

    record = budget_record(budgets)
    if target.where is not None:
        target.write(record)
    if not record["options"]:
        return
    if "csv" in targets:
        from shardplan.cli.figure_files import table_text

        targets["csv"].write_text(table_text(budget_rows(budgets)))
    if targets.keys() & {"html", "png"}:
        from shardplan.plotting.budget import budget_chart

        chart = budget_chart(record)
        if "html" in targets:
            from shardplan.plotting.page import html_page

            targets["html"].write_text(html_page(chart))
        if "png" in targets:
            from shardplan.plotting.picture import png_picture

            targets["png"].write_bytes(png_picture(chart))
