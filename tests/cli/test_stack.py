"""``--stack``, ``--profile`` and the software flags: what they fill, what they leave free, what they say."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest
from tests.chosen import CHOSEN
from tests.cli.commands import FEW, SMALL, answer, refused, run, unwrapped

from shardplan.inputs.profile import load_profile
from shardplan.inputs.software import Software
from shardplan.physics.frameworks.stack import list_stacks, load_stack
from shardplan.reports.plan_file import read_plan_file

TWO_STAGES = ("--pp", 2, "--tp", 2)


def assumed(record: dict[str, Any]) -> str:
    return " | ".join(record["plans"][0]["assumptions"])


@pytest.mark.parametrize("name", list_stacks())
def test_a_stack_fills_what_is_not_given(name: str) -> None:
    record, stack = answer("estimate", *SMALL, "--tp", 2, "--stack", name), load_stack(name)
    for field, value in stack.job_fields("bf16").items():
        expected = asdict(value) if isinstance(value, Software) else value
        assert record["job"][field] == expected, field
    plan = record["plans"][0]["plan"]
    assert {field: plan[field] for field in stack.plan_fields()} == stack.plan_fields()
    assert f"stack {name}" in assumed(record)


def test_flags_take_the_place_of_the_stack() -> None:
    software = ("--software", "kernels=fused,fused-loss=on")
    given = (*software, "--grad-dtype", "bf16", "--sharding", "zero2", "--no-overlap-dp")
    record = answer("estimate", *SMALL, "--stack", "nanotron", *given)
    assert load_stack("nanotron").software["kernels"] == "eager"
    assert record["job"]["software"]["kernels"] == "fused"
    assert record["job"]["software"]["fused_loss"] is True
    assert record["job"]["grad_dtype"] == "bf16"
    plan = record["plans"][0]["plan"]
    assert (plan["sharding"], plan["overlap_dp"]) == ("zero2", False)
    assert "kernels" not in assumed(record)


def test_the_precision_decides_what_a_stack_does() -> None:
    for precision, expected in (("bf16", False), ("fp8", True)):
        record = answer("estimate", *SMALL, "--stack", "megatron-bridge", "--precision", precision)
        assert record["job"]["software"]["quantised_weights"] is expected
        assert ("quantised weights" in assumed(record)) is expected


def test_a_pipeline_has_the_chunks_and_the_sharding_of_the_stack() -> None:
    plan = answer("estimate", *SMALL, *TWO_STAGES, "--stack", "megatron-bridge")["plans"][0]["plan"]
    assert plan["vp"] == 1  # recipes interleave only where they say so
    assert answer("estimate", *SMALL, *TWO_STAGES, "--stack", "megatron-lm")["plans"][0]["plan"]["vp"] == 4
    record = answer("estimate", *SMALL, *TWO_STAGES, "--stack", "megatron-bridge", "--vp", 2)
    assert record["plans"][0]["plan"]["vp"] == 2
    torchtitan = ("--stack", "torchtitan")
    assert answer("estimate", *SMALL, *TWO_STAGES, *torchtitan)["plans"][0]["plan"]["sharding"] == "zero3"
    record = answer("estimate", *SMALL, *TWO_STAGES, *torchtitan, "--sharding", "zero3")
    assert record["plans"][0]["plan"]["sharding"] == "zero3"
    assert record["job"]["software"]["keeps_weights"] == "pipelines"
    assert "keeps weights pipelines" in assumed(record)


def test_stages_and_experts_are_those_of_the_stack() -> None:
    record = answer("estimate", *SMALL, "--pp", 2, "--stack", "nanotron")
    assert record["plans"][0]["plan"]["stage_layers"] is not None
    assert "stage layers" in assumed(record)
    experts = ("qwen3-30b-a3b", "--cluster", "dgx-h100", "--gpus", 32, "--tp", 2, "--ep", 4, "--recompute", "full")
    for given, expected in (((), 2), (("--etp", 1), 1)):
        plan = answer("estimate", *experts, "--stack", "megatron-lm", *given)["plans"][0]["plan"]
        assert plan["etp"] == expected


def test_a_default_does_not_break_a_rule() -> None:
    question = ("llama-3.2-1b", "--cluster", "dgx-h100", "--gpus", 8, "--global-batch-size", 8, "--tp", 4)
    record = answer("estimate", *question, "--sequence-length", 4096, "--stack", "megatron-lm")
    assert record["plans"][0]["plan"]["sequence_parallel"] is True


def test_a_search_takes_only_what_it_does_not_vary() -> None:
    free, stacked = answer("plan", *SMALL, *FEW), answer("plan", *SMALL, *FEW, "--stack", "megatron-deepspeed")
    assert all(not each["plan"]["overlap_dp"] for each in stacked["plans"])
    for name in ("tp", "cp", "pp", "micro_batch_size", "sharding"):
        assert stacked["space"][name] == free["space"][name]
    assert stacked["space"]["recompute"] == ["none", "selective", "full"]
    assert "megatron-deepspeed runs pipelines by 1f1b, zb-h1" in stacked["rejected"]
    words = assumed(stacked)
    assert "overlap dp off" in words
    assert "searched instead of taken from megatron-deepspeed" in words
    own = answer("plan", *SMALL, *FEW, "--stack", "megatron-deepspeed", "--fix", "overlap_dp=true")
    assert all(each["plan"]["overlap_dp"] for each in own["plans"])


def test_the_plans_of_a_search_name_their_framework(tmp_path: Path) -> None:
    path = tmp_path / "plans.json"
    result = run("plan", *SMALL, *FEW, "--stack", "deepspeed", "--json", path)
    assert result.exit_code == 0, result.output
    label = load_stack("deepspeed").label
    assert f"Runs on {label}" in unwrapped(result.stdout)
    record = json.loads(path.read_text())
    assert {each["framework"] for each in record["plans"]} == {label}
    assert all(each["plan"]["vp"] == 1 and each["plan"]["recompute"] in ("none", "full") for each in record["plans"])
    assert {each.framework for each in read_plan_file(path).estimates} == {label}
    usual = answer("plan", *SMALL, *FEW)["plans"][0]["framework"]
    assert usual == load_stack("megatron-lm").label
    assert answer("plan", *SMALL, *FEW, "--stack", "any")["plans"][0]["framework"] is None


@pytest.mark.usefixtures("kept")
def test_frameworks_side_by_side(tmp_path: Path) -> None:
    path = tmp_path / "all.json"
    text = unwrapped(run("plan", *SMALL, *FEW, "--stack", "all", "--json", path).stdout)
    record = json.loads(path.read_text())
    assert record["schema"] == "shardplan/frameworks/1"
    times = [each["step_time_s"] for each in record["plans"]]
    assert times == sorted(times)
    named = [each["framework"] for each in record["frameworks"]]
    assert {each["framework"] for each in record["plans"]} <= {*named}
    assert all(label in text for label in named)
    for each in record["frameworks"]:
        known = each["place"] is not None
        assert known == (each["refused"] is None and each["num_plans_feasible"] > 0)
        assert not known or record["plans"][each["place"] - 1]["framework"] == each["framework"]


@pytest.mark.usefixtures("kept")
def test_every_line_is_the_recommended_plan_of_its_framework() -> None:
    record = answer("plan", *SMALL, *FEW, "--stack", "all")
    for each in record["frameworks"][:4]:
        own = answer("plan", *SMALL, *FEW, "--stack", each["stack"])
        taken = own["recommended"]["plan"]
        assert record["plans"][each["place"] - 1]["step_time_s"] == taken["step_time_s"]
        assert each["fastest_step_time_s"] == min(plan["step_time_s"] for plan in own["plans"])


@pytest.mark.usefixtures("kept")
def test_reasons_and_assumptions_of_all_frameworks() -> None:
    text = unwrapped(run("plan", *SMALL, *FEW, "--stack", "all", "--explain", "--assumptions").stdout)
    assert "Why these plans" in text
    assert "You set limit pp=1,2" in text
    assert text.count("as usual in deepspeed") == 1
    assert "Why these plans" not in run("plan", *SMALL, *FEW, "--stack", "all").stdout


def test_one_plan_of_each_framework_cannot_be_three() -> None:
    assert "leave --top out" in refused("plan", *SMALL, "--stack", "all", "--top", "3")


def test_all_frameworks_are_compared_by_a_search_alone() -> None:
    result = run("estimate", *SMALL, "--stack", "all")
    assert result.exit_code == 2
    assert "one question is about one framework" in json.dumps(answer("estimate", *SMALL, "--stack", "all", status=2))


@pytest.mark.parametrize("name", ["megatron-lm", "torchtitan", "nanotron", "llm-foundry", "deepspeed", "any"])
def test_the_flags_of_an_answer_give_its_plan(name: str) -> None:
    """Whatever the framework would fill where nothing is said."""
    asked = (*SMALL, "--limit", "tp=1,2", "--limit", "cp=1", "--stack", name)
    found = answer("plan", *asked)
    best = found["recommended"]["plan"]
    flags = _flags_of(run("plan", *asked).stdout)
    estimated = answer("estimate", *flags)
    again = estimated["plans"][0]
    assert _with_software(estimated, again["plan"]) == _with_software(found, best["plan"])
    assert again["step_time_s"] == best["step_time_s"]
    assert again["framework"] == best["framework"]


def _with_software(record: dict[str, Any], plan: dict[str, Any]) -> dict[str, Any]:
    """A plan with the software of its job where it leaves it open."""
    return plan | {name: record["job"]["software"][name] for name in CHOSEN if plan[name] is None}


def _flags_of(text: str) -> list[str]:
    """The question and the recommended plan as flags of ``shardplan estimate``."""
    line = next(line for line in text.splitlines() if "shardplan estimate " in line)
    return shlex.split(line)[2:]


def test_stages_closed_by_cost_stay_in_plan_files(tmp_path: Path) -> None:
    path = tmp_path / "plans.json"
    run("plan", *SMALL, "--fix", "pp=2", "--stack", "nanotron", "--json", path)
    assert all(sum(each.plan.stage_layers or ()) == 16 for each in read_plan_file(path).estimates)


def test_what_the_framework_cannot_run_ends_a_search_with_its_rule() -> None:
    result = run("plan", *SMALL, "--stack", "deepspeed", "--fix", "vp=4", "--json", "-")
    assert result.exit_code == 2
    error = json.loads(result.stdout)["error"]
    assert error["rule"] == "deepspeed runs pipelines by 1f1b"
    assert "--fix vp=4" in error["message"]
    assert "set vp to 1" in error["hint"]


def test_an_estimate_says_that_the_framework_cannot_run_the_plan() -> None:
    given = ("estimate", *SMALL, "--pp", 2, "--vp", 2, "--sharding", "zero1", "--stack", "deepspeed")
    plan = answer(*given)["plans"][0]
    assert plan["step_time_s"] > 0
    assert [each["rule"] for each in plan["refusals"]] == [
        "deepspeed runs pipelines by 1f1b",
        "models of Hugging Face transformers have no pipeline",
    ]
    first = unwrapped(run(*given).stdout[:600])
    assert f"Not runnable on {load_stack('deepspeed').label}: deepspeed runs pipelines by 1f1b" in first
    assert "set vp to 1" in first


def test_a_plan_file_is_asked_again_under_another_stack(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    run("estimate", *SMALL, "--tp", 2, "--sharding", "zero3", "--no-overlap-dp", "--json", path)
    record = answer("estimate", "--from", path, "--stack", "nanotron", "--software", "attention_generation=flash1")
    plan = record["plans"][0]["plan"]
    assert (plan["tp"], plan["sharding"], plan["overlap_dp"]) == (2, "zero3", True)
    assert record["job"]["software"]["attention_generation"] == "flash1"
    assert record["job"]["software"]["kernels"] == "eager"


def test_software_is_kept_in_plan_files(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    run("estimate", *SMALL, "--software", "kernels=eager", "--software", "moe_capacity=yes", "--json", path)
    job = read_plan_file(path).question.job
    assert (job.software.kernels, job.software.moe_capacity) == ("eager", True)
    again = answer("estimate", "--from", path, "--software", "fp32_weights=true")
    assert again["job"]["software"] == asdict(job.software) | {"fp32_weights": True}
    compared = answer("compare", path, _written(tmp_path / "other.json", again))
    assert [row["name"] for row in compared["rows"] if row["section"] == "question"] == ["fp32_weights"]


def _written(path: Path, record: dict[str, Any]) -> Path:
    path.write_text(json.dumps(record))
    return path


def test_a_job_without_software_has_the_default_one(tmp_path: Path) -> None:
    record = answer("estimate", *SMALL)
    del record["job"]["software"]
    assert read_plan_file(_written(tmp_path / "old.json", record)).question.job.software == Software()


@pytest.mark.parametrize("software", [None, [], {"kernels": "slow"}, {"fused_loss": 1}, "fused"])
def test_software_is_read_strictly(software: object, tmp_path: Path) -> None:
    record = answer("estimate", *SMALL)
    record["job"]["software"] = software
    result = run("estimate", "--from", _written(tmp_path / "plan.json", record), "--json", "-")
    assert result.exit_code == 2, result.output
    assert "error" in json.loads(result.stdout)


def test_every_field_of_software_matters_to_the_help() -> None:
    text = run("stacks", "--fields").stdout
    rows = {row["name"]: row for row in answer("stacks", "--fields")["fields"]}
    assert [*rows] == [field.name for field in fields(Software)]
    for field in fields(Software):
        default = ("off", "on")[field.default] if isinstance(field.default, bool) else field.default
        assert rows[field.name]["values"][0] == default
        assert f"{field.name}  {default}" in text
    assert run("stacks", "nanotron", "--fields").exit_code == 2


def test_releases_are_shown_with_their_commits() -> None:
    found = answer("stacks", "torchtitan", "--releases")
    assert found["since"] == "2024-04"
    assert ("2025-10", "software.attention_generation", "flash2") in {
        (row["before"], row["field"], row["value"]) for row in found["changes"]
    }
    assert "6a3a9da95" in run("stacks", "torchtitan", "--releases").stdout
    for words in (("--releases",), ("torchtitan", "--releases", "--fields"), ("torchtitan@2020-01",)):
        assert run("stacks", *words).exit_code == 2


def test_a_month_of_a_framework_is_slower_where_its_kernels_were() -> None:
    flags = ("estimate", "llama-3.1-8b", "--cluster", "dgx-h100", "--gpus", "8", "--stack")
    now, then = (answer(*flags, name)["plans"][0]["step_time_s"] for name in ("torchtitan", "torchtitan@2024-12"))
    assert then > now


def _profile(folder: Path, text: str = "generation: hopper\nstep_time: {value: 1, unit: s, source: a test}\n") -> Path:
    path = folder / "mine.yaml"
    path.write_text(text)
    return path


def test_a_profile_of_ones_own(tmp_path: Path) -> None:
    usual, record = (answer("estimate", *SMALL, *more) for more in ((), ("--profile", _profile(tmp_path))))
    base = float(load_profile("hopper").step_time)
    growth = record["plans"][0]["step_time_s"] - usual["plans"][0]["step_time_s"]
    assert growth == pytest.approx(1 - base, rel=0.02)
    assert "constants of the profile mine" in assumed(record)
    assert (record["profile"]["name"], record["profile"]["step_time"]) == ("mine", 1)
    again = answer("estimate", "--from", _written(tmp_path / "plan.json", record))
    assert again["plans"][0]["step_time_s"] == record["plans"][0]["step_time_s"]
    found = answer("plan", *SMALL, *FEW, "--profile", tmp_path / "mine.yaml")
    assert "constants of the profile mine" in assumed(found)


def test_constants_of_another_generation_are_pointed_out() -> None:
    record = answer("estimate", *SMALL, "--profile", "blackwell")
    assert "made for blackwell, not for hopper" in assumed(record)
    assert record["profile"]["name"] == "blackwell"


PEAK = "fraction of dense peak"
HOSTILE = {
    "empty": "",
    "no generation": "step_time: {value: 1, unit: s, source: x}",
    "an unknown generation": "generation: hoper",
    "an unknown constant": "generation: hopper\nstep_tme: {value: 1, unit: s, source: x}",
    "no source": "generation: hopper\nstep_time: {value: 1, unit: s}",
    "a bare number": "generation: hopper\nstep_time: 1",
    "a rate of nothing": "generation: hopper\nmatmul_efficiency: {value: {bf16: 0}, unit: " + PEAK + ", source: x}",
    "more than all of it": "generation: hopper\ntp_window: {value: 1.5, unit: share, source: x}",
    "no number": "generation: hopper\nstep_time: {value: fast, unit: s, source: x}",
    "not a number": "generation: hopper\nstep_time: {value: .nan, unit: s, source: x}",
    "without end": "generation: hopper\nstep_time: {value: .inf, unit: s, source: x}",
    "a table for a number": "generation: hopper\nstep_time: {value: {a: 1}, unit: s, source: x}",
    "a number for a table": "generation: hopper\nmatmul_efficiency: {value: 1, unit: " + PEAK + ", source: x}",
    "keys that are no text": "generation: hopper\nmatmul_efficiency: {value: {1: 1}, unit: " + PEAK + ", source: x}",
    "a key too many": "generation: hopper\nkernel_launch_time: {value: {fusd: 1}, unit: s, source: x}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_profile_is_refused(name: str, tmp_path: Path) -> None:
    path = _profile(tmp_path, HOSTILE[name])
    for command in (("estimate", *SMALL, "--profile", path), ("profiles", path), ("validate", "--profile", path)):
        result = run(*command, "--json", "-")
        assert result.exit_code == 2, result.output
        assert set(json.loads(result.stdout)) == {"error"}
