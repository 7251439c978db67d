"""How far an estimate can be trusted, in one line: the simulated step, the band, and what the nearest runs taught.

Errors of measured runs are those of constants that have not seen them, as the page on trust has them.
"""

from __future__ import annotations

import math
from typing import Any, Final, Literal

from shardplan.base.errors import ShardplanError
from shardplan.base.fields import dataclass
from shardplan.base.units import format_time
from shardplan.estimation.band import COMPARABLE
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.evidence import NearRun
from shardplan.estimation.priced import PricedPlan
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan
from shardplan.physics.schedules.registry import load_schedule
from shardplan.reports.texts.answer import error_text, narrowed_text, step_band, why_off
from shardplan.simulation.plan import SimulatedPlan, simulate_priced

Sureness = Literal["sure", "unsure", "guess"]
WORDS: Final[dict[Sureness, str]] = {"sure": "Sure", "unsure": "Unsure", "guess": "A guess"}
MOST_PASSES: Final = 100_000
"""Forward passes of chunks of a step that is simulated for its line: these take about 0.4 s."""
FAR_OUT: Final = 1.5
"""Times the end of the band (logarithm) from which on the error of a run that is not the nearest is named."""


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What is known about how far a step time can be trusted."""

    estimate: Estimate
    simulation: SimulatedPlan | None
    """Its step from event to event; None where it is too long to simulate, or cannot be."""

    @property
    def simulated(self) -> float | None:
        """Step time of the simulation. [s]"""
        return None if self.simulation is None else self.simulation.step_time

    @property
    def nearest(self) -> NearRun | None:
        """The measured run that is nearest to the question with this plan."""
        return self.estimate.evidence[0] if self.estimate.evidence else None

    @property
    def missed(self) -> tuple[NearRun, ...]:
        """Near runs that the band would not have covered: the nearest one, and others that were far outside."""
        return tuple(
            run
            for place, run in enumerate(self.estimate.evidence)
            if _times_outside(run, self.estimate) > (1.0 if place == 0 else FAR_OUT)
        )

    @property
    def sureness(self) -> Sureness:
        """``guess`` where no run is comparable; ``unsure`` where none covers the plan, or near ones are missed."""
        if self.estimate.step_time_basis != COMPARABLE:
            return "guess"
        return "unsure" if self.missed or self.estimate.not_measured else "sure"

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
        text, outside = f"nearest measured run {error_text(self.nearest)} off", ", outside this band"
        missed = self.missed
        if self.nearest in missed:
            return text + outside + why_off(self.nearest)
        if not missed:
            return text
        worst = max(missed, key=lambda run: _times_outside(run, self.estimate))
        return f"{text}, another near one {error_text(worst)}{outside}{why_off(worst)}"

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
            "missed_runs": {run.id: run.left_out_error for run in self.missed},
        }


def truth_of(question: Question, estimate: Estimate) -> Truth:
    """The line for an estimate."""
    return Truth(estimate=estimate, simulation=simulation_of(question, estimate.plan))


def simulation_of(question: Question, plan: Plan) -> SimulatedPlan | None:
    """The step of a valid plan from event to event; None where it is too long to simulate, or cannot be."""
    priced = PricedPlan.of(question, plan)
    if plan.pp * plan.vp * int(priced.numbers.num_microbatches) > MOST_PASSES:
        return None
    try:
        return simulate_priced(priced, load_schedule(plan.effective_schedule))
    except ShardplanError:
        return None


def _times_outside(run: NearRun, estimate: Estimate) -> float:
    """How far a run was from its prediction, in units of the band's end on that side (logarithms)."""
    measured = 1 / (1 + run.unseen_error)
    end = (estimate.step_time_p90 if measured > 1 else estimate.step_time_p10) / estimate.step_time
    return math.log(measured) / math.log(end) if abs(end - 1) > TINY else math.inf


TINY: Final = 1e-9
