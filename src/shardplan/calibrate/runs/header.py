"""The first line of a file of measured runs: what separates columns, and which column each name means.

Columns may have the names that people and frameworks give them (``TP``, ``gbs``, ``seq_len``); the answer reports this
once for the whole file. One error names all that is wrong with a header.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from shardplan.base.errors import InputError, nearest_names, shown
from shardplan.base.words import folded
from shardplan.calibrate.runs.columns import COLUMN_NAMES, COLUMNS, IN_HEADER, MEASURES, REQUIRED
from shardplan.inputs.words import FIELD_NAMES

MOST_COLUMNS: Final = 256
MOST_LISTED: Final = 12
SHORTEST: Final = 3
"""Letters of a name that is near to too many others to be a slip."""
TEMPLATE_HINT: Final = "`shardplan calibrate --template` prints a file to start from"
SEPARATORS: Final = {",": "commas", ";": "semicolons", "\t": "tabs"}
AMBIGUOUS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("tps", "throughput", "tokens", "wps", "toks"), "tokens_per_second or tokens_per_second_per_accelerator"
    ),
    **dict.fromkeys(("tflops", "tflop/s", "flops", "mfu"), "tflops_per_accelerator, in FLOP of the model"),
    **dict.fromkeys(("time", "latency", "duration"), "step_time_s or step_time_ms"),
}
"""Names that may mean several columns, by their folded form, and these columns."""
UNITS: Final = re.compile(r"\s*[(\[]\s*([\w/.%]+)\s*[)\]]")
"""A unit in brackets: ``step time (s)``."""
FOLDED: Final = {folded(name): name for name in COLUMNS}


class Header(NamedTuple):
    """The columns of a file."""

    columns: tuple[str, ...]
    """Of each cell of a row, in our names; one that is not known keeps its own."""
    taken: tuple[str, ...]
    """Names that are read as others: ``TP is read as tp``."""


def separator_of(text: str, label: str) -> str:
    """What separates columns: commas, or the semicolons or tabs of a first line without commas. Raises ``InputError``.

    A line that starts with ``#`` and does not name the columns is a comment, and comments are not read.
    """
    first = text.partition("\n")[0].strip()
    found = next((sign for sign in SEPARATORS if sign in first), ",")
    names = [column_meant(name.strip()) for name in first.split(found)]
    is_commented = column_meant(first.partition(found)[0].strip("# ")) is not None and names[0] is None
    if first.startswith("#") and (is_commented or not set(IN_HEADER) <= {*names}):
        raise InputError(
            f"{label}: the first line starts with '#', and comments are not read: {shown(first)}",
            rule="the first line names the columns",
            hint=f"begin with their names: {','.join(REQUIRED)}; {TEMPLATE_HINT}",
        )
    return found


def column_meant(name: str) -> str | None:
    """The column that ``name`` means; None where it is none.

    >>> column_meant("Tokens/s/GPU")
    'tokens_per_second_per_accelerator'
    """
    if name in COLUMNS:
        return name
    key = folded(UNITS.sub(r" \1", name))
    field = COLUMN_NAMES.get(key) or FIELD_NAMES.get(key)
    return FOLDED.get(key) or (field if field in COLUMNS else None)


def header_of(names: Sequence[str], label: str) -> Header:
    """The columns that a first line names. Raises ``InputError`` with all that is wrong with it."""
    if len(names) > MOST_COLUMNS:
        raise InputError(
            f"{label}: {len(names):,} columns",
            rule=f"measured runs have at most {MOST_COLUMNS} columns",
            hint=TEMPLATE_HINT,
        )
    meant = {name: column_meant(name) for name in names if name}
    problems = list(_problems(names, meant))
    if problems:
        listed = problems[:MOST_LISTED] + ([f"and {len(problems) - MOST_LISTED} more"] * (len(problems) > MOST_LISTED))
        raise InputError(
            f"{label}: {'; '.join(listed)}",
            rule=f"measured runs have the columns {', '.join(IN_HEADER)}, each column once",
            hint=f"correct the first line; {TEMPLATE_HINT}",
        )
    taken = tuple(f"column {name} is read as {own}" for name, own in meant.items() if own is not None and own != name)
    return Header(tuple(meant.get(name) or name for name in names), taken)


def _problems(names: Sequence[str], meant: Mapping[str, str | None]) -> Iterator[str]:
    """Columns that stand twice, are missing, are spelt almost like one that is, or may mean several."""
    spelt = [(meant[name] or name, name[:60]) for name in names if name]
    for column, count in Counter(column for column, _ in spelt).items():
        if count > 1:
            given = ", ".join([name for one, name in spelt if one == column][:MOST_LISTED])
            yield f"column '{column:.60}' is repeated ({given})"
    absent = [column for column in COLUMNS if column not in meant.values()]
    unknown = [name for name, column in meant.items() if column is None]
    if missing := [column for column in IN_HEADER if column in absent]:
        meant_by = {column: nearest_names(column, unknown, most=1) for column in missing}
        said = (f"'{column}'" + (f" (is '{near[0]:.60}' meant?)" if near else "") for column, near in meant_by.items())
        yield f"there is no column {', '.join(said)}"
    optional = [column for column in absent if column not in REQUIRED]
    for name in unknown:
        is_odd = len(name) > SHORTEST and folded(name) not in AMBIGUOUS
        near = nearest_names(name, optional, most=1) if is_odd else []
        if near:  # else what it states would be lost
            yield f"unknown column '{name:.60}' (did you mean {near[0]}?)"
    if not {*meant.values()} & {*MEASURES}:
        for name in unknown:
            if folded(name) in AMBIGUOUS:
                yield f"column '{name:.60}' may mean several things: rename it {AMBIGUOUS[folded(name)]}"


TEMPLATE: Final = """\
id,framework,model,accelerator,num_accelerators,precision,sequence_length,global_batch_size,micro_batch_size,\
tp,pp,cp,vp,ep,sharding,recompute,step_time_s,peak_memory_gb,memory_kind,result,options,notes
example-1,megatron-lm,llama-3.1-8b,h100-sxm-80gb,64,bf16,8192,256,1,2,1,1,1,,zero1,none,\
3.47,49.4,allocated,ran,overlap=dp_grad,replace with a run of yours
example-2,megatron-lm,llama-3.1-70b,h100-sxm-80gb,16,bf16,8192,256,1,8,1,1,1,,zero1,none,\
,,,oom,,a run that ended out of memory has no time
"""
"""The columns that matter most, a run that ran and one that ran out of memory; all columns are in
``docs/inputs/measured-runs.md``. The figures are predictions of the defaults, to be replaced."""
