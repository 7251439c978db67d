"""Seconds of all micro-batches through a pipeline: what stages take together, and how long each waits for others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from shardplan.base.arrays import Flags, Numbers, is_number, is_zero, largest, plus, scaled, where
from shardplan.base.fields import dataclass
from shardplan.estimation.load import Around, BlockLoad, StageWork
from shardplan.estimation.question import Question
from shardplan.estimation.times import WorkTimes, between_stages, calls_of_microbatch, sent_to_host, sharding_window
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.physics.costs.host import exposed
from shardplan.physics.memory import applied_share
from shardplan.physics.schedules.base import Passes, RankPasses
from shardplan.physics.schedules.pipeline import idle_time, least_bubble, parameter_copies, reads_place, splits_backward
from shardplan.physics.workload.stage import Parts, Stage


@dataclass(frozen=True, kw_only=True)
class StageSum:
    """One micro-batch through several stages, which share what they hold evenly."""

    passes: Passes
    """Without exchanges of states. [s]"""
    free: Numbers
    """Computation that hides nothing yet. [s]"""


def chunk_time(stage: Stage, parts: Parts[BlockLoad]) -> Numbers:
    """One micro-batch forward and backward through a model chunk, without recomputation. [s]"""
    return parts.total(stage, lambda part: part.forward + part.backward)


def longest_time(rounds: Sequence[Sequence[Numbers]]) -> Numbers:
    """Seconds on the longest ways, in groups of which the slowest counts; zero where there are none."""
    return sum((largest(group) for group in rounds), start=0.0)


def pipeline_sum(
    question: Question,
    numbers: PlanNumbers,
    around: Around,
    whole: Stage,
    work: StageWork,
    *,
    num_stages: Numbers | None = None,
) -> StageSum:
    """One micro-batch's time summed over all stages, or over ``num_stages`` that hold ``whole`` together.

    A number of recomputed layers applies to each stage; where stages are unlike, their mean stands for all.
    """
    num_stages = numbers.pp if num_stages is None else num_stages
    each = np.maximum(num_stages, 1)
    share = applied_share(whole.num_layers / each, numbers)
    passes = work.sum.forward + work.sum.backward
    again = scaled(share, work.sum.recomputed)
    free = (work.sum.free_forward + work.sum.free_backward) + scaled(share, work.sum.free_recomputed)
    kept = sent_to_host(numbers, work, share) / each
    transfer, offload, left = between_stages(
        question, numbers, around, kept, free=free / each, passes=(passes + again) / each
    )
    between = num_stages * (transfer + offload + calls_of_microbatch(question, numbers))
    free = free if left is None else free * left
    if not splits_backward(numbers):
        whole_passes = Passes(forward=(passes + between) + again, input_gradient=0.0, weight_gradient=0.0)
        return StageSum(passes=whole_passes, free=free)
    forward = work.sum.forward + between / 2
    weight_gradient = work.sum.weight_gradient
    input_gradient = (passes + between) + again - forward - weight_gradient
    return StageSum(
        passes=Passes(forward=forward, input_gradient=input_gradient, weight_gradient=weight_gradient), free=free
    )


def sharded_in_all(question: Question, numbers: PlanNumbers, everyone: StageSum, time: Numbers) -> Numbers:
    """Exposed exchange of sharded states in all stages of one micro-batch, of which all take ``time``. [s]

    As if stages were alike: each hides the same share behind its computation.
    """
    if is_zero(time):
        return 0.0
    return exposed(time, sharding_window(question, numbers) * everyone.free, question.profile)


@dataclass(frozen=True, kw_only=True)
class ShardedTimes:
    """What shows of the exchanges of sharded states in one micro-batch."""

    own: Numbers
    """Of a stage. [s]"""
    everyone: Numbers
    """Of all stages (``sharded_in_all``); other stages than this one have equal shares. [s]"""


NO_SHARDED_TIMES: Final = ShardedTimes(own=0.0, everyone=0.0)


def passes_of(numbers: PlanNumbers, times: WorkTimes, sharded: Numbers = 0.0) -> Passes:
    """One micro-batch through a stage, apart by gradient where the schedule runs these apart.

    What comes between stages and ``sharded``, exposed exchanges of states, are shared by forward pass and input
    gradient.
    """
    if not splits_backward(numbers):
        return Passes(forward=plus(times.microbatch, sharded), input_gradient=0.0, weight_gradient=0.0)
    return _apart(times, times.weight_gradient, sharded)


def _apart(times: WorkTimes, weight_gradient: Numbers, sharded: Numbers) -> Passes:
    """Forward pass, input gradient with the rest of the backward pass, and weight gradient."""
    between = plus(times.between, sharded) / 2
    return Passes(
        forward=times.forward + between,
        input_gradient=times.backward - weight_gradient + between,
        weight_gradient=weight_gradient,
    )


def paced(
    numbers: PlanNumbers,
    times: WorkTimes,
    everyone: Passes,
    pace: Numbers,
    *,
    stage: Stage,
    behind: Callable[[Stage], Passes],
    exchanges: ShardedTimes,
) -> Numbers:
    """All micro-batches of a step through a stage, and the time in which it waits for others. [s]

    ``everyone``: one micro-batch through all stages; ``behind``: through the stages behind ``stage``, which is asked
    where the schedule reads the place of a rank; both without exchanges of states; ``pace``: of uneven chunks.
    """
    own = passes_of(numbers, times, exchanges.own)
    one = plus(times.microbatch, exchanges.own) if splits_backward(numbers) else own.forward
    passes = numbers.num_microbatches * one
    if np.all(np.asarray(numbers.pp) == 1):
        return passes
    if not is_zero(exchanges.everyone):
        everyone = everyone.lengthened(np.maximum(exchanges.everyone, exchanges.own))
        if not is_number(pace, 1.0):  # chunks of a rank share its exchanges evenly
            pace = 1 + (pace - 1) * (times.microbatch / one)
    if reads_place(numbers) and not is_zero(stage.num_behind):
        own = _placed(numbers, times, everyone, stage=stage, behind=behind, exchanges=exchanges)
    return passes + idle_time(own, everyone, numbers, pace)


def _placed(
    numbers: PlanNumbers,
    times: WorkTimes,
    everyone: Passes,
    *,
    stage: Stage,
    behind: Callable[[Stage], Passes],
    exchanges: ShardedTimes,
) -> RankPasses:
    """One micro-batch through a stage whose place is known. Behind the first stage are all others."""
    own = _apart(times, times.weight_gradient if splits_backward(numbers) else 0.0, exchanges.own)
    is_first = np.equal(stage.rank, 0)
    if np.all(is_first):
        return RankPasses.of(own, stage.num_behind, _others(numbers, own, everyone))
    after = behind(stage)
    if not is_zero(exchanges.everyone):
        share = stage.num_behind / np.maximum(np.asarray(numbers.pp) - 1, 1)
        after = after.lengthened(np.maximum(exchanges.everyone - exchanges.own, 0.0) * share)
    if np.any(is_first):
        after = _either(is_first, _others(numbers, own, everyone), after)
    return RankPasses.of(own, stage.num_behind, after)


def _others(numbers: PlanNumbers, own: Passes, everyone: Passes) -> Passes:
    """One micro-batch through all other stages of one copy of the model; in forward passes where gradients are one."""
    if splits_backward(numbers):
        return everyone / parameter_copies(numbers) - own
    return Passes(forward=everyone.total - own.total, input_gradient=0.0, weight_gradient=0.0)


def _either(flags: Flags, yes: Passes, no: Passes) -> Passes:
    """One or the other, plan by plan."""
    pairs = zip(yes.parts, no.parts, strict=True)
    parts = [0.0 if is_zero(one) and is_zero(other) else where(flags, one, other) for one, other in pairs]
    return Passes(forward=parts[0], input_gradient=parts[1], weight_gradient=parts[2])


def head_start(numbers: PlanNumbers, times: WorkTimes, everyone: Passes, stage: Stage) -> Numbers:
    r"""By how much the time from the first pass of a rank to its last is shorter than that of the first rank. [s]

    .. math:: \frac{r}{v (p - 1)} \sum_{i \ne r} \left(F_i + \max(B_i - W_i, 0)\right)

    The first rank starts first and ends last; the others exchange their states and update them while it still works.
    The first micro-batch has to come through the r ranks in front, the last one to go back through them. B is the
    whole backward pass, W = 0, where gradients are one piece. The stages in front count as the mean of the others.
    """
    if is_zero(stage.rank) or np.all(np.asarray(numbers.pp) == 1):
        return 0.0
    others = everyone - passes_of(numbers, times)
    way = others.forward
    if not is_zero(others.input_gradient):
        way = way + np.maximum(others.input_gradient - others.weight_gradient, 0.0)
    return np.maximum(way, 0.0) * (stage.rank / (np.maximum(np.asarray(numbers.pp) - 1, 1) * numbers.vp))


def least_passes(numbers: PlanNumbers, whole: Stage, passes: Numbers, recomputed: Numbers) -> Numbers:
    r"""All micro-batches on a mean stage, without transfers, with the bubble that every pipeline has at least. [s]

    .. math:: \frac{M + b}{p} \sum_r t_r

    The slowest stage takes no less, with any number of chunks per rank up to ``numbers.vp``. ``passes``,
    ``recomputed``: seconds of a micro-batch in all stages together. A number of recomputed layers counts as if one
    stage held all layers: its share of them is the least that any stage has.
    """
    again = scaled(applied_share(whole.num_layers, numbers), recomputed)
    return (numbers.num_microbatches + least_bubble(numbers)) / numbers.pp * (passes + again)


def bubble_of_equal(numbers: PlanNumbers) -> Numbers:
    """Bubble of a rank among equal ones, in micro-batches: p - 1 in 1F1B."""
    pp = np.asarray(numbers.pp)
    if np.all(pp == 1):
        return 0.0
    own = Passes(forward=0.5, input_gradient=0.5, weight_gradient=0.0)
    return idle_time(own, Passes(forward=pp / 2, input_gradient=pp / 2, weight_gradient=0.0), numbers)
