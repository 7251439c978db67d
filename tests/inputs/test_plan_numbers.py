from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from tests.strategies import Case, cases

from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers, digits


def batch(num_accelerators: int, global_batch_size: int = 1024, **fields: Any) -> PlanNumbers:
    return PlanNumbers.of(
        Plan(**fields), num_accelerators, Job(sequence_length=4096, global_batch_size=global_batch_size)
    )


def ranks(parts: tuple[Any, ...]) -> list[int]:
    """Accelerators of the group that holds accelerator 0."""
    members = [0]
    for part in parts:
        members = [base + int(part.stride) * i for base in members for i in range(int(part.size))]
    return sorted(members)


def test_derived_counts() -> None:
    """Llama 3 405B at 8,192 tokens (arXiv 2407.21783, table 4): 16,384 GPUs, tp 8, pp 16, dp 128, 16 sequences each."""
    numbers = batch(16384, 2048, tp=8, pp=16)
    assert (numbers.dp, numbers.num_microbatches, numbers.replicas) == (128, 16, 128)
    assert (numbers.microbatch_group_size, numbers.sharding_degree) == (16, 128)


def test_expert_replicas_divide_what_a_stage_holds() -> None:
    """DeepSeek-V3 (arXiv 2412.19437, section 3.2): 2,048 GPUs, pp 16, ep 64."""
    numbers = batch(2048, 15360, pp=16, ep=64)
    assert (numbers.dp, numbers.edp) == (128, 2)
    assert numbers.expert_sharding_degree == 2


def test_expert_states_are_sharded_by_the_same_share_of_their_replicas() -> None:
    numbers = batch(64, 64, ep=8, sharding_degree=16)
    assert (numbers.replicas, numbers.edp) == (64, 8)
    assert numbers.expert_sharding_degree == 2


@pytest.mark.parametrize(
    ("sharding", "flags"),
    [
        ("ddp", (False, False, False)),
        ("zero1", (True, False, False)),
        ("zero2", (True, True, False)),
        ("zero3", (True, True, True)),
        ("hsdp", (True, True, True)),
        ("hpz", (True, True, True)),
    ],
)
def test_what_each_sharding_shards(sharding: str, flags: tuple[bool, bool, bool]) -> None:
    """Stages of ZeRO (arXiv 1910.02054, section 5): optimizer states, gradients, parameters."""
    numbers = batch(8, 8, sharding=sharding, sharding_degree=4)
    assert (numbers.shards_optimizer, numbers.shards_gradients, numbers.shards_weights) == flags


def test_transfers_overlap_where_the_schedule_is_interleaved() -> None:
    assert not batch(8, 8, pp=4).overlap_pp
    assert batch(8, 8, pp=4, vp=2).overlap_pp
    assert not batch(8, 8, pp=4, vp=2, overlap_pp=False).overlap_pp


def test_default_placement_is_megatron_order() -> None:
    """Tensor-parallel ranks lie next to each other, pipeline stages farthest apart (arXiv 2104.04473, section 3)."""
    laid = digits(batch(64, 64, tp=4, cp=2, pp=4))
    assert ranks(laid["tp"]) == [0, 1, 2, 3]
    assert ranks(laid["cp"]) == [0, 4]
    assert ranks(laid["dp"]) == [0, 8]
    assert ranks(laid["pp"]) == [0, 16, 32, 48]


def test_experts_number_the_same_accelerators_in_their_own_way() -> None:
    """Parallel folding (arXiv 2504.14960): attention over (tp, cp, dp, pp), experts over (etp, ep, edp, pp)."""
    laid = digits(batch(64, 64, tp=4, cp=2, pp=4, ep=4, etp=2))
    assert ranks(laid["etp"]) == [0, 1]
    assert ranks(laid["ep"]) == [0, 2, 4, 6]
    assert ranks(laid["edp"]) == [0, 8]
    assert ranks(laid["pp"]) == [0, 16, 32, 48]


def test_numbered_parts_of_a_dimension_are_placed_first() -> None:
    laid = digits(batch(64, 64, tp=8, pp=2, placement="tp:2-dp:4-tp-cp-ep-dp-pp"))
    assert ranks(laid["tp"]) == [0, 1, 8, 9, 16, 17, 24, 25]
    assert ranks(laid["dp"]) == [0, 2, 4, 6]
    assert ranks(laid["pp"]) == [0, 32]


@given(cases())
def test_every_dimension_has_all_its_ranks_and_each_accelerator_one_place(case: Case) -> None:
    n = case.question.num_accelerators
    numbers = PlanNumbers.of(case.plan, n, case.question.job)
    laid = digits(numbers)
    for name in ("tp", "cp", "dp", "pp", "ep", "etp", "edp"):
        size = math.prod(int(part.size) for part in laid[name])
        assert size == getattr(numbers, name), name
    for names in (("tp", "cp", "dp", "pp"), ("etp", "ep", "edp", "pp")):
        assert ranks(tuple(part for name in names for part in laid[name])) == list(range(n))


@given(cases())
def test_experts_and_dense_layers_agree_on_the_stage_of_every_accelerator(case: Case) -> None:
    laid = digits(PlanNumbers.of(case.plan, case.question.num_accelerators, case.question.job))
    inside = tuple(part for name in ("etp", "ep", "edp") for part in laid[name])
    dense = tuple(part for name in ("tp", "cp", "dp") for part in laid[name])
    assert ranks(inside) == ranks(dense)


@given(cases())
def test_all_sequences_are_trained_on(case: Case) -> None:
    job = case.question.job
    numbers = PlanNumbers.of(case.plan, case.question.num_accelerators, job)
    assert numbers.dp * numbers.micro_batch_size * numbers.num_microbatches == job.global_batch_size
    assert numbers.dp * numbers.tp * numbers.cp * numbers.pp == case.question.num_accelerators
    assert np.mod(numbers.edp, numbers.expert_sharding_degree) == 0
