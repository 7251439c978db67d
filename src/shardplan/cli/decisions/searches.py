"""``shardplan scale``, ``sensitivity``, ``whatif`` and ``fit``: decisions that search a job again and again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shardplan.ask.forms import FileForm, PickField, QuestionForm, SpaceForm
from shardplan.ask.task_forms import FitForm, ScaleForm, SensitivityForm, WhatIfForm
from shardplan.base.errors import InputError
from shardplan.cli.decisions.files import ChartFlags
from shardplan.cli.flags.option_groups import OutputFlags, with_flags
from shardplan.cli.pick import picked_from
from shardplan.inputs.readers.typed import pairs_of


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

    --gpus and --nodes take a range, whose sizes double (64..4096 or 64-4096), or a list (64,96,128). The global batch
    is the same at every size: that of `plan` at the largest, if --global-batch-size is not given. In place of a model,
    the answer of `shardplan rl` is taken, whose step is then planned at every size.
    """
    files = charts.files(output)
    files.check(*flags.reads)
    from shardplan.answers.decisions.scale import scale_document
    from shardplan.cli.decisions.rl import rl_question
    from shardplan.cli.decisions.sizes import asked_at_sizes, sizes_given
    from shardplan.cli.progress import progress_bar
    from shardplan.cli.question import given_by_user, searches_of
    from shardplan.decide.scale import LEAST_GAIN, scaling

    least_gain = wanted.least_gain or LEAST_GAIN
    asked = rl_question(flags.model, flags, space, but=("model", "num_accelerators"))
    if asked is not None:
        with progress_bar("planning each size") as progress:
            return files.show(asked.scale(sizes_given(flags), least_gain=least_gain, progress=progress).document())
    put, sizes = asked_at_sizes(flags, space)
    searches, assumed = searches_of(put, space)
    with progress_bar("planning each size") as progress:
        found = scaling(put.question, sizes, searches, least_gain=least_gain, progress=progress)
    answer = replace(found, assumptions=assumed)
    return files.show(scale_document(answer, (*given_by_user(flags, space), *put.warnings)))


@with_flags
def sensitivity(
    *,
    flags: QuestionForm,
    space: SpaceForm,
    output: OutputFlags,
    charts: ChartFlags,
    wanted: SensitivityForm,
) -> int:
    """Say which hardware parameter pays: the elasticity of the best step time to each of them.

    The fastest plan is searched again with every parameter worse and better. What these searches share is worked
    out once. In place of a model, the answer of `shardplan rl` is taken.
    """
    files = charts.files(output)
    files.check(*flags.reads)
    from shardplan.answers.decisions.sensitivity import sensitivity_document
    from shardplan.cli.decisions.rl import rl_question
    from shardplan.cli.progress import progress_bar
    from shardplan.cli.question import asked, given_by_user, searches_of
    from shardplan.decide.sensitivity import FACTOR, sensitivity_of

    factor, of_rl = wanted.factor or FACTOR, rl_question(flags.model, flags, space, but=("model",))
    if of_rl is not None:
        with progress_bar("planning with other hardware") as progress:
            return files.show(of_rl.sensitivity(factor=factor, progress=progress).document())
    put = asked(flags, space)
    searches, assumed = searches_of(put, space)
    with progress_bar("planning with other hardware") as progress:
        found = sensitivity_of(put.question, searches, factor=factor, progress=progress)
    answer = replace(found, assumptions=assumed)
    return files.show(sensitivity_document(answer, (*given_by_user(flags, space), *put.warnings)))


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

    In place of MODEL may stand a plan file, of which flags replace what it has, or the answer of `shardplan rl`.
    Without one, the plan to take is searched first. Changes are made one after the other. Bandwidths are in GB/s per
    accelerator and direction.
    """
    files = charts.files(output)
    files.check(*flags.reads)
    from shardplan.answers.decisions.whatif import whatif_document
    from shardplan.cli.decisions.rl import rl_question
    from shardplan.cli.progress import progress_bar
    from shardplan.cli.question import given_by_user, searches_of
    from shardplan.decide.whatif import planned_first, what_if

    of_rl = rl_question(flags.model, flags, space, FileForm(pick=pick), but=("model",))
    if of_rl is not None:
        named = pairs_of("--change", wanted.change or ())
        with progress_bar("planning again") as progress:
            return files.show(of_rl.whatif(named, progress=progress).document())
    changes = changes_of(wanted.change or ())
    put, plan = _plan_of_file(flags, space, pick)
    searches, assumed = searches_of(put, space)
    first, taken = (None, plan) if plan is not None else planned_first(put.question, searches)
    with progress_bar("planning again") as progress:
        found = what_if(put.question, taken, changes, searches, before=first, progress=progress)
    answer = replace(found, assumptions=assumed)
    return files.show(whatif_document(answer, (*given_by_user(flags, space), *put.warnings)))


def _plan_of_file(flags: QuestionForm, space: SpaceForm, pick: str | None) -> tuple[PutQuestion, Plan | None]:
    """The question and the plan of a plan file; of a question by flags, no plan. Raises InputError."""
    from shardplan.cli.question import asked, asked_again
    from shardplan.reports.plan_file import is_plan_file, read_plan_file

    if flags.model is not None and is_plan_file(flags.model):
        read = read_plan_file(flags.model)
        before = picked_from(read, pick)
        return asked_again(read, replace(flags, model=None), before.framework), before.plan
    if pick is not None:
        raise InputError(
            f"--pick {pick} is given without a plan file",
            rule="--pick names a plan of a file",
            hint="leave --pick out, or give a plan file in place of MODEL",
        )
    return asked(flags, space), None


def changes_of(texts: Sequence[str]) -> dict[str, Any]:
    """Values by name from ``name=value``, read as the flags of the same names. Raises InputError."""
    from shardplan.decide.whatif import change_of, check_named_once

    found = [(name.strip("-").replace("-", "_"), value) for name, value in pairs_of("--change", texts)]
    check_named_once([name for name, _ in found])
    return dict(change_of(name, text) for name, text in found)


if TYPE_CHECKING:
    from shardplan.decide.largest import Sought
    from shardplan.estimation.question import PutQuestion
    from shardplan.inputs.plan import Plan


@with_flags
def fit(
    *,
    flags: QuestionForm,
    space: SpaceForm,
    output: OutputFlags,
    charts: ChartFlags,
    wanted: FitForm,
) -> int:
    """Find the largest sequence, micro-batch or model, or the smallest cluster, that fits, with its plan.

    Sequence lengths are looked at in steps of 1,024 tokens, clusters in whole nodes.
    """
    files = charts.files(output)
    files.check(*flags.reads)
    from shardplan.answers.decisions.fit import fit_document
    from shardplan.cli.question import given_by_user, searches_of
    from shardplan.decide.largest import fitted, still_assumed

    sought = sought_of(wanted.largest, wanted.smallest)
    put = _asked(flags, space, sought)
    searches, assumed = searches_of(put, space)
    found = fitted(put.question, sought, searches, keeps_batch="global_batch_size" in flags.job)
    answer = replace(found, assumptions=still_assumed(sought, assumed))
    return files.show(fit_document(answer, (*given_by_user(flags, space), *put.warnings)))


def sought_of(largest: str | None, smallest: str | None) -> Sought:
    """What is sought. Raises InputError."""
    from shardplan.decide.largest import sought_of as sought_named

    if (largest is None) == (smallest is None):
        given = "neither --largest nor --smallest is given" if largest is None else "--largest and --smallest are given"
        raise InputError(
            given,
            rule="one of --largest and --smallest is given",
            hint="add --largest sequence_length, micro_batch_size or layers, or --smallest gpus",
        )
    return sought_named(largest or smallest or "", is_largest=largest is not None)


def _asked(flags: QuestionForm, space: SpaceForm, sought: Sought) -> PutQuestion:
    """The question, with a value in place of what is sought. Raises InputError."""
    from shardplan.cli.question import asked

    given = {
        "gpus": flags.num_accelerators is not None or flags.nodes is not None,
        "sequence_length": "sequence_length" in flags.job,
    }
    if given.get(sought):
        flag = "--gpus or --nodes" if sought == "gpus" else "--sequence-length"
        raise InputError(
            f"{flag} is given, and {sought} is sought",
            rule="what is sought is not given",
            hint=f"leave {flag} out",
        )
    if sought == "gpus":
        flags = replace(flags, num_accelerators="1")
    return asked(flags, space)
