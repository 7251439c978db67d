"""``shardplan simulate`` and ``shardplan schedules``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import SMALL, answer, refused, run
from tests.workplace import EXAMPLES

from shardplan.physics.schedules.registry import list_all_schedules

CASE = {
    "schedule": "1f1b", "num_ranks": 4, "num_microbatches": 8, "chunks_per_rank": 1, "forward_s": 1.0,
    "input_gradient_s": 1.0, "weight_gradient_s": 1.0, "transfer_s": 0.0,
}  # fmt: skip


def case(folder: Path, **fields: Any) -> Path:
    file = folder / "case.json"
    file.write_text(json.dumps({key: value for key, value in {**CASE, **fields}.items() if value is not None}))
    return file


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("plans") / "plan.json"
    assert run("estimate", *SMALL, "--tp", 1, "--pp", 4, "--vp", 1, "--json", file).exit_code == 0
    return file


def test_a_case_with_times(tmp_path: Path) -> None:
    """8 x 3 s of work, and 3 x 3 s to fill and drain."""
    record = answer("simulate", "--times", case(tmp_path))
    assert record["step_time_s"] == record["closed_form_step_time_s"] == 33
    assert record["bubble_rate"] == pytest.approx(9 / 33)
    ranks = [(rank["busy_s"], rank["idle_s"], rank["peak_in_flight"]) for rank in record["ranks"]]
    assert ranks == [(24, 9, 4 - rank) for rank in range(4)]


def test_times_of_every_chunk(tmp_path: Path) -> None:
    record = answer("simulate", "--times", case(tmp_path, forward_s=[1, 1, 1, 2], num_microbatches=4))
    assert [rank["busy_s"] for rank in record["ranks"]] == [12, 12, 12, 16]


def test_a_schedule_without_closed_form_says_so(tmp_path: Path) -> None:
    names = [name for name in list_all_schedules() if name.startswith("v-")]
    for name in names:
        assert (
            answer("simulate", "--times", case(tmp_path, schedule=name, chunks_per_rank=None))[
                "closed_form_step_time_s"
            ]
            is None
        )


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"schedule": "1f2b"}, "unknown schedule '1f2b'"),
        ({"num_ranks": 0}, "num_ranks is 0"),
        ({"num_ranks": "four"}, "num_ranks is 'four'"),
        ({"num_ranks": None}, "num_ranks is missing"),
        ({"forward_s": -1.0}, "forward_s is -1.0"),
        ({"forward_s": [1.0, 1.0]}, "forward_s has 2 times for 4 chunks"),
        ({"forward_s": 0, "input_gradient_s": 0}, "some pass must take time"),
        ({"forwards_s": 1.0}, "did you mean forward_s"),
        ({"chunks_per_rank": 2}, "schedule 1f1b cannot run 8 micro-batches on 4 ranks with 2 chunks"),
        ({"schedule": "dualpipe"}, "use"),
        ({"max_in_flight": 3}, "max_in_flight is 3"),
        ({"num_microbatches": 10**8}, "forward passes of chunks"),
    ],
)
def test_what_is_wrong_with_a_case_is_said(tmp_path: Path, fields: dict[str, Any], why: str) -> None:
    if fields.get("schedule") == "dualpipe":
        fields = {**fields, "num_microbatches": 9}
    told = refused("simulate", "--times", case(tmp_path, **fields))
    assert why in told
    assert "hint" in told


def test_a_plan_next_to_its_closed_form(plan: Path) -> None:
    record = answer("simulate", plan)
    estimated = json.loads(plan.read_text())["plans"][0]["step_time_s"]
    assert record["closed_form_step_time_s"] == estimated
    assert record["step_time_s"] == pytest.approx(estimated, rel=0.05)
    assert record["step_time_s"] > record["pipeline_time_s"] > max(rank["busy_s"] for rank in record["ranks"])
    assert [rank["peak_in_flight"] for rank in record["ranks"]] == [4, 3, 2, 1]


def test_all_schedules_of_a_plan(plan: Path, tmp_path: Path) -> None:
    """Zero bubble waits less than 1F1B, and that keeps less than GPipe and waits no longer (arXiv 2401.10241)."""
    record = answer("simulate", plan, "--schedule", "all")
    found = {row["schedule"]: row for row in record["schedules"]}
    assert {*found, *record["refused"]} == set(list_all_schedules())
    times = [row["step_time_s"] for row in record["schedules"]]
    assert times == sorted(times)
    assert found["1f1b"]["is_own"]
    assert found["1f1b"]["step_time_s"] == answer("simulate", plan)["step_time_s"]
    assert found["zb-h1"]["bubble_rate"] < found["1f1b"]["bubble_rate"] == pytest.approx(found["gpipe"]["bubble_rate"])
    assert found["1f1b"]["peak_memory_bytes"] < found["gpipe"]["peak_memory_bytes"]
    assert "*  1f1b" in run("simulate", plan, "--schedule", "all").stdout
    assert "--schedule all is given with --svg" in refused(
        "simulate", plan, "--schedule", "all", "--svg", tmp_path / "a.svg"
    )


def test_jitter_is_repeatable(plan: Path) -> None:
    calm = answer("simulate", plan)["step_time_s"]
    first, again, other = (
        answer("simulate", plan, "--jitter", "0.1", "--seed", seed)["step_time_s"] for seed in (1, 1, 2)
    )
    assert first == again != other
    assert first == pytest.approx(calm, rel=0.1)


def test_another_schedule_and_measured_stages(plan: Path, tmp_path: Path) -> None:
    assert answer("simulate", plan, "--schedule", "zb-h1")["schedule"] == "zb-h1"
    assert answer("simulate", plan, "--schedule", "eager-1f1b")["schedule"] == "eager-1f1b"
    stages = tmp_path / "stages.csv"
    stages.write_text("forward_s,backward_s\n" + "1.0,2.0\n" * 4)
    record = answer("simulate", plan, "--stages", stages)
    num_microbatches = json.loads(plan.read_text())["plans"][0]["num_microbatches"]
    assert record["pipeline_time_s"] == 3 * (num_microbatches + 3)
    assert record["closed_form_step_time_s"] is None
    stages.write_text("forward_s,backward_s\n1.0,2.0\n1.0,two\n1.0,2.0\n1.0,2.0\n")
    assert "row 3: backward_s is 'two'" in refused("simulate", plan, "--stages", stages)


@pytest.mark.parametrize("schedule", ["interleaved", "zb-v", "v-half"])
def test_the_command_of_a_hint_writes_a_plan_that_the_schedule_can_run(
    plan: Path, tmp_path: Path, schedule: str
) -> None:
    text = refused("simulate", plan, "--schedule", schedule)
    (command,) = re.findall(r"`shardplan (.*?)`", text)
    names = re.findall(r"this plan runs under (.*?);", text)[0].split(", ")
    assert schedule not in names
    assert {"1f1b", "gpipe", "zb-h1"} <= set(names)
    other = tmp_path / "other.json"
    assert run(*command.replace("PLAN.json", str(plan)).replace("FILE", str(other)).split()).exit_code in (0, 1)
    assert run("simulate", other, "--schedule", schedule).exit_code == 0


def test_an_order_of_a_file(plan: Path, tmp_path: Path) -> None:
    order = tmp_path / "order.csv"
    order.write_text("0F0,0F1,,0B0,0B1\n,1F0,1B0,1F1,1B1\n")
    of_file = {"schedule": str(order), "num_ranks": 2, "num_microbatches": 2}
    assert answer("simulate", "--times", case(tmp_path, **of_file))["step_time_s"] == 9
    order.write_text("0F0,0F1,,0B0,0B1\n,1F0,1B0,1F1\n")
    told = refused("simulate", "--times", case(tmp_path, **of_file))
    assert "micro-batch 1 in stage 1 is missing on rank 1 (row 2 of order.csv)" in told
    assert run("simulate", plan, "--schedule", order).exit_code == 2


@pytest.mark.parametrize("arguments", [(), ("plan.json", "--times", "case.json")])
def test_one_of_plan_and_case_is_given(arguments: tuple[str, ...]) -> None:
    assert "give a plan file, or --times with a case" in refused("simulate", *arguments)


def test_the_example_is_a_row_of_the_zero_bubble_paper() -> None:
    """arXiv 2401.10241, table 5: ZB-H1, 1.5B, 24 micro-batches."""
    assert round(answer("simulate", "--times", EXAMPLES / "step-times.json")["bubble_rate"], 4) == 0.1585


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_every_schedule_is_listed_and_drawn(columns: int) -> None:
    listed = run("schedules", columns=columns)
    assert listed.exit_code == 0
    for name in list_all_schedules():
        assert name in listed.stdout
    for name in ("zb-h1", "interleaved", "zb-2p"):
        drawn = run("schedules", name, columns=columns)
        assert drawn.exit_code == 0
        assert max(map(len, drawn.stdout.splitlines())) <= columns


def test_records_of_schedules() -> None:
    listed = {each["name"]: each for each in answer("schedules")["schedules"]}
    assert list(listed) == list_all_schedules()
    assert listed["1f1b"]["bubble_rate_equal"] == pytest.approx(7 / 39)
    assert listed["zb-v"]["bubble_rate_equal"] == 0
    assert listed["dualpipe"]["parameter_copies"] == 2
    assert "megatron-lm" in listed["interleaved"]["frameworks"]
    one = answer("schedules", "zb-h1")
    assert {key: one[key] for key in listed["zb-h1"]} == listed["zb-h1"]
    assert run("schedules", "zb-h7").exit_code == 2


def test_a_slow_rank_sets_the_pace(plan: Path, tmp_path: Path) -> None:
    """Rank 1 takes twice as long: 8 x 6 s, 1 s before it, 2 s after it, and a wait of 2 s.

    It ends three forward passes at 7 s; the first gradient has come back through ranks 2 and 3 at 9 s.
    """
    assert answer("simulate", "--times", case(tmp_path), "--slow-rank", "1=2")["step_time_s"] == 1 + 8 * 6 + 2 + 2
    every = answer("simulate", "--times", case(tmp_path), "--slow-rank", "0=2,1=2", "--slow-rank", "2=2,3=2")
    assert every["step_time_s"] == 2 * 33
    assert answer("simulate", plan, "--slow-rank", "3=1.2")["step_time_s"] > answer("simulate", plan)["step_time_s"]


def test_replicas_wait_for_the_slowest(tmp_path: Path) -> None:
    """One of four takes 5 % longer, and so does the step; those that are alike are simulated once."""
    record = answer("simulate", "--times", case(tmp_path), "--replicas", 4, "--slow-replica", "1=1.05")
    assert record["step_time_s"] == pytest.approx(33 * 1.05)
    assert record["replicas"] == {"number": 4, "slowest": 1, "longest_wait_s": pytest.approx(33 * 0.05)}
    few = answer("simulate", "--times", case(tmp_path), "--slow-replica", "1=1.05")
    assert few["step_time_s"] == record["step_time_s"]
    text = run("simulate", "--times", case(tmp_path), "--slow-replica", "1=1.05").stdout
    assert "Replica 1 of 2 (from 0) takes longest" in text


def test_more_replicas_with_jitter_never_end_sooner(plan: Path) -> None:
    """The first replica has the random numbers of a simulation of one; the step is that of the slowest."""
    times = [answer("simulate", plan, "--jitter", "0.1", "--replicas", number)["step_time_s"] for number in (1, 2)]
    assert times[0] <= times[1]


def test_imbalanced_experts(tmp_path: Path) -> None:
    """As the estimate prices them: with the job's own imbalance the step is the same."""
    files = [tmp_path / name for name in ("even.json", "uneven.json")]
    asked = ("qwen3-30b-a3b", "--cluster", "dgx-h100", "--gpus", 16, "--global-batch-size", 64, "--pp", 2, "--ep", 8)
    assert run("estimate", *asked, "--json", files[0]).exit_code in (0, 1)
    assert run("estimate", *asked, "--routing", 1.3, "--json", files[1]).exit_code in (0, 1)
    even, uneven = (answer("simulate", file)["step_time_s"] for file in files)
    assert even < uneven
    assert answer("simulate", files[0], "--expert-imbalance", "1.3")["step_time_s"] == pytest.approx(uneven, rel=1e-12)


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--slow-rank", "4=1.2"), "rank 4 is slow; there are 4, numbered from 0"),
        (("--slow-rank", "1"), "must be a number and a factor"),
        (("--slow-rank", "1=fast"), "it must be a number above 0"),
        (("--slow-rank", "1=nan"), "it must be a number above 0"),
        (("--slow-rank", "1=0"), "it must be a number above 0"),
        (("--slow-rank", "1=-2"), "it must be a number above 0"),
        (("--slow-rank", "1=1000"), "is slower by a factor of 1000"),
        (("--slow-rank", "-1=2"), "--slow-rank is '-1'"),
        (("--slow-rank", "1=2,1=3"), "--slow-rank names 1 twice"),
        (("--slow-replica", "5=1.1", "--replicas", "2"), "replica 5 is slow; there are 2"),
        (("--slow-replica", "0=1e-9"), "is slower by a factor of 1e-09"),
        (("--replicas", "0"), "--replicas is '0'"),
        (("--replicas", "100000"), "--replicas is '100000'"),
        (("--replicas", "4"), "4 replicas are asked for; the plan has dp 2"),
        (("--expert-imbalance", "1.3"), "has no experts"),
        (("--expert-imbalance", "0.5"), "it must be a number from 1 to 1000"),
        (("--expert-imbalance", "many"), "it must be a number from 1 to 1000"),
    ],
)
def test_disturbances_that_make_no_sense(plan: Path, flags: tuple[str, ...], why: str) -> None:
    assert why in refused("simulate", plan, *flags)


def test_a_case_has_no_experts(tmp_path: Path) -> None:
    told = refused("simulate", "--times", case(tmp_path), "--expert-imbalance", "1.3")
    assert "both --times and --expert-imbalance are given" in told
