"""``shardplan plan``: the contract of its answer."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from pathlib import Path

import pytest
from tests.cli.commands import FEW, SMALL, answer, refused, run, unwrapped

import shardplan
from shardplan.base.units import format_time
from shardplan.inputs.plan import Plan
from shardplan.reports.plan_file import read_plan_file

CONTRACT = {
    "plan", "step_time_s", "step_time_p10_s", "step_time_p90_s", "breakdown_s", "tokens_per_s_per_accelerator",
    "model_flops_per_token", "flops_convention", "mfu", "hfu", "peak_memory_bytes", "memory_bytes",
    "communication_bytes", "feasible", "reason", "assumptions",
}  # fmt: skip


def test_more_than_the_largest_known_cluster_is_said_in_the_head() -> None:
    workstations = ("estimate", "llama-3.2-1b", "--cluster", "workstation-4x4090", "--gpus")
    assert "workstation-4x4090 (largest known: 4)" in unwrapped(run(*workstations, 8).stdout)
    assert "largest known" not in run(*workstations, 4).stdout


def test_the_plan_file_is_complete() -> None:
    record = answer("plan", *SMALL, *FEW)
    assert {"schema", "model", "cluster", "job", "plans"} <= record.keys()
    assert {"num_plans_evaluated", "num_plans_feasible", "rejected", "search_time_s"} <= record.keys()
    assert record["model"]["name"] == "llama-3.2-1b"
    assert record["num_accelerators"] == 8
    for plan in record["plans"]:
        assert plan.keys() >= CONTRACT
        assert plan["plan"].keys() == {field.name for field in fields(Plan)}
        assert math.isclose(sum(plan["breakdown_s"].values()), plan["step_time_s"], rel_tol=1e-9)
        assert len(plan["memory_bytes"]) == plan["plan"]["pp"]
        assert plan["feasible"] is True
        assert plan["reason"] is None


def test_plans_are_best_first_and_different() -> None:
    plans = answer("plan", *SMALL, *FEW, "--top", 4)["plans"]
    times = [plan["step_time_s"] for plan in plans]
    assert times == sorted(times)
    assert len({json.dumps(plan["plan"]) for plan in plans}) == len(plans) == 4


def test_the_command_line_and_python_agree() -> None:
    record = answer("plan", *SMALL, *FEW, "--top", 1)
    result = shardplan.search(
        shardplan.load_model("llama-3.2-1b"),
        shardplan.load_cluster("dgx-h100"),
        8,
        job=shardplan.Job(sequence_length=2048, global_batch_size=64),
        top=1,
        limit={"pp": (1, 2), "cp": (1,), "sharding": ("zero1", "zero3")},
    )
    assert record["plans"][0]["step_time_s"] == result.estimates[0].step_time
    assert record["num_plans_evaluated"] == result.num_plans_evaluated


def test_restrictions_hold() -> None:
    plans = answer(
        "plan", *SMALL, "--fix", "tp=2", "--limit", "pp=1,2", "--exclude", "sharding=zero3,hsdp", "--exclude", "pp=2"
    )["plans"]
    assert {plan["plan"]["tp"] for plan in plans} == {2}
    assert {plan["plan"]["pp"] for plan in plans} == {1}
    assert not {"zero3", "hsdp"} & {plan["plan"]["sharding"] for plan in plans}


def test_modules_of_recomputation_are_joined_by_plus() -> None:
    plans = answer("plan", *SMALL, *FEW, "--fix", "recompute=layernorm+mlp")["plans"]
    assert {plan["plan"]["recompute"] for plan in plans} == {"layernorm,mlp"}


def test_defaults_are_stated() -> None:
    result = run("plan", "llama-3.2-1b", "--accelerator", "h100-sxm-80gb", "--gpus", 8, *FEW, "--assumptions")
    assert result.exit_code == 0
    for text in ("sequence length 8,192", "global batch 512 sequences", "no cluster given", "latency of tier"):
        assert text in unwrapped(result.stdout)
    record = answer("plan", "llama-3.2-1b", "--accelerator", "h100-sxm-80gb", "--gpus", 8, *FEW)
    assumptions = record["plans"][0]["assumptions"]
    assert any("global batch" in text for text in assumptions)
    assert (
        "job fields at their defaults: precision bf16, optimizer adam, moment_dtype fp32, dropout false" in assumptions
    )
    assert any(text.startswith("stack megatron-lm: ") and "attention flash" in text for text in assumptions)
    assert any(text.startswith("not searched: offload none") for text in assumptions)
    assert record["job"]["sequence_length"] == 8192


def test_a_part_without_bf16_computes_in_what_it_has() -> None:
    record = answer("plan", "llama-3.2-1b", "--cluster", "dgx1-v100", "--gpus", 16, *FEW, "--top", 1)
    assert record["job"]["precision"] == "fp16"
    assert any(text.startswith("precision fp16") for text in record["plans"][0]["assumptions"])
    explicit = run("plan", "llama-3.2-1b", "--cluster", "dgx1-v100", "--gpus", 16, "--precision", "bf16")
    assert explicit.exit_code == 2


@pytest.mark.parametrize("gpus", [6, 10, 24])
def test_the_default_batch_suits_any_number_of_accelerators(gpus: int) -> None:
    assert answer("plan", "llama-3.2-1b", "--cluster", "dgx-h100", "--gpus", gpus, *FEW, "--top", 1)["plans"]


def test_the_job_is_the_users() -> None:
    flags = ("--precision", "fp8", "--optimizer", "muon", "--attention", "unfused", "--grad-dtype", "bf16")
    job = answer("plan", *SMALL, *FEW, *flags, "--moment-dtype", "bf16", "--dropout", "--tokens", "2T", "--top", 1)[
        "job"
    ]
    assert job.items() >= {
        "sequence_length": 2048, "global_batch_size": 64, "precision": "fp8", "optimizer": "muon",
        "attention": "unfused", "grad_dtype": "bf16", "moment_dtype": "bf16", "dropout": True, "tokens": 2e12,
    }.items()  # fmt: skip


def test_tokens_give_the_time_to_train() -> None:
    result = run("plan", *SMALL, *FEW, "--tokens", "2T")
    assert "for 2.00T tokens" in result.stdout


def test_overrides_change_the_cluster_and_are_stated() -> None:
    flags = ("--inter-node-bandwidth", "200Gb/s", "--memory", "141GB", "--peak-flops", "bf16=2PFLOP/s")
    record = answer("plan", *SMALL, *FEW, *flags, "--top", 1)
    assert record["cluster"]["tiers"][1]["bandwidth_bytes_per_s"] == 25e9
    assert record["cluster"]["accelerator"]["memory_bytes"] == 141e9
    assert record["cluster"]["accelerator"]["peak_flops_per_s"]["bf16"] == 2e15
    assert any("given by the user" in text for text in record["plans"][0]["assumptions"])


def test_a_file_gets_the_same_as_standard_output(tmp_path: Path) -> None:
    path = tmp_path / "plans.json"
    result = run("plan", *SMALL, *FEW, "--json", path)
    assert result.exit_code == 0
    assert any(line.startswith("Fits ") for line in result.stdout.splitlines()[:6])
    assert "has everything" in unwrapped(result.stdout)
    assert f"shardplan estimate --from {path} " in unwrapped(result.stdout)
    written, shown = json.loads(path.read_text()), answer("plan", *SMALL, *FEW)
    for record in (written, shown):
        del record["search_time_s"], record["fewer"]["search_time_s"]
    assert written == shown
    assert list(tmp_path.iterdir()) == [path]
    assert read_plan_file(path).pick(1).feasible


def test_the_explanation_is_in_the_file() -> None:
    explanation = answer("plan", *SMALL, *FEW)["explanation"]
    assert explanation["alternatives"]
    assert 0 < explanation["compute_share"] < 1


def test_where_nothing_fits_the_answer_is_no_and_says_what_would() -> None:
    big = ("llama-3.1-405b", "--cluster", "dgx-h100", "--gpus", 16, "--fix", "cp=1")
    result = run("plan", *big, "--all")
    assert result.exit_code == 1
    parts = ("Nothing fits.", "Least    tp", "What would fit", "Searched", "Assumptions")
    assert sorted(parts, key=result.stdout.index) == list(parts)
    of_maker = "global batch 2,048 sequences (16.8 M tokens): that of the model's maker, arXiv 2407.21783"
    assert of_maker in unwrapped(result.stdout)
    assert "--gpus 128" in unwrapped(result.stdout)
    record = answer("plan", *big, status=1)
    assert record["plans"] == []
    assert record["num_plans_feasible"] == 0
    assert record["suggestions"]
    assert record["smallest"]["feasible"] is False
    assert "too much" in record["smallest"]["reason"]


def test_where_no_plan_is_valid_the_answer_is_no() -> None:
    result = run("plan", *SMALL, "--fix", "tp=3")
    assert result.exit_code == 1
    assert "No plan is valid." in unwrapped(result.stdout)
    assert "leave tp free" in unwrapped(result.stdout)
    assert answer("plan", *SMALL, "--fix", "tp=3", status=1)["num_plans_evaluated"] == 0


def test_a_config_file_of_ones_own(tmp_path: Path) -> None:
    config = {
        "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000, "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    record = answer("plan", path, "--cluster", "dgx-h100", "--gpus", 2, *FEW, "--top", 1)
    assert record["model"]["hidden_size"] == 256
    assert record["model"]["num_hidden_layers"] == 2


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("columns", [60, 80, 100, 140])
def test_ties_are_marked_and_explained(columns: int) -> None:
    result = run("plan", *SMALL, "--explain", columns=columns)
    lines = result.stdout.splitlines()
    broken = [line for line in lines if not line.startswith("  shardplan ")]  # what is copied stays one line
    assert max(map(len, broken)) <= columns or columns < 80
    text = unwrapped(result.stdout)
    assert "are too close to call, by measured pairs of configurations" in text
    assert "* take this one" in text
    start = next(number for number, line in enumerate(lines) if line.startswith("Best plans"))
    rows = [line.split() for line in lines[start:] if line.startswith("  ")]
    assert sum("*" in row[:2] for row in rows) >= 1
    ties = answer("plan", *SMALL)["num_plans_tied"]
    assert f" {ties:,} of the " in text


def test_the_recommended_plan_is_shown_with_its_reason_and_its_flags(tmp_path: Path) -> None:
    flags = ("plan", "llama-3.1-70b", "--cluster", "dgx-h100", "--gpus", 512, "--top", 3)
    result, record = run(*flags, "--explain", "--json", tmp_path / "p.json", columns=100), answer(*flags)
    found = record["recommended"]
    assert found["plan"]["plan"] != record["plans"][0]["plan"]
    text = unwrapped(result.stdout)
    assert found["reason"] in text
    assert "--pick 1,recommended" in text
    assert "Fastest plan 1 below: " in text
    assert "The fastest as flags of `shardplan estimate`: " in text
    assert len(record["plans"]) == 3


def test_the_answer_is_one_screen_and_starts_with_the_recommended_plan() -> None:
    asked = ("plan", "llama-3.1-70b", "--cluster", "dgx-h100", "--gpus", 512, "--tokens", "15T")
    lines = run(*asked).stdout.splitlines()
    assert len(lines) <= 46
    record = answer(*asked)
    best = record["recommended"]["plan"]
    assert lines[3].startswith("Fits ")
    assert f"{format_time(best['step_time_s'])} a step" in lines[3]
    first = unwrapped("\n".join(lines[:19]))
    for text in (f"tp {best['plan']['tp']} ", "80 % band", "per accelerator", "MFU", "accelerator-hours", "Runs on"):
        assert text in first
    assert sum(line.startswith("  ") and "communication" in line for line in lines) <= 5


def test_what_the_user_set_is_in_the_first_lines() -> None:
    given = ("--memory", "60GB", "--software", "kernels=eager", "--fix", "tp=2", "--attention", "unfused")
    head = unwrapped("\n".join(run("plan", *SMALL, *FEW, *given).stdout.splitlines()[:6]))
    assert "You set memory 60GB; kernels eager; attention unfused; fix tp=2; limit pp=1,2" in head


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("kernel=eager", "unknown name of --software 'kernel'"),
        ("kernels=slow", "unknown kernels 'slow'"),
        ("fused_loss=perhaps", "fused_loss is 'perhaps'; it must be true or false"),
        ("kernels", "takes name=value"),
    ],
)
def test_software_that_is_none_is_refused(given: str, said: str) -> None:
    assert said in refused("plan", *SMALL, "--software", given)


def test_a_file_starts_from_the_recommended_plan(tmp_path: Path) -> None:
    path = tmp_path / "plans.json"
    assert run("plan", *SMALL, "--json", path).exit_code == 0
    wanted = json.loads(path.read_text())["recommended"]["plan"]
    again = answer("estimate", "--from", path, "--pick", "recommended")["plans"][0]
    assert again["plan"] == wanted["plan"]
    assert again["step_time_s"] == wanted["step_time_s"]
    assert run("estimate", "--from", path, "--pick", "recommend").exit_code == 2


def test_a_pruned_search_has_the_same_answer_and_says_what_it_left_out() -> None:
    """The ten best plans, the recommended plan and the alternatives; counts are of what was priced."""
    whole, pruned = answer("plan", *SMALL), answer("plan", *SMALL, "--prune")
    same = {"plans", "recommended", "explanation", "rejected", "space", "tie_factor", "num_plans_tied"}
    assert {name: pruned[name] for name in same} == {name: whole[name] for name in same}
    assert pruned["num_plans_evaluated"] + pruned["num_plans_pruned"] == whole["num_plans_evaluated"]
    assert whole["num_plans_pruned"] == 0 < pruned["num_plans_pruned"]
    text = unwrapped(run("plan", *SMALL, "--prune", "--explain").stdout)
    assert f"of at least {pruned['num_plans_feasible']:,} that fit" in text
    assert f"{pruned['num_plans_pruned']:,} were not priced" in text


def test_pruning_is_of_one_framework() -> None:
    """All frameworks side by side are compared with their counts."""
    result = answer("plan", *SMALL, "--prune", "--stack", "all", status=2)
    assert "both --stack all and --prune are given" in json.dumps(result)


def test_idle_accelerators_are_in_the_first_line_and_in_the_file(tmp_path: Path) -> None:
    """40 accelerators have a factor of five, which suits neither the model nor the batch."""
    path, of_batch = str(tmp_path / "plans.json"), ("--global-batch-size", "128", "--fix", "cp=1")
    asked = ("llama-3.2-1b", "--cluster", "dgx-h100", "--gpus", "40", *of_batch, "--limit", "sharding=zero1")
    text = unwrapped(run("plan", *asked, "--json", path).stdout)
    assert "uses 32 of 40: 4 of 5 nodes; 8 idle" in text.partition("parameters")[0]
    file = read_plan_file(path)
    assert (file.question.num_accelerators, file.question.num_idle) == (32, 8)
    again = answer("estimate", "--from", path, "--pick", "recommended")["plans"][0]
    wanted = file.pick("recommended")
    assert (again["step_time_s"], again["mfu"]) == (wanted.step_time, wanted.mfu)
    assert answer("estimate", "--from", path, "--gpus", "32")["num_idle"] == 0
    everything = answer("plan", *asked, "--use-all")
    assert (everything["num_accelerators"], everything["num_idle"], everything["fewer"]) == (40, 0, None)
    assert everything["plans"][0]["step_time_s"] > wanted.step_time
