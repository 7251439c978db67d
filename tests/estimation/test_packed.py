"""Documents packed into sequences, from the job to the answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.examples import LLAMA_70B, cluster

from shardplan import estimate
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.flops import FLOPS_CONVENTION, flops_convention, model_flops_per_token
from shardplan.inputs.job import Job
from shardplan.inputs.plan import CpComm, Plan

JOB = Job(sequence_length=32768, global_batch_size=64)
PLAN = Plan(tp=8, cp=4, recompute="full")


def answer(documents: tuple[int, ...] | None, *, job: Job = JOB, plan: Plan = PLAN) -> Estimate:
    return estimate(LLAMA_70B, cluster(), 64, plan, job=replace(job, documents=documents), stack=None)


def test_a_document_that_fills_the_sequence_is_today_s_answer() -> None:
    assert answer((32768,)) == answer(None)


def test_flop_are_those_of_the_keys_in_the_document() -> None:
    """6 per weight, 12 L h per key (arXiv 2204.02311, appendix B): half a document of keys."""
    without, short, long = (
        model_flops_per_token(LLAMA_70B, 32768, replace(JOB, documents=documents))
        for documents in (None, (1,), (2048,))
    )
    per_key = 12 * LLAMA_70B.num_hidden_layers * LLAMA_70B.hidden_size
    assert without - short == pytest.approx(per_key * (16384 - 0.5), rel=1e-9)
    assert long - short == pytest.approx(per_key * (1024 - 0.5), rel=1e-9)
    weights = LLAMA_70B.num_active_parameters_without_input_embedding
    assert short == pytest.approx(6 * weights, rel=1e-4)


def test_shorter_documents_take_less_time_and_no_less_memory() -> None:
    whole, long, short = (answer(documents) for documents in (None, (8192,), (128,)))
    assert short.step_time < long.step_time < whole.step_time
    assert short.breakdown["attention"] < 0.1 * whole.breakdown["attention"]
    assert short.memory == long.memory == whole.memory
    assert short.communication == whole.communication
    assert short.model_flops_per_token < long.model_flops_per_token < whole.model_flops_per_token


def test_unfused_kernels_score_the_whole_square() -> None:
    unfused = replace(JOB, sequence_length=4096, attention="unfused")
    whole, packed = (answer(documents, job=unfused) for documents in (None, (512, 1024)))
    assert packed.step_time == whole.step_time
    assert packed.model_flops_per_token < whole.model_flops_per_token
    assert packed.mfu < whole.mfu


@pytest.mark.parametrize(("comm", "is_even"), [("allgather", False), ("a2a", True)])
def test_context_parallel_ranks_wait_for_the_slowest(comm: CpComm, is_even: bool) -> None:  # noqa: FBT001  # a case
    """Documents of three quarters of a sequence, 6 pieces of 8: 1, 3, .. 11 squares of half a piece, then 1 and 3.

    Ranks have 1 + 3, 3 + 1, 5 + 11 and 7 + 9 of them, 10 on average: the slowest 16.
    """
    plan = replace(PLAN, tp=2, cp_comm=comm)
    fixed = answer((24576,), plan=plan)
    alone = answer((24576,), plan=replace(PLAN, tp=2, cp=1))
    times = fixed.breakdown["attention"] / alone.breakdown["attention"]
    assert times == pytest.approx(1 if is_even else 1.6, rel=0.01)
    assert fixed.model_flops_per_token == alone.model_flops_per_token


def test_the_answer_says_what_is_assumed() -> None:
    assert any("documents of 1,024 tokens fill every sequence" in text for text in answer((1024,)).assumptions)
    spread = answer((1024, 2048)).assumptions
    assert any("a tenth of them above 2,048" in text for text in spread)
    assert any("slowest of 4 context-parallel ranks" in text for text in spread)
    assert not any("document" in text for text in answer(None).assumptions)


def test_the_convention_says_that_documents_are_masked() -> None:
    assert flops_convention(JOB) == FLOPS_CONVENTION
    assert flops_convention(replace(JOB, documents=(32768,))) == FLOPS_CONVENTION
    assert "other documents" in flops_convention(replace(JOB, documents=(1024,)))
