"""A profile for one's own cluster: the shipped constants moved by a few measured runs, with errors before and after.

The fit is that of the shipped constants. Its priors are the shipped values, as uncertain as published runs left them:
few runs move what they inform and nothing else. Some configurations are held out: the errors of their runs tell what
the profile is worth on runs that it has not seen. Of the others each is left out of a fit of its own. The profile keeps
the errors of both: bands are made of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Final

import numpy as np
import yaml

from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass, in_files
from shardplan.calibrate.errors import Errors, errors_of
from shardplan.calibrate.fit import SD_DIGITS, Fit, Free, evidence_of, fit, free_constants, rounded, with_part
from shardplan.calibrate.left_out import errors_left_out, split_of
from shardplan.calibrate.predict import PosedRun, SkippedRun, log_ratios, not_understood, skipped_rows, taken_as
from shardplan.calibrate.runs.rows import MeasuredRun, UnreadableRun
from shardplan.calibrate.usable import only_part, usable_runs
from shardplan.inputs.cluster import Accelerator
from shardplan.inputs.profile import FRACTION, MOST_OF_NOMINAL, Constant, Profile, assemble, constants_of, load_profile
from shardplan.inputs.readers.catalog import load_accelerator
from shardplan.inputs.readers.residuals import Residual, residual_row

DEFAULT: Final = "default"
RATE: Final = "accelerator_rate"
ACTIVATIONS: Final = "activation_factor"
MOST_HELD_OUT: Final = 0.9
EACH_LEFT_OUT: Final = "Each run predicted by constants that have not seen it: the bands of this profile."
NOTHING_LEFT_OUT: Final = (
    "All runs are of one configuration: nothing can be left out, and bands are those of the published runs, widened."
)
BETWEEN_FAMILIES: Final = 0.1
"""Spread of whole families of runs around constants that have not seen them: standard deviation of the median left-out
errors (logarithm) of the 13 published families of eight runs or more (0.104). A cluster of one's own is one more."""
LEAST_MOVE: Final = 0.02
"""Constants that move by less, in standard deviations of their prior, stay as they are shipped."""


@dataclass(frozen=True, kw_only=True)
class FitComparison:
    """Errors of some runs before and after the fit."""

    step_time: tuple[Errors, Errors]
    peak_memory: tuple[Errors, Errors]


@dataclass(frozen=True, kw_only=True)
class Change:
    """One constant, or keys of one table that move together."""

    label: str = field(metadata=in_files("name"))
    unit: str
    before: tuple[float, ...]
    after: tuple[float, ...]
    sd_before: float
    """Of the logarithm (of the log-odds of a share)."""
    sd_after: float
    move: float
    """How far it moved, in units of ``sd_before``."""


@dataclass(frozen=True, kw_only=True)
class UserFit:
    """A profile fitted to measured runs of one accelerator."""

    accelerator: str
    generation: str
    fitted: tuple[str, ...]
    """Runs it was fitted to."""
    held_out: tuple[str, ...]
    """Runs it has not seen."""
    skipped: tuple[SkippedRun, ...]
    """Runs that could not be used, each with the reason."""
    on_fitted: FitComparison
    on_held_out: FitComparison
    num_configurations: int
    """Of all runs; of a single one nothing can be held out or left out."""
    left_out: tuple[Residual, ...]
    """Every run with the error of a fit that has not seen it: those held out, and each of the others in turn, unless
    they are of one configuration, without which there is nothing to fit."""
    changes: tuple[Change, ...]
    """Constants that moved, the most in terms of their prior first."""
    constants: Mapping[str, Constant]
    """What the profile states: moved values only."""
    outliers: tuple[tuple[str, float], ...]
    """Runs that the fitted constants predict less than half or more than twice, with predicted over measured."""
    not_understood: Mapping[str, int]
    """Options, values and columns that changed nothing, with the number of runs that state them."""
    taken: Mapping[str, int]
    """Names and words that were taken as others, likewise."""
    not_fitting: tuple[tuple[str, float], ...] = ()
    """Of the runs used those predicted not to fit in memory, with needed over usable memory."""
    read_as: tuple[str, ...] = ()
    """Columns of the file that are read as others, and what separates them."""


def calibrate_runs(
    runs: Sequence[MeasuredRun],
    accelerator: str | None = None,
    *,
    file: str,
    date: str,
    holdout: float = 0.3,
    seed: int = 0,
    unreadable: Sequence[UnreadableRun] = (),
    progress: Callable[[int, float], None] | None = None,
) -> UserFit:
    """Fits the constants of ``accelerator`` to its measured runs; where none is named, of the one that all runs are of.

    ``file``, ``date``: what the constants' sources say. ``holdout``: share of the runs that the fit does not see,
    in whole configurations that ``seed`` chooses.
    ``unreadable``: rows of the file that could not be read.
    Raises ``InputError`` where no run is usable, or where several accelerators are meant and none is named.
    """
    if not 0 <= holdout <= MOST_HELD_OUT:
        rule = f"from 0 to {MOST_HELD_OUT:g}"
        raise InputError(
            f"the share held out is {holdout:g}; it must be {rule}",
            rule=f"the share of runs held out is {rule}",
            hint="--holdout 0.3",
        )
    part = only_part(runs) if accelerator is None else load_accelerator(accelerator)
    if accelerator is not None:  # runs may call a part of one's own by the name that its file gives it
        runs = [replace(run, accelerator=accelerator) if run.accelerator == part.name else run for run in runs]
    found_usable = usable_runs(runs, part, skipped_rows(unreadable))
    usable, skipped = found_usable.cases, found_usable.skipped
    split, frees = split_of(usable, holdout, seed), user_constants(part)
    evidence = evidence_of(split.seen, frees, split.groups, by_family=False)  # what runs share is what is to be learnt
    found = fit(frees, evidence, (None, *split.folds), progress=progress)
    repeats = " of one configuration" if not split.folds and len(split.seen) > 1 else ""
    constants = _constants(found, f"{_counted(len(split.seen))}{repeats} of {file}, {date}")
    base = load_profile(part.generation)
    profile = assemble(part.generation, base.constants, constants)
    return UserFit(
        accelerator=part.name,
        generation=part.generation,
        fitted=tuple(case.asked.run.id for case in split.seen),
        held_out=tuple(case.asked.run.id for case in split.unseen),
        skipped=skipped,
        on_fitted=_compare(split.seen, part.generation, base, profile),
        on_held_out=_compare(split.unseen, part.generation, base, profile),
        num_configurations=split.num_configurations,
        left_out=errors_left_out(split, found, profile),
        changes=_changes(found),
        constants=constants,
        outliers=_outliers(usable, part.generation, profile),
        not_understood=not_understood(case.asked for case in usable),
        taken=taken_as(case.asked for case in usable),
        not_fitting=found_usable.not_fitting,
    )


def _counted(runs: int) -> str:
    return f"{runs:,} run{'s' * (runs != 1)}"


def user_constants(part: Accelerator) -> tuple[Free, ...]:
    """Free constants that apply to a part, around their shipped values as uncertain as published runs left them.

    The part's own rate relative to its generation is always free: power limits and clocks differ between sites. It is
    the term of the cluster, as uncertain as families of runs differ.
    """
    own = constants_of(part.generation)
    frees = [
        _around_shipped(free)
        for free in free_constants()
        if free.generation in (DEFAULT, part.generation) and free.name != RATE and not _is_hidden(free, own)
    ]
    rates = constants_of(DEFAULT)[RATE]
    table = rates.value if isinstance(rates.value, dict) else {}
    spread = max(_spread(rates, (part.name,)) or 0.0, BETWEEN_FAMILIES)
    rate = Free(DEFAULT, RATE, (part.name,), (float(table.get(part.name, 1.0)),), spread, is_share=False)
    return tuple(
        free for free in (rate, *frees) if all(0 < prior < (1 if free.is_share else np.inf) for prior in free.priors)
    )


def _is_hidden(free: Free, own: Mapping[str, Constant]) -> bool:
    """Whether the generation's own file states all that a default constant says."""
    if free.generation != DEFAULT or free.name not in own:
        return False
    value = own[free.name].value
    return not free.keys or (isinstance(value, dict) and set(free.keys) <= set(value))


def _around_shipped(free: Free) -> Free:
    """A constant at its shipped value, as uncertain as the fit left it.

    Activations are as uncertain as families differ: software of one's own may keep tensors that are listed nowhere.
    """
    constant = constants_of(free.generation)[free.name]
    table = constant.value if isinstance(constant.value, dict) else {}
    values = tuple(float(table[key]) for key in free.keys) if free.keys else (float(constant.value),)  # type: ignore[arg-type]  # no table
    spread = _spread(constant, free.keys) or free.sd
    return replace(free, priors=values, sd=max(spread, BETWEEN_FAMILIES if free.name == ACTIVATIONS else 0.0))


def _spread(constant: Constant, keys: tuple[str, ...]) -> float | None:
    """Uncertainty after the shipped fit; None where there is none."""
    sd = constant.sd.get("+".join(keys)) if isinstance(constant.sd, dict) else constant.sd
    return float(sd) if sd else None


def _constants(found: Fit, origin: str) -> dict[str, Constant]:
    """The moved constants; values of one table that move apart are put together."""
    constants: dict[str, Constant] = {}
    for column, free in enumerate(found.frees):
        if abs(found.theta[0, column]) >= LEAST_MOVE * free.sd:
            one, before = _moved(free, found, column, origin), constants.get(free.name)
            if before is not None:
                parts = ("value", "prior", "prior_sd", "sd")
                joined = {name: with_part(getattr(before, name), getattr(one, name)) for name in parts}
                one = replace(before, **joined, source=f"{before.source}; {one.source.partition('; ')[2]}")
            constants[free.name] = one
    return constants


def _moved(free: Free, found: Fit, column: int, origin: str) -> Constant:
    shipped, before = constants_of(free.generation)[free.name], [rounded(value) for value in free.priors]
    source = f"fitted to {origin}; was {', '.join(dict.fromkeys(f'{value:g}' for value in before))}"
    if free.keys and isinstance(shipped.value, dict) and len(free.keys) < len(shipped.value):
        source += f" ({'+'.join(free.keys)})"
    return Constant(
        value=free.stated(_values(free, float(found.theta[0, column]))),
        unit=shipped.unit,
        source=source,
        prior=free.stated(before),
        prior_sd=free.stated_together(free.sd),
        sd=free.stated_together(rounded(float(found.sd[column]), SD_DIGITS)),
        fitted_on=origin,
    )


def _values(free: Free, theta: float) -> list[float]:
    """Values of a fit; fractions as far as a profile may state them."""
    unit = constants_of(free.generation)[free.name].unit
    most = MOST_OF_NOMINAL if unit.startswith(FRACTION) else math.inf
    return [min(rounded(float(value)), most) for value in free.at(theta)]


def _changes(found: Fit) -> tuple[Change, ...]:
    moves = [(abs(float(found.theta[0, column])) / free.sd, column, free) for column, free in enumerate(found.frees)]
    return tuple(
        Change(
            label=free.own_label,
            unit=constants_of(free.generation)[free.name].unit,
            before=tuple(rounded(prior) for prior in free.priors),
            after=tuple(_values(free, float(found.theta[0, column]))),
            sd_before=free.sd,
            sd_after=float(found.sd[column]),
            move=float(move),
        )
        for move, column, free in sorted(moves, key=lambda each: -each[0])
        if move >= LEAST_MOVE
    )


def _compare(cases: Sequence[PosedRun], generation: str, before: Profile, after: Profile) -> FitComparison:
    (old_time, old_memory), (time, memory) = (log_ratios(cases, {generation: each}) for each in (before, after))
    return FitComparison(
        step_time=(errors_of(old_time), errors_of(time)), peak_memory=(errors_of(old_memory), errors_of(memory))
    )


def _outliers(cases: Sequence[PosedRun], generation: str, profile: Profile) -> tuple[tuple[str, float], ...]:
    """Names and ratios of step times that are off by more than a factor of two, the furthest first."""
    times, _ = log_ratios(cases, {generation: profile})
    named = [(case.asked.run.id, float(ratio)) for case, ratio in zip(cases, np.ravel(times), strict=True)]
    far = [(name, ratio) for name, ratio in named if abs(ratio) > np.log(2)]  # not a number where nothing was timed
    return tuple((name, float(np.exp(ratio))) for name, ratio in sorted(far, key=lambda each: -abs(each[1])))


def profile_text(found: UserFit, *, file: str, date: str) -> str:
    """The profile as the text of a file that ``read_profile`` reads."""
    names = ("value", "unit", "source", "prior", "prior_sd", "sd", "fitted_on")
    body: dict[str, Any] = {"generation": found.generation}
    for name, constant in found.constants.items():
        body[name] = {key: getattr(constant, key) for key in names if getattr(constant, key) is not None}
    origin = f"{_counted(len(found.fitted))} of {' '.join(file.split())} on {date}"
    rows = {"left_out_errors": [residual_row(run) for run in found.left_out]}  # a line for each run
    return (
        f"# Constants of {found.accelerator}, fitted to {origin}.\n"
        "# All others are those of its generation. Made by `shardplan calibrate`.\n"
        f"{yaml.safe_dump(body, sort_keys=False, width=118, allow_unicode=True)}"
        f"# {EACH_LEFT_OUT if found.left_out else NOTHING_LEFT_OUT}\n"
        f"{yaml.safe_dump(rows, sort_keys=False, width=math.inf, allow_unicode=True, default_flow_style=None)}"
    )
