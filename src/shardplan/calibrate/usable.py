"""What is wrong with the runs of a file: each problem once, a unit that slipped, and which runs a fit can use."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass
from shardplan.calibrate.predict import (
    FITTED_IN_MEMORY,
    PosedRun,
    SkippedRun,
    ask_all,
    cannot_have_run,
    cases_of,
    log_ratios_and_needs,
)
from shardplan.calibrate.runs.rows import MeasuredRun
from shardplan.inputs.cluster import Accelerator
from shardplan.inputs.profile import load_profile

MOST_REASONS: Final = 5
MEASURES: Final = "runs that constants are fitted to have a time or a memory"
MOST_LINES: Final = 3
_PLACE: Final = re.compile(r"^line \d+(?:, run '[^']*')?: ")
SLIP: Final = 200.0
"""Factor between measured and predicted step times, in the median, from which on the unit is another: no published run
is off by a twentieth of it."""


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
    found = []
    for rule, rows in rules.items():
        text, *others = dict.fromkeys(text for _, text in rows)
        text = f"{rule} (the first: {text.removeprefix(f'{rule}: ')})" if others else text
        lines, ids = zip(*((one.run.line, one.run.id) for one, _ in rows), strict=True)
        found.append(Problem(rule=rule, text=text, lines=lines, ids=ids))
    return tuple(sorted(found, key=lambda problem: -len(problem.lines)))


def unit_slip(log_ratios: Sequence[float] | NDArray[np.float64]) -> str | None:
    """What is wrong with the unit of measured step times, from ln(predicted / measured) of every run; None: nothing."""
    known = np.ravel(np.asarray(log_ratios, float))
    known = known[np.isfinite(known)]
    if not known.size or abs(median := float(np.median(known))) < np.log(SLIP):
        return None
    times = f"{np.exp(abs(median)):,.0f} times as {'long' if median < 0 else 'short'} as predicted"
    unit = "milliseconds: name the column step_time_ms" if median < 0 else "minutes or hours: the column is in seconds"
    return (
        f"measured step times are {times}, in the median of {known.size:,} run{'s' * (known.size > 1)}; perhaps {unit}"
    )


@dataclass(frozen=True, kw_only=True)
class Usable:
    """Runs of one accelerator."""

    cases: tuple[PosedRun, ...]
    """Those that constants can be fitted to."""
    skipped: tuple[SkippedRun, ...]
    """The others, each with the reason."""
    not_fitting: tuple[tuple[str, float], ...]
    """Of the cases those predicted not to fit in memory, with needed over usable memory, the largest first."""


def only_part(runs: Sequence[MeasuredRun]) -> Accelerator:
    """The accelerator of all runs that can be read. Raises ``InputError`` where they are of several, or of none."""
    asked, skipped = ask_all(runs)
    parts = {one.question.cluster.accelerator.name: one.question.cluster.accelerator for one in asked}
    if not parts:
        raise _unusable(len(runs), skipped, "one accelerator")
    if len(parts) > 1:
        counts = Counter(one.question.cluster.accelerator.name for one in asked)
        raise InputError(
            f"the runs are of {len(parts)} accelerators: "
            + ", ".join(f"{name} ({number:,} run{'s' * (number != 1)})" for name, number in counts.most_common(10)),
            rule="a profile is fitted to runs of one accelerator",
            hint=f"name one: --accelerator {counts.most_common(1)[0][0]}",
        )
    return next(iter(parts.values()))


def _unusable(num_runs: int, left: Sequence[SkippedRun], what: str) -> InputError:
    problems = problems_of(left)
    more = f"; and {len(problems) - MOST_REASONS} more" if len(problems) > MOST_REASONS else ""
    reasons = "; ".join(f"{each.where}: {each.text[:300]}" for each in problems[:MOST_REASONS])
    return InputError(
        f"none of the {num_runs} runs can be used: {reasons}{more}",
        rule=f"some runs are of {what} and can be predicted",
        hint="correct the rows, or name the accelerator that they were measured on with --accelerator",
    )


def usable_runs(runs: Sequence[MeasuredRun], part: Accelerator, unreadable: tuple[SkippedRun, ...]) -> Usable:
    """Runs of the accelerator that can be predicted, and the others."""
    asked, skipped = ask_all([run for run in runs if run.ran])
    nothing = "ran out of memory, so there is nothing to fit to"
    ended = [SkippedRun(run=run, rule=MEASURES, reason=nothing) for run in runs if not run.ran]
    named = [(one, one.question.cluster.accelerator.name) for one in asked]
    own = [one for one, name in named if name == part.name]
    others = [
        SkippedRun(run=one.run, rule=f"runs are of {part.name}", reason=f"is of {name}, not {part.name}")
        for one, name in named
        if name != part.name
    ]
    left = (*unreadable, *skipped, *others, *ended)
    if not own:
        raise _unusable(len(runs) + len(unreadable), left, part.name)
    found = _that_can_be(cases_of(own), part.generation)
    if not found.cases:
        raise _unusable(len(runs) + len(unreadable), (*found.skipped, *left), part.name)
    return replace(found, skipped=(*found.skipped, *left))


def _that_can_be(cases: Sequence[PosedRun], generation: str) -> Usable:
    """Runs that may have run as they are written, by the shipped constants, and those that cannot have."""
    times, _, needs = log_ratios_and_needs(cases, {generation: load_profile(generation)})
    slip = unit_slip(times)
    if slip is not None:
        raise InputError(slip, rule="step_time_s is in seconds", hint="correct the column or its name")
    kept, left, tight = [], [], []
    for case, share in zip(cases, np.exp(np.ravel(needs)).tolist(), strict=True):
        run, usable = case.asked.run, float(np.max(case.asked.question.usable_memory))
        why = cannot_have_run(run, share * usable, usable)
        if why:
            left.append(SkippedRun(run=run, rule=FITTED_IN_MEMORY, reason=why))
            continue
        kept.append(case)
        tight += [(run.id, share)] if share > 1 else []
    return Usable(cases=tuple(kept), skipped=tuple(left), not_fitting=tuple(sorted(tight, key=lambda each: -each[1])))
