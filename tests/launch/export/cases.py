"""Plans that are exported in tests: dense and of experts, pipelines with a layout, LoRA, low precision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from shardplan import load_cluster, load_model
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.launch.export.targets import export_plan, stack_of, target_named
from shardplan.launch.export.written import Export
from shardplan.physics.frameworks.defaults import job_in_stack, plan_in_stack


class Launch(NamedTuple):
    """What is exported: the rest is as usual in the framework."""

    to: str
    model: str
    cluster: str
    num_accelerators: int
    plan: Mapping[str, Any]
    job: Mapping[str, Any] = {}
    version: str | None = None

    def question(self) -> tuple[Job, Plan]:
        """The job and the plan, with the framework's defaults."""
        stack = stack_of(target_named(self.to), self.version)
        given = {"sequence_length": 4096, "global_batch_size": 512, **self.job}
        job, _ = job_in_stack(Job(**given), stack, given)
        plan, _ = plan_in_stack(
            Plan(**self.plan), stack, model=load_model(self.model), job=job, num_accelerators=self.num_accelerators,
            given=self.plan,
        )  # fmt: skip
        return job, plan

    def export(self) -> Export:
        """Its launch files."""
        job, plan = self.question()
        return self.of(job, plan)

    def of(self, job: Job, plan: Plan) -> Export:
        """The launch files of another job and plan."""
        return export_plan(
            self.to, model=load_model(self.model), cluster=load_cluster(self.cluster),
            num_accelerators=self.num_accelerators, job=job, plan=plan, version=self.version,
        )  # fmt: skip


LAUNCHES: Final = {
    "megatron-lm-dense": Launch("megatron-lm", "llama-3.1-70b", "dgx-h100", 512, {"tp": 4, "pp": 4, "vp": 5}),
    "megatron-lm-layout": Launch(
        "megatron-lm", "llama-3.1-8b", "dgx-h100", 64, {"pp": 4, "vp": 1, "stage_layers": (7, 9, 9, 7)}
    ),
    "megatron-lm-experts": Launch(
        "megatron-lm", "deepseek-v3", "dgx-h100", 2048, {"pp": 16, "ep": 64, "vp": 1},
        {"global_batch_size": 8192, "precision": "fp8", "tokens": 14.8e12},
    ),
    "megatron-lm-mixed": Launch(
        "megatron-lm", "mixtral-8x7b", "dgx-h100", 64,
        {"tp": 2, "cp": 2, "ep": 4, "etp": 1, "recompute": "layernorm,activation"},
    ),
    "megatron-lm-sharded": Launch("megatron-lm", "llama-3.1-8b", "dgx-b200", 64, {"sharding": "zero3"}),
    "megatron-lm-offload": Launch(
        "megatron-lm", "qwen3-8b", "dgx-h100", 64, {"tp": 2, "offload": "optimizer", "recompute": "full"},
        {"moment_dtype": "bf16", "grad_dtype": "bf16"},
    ),
    "megatron-lm-windows": Launch("megatron-lm", "gpt-oss-20b", "dgx-h100", 64, {"ep": 8}),
    "megatron-lm-learned-positions": Launch(
        "megatron-lm", "gpt3-175b", "dgx-h100", 256, {"tp": 8, "pp": 8, "vp": 2}, {"sequence_length": 2048}
    ),
    "adapters": Launch("nemo", "llama-3.1-8b", "dgx-h100", 8, {"tp": 2}, {"train": "lora"}),
    "megatron-bridge-dense": Launch("megatron-bridge", "llama-3.1-70b", "dgx-h100", 512, {"tp": 4, "pp": 4, "vp": 5}),
    "megatron-bridge-experts": Launch(
        "megatron-bridge", "deepseek-v3", "dgx-h100", 1024, {"ep": 64, "pp": 8, "vp": 1}
    ),
    "nemo-dense": Launch("nemo", "llama-3.1-70b", "dgx-h100", 64, {"tp": 8, "pp": 4, "vp": 5}),
    "nemo-experts": Launch("nemo", "mixtral-8x7b", "dgx-h100", 64, {"tp": 2, "ep": 4, "recompute": "full"}),
    "torchtitan-dense": Launch("torchtitan", "llama-3.1-70b", "dgx-h100", 512, {"tp": 8, "recompute": "full"}),
    "torchtitan-0.3-pipeline": Launch(
        "torchtitan", "llama-3.1-70b", "dgx-h100", 512, {"tp": 8, "pp": 4, "vp": 2, "recompute": "op_sac"},
        version="0.3.0",
    ),
    "torchtitan-0.3-experts": Launch(
        "torchtitan", "qwen3-30b-a3b", "dgx-h100", 64, {"ep": 8, "sharding": "hsdp", "sharding_degree": 32},
        version="0.3.0",
    ),
    "torchtitan-0.3-virtual-stages": Launch(
        "torchtitan", "deepseek-v2", "dgx-h100", 512, {"pp": 8, "vp": 2, "ep": 16, "recompute": "full"},
        version="0.3.0",
    ),
    "torchtitan-unknown-model": Launch("torchtitan", "mixtral-8x7b", "dgx-h100", 64, {"ep": 8}),
    "deepspeed-zero3": Launch("deepspeed", "llama-3.1-8b", "dgx-h100", 64, {"recompute": "full"}),
    "deepspeed-offload": Launch(
        "deepspeed", "llama-3.1-70b", "dgx-h100", 64, {"offload": "optimizer", "recompute": "full", "cp": 2}
    ),
    "deepspeed-tensors": Launch("deepspeed", "llama-3.1-8b", "dgx-h100", 64, {"tp": 4, "sharding": "zero1"}),
    "accelerate-hsdp": Launch(
        "accelerate", "llama-3.1-8b", "dgx-h100", 64,
        {"cp": 2, "sharding": "hsdp", "sharding_degree": 8, "recompute": "full"},
    ),
    "accelerate-one-node": Launch("accelerate", "llama-3.2-1b", "dgx-h100", 8, {"sharding": "ddp"}),
    "nanotron-dense": Launch(
        "nanotron", "llama-3.1-8b", "dgx-h100", 64, {"tp": 2, "pp": 2, "placement": "tp-cp-dp-pp-ep"}
    ),
    "nanotron-experts": Launch(
        "nanotron", "qwen3-30b-a3b", "dgx-h100", 64, {"tp": 2}
    ),
    "maxtext-tpu": Launch("maxtext", "llama-3.1-8b", "tpu-v5p-pod", 64, {"sharding": "zero3", "recompute": "full"}),
    "maxtext-two-pods": Launch(
        "maxtext", "llama-3.1-8b", "tpu-v5e-pod", 512, {"sharding": "hsdp", "sharding_degree": 256, "recompute": "full"}
    ),
    "maxtext-gpu": Launch("maxtext", "mixtral-8x7b", "dgx-h100", 64, {"sharding": "zero3", "recompute": "full"}),
}  # fmt: skip
"""By name."""
