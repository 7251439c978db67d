from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shardplan import estimate
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.readers.catalog import cluster_of_accelerator, load_model
from shardplan.physics.workload.communication import Shard
from shardplan.physics.workload.layer import layer_block
from shardplan.physics.workload.ops import AttentionCore, Block, Collective, Matmul, Saved, StreamPass
from shardplan.physics.workload.training import selected

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


def product(name: str, columns: int, **fields: Any) -> Matmul:
    return Matmul(name=name, modules=(), m=1, k=1, n=columns, **fields)


CORE = AttentionCore(
    name="core", modules=(), tokens=1, num_heads=1, qk_head_dim=1, v_head_dim=1, keys=1, scored_keys=1, rate_length=1
)
SAVED = ("qkv", "latents", "norm_input", "mlp_fc1_output", "mlp_fc2_output", "core_output", "softmax_statistics",
         "scores", "dispatched", "router_output")  # fmt: skip


def chosen(attention: Any = "flash", *products: Matmul, **plan: Any) -> Block:
    """A block of these products, and of one part of each other sort."""
    job = Job(sequence_length=64, global_batch_size=64, attention=attention)
    at = Shard.of(64, job, PlanNumbers.of(Plan(recompute="op_sac", **plan), 64, job))
    block = Block(
        operators=(
            CORE, StreamPass(name="norm", modules=(), forward_bytes=1, backward_bytes=1), *products,
        ),
        collectives=tuple(
            Collective(name=f"{kind}_{dimension}", modules=(), kind=kind, dimension=dimension, bytes=1)
            for kind in ("all_gather", "reduce_scatter", "all_to_all")
            for dimension in ("tp", "etp", "cp", "ep")
        ),
        saved=tuple(Saved(name=name, modules=(), bytes=1) for name in SAVED),
    )  # fmt: skip
    return selected(block, at)


PRODUCTS = (
    product("q_up", 30), product("kv_up", 10), product("router", 5, low_precision=False), product("q_down", 8),
    product("kv_down", 24), product("fc", 1), product("proj", 7), product("out_proj", 21),
    product("mlp_fc1", 9, parts=(1, 3, 4)), product("expert_fc1", 3, grouped=True), product("mlp_fc2", 4),
)  # fmt: skip


def test_shares_of_products_and_of_what_they_give_by_hand() -> None:
    """Counted through, without router and experts: the second, fourth, sixth, eighth and tenth run again.

    Of queries, keys and values 10 of 40 columns are made again, of latents 24 of 32, of both sums behind a mixer 7 of
    28; of mlp_fc1 the first and the last of its three parts, 5 of 8. The last product never is.
    """
    block = chosen("flash", *PRODUCTS)
    again = shares(block.operators)
    assert {name: again[name] for name in again if name not in ("core", "norm")} == pytest.approx(
        {"q_up": 0, "kv_up": 1, "router": 1, "q_down": 0, "kv_down": 1, "fc": 0, "proj": 1, "out_proj": 0,
         "mlp_fc1": 5 / 8, "expert_fc1": 1, "mlp_fc2": 0}
    )  # fmt: skip
    assert (again["core"], again["norm"]) == (0, 1)
    assert shares(block.saved) == pytest.approx(
        {"qkv": 10 / 40, "latents": 24 / 32, "norm_input": 7 / 28, "mlp_fc1_output": 5 / 8, "mlp_fc2_output": 0,
         "core_output": 0, "softmax_statistics": 0, "scores": 1, "dispatched": 1, "router_output": 1}
    )  # fmt: skip


def test_unfused_attention_is_no_operator_of_the_list() -> None:
    kept = shares(chosen("unfused", *PRODUCTS).saved)
    assert (kept["core_output"], kept["softmax_statistics"]) == (1, 1)


@pytest.mark.parametrize(("tp", "split", "kept"), [(1, True, 7 / 28), (2, True, 0), (2, False, 7 / 28)])
def test_scattered_sums_behind_a_mixer_are_kept(*, tp: int, split: bool, kept: float) -> None:
    block = chosen("flash", *PRODUCTS, tp=tp, sequence_parallel=split)
    assert shares(block.saved)["norm_input"] == pytest.approx(kept)
    scattered = 0 if split else 1
    assert shares(block.collectives) == {
        "all_gather_tp": 1, "all_gather_etp": 1, "all_gather_cp": 0, "all_gather_ep": 1, "reduce_scatter_tp": scattered,
        "reduce_scatter_etp": 0, "reduce_scatter_cp": 0, "reduce_scatter_ep": 0, "all_to_all_tp": 0,
        "all_to_all_etp": 0, "all_to_all_cp": 0, "all_to_all_ep": 0,
    }  # fmt: skip


def test_a_layer_that_ends_with_experts_repeats_their_last_product() -> None:
    block = chosen("flash", product("mlp_fc2", 1), product("expert_fc2", 1, grouped=True), ep=2)
    assert shares(block.operators)["expert_fc2"] == 1
    assert shares(block.saved)["dispatched"] == 0
    assert shares(chosen().operators) == {"core": 0, "norm": 1}
