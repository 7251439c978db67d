"""The first line of a file of measured runs: what separates columns, and which column each name means.

Columns may have the names that people and frameworks give them (``TP``, ``gbs``, ``seq_len``); the answer reports this
once for the whole file. One error names all that is wrong with a header.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from shardplan.calibration.runs.cells import COLUMNS, IN_HEADER, MEASURES, REQUIRED
from shardplan.calibration.runs.words import COLUMN_NAMES
from shardplan.errors import InputError, nearest_names, shown
from shardplan.inputs.words import FIELD_NAMES
from shardplan.words import folded

MOST_COLUMNS: Final = 256
MOST_LISTED: Final = 12
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
    return _folded_columns().get(key) or (field if field in COLUMNS else None)


UNITS: Final = re.compile(r"\s*[(\[]\s*([\w/.%]+)\s*[)\]]")
"""A unit in brackets: ``step time (s)``."""


def _folded_columns() -> Mapping[str, str]:
    return _FOLDED


_FOLDED: Final = {folded(name): name for name in COLUMNS}


def header_of(names: Sequence[str], label: str) -> Header:
    """The columns that a first line names. Raises ``InputError`` with all that is wrong with it."""
    if len(names) > MOST_COLUMNS:
        raise InputError(
            f"{label}: {len(names):,} columns",
            rule=f"measured runs have at most {MOST_COLUMNS} columns",
            hint=TEMPLATE_HINT,
        )
    meant = {name: column_meant(name) for name in names if name}
    problems = [*_repeated(names, meant), *_missing(names, meant), *_misspelt(meant), *_ambiguous(meant)]
    if problems:
        listed = problems[:MOST_LISTED] + ([f"and {len(problems) - MOST_LISTED} more"] * (len(problems) > MOST_LISTED))
        raise InputError(
            f"{label}: {'; '.join(listed)}",
            rule=f"measured runs have the columns {', '.join(IN_HEADER)}, each column once",
            hint=f"correct the first line; {TEMPLATE_HINT}",
        )
    taken = tuple(f"column {name} is read as {own}" for name, own in meant.items() if own is not None and own != name)
    return Header(tuple(meant.get(name) or name for name in names), taken)


def _repeated(names: Sequence[str], meant: Mapping[str, str | None]) -> Iterator[str]:
    """Columns that stand twice, under one name or under two."""
    counts = Counter(meant[name] or name for name in names if name)
    for column, count in counts.items():
        if count > 1:
            spelt = [name for name in names if name and (meant[name] or name) == column]
            yield f"column '{column:.60}' is repeated ({', '.join(name[:60] for name in spelt[:MOST_LISTED])})"


def _missing(names: Sequence[str], meant: Mapping[str, str | None]) -> Iterator[str]:
    others = [name for name in names if name and meant[name] is None]
    absent = [column for column in IN_HEADER if column not in meant.values()]
    near = {column: nearest_names(column, others, most=1) for column in absent}
    texts = [f"'{column}'" + (f" (is '{near[column][0]:.60}' meant?)" if near[column] else "") for column in absent]
    if texts:
        yield f"there is no column {', '.join(texts)}"


def _misspelt(meant: Mapping[str, str | None]) -> Iterator[str]:
    """Names that are spelt almost like a column that is not there, which would otherwise lose what they state."""
    absent = [column for column in COLUMNS if column not in meant.values() and column not in REQUIRED]
    for name, column in meant.items():
        is_odd = column is None and len(name) > SHORTEST and folded(name) not in AMBIGUOUS
        near = nearest_names(name, absent, most=1) if is_odd else []
        if near:
            yield f"unknown column '{name:.60}' (did you mean {near[0]}?)"


SHORTEST: Final = 3
"""Letters of a name that is near to too many others to be a slip."""


def _ambiguous(meant: Mapping[str, str | None]) -> Iterator[str]:
    """Of a file that states nothing measured: the columns that may do so under a name of several meanings."""
    if {*meant.values()} & {*MEASURES}:
        return
    for name, column in meant.items():
        if column is None and folded(name) in AMBIGUOUS:
            yield f"column '{name:.60}' may mean several things: rename it {AMBIGUOUS[folded(name)]}"
