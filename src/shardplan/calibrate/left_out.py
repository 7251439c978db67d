"""Runs that a fit does not see: those held out, and folds that leave each of the others out once.

Runs of one configuration go together, since repeats would tell a fit what it is to foretell.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.fields import dataclass
from shardplan.calibrate.fit import Fit, profiles_at
from shardplan.calibrate.predict import PosedRun, log_ratios
from shardplan.calibrate.runs.rows import first_errors, team_of
from shardplan.estimation.band import features_of
from shardplan.estimation.evidence import NEIGHBOURHOOD, KnownRuns
from shardplan.estimation.gaps import UNMEASURED_PAIR, gap_among, gaps_of, rarest, total_factor
from shardplan.inputs.profile import Profile
from shardplan.inputs.readers.residuals import DESCRIBED, Residual, Shares, read_residuals

Vector = NDArray[np.float64]
Places = NDArray[np.intp]
MOST_FOLDS: Final = 10
"""Fits in addition to the one to all runs, each without some of them."""


@dataclass(frozen=True, kw_only=True)
class RunSplit:
    """Runs that a fit sees, and those that it does not."""

    seen: tuple[PosedRun, ...]
    unseen: tuple[PosedRun, ...]
    groups: tuple[str, ...]
    """Fold of every run that is seen: runs of one configuration share it."""
    num_configurations: int
    """Of all runs."""

    @property
    def folds(self) -> tuple[str, ...]:
        """What can be left out of the fit: nothing where what it sees is of one configuration."""
        names = sorted(set(self.groups))
        return tuple(names) if len(names) > 1 else ()


def split_of(cases: Sequence[PosedRun], share: float, seed: int) -> RunSplit:
    """Runs with whole configurations held out."""
    configurations = configurations_of(cases)
    unseen = held_out(configurations, share, seed)
    paired = list(zip(cases, configurations, strict=True))
    kept = [name for name in configurations if name not in unseen]
    place = {name: number for number, name in enumerate(dict.fromkeys(kept))}
    return RunSplit(
        seen=tuple(case for case, name in paired if name not in unseen),
        unseen=tuple(case for case, name in paired if name in unseen),
        groups=tuple(f"fold {place[name] % MOST_FOLDS}" for name in kept),
        num_configurations=len(set(configurations)),
    )


def configurations_of(cases: Sequence[PosedRun]) -> tuple[str, ...]:
    """Configuration of every run (model, plan and job on so much of a cluster), by the first name among its runs."""
    keys: list[object] = []
    named: dict[object, str] = {}
    for asked in (case.asked for case in cases):
        question = asked.question
        cluster = replace(question.cluster, assumptions=())  # whether a row states it or leaves it to be assumed
        keys.append((question.model, question.job, cluster, question.num_accelerators, asked.plan))
        named[keys[-1]] = min(named.get(keys[-1], asked.run.id), asked.run.id)
    return tuple(named[key] for key in keys)


def held_out(configurations: Sequence[str], share: float, seed: int) -> frozenset[str]:
    """Configurations that a fit does not see, of those of all runs: until ``share`` of the runs is reached.

    The same for the same names and seed, in any order. Never all of them, and together more than half of the runs only
    where ``share`` asks for it: a configuration that is too large for that is passed over.
    """
    sizes, number = Counter(configurations), len(configurations)
    wanted = min(round(share * number), number - 1)
    most = min(max(wanted, number // 2), number - 1)
    chosen: set[str] = set()
    count = 0
    for name in sorted(sizes, key=lambda name: hashlib.sha256(f"{seed}:{name}".encode()).hexdigest()):
        if count < wanted and count + sizes[name] <= most:
            chosen.add(name)
            count += sizes[name]
    return frozenset(chosen)


def errors_left_out(split: RunSplit, found: Fit, profile: Profile) -> tuple[Residual, ...]:
    """Every run with the error of a fit that has not seen it: of its fold, or where it is held out of them all.

    Runs that are the only configuration of the fit have none: without them there is nothing to fit.
    """
    folds = {name: column for column, name in enumerate(found.folds)}
    seen = list(zip(split.seen, split.groups, strict=True)) if split.folds else []
    columns = [*(folds[group] for _, group in seen), *[0] * len(split.unseen)]
    cases = [*(case for case, _ in seen), *split.unseen]
    tables = log_ratios(cases, profiles_at(found.frees, found.theta))
    time, memory = (table[np.arange(len(cases)), columns] for table in tables)
    fitted = tables[0][:, 0]
    shares = [case.shares({case.generation: profile}) for case in cases]
    runs = tuple(map(residual_of, cases, time.tolist(), memory.tolist(), shares, fitted.tolist()))
    groups = [*(group for _, group in seen), *[UNSEEN] * len(split.unseen)]
    return with_gap_factors(runs, groups, others=read_residuals())


def residual_of(case: PosedRun, time: float, memory: float, shares: Shares, fitted: float) -> Residual:
    """A run with its errors (logarithm; NaN: not measured) and what it is compared by.

    ``fitted``: the error of its step time by constants that were fitted to all runs.
    """
    run = case.asked.run
    exact = features_of(case.asked.question, plan=case.asked.plan)._replace(shares=shares)
    first = first_errors(run.id)
    time_error, memory_error = (None if np.isnan(error) else float(error) for error in (time, memory))
    # What the configurations of one comparison share.
    shared = (Path(run.model).stem, run.num_accelerators, run.scale_up_size or "", run.sequence_length, run.precision)
    return Residual(
        id=run.id,
        family=run.family,
        features=exact,
        time=time_error,
        memory=memory_error,
        setting="/".join(map(str, shared)) if run.tier != "B" else "",
        measured_step_time=run.step_time,
        predicted_step_time=None if run.step_time is None else run.step_time * math.exp(fitted),
        tier=run.tier or DESCRIBED,
        team=team_of(run.family),
        first_time=first.get("first_time"),
        first_memory=first.get("first_memory"),
    )


UNSEEN, SEEN = "held out", "seen"
"""Groups of runs that no prediction has seen, and that all have."""


def with_gap_factors(
    runs: Sequence[Residual], groups: Sequence[str], others: Sequence[Residual] = ()
) -> tuple[Residual, ...]:
    """``runs`` with what they have in common with those that the prediction of each had seen: other groups'.

    ``others``: runs that all predictions had seen, each unless it is the run itself.
    """
    found = []
    for run, (seen, terms, sources) in _seen(runs, groups, others):
        timed = [one for one in seen if one.has("time")]
        gaps = gaps_of(run.features, run.features.accelerator, "time", timed) if timed else ()
        factor = total_factor((*gaps, gap_among(run.features, terms, sources)))
        found.append(run._replace(gap_factor=factor))
    return tuple(found)


def distances_of(runs: Sequence[Residual], groups: Sequence[str]) -> tuple[float, ...]:
    """Distance of every run from the nearest that its prediction had seen; infinite where it had seen none."""
    apart = [np.sqrt(terms.sum(axis=1)) for _, (_, terms, _) in _seen(runs, groups, ())]
    return tuple(float(one.min()) if len(one) else math.inf for one in apart)


def unmeasured_pairs(runs: Sequence[Residual], groups: Sequence[str]) -> tuple[bool, ...]:
    """Whether no run that its prediction had seen was near to a run in some two respects at once."""
    rare = (rarest(run.features, terms, sources) for run, (_, terms, sources) in _seen(runs, groups, ()))
    return tuple(factor >= UNMEASURED_PAIR for _, factor in rare)


def _seen(
    runs: Sequence[Residual], groups: Sequence[str], others: Sequence[Residual]
) -> Iterator[tuple[Residual, tuple[Sequence[Residual], Vector, Places]]]:
    """Every run with the runs that were seen: terms of their squared distances, and their sources."""
    table = KnownRuns((*runs, *others))
    names = np.asarray([*groups, *[SEEN] * len(others)])
    identities = np.asarray([run.id for run in table.runs])
    for run, group in zip(runs, groups, strict=True):
        kept = (names != group) & (names != UNSEEN) & (identities != run.id)
        seen = [table.runs[place] for place in np.flatnonzero(kept).tolist()]
        yield run, (seen, table.terms(run.features, NEIGHBOURHOOD)[kept], table.sources[kept])


def neighbourhoods_of(runs: Sequence[Residual], radius: float) -> tuple[str, ...]:
    """A neighbourhood for every run: that of the nearest of some runs that are further than ``radius`` apart."""
    table = KnownRuns(runs)
    centres: list[int] = []
    apart: list[NDArray[np.float64]] = []
    for place, run in enumerate(runs):
        if not any(others[place] <= radius for others in apart):
            centres.append(place)
            apart.append(table.distance(run.features, NEIGHBOURHOOD))
    return tuple(f"near {runs[centres[number]].id}" for number in np.argmin(apart, axis=0))
