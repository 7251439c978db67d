"""Whole answers of the program, as a terminal of 60, 80 and 120 columns shows them."""

from __future__ import annotations

import shlex
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Final
from unittest.mock import patch

from tests.cli.commands import kept_searches, run

FOLDER: Final = Path(__file__).parent
ROOT: Final = FOLDER.parents[1]
WIDTHS: Final = (60, 80, 120)
COMMANDS: Final = {
    "help": "--help",
    "plan-help": "plan --help",
    "plan": "plan llama-3.1-70b --cluster dgx-h100 --gpus 512 --tokens 15T",
    "plan-all": "plan llama-3.2-1b --cluster dgx-h100 --gpus 16 --limit tp=1,2 --fix cp=1 --memory 40GB --all",
    "plan-experts": "plan mixtral-8x7b --cluster gb200-nvl72 --gpus 72 --fix cp=1 --stack any",
    "plan-nothing-fits": "plan llama-3.1-405b --cluster dgx-h100 --gpus 8 --fix cp=1",
    "plan-frameworks": "plan llama-3.2-1b --cluster dgx-h100 --gpus 16 --limit tp=1,2 --stack all",
    "estimate": "estimate llama-3.1-70b --cluster dgx-h100 --gpus 64 --tp 4 --pp 4 --vp 5 --software kernels=eager",
    "estimate-too-big": "estimate llama-3.1-70b --cluster dgx-h100 --gpus 8",
    "compare": "compare examples/tensor-parallel.json examples/fully-sharded.json examples/plans.json --pick 1,1,2",
    "models": "models nemotron-h-56b",
    "clusters": "clusters gb200-nvl72",
    "accelerators": "accelerators",
    "stacks": "stacks deepspeed",
    "stacks-fields": "stacks --fields",
    "profiles": "profiles",
    "validate": "validate examples/my-runs.csv",
    "methods": "published methods",
    "error-unknown": "plan llama-3.1-71b --cluster dgx-h100 --gpus 8",
    "error-rule": "estimate llama-3.1-70b --cluster dgx-h100 --gpus 64 --tp 3",
}
"""Arguments by name of the snapshot."""
CATALOGUES: Final = ("accelerators", "profiles")
SOME_ACCELERATORS: Final = (
    "a100-sxm-80gb", "ascend-910c-128gb", "gaudi3-128gb", "gb200-186gb", "h100-pcie-80gb", "h100-sxm-80gb", "l4-24gb",
    "mi300x-192gb", "rtx4090-24gb", "tpu-v5p", "trainium2",
)  # fmt: skip
"""Those that snapshots of catalogues list, so that a new one changes none."""
SEARCH_TIME: Final = 0.25
"""What every search takes, as snapshots have it: lines break where they broke. [s]"""


def shown(name: str, columns: int) -> str:
    """What a command prints, run from the folder of the project."""
    clock = SimpleNamespace(perf_counter=count(step=SEARCH_TIME).__next__)
    few = patch("shardplan.inputs.readers.catalog.shipped_names", lambda _: {each: each for each in SOME_ACCELERATORS})
    with patch("shardplan.planner.search.time", clock), kept_searches(), few if name in CATALOGUES else nullcontext():
        result = run(*shlex.split(COMMANDS[name]), columns=columns)
    assert result.exit_code in (0, 1, 2), result.output
    return result.output


def path_of(name: str, columns: int) -> Path:
    """Where a snapshot is kept."""
    return FOLDER / "answers" / f"{name}-{columns}.txt"
