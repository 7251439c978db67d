"""``shardplan budget`` and ``rl``: a whole training run, and a step of reinforcement learning."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from shardplan.ask.forms import (
    AcceleratorField,
    JobFields,
    ModelField,
    NodesField,
    ProfileField,
    QuestionForm,
    Replaced,
    ReplacedFields,
    SoftwareField,
    SpaceForm,
    StackField,
)
from shardplan.ask.rl_forms import RlForm, RlRunForm
from shardplan.ask.task_forms import BudgetForm
from shardplan.base.errors import InputError, shown
from shardplan.base.fields import FieldOf, FieldsOf, Given, described, replace
from shardplan.base.units import parse_count, parse_quantity
from shardplan.cli.flags import DetailFlags, OutputFlags, with_flags
from shardplan.cli.output import ChartFlags
from shardplan.decide.operations import Operations
from shardplan.inputs.job import Job
from shardplan.inputs.readers.typed import values_of

if TYPE_CHECKING:
    from shardplan.api.rl import AskedAgain, RlDecisionAnswer
    from shardplan.decide.batches import BatchLimits
    from shardplan.decide.budget import Limits, RunQuestion
    from shardplan.decide.searching import Progress

MOST_CLUSTERS: Final = 20
OperationsFields = Annotated[Given, FieldsOf(Operations, "Operations")]
AssumptionsField = Annotated[bool, FieldOf(DetailFlags, "assumptions")]


@with_flags
def budget(
    *,
    model: ModelField = None,
    accelerator: AcceleratorField = None,
    nodes: NodesField = None,
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
    """Say how many accelerators and days, and how much money and energy, a training run takes.

    Give --tokens and the limits of the run. The rest is worked out: the fewest accelerators that finish within
    --days, or the run that finishes first for --money or --energy. Without any of these it may take 90 days.

    The answer of `shardplan rl` can replace the model, with --steps instead of --tokens.
    """
    files = charts.files(output, model, accelerator, stack, profile)
    from shardplan.answers.decisions.budget import budget_document
    from shardplan.cli.progress import progress_bar
    from shardplan.decide.budget import budget_of

    flags = QuestionForm(
        model=model,
        accelerator=accelerator,
        num_accelerators=wanted.num_accelerators or ("1" if nodes is None else None),
        nodes=nodes,
        overrides=overrides,
        job=job,
        software=software,
        stack=stack,
        profile=profile,
    )
    known = Operations(**values_of(Operations, operations))
    of_rl = rl_question(model, flags, wanted, space, known, but=("model", "days", "num_accelerators", "nodes", "money"))
    with progress_bar("searching") as progress:
        if of_rl is not None:
            return files.show(_budget_of_rl(of_rl, run.steps, wanted, flags, progress).document())
        _refuse_steps(run.steps)
        runs = _runs(flags, wanted, space)
        budgets = tuple(budget_of(*each, known, batch_ramp=wanted.batch_ramp, progress=progress) for each in runs)
    return files.show(budget_document(budgets, states_assumptions=assumptions))


def _budget_of_rl(
    asked: AskedAgain, steps: int | None, wanted: BudgetForm, flags: QuestionForm, progress: Progress | None
) -> RlDecisionAnswer:
    """The budget of a run of RL steps. Raises InputError."""
    size = _size_of_rl(asked, wanted, flags)
    return asked.budget(steps, days=wanted.days, num_accelerators=size, money=_money(wanted), progress=progress)


def _refuse_steps(steps: int | None) -> None:
    """Raise InputError if steps are given for a run that is counted in tokens."""
    if steps is not None:
        raise InputError(
            "--steps is given without the answer of `shardplan rl`",
            rule="a training run has tokens, a run of RL steps",
            hint="give --tokens instead of --steps, or the file of `shardplan rl ... --json rl.json` as MODEL",
        )


def _runs(flags: QuestionForm, wanted: BudgetForm, space: SpaceForm) -> list[tuple[RunQuestion, Limits]]:
    """The question and the limits of the run on each named cluster. Raises InputError."""
    from shardplan.decide.batches import parse_batch_limits

    batches = None if wanted.batch_limits is None else parse_batch_limits(wanted.batch_limits)
    asked = [_run_question(name, flags, space, batches) for name in _names(wanted.clusters)]
    is_sized = wanted.num_accelerators is not None or flags.nodes is not None
    return [(each, _limits(wanted, each.question.num_given if is_sized else None)) for each in asked]


def _names(text: str | None) -> list[str] | list[None]:
    """The named clusters. Raises InputError."""
    if text is None:
        return [None]
    names = text.split(",")
    if len(names) > MOST_CLUSTERS or "" in names:
        raise InputError(
            f"--cluster names {len(names)} clusters" + (", one of them empty" if "" in names else ""),
            rule=f"--cluster is a list of 1 to {MOST_CLUSTERS} names or files",
            hint="write --cluster dgx-h100,dgx-b200",
        )
    return names


def _run_question(
    cluster: str | None, flags: QuestionForm, space: SpaceForm, batches: BatchLimits | None
) -> RunQuestion:
    """The question of a run on a cluster. Raises InputError."""
    from shardplan.cli.question import searched
    from shardplan.decide.budget import RunQuestion

    has_batch = "global_batch_size" in flags.job
    job = flags.job if has_batch else {**flags.job, "global_batch_size": "1"}
    posed, searches, _ = searched(replace(flags, cluster=cluster, job=job), space)
    return RunQuestion(posed.question, searches, posed.assumptions, has_batch, batches)


def _limits(wanted: BudgetForm, size: int | None) -> Limits:
    """The limits of the run, including the number of accelerators if given. Raises InputError."""
    from shardplan.decide.budget import Limits
    from shardplan.decide.operations import JOULES_PER_KWH

    energy = wanted.energy
    return Limits(
        days=wanted.days,
        num_accelerators=size,
        money=_money(wanted),
        energy=None if energy is None else parse_quantity(energy, "energy", field="--energy") / JOULES_PER_KWH,
    )


def _size_of_rl(asked: AskedAgain, wanted: BudgetForm, flags: QuestionForm) -> int | None:
    """The accelerators of all RL steps, if they or their nodes are given. Raises InputError."""
    from shardplan.ask.questions import record_of, world_of

    record = record_of(replace(flags, num_accelerators=wanted.num_accelerators, model=None))
    size, _ = world_of(
        asked.question.posed().task.question.cluster, record.get("num_accelerators"), record.get("nodes")
    )
    return None if size is None else int(size)


def _money(wanted: BudgetForm) -> float | None:
    return None if wanted.money is None else float(parse_count(wanted.money, field="--money"))


@with_flags
def rl(*, flags: QuestionForm, step: RlForm, space: SpaceForm, output: OutputFlags, charts: ChartFlags) -> int:
    """Plan a step of reinforcement learning: how many accelerators train, how many generate, and which wait.

    The trainer's plans, the layouts of the engine, the split of the accelerators and their placement are searched.
    Fields are fixed by pool: --fix train.pp=16 --fix rollout.tp=32. --gpus takes trainer+generation (64+128) if the
    pools are given. scale, budget, whatif and sensitivity take the answer (--json rl.json) as their model.
    """
    files = charts.files(output, *flags.reads)
    from shardplan.api.rl import planned
    from shardplan.ask.questions import record_of
    from shardplan.cli.progress import progress_bar
    from shardplan.cli.question import are_several, given_by_user
    from shardplan.rl.question import RlQuestion

    if are_several(flags):
        raise InputError(
            f"--gpus is {shown(flags.num_accelerators or flags.nodes)}",
            rule="an RL step is planned on one number of accelerators; sizes are compared by `shardplan scale`",
            hint="plan one size with --json rl.json, then run: shardplan scale rl.json --gpus 8..64",
        )
    pools = flags.num_accelerators
    are_apart = pools is not None and not pools.isdecimal()
    record = record_of(replace(flags, num_accelerators=None) if are_apart else flags, space)
    record |= {"num_accelerators": pools} if are_apart else {}
    asked = RlQuestion(record=record, step={each.name: getattr(step, each.name) for each in fields(step)})
    with progress_bar("planning each placement") as progress:
        found = planned(asked, given_by_user(flags, space), progress=progress)
    return files.show(found.document())


def rl_question(path: str | Path | None, *forms: object, but: Collection[str] = ()) -> AskedAgain | None:
    """The question of the answer of ``shardplan rl``; None if the path is of something else.

    ``forms`` are other given values, of which fields other than ``but`` belong to another question. Raises InputError.
    """
    from shardplan.rl.question import is_rl_file

    if not is_rl_file(path):
        return None
    from shardplan.api.rl import load_rl

    given = next((flag for form in forms for name, flag in _given_flags(form) if name not in but), None)
    if given is not None:
        raise InputError(
            f"{given} is given with {path}, which holds a whole question",
            rule="the answer of `shardplan rl` is asked again as it was",
            hint=f"leave {given} out, or give it to `shardplan rl` and save that answer",
        )
    return load_rl(str(path))


def _given_flags(form: Any) -> Iterator[tuple[str, str]]:
    """Names and flags of the given fields of a form."""
    known, records = described(type(form)), {"job": Job, "overrides": Replaced}
    for each in fields(form):
        value = getattr(form, each.name)
        if each.name in records:
            yield from ((name, described(records[each.name])[name].flag) for name in value)
        elif value and each.name in known and value != known[each.name].default:
            yield each.name, known[each.name].flag
