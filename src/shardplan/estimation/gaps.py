r"""In which respects a question lies outside the measured runs, and by how much that widens its band.

Factors come from the published runs where they can tell, else from judgement; both are said beside them. Causes are
independent of one another:

.. math:: f = \sqrt{1 + \sum_g (f_g^2 - 1)}

What was measured by few sources lies between: with n of them the factor of a respect is

.. math:: f_n = 1 + (f_0 - 1) \max(0, 1 - n / 3)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from shardplan.inputs.residuals import Features, Residual

__all__ = ["BEYOND", "UNMEASURED", "UNMEASURED_PART", "Gap", "gaps_of", "total_factor"]

UNMEASURED = 1.4
"""Factor on the width (logarithm) of a band for a generation of accelerators that no run covers. Constants fitted
without a generation, and a band of the other generations' errors: with this factor 79 % or more of the runs of each of
the seven measured generations lie inside (90 % of all), without it 60 % of Ascend's and 62 % of Blackwell's
(``refit(left_out="generation")`` and ``covered_runs(..., unmeasured=True)``)."""
UNMEASURED_PART = 1.25
"""The same for an accelerator that no run covers, of a generation that some do. Constants and errors kept from each
accelerator in turn: 82 % inside without the factor, 88 % with it (families by the root of their runs: 77, 84)."""
UNMEASURED_KIND = 1.3
"""For mixtures of experts (or dense models) on a generation that has runs of the other kind alone. Errors of that kind
and generation kept from the band: 70 % of mixtures inside with 1.25, 77 % with 1.5, where 73 % are with them."""
UNMEASURED_FORMAT = 1.25
"""For a number format that no run of the generation computes in, as for a part. Judgement: errors alone say nothing
(fp8 bands are as good without the fp8 runs of the generation), but its matrix rate was fitted to no run."""
UNMEASURED_LENGTH = 1.25
"""For sequences, and degrees of context parallelism, of which no run has half. Judgement, as for a part; long sequences
that attend for most of a step are wider by their share of attention."""
UNMEASURED_SCALE = 1.15
"""For scales of which no run of the generation and kind has half. Of the runs on 512 to 4,095 accelerators 77 % lie in
their bands, and those outside took longer; the lower end of a band would else rise with the scale."""
BEYOND = 0.1
"""Growth of the factor per doubling beyond the largest measured run. Judgement: runs held against those at most a half
to a thirty-second of their scale lie inside as often as others, but no run tells of a scale that nobody measured."""
BEYOND_PART = 0.05
"""The same beyond the largest run of the accelerator, within the scale measured on others of its generation."""
ENOUGH = 3
"""Sources of runs that cover a respect in full."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gap:
    """One respect in which no or few measured runs are like the question."""

    reason: str
    factor: float
    """On the width of the band; one where it is as it would be."""
    others: str | None = None
    """Where no run is comparable at all: the runs that the band is made of."""


def total_factor(gaps: Sequence[Gap]) -> float:
    """Factor of all gaps together, as of independent causes."""
    return math.sqrt(1 + sum(gap.factor**2 - 1 for gap in gaps))


def gaps_of(asked: Features, part: str, quantity: str, known: Sequence[Residual]) -> tuple[Gap, ...]:
    """Respects in which ``asked``, on the accelerator that is called ``part``, lies outside ``known`` runs.

    Memory is the framework's: of one part, format and plan as of another.
    """
    covered = [run for run in known if run.features.generation == asked.generation]
    if not covered:
        what = "measured run" if quantity == "time" else "measured peak memory"
        reason = f"no {what} covers {part} or its generation"
        others = f"{len(known):,} runs of other accelerators"
        return (Gap(reason=reason, factor=UNMEASURED, others=others), *_lengths(asked, quantity, known))
    if quantity == "memory":
        return tuple(_scale(asked, part, covered, covered, "peak memory", enough=0))
    of_part = [run for run in covered if run.features.accelerator == asked.accelerator]
    of_kind = [run for run in covered if run.features.moe == asked.moe]
    kind = "mixture-of-experts" if asked.moe else "dense"
    return (
        *_part(part, of_part, covered),
        *_kind(kind, of_kind, covered),
        *_format(asked, covered, known),
        *_scale(asked, part, of_kind or covered, of_part, f"{kind} run" if of_kind else "run"),
        *_lengths(asked, quantity, known),
    )


def _few(largest: float, runs: Sequence[Residual]) -> float:
    """Factor where ``runs`` alone are evidence; ``largest`` where there are none."""
    return 1 + (largest - 1) * max(0.0, 1 - _sources(runs) / ENOUGH)


def _sources(runs: Sequence[Residual]) -> int:
    return len({run.family for run in runs})


def _counted(runs: Sequence[Residual]) -> str:
    """How many runs of how many sources."""
    sources = _sources(runs)
    if len(runs) == 1:
        return "1 measured run"
    return f"{len(runs)} measured runs ({'all of one source' if sources == 1 else f'of {sources} sources'})"


def _part(part: str, runs: Sequence[Residual], covered: Sequence[Residual]) -> Iterator[Gap]:
    if not runs:
        reason = f"no measured run covers {part}, only others of its generation"
        others = f"{len(covered):,} runs of other parts of its generation"
        yield Gap(reason=reason, factor=UNMEASURED_PART, others=others)
    elif _sources(runs) < ENOUGH:
        yield Gap(reason=f"{part}: {_counted(runs)}", factor=_few(UNMEASURED_PART, runs))


def _kind(kind: str, runs: Sequence[Residual], covered: Sequence[Residual]) -> Iterator[Gap]:
    if not runs:
        reason = f"no {kind} run of its generation was measured"
        yield Gap(reason=reason, factor=UNMEASURED_KIND, others=f"{len(covered):,} runs of other models")


def _format(asked: Features, covered: Sequence[Residual], known: Sequence[Residual]) -> Iterator[Gap]:
    if any(run.features.bits == asked.bits for run in covered):
        return
    is_known = any(run.features.bits == asked.bits for run in known)
    where, factor = (" of its generation", UNMEASURED_FORMAT) if is_known else ("", UNMEASURED)
    reason = f"no measured run{where} multiplies in {asked.bits} bits"
    yield Gap(reason=reason, factor=factor, others=None if is_known else f"{len(known):,} runs in other formats")


def _scale(
    asked: Features,
    part: str,
    alike: Sequence[Residual],
    of_part: Sequence[Residual],
    kind: str,
    *,
    enough: int = ENOUGH,
) -> Iterator[Gap]:
    """Beyond the largest run of the generation and kind; or of the part, whose network may be another."""
    largest = max(run.features.accelerators for run in alike)
    of_own = min(largest, max((run.features.accelerators for run in of_part), default=largest))
    beyond, beyond_part = (max(math.log2(asked.accelerators / size), 0.0) for size in (largest, of_own))
    near = [run for run in alike if run.features.accelerators >= asked.accelerators / 2]
    is_rare = _sources(near) < min(enough, _sources(alike))
    if not beyond_part and not is_rare:
        return
    told = []
    if beyond:
        told.append(f"the largest measured {kind} of its generation was on {largest:,.0f}")
    elif is_rare:
        told.append(f"{_counted(near)} of its generation had half of that or more")
    if of_own < largest and beyond_part:
        told.append(f"the largest run of {part} was on {of_own:,.0f}")
    growth = BEYOND * beyond + BEYOND_PART * (beyond_part - beyond)
    reason = f"{asked.accelerators:,.0f} accelerators: {', '.join(told)}"
    yield Gap(reason=reason, factor=(_few(UNMEASURED_SCALE, near) if is_rare else 1.0) + growth)


def _lengths(asked: Features, quantity: str, known: Sequence[Residual]) -> Iterator[Gap]:
    """Long sequences, and for the time the degree of context parallelism."""
    if quantity == "memory":
        return
    yield from _length(known, asked.sequence_length, lambda run: run.sequence_length, "sequences of {:,.0f} tokens")
    yield from _length(known, asked.cp, lambda run: run.cp, "cp {:,.0f}")


def _length(known: Sequence[Residual], size: float, size_of: Callable[[Features], float], words: str) -> Iterator[Gap]:
    near = [run for run in known if size_of(run.features) >= size / 2]
    if _sources(near) >= min(ENOUGH, _sources(known)):
        return
    largest = max(size_of(run.features) for run in known)
    beyond = max(math.log2(size / largest), 0.0)
    had = f"the most that was measured is {largest:,.0f}" if beyond else f"{_counted(near)} had half of that or more"
    yield Gap(reason=f"{words.format(size)}: {had}", factor=_few(UNMEASURED_LENGTH, near) + BEYOND * beyond)
