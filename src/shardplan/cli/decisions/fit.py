"""``shardplan fit``: the largest or smallest that fits, with its plan."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from shardplan.cli.decisions.files import ChartFlags
from shardplan.cli.flags.flag import flag
from shardplan.cli.flags.option_groups import with_flags
from shardplan.cli.flags.plan import OutputFlags, QuestionFlags, SpaceFlags
from shardplan.errors import InputError

if TYPE_CHECKING:
    from shardplan.cli.question import Asked
    from shardplan.decisions.largest import Sought

LargestFlag = Annotated[
    str | None,
    flag(
        "What is to be as large as it fits: sequence_length, micro_batch_size or layers.",
        panel="Search",
        metavar="NAME",
    ),
]
SmallestFlag = Annotated[str | None, flag("What is to be as small as it fits: gpus.", panel="Search", metavar="NAME")]


@with_flags
def fit(
    *,
    flags: QuestionFlags,
    space: SpaceFlags,
    output: OutputFlags,
    charts: ChartFlags,
    largest: LargestFlag = None,
    smallest: SmallestFlag = None,
) -> int:
    """Find the largest sequence, micro-batch or model, or the smallest cluster, that fits, with its plan.

    Sequence lengths are looked at in steps of 1,024 tokens, clusters in whole nodes.
    """
    files = charts.files(output)
    files.check(*flags.reads)
    from shardplan.answers.decisions.fit import fit_document
    from shardplan.cli.question import given_by_user, searches_of
    from shardplan.decisions.largest import fitted, still_assumed

    sought = sought_of(largest, smallest)
    asked = _asked(flags, space, sought)
    searches, assumed = searches_of(asked, space)
    found = fitted(asked.question, sought, searches, keeps_batch="global_batch_size" in flags.job)
    answer = replace(found, assumptions=still_assumed(sought, assumed))
    given = (*given_by_user(flags, space), *asked.warnings)
    return files.show(fit_document(answer, given))


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


def _asked(flags: QuestionFlags, space: SpaceFlags, sought: Sought) -> Asked:
    """The question, with a value in place of what is sought. Raises InputError."""
    from shardplan.cli.question import ask

    given = {
        "gpus": flags.cluster.num_accelerators is not None or flags.cluster.nodes is not None,
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
        flags = replace(flags, cluster=replace(flags.cluster, num_accelerators="1"))
    return ask(flags, space)
