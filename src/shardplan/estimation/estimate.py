"""The full answer for one plan: time with its split and band, memory by stage, traffic, utilisation, feasibility."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, fields
from typing import Final

import numpy as np

from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass, in_files, replace
from shardplan.base.units import format_bytes, format_count
from shardplan.estimation.band import Band, band_of, features_of, shipped_errors
from shardplan.estimation.charge import flops_convention, model_flops_per_token
from shardplan.estimation.evidence import NUM_NEAREST, NearRun, near_runs
from shardplan.estimation.priced import PricedPlan
from shardplan.estimation.pricing import num_trained_parameters
from shardplan.estimation.question import Question
from shardplan.estimation.stage_memory import StageMemory
from shardplan.inputs.companions import Companion
from shardplan.inputs.job import Job
from shardplan.inputs.model import beyond_positions
from shardplan.inputs.plan import Plan, StatedPlan
from shardplan.inputs.readers.residuals import Features
from shardplan.physics.costs.network import unfilled_domains
from shardplan.physics.frameworks.runnable import Refusal, refusals, untested_aspects
from shardplan.physics.frameworks.stack import Stack
from shardplan.physics.memory import knobs
from shardplan.physics.validity import check_plans
from shardplan.physics.workload.attention import slowest_rank
from shardplan.physics.workload.routing import most_loaded_of

SECONDS_PER_HOUR: Final = 3600


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What shardplan predicts for one plan."""

    plan: Plan
    """What is estimated."""
    dp: int
    """Replicas of the model: data-parallel degree."""
    num_accelerators_used: int
    """Accelerators that the plan occupies: tp cp pp dp."""
    num_microbatches: int
    """Micro-batches that each replica runs in a step."""
    step_time: float = field(metadata=in_files("step_time_s"))
    """One optimizer step. [s]"""
    step_time_p10: float = field(metadata=in_files("step_time_p10_s"))
    """A tenth of comparable measured runs were faster than this. [s]"""
    step_time_p90: float = field(metadata=in_files("step_time_p90_s"))
    """A tenth were slower. [s]"""
    step_time_own_p10: float | None = field(default=None, metadata=in_files("step_time_own_p10_s"))
    """What ``step_time_p10`` would be about with a few measured runs of one's own; None where these are fitted. [s]"""
    step_time_own_p90: float | None = field(default=None, metadata=in_files("step_time_own_p90_s"))
    """What ``step_time_p90`` would be about with these. [s]"""
    breakdown: dict[str, float] = field(metadata=in_files("breakdown_s"))
    """Seconds of the step by what they are spent on, on the slowest stage; they sum to the step time."""
    tokens_per_second_per_accelerator: float = field(metadata=in_files("tokens_per_s_per_accelerator"))
    """Tokens of a step over its time, for one of the given accelerators. [1/s]"""
    model_flops_per_token: float
    """Forward and backward FLOP per token. [FLOP]"""
    flops_convention: str
    """Which operations these are."""
    peak_flops: float = field(metadata=in_files("peak_flops_per_s"))
    """Dense peak that utilisation is measured against. [FLOP/s]"""
    peak_format: str
    """Number format of that peak."""
    mfu: float
    """Model FLOP over step time and peak of all given accelerators, idle ones too."""
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
    """Why the band of the memory is wider than usual."""
    usable_memory_bytes: float
    """What tensors can fill of the accelerator's memory. [bytes]"""
    memory: tuple[dict[str, float], ...] = field(metadata=in_files("memory_bytes"))
    """For every stage bytes by part."""
    communication: dict[str, dict[str, float]] = field(metadata=in_files("communication_bytes"))
    """Bytes that one accelerator of the slowest stage sends per step, by dimension and network tier."""
    slowest_stage: int
    """Pipeline stage that the split of the step is of, from 0."""
    fullest_stage: int
    """Pipeline stage that needs most memory, from 0."""
    stage_layers: tuple[int, ...]
    """Layers of every stage."""
    feasible: bool
    """Whether it fits in memory."""
    reason: str | None
    """Why it does not fit: the stage, the bytes and the knob."""
    assumptions: tuple[str, ...]
    """What was taken for granted, one sentence each."""
    time_to_train: float | None = field(metadata=in_files("time_to_train_s"))
    """Time for ``Job.tokens`` without failures and restarts; None where no tokens are given. [s]"""
    money: float | None = field(default=None, metadata=in_files("money_usd"))
    """Price of all given accelerators for that time, at the cluster's; None without tokens or a price. [USD]"""
    framework: str | None = None
    """The training framework that the plan is for, and the version of its record; None where none is named."""
    refusals: tuple[Refusal, ...] = ()
    """Why that framework cannot run the plan; none where it can."""
    untested: tuple[str, ...] = ()
    """What no test, recipe or run shows that framework to do, of all that the plan asks of it."""
    not_measured: str | None = None
    """In which respects no measured run covers the question or the plan; None where runs do."""
    evidence: tuple[NearRun, ...] = ()
    """The measured runs that are nearest to the question with this plan, the nearest first."""
    num_accelerators_idle: int = 0
    """Accelerators that were given beside those that the plan occupies, and do nothing."""

    @property
    def num_accelerators_given(self) -> int:
        """Accelerators that the plan occupies or leaves idle."""
        return self.num_accelerators_used + self.num_accelerators_idle

    @property
    def tokens_per_second(self) -> float:
        """Tokens of a step over its time. [1/s]"""
        return self.tokens_per_second_per_accelerator * self.num_accelerators_given

    @property
    def has_headroom(self) -> bool:
        """Whether the upper end of the band of its memory fits."""
        return self.peak_memory_p90_bytes <= self.usable_memory_bytes


def in_framework(answer: Estimate, stack: Stack | None, question: Question) -> Estimate:
    """The same, with the framework that the plan is for and why that cannot run it, if so."""
    if stack is None:
        return answer
    setting = question.setting
    refused, untested = refusals(stack, answer.plan, setting), untested_aspects(stack, setting, answer.plan)
    return replace(answer, framework=stack.label, refusals=refused, untested=untested)


def with_memory_of(answer: Estimate, question: Question) -> Estimate:
    """The answer for a plan that fits, to a question that differs in the capacity of the memory alone."""
    usable = float(question.usable_memory)
    assert answer.peak_memory_bytes <= usable
    assumptions = _assumptions(question, answer.plan)
    return replace(answer, usable_memory_bytes=usable, feasible=True, reason=None, assumptions=assumptions)


def estimate_plan(question: Question, plan: Plan) -> Estimate:
    """As ``estimate``, for a question that is already built."""
    return estimate_plans(question, (plan,))[0]


def estimate_plans(question: Question, plans: Sequence[Plan]) -> tuple[Estimate, ...]:
    """As ``estimate``, for several plans, which are priced together."""
    return estimates_of(question, price_plans(question, plans))


def estimates_of(question: Question, priced: Sequence[PricedPlan]) -> tuple[Estimate, ...]:
    """The full answers for plans that have been priced under ``question``."""
    with _finite():
        known = _Known.of(question)
        answers = tuple(_answer_of(each, known) for each in priced)
    for answer in answers:
        if not math.isfinite(answer.step_time + answer.peak_memory_bytes):
            raise _not_finite(f"{answer.step_time} s, {answer.peak_memory_bytes} bytes")
    return answers


def price_plans(question: Question, plans: Sequence[Plan]) -> list[PricedPlan]:
    """Several plans with their prices, where step time and memory will do. Raises ``PlanError`` and ``InputError``."""
    check_plans(plans, question.setting)
    with _finite():
        return PricedPlan.of_all(question, plans)


@contextmanager
def _finite() -> Iterator[None]:
    """Refuses numbers that overflow. Raises ``InputError``."""
    try:
        with np.errstate(over="raise", divide="raise", invalid="raise"):
            yield
    except ArithmeticError as error:
        raise _not_finite(str(error)) from None


def _not_finite(what: str) -> InputError:
    return InputError(
        f"the estimate is not a finite number: {what}",
        rule="model, cluster, job and constants have sizes that can be computed with",
        hint="look for a value many powers of ten too large or too small in the files that were given",
    )


@dataclass(frozen=True, kw_only=True)
class _Known:
    """What an answer says whatever the plan."""

    question: Question
    features: Features
    model_flops_per_token: float
    peak_flops: float
    memory_band: Band

    @classmethod
    def of(cls, question: Question) -> _Known:
        """Of plans that answer this."""
        model, job = question.model, question.job
        return cls(
            question=question,
            features=features_of(question),
            model_flops_per_token=model_flops_per_token(model, job.sequence_length, job),
            peak_flops=question.cluster.accelerator.peak(job.recipe.matmul),
            memory_band=band_of(question, "memory"),
        )


def _answer_of(priced: PricedPlan, known: _Known) -> Estimate:
    """All that a user sees of a priced plan."""
    question, job, plan = priced.question, priced.question.job, priced.plan
    per_token, peak = known.model_flops_per_token, known.peak_flops
    step_time, peak_memory = priced.step_time, priced.peak_memory_bytes
    capacity = step_time * question.num_given * peak
    beside = priced.breakdown["companion"] / step_time
    sure, sure_memory = band_of(question, shares=priced.shares, plan=plan, companions=beside), known.memory_band
    time = None if job.tokens is None else job.tokens / job.tokens_per_step * step_time
    return Estimate(
        plan=StatedPlan.of(plan),
        dp=int(priced.numbers.dp),
        num_accelerators_used=question.num_accelerators,
        num_microbatches=int(priced.numbers.num_microbatches),
        step_time=step_time,
        step_time_p10=step_time * sure.low,
        step_time_p90=step_time * sure.high,
        step_time_own_p10=None if sure.narrowed is None else step_time * sure.narrowed[0],
        step_time_own_p90=None if sure.narrowed is None else step_time * sure.narrowed[1],
        breakdown=priced.breakdown,
        tokens_per_second_per_accelerator=job.tokens_per_step / (step_time * question.num_given),
        model_flops_per_token=per_token,
        flops_convention=flops_convention(job),
        peak_flops=peak,
        peak_format=job.recipe.matmul,
        mfu=per_token * job.tokens_per_step / capacity,
        hfu=priced.hardware_flops() / capacity,
        peak_memory_bytes=peak_memory,
        peak_memory_p10_bytes=peak_memory * sure_memory.low,
        peak_memory_p90_bytes=peak_memory * sure_memory.high,
        step_time_basis=sure.basis,
        step_time_note=sure.note,
        peak_memory_basis=sure_memory.basis,
        peak_memory_note=sure_memory.note,
        usable_memory_bytes=float(question.usable_memory),
        memory=tuple(_parts(priced.memory_of(stage)) for stage in range(len(priced.stages))),
        communication=priced.communication(),
        slowest_stage=priced.slowest,
        fullest_stage=priced.fullest,
        stage_layers=tuple(int(stage.num_layers) for stage in priced.stages),
        feasible=priced.fits,
        reason=_reason(priced),
        assumptions=_assumptions(question, plan),
        time_to_train=time,
        money=_money(question, time),
        not_measured=sure.not_measured,
        evidence=nearest_runs(
            question, known.features, plan, has_room=bool(peak_memory * sure_memory.high <= question.usable_memory)
        ),
        num_accelerators_idle=question.num_idle,
    )


def _money(question: Question, time: float | None) -> float | None:
    r"""What the given accelerators cost: :math:`N\,t\,p / 3600`. [USD]"""
    price = question.cluster.accelerator_price
    return None if time is None or price is None else time / SECONDS_PER_HOUR * question.num_given * price


def nearest_runs(
    question: Question, features: Features, plan: Plan, number: int = NUM_NEAREST, *, has_room: bool
) -> tuple[NearRun, ...]:
    """The measured runs nearest to a question of these ``features`` with ``plan``, those of a given profile too.

    ``has_room``: as of ``near_runs``.
    """
    own = () if question.given_profile is None else question.given_profile.left_out_errors
    return near_runs(features._replace(plan=plan), shipped_errors("time").table, own, number, has_room=has_room)


def _reason(priced: PricedPlan) -> str | None:
    """Why a plan does not fit: the stage, the bytes and the knob."""
    if priced.fits:
        return None
    need, usable = priced.peak_memory_bytes, float(priced.question.usable_memory)
    if need <= usable:
        return _host_reason(priced)
    parts, numbers = _parts(priced.memory_of(priced.fullest)), priced.numbers
    has_replicas = float(numbers.replicas) > 1 or (priced.question.model.is_moe and float(numbers.edp) > 1)
    most = max(parts, key=lambda name: parts[name])
    return (
        f"stage {priced.fullest} needs {format_bytes(need)} of {format_bytes(usable)} usable, "
        f"{format_bytes(need - usable)} too much; its largest part is {most} with {format_bytes(parts[most])}: "
        + knobs(most, priced.plan, priced.question.job, has_replicas=has_replicas)
    )


def _host_reason(priced: PricedPlan) -> str:
    """Which stage moves more to the host than a node holds."""
    question, cluster, plan = priced.question, priced.question.cluster, priced.plan
    fullest, per_node = int(np.argmax(priced.host_bytes)), cluster.accelerators_per_node
    needs = float(priced.host_bytes[fullest])
    what = "optimizer states" if plan.offload == "optimizer" else "activations"
    fewer = ", or offload those of fewer layers (--offload-num-layers)" if what == "activations" else ""
    return (
        f"stage {fullest} keeps {format_bytes(needs)} of {what} for each accelerator in host memory, "
        f"{format_bytes(needs * per_node)} in a node of {per_node} with "
        f"{format_bytes(float(cluster.host_memory_bytes or 0))}: "
        + knobs(what.partition(" ")[0], plan, question.job, has_replicas=float(priced.numbers.replicas) > 1)
        + fewer
    )


def _assumptions(question: Question, plan: Plan) -> tuple[str, ...]:
    """What was taken for granted of the cluster, the job and the model."""
    texts = list(question.cluster.assumptions)
    n, most = question.num_accelerators, question.cluster.max_num_accelerators
    if most is not None and n > most:
        texts.append(f"{n:,} accelerators are more than the largest known {question.cluster.name} ({most:,})")
    texts.extend(unfilled_domains(question.network, question.num_given))
    texts.extend(_packing(question.job, plan))
    if question.model.is_moe:
        texts.append(_routing(question.job, float(most_loaded_of(question.model, question.job, plan.ep))))
        texts.append(
            "every copy of a token crosses the network by itself (moe_dispatcher alltoall)"
            if question.job.software.moe_dispatcher == "alltoall"
            else "one copy of a token crosses a slow tier for all its experts behind it"
        )
    if not question.job.trains_all:
        texts.append(_trained(question))
    texts.extend(_companion(companion, other) for companion, other in question.companions)
    texts.extend(question.model.notes)
    beyond = beyond_positions(question.model, question.job.sequence_length)
    return (*texts, beyond) if beyond else tuple(texts)


def _trained(question: Question) -> str:
    """How much of the model is trained."""
    job, trained = question.job, format_count(num_trained_parameters(question))
    if job.train == "lora":
        what = f"adapters of rank {job.lora_rank} on {job.lora_targets}, {trained} parameters"
        kept = "" if job.packed_weights is None else f", matrices of layers in {8 * job.packed_weights.bytes:.2f} bits"
        return f"trained are {what}; all weights are frozen{kept} (dropout and scale of adapters are not counted)"
    return f"{trained} parameters are trained; frozen: {job.freeze}"


def _companion(companion: Companion, other: Question) -> str:
    """How a frozen model is taken to run beside the one that is trained."""
    kept = "" if companion.role != "teacher" else ", all logits kept"
    kept = kept if companion.top_k is None else f", the {companion.top_k:,} largest logits of each token kept"
    read = ", its tokens as many as those of the model" if companion.role == "reward" else ""
    return (
        f"{companion.role} {other.model.name} runs forward on every micro-batch, its layers spread over the stages as "
        f"those of the model{kept}{read}; HFU counts its work, MFU does not"
    )


def _packing(job: Job, plan: Plan) -> tuple[str, ...]:
    """How documents are taken to lie in a sequence, and how evenly the ranks that share it attend."""
    if job.documents is None or job.packed is None:
        return ()
    load = slowest_rank(plan.cp, job.sequence_length, causal=True, documents=job.packed)
    uneven = plan.cp_comm != "a2a" and load > 1
    slowest = f"the slowest of {plan.cp} context-parallel ranks attends up to {load:.2f} times as long as the average"
    return (_documents(job.documents), *([slowest] if uneven else []))


def _documents(lengths: tuple[int, ...]) -> str:
    """How documents of these lengths are taken to lie in a sequence."""
    mean, longest = lengths[0], lengths[-1]
    if mean == longest:
        return f"documents of {mean:,} tokens fill every sequence from its start; its end cuts the last one"
    spread = f"documents of {mean:,} tokens on average, a tenth of them above {longest:,} (log-normal)"
    return f"{spread}, follow each other; every sequence cuts the first and the last one"


def _routing(job: Job, load: float) -> str:
    """How tokens are taken to be shared out among the ranks that hold experts."""
    if job.routed.is_balanced or job.software.moe_capacity:
        return "tokens are routed evenly to the experts"
    return f"the most loaded rank of experts gets up to {load:.3g} times the mean (routing {job.routing})"


def _parts(memory: StageMemory) -> dict[str, float]:
    return {f.name: float(getattr(memory, f.name)) for f in fields(memory)}
