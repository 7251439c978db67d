"""Questions as they are put, with packed documents, positions, host-bound steps and offloading."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.examples import LLAMA_70B, accelerator, cluster, llama, tier

from shardplan import estimate
from shardplan.base.errors import InputError
from shardplan.estimation.charge import FLOPS_CONVENTION, flops_convention, model_flops_per_token
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.question import posed_question
from shardplan.inputs.job import Job
from shardplan.inputs.model import with_positions
from shardplan.inputs.plan import CpComm, Plan
from shardplan.inputs.readers.catalog import load_model


@pytest.mark.parametrize(("stack", "dtype"), [("megatron-lm", "fp32"), ("maxtext", "bf16")])
def test_what_a_framework_states_of_a_job_is_not_told_as_a_default_too(stack: str, dtype: str) -> None:
    posed = posed_question(LLAMA_70B, cluster(), 64, {}, software={}, stack=stack, profile=None)
    (defaults,) = (line for line in posed.assumptions if line.startswith("job fields at their defaults"))
    (of_stack,) = (line for line in posed.assumptions if line.startswith(f"stack {stack}"))
    assert f"grad dtype {dtype}" in of_stack
    assert posed.question.job.grad_dtype == dtype
    assert "grad_dtype" not in defaults
    assert "attention" not in defaults


def test_without_a_framework_all_that_is_not_given_is_told() -> None:
    posed = posed_question(LLAMA_70B, cluster(), 64, {"precision": "bf16"}, software={}, stack=None, profile=None)
    (defaults,) = (line for line in posed.assumptions if line.startswith("job fields at their defaults"))
    assert "grad_dtype" in defaults
    assert "precision" not in defaults


def answer(name: str, sequence_length: int) -> Estimate:
    job = Job(sequence_length=sequence_length, global_batch_size=8)
    return estimate(load_model(name), cluster(), 8, Plan(), job=job)


@pytest.mark.parametrize(
    ("model", "most", "length", "said", "hint"),
    [
        ("gpt2", 1024, 2048, "2,048 tokens, and gpt2 has learned positions for 1,024", "length to at most 1,024"),
        ("vit-b-16", 197, 198, "learned positions for 197", "image_size"),  # as many as it has patches
    ],
)
def test_sequences_beyond_learned_positions_are_refused(
    model: str, most: int, length: int, said: str, hint: str
) -> None:
    answer(model, most)
    with pytest.raises(InputError, match=said) as caught:
        answer(model, length)
    assert hint in caught.value.hint


@pytest.mark.parametrize(("length", "notes"), [(8192, 0), (131_072, 0), (131_073, 1), (262_144, 1)])
def test_sequences_beyond_rotary_positions_are_noted(length: int, notes: int) -> None:
    said = [text for text in answer("llama-3.1-8b", length).assumptions if "max_position_embeddings" in text]
    assert len(said) == notes


def test_a_measured_run_had_the_positions_that_it_read() -> None:
    model = load_model("gpt2")
    longer = with_positions(model, 4096)
    assert (longer.max_position_embeddings, longer.num_position_embeddings) == (4096, 1024)
    assert longer.num_parameters == model.num_parameters
    assert with_positions(model, 512) is model
    rotary = load_model("llama-3.1-8b")
    assert with_positions(rotary, 10**6) is rotary


JOB = Job(sequence_length=32768, global_batch_size=64)
PLAN = Plan(tp=8, cp=4, recompute="full")


def packed_answer(documents: tuple[int, ...] | None, *, job: Job = JOB, plan: Plan = PLAN) -> Estimate:
    return estimate(LLAMA_70B, cluster(), 64, plan, job=replace(job, documents=documents), stack=None)


def test_a_document_that_fills_the_sequence_is_today_s_answer() -> None:
    assert packed_answer((32768,)) == packed_answer(None)


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
    whole, long, short = (packed_answer(documents) for documents in (None, (8192,), (128,)))
    assert short.step_time < long.step_time < whole.step_time
    assert short.breakdown["attention"] < 0.1 * whole.breakdown["attention"]
    assert short.memory == long.memory == whole.memory
    assert short.communication == whole.communication
    assert short.model_flops_per_token < long.model_flops_per_token < whole.model_flops_per_token


def test_unfused_kernels_score_the_whole_square() -> None:
    unfused = replace(JOB, sequence_length=4096, attention="unfused")
    whole, packed = (packed_answer(documents, job=unfused) for documents in (None, (512, 1024)))
    assert packed.step_time == whole.step_time
    assert packed.model_flops_per_token < whole.model_flops_per_token
    assert packed.mfu < whole.mfu


@pytest.mark.parametrize(("comm", "is_even"), [("allgather", False), ("a2a", True)])
def test_context_parallel_ranks_wait_for_the_slowest(comm: CpComm, is_even: bool) -> None:  # noqa: FBT001  # a case
    """Documents of three quarters of a sequence, 6 pieces of 8: 1, 3, .. 11 squares of half a piece, then 1 and 3.

    Ranks have 1 + 3, 3 + 1, 5 + 11 and 7 + 9 of them, 10 on average: the slowest 16.
    """
    plan = replace(PLAN, tp=2, cp_comm=comm)
    fixed = packed_answer((24576,), plan=plan)
    alone = packed_answer((24576,), plan=replace(PLAN, tp=2, cp=1))
    times = fixed.breakdown["attention"] / alone.breakdown["attention"]
    assert times == pytest.approx(1 if is_even else 1.6, rel=0.01)
    assert fixed.model_flops_per_token == alone.model_flops_per_token


def test_the_answer_says_what_is_assumed() -> None:
    assert any("documents of 1,024 tokens fill every sequence" in text for text in packed_answer((1024,)).assumptions)
    spread = packed_answer((1024, 2048)).assumptions
    assert any("a tenth of them above 2,048" in text for text in spread)
    assert any("slowest of 4 context-parallel ranks" in text for text in spread)
    assert not any("document" in text for text in packed_answer(None).assumptions)


def test_the_convention_says_that_documents_are_masked() -> None:
    assert flops_convention(JOB) == FLOPS_CONVENTION
    assert flops_convention(replace(JOB, documents=(32768,))) == FLOPS_CONVENTION
    assert "other documents" in flops_convention(replace(JOB, documents=(1024,)))


PEAKS = (2e12, 4e12, 1e13, 2e13, 1e14)
SMALL = llama(128, 4, 4, 4, 512, vocab_size=512)


def step_time(peak: float, network: float, sharding: Any) -> float:
    """Of 16 accelerators with four micro-batches each, which are bound by their host at the highest peaks."""
    on = cluster(
        tier("node", 8, network, latency=0), tier("network", None, network, latency=0),
        part=accelerator(peak_flops={"bf16": peak}),
    )  # fmt: skip
    job = Job(sequence_length=512, global_batch_size=64)
    return estimate(SMALL, on, 16, Plan(sharding=sharding), job=job).step_time


@pytest.mark.parametrize("sharding", ["ddp", "zero1", "zero2", "zero3"])
@pytest.mark.parametrize("network", [0.05, 0.2, 1])
def test_a_faster_part_never_slows_a_plan(sharding: Any, network: float) -> None:
    """Also with traffic in every micro-batch: under zero2 and zero3."""
    times = [step_time(peak, network, sharding) for peak in PEAKS]
    assert all(faster <= slower * (1 + 1e-12) for slower, faster in pairwise(times))


MODEL = llama(2048, 8, 16, 16, 8192, vocab_size=32000)
RATES = st.sampled_from((1, 2, 10, 50, 200))


def offloaded_step_time(plan: Plan, *, node: float, network: float, **part: Any) -> float:
    """Of 16 accelerators with four micro-batches each."""
    on = cluster(tier("node", 8, node, latency=0), tier("network", None, network, latency=0), part=accelerator(**part))
    return estimate(MODEL, on, 16, plan, job=Job(sequence_length=4096, global_batch_size=64)).step_time


@given(
    st.builds(
        Plan,
        offload=st.just("activations"),
        sharding=st.sampled_from(("ddp", "zero1", "zero3")),
        recompute=st.sampled_from(("none", "full")),
    ),
    st.fixed_dictionaries({"node": RATES, "network": RATES}),
    st.fixed_dictionaries(
        {
            "peak_flops": st.sampled_from((1e14, 2e14, 4e14, 8e14)),
            "memory_bandwidth": st.just(3e12),
            "host_link_bandwidth": st.sampled_from((2e9, 8e9, 32e9)),
        }
    ),
    st.tuples(st.sampled_from(("peak_flops", "memory_bandwidth", "host_link_bandwidth")), st.floats(1, 4)),
)
@example(
    Plan(offload="activations", sharding="ddp"),
    {"node": 50, "network": 1},
    {"peak_flops": 1e14, "memory_bandwidth": 3e12, "host_link_bandwidth": 8e9},
    ("peak_flops", 2.0),
)
def test_a_faster_part_never_slows_a_plan_that_offloads_activations(
    plan: Plan, network: dict[str, float], part: dict[str, float], better: tuple[str, float]
) -> None:
    name, factor = better
    faster = {**part, name: part[name] * factor}
    before, after = (_timed(plan, network, rates) for rates in (part, faster))
    assert after <= before * (1 + 1e-12)


def _timed(plan: Plan, network: dict[str, float], rates: dict[str, float]) -> float:
    others = {name: rate for name, rate in rates.items() if name != "peak_flops"}
    return offloaded_step_time(
        plan, node=network["node"], network=network["network"], peak_flops={"bf16": rates["peak_flops"]}, **others
    )
