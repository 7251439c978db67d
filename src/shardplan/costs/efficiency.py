"""What fraction of its peak a matrix product or an attention kernel reaches, by shape."""

from __future__ import annotations

import numpy as np

from shardplan.arrays import Numbers
from shardplan.inputs.profile import Profile

TILE = 128
"""Side of an output tile. The fast kernels have wider ones too (cuBLAS on Hopper and Blackwell: 128 x 256), which fill
no wave better: they are twice as large and at least half as many."""
DEFAULT_NUM_CORES = 132


def tile_padding(m: Numbers, n: Numbers, count: Numbers, num_cores: int | None) -> Numbers:
    r"""Work done relative to work asked for, when outputs are cut into tiles and tiles run in waves of ``num_cores``.

    .. math:: \frac{W\,C\,t^2}{m n}, \quad W = \lceil tiles / C \rceil

    A. Dao et al., "The case for co-designing model architectures with hardware", arXiv 2401.14489, section 3.
    """
    cores = num_cores or DEFAULT_NUM_CORES
    tiles = np.ceil(m / TILE) * np.ceil(n / TILE) * count
    waves: Numbers = np.ceil(tiles / cores)
    return waves * (cores * TILE * TILE) / (m * n * count)


def depth_efficiency(k: Numbers, profile: Profile, *, faster: Numbers = 1.0) -> Numbers:
    r"""Share of the rate left at inner dimension k, :math:`k / (k + r k_0)`.

    ``faster``: how many times as fast as in 16 bits the steps through the inner dimension are, r. Filling the pipeline
    and writing a tile's result take as long in any number format, and so as long as r times as many steps.
    """
    return k / (k + faster * profile.matmul_half_depth)


def attention_efficiency(head_dim: Numbers, length: Numbers, profile: Profile) -> Numbers:
    r"""Fraction of the dense peak of a fused kernel, forward.

    .. math:: e \left(\tfrac{\min(d, 128)}{128}\right)^{x} \frac{s}{s + s_0}

    Wider heads are not faster on average: at 256, kernels reach 0.94 to 1.15 of what they do at 128.
    """
    by_dim = (np.minimum(head_dim, 128) / 128) ** profile.attention_head_dim_exponent
    return profile.attention_efficiency * by_dim * length / (length + profile.attention_half_sequence)
