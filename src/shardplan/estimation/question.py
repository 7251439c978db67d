"""What is asked: a model, a cluster and a number of its accelerators, a job; and what follows from these alone.

Whoever asks, a question is posed in one way: what is not given takes the framework's default, or the usual one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import field
from functools import cached_property, partial
from typing import Any, Final, NamedTuple

import numpy as np

from shardplan.base.arrays import Numbers
from shardplan.base.errors import InputError, shown
from shardplan.base.fields import dataclass, replace
from shardplan.base.units import format_bytes
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.companions import NONE, Companion, GivenModels, check_companion, companions_of
from shardplan.inputs.counts import MAX_NUM_ACCELERATORS
from shardplan.inputs.defaults import default_job
from shardplan.inputs.job import Job, in_full
from shardplan.inputs.model import ModelConfig, check_positions
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import Setting
from shardplan.inputs.profile import Profile, load_profile
from shardplan.inputs.software import CHOSEN
from shardplan.inputs.trained import trained_model
from shardplan.physics.costs.network import Network, used_of_domains
from shardplan.physics.costs.roofline import Machine, MachineRates
from shardplan.physics.frameworks.defaults import job_in_stack, stated, switches_in_stack
from shardplan.physics.frameworks.stack import Stack
from shardplan.physics.frameworks.usual_stack import (
    Wanted,
    candidates_of,
    chosen_stack,
    why_chosen,
    without_prediction_blocks,
)
from shardplan.physics.workload.layer import check_adapters
from shardplan.physics.workload.routing import check_routing

GROUPED_WORKSPACES: Final = 4 * 32 * 2**20
"""Workspaces of the streams that run grouped products on NVIDIA parts (Transformer Engine, module/base.py,
``get_multi_stream_cublas_workspace``). [bytes]"""


@dataclass(frozen=True, kw_only=True)
class Question:
    """Everything about a training run but the plan."""

    model: ModelConfig
    """What is trained; with its adapters and frozen parts, if the job has some."""
    cluster: Cluster
    """Accelerators and the networks between them."""
    num_accelerators: int
    """World size."""
    job: Job
    """What one step computes, and how the software runs it."""
    stated_software: tuple[str, ...] = ()
    """Fields of the software that were asked for, which a search leaves as they are."""
    num_idle: int = 0
    """Accelerators that were given beside them and do nothing: they are paid for, and MFU counts them."""
    given_profile: Profile | None = None
    """Calibration constants in place of those of the accelerator's generation."""
    given_companions: GivenModels = field(default=(), repr=False)
    """Models of companions that are no built-in ones, by what the job calls them."""
    given_network: Network | None = field(default=None, repr=False, compare=False)
    """Network in place of the cluster's: several side by side, for questions that are answered together."""
    given_rates: MachineRates | None = field(default=None, repr=False, compare=False)
    """Rates in place of those of the accelerator, likewise."""

    def __post_init__(self) -> None:
        """Checks the world size, the memory and the number format. Raises ``InputError``."""
        n = self.num_accelerators
        if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= MAX_NUM_ACCELERATORS:
            raise InputError(
                f"the number of accelerators is {shown(n)}; it must be a whole number from 1 to "
                f"{MAX_NUM_ACCELERATORS:,}",
                rule="the number of accelerators is a positive whole number",
                hint="set --gpus",
            )
        if not isinstance(self.num_idle, int) or isinstance(self.num_idle, bool) or self.num_idle < 0:
            raise InputError(
                f"the number of idle accelerators is {shown(self.num_idle)}",
                rule="the number of idle accelerators is a whole number, 0 or more",
                hint="correct num_idle",
            )
        memory, context = self.cluster.accelerator.memory_bytes, self.profile.context_bytes
        if np.any(memory <= np.asarray(context)):
            raise InputError(
                f"the memory of an accelerator is {format_bytes(memory)}; "
                f"its context and communicators alone take {format_bytes(float(np.max(context)))}",
                rule="an accelerator has memory for tensors",
                hint="set memory in its file, or --memory",
            )
        object.__setattr__(
            self, "model", trained_model(self.model, lora=self.job.train == "lora", freeze=self.job.freeze)
        )
        check_positions(self.model, self.job.sequence_length)
        check_adapters(self.model, self.job)
        check_routing(self.model, self.job)
        for companion, other in self.companions:
            check_companion(companion, other.model, self.model)
        for number_format in (self.job.recipe.matmul, self.job.recipe.dense_math):
            self.cluster.accelerator.peak(number_format)

    def running(self, chosen: Mapping[str, Any]) -> Question:
        """The same with the software that a plan of these fields states; what it leaves open is as the job says."""
        software = self.job.software
        stated = {name: chosen[name] for name in CHOSEN if chosen.get(name) is not None}
        if all(getattr(software, name) == value for name, value in stated.items()):
            return self
        return replace(self, job=replace(self.job, software=replace(software, **stated)))

    def with_software(self, plan: Plan) -> Plan:
        """The plan with the software of the job where it leaves that open."""
        open_ = {name: getattr(self.job.software, name) for name in CHOSEN if getattr(plan, name) is None}
        return replace(plan, **open_)

    def __repr__(self) -> str:
        idle = f" ({self.num_idle:,} idle beside them)" if self.num_idle else ""
        job, where = self.job, f"{self.num_accelerators:,} x {self.cluster.accelerator.name}{idle}"
        step = f"{job.global_batch_size:,} x {job.sequence_length:,} tokens a step, {job.precision}, {job.optimizer}"
        return f"<Question: {self.model.name} on {where} ({self.cluster.name}), {step}>"

    @property
    def num_given(self) -> int:
        """Accelerators that were given: those of the world and those left idle."""
        return self.num_accelerators + self.num_idle

    @property
    def uses(self) -> str:
        """How many of the given accelerators are used, and how they lie in the domains; empty where all are."""
        if not self.num_idle:
            return ""
        used, given = self.num_accelerators, self.num_given
        parts = used_of_domains(self.cluster.innermost, used, given), f"{self.num_idle:,} idle"
        return f"uses {used:,} of {given:,}: {'; '.join(part for part in parts if part)}"

    def leaving_idle(self, num_accelerators: int) -> Question:
        """The same on fewer of the given accelerators; the others do nothing."""
        return replace(self, num_accelerators=num_accelerators, num_idle=self.num_given - num_accelerators)

    @cached_property
    def companions(self) -> tuple[tuple[Companion, Question], ...]:
        """Frozen models that run beside it, each with the same question about it alone; no prediction blocks run."""
        named = companions_of(self.job.companion)
        if not named:
            return ()
        routing = "learned" if {",", ":"} & {*self.job.routing} else self.job.routing  # shares are of the own experts
        whole = {"train": "full", "freeze": "none", "base_weights": "same"}
        alone = replace(self.job, companion=NONE, routing=routing, optimizer="adam", **whole)
        configs = [(each, replace(each.config(self.model, self.given_companions), num_mtp_layers=0)) for each in named]
        return tuple((each, replace(self, model=config, job=alone)) for each, config in configs)

    @cached_property
    def profile(self) -> Profile:
        """Calibration constants: those given, or those of the accelerator's generation."""
        return self.given_profile or load_profile(self.cluster.accelerator.generation)

    @cached_property
    def setting(self) -> Setting:
        """What rules of validity and of frameworks look at besides the plan."""
        return Setting.of(self.model, self.cluster, self.num_accelerators, self.job, self.given_companions)

    @property
    def machine(self) -> Machine:
        """The accelerator as its profile sees it."""
        of_node, profile = self.cluster.host_memory_bandwidth, self.profile
        if of_node is not None:
            profile = replace(profile, host_memory_bandwidth=of_node / self.cluster.accelerators_per_node)
        return Machine(
            accelerator=self.cluster.accelerator,
            profile=profile,
            recipe=self.job.recipe,
            software=self.job.software,
            gradient_bytes=self.job.grad_bytes,
            rates=self.given_rates,
        )

    @property
    def network(self) -> Network:
        """The tiers that the job uses."""
        return self.given_network or Network.of(self.cluster, self.num_accelerators, self.profile)

    @property
    def host_memory(self) -> float | None:
        """One accelerator's share of its node's main memory; None where it is not known. [bytes]"""
        memory = self.cluster.host_memory_bytes
        return None if memory is None else memory / self.cluster.accelerators_per_node

    @property
    def framework_bytes(self) -> Numbers:
        """Workspaces and buffers of the framework, and those of the streams that run products of experts. [bytes]"""
        streams = self.model.is_moe and self.job.software.kernels == "fused"
        grouped = GROUPED_WORKSPACES if streams and self.cluster.accelerator.vendor == "NVIDIA" else 0.0
        return self.profile.framework_bytes + grouped

    @property
    def usable_memory(self) -> Numbers:
        """Device memory that tensors can fill: all, less context and communicators, less fragmentation. [bytes]"""
        left = self.cluster.accelerator.memory_bytes - self.profile.context_bytes
        return left / (1 + self.profile.fragmentation_when_full)


class PosedQuestion(NamedTuple):
    """A question with the framework of its plans, and what was assumed."""

    question: Question
    stack: Stack | None
    assumptions: tuple[str, ...]
    under: Mapping[str, Callable[[str], PosedQuestion]] = {}
    """Where none is named and the usual one has not what is wanted: the question under each that has, by its name. It
    takes in words how that one was chosen."""
    warnings: tuple[str, ...] = ()
    """What an answer says first: constants that are not the usual ones."""

    def restricted(self, choices: Mapping[str, Collection[str] | None]) -> PosedQuestion:
        """With what the framework adds to the assumptions where ``choices`` restrict a search."""
        names = {name for each in choices.values() for name in each or ()}
        return self._replace(assumptions=(*self.assumptions, *switches_in_stack(self.stack, names)))


def filled_job(
    model: ModelConfig, cluster: Cluster, num_accelerators: int, fields: Mapping[str, Any], stack: Stack | None
) -> tuple[Job, tuple[str, ...]]:
    """The job with these fields, the others as usual but for those of the framework; what was assumed."""
    of_stack = () if stack is None else tuple(stack.job)
    return default_job(model, cluster, num_accelerators, stated_elsewhere=of_stack, **fields)


def posed_question(
    model: ModelConfig,
    cluster: Cluster,
    num_accelerators: int,
    fields: Mapping[str, Any],
    *,
    job: Job | None = None,
    software: Mapping[str, Any],
    stack: Stack | str | None,
    profile: Profile | None,
    companions: GivenModels = (),
) -> PosedQuestion:
    """The question with these fields of a job and its software, in place of those of ``job``. Raises InputError."""
    fields = in_full(fields, job)
    given = {**fields} if job is None else {**stated(job), **fields}
    vendor, wanted = cluster.accelerator.vendor, Wanted.of(model, given)
    own = {} if job is None else stated(job.software)

    def posed(known: Stack | None, chosen: tuple[str, ...]) -> PosedQuestion:
        """The question with the defaults of a framework."""
        if job is None:
            filled, assumed = filled_job(model, cluster, num_accelerators, fields, known)
        else:
            filled, assumed = replace(job, **fields), ()
        asked, of_stack = job_in_stack(filled, known, given, {**own, **software})
        usual, _ = job_in_stack(filled, known, given, {})
        changed = (name for name in own if getattr(asked.software, name) != getattr(usual.software, name))
        trained, left_out = without_prediction_blocks(model, known)
        question = Question(
            model=trained,
            cluster=cluster,
            num_accelerators=num_accelerators,
            job=asked,
            stated_software=tuple(dict.fromkeys((*software, *changed))),
            given_profile=profile,
            given_companions=companions,
        )
        return PosedQuestion(question, known, (*assumed, *chosen, *left_out, *of_stack))

    def under(known: Stack, among: str) -> PosedQuestion:
        return posed(known, (why_chosen(known, vendor, wanted, among),))

    several = candidates_of(stack, vendor, wanted)
    others = {each.name: partial(under, each) for each in several} if len(several) > 1 else {}
    return posed(*chosen_stack(stack, vendor, wanted))._replace(under=others)
