r"""A larger batch than the one that was asked for, where that trains many more tokens a second.

A batch with few sequences for each replica leaves pipelines empty, or asks for more tensor, context and expert
parallelism than the model needs. Of the time of a token, the share g is computed whatever the batch, and of the rest
about ``LEFT`` is left each time that the batch is doubled. So after j doublings as many accelerators train about

.. math:: G_j = \frac{1}{g + (1 - g) \lambda^j}

times as many tokens a second. The batch is the one from which another doubling promises less than ``NEXT_GAIN``; it is
searched where it promises ``LEAST_GAIN`` or more, and offered where its fastest plan keeps that. How well a model
learns from a larger batch is not known here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from shardplan.estimation.estimate import Estimate
from shardplan.estimation.parts.terms import keys_of
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan
from shardplan.planner.result import Offer

LEAST_GAIN: Final = 0.2
"""Gain in tokens per second from which a larger batch is offered: judgement, as each of its tokens may teach less."""
NEXT_GAIN: Final = 0.1
"""Gain from which a batch is doubled once more."""
LEFT: Final = 0.4
"""Share that is left of what a token takes besides computing where the batch doubles: fitted to searches of mixtures of
experts with 1 to 16 times their batch (MiniMax-M2.5, Qwen3 30B and 235B). It decides what is searched, no more."""
MOST_DOUBLINGS: Final = 4
MOST_TOKENS: Final = 2**27
"""Tokens of a step at most: the largest batch that a maker has published (MiniMax-01, arXiv 2501.08313)."""
FEW_SEQUENCES: Final = 2
"""Sequences of a replica for each of its stages up to which a batch has few: with more, smaller replicas would have
been possible."""
COMPUTING: Final = keys_of("arithmetic", "passes")
"""Terms of a step that a token takes whatever the batch."""

Fastest = Callable[[int, float], Estimate | None]
"""The fastest plan of a batch; None where none takes less than a time [s]."""


def larger_batch(question: Question, fastest: Estimate, fastest_of: Fastest) -> Offer | None:
    """A multiple of the batch that trains many more tokens a second than ``fastest``; None where none promises that."""
    asked = question.job.global_batch_size
    if not has_few_sequences(question, fastest.plan, fastest.num_accelerators_used):
        return None
    factor = _promising_factor(fastest, MOST_TOKENS / question.job.tokens_per_step)
    if factor == 1:
        return None
    found = fastest_of(asked * factor, factor * fastest.step_time / (1 + LEAST_GAIN))
    if found is None:
        return None
    gain = factor * fastest.step_time / found.step_time - 1
    return Offer(
        num_accelerators=question.num_accelerators, global_batch_size=asked * factor, gain=gain, estimate=found
    )


def has_few_sequences(question: Question, plan: Plan, num_accelerators: int) -> bool:
    """Whether a plan on so many accelerators has few sequences for each replica and stage."""
    return question.job.global_batch_size <= FEW_SEQUENCES * plan.dp(num_accelerators) * plan.pp


def _promising_factor(fastest: Estimate, most: float) -> int:
    """The power of two, ``most`` at most, by which a batch may grow; 1 where that promises little."""
    computing = sum(fastest.breakdown.get(term, 0.0) for term in COMPUTING) / fastest.step_time
    gains = [1 / (computing + (1 - computing) * LEFT**count) for count in range(MOST_DOUBLINGS + 1)]
    count = 0
    while count < MOST_DOUBLINGS and gains[count + 1] >= (1 + NEXT_GAIN) * gains[count] and 2 ** (count + 1) <= most:
        count += 1
    return 2**count if gains[count] >= 1 + LEAST_GAIN else 1
