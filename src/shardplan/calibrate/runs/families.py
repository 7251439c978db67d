"""Families of published runs: the team behind each, and which the shipped constants are only compared with.

A team is everything that one group published, across families, releases and models. Its runs share machines, software
and habits, so only constants that have seen none of a team show what a stranger may expect. A family
that is not in the table, such as one of a user's own file, is a team of its own.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from shardplan.base.files import read_document
from shardplan.calibrate.runs.rows import SHIPPED_RUNS, MeasuredRun

FAMILIES: Final = SHIPPED_RUNS.parent / "families.yaml"
FIRST_SIGHT: Final = SHIPPED_RUNS.parent / "first_sight.csv"
"""Errors of published runs when they were first predicted, by the version before that saw them."""
QUANTITIES: Final = ("step_time", "peak_memory_bytes")
"""What a run measures."""


def team_of(family: str) -> str:
    """The team that published a family; the family itself where the table does not have it."""
    return _teams().get(family, family)


def compared_only() -> Mapping[str, tuple[str, ...]]:
    """Families with measurements that the shipped constants are only compared with, and which these are."""
    return _compared()


def is_fitted(run: MeasuredRun) -> bool:
    """Whether the shipped constants are fitted to all that a published run measured."""
    return run.family not in _compared()


def is_only_compared(family: str) -> bool:
    """Whether the shipped constants are fitted to nothing that a published family measured."""
    return set(_compared().get(family, ())) == set(QUANTITIES)


def first_errors(run: str) -> dict[str, float | None]:
    """Errors (logarithm) of a published run at first sight, where on record: ``first_time`` and ``first_memory``."""
    return dict(_first().get(run, {}))


@cache
def _first() -> Mapping[str, Mapping[str, float | None]]:
    names = {"first_time": "log_time_ratio", "first_memory": "log_memory_ratio"}
    with FIRST_SIGHT.open(encoding="utf-8", newline="") as file:
        return {
            row["id"]: {name: float(row[column]) if row[column] else None for name, column in names.items()}
            for row in csv.DictReader(file)
        }


@cache
def _table() -> Mapping[str, Mapping[str, Any]]:
    found: Mapping[str, Mapping[str, Any]] = read_document(FAMILIES)["teams"]
    return found


@cache
def _teams() -> Mapping[str, str]:
    return {family: team for team, families in _table().items() for family in families}


@cache
def _compared() -> Mapping[str, tuple[str, ...]]:
    rows = ((family, row) for families in _table().values() for family, row in families.items())
    return {family: tuple(row["compared"]) for family, row in rows if "compared" in row}
