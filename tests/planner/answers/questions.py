"""Questions whose answers are recorded, named by what they cover. Some spaces are narrowed to be quick."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shardplan.estimation.question import Question
from shardplan.inputs.defaults import default_job
from shardplan.inputs.readers.catalog import load_cluster, load_model

Lists = dict[str, list[Any]]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A question by the names of its model and cluster, and how its space is restricted."""

    model: str
    cluster: str
    num_accelerators: int
    job: dict[str, Any] = field(default_factory=dict)
    """Fields of the job that differ from the default one."""
    fix: Lists = field(default_factory=dict)
    limit: Lists = field(default_factory=dict)
    exclude: Lists = field(default_factory=dict)
    use_all: bool = False
    """Whether no accelerator may be left idle."""

    def question(self) -> Question:
        """The question itself."""
        model, cluster = load_model(self.model), load_cluster(self.cluster)
        job, _ = default_job(model, cluster, self.num_accelerators, **self.job)
        return Question(model=model, cluster=cluster, num_accelerators=self.num_accelerators, job=job)


QUESTIONS: dict[str, Asked] = {
    "dense-64": Asked(model="llama-3.1-8b", cluster="dgx-h100", num_accelerators=64),
    "dense-512": Asked(model="llama-3.1-70b", cluster="dgx-h100", num_accelerators=512),
    "dense-16384": Asked(model="llama-3.1-405b", cluster="dgx-h100", num_accelerators=16384),
    "rack-576": Asked(model="llama-3.1-70b", cluster="gb200-nvl72", num_accelerators=576),
    "experts-latent-2048-fp8": Asked(
        model="deepseek-v3",
        cluster="dgx-h100",
        num_accelerators=2048,
        job={"precision": "fp8", "sequence_length": 4096, "global_batch_size": 15360},
        limit={
            "tp": [1, 2, 4],
            "cp": [1],
            "pp": [8, 16],
            "vp": [1, 2],
            "ep": [32, 64],
            "micro_batch_size": [1, 2],
            "sharding": ["zero1", "zero3", "hsdp"],
        },
    ),
    "experts-latent-2048": Asked(model="deepseek-v3", cluster="dgx-h100", num_accelerators=2048),
    "experts-latent-96": Asked(
        model="deepseek-v2-lite", cluster="dgx-h100", num_accelerators=96, limit={"cp": [1], "pp": [1, 2, 3]}
    ),
    "hybrid-768": Asked(model="nemotron-h-56b", cluster="dgx-h100", num_accelerators=768, limit={"pp": [1, 2, 4, 6]}),
    "windows-48": Asked(model="gemma-3-27b-text", cluster="dgx-h100", num_accelerators=48),
    "experts-128": Asked(
        model="mixtral-8x7b", cluster="dgx-h100", num_accelerators=128, limit={"cp": [1, 2], "pp": [1, 2, 4, 8]}
    ),
    "experts-24": Asked(model="qwen3-30b-a3b", cluster="dgx-h100", num_accelerators=24, limit={"pp": [1, 2, 3]}),
    "torus-256": Asked(model="llama-3.1-70b", cluster="tpu-v5p-pod", num_accelerators=256),
    "vision-32": Asked(model="vit-h-14", cluster="dgx-a100", num_accelerators=32),
    "prime-1009": Asked(model="llama-3.1-8b", cluster="dgx-h100", num_accelerators=1009),
    "twice-a-prime-1022": Asked(model="llama-3.1-8b", cluster="dgx-h100", num_accelerators=1022),
    "unfused-64": Asked(
        model="llama-2-13b",
        cluster="dgx-a100",
        num_accelerators=64,
        job={"attention": "unfused", "dropout": True, "optimizer": "sgd"},
    ),
    "activations-on-host-16": Asked(
        model="llama-3.1-8b",
        cluster="dgx-a100-40gb",
        num_accelerators=16,
        limit={"offload": ["none", "activations"], "offload_num_layers": [None, 4], "cp": [1, 2]},
    ),
    "states-on-host-8": Asked(
        model="llama-3.1-8b",
        cluster="dgx-a100-40gb",
        num_accelerators=8,
        limit={"offload": ["none", "optimizer"], "overlap_dp": [True, False], "overlap_tp": [False, True]},
    ),
    "summa-64": Asked(
        model="llama-3.1-70b",
        cluster="dgx-h100",
        num_accelerators=64,
        limit={
            "tp_kind": ["1d", "summa"],
            "tp_rows": [1, 2, 4],
            "placement": ["tp-cp-ep-dp-pp", "tp:4-dp:2-tp-cp-ep-dp-pp"],
        },
    ),
    "restricted-256": Asked(
        model="llama-3.1-70b",
        cluster="hgx-mi300x",
        num_accelerators=256,
        fix={"tp": [8], "sequence_parallel": [False]},
        limit={"pp": [1, 2, 4], "schedule": ["gpipe", "1f1b", "interleaved"], "sharding": ["ddp", "zero1", "zero2"]},
        exclude={"micro_batch_size": [4], "recompute": ["full"], "vp": [5]},
    ),
    "nothing-fits-64": Asked(
        model="llama-3.1-405b", cluster="dgx-h100", num_accelerators=64, limit={"cp": [1, 2], "vp": [1, 2]}
    ),
    "nothing-valid-16": Asked(
        model="mixtral-8x7b",
        cluster="dgx-h100",
        num_accelerators=16,
        job={"global_batch_size": 30},
        fix={"pp": [1], "tp": [1], "cp": [1]},
        use_all=True,
    ),
    "tied-head-8": Asked(model="llama-3.2-1b", cluster="dgx-h100", num_accelerators=8),
    "long-context-64": Asked(
        model="llama-3.1-8b",
        cluster="dgx-h100",
        num_accelerators=64,
        job={"sequence_length": 131072, "global_batch_size": 32},
        limit={"cp_comm": ["p2p", "allgather", "a2a"], "cp": [4, 8, 16, 32], "pp": [1, 2, 4]},
    ),
}
