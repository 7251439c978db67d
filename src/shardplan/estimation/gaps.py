r"""In which respects a question lies outside the measured runs, and by how much that widens its band.

Factors come from the published runs where they can tell, else from judgement; both are stated with them. Causes are
independent of one another:

.. math:: f = \sqrt{1 + \sum_g (f_g^2 - 1)}

What was measured by few sources lies between: with n of them the factor of a respect is

.. math:: f_n = 1 + (f_0 - 1) \max(0, 1 - n / 3)

The published errors are those of the shipped constants. Those of a given profile may be better, where a fit to runs of
the same generation says so by errors of its own; or worse, where nothing tells.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from shardplan.base.fields import dataclass, replace
from shardplan.estimation.evidence import EXPOSING, NEIGHBOURHOOD, WEIGHTS, KnownRuns, spread
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan
from shardplan.inputs.profile import MEMORY_CONSTANTS, NOT_CONSTANTS, Profile, generations, load_profile
from shardplan.inputs.readers.residuals import Features, Residual

UNMEASURED = 1.4
"""Factor on the width (logarithm) of a band for a generation of accelerators that no run covers. Constants fitted
without a generation, and a band of the other generations' errors: with this factor 80 % or more of the runs of each of
the measured generations lie inside, but 14 of the 20 of Ascend (91 % of all); without it 50 % of Ascend's and 69 % of
Blackwell's (``refit(left_out="generation")`` and ``covered_runs(..., unmeasured=True)``)."""
UNTIMED = 2.25
"""For a generation that no run covers, and of which no kernel was timed either, so that it has the constants of all
generations. Constants fitted without a generation and bands as above, but predictions by the default constants in place
of its own: with this factor 80 % or more of the runs of each generation of 20 runs and more lie inside, with 1.4 64 %
of Ampere's and 58 % of the TPUs'."""
UNMEASURED_PART = 1.25
"""The same for an accelerator that no run covers, of a generation that some do. Constants fitted without the
generation, errors kept from each accelerator in turn: 81 % inside without the factor, 88 % with it (families by the
root of their runs: 77, 85)."""
UNMEASURED_KIND = 1.3
"""For mixtures of experts (or dense models) on a generation that has runs of the other kind alone. Errors of that kind
and generation kept from the band: 77 % of mixtures inside without the factor, 84 % with it; with those errors 82 %."""
OTHER_MIXERS = 0.15
"""Difference in the share of layers without attention from which on a run is of another kind of model. Judgement; the
factor is that of mixtures of experts."""
UNMEASURED_FORMAT = 1.25
"""For a number format that no run of the generation computes in, as for a part. Judgement: errors alone say nothing
(fp8 bands are as good without the fp8 runs of the generation), but its matrix rate was fitted to no run."""
UNMEASURED_LENGTH = 1.25
"""For sequences of which no run has half. Judgement, as for a part; long ones that attend for most of a step are wider
by their share of attention."""
UNMEASURED_PAIR = 1.25
"""For two respects that decide which communication is exposed (``evidence.EXPOSING``) of which no run of the kind is
near in both. Of the first 880 runs, 8 in 10 left-out errors were below 1.15 of what the parts of a step let expect
where no run of another family was near (60 runs), and below 0.90 elsewhere. Of
today's, left out by team, it is 1.50 of 300 runs against 0.98, and 80 and 84 % lie in their bands
(``benchmarks/neighbourhoods.py``): such runs are of other software too, so that the factor is judgement."""
UNMEASURED_SCALE = 1.15
"""For scales of which no run of the generation and kind (of all generations, where it has none) has half. Of the runs
on 512 to 4,095 accelerators 77 % lie in their bands, and of those outside most took longer."""
OUTSIDE = 1.25
"""Factor of a respect in which no run covers a question: the smallest of those above that are not of scale."""
BEYOND = 0.1
"""Growth of the factor per doubling beyond the largest measured run. Judgement: runs held against those at most a half
to a thirty-second of their scale lie inside as often as others, but no run tells of a scale that nobody measured."""
BEYOND_PART = 0.05
"""The same beyond the largest run of the accelerator, within the scale measured on others of its generation; with
few sources no more than ``UNMEASURED_PART``."""
ENOUGH = 3
"""Sources of runs that cover a respect in full."""


@dataclass(frozen=True, kw_only=True)
class Gap:
    """One respect in which no or few measured runs are like the question."""

    reason: str
    factor: float
    """On the width of the band; one where it is as it would be."""
    others: str | None = None
    """Where no run is comparable at all: the runs that the band is made of."""


def total_factor(gaps: Sequence[Gap]) -> float:
    """Factor of all gaps together, as of independent causes; what is nearer than most makes all of it narrower."""
    nearer = math.prod(min(gap.factor, 1.0) for gap in gaps)
    return nearer * math.sqrt(1 + sum(max(gap.factor, 1.0) ** 2 - 1 for gap in gaps))


def gaps_of(asked: Features, part: str, quantity: str, known: Sequence[Residual]) -> tuple[Gap, ...]:
    """Respects in which ``asked``, on the accelerator that is called ``part``, lies outside ``known`` runs.

    Memory is the framework's: of one part, format and plan as of another. What was measured of a generation makes no
    question less certain than it is on one of which nothing was.
    """
    covered = [run for run in known if run.features.generation == asked.generation]
    gaps = tuple(_of_unmeasured(asked, part, quantity, known))
    if covered:
        gaps = _at_most(total_factor(gaps), tuple(_of_measured(asked, part, quantity, covered, known)))
    return gaps if quantity == "memory" else (*gaps, *_lengths(asked, known))


def gap_of_plan(asked: Features, published: KnownRuns, own: KnownRuns | None = None) -> Gap:
    """What is unmeasured of a plan and what it splits; a factor below one near to measured runs.

    ``own``: runs of a profile's own, of sources of their own.
    """
    if own is None:
        return _gap(asked, _rarest_of(published, _exposed(asked)), published.squared(asked, NEIGHBOURHOOD))
    terms = np.concatenate([published.terms(asked, NEIGHBOURHOOD), own.terms(asked, NEIGHBOURHOOD)])
    return gap_among(
        asked, terms, np.concatenate([published.sources, own.sources + published.sources.max(initial=-1) + 1])
    )


def gap_among(asked: Features, terms: NDArray[np.float64], sources: NDArray[np.intp]) -> Gap:
    """The same for runs of these ``sources``, with the terms of their squared distances from ``asked``."""
    return _gap(asked, rarest(asked, terms, sources), terms.sum(axis=1))


def _gap(asked: Features, rarest_of_it: tuple[str, float], squared: NDArray[np.float64]) -> Gap:
    """The larger of the two: that of respects which few runs have together, and that of the distance from all runs."""
    reason, rare = rarest_of_it
    far = spread(float(np.sqrt(squared.min(initial=np.inf))))
    if rare < min(far, UNMEASURED_PAIR):
        reason = f"no measured {_kind_of(asked)} run has a similar plan"
    return Gap(reason=reason, factor=max(rare, far) if rare > 1 else far)


def _exposed(asked: Features) -> Features:
    """``asked`` with nothing but what the rarest of it depends on."""
    degrees = {name: getattr(asked.plan, name) for name in EXPOSING if hasattr(asked.plan, name)}
    plan = Plan(**degrees, sharding=asked.plan.sharding)
    return Features(
        accelerator="",
        generation="",
        bits=16,
        moe=asked.moe,
        parameters=1.0,
        accelerators=1.0,
        sequence_length=asked.sequence_length,
        plan=plan,
    )


@lru_cache(maxsize=1024)
def _rarest_of(known: KnownRuns, asked: Features) -> tuple[str, float]:
    return rarest(asked, known.terms(asked, NEIGHBOURHOOD), known.sources)


def rarest(asked: Features, terms: NDArray[np.float64], sources: NDArray[np.intp]) -> tuple[str, float]:
    """The respect, or two of them together, in which fewest sources had a run of its kind near to it; its factor."""
    of_kind = terms[:, NEIGHBOURHOOD.index("kind")] == 0
    enough = min(ENOUGH, _num_different(sources))
    near = {name: of_kind & (terms[:, NEIGHBOURHOOD.index(name)] < WEIGHTS[name]) for name in EXPOSING}
    groups = (*((name,) for name in EXPOSING), *combinations(EXPOSING, 2))
    runs = [np.logical_and.reduce([near[name] for name in group]) for group in groups]
    counts = [min(_num_different(sources[rows]), enough) for rows in runs]
    least = min(counts)
    if least == enough:
        return "", 1.0
    place = counts.index(least)
    words = " with ".join(EXPOSING[name](asked) for name in groups[place])
    factor = 1 + (UNMEASURED_PAIR - 1) * (1 - least / enough)
    if not least:
        return f"no measured {_kind_of(asked)} run has {words}", factor
    count, are = int(runs[place].sum()), f"of {least} sources" if least > 1 else "all of one source"
    run = f"1 measured {_kind_of(asked)} run" if count == 1 else f"{count} measured {_kind_of(asked)} runs ({are})"
    return f"{words}: {run}", factor


def _num_different(sources: NDArray[np.intp]) -> int:
    return int(np.count_nonzero(np.bincount(sources)))


def _alike(asked: Features, quantity: str, runs: Sequence[Residual]) -> Sequence[Residual]:
    """Runs of its kind of model, as far as there are any; of memory all: one kind needs what another does."""
    of_kind = [run for run in runs if quantity == "memory" or run.features.moe == asked.moe]
    return of_kind or runs


def largest_scale(runs: Sequence[Residual]) -> float:
    """Accelerators of the largest of ``runs``."""
    return max(run.features.accelerators for run in runs)


def _at_most(most: float, gaps: tuple[Gap, ...]) -> tuple[Gap, ...]:
    """``gaps`` whose factors are together no more than ``most``."""
    total = total_factor(gaps)
    if total <= most:
        return gaps
    share = (most**2 - 1) / (total**2 - 1)
    return tuple(replace(gap, factor=math.sqrt(1 + share * (gap.factor**2 - 1))) for gap in gaps)


def _of_unmeasured(asked: Features, part: str, quantity: str, known: Sequence[Residual]) -> Iterator[Gap]:
    """Of a generation that no run covers."""
    what = "measured run" if quantity == "time" else "measured peak memory"
    reason = f"no {what} covers {part} or its generation"
    untimed = quantity == "time" and asked.generation not in generations()
    if untimed:
        reason += ", of which no kernel was timed"
    factor = UNTIMED if untimed else UNMEASURED
    yield Gap(reason=reason, factor=factor, others=f"{len(known):,} runs of other accelerators")
    if quantity == "time" and all(run.features.bits != asked.bits for run in known):
        yield _unknown_format(asked, known)
    yield from _scale(asked, quantity, _alike(asked, quantity, known), "")


def _of_measured(
    asked: Features, part: str, quantity: str, covered: Sequence[Residual], known: Sequence[Residual]
) -> Iterator[Gap]:
    """Of a generation that has runs."""
    if quantity == "time":
        yield from _part(asked, part, covered)
        yield from _kind(asked, covered)
        yield from _mixers(asked, covered)
        yield from _format(asked, covered, known)
    yield from _scale(asked, quantity, _alike(asked, quantity, covered), " of its generation")


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


def _part(asked: Features, part: str, covered: Sequence[Residual]) -> Iterator[Gap]:
    """Few sources, or runs on fewer accelerators than others of the generation: at most as one that has none."""
    runs = [run for run in covered if run.features.accelerator == asked.accelerator]
    if not runs:
        reason = f"no measured run covers {part}, only others of its generation"
        others = f"{len(covered):,} runs of other parts of its generation"
        yield Gap(reason=reason, factor=UNMEASURED_PART, others=others)
        return
    asked_of_it = min(asked.accelerators, largest_scale(_alike(asked, "time", covered)))
    beyond = max(math.log2(asked_of_it / largest_scale(runs)), 0.0)
    told = [f"{part}: {_counted(runs)}"] if _sources(runs) < ENOUGH else []
    told += [f"the largest run of {part} was on {largest_scale(runs):,.0f} accelerators"] if beyond else []
    if told:
        factor = min(_few(UNMEASURED_PART, runs) + BEYOND_PART * beyond, UNMEASURED_PART)
        yield Gap(reason=", ".join(told), factor=factor)


def _kind_of(asked: Features) -> str:
    return "mixture-of-experts" if asked.moe else "dense"


def _kind(asked: Features, covered: Sequence[Residual]) -> Iterator[Gap]:
    if all(run.features.moe != asked.moe for run in covered):
        reason = f"no {_kind_of(asked)} run of its generation was measured"
        yield Gap(reason=reason, factor=UNMEASURED_KIND, others=f"{len(covered):,} runs of other models")


def _mixers(asked: Features, covered: Sequence[Residual]) -> Iterator[Gap]:
    """Models of which more layers carry a state than of any that was measured, or fewer."""
    if all(abs(run.features.recurrent - asked.recurrent) > OTHER_MIXERS for run in covered):
        reason = "no measured run of its generation has such a share of layers without attention"
        yield Gap(reason=reason, factor=UNMEASURED_KIND, others=f"{len(covered):,} runs of other models")


def _format(asked: Features, covered: Sequence[Residual], known: Sequence[Residual]) -> Iterator[Gap]:
    if all(run.features.bits != asked.bits for run in known):
        yield _unknown_format(asked, known)
    elif all(run.features.bits != asked.bits for run in covered):
        reason = f"no measured run of its generation multiplies in {asked.bits} bits"
        yield Gap(reason=reason, factor=UNMEASURED_FORMAT)


def _unknown_format(asked: Features, known: Sequence[Residual]) -> Gap:
    reason = f"no measured run multiplies in {asked.bits} bits"
    return Gap(reason=reason, factor=UNMEASURED, others=f"{len(known):,} runs in other formats")


def _scale(asked: Features, quantity: str, alike: Sequence[Residual], of: str) -> Iterator[Gap]:
    """Beyond the largest of the runs that are comparable; of times also where few sources were near."""
    largest = largest_scale(alike)
    beyond = max(math.log2(asked.accelerators / largest), 0.0)
    near = [run for run in alike if run.features.accelerators >= asked.accelerators / 2]
    is_rare = quantity == "time" and _sources(near) < min(ENOUGH, _sources(alike))
    if not beyond and not is_rare:
        return
    kind = _kind_of(asked) if alike[0].features.moe == asked.moe else ""
    run = "peak memory" if quantity == "memory" else f"{kind} run".lstrip()
    told = f"the largest measured {run}{of} was on {largest:,.0f}"
    had = f"{_counted(near)}{of} had half of that or more"
    reason = f"{asked.accelerators:,.0f} accelerators: {told if beyond else had}"
    yield Gap(reason=reason, factor=(_few(UNMEASURED_SCALE, near) if is_rare else 1.0) + BEYOND * beyond)


def _lengths(asked: Features, known: Sequence[Residual]) -> Iterator[Gap]:
    """Long sequences."""
    size = asked.sequence_length
    near = [run for run in known if run.features.sequence_length >= size / 2]
    if _sources(near) >= min(ENOUGH, _sources(known)):
        return
    largest = max(run.features.sequence_length for run in known)
    beyond = max(math.log2(size / largest), 0.0)
    had = f"the most that was measured is {largest:,.0f}" if beyond else f"{_counted(near)} had half of that or more"
    yield Gap(reason=f"sequences of {size:,.0f} tokens: {had}", factor=_few(UNMEASURED_LENGTH, near) + BEYOND * beyond)


UNCALIBRATED = 1.25
"""Factor on the width of the band for constants that were fitted to no runs: typed in, or timed kernels. Judgement: as
for an accelerator never measured; the published runs are 1.2 to 1.3 times as far off with no constant fitted."""
FOREIGN = 1.6
"""For constants of another generation. The published runs of seven generations, each with the constants of every other
measured one: 1.6 times as far off in the median, by their 90th percentile (logarithm)."""
SAME = 0.05
"""Change of a width that is not worth a word."""


def own_runs(question: Question, quantity: str) -> tuple[Residual, ...]:
    """Errors of the runs that the profile was fitted to; none where they are of another generation.

    Each is a source of its own: they were chosen to differ, and it is this cluster that they speak of.
    """
    profile, generation = question.given_profile, question.cluster.accelerator.generation
    if profile is None or profile.generation not in (generation, "default"):
        return ()
    runs = [run for run in profile.left_out_errors if run.features.generation == generation and run.has(quantity)]
    return tuple(run._replace(family=f"own:{run.id}") for run in runs)


def doubts_of(question: Question, quantity: str, own: Sequence[Residual]) -> tuple[Gap, ...]:
    """What makes errors of the shipped constants too small for those that are used; ``own`` errors leave no doubt."""
    profile, generation = question.given_profile, question.cluster.accelerator.generation
    if profile is None or own or _is_shipped(profile, generation, quantity):
        return ()
    if profile.generation not in (generation, "default"):
        reason = (
            f"the constants of '{profile.name}' are those of {profile.generation}, another generation than {generation}"
        )
        return (Gap(reason=reason, factor=FOREIGN),)
    what = "step times" if quantity == "time" else "peak memory"
    reason = f"bands are made with the shipped constants, and '{profile.name}' has no errors of its own for {what}"
    return (Gap(reason=reason, factor=UNCALIBRATED),)


COMPANION = 1.7
"""Size of the error of a companion's pass over that of a step that computes. Six measured passes without gradients of
post-training (``nemo-issue959``) are off by 0.20 (logarithm, root of squares) from what training in the same run is off
by; a step that computes by 0.12 (``band.COMPUTING``)."""


def gap_of_companions(question: Question, quantity: str, share: float) -> tuple[Gap, ...]:
    r"""Of frozen companions, which no measured run has: :math:`\sqrt{1 + (f x)^2}` of a step of which they are x.

    Their memory is counted as that of the model: x is their part of all parameters, and the factor that of a part.
    """
    if not question.companions:
        return ()
    if quantity == "memory":
        held = sum(other.model.num_parameters for _, other in question.companions)
        share = round(held / (held + question.model.num_parameters), 2)
        return (Gap(reason=NO_COMPANION, factor=1 + (UNMEASURED_PART - 1) * share),)
    share = round(share, 2)
    return (Gap(reason=f"{NO_COMPANION}, {100 * share:.0f} % of this step", factor=math.hypot(1, COMPANION * share)),)


NO_COMPANION = "no measured run has a frozen companion"


def _is_shipped(profile: Profile, generation: str, quantity: str) -> bool:
    """Whether the constants that ``quantity`` is predicted with are the shipped ones of the generation."""
    shipped = load_profile(generation)
    names = {field.name for field in fields(Profile)} - set(NOT_CONSTANTS)
    is_memory = quantity == "memory"
    of_it = [name for name in names if (name in MEMORY_CONSTANTS) == is_memory]
    return all(getattr(profile, name) == getattr(shipped, name) for name in of_it)


def told_of(own: Sequence[Residual], quantity: str, width: float) -> str:
    """The errors of own runs as text, and what they make of a band that would else be ``1 / width`` as wide."""
    errors = np.exp(np.abs([getattr(run, quantity) for run in own])) - 1
    median, p90 = 100 * np.median(errors), 100 * np.quantile(errors, 0.9)
    size = f"{median:,.1f} % in the median, {p90:,.1f} % at the 90th percentile"
    change = "as wide as" if abs(width - 1) <= SAME else "wider than" if width > 1 else "narrower than"
    if len(own) == 1:
        return f"the profile's only run is off by {median:,.1f} % without it; the band is {change} without it"
    runs = f"the profile's {len(own):,} runs, each predicted without itself"
    return f"{runs}, are off by {size}; the band is {change} without them"
