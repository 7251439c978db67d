"""Several sizes of a cluster on the command line."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shardplan.base.errors import InputError
from shardplan.inputs.readers.typed import RANGE

if TYPE_CHECKING:
    from shardplan.ask.forms import QuestionForm, SpaceForm
    from shardplan.estimation.question import PutQuestion


def are_several(flags: QuestionForm) -> bool:
    """Whether ``--gpus`` or ``--nodes`` is a range or a list."""
    return any("," in text or RANGE.search(text) for text in (flags.num_accelerators, flags.nodes) if text)


def asked_at_sizes(flags: QuestionForm, space: SpaceForm) -> tuple[PutQuestion, list[int]]:
    """The question at the largest size, and all sizes. Raises InputError."""
    from shardplan.cli.question import asked
    from shardplan.decide.scale import sizes_in

    if flags.num_accelerators is None and flags.nodes is None:
        return asked(flags, space), []  # which names what is missing
    if flags.num_accelerators is not None and flags.nodes is not None:
        raise InputError(
            "--gpus and --nodes are both given",
            rule="the sizes are given once",
            hint="leave one of them out",
        )
    flag = "--gpus" if flags.num_accelerators is not None else "--nodes"
    sizes = sizes_in(flags.num_accelerators or flags.nodes or "", flag)
    last = str(max(sizes))
    largest = replace(flags, num_accelerators=last) if flag == "--gpus" else replace(flags, nodes=last)
    put = asked(largest, space)
    per_size = 1 if flag == "--gpus" else put.question.cluster.accelerators_per_node
    return put, [size * per_size for size in sizes]


def sizes_given(flags: QuestionForm) -> list[int]:
    """The sizes of ``--gpus``. Raises InputError."""
    from shardplan.decide.scale import sizes_in

    if flags.num_accelerators is None:
        raise InputError("--gpus is not given", rule="the sizes are given", hint="add --gpus 8..64, or --gpus 8,16,24")
    return sizes_in(flags.num_accelerators, "--gpus")
