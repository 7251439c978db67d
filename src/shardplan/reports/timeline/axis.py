"""An axis of time: round numbers, and the unit that they are written in."""

from __future__ import annotations

import math
from typing import Final

UNITS: Final = ((20.0, 1.0, "s"), (1e-4, 1e-3, "ms"), (0.0, 1e-6, "us"))
"""From which length of the axis on, seconds in a unit, and its name."""
ROUND: Final = (1.0, 2.0, 5.0, 10.0)


def ticks(length: float, most: int) -> list[tuple[float, str]]:
    """Round moments from 0 to ``length`` [s], about ``most`` of them, and their texts; the first has the unit."""
    if not length > 0:
        return [(0.0, "0 ms")]
    seconds, unit = next((factor, name) for least, factor, name in UNITS if length >= least)
    step = _round_step(length / seconds / most)
    digits = max(-math.floor(math.log10(step) + 1e-9), 0)
    number = math.floor(length / seconds / step + 1e-9)
    return [
        (place * step * seconds, f"{place * step:,.{digits}f}{f' {unit}' if not place else ''}")
        for place in range(number + 1)
    ]


def _round_step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next((each * power for each in ROUND if each * power >= least * (1 - 1e-9)), 10 * power)
