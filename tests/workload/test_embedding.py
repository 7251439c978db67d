from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.examples import LLAMA_70B, deepseek_v3, gpt

from shardplan.inputs.batch import Batch
from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.workload.embedding import embedding, head, logits, mtp_projection
from shardplan.workload.layer import embedding_parameters, head_parameters
from shardplan.workload.ops import Block
from shardplan.workload.shard import Shard

LENGTH = 4096


def batch(**fields: Any) -> Batch:
    plan = Plan(**fields)
    job = Job(sequence_length=LENGTH, global_batch_size=plan.micro_batch_size)
    return Batch.of(plan, plan.model_parallel_degree, job)


def shard(model: ModelConfig, **fields: Any) -> Shard:
    return Shard.of(model.hidden_size, Job(sequence_length=LENGTH, global_batch_size=1), batch(**fields))


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
    with_table = head_parameters(tied, batch(), holds_table=True).dense
    without = head_parameters(tied, batch(), holds_table=False).dense
    assert without - with_table == table
    untied = gpt(1024, 4, 16, tied=False)
    for holds_table in (True, False):
        assert head_parameters(untied, batch(), holds_table=holds_table).dense == table + 2 * 1024


def test_multi_token_prediction_embeds_tokens_on_the_last_stage() -> None:
    """DeepSeek-V3: 129,280 x 7,168 weights once more over tensor ranks; one table however many modules read it."""
    table = 129280 * 7168
    for num_modules, again in (0, 0), (1, table), (2, table):
        model = deepseek_v3(num_mtp_layers=num_modules)
        last, whole = (head_parameters(model, batch(tp=2), holds_table=held).dense for held in (False, True))
        assert last - whole == again / 2
    tied = replace(deepseek_v3(num_mtp_layers=1), tie_word_embeddings=True)
    assert head_parameters(tied, batch(), holds_table=False).dense == table + 7168


def test_tables_are_shared_by_tensor_ranks() -> None:
    model = gpt(1024, 4, 16)
    assert embedding_parameters(model, batch(tp=8)).dense == 51200 * 1024 / 8


def test_prediction_blocks_join_two_hidden_states() -> None:
    """A projection of 2 h to h (DeepSeek-V3, arXiv 2412.19437, section 2.2)."""
    model = deepseek_v3(num_mtp_layers=1)
    assert flops(mtp_projection(shard(model))) == 2 * LENGTH * 2 * 7168**2
