r"""One RL step as phases that share accelerators or wait for one another; its time is the longest way through them.

A phase runs on one pool and begins when those before it have ended. *Placements* differ in the edges alone: colocated
phases follow one another on the same accelerators; two pools in turns follow one another too, and one of them idles.
Where the trainer works on answers of an earlier step, generation and training have no edge between them, and the slower
pool is the cycle. Engines stop for new weights, between two answers or in the middle of them (``in_flight``).

An asynchronous pool drains once in 1 + s steps, where answers may be s steps old and new weights stop generation:

.. math:: t_{gen} = \frac{T + s\,T_{steady}}{1 + s}

Where weights reach it in the middle of answers it never drains, but no answer may take longer than 1 + s steps:
:math:`t_{gen} = \max(T_{steady}, T / (1 + s))`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final, Literal

from shardplan.base.fields import dataclass

OPTIONAL: Final = ("reward", "critic")
"""Phases that a step has where they take time."""
PoolName = Literal["rollout", "trainer"]


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A part of a step on one pool."""

    key: str
    pool: PoolName
    time: float
    """[s]"""
    after: tuple[str, ...] = ()
    """Phases of the same step that it waits for."""


@dataclass(frozen=True, kw_only=True)
class Cycle:
    """The phases of one step in steady state."""

    phases: tuple[Phase, ...]
    shares_pool: bool
    """Whether both pools are the same accelerators."""

    @cached_property
    def ends(self) -> dict[str, float]:
        """When every phase ends, from the begin of the step. [s]"""
        found: dict[str, float] = {}
        free: dict[str, float] = {}
        for phase in self.phases:
            pool = "both" if self.shares_pool else phase.pool
            begin = max([free.get(pool, 0.0), *(found[name] for name in phase.after)])
            found[phase.key] = free[pool] = begin + phase.time
        return found

    @property
    def step_time(self) -> float:
        """The longest way through the phases. [s]"""
        return max(self.ends.values(), default=0.0)

    def busy(self, pool: PoolName) -> float:
        """Seconds that a pool works in a step."""
        return sum(phase.time for phase in self.phases if self.shares_pool or phase.pool == pool)

    def idle(self, pool: PoolName) -> float:
        """Share of a step in which a pool waits."""
        return max(1 - self.busy(pool) / self.step_time, 0.0) if self.step_time else 0.0

    def time_of(self, *keys: str) -> float:
        """Seconds of some phases."""
        return sum(phase.time for phase in self.phases if phase.key in keys)


@dataclass(frozen=True, kw_only=True)
class PhaseTimes:
    """What every phase of a step takes. [s]"""

    generation: float
    """Until the last answer of a batch is done."""
    steady: float
    """The same answers where new ones take the places of those that end."""
    reward: float
    log_probs: float
    """Forward passes of policy and reference."""
    critic: float
    update: float
    transfer: float
    """New weights to the engines."""
    sleep: float = 0.0
    """Engines to sleep and states of the trainer back, where both share accelerators."""
    wake: float = 0.0
    """States away and engines awake, before new weights reach them."""


def cycle_of(placement: str, times: PhaseTimes, *, staleness: int = 1, in_flight: bool = True) -> Cycle:
    """The phases of a step under a placement."""
    training = [("log_probs", times.log_probs), ("critic", times.critic), ("update", times.update)]
    if placement in ("colocated", "partial"):
        generation = times.generation if placement == "colocated" else times.steady
        before = [("generation", generation), ("reward", times.reward), ("sleep", times.sleep)]
        after = [("wake", times.wake), ("transfer", times.transfer)]
        return Cycle(phases=_chain([*before, *training, *after], "trainer"), shares_pool=True)
    if placement == "in-turns":
        first = _chain([("generation", times.generation), ("reward", times.reward)], "rollout")
        second = _chain(training, "trainer", after=first[-1].key)
        last = Phase(key="transfer", pool="rollout", time=times.transfer, after=("update",))
        return Cycle(phases=(*first, *second, last), shares_pool=False)
    drained = times.generation + times.reward
    if placement == "async":
        waited = 0.0 if in_flight else staleness * times.steady
        drained = max(times.steady, (drained + waited) / (1 + staleness))
    generation_phase = Phase(key="generation", pool="rollout", time=drained)
    second = _chain(training, "trainer")
    last = Phase(key="transfer", pool="rollout", time=times.transfer, after=("generation", "update"))
    return Cycle(phases=(generation_phase, *second, last), shares_pool=False)


def _chain(phases: Sequence[tuple[str, float]], pool: PoolName, after: str | None = None) -> tuple[Phase, ...]:
    """Phases that follow one another."""
    made = []
    for key, time in phases:
        if not time and key in OPTIONAL:
            continue
        made.append(Phase(key=key, pool=pool, time=time, after=() if after is None else (after,)))
        after = key
    return tuple(made)
