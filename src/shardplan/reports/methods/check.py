"""Reference files recomputed, as a record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from shardplan.published.catalogue import load_methods
from shardplan.published.check import TOLERANCE, ZERO_TOLERANCE, CaseCheck, FileCheck, check_file
from shardplan.records import plain

MOST_DIFFERING: Final = 100
"""Differences that a record lists of one file."""


def check_files(paths: Iterable[Path]) -> tuple[FileCheck, ...]:
    """Recomputes every file. Raises ``InputError`` where no method knows one."""
    methods = load_methods()
    return tuple(check_file(path, methods) for path in paths)


def checks_record(checks: Sequence[FileCheck]) -> dict[str, Any]:
    """The checks as a mapping that JSON can hold."""
    return {
        "schema": "shardplan/published-check/1",
        "passed": all(check.passed for check in checks),
        "tolerance": TOLERANCE,
        "zero_tolerance": ZERO_TOLERANCE,
        "files": [_file_record(check) for check in checks],
    }


def _file_record(check: FileCheck) -> dict[str, Any]:
    return {
        "file": check.label,
        "method": check.method,
        "passed": check.passed,
        "num_cases": len(check.cases),
        "num_failed": sum(not case.passed for case in check.cases),
        "num_values": check.num_values,
        "worst_relative_difference": plain(check.worst_relative),
        "worst_difference_at_zero": plain(check.worst_at_zero),
        "worst_case": _case_record(check.worst_case),
        "differing": list(check.differing[:MOST_DIFFERING]),
        "num_differing": len(check.differing),
    }


def _case_record(case: CaseCheck) -> dict[str, Any]:
    return {"name": case.name, "at": case.worst_relative_at, "worst_relative_difference": plain(case.worst_relative)}
