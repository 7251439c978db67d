r"""How long a pool of replicas takes to generate all answers of a step, the longest included.

Answers start together and end one by one, so that the batch of a replica shrinks. With a share S(t) of answers that
have more than t tokens, n answers on each of R replicas and :math:`t_{it}(b, c)` for an iteration of b sequences of c
tokens,

.. math:: T = t_{prompts} + \int_0^{cap} \left[1 - (1 - S(t))^{n R}\right] t_{it}(\max(n S(t), 1), p + t)\,dt

is the mean time until the slowest replica is done: the factor is the chance that an answer still runs. Where the cache
holds fewer sequences than n, a full batch runs until the last ones start, and what is left of it then ends as above.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple

import numpy as np

from shardplan.base.fields import dataclass
from shardplan.rl.engine import Engine, constant
from shardplan.rl.lengths import Array, Lengths


class Generated(NamedTuple):
    """What the answers of a step take."""

    prompts: float
    """Passes over the prompts. [s]"""
    decoding: float
    """Iterations until the last answer ends. [s]"""
    steady: float
    """The same work where a new answer takes the place of every one that ends. [s]"""
    at_once: float
    """Sequences of a replica that run at once, at most."""
    tail: float
    """Part of the decoding in which fewer than a tenth of the sequences run. [s]"""

    @property
    def total(self) -> float:
        """All of it. [s]"""
        return self.prompts + self.decoding


@dataclass(frozen=True, kw_only=True)
class Responses:
    """What a step generates."""

    prompts: int
    samples: int
    """Answers to each prompt."""
    prompt_tokens: int
    lengths: Lengths
    shares_prompts: bool = True
    """Whether an engine keeps the cache of a prompt for all its answers."""

    @property
    def num_answers(self) -> int:
        """Of a step."""
        return self.prompts * self.samples

    @property
    def tokens(self) -> float:
        """Prompts and answers of a step, as training sees them."""
        return self.num_answers * (self.prompt_tokens + self.lengths.mean)


@dataclass(frozen=True, kw_only=True)
class RolloutPool:
    """Replicas of an engine that share the answers of a step."""

    engine: Engine
    num_replicas: int
    answers: Responses
    memory: float
    """Memory of an accelerator that weights and cache may fill. [bytes]"""
    batches: int = 1
    """Steps whose answers may run at the same time."""

    @property
    def each(self) -> float:
        """Answers of a replica."""
        return self.answers.num_answers / self.num_replicas

    @cached_property
    def room(self) -> float:
        """Sequences whose cache a replica holds; below one the layout does not fit."""
        answers = self.answers
        kept = answers.prompt_tokens / (answers.samples if answers.shares_prompts else 1)
        context = kept + answers.lengths.mean_age()
        at_least = self.engine.cache_of(answers.prompt_tokens + answers.lengths.cap)
        left = self.memory - self.engine.weights
        if left < float(at_least):
            return 0.0
        return left / max(float(self.engine.cache_of(context)), 1.0)

    @cached_property
    def generated(self) -> Generated:
        """The time of all answers. Raises ``ValueError`` where no sequence fits."""
        at_once = min(self.each, self.room, constant("most_sequences") * self.engine.replica.pp)
        if at_once < 1 and self.room < 1:
            raise ValueError("no sequence fits")
        lengths, faster = self.answers.lengths, self.tokens_per_iteration
        queued = max(self.each - at_once, 0.0)
        context = self.answers.prompt_tokens + lengths.mean_age()
        full = float(self.engine.iteration_time(at_once, context))
        waiting = queued * lengths.mean / max(at_once, 1) * full / faster
        decoding, tail = self._draining(at_once, min(queued / max(at_once, 1e-9), 1.0))
        return Generated(
            prompts=self._prompts(),
            decoding=waiting + decoding / faster,
            steady=self._steady(context) / faster,
            at_once=at_once,
            tail=tail / faster,
        )

    def _steady(self, context: float) -> float:
        """All tokens of a step where as many answers run as there is room for, up to those of several steps. [s]"""
        most = min(self.each * self.batches, self.room, constant("most_sequences") * self.engine.replica.pp)
        time = float(self.engine.iteration_time(most, context))
        return self.each * self.answers.lengths.mean / max(most, 1e-9) * time

    @property
    def tokens_per_iteration(self) -> float:
        r"""Tokens of a sequence that an iteration makes, :math:`1 + a + ... + a^n`.

        Each of n drafts is accepted with the chance a if those before it are.
        """
        accepted = constant("accepted")
        return sum(accepted**draft for draft in range(self.engine.drafts + 1))

    def _prompts(self) -> float:
        """Passes over the prompts of a replica."""
        answers = self.answers
        number = answers.num_answers if not answers.shares_prompts else answers.prompts
        return self.engine.prompt_time(max(number / self.num_replicas, 1.0), answers.prompt_tokens)

    def _draining(self, at_once: float, renewed: float) -> tuple[float, float]:
        """Until the last of a full batch ends, and the part with few sequences, one token an iteration. [s]

        ``renewed``: share of the sequences that have taken the place of others, and are in the middle.
        """
        lengths = self.answers.lengths
        width = np.diff(lengths.edges)
        middle = (lengths.edges[1:] + lengths.edges[:-1]) / 2
        alive = (1 - renewed) * lengths.alive + renewed * _left(lengths.alive, width)
        runs = 1 - (1 - np.clip(alive, 0, 1)) ** (max(at_once, 1) * self.num_replicas)
        batch = np.maximum(at_once * alive, np.minimum(at_once, 1.0))
        age = middle + renewed * lengths.mean_age() * (1 - middle / lengths.edges[-1])
        times = width * runs * self.engine.iteration_time(batch, self.answers.prompt_tokens + age)
        return float(times.sum()), float(times[batch < at_once / 10].sum())


def _left(alive: Array, width: Array) -> Array:
    """Share of sequences met in the middle that still have so many tokens to go (the residual life of renewals)."""
    work = alive * width
    behind = work.sum() - np.cumsum(work) + work / 2
    return behind / max(float(work.sum()), math.ulp(1.0))
