"""Measured step times in another unit than the column says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

SLIP: Final = 200.0
"""Factor between measured and predicted step times, in the median, from which on the unit is another: no published run
is off by a twentieth of it."""


def unit_slip(log_ratios: Sequence[float] | NDArray[np.float64]) -> str | None:
    """What is wrong with the unit of measured step times, from ln(predicted / measured) of every run; None: nothing."""
    known = np.ravel(np.asarray(log_ratios, float))
    known = known[np.isfinite(known)]
    if not known.size or abs(median := float(np.median(known))) < np.log(SLIP):
        return None
    times = f"{np.exp(abs(median)):,.0f} times as {'long' if median < 0 else 'short'} as predicted"
    unit = "milliseconds: name the column step_time_ms" if median < 0 else "minutes or hours: the column is in seconds"
    return (
        f"measured step times are {times}, in the median of {known.size:,} run{'s' * (known.size > 1)}; perhaps {unit}"
    )
