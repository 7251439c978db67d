"""``shardplan budget``: how many accelerators, for how long, for how much."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

from shardplan.ask.forms import (
    AcceleratorField,
    JobFields,
    ModelField,
    ProfileField,
    QuestionForm,
    ReplacedFields,
    SoftwareField,
    SpaceForm,
    StackField,
)
from shardplan.ask.rl_forms import RlRunForm
from shardplan.ask.task_forms import BudgetForm
from shardplan.base.errors import InputError
from shardplan.base.fields import FieldOf, FieldsOf, Given
from shardplan.base.units import parse_count, parse_quantity
from shardplan.cli.decisions.files import ChartFlags
from shardplan.cli.flags.option_groups import DetailFlags, OutputFlags, with_flags
from shardplan.decide.operations import Operations
from shardplan.inputs.readers.typed import values_of

if TYPE_CHECKING:
    from shardplan.answers.document import AnswerDocument
    from shardplan.decide.batches import BatchLimits
    from shardplan.decide.budget import ClusterBudget, Limits, RunQuestion
    from shardplan.inputs.cluster import Cluster

MOST_CLUSTERS: Final = 20
OperationsFields = Annotated[Given, FieldsOf(Operations, "Operations")]
AssumptionsField = Annotated[bool, FieldOf(DetailFlags, "assumptions")]


@with_flags
def budget(
    *,
    model: ModelField = None,
    accelerator: AcceleratorField = None,
    wanted: BudgetForm,
    run: RlRunForm,
    job: JobFields,
    operations: OperationsFields,
    software: SoftwareField = None,
    space: SpaceForm,
    overrides: ReplacedFields,
    output: OutputFlags,
    charts: ChartFlags,
    assumptions: AssumptionsField = False,
    stack: StackField = None,
    profile: ProfileField = None,
) -> int:
    """Say how many accelerators, days and how much money and energy a training run takes.

    Give --tokens and what the run may take. The rest is worked out: the fewest accelerators that are done within
    --days, or the run that is done soonest for --money or --energy. Without any of these it may take 90 days.

    In place of a model, the answer of `shardplan rl` is taken, with --steps for --tokens.
    """
    files = charts.files(output)
    files.check(model, accelerator, stack, profile)
    from shardplan.answers.decisions.budget import budget_document

    flags = QuestionForm(
        model=model,
        accelerator=accelerator,
        num_accelerators=wanted.num_accelerators or "1",
        overrides=overrides,
        job=job,
        software=software,
        stack=stack,
        profile=profile,
    )
    of_rl = _budget_of_rl(flags, wanted, run, space, Operations(**values_of(Operations, operations)))
    if of_rl is not None:
        return files.show(of_rl)
    if run.steps is not None:
        raise InputError(
            "--steps is given without the answer of `shardplan rl`",
            rule="a training run has tokens, a run of RL steps",
            hint="give --tokens in place of --steps, or the file of `shardplan rl ... --json rl.json` as MODEL",
        )
    budgets = _budgets(flags, wanted, Operations(**values_of(Operations, operations)), space)
    return files.show(budget_document(budgets, states_assumptions=assumptions))


def _budget_of_rl(
    flags: QuestionForm, wanted: BudgetForm, run: RlRunForm, space: SpaceForm, operations: Operations
) -> AnswerDocument | None:
    """The run of the answer of ``shardplan rl``; None where the model is none. Raises InputError."""
    from shardplan.cli.decisions.rl import rl_question
    from shardplan.cli.progress import progress_bar

    limits = ("days", "num_accelerators", "money")
    asked = rl_question(flags.model, flags, wanted, space, operations, but=("model", *limits))
    if asked is None:
        return None
    money = None if wanted.money is None else float(parse_count(wanted.money, field="--money"))
    with progress_bar("searching") as progress:
        size = _size(wanted, asked.question.put().task.question.cluster)
        return asked.budget(
            run.steps, days=wanted.days, num_accelerators=size, money=money, progress=progress
        ).document()


def _budgets(
    flags: QuestionForm, wanted: BudgetForm, operations: Operations, space: SpaceForm
) -> tuple[ClusterBudget, ...]:
    """The answer for each cluster. Raises InputError."""
    from shardplan.cli.progress import progress_bar
    from shardplan.decide.batches import parse_batch_limits
    from shardplan.decide.budget import budget_of

    batches = None if wanted.batch_limits is None else parse_batch_limits(wanted.batch_limits)
    asked = [_asked(name, flags, space, batches) for name in _names(wanted.clusters)]
    wanted_limits = [_limits(wanted, each.question.cluster) for each in asked]
    with progress_bar("searching") as progress:
        return tuple(
            budget_of(each, limits, operations, batch_ramp=wanted.batch_ramp, progress=progress)
            for each, limits in zip(asked, wanted_limits, strict=True)
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


def _asked(cluster: str | None, flags: QuestionForm, space: SpaceForm, batches: BatchLimits | None) -> RunQuestion:
    """What is trained on a cluster. Raises InputError."""
    from shardplan.cli.question import asked, searches_of
    from shardplan.decide.budget import RunQuestion

    has_batch = "global_batch_size" in flags.job
    job = flags.job if has_batch else {**flags.job, "global_batch_size": "1"}
    put = asked(replace(flags, cluster=cluster, job=job), space)
    searches, assumed = searches_of(put, space)
    return RunQuestion(put.question, searches, assumed, has_batch, batches)


def _limits(wanted: BudgetForm, cluster: Cluster) -> Limits:
    """What the run may take on a cluster. Raises InputError."""
    from shardplan.decide.budget import Limits
    from shardplan.decide.operations import JOULES_PER_KWH

    money, energy = wanted.money, wanted.energy
    return Limits(
        days=wanted.days,
        num_accelerators=_size(wanted, cluster),
        money=None if money is None else float(parse_count(money, field="--money")),
        energy=None if energy is None else parse_quantity(energy, "energy", field="--energy") / JOULES_PER_KWH,
    )


def _size(wanted: BudgetForm, cluster: Cluster) -> int | None:
    """The accelerators that the run uses, where they are given. Raises InputError."""
    from shardplan.ask.questions import size_of

    return None if wanted.num_accelerators is None else size_of(wanted.num_accelerators, cluster)
