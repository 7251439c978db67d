"""How one rank's share of a micro-batch looks: the quantities that every block starts from."""

from __future__ import annotations

import numpy as np

from shardplan.arrays import Numbers
from shardplan.fields import dataclass
from shardplan.inputs.job import Job
from shardplan.inputs.plan_numbers import PlanNumbers


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One rank's share under a plan (or under each plan of a batch)."""

    numbers: PlanNumbers
    job: Job
    hidden_size: int
    tokens: Numbers
    """Tokens inside attention and MLP: the micro-batch over context-parallel ranks (and rows of a tensor grid)."""
    split_tokens: Numbers
    """Tokens of the passes between them: over tensor-parallel ranks too under sequence parallelism."""
    columns: Numbers
    """Ranks that share heads and intermediate width."""
    element: float
    """Bytes of an activation element."""
    linear_input: float
    """Bytes of a kept linear input element."""

    @classmethod
    def of(cls, hidden_size: int, job: Job, numbers: PlanNumbers) -> Shard:
        """Shares of ``job``'s micro-batch under ``numbers``."""
        tokens = numbers.micro_batch_size * job.sequence_length / numbers.sequence_shards
        splits = np.logical_or(numbers.sequence_parallel, numbers.tp_kind == "summa")
        return cls(
            numbers=numbers,
            job=job,
            hidden_size=hidden_size,
            tokens=tokens,
            split_tokens=tokens / np.where(splits, numbers.tp_columns, 1),
            columns=numbers.tp_columns,
            element=job.recipe.activation_bytes,
            linear_input=(
                job.recipe.linear_input_bytes if job.software.quantised_copies else job.recipe.activation_bytes
            ),
        )

    @property
    def gate_input(self) -> float:
        """Bytes of a kept element of the input of an activation function."""
        return 1.0 if self.job.software.gate_input_format == "fp8" else self.element

    @property
    def summa(self) -> bool:
        """Whether matrices are split along both dimensions."""
        return self.numbers.tp_kind == "summa"
