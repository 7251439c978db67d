"""Rows of measured runs that ``validate`` predicts in a second: its largest file has 50,000.

Rows of one question (model, cluster, job) differ in their plan, rows of other questions in all. Step times are made up.
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

from measure import Record, parser, print_table, table, timed, write_record

from shardplan.calibrate.validate import validate

HEADER = (
    "id,model,accelerator,num_accelerators,precision,sequence_length,global_batch_size,micro_batch_size,tp,pp,vp,cp,"
    "sharding,recompute,framework,step_time_s"
)
PLANS = (
    (1, 2, 4, 8),
    (1, 2, 4, 8),
    (1, 2, 5),
    (1, 2),
    (1, 2, 4),
    ("ddp", "zero1", "zero2", "zero3"),
    ("none", "selective", "full"),
)
"""Values of tp, pp, vp, cp, micro-batch, sharding and recomputation."""
KINDS = {
    "one question": (("llama-3.1-70b",), (512,), (1024,)),
    "many questions": (
        ("llama-3.1-8b", "llama-3.1-70b", "mixtral-8x7b"),
        (256, 512),
        (1536, 3072, 4608, 6144, 9216, 12288),
    ),
}
"""Models, numbers of accelerators and global batches of the rows."""


def rows_of(kind: str, num_rows: int) -> str:
    """A file of ``num_rows`` runs."""
    models, sizes, batches = KINDS[kind]
    plans = list(itertools.product(*PLANS))
    asked = list(itertools.product(models, sizes, batches))
    lines = [HEADER]
    for number in range(num_rows):
        tp, pp, vp, cp, micro_batch, sharding, recompute = plans[number * 7 % len(plans)]
        model, size, batch = asked[number * 5 % len(asked)]
        lines.append(
            f"run-{number},{model},h100-sxm-80gb,{size},bf16,4096,{batch},{micro_batch},{tp},{pp},{vp},{cp},{sharding},"
            f"{recompute},megatron,{20 + number % 7}"
        )
    return "\n".join(lines) + "\n"


def measured(kind: str, num_rows: int, *, runs: int) -> Record:
    """Time of a validation, by the row."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.csv"
        path.write_text(rows_of(kind, num_rows), encoding="utf-8")
        found = validate(path)
        seconds = timed(lambda: validate(path), runs=runs, warm_up=0).median_cpu_s
    return {
        "rows": kind,
        "num_rows": num_rows,
        "num_predicted": len(found.predictions),
        "cpu_s": seconds,
        "cpu_ms_per_row": 1000 * seconds / num_rows,
    }


COLUMNS = ["rows", "in the file", "predicted", "ms of processor time per row"]


def rows_of_table(kinds: list[Record]) -> list[list[str]]:
    """Text of a table."""
    return [
        [each["rows"], f"{each['num_rows']:,}", f"{each['num_predicted']:,}", f"{each['cpu_ms_per_row']:.2f}"]
        for each in kinds
    ]


def report(record: Record) -> str:
    """The table of the documentation."""
    return table(COLUMNS, rows_of_table(record["kinds"]))


def main() -> None:
    """Prints a table, and writes a record where asked to."""
    arguments = parser(__doc__ or "", runs=3).parse_args()
    num_rows = 20 if arguments.tiny else 3000
    found = [measured(kind, num_rows, runs=arguments.runs) for kind in KINDS]
    print_table(COLUMNS, rows_of_table(found))
    write_record(arguments.json, "validate_rows", kinds=found)


if __name__ == "__main__":
    main()
