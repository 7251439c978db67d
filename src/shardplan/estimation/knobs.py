"""Which knob makes a part of the memory smaller."""

from __future__ import annotations

from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan

__all__ = ["knobs"]


def knobs(part: str, plan: Plan, job: Job) -> str:
    """What makes a part of the memory smaller, of that which the plan does not do already.

    States that all replicas share take :math:`b P / N` bytes whatever tp and pp; a pipeline keeps as many micro-batches
    in flight as it has stages, so that depth frees no activations.
    """
    whole = plan.sharding_degree is None
    shards_weights = plan.sharding in ("zero3", "hsdp")
    ways = {
        "weights": (
            ("raise tp or pp", not (shards_weights and whole)),
            ("shard them (zero3)", not shards_weights),
            ("use more accelerators", shards_weights),
        ),
        "gradients": (
            ("raise tp or pp", not (plan.sharding in ("zero2", "zero3") and whole)),
            ("shard them (zero2, zero3)", plan.sharding in ("ddp", "zero1")),
            ("accumulate them in bf16 (--grad-dtype bf16)", job.grad_dtype == "fp32"),
            ("use more accelerators", plan.sharding not in ("ddp", "zero1")),
        ),
        "optimizer": (
            ("shard it (zero1)", plan.sharding == "ddp"),
            ("shard it over more ranks", plan.sharding != "ddp" and not whole),
            ("move it to the host (--offload optimizer)", plan.offload != "optimizer"),
            ("keep moments in bf16 (--moment-dtype bf16)", job.moment_dtype == "fp32"),
            ("use more accelerators", True),
        ),
        "activations": (
            ("recompute more (--recompute full)", plan.recompute != "full" or plan.recompute_num_layers is not None),
            ("lower the micro-batch size", plan.micro_batch_size > 1),
            ("raise tp or cp", True),
            ("move them to the host (--offload activations)", plan.offload != "activations"),
        ),
        "logits": (("lower the micro-batch size", plan.micro_batch_size > 1), ("raise tp or cp", True)),
        "buffers": (("raise tp", True), ("shard less (zero1)", plan.sharding != "zero1")),
        "framework": (("use an accelerator with more memory", True),),
    }
    useful = [words for words, helps in ways[part] if helps]
    return useful[0] if len(useful) == 1 else f"{', '.join(useful[:-1])}, or {useful[-1]}"
