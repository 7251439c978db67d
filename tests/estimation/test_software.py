"""What a framework keeps and sends: each input of ``Software`` changes the bytes that it names, and no others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.examples import cluster, gpt, ideal_profile, llama, tier

from shardplan import estimate
from shardplan.estimation.estimate import Estimate, estimate_plan
from shardplan.estimation.question import Question
from shardplan.inputs.job import GradDtype, Job, Precision
from shardplan.inputs.plan import CpComm, Plan
from shardplan.inputs.software import Software

MODEL = llama(4096, 8, 32, 32, 11008, vocab_size=8)
"""Eight layers of Llama 2 7B, their ends left out."""


def estimated(
    *,
    precision: Precision = "bf16",
    grad_dtype: GradDtype = "fp32",
    num_accelerators: int = 8,
    software: dict[str, Any] | None = None,
    **plan: Any,
) -> Estimate:
    job = Job(
        sequence_length=2048, global_batch_size=64, precision=precision, grad_dtype=grad_dtype,
        software=Software(**(software or {})),
    )  # fmt: skip
    question = Question(
        model=MODEL, cluster=cluster(tier("node", 8, 450), tier("network", None, 50)),
        num_accelerators=num_accelerators, job=job, given_profile=ideal_profile(),
    )  # fmt: skip
    return estimate_plan(question, Plan(**plan))


def part(name: str, **fields: Any) -> float:
    return estimated(**fields).memory[0][name]


def test_eager_kernels_keep_the_activated_gate() -> None:
    """Per token and layer: two bytes of the MLP's width."""
    more = part("activations", software={"kernels": "eager"}) - part("activations")
    assert more == pytest.approx(2048 * 8 * 2 * 11008)


def test_a_packed_projection_stays_beside_rotated_heads() -> None:
    """Per token and layer: two bytes of the queries' and keys' channels."""
    more = part("activations", software={"packed_projection": True}) - part("activations")
    assert more == pytest.approx(2048 * 8 * 2 * 2 * 4096)


def test_gathered_inputs_are_whole_on_every_tensor_parallel_rank() -> None:
    """Both norms' outputs of a layer and the head's input, of all tokens in place of a quarter of them."""
    tensor: dict[str, Any] = {"tp": 4, "num_accelerators": 4}
    more = part("activations", software={"gathered_inputs": True}, **tensor) - part("activations", **tensor)
    assert more == pytest.approx((2 * 8 + 1) * 2048 * 2 * 4096 * 3 / 4)
    assert part("activations", software={"gathered_inputs": True}) == part("activations")


def test_stages_keep_their_outputs_where_the_framework_does() -> None:
    """One output for each micro-batch in flight: four on the first of four stages; the last one's is the loss."""
    pipeline: dict[str, Any] = {"pp": 4, "num_accelerators": 4}
    freed, kept = (
        [stage["activations"] for stage in estimated(software={"stage_outputs": on}, **pipeline).memory]
        for on in (False, True)
    )
    one = 2048 * 2 * 4096
    more = [there - here for here, there in zip(freed, kept, strict=True)]
    assert more == pytest.approx([4 * one, 3 * one, 2 * one, 0])


def test_low_precision_may_keep_wide_tensors() -> None:
    """torchao keeps 16-bit weights and inputs of products: as much as training in bf16."""
    wide, bf16 = (
        estimated(precision=precision, software={"quantised_copies": False}).memory[0] for precision in ("fp8", "bf16")
    )
    assert wide == pytest.approx(bf16)
    assert estimated(precision="fp8").memory[0]["weights"] == pytest.approx(1.5 * bf16["weights"])


def test_eager_kernels_of_a_plain_gpt_keep_no_more() -> None:
    job = Job(sequence_length=2048, global_batch_size=8)
    eager = Job(sequence_length=2048, global_batch_size=8, software=Software(kernels="eager"))
    seen = [estimate(gpt(2048, 4, 16), cluster(), 8, Plan(), job=one, profile=ideal_profile()) for one in (job, eager)]
    assert seen[0].memory[0]["activations"] == pytest.approx(seen[1].memory[0]["activations"])


def test_fp32_shards_are_the_master_copy() -> None:
    """FSDP with fp32 parameters keeps 4 + 8 bytes of them and the moments, not 2 + 12 (arXiv 2304.11277)."""
    both = estimated(sharding="zero3").memory[0]
    alone = estimated(sharding="zero3", software={"fp32_weights": True}).memory[0]
    shard = MODEL.num_parameters / 8
    assert both["weights"] == pytest.approx(2 * shard)
    assert both["optimizer"] == pytest.approx(12 * shard)
    assert alone["weights"] == pytest.approx(4 * shard)
    assert alone["optimizer"] == pytest.approx(8 * shard)
    assert part("weights", software={"fp32_weights": True}) == part("weights")  # nothing is sharded


def test_gradient_copies_live_beside_wider_accumulators_only() -> None:
    copy = {"gradient_copy": True}
    n = MODEL.num_parameters
    assert part("gradients", software=copy) - part("gradients") == pytest.approx(2 * n)
    assert part("gradients", grad_dtype="bf16", software=copy) == part("gradients", grad_dtype="bf16")


def test_an_update_needs_fp32_gradients_of_its_share() -> None:
    """Four bytes more for 16-bit gradients (Megatron-LM: 20 bytes per parameter with fp16 gradients)."""
    few = {"recompute": "full", "micro_batch_size": 1, "num_accelerators": 1}
    n = MODEL.num_parameters
    update = part("buffers", grad_dtype="bf16", **few)
    backward = part("buffers", grad_dtype="fp32", **few)
    assert update == pytest.approx(4 * n - part("activations", grad_dtype="bf16", **few) - part("logits", **few))
    assert 0 < backward < update
    assert part("buffers", grad_dtype="bf16", offload="optimizer", **few) == backward


def test_weights_in_eight_bits_are_gathered_in_eight() -> None:
    alone = {"quantised_weights": True}
    both, one = (estimated(precision="fp8", sharding="zero3", software=with_) for with_ in ({}, alone))
    gathered, less = (sum(answer.communication["dp"].values()) for answer in (both, one))
    saved = 2 * 8 * (2 - 1) * MODEL.num_parameters * 7 / 8  # twice in each of eight micro-batches
    assert gathered - less == pytest.approx(saved)


def test_split_transfers_send_a_part_of_the_stage_output() -> None:
    pipeline: dict[str, Any] = {"tp": 4, "pp": 4, "num_accelerators": 32, "sequence_parallel": False}
    whole, split = (
        sum(estimated(software={"split_transfers": on}, **pipeline).communication["pp"].values())
        for on in (False, True)
    )
    assert split == pytest.approx(whole / 4)
    times = [
        estimated(software={"split_transfers": on}, **pipeline).breakdown["pp_communication"] for on in (False, True)
    ]
    assert times[1] < times[0]
    sharded = pipeline | {"sequence_parallel": True}
    assert estimated(software={"split_transfers": True}, **sharded).step_time == estimated(**sharded).step_time


def test_blocking_tensor_parallel_communication_shows_whole() -> None:
    tensor: dict[str, Any] = {"tp": 8, "sequence_parallel": False, "overlap_tp": False}
    job = Job(sequence_length=2048, global_batch_size=64, software=Software(async_tp_backward=False))
    machine = cluster(tier("node", 8, 450), tier("network", None, 50))
    shown = [
        estimate_plan(
            Question(
                model=MODEL, cluster=machine, num_accelerators=8, given_profile=ideal_profile(tp_window=window),
                job=job if blocking else replace(job, software=Software()),
            ),
            Plan(**tensor),
        ).breakdown["tp_communication"]
        for window, blocking in ((0.0, False), (1.0, False), (1.0, True))
    ]  # fmt: skip
    # The backward half runs beside products that take longer, but for the embedding's, which has no products.
    assert shown[0] / 2 <= shown[1] <= 0.55 * shown[0]
    assert shown[2] == pytest.approx(shown[0])


def test_one_loss_kernel_moves_fewer_bytes_than_a_softmax_in_fp32() -> None:
    words = llama(1024, 1, 8, 8, 4096, vocab_size=128_256)
    job = Job(sequence_length=2048, global_batch_size=8)
    machine = cluster(tier("node", 8, 450), tier("network", None, 50))
    kinds: list[dict[str, Any]] = [{}, {"loss_kernel": "single"}, {"fused_loss": True}]
    separate, fused, in_pieces = (
        estimate(words, machine, 8, Plan(), job=replace(job, software=Software(**software))) for software in kinds
    )
    assert fused.step_time == in_pieces.step_time < separate.step_time
    assert separate.peak_memory_bytes > fused.peak_memory_bytes > in_pieces.peak_memory_bytes


def test_a_ring_hides_behind_attention_and_other_exchanges_do_not() -> None:
    def shown(cp_comm: CpComm, **constants: Any) -> tuple[float, float]:
        profile = ideal_profile(**constants)
        job = Job(sequence_length=65_536, global_batch_size=8)
        machine = cluster(tier("node", 8, 450), tier("network", None, 5))
        plan = Plan(cp=16, cp_comm=cp_comm, sharding="ddp")
        question = Question(model=MODEL, cluster=machine, num_accelerators=16, job=job, given_profile=profile)
        parts = estimate_plan(question, plan).breakdown
        return parts["cp_communication"], parts["attention"]

    whole, attention = shown("p2p", cp_window=0.0)
    assert shown("p2p", cp_window=0.5)[0] == pytest.approx(whole - 0.5 * attention * 15 / 16, rel=1e-6)
    assert shown("p2p", cp_window=1e9)[0] == 0.0
    assert shown("p2p", cp_window=1e9, hidden_slowdown=0.15)[0] == pytest.approx(0.15 * whole)
    assert shown("allgather", cp_window=1e9)[0] == shown("allgather", cp_window=0.0)[0] > 0
