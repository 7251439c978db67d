"""How far an estimate can be trusted, in one line: the simulated step, the band, and what the nearest runs taught.

Errors of measured runs are those of constants that have not seen them, as the page on trust has them.
"""

from __future__ import annotations

import math
from typing import Any, Final, Literal

from shardplan.base.errors import ShardplanError
from shardplan.base.fields import dataclass
from shardplan.base.units import format_time
from shardplan.estimation.band import COMPARABLE, features_of
from shardplan.estimation.estimate import Estimate, nearest_runs
from shardplan.estimation.evidence import NearRun
from shardplan.estimation.priced import PricedPlan
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan
from shardplan.physics.schedules.registry import load_schedule
from shardplan.reports.texts.answer import error_text, is_explained, narrowed_text, step_band, why_off
from shardplan.simulation.plan import SimulatedPlan, simulate_priced

Sureness = Literal["sure", "unsure", "guess"]
WORDS: Final[dict[Sureness, str]] = {"sure": "Sure", "unsure": "Unsure", "guess": "A guess"}
MOST_PASSES: Final = 40_000
"""Forward passes of chunks of a step that is simulated for its line: these take about 0.15 s."""
NUM_NEAR: Final = 10
"""Nearest measured runs that are held against the band, which states to hold eight of ten."""
LEAST_HELD: Final = 0.6
"""Share of them from which a band is doubted: one that holds 80 % holds fewer than six of ten once in 30 times."""
FAR_OUT: Final = 2.0
"""Times the end of the band (logarithm) from which on a run is far outside: one in a hundred of normal errors."""

TINY: Final = 1e-9


@dataclass(frozen=True, kw_only=True)
class TruthLine:
    """What is known about how far a step time can be trusted."""

    estimate: Estimate
    simulation: SimulatedPlan | None
    """Its step from event to event; None where it is too long to simulate, or cannot be."""
    near: tuple[NearRun, ...]
    """The measured runs that are nearest to the question with this plan, ``NUM_NEAR`` of them."""

    @property
    def simulated(self) -> float | None:
        """Step time of the simulation. [s]"""
        return None if self.simulation is None else self.simulation.step_time

    @property
    def nearest(self) -> NearRun | None:
        """The measured run that is nearest to the question with this plan."""
        return self.near[0] if self.near else None

    @property
    def missed(self) -> tuple[NearRun, ...]:
        """Near runs that the band would not have covered."""
        return tuple(run for run in self.near if self._times_outside(run) > 1)

    @property
    def sureness(self) -> Sureness:
        """``guess`` where no run is comparable; ``unsure`` where none covers the plan, or near ones deny the band.

        Of the runs that the answer cites, one far outside denies it unless the cause is known, the nearest always.
        """
        if self.estimate.step_time_basis != COMPARABLE:
            return "guess"
        is_missed = len(self.near) - len(self.missed) < LEAST_HELD * len(self.near)
        far = [run for run in self.estimate.evidence if self._times_outside(run) > FAR_OUT]
        is_far = any(run == self.nearest or not is_explained(run) for run in far)
        return "unsure" if is_missed or is_far or self.estimate.not_measured else "sure"

    @property
    def text(self) -> str:
        """The line, without the word for how sure it is."""
        simulated = "not simulated" if self.simulated is None else f"simulated {format_time(self.simulated)}"
        band = ", ".join(filter(None, (step_band(self.estimate), narrowed_text(self.estimate))))
        return " · ".join([f"predicted {format_time(self.estimate.step_time)}", simulated, band, self._of_runs()])

    def _of_runs(self) -> str:
        """What the nearest measured runs taught."""
        if self.nearest is None:
            return "no measured run is near"
        worst = max(self.estimate.evidence[1:], key=self._times_outside, default=self.nearest)
        other = f", another near one {self._error(worst)}" if self._times_outside(worst) > FAR_OUT else ""
        held = f"{len(self.near) - len(self.missed)} of the nearest {len(self.near)} inside"
        return f"nearest measured run {self._error(self.nearest, ' off')}{other} · {held}"

    def _error(self, run: NearRun, word: str = "") -> str:
        far = ", far outside" if self._times_outside(run) > FAR_OUT else ""
        return f"{error_text(run)}{word}{far}{why_off(run)}"

    def _times_outside(self, run: NearRun) -> float:
        """How far a run was from its prediction, in units of the band's end on that side (logarithms)."""
        measured = 1 / (1 + run.unseen_error)
        end = (self.estimate.step_time_p90 if measured > 1 else self.estimate.step_time_p10) / self.estimate.step_time
        return math.log(measured) / math.log(end) if abs(end - 1) > TINY else math.inf

    @property
    def record(self) -> dict[str, Any]:
        """The line as data."""
        return {
            "sureness": self.sureness,
            "predicted_step_time_s": self.estimate.step_time,
            "simulated_step_time_s": self.simulated,
            "step_time_p10_s": self.estimate.step_time_p10,
            "step_time_p90_s": self.estimate.step_time_p90,
            "nearest_run": None if self.nearest is None else self.nearest.id,
            "nearest_left_out_error": None if self.nearest is None else self.nearest.left_out_error,
            "num_near_runs": len(self.near),
            "missed_runs": {run.id: run.left_out_error for run in self.missed},
        }


def truth_of(question: Question, estimate: Estimate, simulation: SimulatedPlan | None = None) -> TruthLine:
    """The line for an estimate. ``simulation``: its step, where that is known; else it is simulated."""
    return TruthLine(
        estimate=estimate,
        simulation=simulation or simulation_of(question, estimate.plan),
        near=nearest_runs(question, features_of(question), estimate.plan, NUM_NEAR, has_room=estimate.has_headroom),
    )


def simulation_of(question: Question, plan: Plan) -> SimulatedPlan | None:
    """The step of a valid plan from event to event; None where it is too long to simulate, or cannot be."""
    priced = PricedPlan.of(question, plan)
    if plan.pp * plan.vp * int(priced.numbers.num_microbatches) > MOST_PASSES:
        return None
    try:
        return simulate_priced(priced, load_schedule(plan.effective_schedule))
    except ShardplanError:
        return None
