"""The paper's cost model as a method: its own cases, its reference results, and questions of ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shardplan.inputs.cluster import Cluster
from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig
from shardplan.published.base import Case, Method, MethodAnswer
from shardplan.published.subramanian2024 import question
from shardplan.published.subramanian2024.case import answer
from shardplan.published.subramanian2024.corrections import FLAWS
from shardplan.published.subramanian2024.reference import reference_cases


class Subramanian2024(Method):
    """Roofline of every operator, two networks, exhaustive search over three forms of tensor parallelism."""

    name = "subramanian2024"
    title = "roofline of every operator on a two-tier network; 1D and 2D tensor parallelism, searched exhaustively"
    source = "S. Subramanian et al., arXiv 2410.00273 (2024); transformer-perf-estimates, commit 54278b0"
    counts = (
        "time of every operator of a layer: compute, device memory and collectives, forward and backward",
        "pipeline bubble and transfers, data-parallel communication that is not hidden",
        "weights, gradients, ZeRO-1 optimizer states and activations of an accelerator",
        "which ranks lie inside the scale-up domain",
    )
    leaves_out = (
        "models other than equal layers of full attention and a plain MLP of four times the width",
        "recomputation, sharding beyond ZeRO-1, interleaved schedules, number formats other than 16 bits",
        *(f"{number}: {FLAWS[number]}" for number in ("Q12", *(name for name in FLAWS if name != "Q12"))),
    )

    def answer(self, case: Mapping[str, Any]) -> Mapping[str, Any]:
        """The best configurations of a search, or one configuration, with all statistics. Raises ``InputError``."""
        return answer(case)

    def cases(self, text: str) -> Iterator[Case] | None:
        """Two cases for every row of a table in the published columns: priced anew, and searched again."""
        return reference_cases(text)

    def plan(
        self, model: ModelConfig, cluster: Cluster, num_accelerators: int, job: Job, *, top: int = 10
    ) -> MethodAnswer:
        """The best configurations of all three strategies. Raises ``MethodError`` where the method cannot speak."""
        return question.plan(self.name, model, cluster, num_accelerators, job, top=top)
