"""What a given profile says of its own errors, and how far the shipped ones hold for it.

The published errors are those of the shipped constants. Other constants may be better, where a fit to runs of the same
generation says so by errors of its own; or worse, where nothing tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np

from shardplan.estimation.gaps import Gap
from shardplan.estimation.question import Question
from shardplan.inputs.profile import MEMORY_CONSTANTS, NOT_CONSTANTS, Profile, load_profile
from shardplan.inputs.readers.residuals import Residual

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
