r"""The measured runs that are nearest to a question with its plan, and how far they are.

A question and a plan are alike in many respects. With :math:`x_k` what a respect is measured in (a logarithm of a size,
a switch, a name) and :math:`w_k` its weight, the distance of two of them is

.. math:: d = \sqrt{\textstyle\sum_k w_k\,(x_k - y_k)^2}

where names count one if they differ. A distance of one is a doubling of tensor, context or expert parallelism, or
weights that are sharded in place of whole: other collectives are exposed then. What the formulas count exactly is half
as far, such as a doubling of stages, micro-batches or sequences. The same distance says how much wider a band is far
from evidence (``estimation.gaps``), and which of the plans that tie has been measured (``planner.robustness``).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cache, cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardplan.base.fields import dataclass, in_files
from shardplan.inputs.plan import Plan, plan_summary, recompute_modules
from shardplan.inputs.readers.causes import slowed_by_full_memory
from shardplan.inputs.readers.residuals import Features, Residual
from shardplan.inputs.sharding import kinds_that

NUM_NEAREST = 3
"""Runs that an estimate names."""
DOUBLING, HALF, SWITCH, KIND = 1.0, 0.25, 0.25, 4.0
"""Weights: what changes which communication is exposed; what is counted exactly, half as far; a switch, likewise; and
another kind of model, as far as four of the first."""


@dataclass(frozen=True)
class Respect:
    """One respect in which questions, or plans, are alike or not."""

    name: str
    weight: float
    """Squared distance of one unit of ``value``; of two names that differ."""
    value: Callable[[Any], float | str]
    """Of the features of a run; for a respect of its plan, of the plan."""


def _log2(value: float) -> float:
    return math.log2(max(value, 1.0))


def _degree(name: str, weight: float) -> Respect:
    return Respect(name, weight, lambda plan: _log2(getattr(plan, name)))


def _recomputed(plan: Plan) -> float:
    """How much of a layer is computed again: a quarter for each module, all for ``full``."""
    return {"none": 0.0, "full": 1.0}.get(plan.recompute, min(0.25 * len(recompute_modules(plan.recompute)), 0.75))


def _overlaps_pp(plan: Plan) -> bool:
    return plan.pp > 1 and (plan.vp > 1 if plan.overlap_pp is None else plan.overlap_pp)


LIKENESS = (
    Respect("generation", 1.0, lambda run: run.generation),
    Respect("accelerator", 0.5, lambda run: run.accelerator),
    Respect("kind", KIND, lambda run: float(run.moe)),
    Respect("trained", KIND, lambda run: run.trained),
    Respect("bits", 1.0, lambda run: math.log2(run.bits)),
    Respect("parameters", 1.0, lambda run: math.log10(run.parameters)),
)
"""What makes errors of runs alike, whatever their plans: parts, kind and size of the model, what is trained of it,
number format."""
SCALE = (
    Respect("accelerators", 1.0, lambda run: math.log10(run.accelerators)),
    Respect(
        "tokens_per_accelerator",
        HALF / 4,
        lambda run: math.log2(run.global_batch_size * run.sequence_length / run.accelerators),
    ),
)
"""Accelerators, and the work of one in a step, on which bubbles and exposed reductions depend."""
LONG_SHARE = 14.0
"""Binary logarithm of the tokens (16,384) of a rank from which on more make no difference."""
LENGTHS = (
    Respect("sequence_length", HALF, lambda run: _log2(run.sequence_length)),
    Respect("tokens_per_cp_rank", DOUBLING, lambda run: min(_log2(run.sequence_length / run.plan.cp), LONG_SHARE)),
)
"""Tokens of a sequence, and on each of its ranks: the fewer, the less attention hides the exchange of the others."""
OF_PLAN = (
    _degree("tp", DOUBLING),
    _degree("cp", DOUBLING),
    _degree("ep", DOUBLING),
    _degree("etp", DOUBLING),
    _degree("pp", HALF),
    _degree("vp", HALF),
    _degree("micro_batch_size", HALF),
    Respect("weights", DOUBLING, lambda plan: float(plan.sharding in kinds_that("weights"))),
    Respect("gradients", SWITCH, lambda plan: float(plan.sharding in kinds_that("gradients"))),
    Respect("optimizer", SWITCH, lambda plan: float(plan.sharding != "ddp")),
    Respect("recompute", DOUBLING, _recomputed),
    Respect("offload", DOUBLING, lambda plan: plan.offload),
    Respect("tp_kind", KIND, lambda plan: float(plan.tp_kind == "summa")),
    Respect("schedule", SWITCH, lambda plan: plan.effective_schedule if plan.pp > 1 else ""),
    Respect("cp_comm", SWITCH, lambda plan: plan.cp_comm if plan.cp > 1 else ""),
    Respect("overlap_tp", SWITCH, lambda plan: float(plan.tp > 1 and plan.overlap_tp)),
    Respect("overlap_dp", SWITCH, lambda plan: float(plan.overlap_dp)),
    Respect("overlap_pp", SWITCH, lambda plan: float(_overlaps_pp(plan))),
    Respect("overlap_ep", SWITCH, lambda plan: float(plan.ep > 1 and plan.overlap_ep)),
    Respect("sequence_parallel", SWITCH, lambda plan: float(plan.tp > 1 and plan.sequence_parallel)),
)
MIXERS = (Respect("recurrent", KIND, lambda run: run.recurrent),)
"""Layers that carry a state along the sequence in place of attention."""
OF_QUESTION = (*LIKENESS, *SCALE, *LENGTHS, *MIXERS)
RESPECTS = (*OF_QUESTION, *OF_PLAN)
"""Everything that a distance is made of."""
ALL = tuple(each.name for each in RESPECTS)
LIKELY = tuple(each.name for each in LIKENESS)
WEIGHTS = {each.name: each.weight for each in RESPECTS}
NEIGHBOURHOOD = ("kind", "parameters", *(each.name for each in (*LENGTHS, *MIXERS, *OF_PLAN)))
"""Respects of a plan's neighbourhood: the plan, with the model and the sequences that it splits, on any cluster."""
EXPOSING: Mapping[str, Callable[[Features], str]] = {
    "tp": lambda run: f"tp {run.plan.tp}",
    "cp": lambda run: f"cp {run.plan.cp}",
    "ep": lambda run: f"ep {run.plan.ep}",
    "etp": lambda run: f"etp {run.plan.etp}",
    "weights": lambda run: (
        "sharded weights" if run.plan.sharding in kinds_that("weights") else "weights that are not sharded"
    ),
    "sequence_length": lambda run: f"sequences of {run.sequence_length:,.0f} tokens",
}
"""Respects that decide, two by two, which communication is exposed; their values as text."""
DISTANCES = (0.25, 0.5, 1.75, 2.25)
SPREADS = (0.7, 1.0, 1.0, 1.5)
"""How large left-out errors are at these distances from the nearest run that the prediction had seen, relative to those
of most runs (measured by ``benchmarks/neighbourhoods.py``). Before the first and beyond the last they are as there: few
runs are further away than 2.5."""
_WEIGHTS = np.asarray(list(WEIGHTS.values()))


def coordinates(features: Features) -> tuple[float, ...]:
    """Every respect as a number; names as a checksum that differs where they do."""
    return (*(_number(each.value(features)) for each in OF_QUESTION), *_coordinates_of(features.plan))


@lru_cache(maxsize=4096)
def _coordinates_of(plan: Plan) -> tuple[float, ...]:
    return tuple(_number(each.value(plan)) for each in OF_PLAN)


@lru_cache(maxsize=1024)
def _number(value: float | str) -> float:
    return float(zlib.crc32(value.encode())) if isinstance(value, str) else value


def _table(features: Sequence[Features]) -> NDArray[np.float64]:
    """The :func:`coordinates` of many, a row each; what a plan adds is worked out once for each different plan."""
    places: dict[Plan, int] = {}
    of_plan = [places.setdefault(each.plan, len(places)) for each in features]
    plans = np.asarray([_column(each, places) for each in OF_PLAN]).reshape(len(OF_PLAN), len(places))
    own = np.asarray([_column(each, features) for each in OF_QUESTION]).reshape(len(OF_QUESTION), len(features))
    return np.ascontiguousarray(np.concatenate([own, plans[:, of_plan]]).T)


def _column(respect: Respect, things: Iterable[Any]) -> list[float]:
    return [_number(value) if isinstance(value, str) else value for value in map(respect.value, things)]


_NAMES = np.isin(ALL, ("generation", "accelerator", "trained", "offload", "schedule", "cp_comm"))
"""Which of them are names."""


@cache
def _places(names: tuple[str, ...]) -> NDArray[np.intp]:
    return np.asarray([ALL.index(name) for name in names])


SAME_DISTANCE = 12
"""Digits behind the point beyond which distances are equal."""
MOST_TERMS = 2048
"""Values of respects whose terms are kept."""


class KnownRuns:
    """Runs with their coordinates, a row each."""

    def __init__(self, runs: Sequence[Residual]) -> None:
        self.runs = tuple(runs)
        names = {name: number for number, name in enumerate(dict.fromkeys(run.family for run in runs))}
        self.sources = np.asarray([names[run.family] for run in runs], dtype=np.intp)
        self._rows = _table([run.features for run in runs])
        self._columns: dict[tuple[str, ...], NDArray[np.float64]] = {}
        self._terms: dict[tuple[int, float], NDArray[np.float64]] = {}
        self._timed = [place for place, run in enumerate(runs) if run.measured_step_time and run.predicted_step_time]

    @cached_property
    def slowed_by_full_memory(self) -> set[str]:
        """Published runs among them that were slow only because their memory was nearly full."""
        return {run.id for run in self.runs if slowed_by_full_memory(run.id)}

    def terms(self, asked: Features, names: tuple[str, ...] = ALL) -> NDArray[np.float64]:
        """Squared distance of every run from ``asked``, a column for each respect."""
        places = _places(names)
        if names not in self._columns:
            self._columns[names] = np.ascontiguousarray(self._rows[:, places])
        apart = self._columns[names] - np.asarray(coordinates(asked))[places]
        for column in np.flatnonzero(_NAMES[places]).tolist():
            apart[:, column] = apart[:, column] != 0
        apart *= apart
        apart *= _WEIGHTS[places]
        return apart

    def squared(self, asked: Features, names: tuple[str, ...] = ALL) -> NDArray[np.float64]:
        """Squared distance of every run from ``asked``; questions that share a value share its term."""
        values = coordinates(asked)
        return np.add.reduce([self._term(place, values[place]) for place in _places(names).tolist()])

    def _term(self, place: int, value: float) -> NDArray[np.float64]:
        """What one respect adds to the squared distance of every run."""
        key = place, value
        if key not in self._terms:
            if len(self._terms) >= MOST_TERMS:
                self._terms.clear()
            apart = self._rows[:, place] - value
            self._terms[key] = _WEIGHTS[place] * (apart != 0 if _NAMES[place] else apart**2)
        return self._terms[key]

    def distance(self, asked: Features, names: tuple[str, ...] = ALL) -> NDArray[np.float64]:
        """Distance of every run from ``asked``."""
        return np.sqrt(self.squared(asked, names))

    def nearest(self, asked: Features, number: int, *, without: set[str]) -> list[tuple[float, Residual]]:
        """The nearest runs whose step was timed, with their distances, but for those that are named."""
        apart = self.distance(asked)
        known = [place for place in self._timed if self.runs[place].id not in without] if without else self._timed
        of_known = np.round(apart[known], SAME_DISTANCE)  # equal ones by their place in the file, on every machine
        least = np.partition(of_known, number - 1)[number - 1] if len(known) > number else np.inf
        near = np.flatnonzero(of_known <= least)
        places = near[np.argsort(of_known[near], kind="stable")][:number].tolist()
        return [(float(of_known[place]), self.runs[known[place]]) for place in places]


def spread(apart: float) -> float:
    """How large errors are at a distance from the nearest measured run, relative to those of most runs."""
    return float(np.interp(apart, DISTANCES, SPREADS))


def distance(one: Features, other: Features, names: tuple[str, ...] = ALL) -> float:
    """Distance of two questions with their plans."""
    run = Residual(id="", family="", features=one, time=None, memory=None)
    return float(KnownRuns((run,)).distance(other, names)[0])


@dataclass(frozen=True, kw_only=True)
class NearRun:
    """A measured run that is near to a question with its plan."""

    id: str
    """Its name among the measured runs."""
    family: str
    """Where it comes from."""
    distance: float
    """From the question: 0 is the same, 1 a doubling of one parallel degree."""
    accelerator: str
    """Accelerator by its name in the catalogue."""
    num_accelerators: int
    """World size."""
    sequence_length: int
    """Tokens of a sequence."""
    global_batch_size: int
    """Sequences of a step."""
    plan: Plan
    """What it ran."""
    summary: str
    """The plan in few words."""
    measured_step_time: float = field(metadata=in_files("measured_step_time_s"))
    """What was measured. [s]"""
    predicted_step_time: float = field(metadata=in_files("predicted_step_time_s"))
    """By constants that were fitted to this run among others. [s]"""
    error: float
    """Predicted over measured, less one."""
    left_out_error: float | None
    """The same by constants that have not seen its team; of a run of a profile's own, not this run."""

    @property
    def unseen_error(self) -> float:
        """The error that answers show: the left-out one, where it is known."""
        return self.error if self.left_out_error is None else self.left_out_error


def near_runs(
    asked: Features,
    published: KnownRuns,
    own: Sequence[Residual] = (),
    number: int = NUM_NEAREST,
    *,
    has_room: bool = False,
) -> tuple[NearRun, ...]:
    """The runs nearest to ``asked``, of ``published`` ones and of a profile's ``own``, which replace those by name.

    ``has_room``: the plan has room in memory, so that published runs that were slow for want of it say nothing of it.
    """
    without = {run.id for run in own}
    if has_room:
        without |= published.slowed_by_full_memory
    found = KnownRuns(own).nearest(asked, number, without=set()) if own else []
    found += published.nearest(asked, number, without=without)
    return tuple(_near_run(*each) for each in sorted(found, key=lambda each: each[0])[:number])


def _near_run(apart: float, run: Residual) -> NearRun:
    features, measured, predicted = run.features, run.measured_step_time, run.predicted_step_time
    assert measured is not None
    assert predicted is not None
    return NearRun(
        id=run.id,
        family=run.family,
        distance=apart,
        accelerator=features.accelerator,
        num_accelerators=int(features.accelerators),
        sequence_length=int(features.sequence_length),
        global_batch_size=int(features.global_batch_size),
        plan=features.plan,
        summary=plan_summary(features.plan),
        measured_step_time=measured,
        predicted_step_time=predicted,
        error=predicted / measured - 1,
        left_out_error=None if run.time is None else math.expm1(run.time),
    )
