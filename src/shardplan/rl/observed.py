"""What was measured of an RL step next to what is predicted: which part is off, and what that says."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from shardplan.base.errors import InputError, shown
from shardplan.base.units import parse_quantity
from shardplan.rl.engine import generation_data
from shardplan.rl.search import RlPlan

PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "step": (),
    "generation": ("generation",),
    "log-probs": ("log_probs",),
    "training": ("update", "critic"),
    "transfer": ("transfer", "wake"),
}
"""What can be measured, with the phases that it is; timers of a transfer have engines woken and states sent away too
(``prepare_for_generation`` of NeMo RL, ``update_weights`` of verl)."""
CLOSE: Final = 0.15
"""Relative difference below which a part is as predicted."""


class MeasuredPart(NamedTuple):
    """A part that was measured."""

    part: str
    measured: float
    """[s]"""
    predicted: float
    """[s]"""

    @property
    def ratio(self) -> float:
        """Measured over predicted."""
        return self.measured / self.predicted if self.predicted else float("inf")

    @property
    def says(self) -> str:
        """What the difference says."""
        if abs(self.ratio - 1) <= CLOSE:
            return "as predicted"
        return str(generation_data()["observed"][self.part]["slower" if self.ratio > 1 else "faster"])


def differences(texts: Sequence[str], plan: RlPlan) -> tuple[MeasuredPart, ...]:
    """The parts that ``step 171s, generation 95s`` names, those that are off by most first. Raises InputError."""
    parts = [part.strip() for text in texts for part in text.strip(" ,").split(",")]
    found = [_difference(part, plan) for part in parts]
    return tuple(sorted(found, key=lambda each: -abs(each.measured - each.predicted)))


def _difference(text: str, plan: RlPlan) -> MeasuredPart:
    match = re.fullmatch(r"([a-zA-Z_ -]+?)\s+([\d.].*)", text)
    part = "" if match is None else match[1].strip().lower().replace("_", "-").replace("logprobs", "log-probs")
    if match is None or part not in PARTS:
        raise InputError(
            f"--observed is {shown(text)}",
            rule=f"what was measured is one of {', '.join(PARTS)} and a time",
            hint='write --observed "step 171s, generation 95s"',
        )
    measured = parse_quantity(match[2], "time", field="--observed")
    keys = PARTS[part]
    return MeasuredPart(part, measured, plan.cycle.time_of(*keys) if keys else plan.step_time)
