"""What a step is spent on, on its slowest stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from shardplan.arrays import Numbers
from shardplan.estimation.load import Loads
from shardplan.estimation.pricing import Part, Prices
from shardplan.estimation.question import Question
from shardplan.estimation.step import pipeline_sum, stage_times, straggler_factor
from shardplan.inputs.batch import Batch
from shardplan.inputs.readers.residuals import Shares
from shardplan.memory.activations import applied_share
from shardplan.workload.stage import Stage


def slowest_of(question: Question, batch: Batch, loads: Loads, stages: Sequence[Stage], whole: Stage) -> int:
    """Position of the stage that takes longest for a step."""
    everything = pipeline_sum(question, batch, loads, whole)
    first: dict[Stage, int] = {}  # of stages that hold the same: these take the same time
    for position, stage in enumerate(stages):
        first.setdefault(replace(stage, rank=0), position)
    times = [stage_times(question, batch, loads, stage, loads.on(stage)) for stage in first]
    slowest = int(np.argmax([float(one.busy(batch, everything)) for one in times]))
    return list(first.values())[slowest]


def breakdown_of(
    question: Question, batch: Batch, prices: Prices, loads: Loads, stage: Stage, *, step_time: float
) -> dict[str, float]:
    """Split of a step on ``stage``, the slowest. What remains beside the stage's own work is the bubble. [s]"""
    times = stage_times(question, batch, loads, stage, loads.on(stage))
    m = float(batch.num_microbatches)
    share = float(applied_share(stage.num_layers, batch))

    def both(name: str) -> float:
        def value(part: Part) -> Numbers:
            times: Numbers = getattr(part.cost.forward, name) + getattr(part.cost.backward, name)
            return times

        return m * float(prices.total_over(stage, value))

    terms = {
        "matmul": both("matmul"),
        "attention": both("attention"),
        "memory_bound": both("memory"),
        "recompute": m * share * float(prices.total_over(stage, lambda part: part.cost.recomputed.total)),
        "host": both("host"),
        "tp_communication": both("tp"),
        "cp_communication": both("cp"),
        "ep_communication": both("ep"),
        "dp_communication": float(times.sharded) + float(times.reduce) + float(times.gather),
        "pp_communication": m * float(times.transfer),
        "offload": m * float(times.offload),
        "optimizer": float(times.update),
        "fixed": float(m * times.overhead + question.profile.step_time),
    }
    growth = float(straggler_factor(question))
    terms["stragglers"] = step_time * (1 - 1 / growth)
    terms["bubble"] = max(step_time - sum(terms.values()), 0.0) if batch.pp > 1 else 0.0
    return terms


def shares_of(breakdown: dict[str, float]) -> Shares:
    """Shares of a step by its split."""
    whole = sum(breakdown.values())
    sent = sum(time for name, time in breakdown.items() if name.endswith("_communication"))
    return Shares(host=breakdown["host"] / whole, communication=sent / whole, attention=breakdown["attention"] / whole)
