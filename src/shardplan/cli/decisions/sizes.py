"""Several sizes of a cluster on the command line."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from shardplan.base.errors import InputError, shown
from shardplan.inputs.readers.typed import whole

if TYPE_CHECKING:
    from shardplan.ask.forms import QuestionForm, SpaceForm
    from shardplan.estimation.question import PutQuestion

LAST: Final = re.compile(r"(?<=\d)\s*(?:\.\.\.?|-|\u2013|\bto\b)\s*(?=\d)")
"""Between the first and the last size of a range: 64..4096, 64-4096."""
SEVERAL: Final = re.compile(rf"{LAST.pattern}|,")


def are_several(flags: QuestionForm) -> bool:
    """Whether ``--gpus`` or ``--nodes`` is a range or a list."""
    return any(SEVERAL.search(text) for text in (flags.num_accelerators, flags.nodes) if text)


def asked_at_sizes(flags: QuestionForm, space: SpaceForm) -> tuple[PutQuestion, list[int]]:
    """The question at the largest size, and all sizes. Raises InputError."""
    from shardplan.cli.question import asked

    if flags.num_accelerators is None and flags.nodes is None:
        return asked(flags, space), []  # which names what is missing
    if flags.num_accelerators is not None and flags.nodes is not None:
        raise InputError(
            "--gpus and --nodes are both given",
            rule="the sizes are given once",
            hint="leave one of them out",
        )
    flag = "--gpus" if flags.num_accelerators is not None else "--nodes"
    sizes = sizes_of(flags.num_accelerators or flags.nodes or "", flag)
    last = str(max(sizes))
    largest = replace(flags, num_accelerators=last) if flag == "--gpus" else replace(flags, nodes=last)
    put = asked(largest, space)
    per_size = 1 if flag == "--gpus" else put.question.cluster.accelerators_per_node
    return put, [size * per_size for size in sizes]


def sizes_given(flags: QuestionForm) -> list[int]:
    """The sizes of ``--gpus``. Raises InputError."""
    if flags.num_accelerators is None:
        raise InputError("--gpus is not given", rule="the sizes are given", hint="add --gpus 8..64, or --gpus 8,16,24")
    return sizes_of(flags.num_accelerators, "--gpus")


def sizes_of(text: str, flag: str) -> list[int]:
    """The sizes of a range, 64..4096 or 64-4096, or of a list, 64,96,128. Raises InputError."""
    from shardplan.decide.scale import MOST_SIZES, doubling
    from shardplan.inputs.counts import MAX_NUM_ACCELERATORS

    def size(part: str) -> int:
        return whole(part, flag, most=MAX_NUM_ACCELERATORS)

    ends = LAST.split(text)
    if len(ends) == 2:
        return doubling(size(ends[0]), size(ends[1]))
    parts = text.split(",")
    if len(parts) > MOST_SIZES:
        raise InputError(
            f"{flag} is {shown(text)}; it has {len(parts)} sizes",
            rule=f"at most {MOST_SIZES} sizes are given",
            hint=f"give {flag} a range such as 64..4096",
        )
    if any(len(part) > 1 and part.startswith("0") for part in parts):
        raise InputError(
            f"{flag} is {shown(text)}; a comma is between two sizes",
            rule=f"{flag} is a range or a list of whole numbers",
            hint=f"write thousands without a comma: {flag} {text.replace(',', '')}",
        )
    return [size(part) for part in parts]
