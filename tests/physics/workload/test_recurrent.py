from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shardplan.inputs.job import Job
from shardplan.inputs.layers import Attention, Layer
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.recurrent import (
    DeltaAttention,
    LightningAttention,
    LinearAttention,
    SelectiveScan,
    ShortConvolution,
    StateSpace,
)
from shardplan.physics.workload.communication import Shard
from shardplan.physics.workload.layer import layer_block
from shardplan.physics.workload.ops import Block, Matmul, StreamPass
from shardplan.physics.workload.passes import TRAFFIC
from shardplan.physics.workload.recurrent import (
    delta_attention,
    lightning_attention,
    linear_attention,
    selective_scan,
    short_convolution,
    state_space,
)

LENGTH = 4096
MAMBA2_2_7B = StateSpace(
    num_heads=80, head_dim=64, state_size=128, num_groups=8, conv_kernel=4, chunk_size=256, conv_bias=True,
    proj_bias=False,
)  # fmt: skip
DELTA_NET = LinearAttention(num_key_heads=16, num_value_heads=32, key_head_dim=128, value_head_dim=128, conv_kernel=4)


def shard(hidden_size: int, *, length: int = LENGTH, precision: Any = "bf16", **fields: Any) -> Shard:
    plan = Plan(**fields)
    job = Job(sequence_length=length, global_batch_size=1, precision=precision)
    return Shard.of(hidden_size, job, PlanNumbers.of(plan, plan.model_parallel_degree, job))


def matmul_flops(block: Block) -> float:
    return float(sum(op.flops for op in block.operators if isinstance(op, Matmul)))


def flops(block: Block) -> float:
    return float(sum(float(op.flops) for op in block.operators))


def test_mamba_projections_take_two_flop_per_weight() -> None:
    """Mamba-2 (arXiv 2405.21060, section 6): z, x, B, C and dt in one projection, and one back."""
    inner, groups, heads = 80 * 64, 2 * 8 * 128, 80
    expected = 2 * LENGTH * 2560 * (2 * inner + groups + heads + inner)
    assert matmul_flops(state_space(MAMBA2_2_7B, shard(2560))) == expected


def test_delta_net_projections_take_two_flop_per_weight() -> None:
    keys, values = 16 * 128, 32 * 128
    expected = 2 * LENGTH * 2048 * (2 * keys + 2 * values + 2 * 32 + values)
    assert matmul_flops(linear_attention(DELTA_NET, shard(2048))) == expected


@pytest.mark.parametrize("tp", [1, 2, 8])
@pytest.mark.parametrize("cp", [1, 2])
def test_ranks_share_the_work(tp: int, cp: int) -> None:
    assert tp * cp * flops(state_space(MAMBA2_2_7B, shard(2560, tp=tp, cp=cp))) == pytest.approx(
        flops(state_space(MAMBA2_2_7B, shard(2560)))
    )
    assert tp * cp * flops(linear_attention(DELTA_NET, shard(2048, tp=tp, cp=cp))) == pytest.approx(
        flops(linear_attention(DELTA_NET, shard(2048)))
    )


def test_work_is_linear_in_the_sequence() -> None:
    short, long = (flops(state_space(MAMBA2_2_7B, shard(2560, length=length))) for length in (LENGTH, 16 * LENGTH))
    assert long == 16 * short


def test_mamba_keeps_what_its_kernel_saves() -> None:
    """mamba_split_conv1d_scan_combined saves the projected input and the scan's output; the next product its input.

    Megatron Core's norm behind it is a kernel of its own, and keeps its input too.
    """
    inner, groups, heads = 80 * 64, 2 * 8 * 128, 80
    projected = 2 * inner + groups + heads
    for gated_norm, kept in ((True, 3 * inner), (False, 2 * inner)):
        mixer = state_space(replace(MAMBA2_2_7B, gated_norm=gated_norm), shard(2560))
        assert sum(float(item.bytes) for item in mixer.saved) == 2 * LENGTH * (projected + kept)


def test_a_delta_net_keeps_what_it_convolves_as_well() -> None:
    """Queries, keys and values behind the convolution are what the delta rule starts from."""
    keys, values = 16 * 128, 32 * 128
    kept = sum(float(item.bytes) for item in linear_attention(DELTA_NET, shard(2048)).saved)
    convolved = 2 * keys + values
    assert kept == 2 * LENGTH * ((convolved + values + 2 * 32) + convolved + values + values)


@pytest.mark.parametrize("cp_comm", ["p2p", "allgather", "a2a"])
def test_context_parallel_ranks_exchange_heads_against_sequence(cp_comm: Any) -> None:
    """The projected input goes there and the scan's output back, both ways, whatever attention layers do."""
    alone, shared = (state_space(MAMBA2_2_7B, shard(2560, cp=cp, cp_comm=cp_comm)) for cp in (1, 4))
    moved = [item for item in shared.collectives if item.dimension == "cp"]
    inner, groups, heads = 80 * 64, 2 * 8 * 128, 80
    widths = (inner + inner + groups + heads) + inner  # z, x, B, C, dt; y
    assert [(item.kind, item.direction) for item in moved] == [("all_to_all", "forward"), ("all_to_all", "backward")]
    assert all(item.bytes == 2 * LENGTH / 4 * widths for item in moved)
    assert len(alone.collectives) == len(shared.collectives)  # for one rank they cost nothing


def scan(block: Block) -> StreamPass:
    (found,) = (op for op in block.operators if isinstance(op, StreamPass) and op.scan)
    return found


def test_a_scan_takes_seven_flop_for_each_number_of_the_state() -> None:
    """Megatron-LM counts 7 d_inner n per token (training.py, mamba_layer_flops); a delta net has a state of d_v d_k."""
    mamba, delta = scan(state_space(MAMBA2_2_7B, shard(2560))), scan(linear_attention(DELTA_NET, shard(2048)))
    assert mamba.flops == 7 * LENGTH * (80 * 64) * 128
    assert delta.flops == 7 * LENGTH * (32 * 128) * 128


def test_a_scan_passes_once_over_the_inner_elements_and_twice_back() -> None:
    """Its bytes are elements: the profile says how many bytes move for each."""
    mamba, delta = scan(state_space(MAMBA2_2_7B, shard(2560, tp=2))), scan(linear_attention(DELTA_NET, shard(2048)))
    assert (mamba.forward_bytes, mamba.backward_bytes) == (LENGTH * 80 * 64 / 2, LENGTH * 80 * 64)
    assert (delta.forward_bytes, delta.backward_bytes) == (LENGTH * 32 * 128, 2 * LENGTH * 32 * 128)


JAMBA = SelectiveScan(inner_size=8192, state_size=16, dt_rank=256, conv_kernel=4, conv_bias=True, proj_bias=False)
KIMI = DeltaAttention(num_heads=32, head_dim=128, conv_kernel=4)
MINIMAX = LightningAttention(num_heads=64, head_dim=128)
LFM2 = ShortConvolution(num_channels=2048, conv_kernel=3)
MIXERS: tuple[tuple[Any, Any, int], ...] = (
    (selective_scan, JAMBA, 4096),
    (delta_attention, KIMI, 2304),
    (lightning_attention, MINIMAX, 6144),
    (short_convolution, LFM2, 2048),
)


@pytest.mark.parametrize(("block", "config", "hidden_size"), MIXERS)
def test_products_take_two_flop_per_weight_of_a_matrix(block: Any, config: Any, hidden_size: int) -> None:
    """All parameters but convolutions, norms, biases and what a channel or a state has of its own."""
    vectors = {
        SelectiveScan: lambda c: c.inner_size * (c.conv_kernel + 1 + 1 + c.state_size + 1),  # taps, biases, A, D
        DeltaAttention: lambda c: c.inner_size * (3 * c.conv_kernel + 1) + c.num_heads + c.head_dim,
        LightningAttention: lambda c: c.inner_size,
        ShortConvolution: lambda c: c.num_channels * c.conv_kernel,
    }[type(config)](config)
    matrices = config.num_parameters(hidden_size) - vectors
    assert matmul_flops(block(config, shard(hidden_size))) == 2 * LENGTH * matrices


@pytest.mark.parametrize("tp", [2, 8])
@pytest.mark.parametrize(("block", "config", "hidden_size"), MIXERS)
def test_ranks_share_scans_and_products(block: Any, config: Any, hidden_size: int, tp: int) -> None:
    """But for the projection down to the rank of Kimi's gates, which every rank makes."""
    whole, part = block(config, shard(hidden_size)), block(config, shard(hidden_size, tp=tp))
    repeated = 2 * LENGTH * hidden_size * 2 * config.head_dim if isinstance(config, DeltaAttention) else 0
    assert tp * (flops(part) - repeated) == pytest.approx(flops(whole) - repeated)


def test_flop_of_scans_by_the_state() -> None:
    """9 i S of Mamba-1 (state-spaces/mamba, issue 110); a state of d x d per head: 7 and 5 FLOP for each number."""
    assert scan(selective_scan(JAMBA, shard(4096))).flops == 9 * LENGTH * 8192 * 16
    assert scan(delta_attention(KIMI, shard(2304))).flops == 7 * LENGTH * 32 * 128 * 128
    assert scan(lightning_attention(MINIMAX, shard(6144))).flops == 5 * LENGTH * 64 * 128 * 128


def test_ranks_of_mamba_1_add_up_step_size_b_and_c() -> None:
    sums = [item for item in selective_scan(JAMBA, shard(4096, tp=4)).collectives if item.kind == "all_reduce"]
    assert [(item.dimension, item.direction) for item in sums] == [("tp", "forward"), ("tp", "backward")]
    assert all(item.bytes == 2 * LENGTH * (256 + 2 * 16) for item in sums)


def test_a_short_convolution_keeps_what_it_projects_gates_and_convolves() -> None:
    """B, C and x; B x; its convolution; and the input of the output projection."""
    block = short_convolution(LFM2, shard(2048))
    assert sum(float(item.bytes) for item in block.saved) == 2 * LENGTH * 2048 * (3 + 1 + 1 + 1)
    assert not [op for op in block.operators if isinstance(op, StreamPass) and op.scan]
    assert not [item for item in block.collectives if item.dimension == "cp"]


def test_parallel_mixers_read_one_norm_and_do_the_work_of_both() -> None:
    """Falcon-H1 (arXiv 2507.22448, section 2): attention and Mamba-2 in one layer."""
    heads = Attention(num_heads=20, num_kv_heads=4, head_dim=128)
    both = Layer(mixer=MAMBA2_2_7B, parallel_mixer=heads, mlp=None, num_norms=1)
    alone = [Layer(mixer=mixer, mlp=None, num_norms=1) for mixer in (MAMBA2_2_7B, heads)]
    blocks = [layer_block(layer, shard(2560)) for layer in (both, *alone)]
    assert flops(blocks[0]) == flops(blocks[1]) + flops(blocks[2])
    kept = [sum(float(item.bytes) for item in block.saved) for block in blocks]
    assert kept[0] == kept[1] + kept[2] - 2 * 2 * LENGTH * 2560  # input and output of one norm
    norm = 2560
    assert both.num_parameters(2560) == sum(layer.num_parameters(2560) for layer in alone) - norm


def test_layer_scale_multiplies_both_outputs() -> None:
    plain = Layer(mixer=LFM2, mlp=None, num_norms=1)
    scaled = Layer(mixer=LFM2, mlp=None, num_norms=1, layer_scale=True)
    assert scaled.num_parameters(2048) == plain.num_parameters(2048) + 2048
    names = [op.name for op in layer_block(scaled, shard(2048)).operators]
    assert names.count("layer_scale") == 1


def test_mamba_1_keeps_its_selection_as_well() -> None:
    """The projected input, the scan's output and the next product's input; step size, B and C, and the step sizes."""
    inner, selected = 2 * 4096, 256 + 2 * 16
    kept = sum(float(item.bytes) for item in selective_scan(JAMBA, shard(4096)).saved)
    assert kept == 2 * LENGTH * (2 * inner + inner + inner + selected + inner)


T = LENGTH // 2
"""Tokens of a rank of two context-parallel ones."""
BY_HAND: tuple[tuple[Any, Any, int, dict[str, Any], dict[str, int], int], ...] = (
    (
        state_space, MAMBA2_2_7B, 2560,
        {"in_proj": (T, 2560, 6184, 1), "conv": ("conv twice", 3584), "scan": 2560, "gate": ("gate", 2560),
         "out_proj": (T, 2560, 2560, 1)},
        {"in_proj_output": 2 * 6184, "scan_output": 2 * 2560, "out_proj_input": 2560, "scan_norm_input": 2 * 2560},
        6184 + 2560,
    ),
    (
        selective_scan, JAMBA, 4096,
        {"in_proj": (T, 4096, 8192, 1), "conv": ("conv twice", 4096), "selection": (T, 4096, 288, 1),
         "step_size": (T, 256, 4096, 1), "scan": 4096, "gate": ("gate", 4096), "out_proj": (T, 4096, 4096, 1)},
        {"in_proj_output": 2 * 8192, "scan_output": 2 * 4096, "out_proj_input": 4096, "selection_output": 2 * 288,
         "step_size_output": 2 * 4096}, 8192 + 4096,
    ),
    (
        linear_attention, DELTA_NET, 2048,
        {"in_proj": (T, 2048, 6176, 1), "conv": ("conv", 4096), "scan": 2048, "gate": ("gate", 2048),
         "out_proj": (T, 2048, 2048, 1)},
        {"in_proj_output": 2 * 6176, "conv_output": 2 * 4096, "scan_output": 2 * 2048, "out_proj_input": 2048},
        6176 + 2048,
    ),
    (
        delta_attention, KIMI, 2304,
        {"in_proj": (T, 2304, 6160, 1), "gates_down": (T, 2304, 256, 1), "gates_up": (T, 128, 2048, 2),
         "conv": ("conv", 6144), "scan": 2048, "gate": ("gate", 2048), "out_proj": (T, 2048, 2304, 1)},
        {"in_proj_output": 2 * 6160, "conv_output": 2 * 6144, "scan_output": 2 * 2048, "out_proj_input": 2048,
         "gates_down_output": 2 * 256, "gates_up_output": 2 * 4096}, 6160 + 2048,
    ),
    (
        lightning_attention, MINIMAX, 6144,
        {"in_proj": (T, 6144, 16384, 1), "scan": 4096, "gate": ("gate", 4096), "out_proj": (T, 4096, 6144, 1)},
        {"in_proj_output": 2 * 16384, "scan_output": 2 * 4096, "out_proj_input": 4096}, 16384 + 4096,
    ),
    (
        short_convolution, LFM2, 2048,
        {"in_proj": (T, 2048, 3072, 1), "gate_in": ("gate", 1024), "conv": ("conv", 1024), "gate": ("gate", 1024),
         "out_proj": (T, 1024, 2048, 1)},
        {"in_proj_output": 2 * 3072, "conv_input": 2 * 1024, "conv_output": 2 * 1024, "out_proj_input": 1024}, 0,
    ),
)  # fmt: skip
"""Of one of 2 x 2 ranks in eight bits: products (m, k, n, count), channels of passes; bytes kept of a token; channels
that are exchanged of it."""


@pytest.mark.parametrize(("mixer", "config", "hidden_size", "work", "kept", "exchanged"), BY_HAND)
def test_a_rank_does_and_keeps_what_is_counted_by_hand(
    *, mixer: Any, config: Any, hidden_size: int, work: dict[str, Any], kept: dict[str, int], exchanged: int
) -> None:
    """Linear inputs are kept in 8 bits, all else in 16; heads are exchanged against sequence once each way."""
    block = mixer(config, shard(hidden_size, tp=2, cp=2, precision="fp8"))
    found: dict[str, Any] = {}
    for op in block.operators:
        if isinstance(op, Matmul):
            found[op.name] = (op.m, op.k, op.n, op.count)
        elif op.scan:
            found[op.name] = op.forward_bytes / T
            assert op.backward_bytes == 2 * op.forward_bytes
        else:
            kind, channels = work[op.name]
            found[op.name] = work[op.name]
            assert op == TRAFFIC[kind].at(op.name, (), T * channels, 2)
    assert list(found.items()) == list(work.items())
    assert {each.name: each.bytes / T for each in block.saved} == kept
    moved = [(each.name, each.bytes / T / 2) for each in block.collectives if each.dimension == "cp"]
    assert moved == ([("heads", exchanged), ("heads_back", exchanged)] if exchanged else [])
    tensor = {each.name for each in block.collectives if each.dimension == "tp"} - {
        "selection_sum",
        "selection_sum_back",
    }
    assert tensor == {f"mixer_{each}" for each in ("gather", "scatter", "gather_back", "scatter_back", "gather_again")}


def test_a_grid_adds_up_no_selection() -> None:
    """Sums of step size, B and C are those of one-dimensional tensor parallelism."""
    grid = selective_scan(JAMBA, shard(4096, tp=4, tp_kind="summa", tp_rows=2))
    assert not [each for each in grid.collectives if each.kind == "all_reduce"]
