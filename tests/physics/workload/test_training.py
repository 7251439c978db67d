"""What training a part of a model takes: gradients, adapters and frozen weights."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.examples import LLAMA_70B, cluster, deepseek_v3, llama, mixtral

from shardplan import estimate
from shardplan.base.errors import InputError
from shardplan.calibrate.runs.rows import shipped_runs
from shardplan.calibrate.validate import validate_runs
from shardplan.estimation.charge import model_flops_per_token
from shardplan.estimation.estimate import Estimate, estimate_plan
from shardplan.estimation.question import Question
from shardplan.inputs.job import PACKED, Job
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.software import Software
from shardplan.physics.costs.roofline import operator_times
from shardplan.physics.workload.communication import Shard
from shardplan.physics.workload.layer import Parameters, held_parameters, layer_block, layer_parameters
from shardplan.physics.workload.ops import AttentionCore, Block, Collective, Matmul, Saved, StreamPass
from shardplan.physics.workload.passes import TRAFFIC
from shardplan.physics.workload.training import READ_BY, adapters, forward_alone, frozen, trained
from shardplan.planner.search import search_question

SEQUENCE = 4096
LORA: dict[str, Any] = {"train": "lora", "lora_rank": 16, "lora_targets": "q,v"}
PLAN = Plan(tp=8)


def job(**fields: Any) -> Job:
    return Job(sequence_length=SEQUENCE, global_batch_size=8, **fields)


def held(model: ModelConfig, of: Job, **plan: Any) -> Parameters:
    return held_parameters(model, model.layers[0], of, PlanNumbers.of(Plan(**plan), 8, of))


def block(of: Job, model: ModelConfig = LLAMA_70B, **plan: Any) -> Block:
    shard = Shard.of(model.hidden_size, of, PlanNumbers.of(Plan(**plan), 8, of))
    return layer_block(model.layers[0], shard)


def answer(**fields: Any) -> Estimate:
    return estimate(LLAMA_70B, cluster(), 8, PLAN, job=job(**fields), stack=None)


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        ("q,v", 16 * (8192 + 8192) + 16 * (8192 + 1024)),
        ("qkv", 16 * (8192 + 8192 + 2 * 1024)),
        ("q,k,v,o", 16 * (8192 + 8192) * 2 + 2 * 16 * (8192 + 1024)),
        ("gate,up,down", 3 * 16 * (8192 + 28672)),
        ("gate_up,down", 16 * (8192 + 2 * 28672) + 16 * (8192 + 28672)),
    ],
)
@pytest.mark.parametrize(
    "plan", [{}, {"tp": 8}, {"tp": 8, "tp_kind": "summa", "tp_rows": 2}], ids=["one", "1d", "grid"]
)
def test_parameters_and_forward_flops_of_adapters(targets: str, expected: int, plan: dict[str, Any]) -> None:
    """r (k + n) for every matrix of k x n: 8,192 channels, 8 key-value heads of 128, 28,672 inner channels.

    All ranks together hold them once, and make 2 FLOP with each for every token.
    """
    of, ranks = job(**LORA | {"lora_targets": targets}), plan.get("tp", 1)
    found = held(LLAMA_70B, of, **plan)
    assert float(np.asarray(found.trained.dense)) * ranks == pytest.approx(expected)
    whole = layer_parameters(LLAMA_70B, LLAMA_70B.layers[0], PlanNumbers.of(Plan(**plan), 8, job()))
    assert found.frozen == whole
    products = [each for each in block(of, **plan).operators if isinstance(each, Matmul) and "." in each.name]
    assert sum(float(each.flops) for each in products) * ranks == pytest.approx(2 * SEQUENCE * expected)


def test_flat_parameters_hold_the_frozen_weights_of_layers_with_adapters() -> None:
    separate, flat = (
        held(LLAMA_70B, job(**LORA, software=Software(sharded_accumulation=one))) for one in ("parameters", "flat")
    )
    assert (separate.flat, flat.flat) == (0, separate.frozen.dense)
    assert (flat.trained, flat.frozen) == (separate.trained, separate.frozen)
    assert (flat + flat).flat == 2 * flat.flat
    assert held(LLAMA_70B, job(software=Software(sharded_accumulation="flat"))).flat == 0


def test_every_expert_has_adapters_of_its_own() -> None:
    """8 experts of three matrices of 4,096 x 14,336, two of them on each of four ranks."""
    found = held(mixtral(), job(**LORA | {"lora_targets": "gate,up,down"}), ep=4)
    assert float(np.asarray(found.trained.experts)) == 2 * 3 * 16 * (4096 + 14336)


def test_flops_of_adapters_and_of_frozen_products() -> None:
    """Two passes of the base (forward, input gradient), three of adapters: 2 m r (k + n) each."""
    plain, adapted = block(job()), block(job(**LORA))
    base = sum(float(each.flops) for each in plain.operators if isinstance(each, Matmul))
    attention = float(plain.training_flops) - 3 * base
    added = 2 * SEQUENCE * 16 * ((8192 + 8192) + (8192 + 1024))
    assert float(adapted.training_flops) == pytest.approx(2 * base + attention + 3 * added)


def test_what_is_kept_for_adapters_alone() -> None:
    """Inputs of frozen products are not kept: that of the MLP (8,192 channels) and of its last product (28,672).

    The input of q and v is, since A needs it, and two outputs of A of 16 channels more.
    """
    plain, adapted = block(job()), block(job(**LORA))
    before, after = (sum(float(each.bytes) for each in one.saved) for one in (plain, adapted))
    assert before - after == pytest.approx(2 * SEQUENCE * (8192 + 28672 - 2 * 16))


def test_states_of_frozen_weights_are_weights_alone() -> None:
    """70.6 B parameters over tp 8 in 2 bytes; gradients and states of 32.8 M parameters of adapters (q, v)."""
    found = answer(**LORA)
    adapters = 80 * 16 * (8192 * 2 + 8192 + 1024) / 8
    weights, gradients, optimizer = (found.memory[0][name] for name in ("weights", "gradients", "optimizer"))
    whole = answer().memory[0]["weights"]
    assert weights - whole == pytest.approx(2 * adapters, rel=1e-6)
    assert gradients == pytest.approx(4 * adapters)
    assert optimizer == pytest.approx(12 * adapters)


MATRICES = 2 * 8192**2 + 2 * 8192 * 1024 + 3 * 8192 * 28672
"""Parameters in matrices of a layer of Llama 70B: q, o, k and v of 8 heads, three of the MLP."""


@pytest.mark.parametrize(("name", "bits"), [("nf4", 4.5), ("nf4-dq", 4.127)])
def test_matrices_of_layers_take_few_bits_next_to_adapters(name: str, bits: float) -> None:
    """4.5 bits, less 0.373 by double quantisation (QLoRA, arXiv 2305.14314, section 3); the rest in 16."""
    same, packed = answer(**LORA), answer(**LORA | {"base_weights": name})
    saved = same.memory[0]["weights"] - packed.memory[0]["weights"]
    assert saved == pytest.approx(80 * MATRICES / 8 * (16 - bits) / 8, rel=1e-4)
    others = ("gradients", "optimizer", "activations")
    assert [packed.memory[0][each] for each in others] == [same.memory[0][each] for each in others]


def test_gathered_weights_of_few_bits_are_gathered_so() -> None:
    """Sharded over 8 ranks, a layer travels in 4.5 of 16 bits; adapters and tables as they did."""
    plan = Plan(sharding="zero3")
    same, packed = (
        estimate(LLAMA_70B, cluster(), 8, plan, job=job(**LORA | each), stack=None)
        for each in ({}, {"base_weights": "nf4"})
    )
    sent = [sum(each.communication["dp"].values()) for each in (same, packed)]
    assert sent[0] - sent[1] == pytest.approx(2 * 80 * MATRICES * 2 * (1 - 4.5 / 16) * 7 / 8, rel=1e-3)
    assert packed.memory[0]["buffers"] < same.memory[0]["buffers"]


def test_weights_of_few_bits_are_written_out_before_every_use() -> None:
    """Forward and for the input's gradient: 4.5 bits read and 16 written; adapters are read as they are."""
    for name, kernels in (("nf4", 1), ("nf4-dq", 3)):
        of = job(**LORA | {"base_weights": name})
        products = {each.name: each for each in block(of).operators if isinstance(each, Matmul)}
        plain = {each.name: each for each in block(job(**LORA)).operators if isinstance(each, Matmul)}
        machine = Question(model=LLAMA_70B, cluster=cluster(), num_accelerators=8, job=of).machine
        for product, each in products.items():
            times, before = operator_times(each, machine), operator_times(plain[product], machine)
            more = np.asarray(times) - np.asarray(before)
            moved = each.k * each.n * (2 + PACKED[name].bytes) / machine.memory_rate
            expected = moved + kernels * machine.profile.memory_pass_latency
            is_base = "." not in product
            assert more == pytest.approx([expected, expected, 0.0] if is_base else [0.0] * 3, abs=1e-12), product


def test_old_kernels_keep_inputs_of_weights_of_few_bits() -> None:
    """bitsandbytes before 0.43.2: what the second norm, attention's core and the activation hand to frozen products."""
    old = Software(keeps_packed_inputs=True)
    alone, kept, unpacked = (
        [(each.name, each.bytes) for each in block(job(**LORA | fields)).saved]
        for fields in ({"base_weights": "nf4"}, {"base_weights": "nf4", "software": old}, {"software": old})
    )
    assert alone == unpacked
    assert ("mlp_fc2_input", SEQUENCE * 28672 * 2) in kept
    more = sum(size for _, size in kept) - sum(size for _, size in alone)
    assert more == pytest.approx(SEQUENCE * (28672 + 8192) * 2)


def test_double_quantisation_saves_what_was_measured() -> None:
    """Peaks of LitGPT on one A100, of Llama 2 7B and 13B: 0.30 and 0.59 GB less than with fp32 scales."""
    measured = {run.id: run for run in shipped_runs() if run.family == "litgpt-lora"}
    for single, double, saved in (("12", "13", 0.30e9), ("17", "18", 0.59e9)):
        pair = validate_runs(tuple(measured[f"litgpt-lora-{number}"] for number in (single, double))).predictions
        errors = [one.log_memory_ratio or math.nan for one in pair]
        peaks = [
            (one.run.peak_memory_bytes or math.nan) * math.exp(each) for one, each in zip(pair, errors, strict=True)
        ]
        assert peaks[0] - peaks[1] == pytest.approx(saved, rel=0.05)
        assert all(abs(each) < 0.17 for each in errors)


def test_adapters_cost_less_than_full_training() -> None:
    full, lora = answer(), answer(**LORA)
    assert lora.step_time < full.step_time
    assert lora.breakdown["optimizer"] < 1e-2 * full.breakdown["optimizer"]
    every = answer(**LORA | {"lora_targets": "all"})
    assert lora.step_time < every.step_time
    assert every.breakdown["matmul"] < full.breakdown["matmul"]


def test_only_adapters_are_reduced() -> None:
    one, other = (
        estimate(LLAMA_70B, cluster(), 8, Plan(sharding="ddp", tp=4), job=job(**each), stack=None)
        for each in (LORA, {})
    )
    sent, of_all = (sum(each.communication["dp"].values()) for each in (one, other))
    adapters = 80 * 16 * (8192 * 2 + 8192 + 1024) / 4
    assert sent == pytest.approx(2 * 4 * adapters / 2)  # an all-reduce in fp32 between two ranks
    assert of_all > 1000 * sent


def test_frozen_shards_are_gathered_for_each_pass() -> None:
    """zero3: two gathers of 2 bytes of everything in each of 8 micro-batches."""
    found = estimate(LLAMA_70B, cluster(), 8, Plan(sharding="zero3"), job=job(**LORA), stack=None)
    sent = sum(found.communication["dp"].values())
    assert sent == pytest.approx(2 * 2 * 70.6e9 * 7 / 8, rel=0.01)
    assert found.memory[0]["weights"] == pytest.approx(2 * 70.6e9 / 8, rel=0.01)


def test_nothing_frozen_changes_nothing() -> None:
    assert answer(freeze="none") == answer()
    assert model_flops_per_token(LLAMA_70B, SEQUENCE, job()) == model_flops_per_token(LLAMA_70B, SEQUENCE)


def test_a_frozen_bottom_has_neither_backward_pass_nor_activations() -> None:
    """Half of 80 layers and the embedding frozen: their forward pass alone, a third of the FLOP, nothing kept."""
    model = llama(512, 8, 8, 8, 2048, vocab_size=1024)
    of = job(freeze="embedding,layers:0-3")
    question = Question(model=model, cluster=cluster(), num_accelerators=1, job=of)
    assert [layer.gradients for layer in question.model.layers] == ["none"] * 4 + ["all"] * 4
    half, full = (estimate_plan(replace(question, model=model, job=each), Plan()) for each in (of, job()))
    head = 2 * 2 * 512 * SEQUENCE  # the final norm's input and output
    kept, of_all = (each.memory[0]["activations"] for each in (half, full))
    assert 2 * kept - of_all == pytest.approx(head, rel=0.05)
    layers = model.num_layer_parameters(model.layers[0])
    trained = 4 * layers + 1024 * 512 + 512
    assert half.memory[0]["optimizer"] == pytest.approx(12 * trained)
    assert half.hfu == pytest.approx(half.mfu)
    assert half.mfu * half.step_time / (full.mfu * full.step_time) == pytest.approx(
        model_flops_per_token(model, SEQUENCE, of) / model_flops_per_token(model, SEQUENCE)
    )


def test_gradients_flow_through_a_frozen_top_and_through_layers_above_what_is_trained() -> None:
    model = llama(512, 4, 8, 8, 2048, vocab_size=1024)

    def gradients(freeze: str) -> list[str]:
        question = Question(model=model, cluster=cluster(), num_accelerators=1, job=job(freeze=freeze))
        return [layer.gradients for layer in question.model.layers]

    assert gradients("layers:1-3") == ["all", "input", "input", "input"]
    assert gradients("layers:0-1") == ["input", "input", "all", "all"]  # the embedding is trained
    assert gradients("embedding,head,layers:0-0,layers:2-2") == ["none", "all", "input", "all"]


def test_a_search_prices_adapters_and_frozen_parts_as_the_estimate_does() -> None:
    model = llama(1024, 4, 8, 8, 2048, vocab_size=1024)
    for fields in (LORA, {"freeze": "embedding,layers:0-1"}):
        question = Question(model=model, cluster=cluster(), num_accelerators=8, job=job(**fields))
        for sharding in ("zero1", "zero3"):
            found = search_question(question, top=3, limit={"pp": [1, 2], "sharding": [sharding]}, use_all=True)
            for each in found.estimates:
                alone = estimate_plan(question, each.plan)
                assert each.step_time == pytest.approx(alone.step_time, rel=1e-12)
                assert each.peak_memory_bytes == pytest.approx(alone.peak_memory_bytes, rel=1e-12)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"train": "lora", "lora_targets": "banana"}, "banana"),
        ({"train": "lora", "lora_targets": "qkv,q"}, "qkv"),
        ({"train": "lora", "lora_rank": 0}, "lora_rank"),
        ({"train": "lora", "lora_rank": 5000}, "lower rank"),
        ({"train": "lora", "freeze": "embedding"}, "frozen"),
        ({"base_weights": "nf4"}, "next to adapters"),
        ({"base_weights": "nf4", "train": "lora", "precision": "fp8"}, "16 or 32 bits"),
        ({"base_weights": "int3", "train": "lora"}, "base_weights"),
        ({"train": "some"}, "train"),
        ({"freeze": "tower"}, "freeze"),
        ({"freeze": "layers:3-1"}, "freeze"),
        ({"freeze": "layers:0-80"}, "79"),
        ({"freeze": "embedding,head,layers:0-79"}, "nothing"),
    ],
)
def test_nonsense_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as error:
        answer(**fields)
    assert said in f"{error.value.message} {error.value.rule}"
    assert error.value.hint


def test_targets_are_matrices_of_the_model() -> None:
    plain = llama(512, 2, 8, 8, 2048, vocab_size=1024)
    layer = plain.layers[0]
    ungated = replace(plain, layers=(replace(layer, mlp=replace(layer.mlp, gated=False)),) * 2)  # type: ignore[type-var]
    with pytest.raises(InputError, match="gate"):
        Question(model=ungated, cluster=cluster(), num_accelerators=1, job=job(**LORA | {"lora_targets": "gate"}))
    Question(model=ungated, cluster=cluster(), num_accelerators=1, job=job(**LORA | {"lora_targets": "all"}))


def test_frozen_latents_are_kept_once_for_their_norms() -> None:
    """A frozen product reads no input backward; the norm before it does, in 16 bits."""
    model, length = deepseek_v3(), SEQUENCE
    frozen, whole = (
        {each.name: float(each.bytes) for each in layer_block(layer, shard_of(model)).saved}
        for layer in (replace(model.layers[0], gradients="input"), model.layers[0])
    )
    assert frozen["latents"] == length * (1536 + 512 + 64) * 2 == whole["latents"] / 2
    assert "qkv" in frozen


def shard_of(model: ModelConfig) -> Shard:
    return Shard.of(model.hidden_size, job(), PlanNumbers.of(Plan(), 8, job()))


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
