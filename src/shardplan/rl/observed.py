"""What was measured of an RL step next to what is predicted: which part is off, and what that says."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from shardplan.base.errors import InputError, shown
from shardplan.base.units import parse_quantity
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
SAYS: Final[Mapping[str, tuple[str, str]]] = {
    "generation": (
        "slower: longer answers than stated, of which the longest decides, a small cache, or no CUDA graphs",
        "faster: shorter answers than stated, or a prefix cache that serves more than prompts",
    ),
    "log-probs": (
        "slower: padding where packing is off, a small log-probability batch, or a pass that is not counted",
        "faster: one pass less, or shorter answers",
    ),
    "training": (
        "slower: padding where packing is off, or recomputation and offloading that the plan has not",
        "faster: shorter answers than stated, or fewer optimizer steps",
    ),
    "transfer": (
        "slower: tensors are gathered and sent one by one (broadcast); see --transfer",
        "faster: weights go from shard to shard; see --transfer sharded",
    ),
    "step": (
        "slower in all: parts that are not counted, such as evaluation, rewards, data or restarts of engines",
        "faster in all: parts overlap that are counted one after the other; see --placement",
    ),
}
"""Causes by part: of one that took longer than predicted, and of one that took less."""
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
        return SAYS[self.part][0 if self.ratio > 1 else 1]


def differences(texts: Sequence[str], plan: RlPlan) -> tuple[MeasuredPart, ...]:
    """The parts that ``step 171s, generation 95s`` names, those that are off by most first. Raises InputError."""
    found = [_difference(part.strip(), plan) for text in texts for part in text.split(",") if part.strip()]
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
