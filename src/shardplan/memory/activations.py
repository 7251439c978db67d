"""Activations that a stage keeps."""

from __future__ import annotations

import numpy as np

from shardplan.arrays import Numbers
from shardplan.inputs.batch import Batch

__all__ = ["applied_share", "kept_per_microbatch", "working_set"]


def applied_share(num_layers: Numbers, batch: Batch) -> Numbers:
    """Share of a stage's layers to which recomputation applies."""
    return np.minimum(1.0, batch.recompute_num_layers / np.maximum(num_layers, 1))


def kept_per_microbatch(kept: Numbers, freed: Numbers, share: Numbers) -> Numbers:
    """Activations of one micro-batch: all, less what recomputation frees on its share of the layers. [bytes]"""
    return kept - share * freed


def working_set(freed_of_a_layer: Numbers, share: Numbers) -> Numbers:
    """What recomputation brings back for one layer at a time, at most what it freed. [bytes]"""
    return np.where(np.asarray(share) > 0, freed_of_a_layer, 0.0)
