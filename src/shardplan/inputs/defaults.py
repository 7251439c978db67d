r"""A job for any question: fills in what a user leaves open, and says so.

The batch is that of the model's maker, or one that grows with the accelerators. A maker's batch is published in tokens
(``data/models/batches.csv``), and is for pre-training: all weights are trained, for many steps if the tokens of the run
are given. Otherwise a step has

.. math:: T(N) = \max(\min(\max(T_0, 4096 N), T_1), 1024 N)

tokens on N accelerators: four million on few of them, 4,096 for each up to sixteen million, and at least 1,024 for
each.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from typing import Any, Final, NamedTuple

from shardplan.base.errors import InputError, check_kind, shown
from shardplan.inputs.cluster import Accelerator, Cluster
from shardplan.inputs.job import MOST_COUNT, PRECISIONS, Job, Precision
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.readers.names import MakersBatch, makers_batches, model_sources

LONGEST_SEQUENCE = 8192
"""Pre-training rarely uses longer sequences, even where the model allows them (Llama 3: 8192, arXiv 2407.21783)."""
CHOICES = ("optimizer", "attention", "grad_dtype", "moment_dtype", "dropout")
"""Fields of a job, other than the precision, that have their own default."""
TOKENS_PER_STEP: Final = 2**22
"""Four million tokens, as for Llama 2 (arXiv 2307.09288, section 2)."""
TOKENS_EACH: Final = 4096
"""Tokens of a step for each accelerator, once a batch grows with them: judgement."""
TOKENS_PER_LARGE_STEP: Final = 2**24
"""Sixteen million tokens, as for Llama 3 405B on 16,384 accelerators (arXiv 2407.21783, section 3.4)."""
LEAST_TOKENS_EACH: Final = 1024
"""Tokens for each of these 16,384; more accelerators get as many."""
MOST_ABOVE_USUAL: Final = 2
"""Largest factor on the usual batch by which a batch follows the number of accelerators."""
LEAST_STEPS: Final = 1000
"""Fewest steps of the maker's batch for which a run counts as pre-training: judgement, a tenth of what these take."""
LARGEST_REPLICA: Final = 16
"""Largest replica that may be needed for a batch to stay as it is: tensor, context and pipeline
parallelism of 2 to 4 each. [accelerators]
"""
MOST_OFF: Final = 4 / 3
"""Largest factor from the usual batch for which a power of two of the count is preferred to three of them."""


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
    """The job with its gaps filled, and assumptions as text. ``fields`` are other fields of Job. Raises InputError.

    ``stated_elsewhere``: fields whose value the caller states, for example from a framework.
    """
    check_kind("model", model, ModelConfig, hint="load_model gives one, by name or from a file")
    check_kind("cluster", cluster, Cluster, hint="load_cluster gives one, by name or from a file")
    of_length: tuple[str, ...] = ()
    of_precision: tuple[str, ...] = ()
    of_batch: tuple[str, ...] = ()
    open_fields = [name for name in CHOICES if name not in fields and name not in stated_elsewhere]
    if sequence_length is None:
        sequence_length = default_sequence_length(model)
        of_length = (f"sequence length {sequence_length:,}: the model's own, {LONGEST_SEQUENCE:,} at most",)
    if precision is None:
        precision = _widest_supported(cluster.accelerator)
        if precision != "bf16":
            of_precision = (f"precision {precision}: {cluster.accelerator.full_name} has no bf16 peak",)
        else:
            open_fields.insert(0, "precision")
    batch = 1 if global_batch_size is None else global_batch_size
    job = Job(sequence_length=sequence_length, global_batch_size=batch, precision=precision, **fields)
    if global_batch_size is None:
        job, text = with_usual_batch(job, model, num_accelerators)
        of_batch = (text,)
    taken = ", ".join(f"{name} {getattr(job, name)}".lower() for name in open_fields)
    of_fields = (f"job fields at their defaults: {taken}",) if taken else ()
    return job, (*of_length, *of_batch, *of_precision, *of_fields)


def _widest_supported(accelerator: Accelerator) -> Precision:
    """bf16, or the format in which an accelerator without it computes."""
    choices: tuple[Precision, ...] = ("bf16", "fp16", "fp32")
    return next((name for name in choices if name in accelerator.peak_flops), "bf16")


def precisions_of(accelerator: Accelerator) -> tuple[str, ...]:
    """The precisions for which the accelerator computes every matrix product."""
    return tuple(
        name
        for name, recipe in PRECISIONS.items()
        if {recipe.matmul, recipe.dense_math} <= accelerator.peak_flops.keys()
    )


def default_sequence_length(model: ModelConfig) -> int:
    """The longest sequence that the model is made for, but at most 8192 if the user of the model chooses it."""
    longest = model.max_position_embeddings
    return longest if model.patch is not None else min(longest, LONGEST_SEQUENCE)


class UsualBatch(NamedTuple):
    """A default batch, and its origin."""

    num_sequences: int
    tokens: int
    """Tokens of a step."""
    origin: str

    @property
    def assumption(self) -> str:
        """The assumption as text."""
        return f"global batch {self.num_sequences:,} sequences ({self.tokens / 1e6:.3g} M tokens): {self.origin}"


def with_usual_batch(job: Job, model: ModelConfig, num_accelerators: int) -> tuple[Job, str]:
    """The job with its usual batch instead of its own, and the assumption. Raises InputError."""
    found = usual_batch(model, job, num_accelerators)
    return replace(job, global_batch_size=found.num_sequences), found.assumption


def usual_batch(model: ModelConfig, job: Job, num_accelerators: int) -> UsualBatch:
    """The maker's batch if it is published and the job pre-trains the model, else that for the number of accelerators.

    The batch of ``job`` is ignored. Raises InputError.
    """
    is_whole = isinstance(num_accelerators, int) and not isinstance(num_accelerators, bool)
    if not is_whole or not 1 <= num_accelerators <= MOST_COUNT:
        raise InputError(
            f"number of accelerators is {shown(num_accelerators)}",
            rule="number of accelerators is a positive whole number",
            hint=f"give a whole number from 1 to {MOST_COUNT:,}",
        )
    made = _makers_batch(model, job)
    tokens = usual_tokens(num_accelerators) if made is None else made.tokens
    number = num_sequences(tokens, job.sequence_length, num_accelerators)
    total = number * job.sequence_length
    origin = f"the usual one of {num_accelerators:,} accelerators" if made is None else _assumption_text(made, total)
    return UsualBatch(number, total, origin)


def _makers_batch(model: ModelConfig, job: Job) -> MakersBatch | None:
    """The batch of a built-in model's maker, in pre-training; None for other dimensions under its name."""
    found, source = makers_batches().get(model.name), model_sources().get(model.name)
    if found is None or source is None or source.num_parameters != model.num_parameters:
        return None
    is_long = job.tokens is None or job.tokens >= LEAST_STEPS * found.tokens
    return found if job.trains_all and is_long else None


def _assumption_text(made: MakersBatch, tokens: int) -> str:
    marked = f" ({made.mark})" if made.mark else ""
    return f"{'that' if tokens == made.tokens else 'near that'} of the model's maker, {made.source}{marked}"


def usual_tokens(num_accelerators: int) -> int:
    """Tokens of a step on which this number of accelerators usually trains."""
    growing = max(TOKENS_PER_STEP, TOKENS_EACH * num_accelerators)
    return max(min(growing, TOKENS_PER_LARGE_STEP), LEAST_TOKENS_EACH * num_accelerators)


def num_sequences(tokens: int, sequence_length: int, num_accelerators: int) -> int:
    r"""Number of sequences with about this number of tokens that suits the number of accelerators.

    Data parallelism divides the batch and the accelerators. With :math:`N = o 2^k`, multiples of o leave it choices. So
    a batch that is such a multiple stays. Else it is the nearest power of two times o, or three times one if that is
    nearer and a multiple of N, or if no power of two is near. If o alone is more than twice the usual batch, it is the
    usual batch, which suits fewer accelerators.
    """
    odd, usual = num_accelerators // (num_accelerators & -num_accelerators), max(tokens / sequence_length, 1.0)
    if _leaves_choices(usual, odd, num_accelerators):
        return int(usual)
    unit = odd if odd <= MOST_ABOVE_USUAL * usual else 1
    power, three = _nearest_multiple(usual, unit), _nearest_multiple(usual, 3 * unit)
    is_needed = _factor_between(power, usual) > MOST_OFF or three % num_accelerators == 0
    return three if is_needed and _factor_between(three, usual) < _factor_between(power, usual) else power


def _leaves_choices(usual: float, odd: int, num_accelerators: int) -> bool:
    """Whether the unchanged batch leaves data parallelism choices."""
    whole = int(usual)
    needed = num_accelerators // math.gcd(whole, num_accelerators)
    return whole == usual and whole % odd == 0 and needed <= LARGEST_REPLICA


def _nearest_multiple(usual: float, unit: int) -> int:
    """The power of two times ``unit`` that is nearest to a batch."""
    return int(unit * 2 ** max(round(math.log2(usual / unit)), 0))


def _factor_between(batch: int, usual: float) -> float:
    """Factor between a batch and the usual one."""
    return max(batch / usual, usual / batch)
