"""A job for any question: what a user leaves open, filled in and said."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from shardplan.errors import InputError, check_kind, shown
from shardplan.inputs.cluster import Accelerator, Cluster
from shardplan.inputs.job import Job, Precision
from shardplan.inputs.model import ModelConfig

LONGEST_SEQUENCE = 8192
"""Pre-training rarely uses longer sequences, even where the model allows them (Llama 3: 8192, arXiv 2407.21783)."""
TOKENS_PER_STEP = 2**22
"""Four million tokens, as for Llama 2 (arXiv 2307.09288, section 2)."""
LARGE_SCALE = 4096
"""Accelerators from which on a step has ``TOKENS_PER_LARGE_STEP``."""
TOKENS_PER_LARGE_STEP = 2**24
"""Sixteen million tokens, as for Llama 3 405B on 16,384 accelerators (arXiv 2407.21783, section 3.4)."""
CHOICES = ("optimizer", "attention", "grad_dtype", "moment_dtype", "dropout")
"""Fields of a job, besides the precision, that have a default of their own."""


def default_job(
    model: ModelConfig,
    cluster: Cluster,
    num_accelerators: int,
    *,
    sequence_length: int | None = None,
    global_batch_size: int | None = None,
    precision: Precision | None = None,
    stated_elsewhere: Collection[str] = (),
    **fields: Any,
) -> tuple[Job, tuple[str, ...]]:
    """The job with its gaps filled, and what was assumed as text. ``fields``: others of Job. Raises InputError.

    ``stated_elsewhere``: fields whose value the caller states, a framework's for instance.
    """
    check_kind("model", model, ModelConfig, hint="load_model gives one, by name or from a file")
    check_kind("cluster", cluster, Cluster, hint="load_cluster gives one, by name or from a file")
    assumed: list[str] = []
    open_fields = [name for name in CHOICES if name not in fields and name not in stated_elsewhere]
    if sequence_length is None:
        sequence_length = default_sequence_length(model)
        assumed.append(f"sequence length {sequence_length:,}: the model's own, {LONGEST_SEQUENCE:,} at most")
    if global_batch_size is None:
        global_batch_size = default_global_batch_size(sequence_length, num_accelerators)
        tokens = global_batch_size * sequence_length / 1e6
        assumed.append(f"global batch {global_batch_size:,} sequences ({tokens:.3g} M tokens)")
    if precision is None:
        precision = _widest_supported(cluster.accelerator)
        if precision != "bf16":
            assumed.append(f"precision {precision}: {cluster.accelerator.full_name} has no bf16 peak")
        else:
            open_fields.insert(0, "precision")
    job = Job(sequence_length=sequence_length, global_batch_size=global_batch_size, precision=precision, **fields)
    taken = ", ".join(f"{name} {getattr(job, name)}".lower() for name in open_fields)
    return job, (*assumed, *([f"job fields at their defaults: {taken}"] if taken else []))


def _widest_supported(accelerator: Accelerator) -> Precision:
    """bf16, or what a part without it computes in."""
    choices: tuple[Precision, ...] = ("bf16", "fp16", "fp32")
    return next((name for name in choices if name in accelerator.peak_flops), "bf16")


def default_sequence_length(model: ModelConfig) -> int:
    """The longest sequence the model is made for; at most 8192 where it is chosen by the user of the model."""
    longest = model.max_position_embeddings
    return longest if model.patch is not None else min(longest, LONGEST_SEQUENCE)


MOST_ABOVE_USUAL = 2
"""Factor on the usual batch up to which a batch follows the number of accelerators."""


def default_global_batch_size(sequence_length: int, num_accelerators: int) -> int:
    r"""Sequences of about four (sixteen) million tokens: the odd part of the world size times the nearest power of two.

    Data parallelism divides the batch and the accelerators; with :math:`N = o 2^k` multiples of o leave it choices.
    Where o alone is more than twice the usual batch, it is that batch, which suits fewer accelerators.
    """
    for name, value in (("sequence_length", sequence_length), ("number of accelerators", num_accelerators)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InputError(
                f"{name} is {shown(value)}",
                rule=f"{name} is a positive whole number",
                hint="give a whole number above 0",
            )
    tokens = TOKENS_PER_LARGE_STEP if num_accelerators >= LARGE_SCALE else TOKENS_PER_STEP
    odd = num_accelerators // (num_accelerators & -num_accelerators)
    usual = max(tokens / sequence_length, 1)
    unit = odd if odd <= MOST_ABOVE_USUAL * usual else 1
    return int(unit * 2 ** max(round(math.log2(usual / unit)), 0))
