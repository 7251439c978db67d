"""``shardplan scale``, ``sensitivity``, ``whatif``, ``fit`` and ``pareto``: decisions that take many searches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shardplan.ask.forms import FileForm, PickField, QuestionForm, SpaceForm
from shardplan.ask.task_forms import FitForm, ScaleForm, SensitivityForm, WhatIfForm
from shardplan.base.errors import InputError
from shardplan.cli.flags import OutputFlags, with_flags
from shardplan.cli.output import ChartFlags
from shardplan.inputs.readers.typed import pairs_of

if TYPE_CHECKING:
    from shardplan.decide.largest import Sought
    from shardplan.estimation.question import PosedQuestion
    from shardplan.inputs.plan import Plan


@with_flags
def scale(*, flags: QuestionForm, space: SpaceForm, output: OutputFlags, charts: ChartFlags, wanted: ScaleForm) -> int:
    """Plan one job on clusters of several sizes, and say where more accelerators stop paying.

    --gpus and --nodes take a range, whose sizes double (64..4096 or 64-4096), or a list (64,96,128). The global batch
    is the same at every size, by default that of `plan` at the largest. The answer of `shardplan rl` can replace the
    model; its step is then planned at every size.
    """
    files = charts.files(output, *flags.reads)
    from shardplan.answers.decisions.scale import scale_document
    from shardplan.cli.progress import progress_bar
    from shardplan.cli.question import searched
    from shardplan.cli.runs import rl_question
    from shardplan.decide.scale import LEAST_GAIN, scaling

    least_gain = wanted.least_gain or LEAST_GAIN
    of_rl = rl_question(flags.model, flags, space, but=("model", "num_accelerators"))
    with progress_bar("planning each size") as progress:
        if of_rl is not None:
            return files.show(of_rl.scale(_given_sizes(flags), least_gain=least_gain, progress=progress).document())
        asked, sizes = _question_and_sizes(flags, space)
        posed, searches, given = searched(flags, space, asked)
        found = scaling(posed.question, sizes, searches, least_gain=least_gain, progress=progress)
    return files.show(scale_document(replace(found, assumptions=posed.assumptions), given))


@with_flags
def sensitivity(
    *, flags: QuestionForm, space: SpaceForm, output: OutputFlags, charts: ChartFlags, wanted: SensitivityForm
) -> int:
    """Say which hardware parameter pays: the elasticity of the best step time to each of them.

    The fastest plan is searched again with every parameter worse and better. A plan file or the answer of
    `shardplan rl` can replace the model.
    """
    files = charts.files(output, *flags.reads)
    from shardplan.answers.decisions.sensitivity import sensitivity_document
    from shardplan.cli.progress import progress_bar
    from shardplan.cli.question import asked_of_file, searched
    from shardplan.cli.runs import rl_question
    from shardplan.decide.sensitivity import FACTOR, sensitivity_of

    factor, of_rl = wanted.factor or FACTOR, rl_question(flags.model, flags, space, but=("model",))
    with progress_bar("planning with other hardware") as progress:
        if of_rl is not None:
            return files.show(of_rl.sensitivity(factor=factor, progress=progress).document())
        posed, searches, given = searched(flags, space, asked_of_file(flags))
        found = sensitivity_of(posed.question, searches, factor=factor, progress=progress)
    return files.show(sensitivity_document(replace(found, assumptions=posed.assumptions), given))


@with_flags
def whatif(
    *,
    flags: QuestionForm,
    space: SpaceForm,
    output: OutputFlags,
    charts: ChartFlags,
    wanted: WhatIfForm,
    pick: PickField = None,
) -> int:
    """Change the cluster or the job of a plan, plan again, and compare term by term.

    MODEL can also be a plan file, whose values flags replace, or the answer of `shardplan rl`. Without a plan file, the
    recommended plan is searched first. Changes are made one after the other. Bandwidths are in GB/s per accelerator and
    direction.
    """
    files = charts.files(output, *flags.reads)
    from shardplan.answers.decisions.whatif import whatif_document
    from shardplan.cli.progress import progress_bar
    from shardplan.cli.question import searched
    from shardplan.cli.runs import rl_question
    from shardplan.decide.whatif import planned_first, what_if

    of_rl = rl_question(flags.model, flags, space, FileForm(pick=pick), but=("model",))
    if of_rl is not None:
        named = pairs_of("--change", wanted.change or ())
        with progress_bar("planning again") as progress:
            return files.show(of_rl.whatif(named, progress=progress).document())
    changes = _changes(wanted.change or ())
    asked, plan = _plan_of_file(flags, space, pick)
    posed, searches, given = searched(flags, space, asked)
    first, taken = (None, plan) if plan is not None else planned_first(posed.question, searches)
    with progress_bar("planning again") as progress:
        found = what_if(posed.question, taken, changes, searches, before=first, progress=progress)
    return files.show(whatif_document(replace(found, assumptions=posed.assumptions), given))


def _plan_of_file(flags: QuestionForm, space: SpaceForm, pick: str | None) -> tuple[PosedQuestion, Plan | None]:
    """The question and the plan of a plan file; for a question from flags, no plan. Raises InputError."""
    from shardplan.cli.question import asked, asked_again, picked_from
    from shardplan.reports.plan_file import is_plan_file, read_plan_file

    if flags.model is not None and is_plan_file(flags.model):
        read = read_plan_file(flags.model)
        before = picked_from(read, pick)
        return asked_again(read, replace(flags, model=None), before.framework), before.plan
    if pick is not None:
        raise InputError(
            f"--pick {pick} is given without a plan file",
            rule="--pick names a plan of a file",
            hint="leave --pick out, or give a plan file as MODEL",
        )
    return asked(flags, space), None


def _changes(texts: Sequence[str]) -> dict[str, Any]:
    """Values by name from ``name=value``, read like the flags of the same names. Raises InputError."""
    from shardplan.decide.whatif import change_of, check_named_once

    found = [(name.strip("-").replace("-", "_"), value) for name, value in pairs_of("--change", texts)]
    check_named_once([name for name, _ in found])
    return dict(change_of(name, text) for name, text in found)


@with_flags
def fit(*, flags: QuestionForm, space: SpaceForm, output: OutputFlags, charts: ChartFlags, wanted: FitForm) -> int:
    """Find the largest sequence, micro-batch or model, or the smallest cluster, that fits, with its plan.

    Sequence lengths are tried in steps of 1,024 tokens, clusters in whole nodes.
    """
    files = charts.files(output, *flags.reads)
    from shardplan.answers.decisions.fit import fit_document
    from shardplan.cli.question import searched
    from shardplan.decide.largest import fitted, still_assumed

    sought = _sought(wanted.largest, wanted.smallest)
    _check_not_given(flags, sought)
    if sought == "gpus":
        flags = replace(flags, num_accelerators="1")
    posed, searches, given = searched(flags, space)
    found = fitted(posed.question, sought, searches, keeps_batch="global_batch_size" in flags.job)
    answer = replace(found, assumptions=still_assumed(sought, posed.assumptions))
    return files.show(fit_document(answer, given))


def _sought(largest: str | None, smallest: str | None) -> Sought:
    """What is maximised or minimised. Raises InputError."""
    from shardplan.decide.largest import sought_of

    if (largest is None) == (smallest is None):
        given = "neither --largest nor --smallest is given" if largest is None else "--largest and --smallest are given"
        raise InputError(
            given,
            rule="one of --largest and --smallest is given",
            hint="add --largest sequence_length, micro_batch_size or layers, or --smallest gpus",
        )
    return sought_of(largest or smallest or "", is_largest=largest is not None)


def _check_not_given(flags: QuestionForm, sought: Sought) -> None:
    """Refuses a question that gives the value to find. Raises InputError."""
    given = {
        "gpus": flags.num_accelerators is not None or flags.nodes is not None,
        "sequence_length": "sequence_length" in flags.job,
    }
    if given.get(sought):
        flag = "--gpus or --nodes" if sought == "gpus" else "--sequence-length"
        raise InputError(
            f"{flag} is given, and {sought} is sought", rule="what is sought is not given", hint=f"leave {flag} out"
        )


@with_flags
def pareto(*, flags: QuestionForm, space: SpaceForm, output: OutputFlags, charts: ChartFlags) -> int:
    """List the best compromises: plans or sizes that no other beats in time, memory, robustness and money.

    The front is exact over all plans of the search space that fit. Robustness is the pessimistic step time. A plan file
    can replace the model: its question is asked.

    If --gpus is a range (64..4096) or a list (64,96,128), sizes are compared by time, accelerators and money, each with
    its recommended plan. With --tokens the time is that of the whole run, failures included.
    """
    files = charts.files(output, *flags.reads)
    from shardplan.cli.question import are_several, asked_of_file, searched
    from shardplan.decide.pareto import pareto_front, sizes_front

    if not are_several(flags):
        from shardplan.answers.decisions.pareto import pareto_document

        posed, searches, given = searched(flags, space, asked_of_file(flags))
        front = replace(pareto_front(posed.question, searches), assumptions=posed.assumptions)
        return files.show(pareto_document(front, given))
    from shardplan.answers.decisions.pareto_sizes import pareto_sizes_document
    from shardplan.cli.progress import progress_bar

    asked, sizes = _question_and_sizes(flags, space)
    posed, searches, given = searched(flags, space, asked)
    with progress_bar("planning each size") as progress:
        found = sizes_front(posed.question, sizes, searches, progress=progress)
    found = replace(found, assumptions=(*posed.assumptions, *found.assumptions))
    return files.show(pareto_sizes_document(found, given))


def _question_and_sizes(flags: QuestionForm, space: SpaceForm) -> tuple[PosedQuestion, list[int]]:
    """The question at the largest size, and all sizes. Raises InputError."""
    from shardplan.cli.question import asked
    from shardplan.decide.scale import sizes_in

    if flags.num_accelerators is None and flags.nodes is None:
        return asked(flags, space), []  # raises, naming what is missing
    if flags.num_accelerators is not None and flags.nodes is not None:
        raise InputError(
            "--gpus and --nodes are both given", rule="the sizes are given once", hint="leave one of them out"
        )
    flag = "--gpus" if flags.num_accelerators is not None else "--nodes"
    sizes = sizes_in(flags.num_accelerators or flags.nodes or "", flag)
    last = str(max(sizes))
    largest = replace(flags, num_accelerators=last) if flag == "--gpus" else replace(flags, nodes=last)
    posed = asked(largest, space)
    per_size = 1 if flag == "--gpus" else posed.question.cluster.accelerators_per_node
    return posed, [size * per_size for size in sizes]


def _given_sizes(flags: QuestionForm) -> list[int]:
    """The sizes of ``--gpus``. Raises InputError."""
    from shardplan.decide.scale import sizes_in

    if flags.num_accelerators is None:
        raise InputError("--gpus is not given", rule="the sizes are given", hint="add --gpus 8..64, or --gpus 8,16,24")
    return sizes_in(flags.num_accelerators, "--gpus")
