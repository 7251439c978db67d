"""What is alive at the memory peak: the tensors sum to the estimate, and are those of published counts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardplan import load_cluster, load_model
from shardplan.base.errors import InputError
from shardplan.estimation.parts.alive import Alive, check_stage, largest_of
from shardplan.estimation.priced import PricedPlan
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.profile import load_profile
from shardplan.inputs.software import Software


def asked(model: str = "llama-3.1-8b", num_accelerators: int = 64, **job: object) -> Question:
    settings = {"sequence_length": 4096, "global_batch_size": 256, **job}
    return Question(
        model=load_model(model),
        cluster=load_cluster("dgx-h100"),
        num_accelerators=num_accelerators,
        job=Job(**settings),  # type: ignore[arg-type]
    )


PLANS = (
    Plan(),
    Plan(tp=2, pp=4, sequence_parallel=True),
    Plan(tp=2, pp=4, vp=4, sequence_parallel=True, recompute="selective"),
    Plan(pp=2, recompute="full"),
    Plan(pp=2, recompute="mlp", recompute_num_layers=3, micro_batch_size=2),
    Plan(pp=4, offload="activations"),
    Plan(sharding="zero3", recompute="full"),
)


@pytest.mark.parametrize(
    "software", [Software(), Software(kernels="eager", loss_kernel="gathered", stage_outputs=True)]
)
@pytest.mark.parametrize("plan", PLANS)
def test_the_tensors_of_every_stage_sum_to_its_memory(plan: Plan, software: Software) -> None:
    priced = PricedPlan.of(asked(attention="unfused", dropout=True, software=software), plan)
    for stage in range(plan.pp):
        tensors, memory = priced.alive_at_peak(stage), priced.memory_of(stage)
        assert sum(tensor.num_bytes for tensor in tensors) == pytest.approx(memory.total, rel=1e-9)
        by_part = {part: sum(each.num_bytes for each in tensors if each.part == part) for part in vars(memory)}
        for part in ("weights", "gradients", "optimizer", "framework"):
            assert by_part[part] == pytest.approx(getattr(memory, part))
        sizes = [tensor.num_bytes for tensor in tensors]
        assert sizes == sorted(sizes, reverse=True)
        assert sum(each.num_bytes for each in largest_of(tensors)) == pytest.approx(memory.total)


@pytest.mark.parametrize("model", ["deepseek-v3", "nemotron-h-56b"])
def test_mixtures_mixers_and_prediction_blocks_sum_too(model: str) -> None:
    plan = Plan(pp=4, vp=2, ep=4) if model == "deepseek-v3" else Plan(pp=4)
    priced = PricedPlan.of(asked(model), plan)
    for stage in range(plan.pp):
        found = sum(tensor.num_bytes for tensor in priced.alive_at_peak(stage))
        assert found == pytest.approx(priced.memory_of(stage).total, rel=1e-9)


def test_a_layer_of_gpt_keeps_what_was_counted_by_hand() -> None:
    """34 s b h + 5 a s^2 b bytes of a layer (arXiv 2205.05198, eq. 1), each tensor by its name."""
    question = asked("gpt3-175b", 8, attention="unfused", dropout=True, sequence_length=2048, global_batch_size=8)
    tensors = {each.name: each for each in PricedPlan.of(question, Plan()).alive_at_peak(0)}
    h, heads, s, layers = 12_288, 96, 2048, 96
    kept = sum(tensors[name].num_bytes for name in ("norm input", "norm output", "qkv", "core output"))
    kept += tensors["mlp fc1 output"].num_bytes + tensors["mlp fc2 input"].num_bytes
    masks = tensors["dropout mask"].num_bytes - s * h  # that of the embedding
    ends = 2 * 2 * s * h  # of the final norm
    factor = load_profile(question.cluster.accelerator.generation).activation_factor["fused"]
    assert (kept - ends + masks) / factor == pytest.approx(layers * 34 * s * h, rel=1e-4)
    assert tensors["scores"].num_bytes / factor == pytest.approx(layers * 5 * heads * s**2)
    assert tensors["scores"].copies == layers
    assert tensors["scores"].one == pytest.approx(factor * 5 * heads * s**2)


def test_an_interleaved_pipeline_keeps_its_last_chunk_once() -> None:
    """Of 2 ranks with 4 chunks the last keeps 7 passes, of which one has come to head and prediction block."""
    priced = PricedPlan.of(asked("deepseek-v3", 64), Plan(pp=2, vp=4, ep=8))
    tensors = {each.name: each for each in priced.alive_at_peak(1)}
    layers = sum(priced.stages[1].counts)
    assert tensors["latents"].copies == layers * 7 / 4 + 1


def test_the_loss_takes_over_what_a_layer_needs_later() -> None:
    """6 bytes a logit, and no gradients of a layer's tensors at the same time."""
    question = asked()
    names = {each.name: each for each in PricedPlan.of(question, Plan()).alive_at_peak(0)}
    logits = 4096 * question.model.vocab_size
    assert names["logits and loss"].num_bytes == pytest.approx(question.profile.logits_bytes["in_place"] * logits)
    assert "gradients of a layer" not in names
    early = {each.name for each in PricedPlan.of(question, Plan(pp=2)).alive_at_peak(0)}
    assert "gradients of a layer" in early
    assert "logits and loss" not in early


def test_small_ones_are_shown_together() -> None:
    rows = (Alive(name="a", part="weights", num_bytes=990.0), Alive(name="b", part="", num_bytes=4.0, copies=2.0))
    assert rows[1].one == 2
    assert rows[0].one is None
    assert [each.num_bytes for each in largest_of((*rows, replace(rows[1], num_bytes=3.0)))] == [990, 7]
    assert largest_of(rows[:1]) == rows[:1]


@pytest.mark.parametrize(
    ("stage", "pp", "hint"), [(4, 4, "from 0 to 3"), (1, 1, "set --stage to 0"), (-1, 2, "0 to 1")]
)
def test_a_stage_that_the_pipeline_lacks(stage: int, pp: int, hint: str) -> None:
    with pytest.raises(InputError, match="stage is") as found:
        check_stage(stage, pp)
    assert hint in str(found.value.hint)
    check_stage(pp - 1, pp)
