"""The columns of a file of measured runs, each declared once: its cells, its meaning, its other names.

Reading, errors, documentation and the names that are understood all derive from ``COLUMNS``. The first line of a file
names the columns, also by the names of people and frameworks (``TP``, ``gbs``, ``seq_len``); the answer reports this
once for the whole file. One error names everything that is wrong with a header.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from shardplan.base.errors import InputError, nearest_names, shown
from shardplan.base.fields import dataclass
from shardplan.base.words import folded, words
from shardplan.calibrate.runs import cells
from shardplan.calibrate.runs.cells import CellKind, RowCell, quantity, word
from shardplan.inputs.words import DTYPES, FIELD_NAMES, OFFLOADS, PRECISIONS, SHARDINGS


@dataclass(frozen=True)
class RunColumn:
    """A column of a file of measured runs."""

    name: str
    kind: CellKind
    meaning: str = ""
    """Its meaning in the documentation."""
    names: str = ""
    """Its other names, separated by spaces; fields of a job and a plan have theirs in :mod:`shardplan.inputs.words`."""
    stored_as: str | None = None
    """Field of ``MeasuredRun``, if it has another name; empty if another column's field holds it."""
    measures: Literal["", "time", "memory", "end"] = ""
    """The measured quantity. Every row has one of these columns."""
    is_required: bool = False
    """Whether every row needs a value."""

    @property
    def field(self) -> str:
        """Field of ``MeasuredRun`` that holds it; empty if another column's does."""
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
            cells.TEXT,
            "unique name of the row; without the column, the name of the file and the line",
            "id run run-id run-name name experiment config-name job-id",
            is_required=True,
        ),
        RunColumn(
            "family",
            cells.TEXT,
            "runs of one origin (one team, one line of software); what is left out when generalisation is measured",
        ),
        RunColumn("source", cells.TEXT, "where it was published, or how it was measured"),
        RunColumn(
            "tier",
            cells.TIER,
            "`A`: every field that matters is stated; `A-`: one minor field is inferred; `B`: one that matters is "
            "missing",
        ),
        RunColumn(
            "framework",
            cells.TEXT,
            "training framework; chooses the [stack](stacks.md) whose defaults fill empty cells. Where there is none, "
            "those of a job and a plan do, and the assumptions say so, with the frameworks that may have been meant",
        ),
        RunColumn(
            "software_date",
            cells.MONTH,
            "month of the software, where the run states it: the framework's defaults are those of that month (see "
            "[releases](stacks.md#releases)), otherwise today's",
            "software-date framework-date release-date",
        ),
        RunColumn("model", cells.NAME, "a built-in model, or a `config.json` relative to the file", is_required=True),
        RunColumn(
            "accelerator",
            cells.NAME,
            "accelerator of the catalogue, or the path of an "
            "[accelerator file](clusters.md#fields-of-an-accelerator-file), relative to the working directory",
            is_required=True,
        ),
        RunColumn("num_accelerators", cells.COUNT, "world size (TPU: chips)", is_required=True),
        RunColumn(
            "scale_up_size",
            cells.COUNT,
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
        RunColumn("attention", cells.ATTENTION, "attention kernel"),
        RunColumn("sequence_length", cells.COUNT._replace(values="tokens"), "`8k` is 8,192", is_required=True),
        RunColumn("global_batch_size", cells.SEQUENCES, is_required=True),
        RunColumn("micro_batch_size", cells.SEQUENCES, "per model replica"),
        RunColumn("tp", cells.DEGREE, "tensor parallelism"),
        RunColumn("pp", cells.DEGREE, "pipeline parallelism"),
        RunColumn("cp", cells.DEGREE, "context parallelism"),
        RunColumn("ep", cells.DEGREE, "expert parallelism"),
        RunColumn(
            "etp",
            cells.DEGREE,
            "expert-tensor parallelism; not given it is 1, or `tp` where the stack says so (NeMo, Megatron-LM)",
        ),
        RunColumn(
            "dp", cells.DEGREE, "data parallelism, which follows from the others: where it is stated, it is checked"
        ),
        RunColumn("vp", cells.COUNT, "model chunks per pipeline rank; 1: not interleaved"),
        RunColumn("sharding", word(SHARDINGS), "what data parallelism shards"),
        RunColumn("sharding_degree", cells.COUNT, "ranks over which it shards, where fewer than hold the same weights"),
        RunColumn("sequence_parallel", cells.YES_OR_NO),
        RunColumn(
            "recompute",
            cells.RECOMPUTE,
            "`op_sac`: PyTorch's selection per operator; `minimal`: MaxText's policy that keeps the outputs of matrix "
            "products",
        ),
        RunColumn("offload", word(OFFLOADS, ""), "what lives in host memory"),
        RunColumn("options", cells.OPTIONS, "everything else, see below"),
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
        RunColumn("step_time_from", word(cells.STEP_TIMES, ""), "the figure from which it comes"),
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
            word(cells.MEMORY_KINDS, ""),
            "tensors; the allocator's reservation; the whole process. Not stated: taken as tensors",
        ),
        RunColumn(
            "result",
            word(cells.RESULTS, ""),
            "how the run ended; empty: `ran`. `oom`: memory was full. Such a row has neither a time nor a memory. It "
            'says that the plan does not fit, and only the verdict "fits" is compared with it',
            "result status outcome state",
            measures="end",
        ),
        RunColumn("notes", cells.TEXT, names="notes note comment comments remarks"),
    )
}
"""Columns by name."""

COLUMN_NAMES: Final = words({column.name: column.names for column in COLUMNS.values() if column.names})
"""Names of the columns that are no field of a job or a plan. Ambiguous ones are left out: ``tps`` is
of one accelerator in torchtitan and of all elsewhere, ``throughput`` may be of samples.
"""
REQUIRED: Final = tuple(column.name for column in COLUMNS.values() if column.is_required)
"""Columns that need a value in every row; rows of a file without ids are named by their lines."""
IN_HEADER: Final = tuple(name for name in REQUIRED if name != "id")
"""Columns that every file has."""
MEASURES: Final = tuple(column.name for column in COLUMNS.values() if column.measures)
"""Columns of which a row states at least one."""
TIMES, MEMORIES = (
    tuple(column.name for column in COLUMNS.values() if column.measures == what) for what in ("time", "memory")
)
"""Columns that state a step time or a rate that it follows from, and columns that state a peak memory."""


MOST_COLUMNS: Final = 256
MOST_LISTED: Final = 12
SHORTEST: Final = 3
"""Names with fewer letters resemble too many others to count as misspelt."""
TEMPLATE_HINT: Final = "`shardplan calibrate --template` prints a file to start from"
SEPARATORS: Final = {",": "commas", ";": "semicolons", "\t": "tabs"}
AMBIGUOUS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("tps", "throughput", "tokens", "wps", "toks"), "tokens_per_second or tokens_per_second_per_accelerator"
    ),
    **dict.fromkeys(("tflops", "tflop/s", "flops", "mfu"), "tflops_per_accelerator, in FLOP of the model"),
    **dict.fromkeys(("time", "latency", "duration"), "step_time_s or step_time_ms"),
}
"""Ambiguous names by their folded form, and the columns that they may mean."""
UNITS: Final = re.compile(r"\s*[(\[]\s*([\w/.%]+)\s*[)\]]")
"""A unit in brackets: ``step time (s)``."""
FOLDED: Final = {folded(name): name for name in COLUMNS}


class Header(NamedTuple):
    """The columns of a file."""

    columns: tuple[str, ...]
    """The column of each cell of a row, by our names; an unknown one keeps its own."""
    taken: tuple[str, ...]
    """Names that are read as others: ``TP is read as tp``."""


def separator_of(text: str, label: str) -> str:
    """The separator: commas, or the semicolons or tabs of a first line without commas. Raises ``InputError``.

    A line that starts with ``#`` and does not name the columns is a comment, and comments are not read.
    """
    first = text.partition("\n")[0].strip()
    found = next((sign for sign in SEPARATORS if sign in first), ",")
    names = [column_meant(name.strip()) for name in first.split(found)]
    is_commented = column_meant(first.partition(found)[0].strip("# ")) is not None and names[0] is None
    if first.startswith("#") and (is_commented or not set(IN_HEADER) <= {*names}):
        raise InputError(
            f"{label}: the first line starts with '#', and comments are not read: {shown(first)}",
            rule="the first line names the columns",
            hint=f"begin with their names: {','.join(REQUIRED)}; {TEMPLATE_HINT}",
        )
    return found


def column_meant(name: str) -> str | None:
    """The column that ``name`` means; None if there is none.

    >>> column_meant("Tokens/s/GPU")
    'tokens_per_second_per_accelerator'
    """
    if name in COLUMNS:
        return name
    key = folded(UNITS.sub(r" \1", name))
    field = COLUMN_NAMES.get(key) or FIELD_NAMES.get(key)
    return FOLDED.get(key) or (field if field in COLUMNS else None)


def header_of(names: Sequence[str], label: str) -> Header:
    """The columns of a first line. Raises ``InputError`` with everything that is wrong with it."""
    if len(names) > MOST_COLUMNS:
        raise InputError(
            f"{label}: {len(names):,} columns",
            rule=f"measured runs have at most {MOST_COLUMNS} columns",
            hint=TEMPLATE_HINT,
        )
    meant = {name: column_meant(name) for name in names if name}
    problems = list(_problems(names, meant))
    if problems:
        listed = problems[:MOST_LISTED] + ([f"and {len(problems) - MOST_LISTED} more"] * (len(problems) > MOST_LISTED))
        raise InputError(
            f"{label}: {'; '.join(listed)}",
            rule=f"measured runs have the columns {', '.join(IN_HEADER)}, each column once",
            hint=f"correct the first line; {TEMPLATE_HINT}",
        )
    taken = tuple(f"column {name} is read as {own}" for name, own in meant.items() if own is not None and own != name)
    return Header(tuple(meant.get(name) or name for name in names), taken)


def _problems(names: Sequence[str], meant: Mapping[str, str | None]) -> Iterator[str]:
    """Columns that are repeated, missing, probably misspelt, or ambiguous."""
    spelt = [(meant[name] or name, name[:60]) for name in names if name]
    for column, count in Counter(column for column, _ in spelt).items():
        if count > 1:
            given = ", ".join([name for one, name in spelt if one == column][:MOST_LISTED])
            yield f"column '{column:.60}' is repeated ({given})"
    absent = [column for column in COLUMNS if column not in meant.values()]
    unknown = [name for name, column in meant.items() if column is None]
    if missing := [column for column in IN_HEADER if column in absent]:
        meant_by = {column: nearest_names(column, unknown, most=1) for column in missing}
        said = (f"'{column}'" + (f" (is '{near[0]:.60}' meant?)" if near else "") for column, near in meant_by.items())
        yield f"there is no column {', '.join(said)}"
    optional = [column for column in absent if column not in REQUIRED]
    for name in unknown:
        is_odd = len(name) > SHORTEST and folded(name) not in AMBIGUOUS
        near = nearest_names(name, optional, most=1) if is_odd else []
        if near:  # otherwise its values would be lost
            yield f"unknown column '{name:.60}' (did you mean {near[0]}?)"
    if not {*meant.values()} & {*MEASURES}:
        for name in unknown:
            if folded(name) in AMBIGUOUS:
                yield f"column '{name:.60}' may mean several things: rename it {AMBIGUOUS[folded(name)]}"


TEMPLATE: Final = """\
id,framework,model,accelerator,num_accelerators,precision,sequence_length,global_batch_size,micro_batch_size,\
tp,pp,cp,vp,ep,sharding,recompute,step_time_s,peak_memory_gb,memory_kind,result,options,notes
example-1,megatron-lm,llama-3.1-8b,h100-sxm-80gb,64,bf16,8192,256,1,2,1,1,1,,zero1,none,\
3.47,49.4,allocated,ran,overlap=dp_grad,replace with a run of yours
example-2,megatron-lm,llama-3.1-70b,h100-sxm-80gb,16,bf16,8192,256,1,8,1,1,1,,zero1,none,\
,,,oom,,a run that ended out of memory has no time
"""
"""The most important columns, a run that ran and one that ran out of memory; all columns are in
``docs/inputs/measured-runs.md``. The figures are predictions of the defaults, to be replaced.
"""
