"""``shardplan fit``: the largest or smallest that fits, with its plan."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shardplan.ask.forms import QuestionForm, SpaceForm
from shardplan.ask.task_forms import FitForm
from shardplan.cli.decisions.files import ChartFlags
from shardplan.cli.flags.option_groups import with_flags
from shardplan.cli.flags.plan import OutputFlags
from shardplan.errors import InputError

if TYPE_CHECKING:
    from shardplan.decisions.largest import Sought
    from shardplan.estimation.question import PutQuestion


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
    from shardplan.decisions.largest import fitted, still_assumed

    sought = sought_of(wanted.largest, wanted.smallest)
    put = _asked(flags, space, sought)
    searches, assumed = searches_of(put, space)
    found = fitted(put.question, sought, searches, keeps_batch="global_batch_size" in flags.job)
    answer = replace(found, assumptions=still_assumed(sought, assumed))
    return files.show(fit_document(answer, (*given_by_user(flags, space), *put.warnings)))


def sought_of(largest: str | None, smallest: str | None) -> Sought:
    """What is sought. Raises InputError."""
    from shardplan.decisions.largest import sought_of as sought_named

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
