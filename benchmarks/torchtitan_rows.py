"""Measured runs of the lines that ``torchtitan_steps.py`` wrote: the family ``torchtitan-h100`` of the shipped runs.

python benchmarks/torchtitan_rows.py benchmarks/records/torchtitan_h100.jsonl > rows.csv
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

DATE: Final = "2026-11-22"
SOURCE: Final = (
    f"measured for shardplan on {DATE} (benchmarks/torchtitan_steps.py; torchtitan 0.2.2, torch 2.11.0+cu130)"
)
MODELS: Final = {
    "llama-1.5b": "models/llama-3.2-1b-untied.json",
    "llama-3.6b": "models/llama-3.2-3b-untied.json",
    "llama-8b-of-8-layers": "models/llama-3.1-8b-l8.json",
}
"""Shapes that are no model of the catalogue."""
RECOMPUTE: Final = {"op": ("op_sac", ""), "2": ("full", ";recompute_layers=4")}
"""Words of torchtitan; every second layer was measured on 8 layers."""


def row_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """One measured run, in the columns of measured runs."""
    case, world = record["case"], record["world"]
    recompute, layers = RECOMPUTE.get(case["recompute"], (case["recompute"], ""))
    replicas = case["fsdp"] * case["replicas"]
    row = {
        "id": "titan-h100-" + record["name"].replace("llama-8b-of-8-layers", "llama-3.1-8b-l8"),
        "family": "torchtitan-h100",
        "source": SOURCE,
        "tier": "A",
        "framework": "torchtitan",
        "model": MODELS.get(case["model"], case["model"]),
        "accelerator": "h100-sxm-80gb",
        "num_accelerators": world,
        "scale_up_size": 8,
        "precision": "bf16",
        "grad_dtype": "fp32",
        "attention": "flash",
        "sequence_length": case["seq"],
        "global_batch_size": case["batch"] * case["accumulate"] * replicas,
        "micro_batch_size": case["batch"],
        "tp": case["tp"],
        "pp": case["pp"],
        **dict.fromkeys(("cp", "ep", "vp"), 1),
        "sharding": _sharding(case),
        "sharding_degree": case["fsdp"] if case["replicas"] > 1 else "",
        "sequence_parallel": "yes" if case["tp"] > 1 else "no",
        "recompute": recompute,
        "options": f"compile={'yes' if case['compiled'] else 'no'}{layers}",
        "peak_memory_gb": f"{record['peak_allocated_bytes'] / 1e9:.2f}",
        "memory_kind": "allocated",
        "notes": _notes(record),
        "result": "ran",
    }
    if world == 1:
        row |= {"step_time_s": f"{record['step_time_s']:.4f}", "step_time_from": "step"}
    return row


def _sharding(case: Mapping[str, Any]) -> str:
    if case["fsdp"] == 1:
        return "ddp"
    if case["replicas"] > 1:
        return "hsdp"
    return "zero2" if case["reshard"] == "never" else "zero3"


def _notes(record: Mapping[str, Any]) -> str:
    """What was run, and the other meters of the memory."""
    if record["world"] == 1:
        what = "one GPU, random tokens"
    else:
        what = (
            f"one rank (rank 0) of {record['world']} with PyTorch's fake process group: nothing is sent, so that only "
            f"the memory is a measurement; its kernels alone took {record['step_time_s']:.4f} s"
        )
    reserved, used = (record[name] / 1e9 for name in ("peak_reserved_bytes", "device_used_bytes"))
    return f"{what}; the allocator reserved {reserved:.2f} GB, the device used {used:.2f} GB"


def rows_of(file: Path) -> list[dict[str, Any]]:
    """The runs that ended, each once: a later line of the same case takes the place of an earlier one."""
    records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [row_of(record) for record in {each["name"]: each for each in records if "failed" not in each}.values()]


def main() -> None:
    """Writes the rows as CSV to standard output."""
    rows = rows_of(Path(sys.argv[1]))
    columns = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


if __name__ == "__main__":
    main()
