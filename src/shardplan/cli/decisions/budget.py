"""``shardplan budget``: how many accelerators, for how long, for how much."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

from shardplan.cli.decisions.files import ChartFlags
from shardplan.cli.flags.completion import named
from shardplan.cli.flags.flag import flag
from shardplan.cli.flags.option_groups import with_flags
from shardplan.cli.flags.plan import (
    ClusterFlags,
    JobFlags,
    ModelArgument,
    OutputFlags,
    OverrideFlags,
    ProfileFlag,
    QuestionFlags,
    SoftwareFlags,
    SpaceFlags,
    StackFlag,
)
from shardplan.cli.flags.records import FlagsOf, Given
from shardplan.decisions.operations import Operations
from shardplan.errors import InputError
from shardplan.fields import dataclass
from shardplan.inputs.readers.typed import number, values_of
from shardplan.units import parse_count, parse_quantity

if TYPE_CHECKING:
    from shardplan.decisions.batches import BatchLimits
    from shardplan.decisions.budget import ClusterBudget, Limits, RunQuestion

MOST_CLUSTERS: Final = 20
OperationsFlags = Annotated[Given, FlagsOf(Operations, "Operations")]
AssumptionsFlag = Annotated[bool, flag("Also print all that was assumed.", "--assumptions", panel="Output")]

_limit = partial(flag, panel="Budget: the others are worked out")


@dataclass(frozen=True, kw_only=True)
class BudgetFlags:
    """Where, and what the run may take."""

    clusters: Annotated[
        str | None,
        flag(
            "Clusters (see `shardplan clusters`), or paths of files; several are set side by side.",
            "--cluster",
            "--clusters",
            panel="Cluster",
            metavar="NAME|FILE[,...]",
            autocompletion=named("clusters"),
        ),
    ] = None
    days: Annotated[str | None, _limit("The run takes at most this many days.", "--days", metavar="N")] = None
    num_accelerators: Annotated[
        str | None,
        _limit("It uses exactly this many accelerators; `shardplan pareto` compares sizes.", "--gpus", metavar="N"),
    ] = None
    money: Annotated[str | None, _limit("It costs this at most: 50M.", "--money", metavar="N")] = None
    energy: Annotated[str | None, _limit("It takes this at most: 20GWh; bare in kWh.", "--energy", metavar="VALUE")] = (
        None
    )
    batch_ramp: Annotated[
        str | None,
        flag(
            "A batch, or batch x sequence length, until a number of tokens is done: 512x4096:252M,1024:2.87T.",
            panel="Job",
            metavar="BATCH[xLENGTH]:TOKENS,...",
        ),
    ] = None
    batch_limits: Annotated[
        str | None,
        flag(
            "Choose the batch of every size within these sequences per step: 1024..4096.",
            panel="Job",
            metavar="LOW..HIGH",
        ),
    ] = None


@with_flags
def budget(
    *,
    model: ModelArgument = None,
    wanted: BudgetFlags,
    job: JobFlags,
    operations: OperationsFlags,
    software: SoftwareFlags,
    space: SpaceFlags,
    overrides: OverrideFlags,
    output: OutputFlags,
    charts: ChartFlags,
    assumptions: AssumptionsFlag = False,
    stack: StackFlag = None,
    profile: ProfileFlag = None,
) -> int:
    """Say how many accelerators, days and how much money and energy a training run takes.

    Give --tokens and what the run may take. The rest is worked out: the fewest accelerators that are done within
    --days, or the run that is done soonest for --money or --energy. Without any of these it may take 90 days.
    """
    files = charts.files(output)
    files.check(model, stack, profile)
    from shardplan.answers.decisions.budget import budget_document

    flags = QuestionFlags(
        model=model,
        cluster=ClusterFlags(num_accelerators=wanted.num_accelerators),
        overrides=overrides,
        job=job,
        software=software,
        stack=stack,
        profile=profile,
    )
    budgets = _budgets(flags, wanted, Operations(**values_of(Operations, operations)), space)
    return files.show(budget_document(budgets, states_assumptions=assumptions))


def _budgets(
    flags: QuestionFlags, wanted: BudgetFlags, operations: Operations, space: SpaceFlags
) -> tuple[ClusterBudget, ...]:
    """The answer for each cluster. Raises InputError."""
    from shardplan.cli.progress import progress_bar
    from shardplan.decisions.batches import parse_batch_limits
    from shardplan.decisions.budget import budget_of

    limits = _limits(wanted)
    batches = None if wanted.batch_limits is None else parse_batch_limits(wanted.batch_limits)
    asked = [_asked(name, flags, space, batches) for name in _names(wanted.clusters)]
    with progress_bar("searching") as progress:
        return tuple(
            budget_of(each, limits, operations, batch_ramp=wanted.batch_ramp, progress=progress) for each in asked
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


def _asked(cluster: str | None, flags: QuestionFlags, space: SpaceFlags, batches: BatchLimits | None) -> RunQuestion:
    """What is trained on a cluster. Raises InputError."""
    from shardplan.cli.question import ask, searches_of
    from shardplan.decisions.budget import RunQuestion

    has_batch = "global_batch_size" in flags.job
    job = flags.job if has_batch else {**flags.job, "global_batch_size": "1"}
    of_cluster = replace(flags.cluster, cluster=cluster, num_accelerators=flags.cluster.num_accelerators or "1")
    put = ask(replace(flags, cluster=of_cluster, job=job), space)
    searches, assumed = searches_of(put, space)
    return RunQuestion(put.question, searches, assumed, has_batch, batches)


def _limits(wanted: BudgetFlags) -> Limits:
    """What the run may take. Raises InputError."""
    from shardplan.decisions.budget import Limits
    from shardplan.decisions.money import JOULES_PER_KWH
    from shardplan.estimation.question import MAX_NUM_ACCELERATORS
    from shardplan.inputs.readers.typed import whole

    gpus, money, energy = wanted.num_accelerators, wanted.money, wanted.energy
    return Limits(
        days=None if wanted.days is None else number(wanted.days, "--days"),
        num_accelerators=None if gpus is None else whole(gpus, "--gpus", most=MAX_NUM_ACCELERATORS),
        money=None if money is None else float(parse_count(money, field="--money")),
        energy=None if energy is None else parse_quantity(energy, "energy", field="--energy") / JOULES_PER_KWH,
    )
