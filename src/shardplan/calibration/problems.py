"""What is wrong with the rows of a file of measured runs: each problem once, with the rows that have it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from shardplan.calibration.predict import SkippedRun
from shardplan.fields import dataclass

MOST_LINES: Final = 3
_PLACE: Final = re.compile(r"^line \d+(?:, run '[^']*')?: ")


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A rule that rows break."""

    rule: str
    text: str
    """What is wrong: the same in all rows, or the rule and what it is in the first."""
    lines: tuple[int, ...]
    """Lines of the file."""
    ids: tuple[str, ...]
    """Names of the rows."""

    @property
    def where(self) -> str:
        """``lines 3, 7, 9 and 12 more``."""
        shown = ", ".join(f"{line:,}" for line in self.lines[:MOST_LINES])
        more = len(self.lines) - MOST_LINES
        return f"line{'s' * (len(self.lines) > 1)} {shown}{f' and {more:,} more' if more > 0 else ''}"


def problems_of(skipped: Sequence[SkippedRun]) -> tuple[Problem, ...]:
    """Problems by the rule that is broken, the one of most rows first."""
    rules: dict[str, list[tuple[SkippedRun, str]]] = {}
    for one in skipped:
        for rule, reason in one.problems:
            rules.setdefault(rule, []).append((one, _PLACE.sub("", reason)))
    found = [
        Problem(
            rule=rule,
            text=_text(rule, [text for _, text in rows]),
            lines=tuple(one.run.line for one, _ in rows),
            ids=tuple(one.run.id for one, _ in rows),
        )
        for rule, rows in rules.items()
    ]
    return tuple(sorted(found, key=lambda problem: -len(problem.lines)))


def _text(rule: str, texts: Sequence[str]) -> str:
    """What all rows have in common, or the rule with the first as an example."""
    if len(set(texts)) == 1:
        return texts[0]
    return f"{rule} (the first: {texts[0].removeprefix(f'{rule}: ')})"
