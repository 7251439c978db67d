"""``shardplan simulate --measured``."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from tests.cli.commands import SMALL, answer, refused, run, unwrapped
from tests.simulation.measured.files import annotation, dump_of, kernel, trace, write_dump, write_table

FLAT = (*SMALL, "--tp", 1, "--vp", 1, "--micro-batch-size", 1)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """8 ranks and 16 micro-batches, as the published steps have."""
    file = tmp_path_factory.mktemp("plans") / "plan.json"
    flags = [flag if flag != "64" else "16" for flag in map(str, FLAT)]
    assert run("estimate", *flags, "--pp", 8, "--json", file).exit_code == 0
    return file


def simulated_passes(plan: Path, folder: Path) -> Path:
    """The events of the plan's own simulated step as a table of passes."""
    out = folder / "predicted-trace.json"
    assert run("simulate", plan, "--out", out).exit_code == 0
    events = [each for each in json.loads(out.read_text())["traceEvents"] if each.get("cat") in {"forward", "backward"}]
    rows = []
    for each in events:
        kind, start = "F" if each["cat"] == "forward" else "BW", each["ts"] * 1e-6
        place = each["args"]
        rows.append((each["pid"] - 1, kind, place["chunk"], place["micro-batch"], start, start + each["dur"] * 1e-6))
    return write_table(folder / "passes.csv", rows)


def test_a_prediction_laid_over_itself_agrees(plan: Path, tmp_path: Path) -> None:
    record = answer("simulate", "--measured", simulated_passes(plan, tmp_path), "--against", plan)
    passes = record["passes"]
    assert passes["predicted_pipeline_time_s"] == pytest.approx(passes["pipeline_time_s"], rel=1e-4)
    assert passes["with_measured_stage_times_s"] == pytest.approx(passes["pipeline_time_s"], rel=1e-3)
    assert passes["forward_ratio"] == pytest.approx(1, rel=1e-3)
    assert passes["backward_ratio"] == pytest.approx(1, rel=1e-3)
    assert passes["order_is_predicted"]
    assert passes["slow_passes"] == []
    for rank in passes["ranks"]:
        assert rank["bubble_rate"]["measured"] == pytest.approx(rank["bubble_rate"]["predicted"], abs=1e-3)


def test_a_measured_dump_next_to_a_plan(plan: Path, tmp_path: Path) -> None:
    paths = write_dump(tmp_path, dump_of("1f1b"))
    record = answer("simulate", "--measured", *paths, "--against", plan)
    assert record["step"] == "11"
    assert record["passes"]["order_is_predicted"]
    slow = record["passes"]["slow_passes"][0]
    assert (slow["rank"], slow["microbatch"], slow["direction"]) == (0, 7, "forward")
    assert slow["time_s"] == pytest.approx(0.749853 - 0.409849)
    assert record["passes"]["ranks"][7]["peak_memory_bytes"]["measured"] == pytest.approx(52.203 * 2**30)
    text = unwrapped(run("simulate", "--measured", *paths, "--against", plan).stdout)
    assert "Every stage ran its passes in the order of schedule 1f1b." in text
    assert "forward pass of micro-batch 7 in chunk 0 on stage 0: 340 ms" in text


def test_another_order_is_named(plan: Path, tmp_path: Path) -> None:
    ranks = dump_of("1f1b")
    for key in ("fwd_start", "fwd_end"):
        late = 1e4 if key == "fwd_start" else 1e4 + 60
        ranks[7][key][-1] = late  # the last forward pass of the last rank, after the backward pass before it
    ranks[7]["bwd_start"][-1], ranks[7]["bwd_end"][-1] = 2e4, 2e4 + 70
    assert answer("simulate", "--measured", *write_dump(tmp_path, ranks), "--against", plan)["passes"][
        "order_is_predicted"
    ]
    last = ranks[0]
    last["fwd_start"][8], last["fwd_end"][8] = 760.0, 800.0  # before the first backward pass
    record = answer("simulate", "--measured", *write_dump(tmp_path, ranks), "--against", plan)
    assert record["passes"]["first_other_pass"] == {
        "measured": {"rank": 0, "chunk": 0, "microbatch": 8, "direction": "forward"},
        "predicted": {"rank": 0, "chunk": 0, "microbatch": 0, "direction": "backward"},
    }
    assert "The order is not that of schedule 1f1b" in unwrapped(
        run(
            "simulate", "--measured", *(tmp_path / f"pp_rank_{rank}.json" for rank in range(8)), "--against", plan
        ).stdout
    )


def test_measured_times_of_stages_answer_what_another_schedule_would_do(plan: Path, tmp_path: Path) -> None:
    paths, stages = write_dump(tmp_path, dump_of("1f1b")), tmp_path / "stages.csv"
    assert run("simulate", "--measured", *paths, "--against", plan, "--stages-out", stages).exit_code == 0
    rows = list(csv.DictReader(stages.read_text().splitlines()))
    assert set(rows[0]) == {"stage", "forward_s", "input_gradient_s", "weight_gradient_s", "transfer_s"}
    again = answer("simulate", plan, "--stages", stages)
    measured = answer("simulate", "--measured", *paths, "--against", plan)["passes"]
    assert again["pipeline_time_s"] == pytest.approx(measured["with_measured_stage_times_s"], rel=1e-6)
    assert answer("simulate", plan, "--stages", stages, "--schedule", "zb-h1")["bubble_rate"] < again["bubble_rate"]


def test_a_trace_has_measured_ranks_next_to_predicted_ones(plan: Path, tmp_path: Path) -> None:
    paths, out = write_dump(tmp_path, dump_of("1f1b")), tmp_path / "both.json"
    assert run("simulate", "--measured", *paths, "--against", plan, "--out", out).exit_code == 0
    events = json.loads(out.read_text())["traceEvents"]
    names = [each["args"]["name"] for each in events if each["name"] == "process_name"]
    assert names[:3] == ["0 measured", "0 predicted", "1 measured"]
    passes = {
        rank: [each for each in events if each.get("cat") == "forward" and each["pid"] == rank + 1] for rank in (0, 1)
    }
    assert len(passes[0]) == len(passes[1]) == 16
    assert passes[0][0]["ts"] == pytest.approx(passes[1][0]["ts"])  # both from the first pass on
    assert answer("simulate", "--measured", *paths, "--out", tmp_path / "alone.json")["plan"] is None


def test_kernels_next_to_the_terms_of_a_plan(tmp_path: Path) -> None:
    flat = tmp_path / "flat.json"
    assert run("estimate", *FLAT, "--pp", 1, "--json", flat).exit_code == 0
    path = tmp_path / "trace.json"
    marks = [annotation("ProfilerStep#2", 0, 90), annotation("ProfilerStep#3", 100, 90)]
    path.write_text(trace([kernel("nvjet_hsh_128x128", 0, 80), kernel("nvjet_hsh_128x128", 100, 80), *marks]))
    record = answer("simulate", "--measured", path, "--against", flat)
    (profile,) = record["profiles"]
    assert record["passes"] is None
    terms = {term["name"]: term for term in profile["terms"]}
    assert terms["matmul"]["measured_s"] == pytest.approx(80e-6)
    assert profile["predicted_step_time_s"] == pytest.approx(
        sum(term["predicted_s"] or 0.0 for term in profile["terms"] if not term["is_sum"])
    )
    text = unwrapped(run("simulate", "--measured", path, "--against", flat).stdout)
    assert "matrix products" in text
    assert record["notes"] == []
    path.write_text(trace([kernel("nvjet", 0, 80), *marks], world_size=16))
    (note,) = answer("simulate", "--measured", path, "--against", flat)["notes"]
    assert note == "The trace is of a run on 16 accelerators, the plan is for 8."
    assert run("simulate", "--measured", path, "--out", tmp_path / "out.json").exit_code == 2  # it marks no passes


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--measured",), "--measured is given without files"),
        (("plan.json", "--step", 3), "--step is given without --measured"),
        (("plan.json", "other.json"), "2 files are given"),
        (("--measured", "pp_rank_0.json", "--jitter", 0.1), "--jitter is given with --measured"),
        (("--measured", "pp_rank_0.json", "--schedule", "zb-h1"), "--schedule is given with --measured"),
        (("--measured", "pp_rank_0.json"), "'pp_rank_0.json': it does not exist"),
    ],
)
def test_flags_that_do_nothing_are_refused(
    arguments: tuple[object, ...], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert why in refused("simulate", *arguments)


def test_the_plan_is_the_one_that_was_measured(plan: Path, tmp_path: Path) -> None:
    told = refused("simulate", "--measured", *write_dump(tmp_path, dump_of("interleaved"), vp=2), "--against", plan)
    assert "has 32 forward passes, and the schedule of the plan has 16" in told


def test_no_measured_file_is_written_over(tmp_path: Path) -> None:
    paths = write_dump(tmp_path, dump_of("1f1b"))
    before = paths[0].read_bytes()
    for flag in ("--stages-out", "--out", "--json"):
        assert run("simulate", "--measured", *paths, flag, paths[0], "--force").exit_code == 2
        assert paths[0].read_bytes() == before
