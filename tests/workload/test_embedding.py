from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.examples import LLAMA_70B, deepseek_v3, gpt

from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.readers.catalog import load_model
from shardplan.inputs.software import Software
from shardplan.workload.embedding import embedding, head, logits, mtp_projection
from shardplan.workload.layer import embedding_parameters, head_parameters
from shardplan.workload.ops import OUTSIDE, Block, Matmul, StreamPass
from shardplan.workload.passes import TRAFFIC
from shardplan.workload.shard import Shard

LENGTH = 4096


def numbers(**fields: Any) -> PlanNumbers:
    plan = Plan(**fields)
    job = Job(sequence_length=LENGTH, global_batch_size=plan.micro_batch_size)
    return PlanNumbers.of(plan, plan.model_parallel_degree, job)


def shard(model: ModelConfig, **fields: Any) -> Shard:
    return Shard.of(model.hidden_size, Job(sequence_length=LENGTH, global_batch_size=1), numbers(**fields))


def flops(block: Block) -> float:
    return float(sum(float(op.flops) for op in block.operators))


def test_a_lookup_takes_no_flop() -> None:
    assert flops(embedding(LLAMA_70B, shard(LLAMA_70B))) == 0


@pytest.mark.parametrize("tp", [1, 8])
@pytest.mark.parametrize("cp", [1, 2])
def test_the_head_takes_two_flop_per_weight_and_token(tp: int, cp: int) -> None:
    """2 b s h V forward (arXiv 2104.04473, appendix)."""
    assert flops(head(LLAMA_70B, shard(LLAMA_70B, tp=tp, cp=cp))) * tp * cp == 2 * LENGTH * 8192 * 128256


def test_logits_are_shared_by_tensor_and_context_ranks() -> None:
    assert logits(LLAMA_70B, shard(LLAMA_70B, tp=8, cp=2, micro_batch_size=2)) == 2 * LENGTH * 128256 / 16


def test_a_tied_table_is_stored_again_where_the_first_stage_is_elsewhere() -> None:
    """Megatron-LM keeps a copy on the last stage and reduces its gradient with the first's."""
    tied = gpt(1024, 4, 16)
    table = 51200 * 1024
    with_table = head_parameters(tied, numbers(), holds_table=True).dense
    without = head_parameters(tied, numbers(), holds_table=False).dense
    assert without - with_table == table
    untied = gpt(1024, 4, 16, tied=False)
    for holds_table in (True, False):
        assert head_parameters(untied, numbers(), holds_table=holds_table).dense == table + 2 * 1024


def test_multi_token_prediction_embeds_tokens_on_the_last_stage() -> None:
    """DeepSeek-V3: 129,280 x 7,168 weights once more over tensor ranks; one table however many modules read it."""
    table = 129280 * 7168
    for num_modules, again in (0, 0), (1, table), (2, table):
        model = deepseek_v3(num_mtp_layers=num_modules)
        last, whole = (head_parameters(model, numbers(tp=2), holds_table=held).dense for held in (False, True))
        assert last - whole == again / 2
    tied = replace(deepseek_v3(num_mtp_layers=1), tie_word_embeddings=True)
    assert head_parameters(tied, numbers(), holds_table=False).dense == table + 7168


def test_tables_are_shared_by_tensor_ranks() -> None:
    model = gpt(1024, 4, 16)
    assert embedding_parameters(model, numbers(tp=8)).dense == 51200 * 1024 / 8


def test_prediction_blocks_join_two_hidden_states() -> None:
    """A projection of 2 h to h (DeepSeek-V3, arXiv 2412.19437, section 2.2)."""
    model = deepseek_v3(num_mtp_layers=1)
    assert flops(mtp_projection(shard(model))) == 2 * LENGTH * 2 * 7168**2


@pytest.mark.parametrize(("name", "size", "width"), [("vit-b-16", 16, 768), ("vit-h-14", 14, 1280)])
@pytest.mark.parametrize("tp", [1, 2])
def test_patches_are_a_product_of_pixels_and_channels(name: str, size: int, width: int, tp: int) -> None:
    """A patch has three colours of size x size pixels (arXiv 2010.11929, equation 1): 2 T 3 p^2 h FLOP."""
    model = load_model(name)
    assert flops(embedding(model, shard(model, tp=tp))) == 2 * LENGTH * 3 * size**2 * width / tp


def test_a_classifier_sees_one_token_of_each_image() -> None:
    """The class token of every image, whatever its patches (arXiv 2010.11929, equation 4)."""
    model = load_model("vit-b-16")
    assert model.num_labels
    assert flops(head(model, shard(model, micro_batch_size=4))) == 2 * 4 * 768 * model.num_labels


@pytest.mark.parametrize("tp", [1, 8])
def test_a_masked_language_model_transforms_before_its_head(tp: int) -> None:
    """BERT (arXiv 1810.04805) predicts masked words behind one more dense layer: 2 T h (h + V) FLOP."""
    model = replace(gpt(1024, 4, 16), has_head_transform=True)
    assert tp * flops(head(model, shard(model, tp=tp))) == 2 * LENGTH * 1024 * (1024 + 51200)


def test_the_final_norm_stands_before_the_head() -> None:
    """It keeps its input and its output, 4 s b h bytes (arXiv 2205.05198, section 4.3); without it nothing is kept."""
    for present, kept in (True, 4 * LENGTH * 1024), (False, 0):
        model = replace(gpt(1024, 4, 16), has_final_norm=present)
        assert sum(float(tensor.bytes) for tensor in head(model, shard(model)).saved) == kept


def test_gathered_logits_are_whole_on_every_tensor_rank() -> None:
    """Every rank sends its part of 16-bit logits to all others, and computes the loss of the whole vocabulary."""
    at = numbers(tp=8)
    job = Job(sequence_length=LENGTH, global_batch_size=1, software=Software(loss_kernel="gathered"))
    gathers = Shard.of(LLAMA_70B.hidden_size, job, at)
    whole = LENGTH * 128256
    assert logits(LLAMA_70B, gathers) == whole == 8 * logits(LLAMA_70B, shard(LLAMA_70B, tp=8))
    (gather,) = [item for item in head(LLAMA_70B, gathers).collectives if item.name == "logits"]
    assert (gather.kind, gather.dimension, gather.bytes) == ("all_gather", "tp", 2 * whole)
    assert flops(head(LLAMA_70B, gathers)) == flops(head(LLAMA_70B, shard(LLAMA_70B, tp=8)))
    pieces = replace(gathers, job=replace(job, software=replace(job.software, fused_loss=True)))
    assert logits(LLAMA_70B, pieces) == whole / 8


def test_a_rank_s_share_of_the_ends_by_hand() -> None:
    """BERT's transform and head on two tensor- and two context-parallel ranks with dropout: one mask, at the table.

    Nothing of the head is in eight bits, its input and its gradients are gathered in 16.
    """
    model = replace(gpt(1024, 4, 16), has_head_transform=True)
    software = Software(gathered_inputs=True)
    job = Job(sequence_length=LENGTH, global_batch_size=1, precision="fp8", dropout=True, software=software)
    at = Shard.of(1024, job, PlanNumbers.of(Plan(tp=2, cp=2), 4, job))
    tokens = LENGTH // 2
    first, last = embedding(model, at), head(model, at)
    assert [(each.name, each.bytes) for each in first.saved] == [("dropout_mask", tokens // 2 * 1024)]
    products = [(op.name, op.m, op.k, op.n, op.low_precision) for op in last.operators if isinstance(op, Matmul)]
    assert products == [
        ("head_transform", tokens, 1024, 512, False), ("head", tokens, 1024, 51200 / 2, False),
    ]  # fmt: skip
    assert [op.name for op in last.operators] == ["norm", "head_transform", "head", "loss"]
    assert {each.name: each.bytes for each in last.saved} == {
        "norm_input": 2 * tokens / 2 * 1024, "norm_output": 2 * tokens / 2 * 1024,
        "gathered_input": 2 * tokens / 2 * 1024,
    }  # fmt: skip
    assert {each.bytes for each in last.collectives} == {2 * tokens * 1024}
    assert {each.modules for each in (*first.operators, *last.operators, *last.collectives, *last.saved)} == {OUTSIDE}


def test_patches_and_classifiers_run_in_wide_numbers() -> None:
    model = load_model("vit-b-16")
    products = [
        op
        for block in (embedding(model, shard(model, tp=2)), head(model, shard(model, tp=2, micro_batch_size=4)))
        for op in block.operators
        if isinstance(op, Matmul)
    ]
    assert [(op.name, op.m, op.k, op.n, op.low_precision) for op in products] == [
        ("patches", LENGTH, 3 * 16 * 16, 384, False), ("classifier", 4, 768, 1000, False),
    ]  # fmt: skip
    assert not head(model, shard(model, tp=2)).collectives


@pytest.mark.parametrize("tp", [1, 4])
@pytest.mark.parametrize(
    ("fields", "alone", "shared"),
    [
        ({"loss_kernel": "in_place"}, "loss", "loss"),
        ({"loss_kernel": "single"}, "loss in one kernel", "loss in one kernel"),
        ({"loss_kernel": "in_place", "fused_loss": True}, "loss in one kernel", "loss in one kernel"),
        ({"loss_kernel": "compiled"}, "loss in one kernel", "loss"),
        ({"loss_kernel": "compiled", "kernels": "eager"}, "loss", "loss"),
    ],
)
def test_kernels_of_the_loss(fields: dict[str, Any], alone: str, shared: str, tp: int) -> None:
    """A compiled loss is one kernel where a rank has the whole vocabulary."""
    job = Job(sequence_length=LENGTH, global_batch_size=1, software=Software(**fields))
    at = Shard.of(8192, job, numbers(tp=tp))
    (found,) = (op for op in head(LLAMA_70B, at).operators if isinstance(op, StreamPass) and op.name == "loss")
    expected = TRAFFIC[shared if tp > 1 else alone].at("loss", (), LENGTH * 128256 / tp, 2)
    assert (found.forward_bytes, found.backward_bytes) == (expected.forward_bytes, expected.backward_bytes)


def test_states_are_joined_in_wide_numbers_behind_two_norms() -> None:
    """By each tensor rank for its own tokens."""
    model = deepseek_v3(num_mtp_layers=1)
    block = mtp_projection(shard(model, tp=4))
    assert [op.name for op in block.operators] == ["norm", "norm", "mtp_projection"]
    (joined,) = (op for op in block.operators if isinstance(op, Matmul))
    assert (joined.m, joined.k, joined.n, joined.low_precision) == (LENGTH / 4, 2 * 7168, 7168, False)
