from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import GPT3_175B, LLAMA_405B, deepseek_v3, gpt, llama, mixtral
from tests.strategies import Case, cases

from shardplan.base.arrays import Numbers
from shardplan.inputs.job import Job
from shardplan.inputs.layers import MLP, Attention, LatentAttention, Layer, Mixer, MixtureOfExperts
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.readers.catalog import load_model
from shardplan.inputs.recurrent import DeltaAttention
from shardplan.inputs.software import Software
from shardplan.physics.workload.communication import Shard
from shardplan.physics.workload.layer import (
    BLOCKS,
    Parameters,
    embedding_parameters,
    head_parameters,
    layer_block,
    layer_parameters,
    mtp_parameters,
)
from shardplan.physics.workload.ops import OUTSIDE, Matmul, StreamPass
from shardplan.physics.workload.stage import Stage, stages


def batch(num_accelerators: int = 1, **fields: Any) -> PlanNumbers:
    plan = Plan(**fields)
    return PlanNumbers.of(plan, num_accelerators, Job(sequence_length=4096, global_batch_size=num_accelerators))


def held_by(stage: Stage, model: ModelConfig, numbers: PlanNumbers) -> Parameters:
    """Parameters of one rank of a stage."""
    held = Parameters()
    for count, kind in zip(stage.counts, model.layer_kinds, strict=True):
        held += times(layer_parameters(model, kind, numbers), count)
    held += times(embedding_parameters(model, numbers), stage.has_embedding)
    held += times(head_parameters(model, numbers, holds_table=numbers.pp == 1), stage.has_head)
    job = Job(sequence_length=1, global_batch_size=1)
    return held + times(mtp_parameters(model, job, numbers), stage.num_mtp_layers)


def times(held: Parameters, count: Numbers) -> Parameters:
    return Parameters(held.dense * count, held.experts * count)


def repeated(model: ModelConfig, layer: Layer, tp: int, columns: int) -> float:
    """Parameters of a layer that each tensor-parallel rank beyond the first holds once more, summed over them."""
    h, others = model.hidden_size, tp - 1
    copies = float((layer.num_norms * model.norm_parameters + layer.num_scales * h) * others)
    if isinstance(layer.mlp, MixtureOfExperts):
        copies += (layer.mlp.router_parameters(h) + layer.mlp.latent_parameters(h)) * others
    for mixer in layer.mixers:
        if isinstance(mixer, LatentAttention):
            copies += h * ((mixer.q_lora_rank or 0) + mixer.kv_lora_rank + mixer.qk_rope_head_dim) * others
        if isinstance(mixer, Attention):
            copies += 2 * h * mixer.head_dim * max(columns - mixer.num_kv_heads, 0)
        if isinstance(mixer, DeltaAttention):
            copies += 2 * h * mixer.head_dim * others  # the first halves of its gates
    return copies


def repeated_in_all(model: ModelConfig, tp: int, columns: int) -> float:
    """The same over the whole model."""
    layers = sum(repeated(model, layer, tp, columns) for layer in model.layers)
    inputs = model.num_input_parameters - model.num_embedding_parameters
    final = model.norm_parameters * model.has_final_norm
    joined = 2 * model.hidden_size**2 + 3 * model.norm_parameters
    mtp = model.num_mtp_layers * (joined * (tp - 1) + repeated(model, model.mtp_layer, tp, columns))
    return layers + (inputs + final) * (tp - 1) + mtp


def check_that_ranks_hold_the_model(model: ModelConfig, plan: Plan, num_accelerators: int) -> None:
    numbers = PlanNumbers.of(plan, num_accelerators, Job(sequence_length=4096, global_batch_size=num_accelerators))
    held = [held_by(stage, model, numbers) for stage in stages(model, plan.pp, plan.vp, plan.stage_layers)]
    dense = sum(float(one.dense) * plan.tp for one in held)
    experts = sum(float(one.experts) * plan.ep * plan.etp for one in held)
    read_twice = model.tie_word_embeddings or model.num_mtp_layers > 0
    tied_twice = model.num_embedding_parameters if read_twice and plan.pp > 1 else 0
    total = (
        model.num_parameters
        + model.num_mtp_parameters
        + tied_twice
        + repeated_in_all(model, plan.tp, plan.tp // plan.tp_rows)
    )
    assert dense + experts == pytest.approx(total, rel=1e-12)
    mixtures = [layer.mlp for layer in model.layers if isinstance(layer.mlp, MixtureOfExperts)]
    if isinstance(model.mtp_layer.mlp, MixtureOfExperts):
        mixtures += [model.mtp_layer.mlp] * model.num_mtp_layers
    assert experts == pytest.approx(sum(moe.expert_parameters(model.hidden_size) for moe in mixtures), rel=1e-12)


@given(cases())
def test_ranks_together_hold_the_model(case: Case) -> None:
    check_that_ranks_hold_the_model(case.question.model, case.plan, case.question.num_accelerators)


@pytest.mark.parametrize(
    ("model", "num_accelerators", "plan"),
    [
        (GPT3_175B, 1024, Plan(tp=8, pp=8)),
        (LLAMA_405B, 16384, Plan(tp=16, pp=16, vp=7)),  # key-value heads repeated
        (mixtral(), 64, Plan(tp=2, pp=4, ep=8)),
        (deepseek_v3(num_mtp_layers=1), 2048, Plan(pp=16, ep=64)),
        (deepseek_v3(), 256, Plan(tp=8, pp=2, ep=32, etp=2)),
        (gpt(1024, 24, 16), 4, Plan(pp=4, stage_layers=(5, 7, 7, 5))),
    ],
)
def test_ranks_of_known_plans_hold_the_model(model: ModelConfig, num_accelerators: int, plan: Plan) -> None:
    check_that_ranks_hold_the_model(model, plan, num_accelerators)


def test_one_rank_holds_what_the_paper_says() -> None:
    """Mixtral has 46.7 B parameters (arXiv 2401.04088, section 2); experts are 45.1 B of them."""
    held = held_by(stages(mixtral(), 1, 1)[0], mixtral(), batch())
    assert float(held.dense + held.experts) == pytest.approx(46.7e9, rel=1e-3)
    assert float(held.experts) == 32 * 8 * 3 * 4096 * 14336


@given(cases())
def test_larger_tensor_degree_never_holds_more(case: Case) -> None:
    model = case.question.model
    numbers = PlanNumbers.of(case.plan, case.question.num_accelerators, case.question.job)
    wider = replace(numbers, tp=2 * case.plan.tp)
    for stage in stages(model, case.plan.pp, case.plan.vp, case.plan.stage_layers):
        narrow, wide = held_by(stage, model, numbers), held_by(stage, model, wider)
        assert wide.dense <= narrow.dense
        assert wide.experts == narrow.experts


@given(cases(), st.sampled_from((2, 4)))
def test_expert_degrees_divide_experts_alone(case: Case, more: int) -> None:
    model = case.question.model
    numbers = PlanNumbers.of(case.plan, case.question.num_accelerators, case.question.job)
    for layer in model.layer_kinds:
        before = layer_parameters(model, layer, numbers)
        for spread in (replace(numbers, ep=more * case.plan.ep), replace(numbers, etp=more * case.plan.etp)):
            after = layer_parameters(model, layer, spread)
            assert after.dense == before.dense
            assert after.experts == pytest.approx(before.experts / more, rel=1e-15)


SEQUENCE, MICRO = 2048, 4


def kept(model: ModelConfig, *, dropout: bool = True, attention: Any = "unfused", **fields: Any) -> float:
    """Bytes that one layer keeps for the backward pass."""
    plan = Plan(micro_batch_size=MICRO, **fields)
    job = Job(sequence_length=SEQUENCE, global_batch_size=MICRO, dropout=dropout, attention=attention)
    numbers = PlanNumbers.of(plan, plan.tp * plan.cp, job)
    block = layer_block(model.layers[0], Shard.of(model.hidden_size, job, numbers))
    return float(sum(float(tensor.bytes) for tensor in block.saved))


GPT_22B = gpt(6144, 48, 64)
SBH = SEQUENCE * MICRO * 6144
SCORES = 5 * 64 * SEQUENCE / 6144  # 5 a s / h


@pytest.mark.parametrize("t", [1, 2, 4, 8])
def test_activations_of_a_layer(t: int) -> None:
    """Korthikanti et al. (arXiv 2205.05198), equations 1, 2 and 4, for the 22 B model."""
    assert kept(GPT_22B, tp=t) == pytest.approx(SBH / t * (34 + SCORES), rel=1e-12)
    without = kept(GPT_22B, tp=t, sequence_parallel=False)
    assert without == pytest.approx(SBH * (10 + 24 / t + SCORES / t), rel=1e-12)


def test_activations_split_by_context_ranks() -> None:
    """Context parallelism divides every kept tensor but for scores, whose keys are those of all ranks."""
    assert kept(GPT_22B, cp=4) == pytest.approx(SBH / 4 * (34 + SCORES), rel=1e-12)


def test_dropout_masks_take_a_byte_each() -> None:
    """Two masks of s b h bytes and one of a s^2 b, and the dropped scores (arXiv 2205.05198, section 4.1)."""
    assert kept(GPT_22B) - kept(GPT_22B, dropout=False) == pytest.approx(SBH * (2 + 3 / 5 * SCORES), rel=1e-12)


def test_fused_attention_keeps_statistics_in_place_of_scores() -> None:
    """FlashAttention-2 (arXiv 2307.08691, section 3.1.1) keeps one fp32 logsumexp per query and head."""
    fused = kept(GPT_22B, attention="flash", dropout=False)
    assert fused == pytest.approx(SBH * 32 + 4 * SEQUENCE * MICRO * 64, rel=1e-12)


def test_gated_mlp_keeps_three_inner_tensors() -> None:
    """Gate, up and their product: with Llama's widths 2 s b (4 h + q + 2 kv + q + 3 f) bytes."""
    model = llama(4096, 1, 32, 8, 14336)
    tokens = SEQUENCE * MICRO
    expected = 2 * tokens * (4 * 4096 + 4096 + 2 * 1024 + 4096 + 3 * 14336) + 4 * tokens * 32
    assert kept(model, dropout=False, attention="flash") == pytest.approx(expected, rel=1e-12)


def flops(layer: Layer, hidden_size: int, numbers: PlanNumbers, job: Job) -> float:
    block = layer_block(layer, Shard.of(hidden_size, job, numbers))
    return float(sum(float(operator.flops) for operator in block.operators))


@pytest.mark.parametrize("t", [1, 2, 8])
@pytest.mark.parametrize("cp", [1, 4])
def test_ranks_share_the_flop_of_a_layer(t: int, cp: int) -> None:
    """24 b s h^2 + 4 b s^2 h per layer (arXiv 2104.04473, appendix), half of the second term under a causal mask."""
    for causal in (False, True):
        model = gpt(6144, 48, 64, causal=causal)
        job = Job(sequence_length=SEQUENCE, global_batch_size=MICRO)
        plan = Plan(tp=t, cp=cp, micro_batch_size=MICRO)
        each = flops(model.layers[0], 6144, PlanNumbers.of(plan, t * cp, job), job)
        scores = 4 * MICRO * SEQUENCE**2 * 6144 / (2 if causal else 1)
        assert each * t * cp == pytest.approx(24 * MICRO * SEQUENCE * 6144**2 + scores, rel=1e-12)


@pytest.mark.parametrize(("ep", "etp", "tp"), [(1, 1, 1), (8, 1, 1), (4, 2, 2), (2, 4, 8)])
def test_ranks_share_the_flop_of_experts(ep: int, etp: int, tp: int) -> None:
    """Every token visits top_k experts, wherever they lie: 2 x 3 h f each."""
    model = mixtral()
    n = 8
    job = Job(sequence_length=SEQUENCE, global_batch_size=n)
    plan = Plan(tp=tp, ep=ep, etp=etp)
    block = layer_block(model.layers[0], Shard.of(4096, job, PlanNumbers.of(plan, n, job)))
    experts = sum(float(op.flops) for op in block.operators if op.name.startswith("expert_fc"))
    tokens = SEQUENCE * (n // tp)
    assert experts * n == pytest.approx(tokens * 2 * 2 * 3 * 4096 * 14336, rel=1e-12)


@pytest.mark.parametrize(("tp", "copies"), [(1, 1), (4, 1), (8, 2), (16, 4)])
@pytest.mark.parametrize("tied", [False, True])
def test_key_value_heads_are_held_as_often_as_ranks_need_them(tp: int, copies: int, *, tied: bool) -> None:
    """Four of them on tp ranks: each holds one at least. Keys that serve as values have one projection, not two."""
    h, d = 1024, 64
    mixer = Attention(num_heads=16, num_kv_heads=4, head_dim=d, tied_kv=tied)
    model = llama(h, 1, 16, 4, 4096)
    layer = Layer(mixer=mixer, mlp=None, num_norms=0)
    projections = 2 * h * 16 * d + (1 if tied else 2) * copies * h * 4 * d
    assert layer_parameters(model, layer, batch(tp, tp=tp)).dense == projections / tp


def test_prediction_blocks_hold_a_joining_projection_and_three_norms_more_than_a_layer() -> None:
    """DeepSeek-V3 (arXiv 2412.19437, section 2.2): 2 h to h, norms of both inputs and of the output."""
    model = deepseek_v3(num_mtp_layers=1)
    for tp in 1, 4:
        more = (
            mtp_parameters(model, Job(sequence_length=1, global_batch_size=1), batch(tp, tp=tp)).dense
            - layer_parameters(model, model.layers[-1], batch(tp, tp=tp)).dense
        )
        assert more == 2 * 7168**2 + 3 * 7168


def test_every_mixer_has_its_work_and_a_title_of_its_own() -> None:
    mixers = get_args(Mixer)
    assert set(BLOCKS) == {*mixers}
    assert len({mixer.title for mixer in mixers}) == len(mixers)


def test_a_layer_without_a_mixer_holds_its_mlp_and_its_norm() -> None:
    """Two matrices of h x 4 h over tensor ranks, and the h weights of a norm on each of them."""
    h = 1024
    layer = Layer(mixer=None, mlp=MLP(intermediate_size=4 * h, gated=False), num_norms=1)
    assert layer_parameters(llama(h, 1, 16, 4, 4 * h), layer, batch(4, tp=4)).dense == 8 * h * h / 4 + h


def test_norms_behind_a_block_keep_their_output_in_16_bits() -> None:
    """Sandwich norms (Gemma 2, arXiv 2408.00118): what they give is added, not multiplied in eight bits."""
    h, tokens = 1024, SEQUENCE * MICRO
    job = Job(sequence_length=SEQUENCE, global_batch_size=MICRO, precision="fp8")
    numbers = PlanNumbers.of(Plan(micro_batch_size=MICRO), 1, job)
    mixer = Attention(num_heads=16, num_kv_heads=16, head_dim=64)
    two, four = (
        sum(float(tensor.bytes) for tensor in layer_block(layer, Shard.of(h, job, numbers)).saved)
        for layer in (Layer(mixer=mixer, mlp=MLP(intermediate_size=h, gated=False), num_norms=n) for n in (2, 4))
    )
    assert four - two == 2 * (2 + 2) * tokens * h


@pytest.mark.parametrize(
    ("parallel", "num_norms", "kept", "passes"),
    [
        (False, 2, {"norm_input": 2, "norm_output": 2}, {"norm": 2}),
        (True, 2, {"norm_input": 1, "norm_output": 2}, {"norm": 2}),
        (True, 1, {"norm_input": 1, "norm_output": 1}, {"norm": 1, "addition": 1}),
    ],
    ids=["Llama", "GPT-NeoX", "Phi"],
)
def test_mixer_and_mlp_in_parallel_share_what_they_read(
    *, parallel: bool, num_norms: int, kept: dict[str, int], passes: dict[str, int]
) -> None:
    """``x + attention(norm(x)) + mlp(norm(x))``: one x, and one norm of it (Phi) or two (GPT-NeoX), each kept once.

    An addition reads two and writes one, forward and backward; a norm with its addition moves 5 and 7 (``passes.py``).
    """
    h, tokens = 1024, SEQUENCE * MICRO
    mixer, job = (
        Attention(num_heads=16, num_kv_heads=16, head_dim=64),
        Job(sequence_length=SEQUENCE, global_batch_size=MICRO),
    )
    feed_forward = MLP(intermediate_size=h, gated=False)
    layer = Layer(mixer=mixer, mlp=feed_forward, num_norms=num_norms, parallel_residual=parallel)
    block = layer_block(layer, Shard.of(h, job, PlanNumbers.of(Plan(micro_batch_size=MICRO), 1, job)))
    saved = [each for each in block.saved if each.name in kept]
    assert Counter(each.name for each in saved) == kept
    assert {float(each.bytes) for each in saved} == {2.0 * tokens * h}
    streams = [each for each in block.operators if each.name in {"norm", "addition"}]
    assert Counter(each.name for each in streams) == passes
    moved = [(each.forward_bytes, each.backward_bytes) for each in streams if isinstance(each, StreamPass)]
    assert moved == [
        (n * 2 * tokens * h, m * 2 * tokens * h) for n, m in ((5, 7), (5, 7) if num_norms == 2 else (3, 3))
    ]


@pytest.mark.parametrize(("targets", "kept"), [("up", 1), ("o", 0)])
def test_a_shared_norm_is_kept_where_an_adapter_of_either_reads_it(targets: str, kept: int) -> None:
    model = load_model("llama-3.2-1b")
    layer = replace(model.layer_kinds[0], parallel_residual=True, num_norms=1)
    job = Job(sequence_length=SEQUENCE, global_batch_size=MICRO, train="lora", lora_targets=targets)
    numbers = PlanNumbers.of(Plan(micro_batch_size=MICRO), 1, job)
    saved = layer_block(layer, Shard.of(model.hidden_size, job, numbers)).saved
    assert sum(each.name == "norm_output" for each in saved) == kept


def run_again(name: str, *, pruned: bool = True, **changes: Any) -> set[str]:
    """Products and exchanges of a layer that full recomputation repeats."""
    model = load_model(name)
    job = Job(sequence_length=4096, global_batch_size=8, software=Software(pruned_recompute=pruned))
    layer = replace(model.layer_kinds[0], **changes)
    block = layer_block(layer, Shard.of(model.hidden_size, job, PlanNumbers.of(Plan(tp=2, recompute="full"), 8, job)))
    products = [each for each in block.operators if isinstance(each, Matmul)]
    scattered = [each for each in block.collectives if each.kind == "reduce_scatter" and each.direction == "forward"]
    inside = [each.name for each in products if each.modules != OUTSIDE]
    return {*inside, *(each.name for each in scattered if each.modules != OUTSIDE)}


def test_no_gradient_reads_the_output_of_a_layer() -> None:
    """A checkpointed layer runs again up to the input of its last product; the sum behind its attention is needed."""
    whole = {"qkv", "proj", "mlp_fc1", "mlp_fc2", "attention_scatter", "mlp_scatter"}
    assert run_again("llama-3.1-8b", pruned=False) == whole
    assert run_again("llama-3.1-8b") == whole - {"mlp_fc2", "mlp_scatter"}
    assert run_again("llama-3.1-8b", parallel_residual=True) == {"qkv", "mlp_fc1"}


def test_what_reads_the_output_keeps_it_in_recomputation() -> None:
    """A norm behind the MLP (Gemma 2), and the gate's gradient of a mixture of experts, read the last product."""
    assert "mlp_fc2" in run_again("gemma-2-9b")
    assert "expert_fc2" in run_again("mixtral-8x7b")
