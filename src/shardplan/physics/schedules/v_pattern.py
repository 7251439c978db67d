"""Schedules that repeat one pattern of passes for every micro-batch (Qi et al., arXiv 2405.15362, section 3)."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Final

from shardplan.physics.schedules.base import ChunkTimes, Folded, Kind, Orders, Pass, Pipeline

PERIOD: Final = 6
"""Units of time of one micro-batch on a rank: F, B and W of two chunks."""
PATTERN: Final[tuple[tuple[Kind, int], ...]] = (("F", 0), ("F", 1), ("B", 1), ("B", 0))
"""Passes whose units a pattern gives, in the order in which a micro-batch goes through them, with their chunks."""

Slots = dict[Pass, int]
"""Unit of time of every pass of a rank."""


class VPattern(Folded):
    """Two chunks per rank in the shape of a V; every micro-batch repeats the pattern of the one before.

    A rank runs the passes of a micro-batch at fixed units of time, all of them six units after those of the micro-batch
    before; weight gradients fill the units that are free. The order of the pattern is kept at the start and the end of
    the step, where the paper moves passes into units that are empty.
    """

    priced_as = "zb-v"
    closed_form_holds: ClassVar[bool] = False

    @abstractmethod
    def units(self, pp: int, rank: int) -> tuple[int, int, int, int]:
        """Units of ``PATTERN`` of the first micro-batch on a rank."""

    def order(self, at: Pipeline, times: ChunkTimes) -> Orders:  # noqa: ARG002  # the pattern is that of equal times
        """The pattern of every rank, by its units of time."""
        pp, num_microbatches = int(at.pp), int(at.num_microbatches)
        repeated = (_repeated(self.units(pp, rank), num_microbatches) for rank in range(pp))
        return tuple(sorted(slots, key=slots.__getitem__) for slots in repeated)


def _repeated(units: tuple[int, int, int, int], num_microbatches: int) -> Slots:
    """All micro-batches of a rank, with weight gradients in the first free units after their input gradients."""
    slots = {
        Pass(kind, chunk, microbatch): unit + PERIOD * microbatch
        for (kind, chunk), unit in zip(PATTERN, units, strict=True)
        for microbatch in range(num_microbatches)
    }
    taken = set(slots.values())
    for one in sorted((one for one in slots if one.kind == "B"), key=slots.__getitem__):
        unit = slots[one] + 1
        while unit in taken:
            unit += 1
        taken.add(unit)
        slots[one._replace(kind="W")] = unit
    return slots


class VMin(VPattern):
    r"""All passes go from rank to rank in one unit each: about a third of the activations of 1F1B.

    A rank keeps :math:`\lfloor (p + 4)/3 \rfloor` micro-batches at most. For F = B = W the bubble is about two thirds
    of that of 1F1B; where they differ it grows with M.
    """

    name = "v-min"
    title = "V-Min"
    source = "arXiv 2405.15362, section 3"

    def units(self, pp: int, rank: int) -> tuple[int, int, int, int]:
        """Two more units before the input gradients where p is a multiple of three, so that no two passes meet."""
        more = 0 if pp % 3 else 2
        return rank, 2 * pp - rank - 1, 2 * pp + more + rank, 4 * pp + more - rank - 1


class VHalf(VPattern):
    r"""Forward passes go down the ranks in two units each and up in one: about half the activations of 1F1B.

    A rank keeps :math:`\lfloor (p + 2)/2 \rfloor` micro-batches at most. For F = B = W the bubble is about two thirds
    of that of 1F1B; the paper gets to a half by moving passes at the start and the end of the step.
    """

    name = "v-half"
    title = "V-Half"
    source = "arXiv 2405.15362, section 3"

    def units(self, pp: int, rank: int) -> tuple[int, int, int, int]:
        """Three more units before the input gradients where p is even, so that no two passes meet."""
        more = 0 if pp % 2 else 3
        return 2 * rank, 3 * pp - rank - 2, 3 * pp + more + 2 * rank - 1, 6 * pp + more - rank - 2
