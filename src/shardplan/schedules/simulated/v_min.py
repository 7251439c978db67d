"""V-min: a third of the memory of 1F1B (Qi et al., arXiv 2405.15362, section 3)."""

from __future__ import annotations

from shardplan.schedules.simulated.v_pattern import VPattern


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
