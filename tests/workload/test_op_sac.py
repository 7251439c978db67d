from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shardplan import estimate
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.readers.catalog import cluster_of_accelerator, load_model
from shardplan.workload.layer import layer_block
from shardplan.workload.ops import Block
from shardplan.workload.shard import Shard

LLAMA_8B = load_model("llama-3.1-8b")
TOKENS = 8192


def block_of(name: str, *, attention: Any = "flash", layer: int = 0, **fields: Any) -> Block:
    model = load_model(name)
    job = Job(sequence_length=TOKENS, global_batch_size=64, attention=attention)
    plan = Plan(recompute="op_sac", **fields)
    return layer_block(model.layer_kinds[layer], Shard.of(model.hidden_size, job, PlanNumbers.of(plan, 64, job)))


def shares(parts: Any) -> dict[str, float]:
    return {part.name: float(part.op_sac) for part in parts}


def test_every_second_product_of_a_llama_layer_runs_again() -> None:
    """wq, wk, wv, wo, w1, w3, w2: wk (1024 of 6144 columns), wo and w3 (half of fc1) are the even ones."""
    assert shares(block_of("llama-3.1-8b").operators) == pytest.approx(
        {"norm": 1, "qkv": 1 / 6, "rope": 1, "core": 0, "proj": 1, "mlp_fc1": 1 / 2, "mlp_activation": 1, "mlp_fc2": 0}
    )


def test_kept_bytes_of_a_llama_layer_by_hand() -> None:
    """Per token in bf16: input, query, value, attention output and statistics, gate."""
    block = block_of("llama-3.1-8b")
    kept = sum(tensor.bytes * (1 if tensor.layer_input else 1 - tensor.op_sac) for tensor in block.saved) / TOKENS
    assert kept == pytest.approx(2 * (4096 + 4096 + 1024 + 4096 + 14336) + 4 * 32)


def test_latent_attention_counts_its_five_products() -> None:
    """wq_a, wq_b, wkv_a, wkv_b, wo: the second and the fourth; the gate of the dense layer is then the sixth."""
    again = shares(block_of("deepseek-v3").operators)
    assert [again[name] for name in ("q_down", "q_up", "kv_down", "kv_up", "proj")] == [0, 1, 0, 1, 0]
    assert again["mlp_fc1"] == 1 / 2
    assert again["mlp_fc2"] == 0  # the last product of a layer, though it is the eighth


def test_grouped_products_and_the_router_run_again() -> None:
    block = block_of("mixtral-8x7b", ep=8)
    again = shares(block.operators)
    assert [again[name] for name in ("router", "expert_fc1", "expert_fc2", "permute")] == [1, 1, 1, 1]
    assert shares(block.saved)["dispatched"] == 0  # the all-to-all brought it
    assert shares(block_of("mixtral-8x7b").saved)["dispatched"] == 1


def test_tensor_parallel_gathers_run_again_and_scattered_outputs_are_kept() -> None:
    block = block_of("llama-3.1-8b", tp=8)
    forward = shares(item for item in block.collectives if item.direction == "forward" and item.dimension == "tp")
    assert forward == {"attention_gather": 1, "attention_scatter": 0, "mlp_gather": 1, "mlp_scatter": 0}
    assert [tensor.op_sac for tensor in block.saved if tensor.name == "norm_input"][1] == 0
    reduced = block_of("llama-3.1-8b", tp=8, sequence_parallel=False)  # all-reduces are not in the list
    assert all(item.op_sac == 1 for item in reduced.collectives if item.dimension == "tp")


def test_unfused_attention_runs_again() -> None:
    block = block_of("llama-3.1-8b", attention="unfused")
    assert shares(block.operators)["core"] == 1
    assert shares(block.saved)["scores"] == 1


def test_context_exchange_and_dispatch_do_not_run_again() -> None:
    block = block_of("mixtral-8x7b", cp=4, ep=4)
    assert all(item.op_sac == 0 for item in block.collectives if item.dimension in ("cp", "ep"))


@pytest.mark.parametrize("tp", [1, 8])
def test_it_lies_between_no_recomputation_and_full(tp: int) -> None:
    job = Job(sequence_length=TOKENS, global_batch_size=64)
    cluster = cluster_of_accelerator("h100-sxm-80gb")
    answers = [
        estimate(LLAMA_8B, cluster, 64, Plan(tp=tp, sharding="zero3", recompute=policy), job=job)
        for policy in ("none", "op_sac", "full")
    ]
    assert np.all(np.diff([answer.step_time for answer in answers]) > 0)
    assert np.all(np.diff([answer.peak_memory_bytes for answer in answers]) < 0)
    assert np.all(np.diff([answer.hfu * answer.step_time for answer in answers]) > 0)
