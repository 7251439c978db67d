"""Questions of ours in the terms of arXiv 2410.00273."""

from dataclasses import replace

import pytest

from shardplan.inputs.job import Job
from shardplan.inputs.readers.catalog import load_cluster, load_model
from shardplan.methods.base import MethodAnswer, MethodError
from shardplan.methods.subramanian2024.method import Subramanian2024

METHOD = Subramanian2024()
JOB = Job(sequence_length=2048, global_batch_size=1536)


def _ask(model: str, cluster: str = "dgx-a100", num_accelerators: int = 512, job: Job = JOB) -> MethodAnswer:
    return METHOD.plan(load_model(model), load_cluster(cluster), num_accelerators, job)


def test_a_question_is_answered_by_what_the_method_would_say_in_its_own_terms() -> None:
    """gpt3-175b on DGX A100 with the paper's efficiencies."""
    found = _ask("gpt3-175b")
    accelerator, (fast, slow, *_) = load_cluster("dgx-a100").accelerator, load_cluster("dgx-a100").tiers
    system = {
        "matrix_flops": accelerator.peak("bf16") / 1e12,
        "vector_flops": (accelerator.vector_flops or 0) / 1e12,
        "hbm_bandwidth": accelerator.memory_bandwidth / 1e9,
        "hbm_capacity": accelerator.memory_bytes / 1e9,
        "nvlink_bandwidth": fast.bandwidth / 1e9,
        "ib_bandwidth": slow.bandwidth / 1e9,
        "nvlink_latency": f"{fast.latency * 1e6} us",
        "ib_latency": f"{slow.latency * 1e6} us",
    }
    own = {"model": "gpt3", "system": system, "nvs": 8, "gpus": 512, "global_batch_size": 1536, "top": 1}
    answers = [METHOD.answer({**own, "strategy": strategy}) for strategy in ("1d", "2d-seqp", "2d")]
    best = min(answer["configurations"][0]["t"] for answer in answers)
    assert found.rows[0].step_time == pytest.approx(best, rel=1e-9)
    assert found.rows[0].fits


def test_rows_are_ranked_differ_and_use_every_accelerator() -> None:
    found = _ask("gpt3-175b")
    assert found.method == "subramanian2024"
    assert len(found.rows) == 10
    times = [row.step_time or 0.0 for row in found.rows]
    assert times == sorted(times)
    assert len({tuple(row.degrees.items()) for row in found.rows}) == 10
    for row in found.rows:
        degrees = row.degrees
        assert degrees["dp"] * degrees["tp"] * degrees["pp"] * degrees.get("cp", 1) == 512
        assert sum(value for name, value in row.parts.items() if name.endswith("_s")) == pytest.approx(row.step_time)
        assert not ({"cp", "tp_rows"} <= degrees.keys())


def test_what_plays_no_part_is_said() -> None:
    llama = _ask("llama-3.1-70b", "dgx-h100")
    text = " ".join(llama.ignored)
    for word in ("vocabulary", "causal", "grouped", "28,672", "gate", "dropout", "fp32 gradients"):
        assert word in text
    gpt = " ".join(_ask("gpt3-175b").ignored)
    assert "grouped" not in gpt
    assert "gate" not in gpt
    with_dropout = " ".join(_ask("gpt3-175b", job=replace(JOB, dropout=True)).ignored)
    assert "dropout" not in with_dropout


def test_how_the_question_was_put_is_said() -> None:
    text = " ".join(_ask("gpt3-175b").mapped)
    for word in ("96 equal layers", "312 TFLOP/s", "8 accelerators of the node", "300 GB/s", "25.0 GB/s"):
        assert word in text


def test_known_errors_are_named_where_they_touch_the_answer() -> None:
    (row, *_), notes = _ask("gpt3-175b").rows, _ask("gpt3-175b").notes
    assert row.degrees["pp"] > 1
    assert {note.split(":")[0] for note in notes} >= {"Q1", "Q12"}


def test_racks_that_do_not_divide_the_job_are_used_in_part() -> None:
    """512 accelerators on racks of 72 use 64 of each, as in our own estimate."""
    found = _ask("gpt3-175b", "gb200-nvl72", 512)
    assert any("64 accelerators of the rack" in line for line in found.mapped)


def test_a_job_inside_one_domain() -> None:
    found = _ask("llama-3.2-1b", "dgx-h100", 4, Job(sequence_length=2048, global_batch_size=16))
    assert found.rows[0].fits


def test_what_does_not_fit_is_shown_as_such() -> None:
    found = _ask("gpt3-175b", "dgx-a100", 8, Job(sequence_length=2048, global_batch_size=64))
    (row,) = found.rows
    assert row.fits is False
    assert (row.memory_bytes or 0) > 85e9


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ("mixtral-8x7b", "mixtures of experts"),
        ("deepseek-v3", "LatentAttention"),
        ("nemotron-h-56b", "StateSpace"),
    ],
)
def test_models_of_which_the_method_cannot_speak(model: str, why: str) -> None:
    with pytest.raises(MethodError, match=why):
        _ask(model, "dgx-h100")


@pytest.mark.parametrize("precision", ["fp8", "fp32"])
def test_number_formats_of_which_the_method_cannot_speak(precision: str) -> None:
    with pytest.raises(MethodError, match=precision):
        _ask("gpt3-175b", "dgx-h100", job=replace(JOB, precision=precision))  # type: ignore[arg-type]  # one of them


def test_accelerators_without_a_vector_rate() -> None:
    with pytest.raises(MethodError, match="vector rate"):
        _ask("gpt3-175b", "tpu-v5p-pod")


def test_numbers_that_nothing_divides() -> None:
    with pytest.raises(MethodError, match="divides"):
        _ask("gpt3-175b", "dgx-h100", 1009)


def test_a_number_format_that_the_accelerator_lacks() -> None:
    cluster = load_cluster("dgx-a100")
    old = replace(cluster, accelerator=replace(cluster.accelerator, peak_flops={"fp32": 15e12}))
    with pytest.raises(MethodError, match="bf16"):
        METHOD.plan(load_model("gpt3-175b"), old, 512, JOB)
