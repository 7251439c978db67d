"""What a framework's own tests, recipes or published runs show working: the entry ``shown`` of a capability record.

Each aspect names the plans that it concerns, what such a plan asks of the framework, and conditions of the plans that
a source shows. A plan that an aspect concerns and that no source covers is untested: the framework does not refuse it,
and nothing shows that it runs. :mod:`shardplan.physics.frameworks.runnable` asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shardplan.base.arrays import Flags
from shardplan.base.fields import dataclass
from shardplan.physics.frameworks.conditions import (
    Condition,
    Facts,
    fields_of,
    list_in,
    origin_of,
    parse_condition,
    wrong,
)
from shardplan.physics.frameworks.option_entries import Piece, pieces_of, written


@dataclass(frozen=True, kw_only=True)
class ShownPlans:
    """Plans that a test, a recipe or a run shows working."""

    when: Condition
    source: str
    """The test, recipe or run: a path in the repository at the record's commit, or a paper."""
    from_memory: bool = False


@dataclass(frozen=True, kw_only=True)
class Aspect:
    """One question that is asked of plans: whether something that they combine is shown to work together."""

    name: str
    """What it is about, such as ``sharding in an interleaved pipeline``."""
    concerns: Condition
    """Plans that it concerns; all others are fine."""
    asks: tuple[Piece, ...]
    """What a plan asks for, in words with values in braces: ``{sharding} in an interleaved pipeline``."""
    evidence: tuple[ShownPlans, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Facts that decide it."""
        conditions = (self.concerns, *(each.when for each in self.evidence))
        return tuple(dict.fromkeys(name for each in conditions for name in each.names))

    def lacks(self, known: Facts) -> Flags:
        """Whether nothing shows that it works, for one plan or for each of many."""
        open_ones: Flags = self.concerns.of(known)
        for each in self.evidence:
            if not np.any(open_ones):
                return False
            open_ones = np.logical_and(open_ones, np.logical_not(each.when.of(known)))
        return open_ones

    def asked(self, known: Facts) -> str:
        """What one plan asks for."""
        return written(self.asks, known, {})

    def read_elsewhere(self, origin: str) -> Aspect:
        """The same with ``origin`` before every source."""
        return replace(self, evidence=tuple(replace(each, source=f"{origin}{each.source}") for each in self.evidence))


def read_shown(raw: object, label: str) -> tuple[Aspect, ...]:
    """The aspects of a record. Raises ``InputError``."""
    sample = "aspect: ..., concerns: ..., asks: ..., evidence: [...]"
    return tuple(
        _aspect(each, f"shown[{number}] of {label}") for number, each in enumerate(list_in(raw, "shown", label, sample))
    )


def _aspect(raw: object, where: str) -> Aspect:
    given = fields_of(raw, where, ("aspect", "concerns", "asks", "evidence"))
    name = given.get("aspect")
    if not isinstance(name, str) or not name.strip():
        raise wrong(f"aspect of {where}", name, "an aspect has a name", "aspect: ...")
    found = list_in(given.get("evidence"), "evidence", where, "when: ..., source: ...")
    return Aspect(
        name=name,
        concerns=parse_condition(given.get("concerns"), f"concerns of {where}"),
        asks=pieces_of(given.get("asks", name), f"asks of {where}"),
        evidence=tuple(_evidence(each, f"evidence[{number}] of {where}") for number, each in enumerate(found)),
    )


def _evidence(raw: object, where: str) -> ShownPlans:
    given = fields_of(raw, where, ("when", "source", "from_memory"))
    source, remembered = origin_of(given, where)
    when = parse_condition(given.get("when"), f"when of {where}")
    return ShownPlans(when=when, source=source, from_memory=remembered)


def shown_record(aspects: Sequence[Aspect]) -> list[Mapping[str, Any]]:
    """Aspects as a file writes them."""
    return [
        {
            "aspect": each.name,
            "concerns": each.concerns.text,
            "evidence": [
                {"when": one.when.text, "source": one.source, "from_memory": one.from_memory} for one in each.evidence
            ],
        }
        for each in aspects
    ]
