"""The full answer for one plan: time with its split and band, memory by stage, traffic, utilisation, feasibility."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial

import numpy as np

from shardplan.arrays import Numbers
from shardplan.errors import InputError
from shardplan.estimation.band import band_of
from shardplan.estimation.breakdown import breakdown_of, shares_of, slowest_of
from shardplan.estimation.flops import FLOPS_CONVENTION, model_flops_per_token
from shardplan.estimation.knobs import knobs
from shardplan.estimation.layout import pipeline_of, whole_model
from shardplan.estimation.load import loads_of
from shardplan.estimation.pricing import Part, Prices, price
from shardplan.estimation.question import Question
from shardplan.estimation.step import (
    StageMemory,
    host_bytes,
    stage_memory,
    step_of,
)
from shardplan.inputs.batch import Batch
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.inputs.profile import Profile
from shardplan.memory.activations import applied_share
from shardplan.units import format_bytes
from shardplan.validity.rules import check_plan
from shardplan.workload.stage import Stage, kinds_of_stage


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What shardplan predicts for one plan."""

    plan: Plan
    dp: int
    num_microbatches: int
    step_time: float
    """One optimizer step. [s]"""
    step_time_p10: float
    """A tenth of comparable measured runs were faster than this. [s]"""
    step_time_p90: float
    """A tenth were slower. [s]"""
    breakdown: dict[str, float]
    """Seconds of the step by what they are spent on, on the slowest stage; they sum to the step time."""
    tokens_per_second_per_accelerator: float
    model_flops_per_token: float
    """Forward and backward FLOP per token. [FLOP]"""
    flops_convention: str
    peak_flops: float
    """Dense peak that utilisation is measured against. [FLOP/s]"""
    peak_format: str
    """Number format of that peak."""
    mfu: float
    """Model FLOP over step time and peak."""
    hfu: float
    """The same with recomputed FLOP counted."""
    peak_memory_bytes: float
    """Fullest stage. [bytes]"""
    peak_memory_p10_bytes: float
    """A tenth of comparable measured runs took less than this. [bytes]"""
    peak_memory_p90_bytes: float
    """A tenth took more. [bytes]"""
    step_time_basis: str
    """What the band of the step time says: a share of comparable runs, or a guess where no run is comparable."""
    step_time_note: str | None
    """Why that band is wider than that of well-covered questions, and what runs of the profile's own say."""
    peak_memory_basis: str
    """The same of the band of the memory."""
    peak_memory_note: str | None
    usable_memory_bytes: float
    """What tensors can fill of the accelerator's memory. [bytes]"""
    memory: tuple[dict[str, float], ...]
    """For every stage bytes by part."""
    communication: dict[str, dict[str, float]]
    """Bytes that one accelerator of the slowest stage sends per step, by dimension and network tier."""
    slowest_stage: int
    fullest_stage: int
    stage_layers: tuple[int, ...]
    """Layers of every stage."""
    feasible: bool
    reason: str | None
    """Why it does not fit: the stage, the bytes and the knob."""
    assumptions: tuple[str, ...]
    time_to_train: float | None
    """Of ``Job.tokens``. [s]"""


def estimate(
    model: ModelConfig, cluster: Cluster, job: Job, plan: Plan, *, num_accelerators: int, profile: Profile | None = None
) -> Estimate:
    """Predicts one plan. Raises ``PlanError`` where the plan breaks a rule, ``InputError`` where the question does.

    A plan that is valid but does not fit in memory is an answer: ``feasible`` is false and ``reason`` says why.
    """
    question = Question(model=model, cluster=cluster, num_accelerators=num_accelerators, job=job, given_profile=profile)
    return estimate_plan(question, plan)


def estimate_plan(question: Question, plan: Plan) -> Estimate:
    """As ``estimate``, for a question already put."""
    check_plan(plan, question.model, question.cluster, question.num_accelerators, question.job)
    batch = Batch.of(plan, question.num_accelerators, question.job)
    try:
        with np.errstate(over="raise", divide="raise", invalid="raise"):
            answer = _Answer(question, plan, batch).estimate()
    except ArithmeticError as error:
        raise _not_finite(str(error)) from None
    if not math.isfinite(answer.step_time + answer.peak_memory_bytes):
        raise _not_finite(f"{answer.step_time} s, {answer.peak_memory_bytes} bytes")
    return answer


def _not_finite(what: str) -> InputError:
    return InputError(
        f"the estimate is no finite number: {what}",
        rule="model, cluster, job and constants have sizes that can be computed with",
        hint="look for a value many powers of ten too large or too small in the files that were given",
    )


class _Answer:
    """Everything about one plan, computed once."""

    def __init__(self, question: Question, plan: Plan, batch: Batch) -> None:
        self.question, self.plan, self.batch = question, plan, batch
        self.prices: Prices = price(question, batch)
        self.stages = pipeline_of(question, batch.pp, int(batch.vp), plan.stage_layers)
        self.loads = loads_of(self.prices)
        self.whole = whole_model(question.model)
        self.memory = [stage_memory(question, batch, self.loads, stage, self.loads.on(stage)) for stage in self.stages]
        self.step = step_of(question, batch, self.loads, kinds_of_stage(self.stages), self.whole)

    def estimate(self) -> Estimate:
        question, job = self.question, self.question.job
        slowest = slowest_of(question, self.batch, self.loads, self.stages, self.whole)
        fullest = int(np.argmax([float(memory.total) for memory in self.memory]))
        step_time = float(self.step.step_time)
        peak_format = job.recipe.matmul
        peak = question.cluster.accelerator.peak(peak_format)
        per_token = model_flops_per_token(question.model, job.sequence_length)
        capacity = step_time * question.num_accelerators * peak
        breakdown = breakdown_of(
            question, self.batch, self.prices, self.loads, self.stages[slowest], step_time=step_time
        )
        sure = band_of(question, shares=shares_of(breakdown), cp=self.plan.cp)
        sure_memory = band_of(question, "memory")
        peak_memory = float(self.step.peak_memory_bytes)
        return Estimate(
            plan=self.plan,
            dp=int(self.batch.dp),
            num_microbatches=int(self.batch.num_microbatches),
            step_time=step_time,
            step_time_p10=step_time * sure.low,
            step_time_p90=step_time * sure.high,
            breakdown=breakdown,
            tokens_per_second_per_accelerator=job.tokens_per_step / (step_time * question.num_accelerators),
            model_flops_per_token=per_token,
            flops_convention=FLOPS_CONVENTION,
            peak_flops=peak,
            peak_format=peak_format,
            mfu=per_token * job.tokens_per_step / capacity,
            hfu=self._hardware_flops() / capacity,
            peak_memory_bytes=peak_memory,
            peak_memory_p10_bytes=peak_memory * sure_memory.low,
            peak_memory_p90_bytes=peak_memory * sure_memory.high,
            step_time_basis=sure.basis,
            step_time_note=sure.note,
            peak_memory_basis=sure_memory.basis,
            peak_memory_note=sure_memory.note,
            usable_memory_bytes=float(question.usable_memory),
            memory=tuple(_parts(memory) for memory in self.memory),
            communication=self._communication(self.stages[slowest]),
            slowest_stage=slowest,
            fullest_stage=fullest,
            stage_layers=tuple(int(stage.num_layers) for stage in self.stages),
            feasible=bool(self.step.fits),
            reason=self._reason(fullest),
            assumptions=self._assumptions(),
            time_to_train=None if job.tokens is None else job.tokens / job.tokens_per_step * step_time,
        )

    def _hardware_flops(self) -> float:
        """FLOP executed in one step on all accelerators, recomputed ones included."""
        share = min(1.0, float(self.batch.recompute_num_layers) * self.batch.pp / self.question.model.num_hidden_layers)

        def executed(part: Part) -> Numbers:
            return 3.0 * part.cost.flops + share * part.cost.recomputed_flops

        one_rank = float(self.prices.total_over(self.whole, executed))
        replicas = self.question.num_accelerators / self.batch.pp
        return one_rank * float(self.batch.num_microbatches) * replicas

    def _communication(self, stage: Stage) -> dict[str, dict[str, float]]:
        """Bytes sent per dimension and tier in one step by a rank of ``stage``."""
        m = float(self.batch.num_microbatches)
        share = float(applied_share(stage.num_layers, self.batch))

        def in_layers(dimension: str, tier: int, part: Part) -> Numbers:
            cost = part.cost
            return _of(cost.sent_bytes, dimension, tier) + share * _of(cost.resent_bytes, dimension, tier)

        def in_states(tier: int, part: Part) -> Numbers:
            return part.traffic.step_bytes[tier] + m * part.traffic.microbatch_bytes[tier]

        sent = {
            dimension: [m * moved for moved in self._by_tier(stage, partial(in_layers, dimension))]
            for dimension in ("tp", "cp", "ep", "etp")
        }
        sent["dp"] = self._by_tier(stage, in_states)
        sent["pp"] = [2.0 * m * float(self.batch.vp) * float(moved) for moved in self.prices.transfer_bytes]
        names = [tier.name for tier in self.question.network.tiers]
        return {dimension: dict(zip(names, moved, strict=True)) for dimension, moved in sent.items() if any(moved)}

    def _by_tier(self, stage: Stage, value: Callable[[int, Part], Numbers]) -> list[float]:
        tiers = range(len(self.question.network.tiers))
        return [float(self.prices.total_over(stage, partial(value, tier))) for tier in tiers]

    def _reason(self, fullest: int) -> str | None:
        if bool(self.step.fits):
            return None
        parts = _parts(self.memory[fullest])
        has_replicas = float(self.batch.replicas) > 1 or (self.question.model.is_moe and float(self.batch.edp) > 1)
        need, usable = float(self.memory[fullest].total), float(self.question.usable_memory)
        if need <= usable:
            return self._host_reason()
        largest = max(parts, key=lambda name: parts[name])
        return (
            f"stage {fullest} needs {format_bytes(need)} of {format_bytes(usable)} usable, "
            f"{format_bytes(need - usable)} too much; its largest part is {largest} "
            f"with {format_bytes(parts[largest])}: "
            + knobs(largest, self.plan, self.question.job, has_replicas=has_replicas)
        )

    def _host_reason(self) -> str:
        """Which stage moves more to the host than a node holds."""
        question, cluster = self.question, self.question.cluster
        needs = [float(host_bytes(question, self.batch, stage, self.loads.on(stage))) for stage in self.stages]
        fullest, per_node = int(np.argmax(needs)), cluster.accelerators_per_node
        what = "optimizer states" if self.plan.offload == "optimizer" else "activations"
        fewer = ", or offload those of fewer layers (--offload-num-layers)" if what == "activations" else ""
        return (
            f"stage {fullest} keeps {format_bytes(needs[fullest])} of {what} for each accelerator in host memory, "
            f"{format_bytes(needs[fullest] * per_node)} in a node of {per_node} with "
            f"{format_bytes(float(cluster.host_memory_bytes or 0))}: "
            + knobs(what.partition(" ")[0], self.plan, question.job, has_replicas=float(self.batch.replicas) > 1)
            + fewer
        )

    def _assumptions(self) -> tuple[str, ...]:
        question = self.question
        texts = list(question.cluster.assumptions)
        n, most = question.num_accelerators, question.cluster.max_num_accelerators
        if most is not None and n > most:
            texts.append(f"{n:,} accelerators are more than the largest known {question.cluster.name} ({most:,})")
        for tier, used in zip(question.network.tiers, question.network.sizes, strict=True):
            if tier.size is not None and used < tier.size and used < n:
                texts.append(
                    f"{used} of the {tier.size} accelerators of each {tier.name} are used, so that {n:,} divide evenly"
                )
            elif n > used and n % used:
                texts.append(
                    f"{n:,} accelerators do not fill every {tier.name} of {used}: a group of all of them is priced "
                    f"with {math.gcd(n, used)} in each"
                )
        if question.model.is_moe:
            texts.append(_routing(question.job))
            texts.append(
                "every copy of a token crosses the network by itself (moe_dispatcher alltoall)"
                if question.job.software.moe_dispatcher == "alltoall"
                else "one copy of a token crosses a slow tier for all its experts behind it"
            )
        texts.extend(question.model.notes)
        return tuple(texts)


def _routing(job: Job) -> str:
    """How tokens are taken to be shared out among the ranks that hold experts."""
    if job.moe_imbalance == 1 or job.software.moe_capacity:
        return "tokens are routed evenly to the experts"
    return f"the most loaded rank of experts gets up to {job.moe_imbalance:g} times the mean (moe_imbalance)"


def _of(sent: dict[str, tuple[Numbers, ...]], dimension: str, tier: int) -> Numbers:
    tiers = sent.get(dimension)
    return tiers[tier] if tiers is not None else 0.0


def _parts(memory: StageMemory) -> dict[str, float]:
    return {f.name: float(getattr(memory, f.name)) for f in fields(memory)}
