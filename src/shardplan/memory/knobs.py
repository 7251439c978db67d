"""Which knob makes a part of the memory smaller."""

from __future__ import annotations

from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.sharding import SHARDINGS, stays_whole


def knobs(part: str, plan: Plan, job: Job, *, has_replicas: bool) -> str:
    """What makes a part of the memory smaller, of that which the plan does not do already.

    States that all replicas share take :math:`b P / N` bytes whatever tp and pp; a pipeline keeps as many micro-batches
    in flight as it has stages, so that depth frees no activations. ``has_replicas``: whether several ranks hold the
    same weights, so that there is something to shard.
    """
    whole = plan.sharding_degree is None and has_replicas
    kind = SHARDINGS[plan.sharding]
    whole_weights = bool(stays_whole(job.software.keeps_weights, plan.pp))
    whole_gradients = bool(stays_whole(job.software.keeps_gradients, plan.pp))
    shards_weights, shards_gradients = kind.weights and not whole_weights, kind.gradients and not whole_gradients
    ways = {
        "weights": (
            ("raise tp or pp", not (shards_weights and whole)),
            ("shard them (zero3)", has_replicas and not kind.weights and not whole_weights),
            ("use more accelerators", shards_weights and has_replicas),
        ),
        "gradients": (
            ("raise tp or pp", not (shards_gradients and whole)),
            ("shard them (zero2, zero3)", has_replicas and not kind.gradients and not whole_gradients),
            ("accumulate them in bf16 (--grad-dtype bf16)", job.grad_dtype == "fp32"),
            ("use more accelerators", shards_gradients and has_replicas),
        ),
        "optimizer": (
            ("shard it (zero1)", has_replicas and plan.sharding == "ddp"),
            ("shard it over more ranks", has_replicas and plan.sharding != "ddp" and not whole),
            ("move it to the host (--offload optimizer)", plan.offload != "optimizer"),
            ("keep moments in bf16 (--moment-dtype bf16)", job.moment_dtype == "fp32"),
            ("use more accelerators", True),
        ),
        "activations": (
            ("recompute more (--recompute full)", plan.recompute != "full" or plan.recompute_num_layers is not None),
            ("lower the micro-batch size", plan.micro_batch_size > 1),
            ("raise tp or cp", True),
            ("move them to the host (--offload activations)", plan.offload != "activations"),
            ("move those of more layers there (--offload-num-layers)", plan.offload_num_layers is not None),
        ),
        "logits": (("lower the micro-batch size", plan.micro_batch_size > 1), ("raise tp or cp", True)),
        "buffers": (("raise tp", True), ("shard less (zero1)", plan.sharding != "zero1")),
        "framework": (("use an accelerator with more memory", True),),
    }
    useful = [words for words, helps in ways[part] if helps]
    return useful[0] if len(useful) == 1 else f"{', '.join(useful[:-1])}, or {useful[-1]}"
