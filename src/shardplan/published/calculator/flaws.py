"""What is known to be wrong in the calculator's numbers, figure by figure."""

from __future__ import annotations

from dataclasses import field
from typing import Final

from shardplan.fields import dataclass, in_files


@dataclass(frozen=True, kw_only=True)
class Flaw:
    """Something known to be wrong in what the calculator says."""

    figure: str
    """Column of its table, or the recommendation."""
    text: str
    ours: str | None = field(metadata=in_files("ours_key"))
    """Where our estimate says the same quantity: a key of an element of ``plans`` in a plan file."""


FLAWS: Final = (
    Flaw(
        figure="memory_per_gpu",
        text="activation memory takes batch // (batch // pp) sequences, so neither dp nor the micro-batch changes it",
        ours="peak_memory_bytes",
    ),
    Flaw(
        figure="memory_per_gpu",
        text="optimizer states are sharded as by ZeRO-1, labelled ZeRO-3, and lack the fp32 master copy",
        ours="peak_memory_bytes",
    ),
    Flaw(
        figure="memory_per_gpu",
        text="an MLP has two matrices and attention four square ones, also where the model's differ",
        ours="peak_memory_bytes",
    ),
    Flaw(
        figure="tp_per_step_gb",
        text="tensor-parallel traffic is that of the whole batch: it is not divided by dp",
        ours="communication_bytes.tp",
    ),
    Flaw(
        figure="pp_per_step_gb",
        text="pipeline traffic is one boundary's for the whole batch, at pp 1 too",
        ours="communication_bytes.pp",
    ),
    Flaw(
        figure="dp_per_step_gb",
        text="gradient traffic uses the stated parameters where memory uses the counted ones, and is not divided by tp",
        ours="communication_bytes.dp",
    ),
    Flaw(
        figure="recommended",
        text="bytes on fast and on slow links are added up, so deep pipelines win whatever their bubble",
        ours="step_time_s",
    ),
    Flaw(figure="example", text="the example output of the page does not come from its code", ours=None),
)
