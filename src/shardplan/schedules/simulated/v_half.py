"""V-half: half of the memory of 1F1B (Qi et al., arXiv 2405.15362, section 3)."""

from __future__ import annotations

from shardplan.schedules.simulated.v_pattern import VPattern


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
