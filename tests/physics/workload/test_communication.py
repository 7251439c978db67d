"""What ranks exchange in a layer, and copies of tokens by domain."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import GPT3_175B, LLAMA_70B, deepseek_v3, mixtral

from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import CpComm, Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.software import Fp8Scaling, Software, TpOverlaps
from shardplan.physics.costs.collectives import Group, collective_bytes
from shardplan.physics.workload.communication import Shard, domains_reached, summa_exchange, tensor_exchange
from shardplan.physics.workload.layer import layer_block
from shardplan.physics.workload.ops import AttentionCore, Collective, Copies, Matmul

LENGTH, MICRO = 2048, 2
TOKENS = LENGTH * MICRO


def collectives(model: ModelConfig, dimension: str, *, layer: int = 0, **fields: Any) -> list[Collective]:
    plan = Plan(micro_batch_size=MICRO, **fields)
    n = plan.tp * plan.cp * max(plan.ep * plan.etp, 1)
    job = Job(sequence_length=LENGTH, global_batch_size=n * MICRO, routing="balanced")
    shard = Shard.of(model.hidden_size, job, PlanNumbers.of(plan, n, job))
    block = layer_block(model.layers[layer], shard)
    return [item for item in block.collectives if item.dimension == dimension]


def sent(item: Collective, num_ranks: int) -> float:
    """Bytes that one rank sends in a ring."""
    shares = {"all_gather": 1, "reduce_scatter": 1, "all_reduce": 2, "p2p": num_ranks / (num_ranks - 1)}
    return float(item.bytes * item.count) * shares[item.kind] * (num_ranks - 1) / num_ranks


@pytest.mark.parametrize("tp", [2, 8])
def test_tensor_parallelism_without_sequence_parallelism_is_four_all_reduces(tp: int) -> None:
    """Two forward and two backward of b s h elements (arXiv 1909.08053, section 3; 2104.04473, section 3.2)."""
    items = collectives(GPT3_175B, "tp", tp=tp, sequence_parallel=False)
    all_reduce = 2 * (2 * TOKENS * 12288) * (tp - 1) / tp
    assert sum(sent(item, tp) for item in items) == pytest.approx(4 * all_reduce, rel=1e-14)


@pytest.mark.parametrize("tp", [2, 8])
def test_sequence_parallelism_gathers_once_more_in_the_backward_pass(tp: int) -> None:
    """The same bytes as the all-reduces, and one all-gather per block again (arXiv 2205.05198, section 4.2.2)."""
    items = collectives(GPT3_175B, "tp", tp=tp)
    one = 2 * TOKENS * 12288 * (tp - 1) / tp
    assert sum(sent(item, tp) for item in items) == pytest.approx(2 * (4 + 1) * one, rel=1e-14)
    forward = Counter(item.kind for item in items if item.direction == "forward")
    assert forward == {"all_gather": 2, "reduce_scatter": 2}


def test_latent_attention_gathers_its_latents() -> None:
    items = {item.name: item for item in collectives(deepseek_v3(), "tp", tp=8)}
    assert items["attention_gather"].bytes == 2 * TOKENS * (1536 + 512 + 64)
    assert items["attention_scatter"].bytes == 2 * TOKENS * 7168


@pytest.mark.parametrize("cp", [2, 8])
def test_ring_attention_sends_keys_and_values_around(cp: int) -> None:
    """Keys and values visit all other ranks (arXiv 2310.01889), and so do their gradients: three times those bytes."""
    items = collectives(LLAMA_70B, "cp", cp=cp)
    keys_values = 2 * (TOKENS / cp) * 2 * 8 * 128
    assert sum(float(item.bytes * item.count) for item in items) == pytest.approx(3 * (cp - 1) * keys_values, rel=1e-14)


@pytest.mark.parametrize("cp", [2, 8])
def test_gathered_context_moves_as_many_bytes_as_the_ring(cp: int) -> None:
    """Llama 3 gathers keys and values (arXiv 2407.21783, section 3.3.2)."""
    gathered = collectives(LLAMA_70B, "cp", cp=cp, cp_comm="allgather")
    ring = collectives(LLAMA_70B, "cp", cp=cp)
    assert sum(sent(item, cp) for item in gathered) == pytest.approx(
        sum(float(item.bytes * item.count) for item in ring), rel=1e-14
    )


@pytest.mark.parametrize("cp_comm", ["p2p", "allgather"])
def test_eager_rings_send_keys_of_every_head_and_gradients_in_fp32(cp_comm: CpComm) -> None:
    """Eight ranks, 64 heads of 128: seven transfers each way in 16 bits, and eight of gradients in 32."""
    software = Software(ring_kernels="eager")
    job = Job(sequence_length=LENGTH, global_batch_size=8, routing="balanced", software=software)
    numbers = PlanNumbers.of(Plan(cp=8, cp_comm=cp_comm), 8, job)
    block = layer_block(LLAMA_70B.layers[0], Shard.of(8192, job, numbers))
    local = LENGTH / 8 * 2 * 64 * 128
    found = [
        (item.kind, item.direction, item.bytes, item.count) for item in block.collectives if item.dimension == "cp"
    ]
    there, back = (("p2p", each, 2 * local, 7) for each in ("forward", "backward"))
    assert found == [there, back, ("p2p", "backward", 4 * local, 8)]
    core = next(each for each in block.operators if isinstance(each, AttentionCore))
    assert (core.steps, core.rate_length, core.merged_elements) == (8, LENGTH / 8, 7 * 0.75 * LENGTH / 8 * 64 * 128)


@pytest.mark.parametrize("cp", [2, 8])
def test_all_to_all_context_moves_less_with_more_ranks(cp: int) -> None:
    """4 N h / P elements per block and pass with multi-head attention (DeepSpeed-Ulysses, arXiv 2309.14509, 3.2)."""
    items = collectives(GPT3_175B, "cp", cp=cp, cp_comm="a2a")
    for direction in ("forward", "backward"):
        held = sum(float(item.bytes) for item in items if item.direction == direction)
        assert held == pytest.approx(2 * 4 * (TOKENS / cp) * 12288, rel=1e-14)


def test_expert_dispatch_sends_each_token_to_its_experts_and_back() -> None:
    """Dispatch and combine, forward and backward: four times T k h elements (GShard, arXiv 2006.16668)."""
    items = collectives(mixtral(), "ep", ep=8)
    assert [item.kind for item in items] == ["all_to_all"] * 4
    assert sum(float(item.bytes) for item in items) == 4 * 2 * TOKENS * 2 * 4096


def test_tensor_ranks_dispatch_their_own_share_of_the_tokens() -> None:
    alone, split = (collectives(mixtral(), "ep", ep=8, tp=tp) for tp in (1, 4))
    assert [4 * item.bytes for item in split] == [item.bytes for item in alone]


def test_expert_tensor_ranks_gather_what_each_of_them_received() -> None:
    items = collectives(mixtral(), "etp", ep=2, etp=4)
    assert {item.bytes for item in items} == {2 * TOKENS * 2 * 4096 * 4}
    assert Counter(item.kind for item in items) == {"all_gather": 2, "reduce_scatter": 2}


def test_blocks_of_a_grid_are_broadcast() -> None:
    """Weights travel along columns: every product moves its blocks once forward and twice backward."""
    items = collectives(LLAMA_70B, "tp_rows", tp=8, tp_kind="summa", tp_rows=2)
    weights = 2 * (8192 * (64 + 16) * 128 / 4 + 64 * 128 / 4 * 8192 + 3 * 8192 * 28672 / 4)
    broadcasts = sum(float(item.bytes * item.count) for item in items if item.kind == "broadcast")
    assert broadcasts == pytest.approx(3 * weights, rel=1e-14)


def test_inputs_of_a_grid_are_broadcast_along_its_rows() -> None:
    """Every column of a row needs all channels of its tokens: of h for three products, of f for the last."""
    items = collectives(LLAMA_70B, "tp", tp=8, tp_kind="summa", tp_rows=2)
    inputs = 2 * (TOKENS / 2) * (3 * 8192 + 28672)
    broadcasts = sum(float(item.bytes * item.count) for item in items if item.kind == "broadcast")
    assert broadcasts == pytest.approx(3 * inputs, rel=1e-14)


def test_rows_of_a_grid_gather_the_keys_and_values_of_the_whole_sequence() -> None:
    """Queries of half of the tokens meet the keys of all, of two of eight heads; gradients are scattered back."""
    items = [
        item for item in collectives(LLAMA_70B, "tp_rows", tp=8, tp_kind="summa", tp_rows=2) if item.kind != "broadcast"
    ]
    assert [item.kind for item in items] == ["all_gather", "all_gather", "reduce_scatter"]
    assert {float(item.bytes) for item in items} == {2.0 * TOKENS * 2 * 2 * 128}


def with_linear(
    model: ModelConfig, *, asynchronous: bool, sequence_parallel: bool, gathered_inputs: bool = False
) -> list[Collective]:
    software = Software(async_tp_backward=asynchronous, gathered_inputs=gathered_inputs)
    job = Job(sequence_length=LENGTH, global_batch_size=8, routing="balanced", software=software)
    numbers = PlanNumbers.of(Plan(tp=8, sequence_parallel=sequence_parallel), 8, job)
    block = layer_block(model.layers[0], Shard.of(model.hidden_size, job, numbers))
    return [item for item in block.collectives if item.dimension == "tp" and np.all(np.asarray(item.count) > 0)]


def test_asynchronous_linear_layers_exchange_beside_their_backward_products() -> None:
    """Megatron's gather their input again and reduce its gradient so; without sequence parallelism, the all-reduce."""
    beside = [item for item in with_linear(LLAMA_70B, asynchronous=True, sequence_parallel=True) if item.asynchronous]
    assert {item.name.removeprefix("mlp_").removeprefix("attention_") for item in beside} == {
        "gather_back",
        "gather_again",
    }
    reduced = with_linear(LLAMA_70B, asynchronous=True, sequence_parallel=False)
    assert all(bool(item.asynchronous) == (item.direction == "backward") for item in reduced)


@pytest.mark.parametrize("overlap_tp", [False, True])
def test_a_layer_lists_whole_products(overlap_tp: bool) -> None:  # noqa: FBT001
    """A product is one call of cuBLAS; the price of an exchange that overlaps with it is what cuts it into panels."""
    job = Job(sequence_length=LENGTH, global_batch_size=8)
    numbers = PlanNumbers.of(Plan(tp=8, overlap_tp=overlap_tp), 8, job)
    products = layer_block(LLAMA_70B.layers[0], Shard.of(LLAMA_70B.hidden_size, job, numbers)).operators
    assert {item.panels for item in products if isinstance(item, Matmul)} == {1}


@pytest.mark.parametrize(("sequence_parallel", "gathered_inputs"), [(True, True), (True, False), (False, False)])
def test_other_linear_layers_wait(sequence_parallel: bool, gathered_inputs: bool) -> None:  # noqa: FBT001
    items = with_linear(
        LLAMA_70B, asynchronous=False, sequence_parallel=sequence_parallel, gathered_inputs=gathered_inputs
    )
    assert not any(np.any(item.asynchronous) for item in items)


@pytest.mark.parametrize("asynchronous", [True, False])
def test_what_is_kept_as_gathered_is_not_gathered_again(asynchronous: bool) -> None:  # noqa: FBT001
    """Two exchanges each way around attention and MLP, and one more in the backward pass of each input not kept."""
    for gathered_inputs, number in (True, 8), (False, 10):
        items = with_linear(
            LLAMA_70B, asynchronous=asynchronous, sequence_parallel=True, gathered_inputs=gathered_inputs
        )
        assert len(items) == number


@pytest.mark.parametrize("sequence_parallel", [True, False])
def test_linear_inputs_are_gathered_in_fp8_and_sums_scattered_in_16_bits(sequence_parallel: bool) -> None:  # noqa: FBT001
    """Half the bytes where an input or an output gradient is gathered; all-reduces stay whole."""
    sizes = {}
    for precision in ("bf16", "fp8"):
        job = Job(sequence_length=LENGTH, global_batch_size=8, routing="balanced", precision=precision)
        numbers = PlanNumbers.of(Plan(tp=8, sequence_parallel=sequence_parallel), 8, job)
        block = layer_block(LLAMA_70B.layers[0], Shard.of(8192, job, numbers))
        sizes[precision] = {item.name: item.bytes for item in block.collectives if item.dimension == "tp"}
    halved = {name for name, size in sizes["fp8"].items() if size == sizes["bf16"][name] / 2}
    gathers = {f"{part}_{name}" for part in ("attention", "mlp") for name in ("gather", "scatter_back", "gather_again")}
    assert halved == (gathers if sequence_parallel else set())
    assert all(size == sizes["bf16"][name] for name, size in sizes["fp8"].items() if name not in halved)


@pytest.mark.parametrize("scaling", ["tensor", "row"])
@pytest.mark.parametrize("overlaps", ["all", "one_product"])
def test_asynchronous_tensor_parallelism_reaches_exchanges_of_one_product(
    scaling: Fp8Scaling, overlaps: TpOverlaps
) -> None:
    """Gathers whose output products read, and scatterings of what one product makes (PyTorch, micro_pipeline_tp.py).

    Not the sum of the gradients of query, key and value (or gate and up), and no gather of 16 bits to be scaled by row.
    """
    software = Software(fp8_scaling=scaling, tp_overlaps=overlaps, quantised_copies=False, gathered_inputs=True)
    job = Job(sequence_length=LENGTH, global_batch_size=8, routing="balanced", precision="fp8", software=software)
    numbers = PlanNumbers.of(Plan(tp=8, sequence_parallel=True), 8, job)
    items = layer_block(LLAMA_70B.layers[0], Shard.of(8192, job, numbers)).collectives
    found = {item.name.removeprefix("mlp_").removeprefix("attention_"): item for item in items if item.count != 0}
    names = {"gather", "scatter", "scatter_back", "gather_back"}
    assert set(found) - {"gather_again"} == names
    left = {"gather_back", *(("gather", "scatter_back") if scaling == "row" else ())}
    reached = names if overlaps == "all" else names - left
    assert {name for name in names if found[name].pipelined} == reached
    sizes = {name: found[name].bytes / (LENGTH * 8192) for name in names}
    sent = 2 if scaling == "row" else 1
    assert sizes == {"gather": sent, "scatter_back": sent, "scatter": 2, "gather_back": 2}


def test_broadcasts_of_a_grid_by_hand() -> None:
    """Three products of (10, 64) by (64, 48) at once: inputs of four columns of a row where these are rows' shares."""
    job = Job(sequence_length=LENGTH, global_batch_size=8, routing="balanced")
    at = Shard.of(64, job, PlanNumbers.of(Plan(tp=8, tp_kind="summa", tp_rows=2), 8, job))
    one = Matmul(name="qkv", modules=("m",), m=10, k=64, n=48, count=3)
    scores = replace(one, name="scores", weight=False)
    for name, whole in ("qkv", 1), ("proj", 4), ("mlp_fc2", 4):
        found = summa_exchange(at, (scores, replace(one, name=name)))
        inputs, weights = 2 * 10 * 64 * 3 * whole, 2 * 64 * 48 * 3
        assert [(each.name, each.dimension, each.direction, each.bytes, each.count) for each in found] == [
            (f"{name}_x", "tp", "forward", inputs, 1), (f"{name}_w", "tp_rows", "forward", weights, 1),
            (f"{name}_x_back", "tp", "backward", inputs, 2), (f"{name}_w_back", "tp_rows", "backward", weights, 2),
        ]  # fmt: skip
        assert {(each.kind, each.modules) for each in found} == {("broadcast", ("m",))}
    plain = Shard.of(64, job, PlanNumbers.of(Plan(tp=8), 8, job))
    assert summa_exchange(plain, (one,)) == ()
    assert tensor_exchange(at, "x", (), 64) == ()


@pytest.mark.parametrize("gathered", [True, False])
@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize(("inputs", "gradients"), [(True, True), (True, False), (False, True)])
def test_exchanges_around_products_by_hand(
    *, split: bool, beside: bool, gathered: bool, inputs: bool, gradients: bool
) -> None:
    """In eight bits of a byte where linear inputs or gradients are gathered; sums of two; of 48 and 64 channels."""
    software = Software(async_tp_backward=beside, gathered_inputs=gathered)
    job = Job(sequence_length=LENGTH, global_batch_size=8, routing="balanced", precision="fp8", software=software)
    at = Shard.of(64, job, PlanNumbers.of(Plan(tp=8, sequence_parallel=split), 8, job))
    found = tensor_exchange(at, "x", ("m",), 48, quantised_inputs=inputs, quantised_gradients=gradients)
    there, back = 48 * LENGTH * (1 if split and inputs else 2), 64 * LENGTH * (1 if split and gradients else 2)
    wanted = [
        ("x_gather", "all_gather", "forward", there, 1, False),
        ("x_scatter", "reduce_scatter", "forward", 64 * LENGTH * 2, 1, False),
        ("x_scatter_back", "all_gather", "backward", back, 1, beside and not split),
        ("x_gather_back", "reduce_scatter", "backward", 48 * LENGTH * 2, 1, beside),
        ("x_gather_again", "all_gather", "backward", there, 1 if split and not gathered else 0, beside),
    ]
    assert [
        (each.name, each.kind, each.direction, each.bytes, each.count, each.asynchronous) for each in found
    ] == wanted
    assert {(each.dimension, each.modules) for each in found} == {("tp", ("m",))}


DEEPSEEK_V3 = Copies(8, 8, 4)
DEEPSEEK_V2 = Copies(6, 8, 3)

groups = st.integers(1, 16).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n)))
copies_of = st.builds(lambda k, of: Copies(k, *of), st.integers(1, 22), groups)
domains = st.sampled_from((1, 2, 3, 4, 6, 7, 8, 12, 16, 32, 64, 256))


def drawn(copies: Copies, num_domains: int, num_experts: int, *, draws: int = 20_000) -> float:
    """Mean number of domains over tokens whose different experts are drawn from groups that are drawn first."""
    rng = np.random.default_rng(0)
    per_group = num_experts // copies.num_groups
    allowed = np.argsort(rng.random((draws, copies.num_groups)), axis=1)[:, : copies.groups_reached]
    inside = np.argsort(rng.random((draws, per_group * copies.groups_reached)), axis=1)[:, : copies.count]
    experts = np.take_along_axis(allowed, inside // per_group, axis=1) * per_group + inside % per_group
    reached = np.sort(experts * num_domains // num_experts, axis=1)
    return float(np.mean(1 + np.count_nonzero(np.diff(reached, axis=1), axis=1)))


@given(st.integers(1, 22), domains)
def test_without_groups_copies_fall_anywhere(k: int, num_domains: int) -> None:
    expected = num_domains * (1 - (1 - 1 / num_domains) ** k)
    assert domains_reached(Copies(k), num_domains) == pytest.approx(expected, rel=1e-12)


def test_deepseek_v3_reaches_at_most_four_of_eight_nodes() -> None:
    """Arxiv 2412.19437, section 2.1.2: each token goes to at most 4 nodes; without the limit 5.25 on average."""
    assert domains_reached(DEEPSEEK_V3, 8) == pytest.approx(4 * (1 - 0.75**8))
    assert domains_reached(DEEPSEEK_V3, 8) < 4
    assert domains_reached(Copies(8), 8) == pytest.approx(5.25, abs=0.01)


def test_two_domains_of_two_groups_each() -> None:
    """By hand: of the six pairs of groups two lie in one domain, four in both; then 1 of 2 pairs of copies is apart."""
    assert domains_reached(Copies(2, 4, 2), 2) == pytest.approx((2 * 1 + 4 * 1.5) / 6)


@given(copies_of)
def test_one_domain_holds_all(copies: Copies) -> None:
    assert domains_reached(copies, 1) == pytest.approx(1)


@given(copies_of)
def test_of_many_domains_every_copy_has_its_own(copies: Copies) -> None:
    """But for pairs that meet: k (k - 1) / 2 pairs, each in one of the D t / G domains within reach."""
    within_reach = 1024 * copies.groups_reached / copies.num_groups
    meeting = copies.count * (copies.count - 1) / 2 / within_reach
    assert copies.count - meeting - 1e-9 <= domains_reached(copies, 1024) <= copies.count + 1e-9


@given(copies_of, domains)
def test_never_more_domains_than_there_are_or_than_copies(copies: Copies, num_domains: int) -> None:
    reached = float(domains_reached(copies, num_domains))
    assert 1 - 1e-9 <= reached <= min(num_domains, copies.count) * (1 + 1e-9)


@given(copies_of, st.sampled_from((1, 2, 4)))
def test_domains_of_whole_groups_are_no_more_than_the_groups_of_a_token(copies: Copies, each: int) -> None:
    if copies.num_groups % each == 0:
        assert domains_reached(copies, copies.num_groups // each) <= copies.groups_reached + 1e-9


@given(copies_of, domains)
def test_a_limit_never_reaches_more(copies: Copies, num_domains: int) -> None:
    assert domains_reached(copies, num_domains) <= domains_reached(Copies(copies.count), num_domains) * 1.0000001


@given(st.integers(1, 22), st.sampled_from((2, 4, 8, 16)), st.sampled_from((1, 2, 4, 8, 16, 64)))
def test_a_limit_of_all_groups_is_none(k: int, num_groups: int, num_domains: int) -> None:
    limited = domains_reached(Copies(k, num_groups, num_groups), num_domains)
    assert limited == pytest.approx(domains_reached(Copies(k), num_domains), rel=1e-12)


@pytest.mark.parametrize("num_domains", [2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 32, 64])
@pytest.mark.parametrize(("copies", "num_experts"), [(DEEPSEEK_V3, 256), (DEEPSEEK_V3, 240), (DEEPSEEK_V2, 160)])
def test_draws_of_tokens_agree(copies: Copies, num_experts: int, num_domains: int) -> None:
    """Draws choose different experts, the formula may choose one twice: it is at most 4 % below."""
    if num_experts % num_domains == 0:
        real = drawn(copies, num_domains, num_experts)
        assert real * 0.96 <= domains_reached(copies, num_domains) <= real * 1.005


def test_a_number_that_is_not_whole_lies_between_its_neighbours() -> None:
    four, half, five = (float(domains_reached(DEEPSEEK_V3, each)) for each in (4, 4.5, 5))
    assert half == pytest.approx((four + five) / 2)


@given(copies_of)
def test_arrays_equal_numbers(copies: Copies) -> None:
    several = np.array([1, 2, 6, 8, 64])
    singly = [float(domains_reached(copies, int(each))) for each in several]
    assert np.asarray(domains_reached(copies, several)).tolist() == pytest.approx(singly, rel=1e-12)


def test_the_network_carries_one_copy_for_each_domain() -> None:
    """64 ranks in nodes of eight: of eight copies 4 (1 - 0.75^8) cross, seven eighths of them to other nodes."""
    _, outer = collective_bytes("all_to_all", 8.0, Group(64, (8, 64)), copies=DEEPSEEK_V3)
    assert outer == pytest.approx(4 * (1 - 0.75**8) * 7 / 8)


@pytest.mark.parametrize("num_domains", [1.5, 2.5, 7.25])
def test_without_groups_a_number_that_is_not_whole_is_one_of_the_closed_form(num_domains: float) -> None:
    assert domains_reached(Copies(8), num_domains) == num_domains * (1 - (1 - 1 / num_domains) ** 8)
