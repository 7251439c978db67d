"""The columns of a file of measured runs, each told once: what its cells hold, what it means, its other names.

Reading, errors, documentation and the names that are understood all derive from ``COLUMNS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from shardplan.base.fields import dataclass
from shardplan.base.words import words
from shardplan.calibrate.runs.cells import (
    ATTENTION,
    COUNT,
    DEGREE,
    MEMORY_KINDS,
    MONTH,
    NAME,
    OPTIONS,
    RECOMPUTE,
    RESULTS,
    SEQUENCES,
    STEP_TIMES,
    TEXT,
    TIER,
    YES_OR_NO,
    CellKind,
    RowCell,
    quantity,
    word,
)
from shardplan.inputs.words import DTYPES, OFFLOADS, PRECISIONS, SHARDINGS


@dataclass(frozen=True)
class RunColumn:
    """A column of a file of measured runs."""

    name: str
    kind: CellKind
    meaning: str = ""
    """As the documentation says it."""
    names: str = ""
    """Its other names, between spaces; fields of a job and a plan have theirs in :mod:`shardplan.inputs.words`."""
    stored_as: str | None = None
    """Field of ``MeasuredRun`` where it has another name; empty where another column's field holds it."""
    measures: Literal["", "time", "memory", "end"] = ""
    """What it says was measured. Every row has one of these columns."""
    is_required: bool = False
    """Whether every row has a value."""

    @property
    def field(self) -> str:
        """Field of ``MeasuredRun`` that holds it; empty where another column's does."""
        return self.name if self.stored_as is None else self.stored_as

    def read(self, cell: RowCell) -> Any:
        """The value of a cell. Raises ``InputError``."""
        if cell.text:
            return self.kind.read(cell)
        if self.is_required:
            raise cell.wrong(self.kind.allowed)
        return self.kind.empty


COLUMNS: Final[Mapping[str, RunColumn]] = {
    column.name: column
    for column in (
        RunColumn(
            "id",
            TEXT,
            "unique name of the row; where the column is missing, the name of the file and the line",
            "id run run-id run-name name experiment config-name job-id",
            is_required=True,
        ),
        RunColumn(
            "family",
            TEXT,
            "runs of one origin (one team, one line of software); what is left out when generalisation is measured",
        ),
        RunColumn("source", TEXT, "where it was published, or how it was measured"),
        RunColumn(
            "tier",
            TIER,
            "`A`: every field that matters is stated; `A-`: one minor field is inferred; `B`: one that matters is "
            "missing",
        ),
        RunColumn(
            "framework",
            TEXT,
            "training framework; chooses the [stack](stacks.md) whose defaults fill empty cells. Where there is none, "
            "those of a job and a plan do, and the assumptions say so, with the frameworks that may have been meant",
        ),
        RunColumn(
            "software_date",
            MONTH,
            "month of the software, where the run states it: the framework's defaults are those of that month (see "
            "[releases](stacks.md#releases)), otherwise today's",
            "software-date framework-date release-date",
        ),
        RunColumn("model", NAME, "a built-in model, or a `config.json` relative to the file", is_required=True),
        RunColumn(
            "accelerator",
            NAME,
            "accelerator of the catalogue, or the path of an "
            "[accelerator file](clusters.md#fields-of-an-accelerator-file), relative to the working directory",
            is_required=True,
        ),
        RunColumn("num_accelerators", COUNT, "world size (TPU: chips)", is_required=True),
        RunColumn(
            "scale_up_size",
            COUNT,
            "accelerators of one scale-up domain (NVLink, Infinity Fabric, one TPU slice)",
            "scale-up-size nvlink-domain nvlink-domain-size gpus-per-node accelerators-per-node devices-per-node",
        ),
        RunColumn(
            "inter_node_gb_s",
            quantity(0.001, 100_000, "GB/s", 1e9),
            "bandwidth between domains, per accelerator and direction",
            stored_as="inter_node_bandwidth",
        ),
        RunColumn("precision", word(PRECISIONS), "number format of the matrix products"),
        RunColumn("grad_dtype", word(DTYPES), "in which gradients are accumulated and reduced"),
        RunColumn("attention", ATTENTION, "attention kernel"),
        RunColumn("sequence_length", COUNT._replace(values="tokens"), "`8k` is 8,192", is_required=True),
        RunColumn("global_batch_size", SEQUENCES, is_required=True),
        RunColumn("micro_batch_size", SEQUENCES, "per model replica"),
        RunColumn("tp", DEGREE, "tensor parallelism"),
        RunColumn("pp", DEGREE, "pipeline parallelism"),
        RunColumn("cp", DEGREE, "context parallelism"),
        RunColumn("ep", DEGREE, "expert parallelism"),
        RunColumn(
            "etp",
            DEGREE,
            "expert-tensor parallelism; not given it is 1, or `tp` where the stack says so (NeMo, Megatron-LM)",
        ),
        RunColumn("dp", DEGREE, "data parallelism, which follows from the others: where it is stated, it is checked"),
        RunColumn("vp", COUNT, "model chunks per pipeline rank; 1: not interleaved"),
        RunColumn("sharding", word(SHARDINGS), "what data parallelism shards"),
        RunColumn("sharding_degree", COUNT, "ranks over which it shards, where fewer than hold the same weights"),
        RunColumn("sequence_parallel", YES_OR_NO),
        RunColumn(
            "recompute",
            RECOMPUTE,
            "`op_sac`: PyTorch's selection per operator; `minimal`: MaxText's policy that keeps the outputs of matrix "
            "products",
        ),
        RunColumn("offload", word(OFFLOADS, ""), "what lives in host memory"),
        RunColumn("options", OPTIONS, "everything else, see below"),
        RunColumn(
            "step_time_s",
            quantity(1e-6, 1e6, "s"),
            "measured time of one optimizer step",
            "step-time-s step-time step-time-sec step-time-seconds step-seconds iteration-time-s iteration-time "
            "iter-time iter-time-s seconds-per-step sec-per-step s-per-step s/step s/it sec/step s/iter time-per-step "
            "time-per-step-s seconds-per-iteration elapsed-time-per-iteration-s",
            stored_as="step_time",
            measures="time",
        ),
        RunColumn(
            "step_time_ms",
            quantity(1e-3, 1e9, "ms", 1e-3),
            "the same",
            "step-time-ms iteration-time-ms iter-time-ms ms-per-step ms/step ms/iter ms/it time-per-step-ms "
            "elapsed-time-per-iteration-ms",
            stored_as="",
            measures="time",
        ),
        RunColumn(
            "tokens_per_second",
            quantity(1e-3, 1e12, "tokens/s"),
            "of all accelerators; the step time follows: `sequence_length` x `global_batch_size` tokens",
            "tokens-per-second tokens-per-sec tokens/s tokens/sec tok/s total-tokens-per-second "
            "global-tokens-per-second",
            stored_as="",
            measures="time",
        ),
        RunColumn(
            "tokens_per_second_per_accelerator",
            quantity(1e-3, 1e9, "tokens/s"),
            "of one accelerator",
            "tokens-per-second-per-gpu tokens-per-sec-per-gpu tokens/s/gpu tokens/sec/gpu tok/s/gpu tokens/gpu/s "
            "tokens-per-gpu-per-second tokens-per-second-per-device tokens-per-second-per-chip tokens/s/chip "
            "tokens/s/device tgs",
            stored_as="",
            measures="time",
        ),
        RunColumn(
            "tflops_per_accelerator",
            quantity(1e-3, 1e6, "TFLOP/s", 1e12),
            "of one accelerator, in FLOP of the model without recomputation ([as counted here](../output.md)): causal "
            "attention counts half, and other counts give another time",
            "tflops-per-gpu tflops/gpu tflop/s/gpu tflops/s/gpu tflops-per-device tflops-per-second-per-gpu "
            "tflop/s-per-gpu tflops/device model-tflops-per-gpu tflops/chip throughput-per-gpu-tflop/s/gpu",
            stored_as="flop_rate",
            measures="time",
        ),
        RunColumn("step_time_from", word(STEP_TIMES, ""), "the figure from which it comes"),
        RunColumn(
            "peak_memory_gb",
            quantity(0.001, 100_000, "GB", 1e9, "GB (10^9 bytes)"),
            "measured peak of one accelerator",
            "peak-memory-gb peak-memory peak-mem peak-mem-gb max-memory max-memory-gb max-mem-gb memory-gb mem-gb",
            stored_as="peak_memory_bytes",
            measures="memory",
        ),
        RunColumn(
            "peak_memory_gib",
            quantity(0.001, 100_000, "GiB", 2**30),
            "the same in binary units, as torchtitan prints it",
            "peak-memory-gib peak-mem-gib max-memory-gib max-mem-gib memory-gib mem-gib",
            stored_as="",
            measures="memory",
        ),
        RunColumn(
            "peak_memory_mib",
            quantity(0.001, 1e8, "MiB", 2**20),
            "the same, as `nvidia-smi` prints it",
            "peak-memory-mib peak-mem-mib max-memory-mib max-mem-mib memory-mib mem-mib",
            stored_as="",
            measures="memory",
        ),
        RunColumn(
            "memory_kind",
            word(MEMORY_KINDS, ""),
            "tensors; the allocator's reservation; the whole process. Not stated: taken as tensors",
        ),
        RunColumn(
            "result",
            word(RESULTS, ""),
            "how the run ended; empty: `ran`. `oom`: memory was full. Such a row has neither a time nor a memory. It "
            'says that the plan does not fit, and only the verdict "fits" is compared with it',
            "result status outcome state",
            measures="end",
        ),
        RunColumn("notes", TEXT, names="notes note comment comments remarks"),
    )
}
"""Every column by its name."""

COLUMN_NAMES: Final = words({column.name: column.names for column in COLUMNS.values() if column.names})
"""Names of the columns that no field of a job or a plan has. Left out are those that mean several things: ``tps`` is
of one accelerator in torchtitan and of all elsewhere, ``throughput`` may be of samples."""
REQUIRED: Final = tuple(column.name for column in COLUMNS.values() if column.is_required)
"""Columns in which every row has a value; rows of a file without ids are named by their lines."""
IN_HEADER: Final = tuple(name for name in REQUIRED if name != "id")
"""Columns that every file has."""
MEASURES: Final = tuple(column.name for column in COLUMNS.values() if column.measures)
"""Columns of which a row states one at least."""
TIMES, MEMORIES = (
    tuple(column.name for column in COLUMNS.values() if column.measures == what) for what in ("time", "memory")
)
"""Those that state a step time or a rate that it follows from, and those that state a peak memory."""
