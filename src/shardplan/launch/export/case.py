"""What an exporter writes down: a plan, its question, and the framework that runs it."""

from __future__ import annotations

from functools import cached_property
from math import ceil

from shardplan.errors import NotRunnableError, visible
from shardplan.fields import dataclass
from shardplan.frameworks.options import OptionsOfPlan, options_of
from shardplan.frameworks.runnable import refusals
from shardplan.frameworks.stack import Stack
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.degrees import Setting
from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.launch.export.decoder import Decoder, decoder_of


@dataclass(frozen=True, kw_only=True)
class LaunchCase:
    """One plan for one framework."""

    model: ModelConfig
    cluster: Cluster
    num_accelerators: int
    job: Job
    plan: Plan
    stack: Stack
    """The framework in the version that is meant."""
    stem: str = "launch"
    """Name of the files without their ends: a script names the files next to it."""

    @cached_property
    def setting(self) -> Setting:
        """What the rules of a framework know besides the plan."""
        return Setting.of(self.model, self.cluster, self.num_accelerators, self.job)

    @cached_property
    def decoder(self) -> Decoder:
        """The model as exporters write it. Raises ``InputError`` where it is no plain decoder."""
        return decoder_of(self.model)

    @cached_property
    def options(self) -> OptionsOfPlan:
        """The plan in the framework's own option names."""
        found = options_of(self.stack, self.setting, self.plan)
        assert found is not None, f"{self.stack.name} has options"
        return found

    @property
    def processes_per_node(self) -> int:
        """Processes on every node, one for an accelerator: the most that gives whole nodes."""
        most = min(self.cluster.accelerators_per_node, self.num_accelerators)
        return next(number for number in range(most, 0, -1) if self.num_accelerators % number == 0)

    @property
    def num_nodes(self) -> int:
        """Nodes."""
        return self.num_accelerators // self.processes_per_node

    @property
    def dp(self) -> int:
        """Data-parallel degree."""
        return self.plan.dp(self.num_accelerators)

    @property
    def num_microbatches(self) -> int:
        """Micro-batches of a step on every replica."""
        return self.job.global_batch_size // (self.plan.micro_batch_size * self.dp)

    @property
    def num_steps(self) -> int | None:
        """Optimizer steps, where the job names its tokens."""
        return None if self.job.tokens is None else ceil(self.job.tokens / self.job.tokens_per_step)

    @property
    def title(self) -> str:
        """What is launched, on one line."""
        where = f"{self.num_accelerators} x {self.cluster.accelerator.name} ({self.cluster.name})"
        return visible(f"{self.model.name} on {where} with {self.stack.label}").replace("\n", " ")

    def check(self) -> None:
        """Refuses a plan that the framework cannot run, by its first rule. Raises ``NotRunnableError``."""
        for each in refusals(self.stack, self.plan, self.setting):
            values = f" ({each.message})" if each.message else ""
            message = f"{each.framework} cannot run this plan: {each.rule}{values}"
            raise NotRunnableError(message, rule=each.rule, hint=each.hint)
