from __future__ import annotations

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
from shardplan.workload.layer import layer_block
from shardplan.workload.ops import Block, Matmul, StreamPass
from shardplan.workload.recurrent import (
    delta_attention,
    lightning_attention,
    linear_attention,
    selective_scan,
    short_convolution,
    state_space,
)
from shardplan.workload.shard import Shard

LENGTH = 4096
MAMBA2_2_7B = StateSpace(
    num_heads=80, head_dim=64, state_size=128, num_groups=8, conv_kernel=4, chunk_size=256, conv_bias=True,
    proj_bias=False,
)  # fmt: skip
DELTA_NET = LinearAttention(num_key_heads=16, num_value_heads=32, key_head_dim=128, value_head_dim=128, conv_kernel=4)


def shard(hidden_size: int, *, length: int = LENGTH, **fields: Any) -> Shard:
    plan = Plan(**fields)
    job = Job(sequence_length=length, global_batch_size=1)
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
    """mamba_split_conv1d_scan_combined saves the projected input and the scan's output; the next product its input."""
    inner, groups, heads = 80 * 64, 2 * 8 * 128, 80
    kept = sum(float(item.bytes) for item in state_space(MAMBA2_2_7B, shard(2560)).saved)
    assert kept == 2 * LENGTH * ((2 * inner + groups + heads) + inner + inner)


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
