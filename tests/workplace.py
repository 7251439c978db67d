"""A folder with a file of every kind that users give, and the commands that read them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Final

EXAMPLES: Final = Path(__file__).parents[1] / "examples"
COPIED: Final = (
    "case.json", "cluster.json", "model.json", "reference.json", "fully-sharded.json", "tensor-parallel.json",
    "my-accelerator.yaml",
)  # fmt: skip
WRITTEN: Final = {
    "model/config.json": json.dumps(
        {
            "model_type": "llama", "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8,
            "num_attention_heads": 16, "num_key_value_heads": 8, "vocab_size": 32000, "hidden_act": "silu",
            "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
        }
    ),
    "cluster.yaml": """\
name: ours
accelerator: my-accelerator.yaml
accelerators_per_node: 8
tiers:
  - {name: node, link_type: nvlink, size: 8, bandwidth: 450 GB/s}
  - {name: spine, link_type: roce, bandwidth: {value: 25, unit: GB/s, source: ours}, latency: 8 us}
""",
    "stack.yaml": """\
name: ours
full_name: Our framework
software: {kernels: {value: fused, source: ours}}
plan: {sharding: {value: zero1, source: ours}}
""",
    "profile.yaml": """\
generation: hopper
step_time: {value: 0.02, unit: s, source: ours, prior: 0.03, prior_sd: 0.5, sd: 0.2, fitted_on: two runs}
network_efficiency: {value: {nvlink: 0.7}, unit: fraction of nominal bandwidth, source: ours}
""",
    "runs.csv": """\
id,model,accelerator,num_accelerators,precision,sequence_length,global_batch_size,micro_batch_size,tp,pp,recompute,step_time_s
a,model/config.json,h100-sxm-80gb,8,bf16,2048,64,1,1,1,none,0.9
b,model/config.json,h100-sxm-80gb,8,bf16,2048,64,1,2,1,none,1.1
c,llama-3.2-1b,h100-sxm-80gb,8,bf16,2048,64,1,1,2,full,1.9
""",
    "run/config.json": json.dumps({"pp_size": 2, "vp_size": 1, "num_mbs": 2}),
    "run/pp_rank_0.json": json.dumps(
        {
            "1": {
                "total": 9.1, "memory": 4.5, "fwd_start": [0.1, 1.1], "fwd_end": [1.0, 2.0], "bwd_start": [4.1, 7.0],
                "bwd_end": [6.0, 9.0],
            }
        }
    ),
    "run/pp_rank_1.json": json.dumps(
        {
            "1": {
                "total": 7.1, "memory": 3.5, "fwd_start": [1.1, 4.1], "fwd_end": [2.0, 5.0], "bwd_start": [2.1, 5.0],
                "bwd_end": [4.0, 7.0],
            }
        }
    ),
    "passes.csv": "rank,kind,microbatch,start_s,end_s\n0,F,0,0,1\n0,BW,0,3,5\n1,F,0,1,2\n1,BW,0,2,3\n",
    "trace.json": json.dumps(
        {
            "distributedInfo": {"rank": 0, "world_size": 8},
            "traceEvents": [
                {"ph": "X", "cat": "gpu_user_annotation", "name": "ProfilerStep#3", "tid": 7, "ts": 0, "dur": 90},
                {"ph": "X", "cat": "kernel", "name": "nvjet_hsh", "tid": 7, "ts": 0, "dur": 80, "args": {"device": 0}},
                {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllGather", "tid": 9, "ts": 70.5, "dur": 20},
            ],
        }
    ),
    "notes.txt": "What nobody may lose.\n",
}  # fmt: skip

QUESTION: Final = (
    "./model", "--cluster", "cluster.yaml", "--gpus", "8", "--global-batch-size", "16", "--sequence-length", "2048",
    "--stack", "stack.yaml", "--profile", "profile.yaml",
)  # fmt: skip
HARDWARE: Final = ("cluster.yaml", "my-accelerator.yaml")
ASKED: Final = ("model/config.json", *HARDWARE, "stack.yaml", "profile.yaml")

COMMANDS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "plan": (("plan", *QUESTION, "--limit", "pp=1", "--limit", "cp=1", "--fix", "sharding=zero1"), ASKED),
    "estimate": (("estimate", *QUESTION, "--tp", "2"), ASKED),
    "accelerator": (
        ("estimate", "model/config.json", "--accelerator", "my-accelerator.yaml", "--gpus", "8"),
        ("model/config.json", "my-accelerator.yaml"),
    ),
    "estimate --from": (("estimate", "--from", "fully-sharded.json", "--tp", "2"), ("fully-sharded.json",)),
    "compare": (
        ("compare", "fully-sharded.json", "tensor-parallel.json"), ("fully-sharded.json", "tensor-parallel.json"),
    ),
    "whatif": (
        ("whatif", "fully-sharded.json", "--change", "memory=90GB", "--fix", "tp=1", "--fix", "pp=1", "--fix", "cp=1"),
        ("fully-sharded.json",),
    ),
    "fit": (
        ("fit", *QUESTION, "--largest", "micro_batch_size", "--fix", "pp=1,cp=1,sharding=zero1"),
        ASKED,
    ),
    "pareto": (("pareto", *QUESTION, "--fix", "pp=1", "--fix", "cp=1", "--fix", "sharding=zero1"), ASKED),
    "simulate --measured": (
        ("simulate", "--measured", "run/pp_rank_0.json", "run/pp_rank_1.json"),
        ("run/pp_rank_0.json", "run/pp_rank_1.json", "run/config.json"),
    ),
    "simulate of passes": (("simulate", "--measured", "passes.csv"), ("passes.csv",)),
    "simulate of a trace": (("simulate", "--measured", "trace.json"), ("trace.json",)),
    "models": (("models", "./model"), ("model/config.json",)),
    "clusters": (("clusters", "cluster.yaml"), HARDWARE),
    "accelerators": (("accelerators", "my-accelerator.yaml"), ("my-accelerator.yaml",)),
    "stacks": (("stacks", "stack.yaml"), ("stack.yaml",)),
    "profiles": (("profiles", "profile.yaml"), ("profile.yaml",)),
    "validate": (
        ("validate", "runs.csv", "--profile", "profile.yaml"), ("runs.csv", "model/config.json", "profile.yaml"),
    ),
    "calibrate": (
        ("calibrate", "runs.csv", "--out", "new.yaml", "--holdout", "0", "--accept-poor-fit"),
        ("runs.csv", "model/config.json"),
    ),
    "calculator": (("published", "calculator", "--params", "70", "--gpus", "64"), ()),
    "subramanian2024": (("published", "subramanian2024", "--input", "case.json"), ("case.json",)),
    "data-movement": (
        ("published", "data-movement", "--d-in", "1024", "--d-out", "4096", "--tp-in", "2", "--batch", "4096"), (),
    ),
    "searcher": (
        ("published", "searcher", "--cluster", "cluster.json", "--model", "model.json"), ("cluster.json", "model.json"),
    ),
    "check": (("published", "check", "reference.json"), ("reference.json",)),
    "methods": (("published", "methods", "calculator"), ()),
}  # fmt: skip
"""Commands by a name of ours: their arguments in the folder, and the files that they read there."""


def furnish(folder: Path) -> None:
    """Puts the files there."""
    for name in COPIED:
        shutil.copy(EXAMPLES / name, folder / name)
    for name, text in WRITTEN.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder with what it holds."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
