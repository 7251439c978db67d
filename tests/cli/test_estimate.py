"""``shardplan estimate``: one plan, from flags or from a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.commands import FEW, SMALL, answer, run, unwrapped

import shardplan
from shardplan.inputs.plan import Plan

QUESTION = (
    "llama-3.1-70b",
    "--cluster",
    "dgx-h100",
    "--gpus",
    64,
    "--global-batch-size",
    128,
    "--sequence-length",
    4096,
)


def test_flags_give_what_python_gives() -> None:
    record = answer("estimate", *QUESTION, "--tp", 4, "--pp", 4, "--vp", 5, "--recompute", "full")
    expected = shardplan.estimate(
        shardplan.load_model("llama-3.1-70b"),
        shardplan.load_cluster("dgx-h100"),
        64,
        Plan(tp=4, pp=4, vp=5, recompute="full"),
        job=shardplan.Job(sequence_length=4096, global_batch_size=128),
    )
    assert len(record["plans"]) == 1
    assert record["plans"][0]["step_time_s"] == expected.step_time
    assert record["plans"][0]["peak_memory_bytes"] == expected.peak_memory_bytes
    assert "num_plans_evaluated" not in record


def test_every_field_of_a_plan_has_a_flag() -> None:
    flags = (
        "--tp", 4, "--cp", 2, "--pp", 2, "--vp", 2, "--micro-batch-size", 2, "--no-sequence-parallel",
        "--sharding", "zero1", "--sharding-degree", 4, "--schedule", "interleaved", "--microbatch-group-size", 2,
        "--recompute", "full", "--recompute-num-layers", 3, "--offload", "optimizer", "--cp-comm", "a2a",
        "--overlap-tp", "--no-overlap-dp", "--no-overlap-pp", "--overlap-ep", "--placement", "tp-cp-ep-pp-dp",
        "--stage-layers", "19,21,19,21",
    )  # fmt: skip
    plan = run("estimate", *QUESTION, *flags, "--json", "-")
    assert plan.exit_code in (0, 1), plan.output
    written = json.loads(plan.stdout)["plans"][0]["plan"]
    assert Plan(**{**written, "stage_layers": tuple(written["stage_layers"])}) == Plan(
        tp=4, cp=2, pp=2, vp=2, micro_batch_size=2, sequence_parallel=False, sharding="zero1", sharding_degree=4,
        schedule="interleaved", microbatch_group_size=2, recompute="full", recompute_num_layers=3,
        offload="optimizer", cp_comm="a2a", overlap_tp=True, overlap_dp=False, overlap_pp=False, overlap_ep=True,
        placement="tp-cp-ep-pp-dp", stage_layers=(19, 21, 19, 21),
    )  # fmt: skip


def test_experts_and_grids_have_flags() -> None:
    moe = answer("estimate", "mixtral-8x7b", "--cluster", "dgx-h100", "--gpus", 64, "--ep", 8, "--pp", 2, "--tp", 4)
    assert moe["plans"][0]["plan"]["ep"] == 8
    grid = ("--tp", 8, "--pp", 4, "--tp-kind", "summa", "--tp-rows", 2, "--recompute", "full")
    assert answer("estimate", *QUESTION, *grid)["plans"][0]["plan"]["tp_rows"] == 2


def test_a_plan_that_does_not_fit_is_answered_with_no() -> None:
    result = run("estimate", *QUESTION)
    assert result.exit_code == 1
    assert "Too big Stage 0 needs" in unwrapped(result.stdout)
    record = answer("estimate", *QUESTION, status=1)
    assert record["plans"][0]["feasible"] is False
    assert "too much" in record["plans"][0]["reason"]


def test_fields_left_out_are_stated() -> None:
    record = answer("estimate", *SMALL, "--tp", 2)
    assert any("at their defaults: cp 1, pp 1" in text for text in record["plans"][0]["assumptions"])


def test_traffic_is_told_by_dimension_and_tier() -> None:
    result = run("estimate", *QUESTION, "--tp", 8, "--pp", 4, "--recompute", "full")
    assert "Traffic" in unwrapped(result.stdout)
    sent = answer("estimate", *QUESTION, "--tp", 8, "--pp", 4, "--recompute", "full")["plans"][0]["communication_bytes"]
    assert sent["tp"]["cluster"] == 0
    assert sent["tp"]["node"] > 0
    assert sent["pp"]["cluster"] > 0


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "plans.json"
    assert run("plan", *SMALL, *FEW, "--top", 3, "--json", path).exit_code == 0
    return path


def test_a_plan_of_a_file_is_estimated_again(plan_file: Path) -> None:
    before = json.loads(plan_file.read_text())["plans"][1]
    again = answer("estimate", "--from", plan_file, "--pick", 2)["plans"][0]
    assert again["step_time_s"] == before["step_time_s"]
    assert again["plan"] == before["plan"]


def test_flags_replace_what_stands_in_the_file(plan_file: Path) -> None:
    before = json.loads(plan_file.read_text())
    record = answer("estimate", "--from", plan_file, "--recompute", "full", "--precision", "fp8", "--gpus", 4)
    assert record["plans"][0]["plan"] == {**before["plans"][0]["plan"], "recompute": "full"}
    assert record["job"] == {**before["job"], "precision": "fp8"}
    assert record["num_accelerators"] == 4


def test_constants_of_a_file_are_told_and_hold_for_their_generation(tmp_path: Path) -> None:
    own, saved = tmp_path / "mine.yaml", tmp_path / "plan.json"
    own.write_text("generation: hopper\nstep_time: {value: 0.5, unit: s, source: measured}\n")
    plan = ("--tp", 4, "--pp", 4, "--vp", 5, "--recompute", "full")
    usual = answer("estimate", *QUESTION, *plan)["plans"][0]["step_time_s"]
    assert run("estimate", *QUESTION, *plan, "--profile", own, "--json", saved).exit_code == 0
    same, other = (run("estimate", "--from", saved, *more).stdout for more in ((), ("--cluster", "dgx-a100")))
    assert answer("estimate", "--from", saved)["plans"][0]["step_time_s"] > usual + 0.4
    assert "constants of the profile mine, as in the file" in unwrapped(same)
    assert "the file's profile mine is for another generation: constants of ampere" in unwrapped(other)


def test_the_cluster_of_a_file_can_be_replaced_or_changed(plan_file: Path) -> None:
    slower = answer("estimate", "--from", plan_file, "--inter-node-bandwidth", 10)["cluster"]
    assert slower["tiers"][1]["bandwidth_bytes_per_s"] == 10e9
    assert slower["name"] == "dgx-h100"
    other = answer("estimate", "--from", plan_file, "--cluster", "dgx-a100")
    assert other["cluster"]["accelerator"]["name"] == "a100-sxm-80gb"
    assert other["profile"]["name"] == "ampere"


def test_a_measurement_is_explained_next_to_the_plan(tmp_path: Path) -> None:
    """As an audit explains one of a script; the record has the causes, the best explanation first."""
    file = tmp_path / "plan.json"
    asked = ("llama-3.2-1b", "--cluster", "dgx-h100", "--gpus", 16, "--tp", 2)
    assert run("estimate", *asked, "--json", file).exit_code == 0
    time = json.loads(file.read_text())["plans"][0]["step_time_s"]
    text = unwrapped(run("estimate", "--from", file, "--observed", f"{1.5 * time:.4f} s").stdout)
    assert "1.50 times the predicted step time" in text
    assert "of the gap. Check:" in text
    (observed,) = answer("estimate", "--from", file, "--observed", f"{1.5 * time:.4f} s")["observed"]
    shares = [cause["explains"] for cause in observed["causes"]]
    assert shares == sorted(shares, reverse=True)
    assert 0 < shares[0] <= 1
    assert run("estimate", "--from", file, "--observed", "slow").exit_code == 2
