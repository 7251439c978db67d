r"""What plans take at least, found before their states, their memory and most of their pipeline are priced.

Three bounds. Of all plans of a point, the micro-batches on a mean stage, with the bubble b that every pipeline of such
stages has at least,

.. math:: \frac{M + b}{p} \sum_r t_r

of those of a kind of sharding, what they exchange in every micro-batch, as if all work ran at the same time,

.. math:: \frac{M}{p} \sum_r s_r

and of a pipeline, the micro-batches on its slowest stage with its bubble (``pricing.pairs.least_times``), which is
closer and takes longer. All leave out what states exchange once a step, and the update, which only add to it. A search
may leave out plans whose bound is above the slowest step of use to it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shardplan.arrays import gather
from shardplan.estimation.layout import whole_model
from shardplan.estimation.parts.pipelines import bubble_of_equal
from shardplan.estimation.pricing import parameters_of_parts
from shardplan.estimation.question import Question
from shardplan.estimation.step import whole_step
from shardplan.inputs.plan import Offload, Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.memory.states import model_states, update_bytes
from shardplan.planner.pricing.tables import Tables
from shardplan.schedules.pipeline import least_bubble

ROUNDING = 1e-9
"""Share by which a bound may exceed the time that it bounds: sums in another order."""


def bound_and_promise(tables: Tables) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The first bound of all points, and about what their fastest plans take: it with the bubble of equal stages. [s]

    The latter is no bound where stages are unequal and micro-batches few. It decides which plans are looked at first.
    """
    points, slots = np.arange(tables.family.num_points), np.arange(len(tables.family.policies))
    numbers, least = tables.numbers.with_most_chunks(points, slots), tables.least_passes_at(points, slots)
    passes = numbers.num_microbatches
    bubble = (passes + bubble_of_equal(numbers)) / (passes + least_bubble(numbers))
    found = (whole_step(tables.question, each) for each in (least, least * bubble))
    bound, promise = (np.broadcast_to(each, (*np.shape(each)[:-2], len(slots), len(points))) for each in found)
    return bound, promise


def least_by_software(tables: Tables, *, tp: float, ep: float) -> NDArray[np.float64]:
    """A bound of all points of a whole family under other software, which leaves these shares of exchanges. [s]"""
    shape = len(tables.family.policies), tables.family.num_points
    return np.broadcast_to(whole_step(tables.question, tables.least_computing(tp, ep)), shape)


def least_shares(whole: Tables, part: Tables) -> dict[str, float]:
    r"""Shares of the exchanges of a whole family that show at least where a part runs by other software.

    Of exchanges of tensor parallelism that overlap with products :math:`f + (1 - f) c` (``exposed_with_products``), of
    experts' exchanges that overlap with another micro-batch c; none of these where the part sends less.
    """
    profile, own, others = part.question.profile, whole.family.switches, part.family.switches
    hidden, panel = float(np.min(profile.hidden_slowdown)), float(np.min(profile.tp_fill))
    same_tp, same_ep = (own.get(name) == others.get(name) for name in ("overlap_tp", "overlap_ep"))
    sends_less = own.get("moe_dispatcher") == "alltoall" != others.get("moe_dispatcher")
    return {
        "tp": 1.0 if same_tp else panel + (1 - panel) * hidden,
        "ep": 0.0 if sends_less else 1.0 if same_ep else hidden,
    }


def least_of_exchanges(tables: Tables) -> NDArray[np.float64]:
    """The second bound, by kind of sharding and point: what hides exchanges is work, which takes no less time. [s]"""
    family = tables.family
    time = gather(tables.sharding_time, tables.layout_keys[1])
    passes = tables.numbers.num_microbatches / family.points["pp"]
    return np.broadcast_to(whole_step(tables.question, passes * time), (len(family.shardings), family.num_points))


def least_bytes(question: Question, offload: Offload) -> float:
    r"""What the fullest accelerator holds at least of weights, gradients and optimizer states, s bytes in all.

    .. math:: s / N + b

    with b bytes of the framework. Someone holds each of them, the fullest accelerator no less than the mean. What is
    gathered or kept comes on top. Gradients count where there is room for them all the time
    (``Software.frees_gradients``), or where the update needs more than the states; what it needs counts as one of them.
    """
    job, numbers = question.job, PlanNumbers.of(Plan(offload=offload), 1, question.job)
    parts, whole = parameters_of_parts(question, numbers), whole_model(question.model)
    states = parts.map(lambda held: model_states(held, job, numbers))
    update = float(parts.total(whole, lambda held: update_bytes(held, job, numbers)))
    kept = 1.0 if update or not job.software.frees_gradients else 0.0
    held = float(states.total(whole, lambda each: each.weights + each.optimizer + kept * each.gradients))
    return (update + held) / question.num_accelerators + float(question.profile.framework_bytes)
