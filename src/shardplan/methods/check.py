"""Recomputes reference files: the difference of every published figure from what this program computes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass
from shardplan.base.files import FileKind, parse_document, read_text
from shardplan.methods.base import Case, Method
from shardplan.methods.catalogue import asked_of, load_methods

TOLERANCE: Final = 1e-9
"""Largest relative difference that passes."""
ZERO_TOLERANCE: Final = 1e-12
"""Largest absolute difference that passes if the reference is zero."""
REFERENCE: Final = FileKind("the file", 64 * 2**20, "a reference file is a text of moderate length")


@dataclass(frozen=True, kw_only=True)
class CaseCheck:
    """One case of a reference file next to its recomputed figures."""

    name: str
    num_values: int
    """Figures that were compared."""
    worst_relative: float
    """Largest relative difference, of those whose reference is not zero."""
    worst_relative_at: str
    """Where it is, such as ``rows[3].memory_per_gpu``; empty if every figure agrees."""
    worst_at_zero: float
    """Largest absolute difference of those whose reference is zero."""
    differing: tuple[str, ...]
    """Recommendations, counts and words that differ, and missing figures."""

    @property
    def passed(self) -> bool:
        """Whether everything agrees."""
        return self.worst_relative <= TOLERANCE and self.worst_at_zero <= ZERO_TOLERANCE and not self.differing


@dataclass(frozen=True, kw_only=True)
class FileCheck:
    """A reference file recomputed."""

    label: str
    """The file name as given."""
    method: str
    cases: tuple[CaseCheck, ...]

    @property
    def num_values(self) -> int:
        """Figures that were compared."""
        return sum(case.num_values for case in self.cases)

    @property
    def worst_relative(self) -> float:
        """Largest relative difference of any case."""
        return max(case.worst_relative for case in self.cases)

    @property
    def worst_at_zero(self) -> float:
        """Largest absolute difference where the reference is zero."""
        return max(case.worst_at_zero for case in self.cases)

    @property
    def worst_case(self) -> CaseCheck:
        """The case that is furthest from its reference: failed ones first."""
        return max(self.cases, key=lambda case: (len(case.differing), case.worst_relative, case.worst_at_zero))

    @property
    def differing(self) -> tuple[str, ...]:
        """Everything that differs, each with the name of its case."""
        return tuple(f"{case.name}: {text}" for case in self.cases for text in case.differing)

    @property
    def passed(self) -> bool:
        """Whether every case agrees."""
        return all(case.passed for case in self.cases)


def check_files(paths: Iterable[Path]) -> tuple[FileCheck, ...]:
    """Recomputes every file. Raises ``InputError`` if no method recognises one."""
    methods = load_methods()
    return tuple(check_file(path, methods) for path in paths)


def check_file(path: Path, methods: Sequence[Method] | None = None) -> FileCheck:
    """Recomputes every case of the file at ``path``. Raises ``InputError`` if no method recognises it."""
    text = read_text(path, REFERENCE)
    if path.suffix.lower() == ".json":
        parse_document(text, label=str(path), is_json=True)  # raises for a malformed file
    return check_text(text, str(path), methods)


def check_text(text: str, label: str, methods: Sequence[Method] | None = None) -> FileCheck:
    """Like ``check_file``, for a text; ``methods`` are those that may own it, by default all."""
    for method in load_methods() if methods is None else methods:
        cases = asked_of(method, partial(_cases, method, text))
        if cases is None:
            continue
        checked = tuple(map(compare, cases))
        if not any(case.num_values for case in checked):
            raise InputError(
                f"{label} holds no published figure that {method.name} could be checked against",
                rule="a reference file holds cases with results",
                hint="give a file in the format of the documentation's page on published models",
            )
        return FileCheck(label=label, method=method.name, cases=checked)
    raise InputError(
        f"{label} is not a reference file of any method",
        rule="a reference file belongs to a method",
        hint="see the formats in the documentation of the published models",
    )


def _cases(method: Method, text: str) -> tuple[Case, ...] | None:
    cases = method.cases(text)
    return None if cases is None else tuple(cases)


def compare(case: Case) -> CaseCheck:
    """Every figure of ``case.expected`` next to the computed one. Additional computed figures are ignored."""
    tally = _Tally()
    tally.add("", case.expected, case.computed)
    return CaseCheck(name=case.name, **vars(tally) | {"differing": tuple(tally.differing)})


class _Tally:
    """Differences found so far in one case."""

    def __init__(self) -> None:
        self.num_values = 0
        self.worst_relative, self.worst_relative_at, self.worst_at_zero = 0.0, "", 0.0
        self.differing: list[str] = []

    def add(self, at: str, expected: Any, computed: Any) -> None:
        """Compares two values of any shape."""
        if isinstance(expected, Mapping) and isinstance(computed, Mapping):
            for name, value in expected.items():
                self.add(f"{at}.{name}" if at else str(name), value, computed.get(name, _MISSING))
        elif isinstance(expected, list | tuple) and isinstance(computed, list | tuple):
            if len(expected) != len(computed):
                self.differing.append(f"{at} has {len(expected)} entries, computed {len(computed)}")
            for index, (one, other) in enumerate(zip(expected, computed, strict=False)):
                self.add(f"{at}[{index}]", one, other)
        else:
            self.num_values += 1
            self._add_value(at, expected, computed)

    def _add_value(self, at: str, expected: Any, computed: Any) -> None:
        are_numbers = _is_number(expected) and _is_number(computed)
        if not are_numbers or (isinstance(expected, int) and isinstance(computed, int)):  # words, degrees and counts
            if type(expected) is not type(computed) or expected != computed:
                self.differing.append(f"{at} is {expected!r:.60}, computed {computed!r:.60}")
        elif expected == 0:
            self.worst_at_zero = max(self.worst_at_zero, math.inf if math.isnan(computed) else abs(computed))
        else:
            difference = _relative(expected, computed)
            if difference > self.worst_relative:
                self.worst_relative, self.worst_relative_at = difference, at


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


_MISSING: Final = _Missing()


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _relative(expected: float, computed: float) -> float:
    """Relative difference; infinite if one of the two is not a finite number."""
    if expected == computed:
        return 0.0
    try:
        difference = abs(computed - expected) / abs(expected)
    except OverflowError:  # a whole number beyond the range of floats
        return math.inf
    return difference if math.isfinite(difference) else math.inf
