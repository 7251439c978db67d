"""What an accelerator that trainer and engine share holds in each phase, and set-ups of which it is known what fits.

In training the engine sleeps; while it generates, states of the trainer are on the host. When new weights are sent both
have theirs: the engine wakes without its cache, and the trainer keeps its weights until all are copied (verl,
``engine_workers.py``, ``update_weights``).

``data/measured_runs/rl_memory.csv`` has runs of verl. Some state the memory that they took, some the largest
micro-batch that ran and the smallest that did not, of answers whose lengths nobody states. For those
:attr:`MeasuredMemory.full_at` is the mean length at which the memory is predicted to be full.
"""

from __future__ import annotations

import csv
import math
from functools import cache, cached_property
from typing import Any, Final, NamedTuple

from shardplan.ask.questions import ask
from shardplan.base.fields import dataclass
from shardplan.base.files import DATA
from shardplan.estimation.estimate import price_plans
from shardplan.estimation.priced import PricedPlan
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan, plan_from_cell
from shardplan.rl.engine import Engine, Replica
from shardplan.rl.programs import framework_of
from shardplan.rl.transfer import EngineFacts, engine_facts

SHIPPED: Final = DATA / "measured_runs" / "rl_memory.csv"
MOST_TOKENS: Final = 2**14
"""Of a sequence, for what is looked for."""


class PhaseMemory(NamedTuple):
    """What a shared accelerator holds in each phase. [bytes]"""

    training: float
    generation: float
    transfer: float
    """While new weights are on their way."""

    @property
    def fullest(self) -> float:
        """Of all phases. [bytes]"""
        return max(self)


def phase_memory(
    priced: PricedPlan, engine: Engine, filled: float, facts: EngineFacts, *, states_stay: bool, engine_stays: bool
) -> PhaseMemory:
    """Memory by phase of a trainer's plan and an engine of which weights and cache take ``filled`` bytes."""
    memory = priced.memory_of(priced.fullest)
    weights, states = float(memory.weights), float(memory.weights + memory.optimizer)
    awake = filled + facts.reserved
    return PhaseMemory(
        training=float(priced.peak_memory_bytes) + (awake if engine_stays else facts.asleep),
        generation=awake + (states if states_stay else 0.0),
        transfer=(states if states_stay else weights) + (awake if engine_stays else engine.weights + facts.reserved),
    )


@dataclass(frozen=True, kw_only=True)
class MeasuredMemory:
    """A run of verl on accelerators that trainer and engine share; None: not stated."""

    id: str
    source: str
    model: str
    cluster: str
    num_accelerators: int
    lora_rank: int | None
    plan: Plan
    """Of the trainer; its micro-batch is the largest that ran."""
    failed: int | None
    """The smallest micro-batch that did not."""
    tokens: int | None
    """Of a sequence of the trainer."""
    rollout_tp: int | None
    rollout_memory: float | None
    """Share of the memory that the engine takes."""
    peak: float | None
    """Memory that the run took. [bytes]"""
    notes: str

    def priced(self, tokens: int) -> PricedPlan:
        """The trainer's plan with sequences of this length."""
        asked = self._question(tokens)
        (found,) = price_plans(asked, [self.plan])
        return found

    def _question(self, tokens: int) -> Question:
        """Of the trainer; master weights are in fp32."""
        record = {
            "model": self.model,
            "cluster": self.cluster,
            "num_accelerators": self.num_accelerators,
            "sequence_length": tokens,
            "global_batch_size": self.plan.micro_batch_size * self.plan.dp(self.num_accelerators),
        }
        if self.lora_rank is not None:
            record |= {"train": "lora", "lora_rank": self.lora_rank, "lora_targets": "all"}
        return ask(framework_of("verl", "fsdp" if self.plan.sharding == "zero3" else "megatron").over(record)).question

    @cached_property
    def phases(self) -> PhaseMemory | None:
        """Memory by phase; None where lengths or the engine are not stated."""
        if self.tokens is None or self.rollout_tp is None or self.rollout_memory is None:
            return None
        priced, facts = self.priced(self.tokens), engine_facts("vllm")
        question = priced.question
        engine = Engine(model=question.model, cluster=question.cluster, replica=Replica(tp=self.rollout_tp))
        filled = self.rollout_memory * float(question.cluster.accelerator.memory_bytes) - facts.reserved
        return phase_memory(priced, engine, filled, facts, states_stay=False, engine_stays=False)

    def training(self, tokens: int) -> float:
        """Of the trainer and the sleeping engine, with sequences of this length. [bytes]"""
        return float(self.priced(tokens).peak_memory_bytes) + engine_facts("vllm").asleep

    def filling(self, tokens: int) -> float:
        """The same over what can be filled."""
        return self.training(tokens) / float(self._question(tokens).usable_memory)

    @cached_property
    def full_at(self) -> int:
        """Tokens of a sequence, a multiple of 8, at which training fills the memory."""
        low, high = 1, MOST_TOKENS // 8
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.filling(8 * middle) <= 1 else (low, middle)
        return 8 * low


@cache
def measured_memory() -> tuple[MeasuredMemory, ...]:
    """The published set-ups."""
    with SHIPPED.open(newline="") as file:
        return tuple(map(_row, csv.DictReader(file)))


def _row(row: dict[str, str]) -> MeasuredMemory:
    own: dict[str, Any] = {name: row[name] for name in ("id", "source", "model", "cluster", "notes")}
    columns = {"failed": "failed_micro_batch", "tokens": "sequence_tokens", "peak": "peak_memory_bytes"}
    for name in ("num_accelerators", "lora_rank", "failed", "tokens", "rollout_tp", "rollout_memory", "peak"):
        text, kind = row[columns.get(name, name)], float if name in ("rollout_memory", "peak") else int
        own[name] = kind(text) if text else None
    return MeasuredMemory(**own, plan=plan_from_cell(row["plan"]))


class OneLength(NamedTuple):
    """Set-ups with a known limit, as if their answers had one mean length: they are of one dataset."""

    tokens: int
    """That which agrees best: the geometric mean of those at which each is full."""
    errors: dict[str, float]
    """ln(predicted / available memory) at the limit, by row."""


def with_one_length() -> OneLength:
    """The rows of which some micro-batch failed, with the length that they have in common."""
    rows = [row for row in measured_memory() if row.failed is not None]
    mean = math.exp(sum(math.log(row.full_at) for row in rows) / len(rows))
    tokens = 8 * round(mean / 8)
    return OneLength(tokens, {row.id: math.log(row.filling(tokens)) for row in rows})
