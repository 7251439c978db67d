"""What the micro-benchmark asks of the machine: one implementation runs torch, another one may be a formula."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from shardplan.calibration.microbench.cases import Ranks
from shardplan.calibration.microbench.records import Case, TimedDevice, Timing


class Backend(Protocol):
    """A machine that can time a case."""

    device: TimedDevice
    software: str
    ranks: Ranks
    rank: int

    def precisions(self) -> Sequence[str]:
        """Number formats in which the device multiplies matrices."""

    def time(self, case: Case) -> Timing:
        """Time of one call. Raises ``RuntimeError`` where the device cannot run the case."""

    def close(self) -> None:
        """Gives back what the backend holds."""
