"""Gradients and adapters of blocks made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from shardplan.inputs.job import PACKED, Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.software import Software
from shardplan.workload.ops import AttentionCore, Block, Collective, Matmul, Saved, StreamPass
from shardplan.workload.passes import TRAFFIC
from shardplan.workload.shard import Shard
from shardplan.workload.training import READ_BY, adapters, forward_alone, frozen, trained

CORE = AttentionCore(
    name="core", modules=(), tokens=1, num_heads=1, qk_head_dim=1, v_head_dim=1, keys=1, scored_keys=1, rate_length=1
)
QKV = Matmul(name="qkv", modules=("m",), m=10, k=64, n=48, parts=(8, 2, 2))
PROJ = Matmul(name="proj", modules=("m",), m=10, k=32, n=64)
FC1 = Matmul(name="expert_fc1", modules=("moe",), m=5, k=64, n=96, count=3, grouped=True, parts=(1, 1))
FC2 = Matmul(name="expert_fc2", modules=("moe",), m=5, k=48, n=64, count=3, grouped=True)
SCORES = Matmul(name="scores", modules=(), m=10, k=64, n=10, weight=False)
BLOCK = Block(
    operators=(QKV, CORE, PROJ, FC1, FC2, SCORES),
    collectives=tuple(
        Collective(name=way, modules=(), kind="all_gather", dimension="tp", bytes=1, direction=way)
        for way in ("forward", "backward")
    ),
    saved=tuple(Saved(name=name, modules=(), bytes=300.0) for name in (*READ_BY, "norm_input", "softmax_statistics")),
)  # fmt: skip


def shard(precision: Any = "bf16", *, num_ranks: int = 4, keeps: bool = False, **fields: Any) -> Shard:
    plan: dict[str, Any] = {"tp": 2, "ep": 1, "etp": 4} if num_ranks == 4 else {}
    job = Job(
        sequence_length=64, global_batch_size=4, precision=precision, software=Software(keeps_packed_inputs=keeps),
        **fields,
    )  # fmt: skip
    return Shard.of(64, job, PlanNumbers.of(Plan(**plan), num_ranks, job))


def kept(block: Block) -> dict[str, Any]:
    return {each.name: each.bytes for each in block.saved}


OTHERS = {"norm_input": 300.0, "softmax_statistics": 300.0}


@pytest.mark.parametrize(("precision", "latents", "core"), [("bf16", 150, 300), ("fp8", 200, 200)])
def test_frozen_products_keep_what_others_read(precision: str, latents: float, core: float) -> None:
    """Latents are kept twice, in 16 bits for their norm; the core's output as well where products read 8 bits."""
    block = frozen(BLOCK, shard(precision))
    assert kept(block) == pytest.approx({"latents": latents, "core_output": core} | OTHERS)
    assert [each.wgrad for each in block.operators if isinstance(each, Matmul)] == [False] * 5
    assert block.operators[1] == CORE
    assert block.collectives == BLOCK.collectives


def test_what_is_trained_decides() -> None:
    assert trained(BLOCK, "all", shard()) == BLOCK
    assert trained(BLOCK, "input", shard()) == frozen(BLOCK, shard())
    alone = trained(BLOCK, "none", shard(train="lora", lora_targets="q"))
    assert alone == forward_alone(BLOCK)
    assert (alone.operators, alone.saved, alone.forward_alone) == (BLOCK.operators, (), True)
    assert [each.direction for each in alone.collectives] == ["forward"]


@pytest.mark.parametrize(("precision", "times"), [("bf16", 1), ("fp8", 2)])
def test_adapters_by_hand(precision: str, times: int) -> None:
    """Of rank 4 on two tensor-parallel ranks (experts: four), in 16 bits.

    A of columns is shared by its own columns, A of rows by its rows. Inputs of products with adapters are kept in 16
    bits, and what A gives.
    """
    at = shard(precision, train="lora", lora_rank=4, lora_targets="q,v,o,up,down")
    block = trained(BLOCK, "all", at)
    pairs = {
        "qkv.q": (10, 64, 2, 32, 1), "qkv.v": (10, 64, 2, 8, 1), "proj.o": (10, 32, 4, 32, 1),
        "expert_fc1.up": (5, 64, 1, 48, 3), "expert_fc2.down": (5, 48, 4, 16, 3),
    }  # fmt: skip
    added = block.operators[6:]
    assert [each.name for each in added] == [f"{name}_{part}" for name in pairs for part in ("a", "b", "a_sum")]
    for index, (m, k, rank, columns, count) in enumerate(pairs.values()):
        down, up, total = added[3 * index : 3 * index + 3]
        assert isinstance(down, Matmul)
        assert isinstance(up, Matmul)
        assert (down.m, down.k, down.n, down.count) == (m, k, rank, count)
        assert (up.m, up.k, up.n, up.count) == (m, 4, columns, count)
        for each in down, up:
            assert (each.wgrad, each.low_precision, each.parts, each.grouped) == (True, False, (1,), count == 3)
        assert total == TRAFFIC["adapter"].at(total.name, down.modules, m * count * (k + columns) / 2, 2)
    read = ("norm_output", "dispatched", "expert_fc2_input")
    assert kept(block) == pytest.approx(
        OTHERS | dict.fromkeys(read, 300.0 * times) | {"latents": 150 if times == 1 else 200}
        | {"core_output": 300 if times == 1 else 200}
        | {f"{name}_b_input": m * 4 * count * 2 for name, (m, _, _, _, count) in pairs.items()}
    )  # fmt: skip


@pytest.mark.parametrize(
    ("targets", "names"),
    [
        ("qkv", ["qkv.qkv"]), ("k", ["qkv.k"]), ("gate_up", ["expert_fc1.gate_up"]), ("gate", ["expert_fc1.gate"]),
        ("all", ["qkv.q", "qkv.k", "qkv.v", "proj.o", "expert_fc1.gate", "expert_fc1.up", "expert_fc2.down"]),
    ],
)  # fmt: skip
def test_targets_name_matrices(targets: str, names: list[str]) -> None:
    at = shard(train="lora", lora_rank=4, lora_targets=targets, num_ranks=1)
    found = [down.name for each in BLOCK.operators for down, _ in adapters(each, at.job, at.numbers)]
    assert found == [f"{name}_a" for name in names]
    columns = {"qkv": 48, "k": 8, "gate_up": 96, "gate": 48}
    if targets in columns:
        (up,) = [up for each in BLOCK.operators for _, up in adapters(each, at.job, at.numbers)]
        assert up.n == columns[targets]


@pytest.mark.parametrize("keeps", [False, True])
def test_matrices_of_few_bits_by_hand(*, keeps: bool) -> None:
    """Weights alone are packed, adapters are not; old kernels keep the inputs of all of them."""
    at = shard(keeps=keeps, train="lora", lora_rank=4, lora_targets="q", base_weights="nf4")
    block = trained(BLOCK, "all", at)
    products = [each for each in block.operators if isinstance(each, Matmul)]
    packed = {each.name: each.packed for each in products}
    assert {name for name, how in packed.items() if how} == {"qkv", "proj", "expert_fc1", "expert_fc2"}
    assert packed["qkv"] == PACKED["nf4"]
    inputs = {"norm_output"} | ({"dispatched", "expert_fc2_input"} if keeps else set())
    assert kept(block).keys() == inputs | {"latents", "core_output", "qkv.q_b_input"} | OTHERS.keys()
    assert not [each for each in block.operators if isinstance(each, StreamPass) and each.name != "qkv.q_a_sum"]
