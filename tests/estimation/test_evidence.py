"""The measured runs that are nearest to a question: a distance, and what is told of them."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardplan
from shardplan.estimation.band import band_of, features_of, shipped_errors
from shardplan.estimation.estimate import Estimate, estimate_plan
from shardplan.estimation.evidence import (
    ALL,
    NEIGHBOURHOOD,
    NUM_NEAREST,
    RESPECTS,
    WEIGHTS,
    KnownRuns,
    NearRun,
    distance,
    near_runs,
    spread,
)
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan, plan_cell, plan_from_cell, plan_summary
from shardplan.inputs.profile import load_profile
from shardplan.inputs.readers.residuals import Features, Residual, Shares, read_residuals
from shardplan.reports.plan_file import PlanFile, plan_file_from_record, plan_file_record

POWERS = st.sampled_from([1, 2, 4, 8, 16])
PLANS = st.builds(
    Plan,
    tp=POWERS,
    cp=POWERS,
    pp=POWERS,
    vp=POWERS,
    ep=POWERS,
    etp=POWERS,
    micro_batch_size=POWERS,
    sharding=st.sampled_from(["ddp", "zero1", "zero2", "zero3", "hsdp"]),
    recompute=st.sampled_from(["none", "selective", "full", "mlp,activation", "op_sac"]),
    offload=st.sampled_from(["none", "optimizer", "activations"]),
    cp_comm=st.sampled_from(["p2p", "allgather", "a2a"]),
    sequence_parallel=st.booleans(),
    overlap_tp=st.booleans(),
    overlap_dp=st.booleans(),
    overlap_pp=st.sampled_from([None, True, False]),
    stage_layers=st.sampled_from([None, (3, 4), (0, 12)]),
)
ASKED = st.builds(
    Features,
    accelerator=st.sampled_from(["h100", "a100"]),
    generation=st.sampled_from(["hopper", "ampere"]),
    bits=st.sampled_from([8, 16, 32]),
    moe=st.booleans(),
    parameters=st.floats(1e6, 1e13),
    accelerators=st.integers(1, 100_000).map(float),
    sequence_length=st.integers(1, 2_000_000).map(float),
    global_batch_size=st.integers(1, 100_000).map(float),
    plan=PLANS,
    shares=st.just(Shares()),
    trained=st.sampled_from(["all", "adapters"]),
    recurrent=st.floats(0, 1),
)
H100 = Features(accelerator="h100", generation="hopper", bits=16, moe=False, parameters=8e9, accelerators=64)


def question(**job: Any) -> Question:
    return Question(
        model=shardplan.load_model("llama-3.1-70b"),
        cluster=shardplan.load_cluster("dgx-h100"),
        num_accelerators=64,
        job=shardplan.Job(**{"sequence_length": 8192, "global_batch_size": 128} | job),
    )


@given(ASKED, ASKED)
def test_a_distance_is_symmetric_and_zero_on_itself(one: Features, other: Features) -> None:
    assert distance(one, one) == 0
    assert distance(one, other) == pytest.approx(distance(other, one))
    assert distance(one, other) >= distance(one, other, NEIGHBOURHOOD) >= 0


@given(ASKED, ASKED)
def test_shares_of_a_step_are_no_distance_and_runs_in_a_table_are_as_alone(one: Features, other: Features) -> None:
    table = KnownRuns([Residual(id="", family="", features=each, time=0.0, memory=None) for each in (one, other)])
    assert table.distance(one).tolist() == pytest.approx([0, distance(other, one)])


@pytest.mark.parametrize(
    ("change", "squared"),
    [
        ({"tp": 2}, 1 + 0.25),  # with sequence parallelism
        ({"tp": 8, "sequence_parallel": False}, 9.0),
        ({"cp": 2}, 1 + 1 + 0.25),  # the degree, half the tokens on a rank, and how they are exchanged
        ({"pp": 2}, 0.25 + 0.25),  # and the schedule
        ({"vp": 4}, 4 * 0.25),  # no pipeline: nothing else of it changes
        ({"pp": 2, "vp": 2}, 2 * 0.25 + 0.25 + 0.25),  # and schedule and overlap
        ({"pp": 2, "vp": 2, "overlap_pp": False}, 2 * 0.25 + 0.25),
        ({"pp": 2, "overlap_pp": True}, 0.25 + 0.25 + 0.25),
        ({"micro_batch_size": 4}, 4 * 0.25),
        ({"sharding": "ddp"}, 0.25),
        ({"sharding": "zero3"}, 1.25),
        ({"recompute": "full"}, 1.0),
        ({"recompute": "selective"}, 1 / 16),
        ({"offload": "optimizer"}, 1.0),
        ({"overlap_dp": False}, 0.25),
        ({"overlap_tp": True}, 0.0),  # at tp 1
        ({"overlap_ep": True}, 0.0),
        ({"sequence_parallel": False}, 0.0),
        ({"cp_comm": "a2a"}, 0.0),
    ],
)
def test_distances_by_hand(change: dict[str, Any], squared: float) -> None:
    other = H100._replace(plan=Plan(**change))
    assert distance(H100, other) == distance(H100, other, NEIGHBOURHOOD) == pytest.approx(math.sqrt(squared))


@pytest.mark.parametrize(
    ("change", "squared"),
    [
        ({"generation": "ampere"}, 1.0),
        ({"accelerator": "h200"}, 0.5),
        ({"moe": True}, 4.0),
        ({"trained": "adapters"}, 4.0),
        ({"bits": 8}, 1.0),
        ({"parameters": 8e10}, 1.0),
        ({"accelerators": 640, "global_batch_size": 2560.0}, 1.0),
        ({"accelerators": 128}, math.log10(2) ** 2 + 1 / 16),
        ({"global_batch_size": 1024.0}, 4 / 16),
        ({"sequence_length": 8192.0}, 0.25 + 1 + 1 / 16),
        ({"sequence_length": 32768.0}, 9 / 4 + 2**2 + 9 / 16),  # from 16,384 tokens of a rank on more are alike
    ],
)
def test_distances_of_questions_by_hand(change: dict[str, Any], squared: float) -> None:
    other = H100._replace(**change)
    assert distance(H100, other) == pytest.approx(math.sqrt(squared))
    run = Residual(id="", family="", features=other, time=0.0, memory=None)
    assert float(KnownRuns([run]).terms(H100).sum()) == pytest.approx(squared)


def test_plans_of_models_with_recurrent_layers_have_neighbourhoods_of_their_own() -> None:
    """Three layers in four without attention are further than a doubling of tp."""
    other = H100._replace(recurrent=0.75)
    assert distance(H100, other) == distance(H100, other, NEIGHBOURHOOD) == pytest.approx(math.sqrt(4 * 0.75**2))


def test_the_nearest_run_of_a_runs_own_question_is_itself() -> None:
    """Or a repeat of it: one of the same distance, none."""
    table = shipped_errors("time").table
    for run in table.runs[::7]:
        found = near_runs(run.features, table, number=len(table.runs))
        assert run.id in {near.id for near in found if near.distance == 0}
        distances = [near.distance for near in found]
        assert distances == sorted(distances)


def test_a_profiles_own_runs_count_as_evidence() -> None:
    asked = replace(question(), given_profile=replace(load_profile("hopper"), left_out_errors=()))
    plan = Plan(tp=4, pp=4, vp=5)
    without = estimate_plan(asked, plan).evidence
    assert len(without) == NUM_NEAREST == 3
    like = Residual(
        id="mine",
        family="mine",
        features=features_of(asked, plan=plan),
        time=0.1,
        memory=None,
        measured_step_time=10.0,
        predicted_step_time=10.5,
    )
    own = replace(load_profile("hopper"), left_out_errors=(like,))
    first, *others = estimate_plan(replace(asked, given_profile=own), plan).evidence
    assert (first.id, first.distance) == ("mine", 0)
    assert first.error == pytest.approx(0.05)
    assert first.left_out_error == pytest.approx(math.expm1(0.1))
    assert tuple(others) == without[: NUM_NEAREST - 1]


def test_what_was_not_timed_is_no_evidence_of_step_times() -> None:
    metered = Residual(id="metered", family="", features=H100, time=None, memory=0.1)
    assert near_runs(H100, KnownRuns([metered, metered._replace(measured_step_time=1.0)])) == ()


def test_evidence_is_written_and_read_again() -> None:
    asked = question()
    file = PlanFile(question=asked, estimates=(estimate_plan(asked, Plan(tp=4, pp=4, sharding="zero3")),))
    record = json.loads(json.dumps(plan_file_record(file)))
    assert plan_file_from_record(record) == file
    (first, *_) = record["plans"][0]["evidence"]
    assert {"id", "distance", "measured_step_time_s", "predicted_step_time_s", "error", "plan"} <= first.keys()
    assert first["plan"].keys() == record["plans"][0]["plan"].keys()
    assert first["error"] == pytest.approx(first["predicted_step_time_s"] / first["measured_step_time_s"] - 1)


def test_files_without_evidence_are_read() -> None:
    asked = question()
    file = PlanFile(question=asked, estimates=(estimate_plan(asked, Plan(tp=4, pp=4)),))
    record = json.loads(json.dumps(plan_file_record(file)))
    del record["plans"][0]["evidence"]
    (found,) = plan_file_from_record(record).estimates
    assert found == replace(file.estimates[0], evidence=())


@given(PLANS)
def test_a_plan_in_a_cell_is_the_plan(plan: Plan) -> None:
    assert plan_from_cell(plan_cell(plan)) == plan
    assert len(plan_summary(plan)) < 200


def test_what_is_shipped_of_a_run_is_its_plan_and_its_times() -> None:
    timed = [run for run in read_residuals() if run.time is not None]
    assert len(timed) > 800
    assert all(run.measured_step_time and run.predicted_step_time for run in timed)
    (llama,) = [run for run in timed if run.id == "llama3-405b-16384-cp1"]
    assert (llama.features.plan.tp, llama.features.plan.pp, llama.features.sequence_length) == (8, 16, 8192)


@pytest.mark.parametrize("shares", [0.0, 0.2])
def test_bands_widen_away_from_evidence(shares: float) -> None:
    """The same question, by the plan alone: one that was measured, and ones that are further and further away."""
    asked = question()
    plans = [
        Plan(tp=4, pp=4, vp=5),
        Plan(tp=4, pp=4, vp=5, cp=4),
        Plan(tp=4, cp=16),
        Plan(tp=4, cp=16, offload="activations"),
    ]
    bands = [band_of(asked, plan=plan, shares=Shares(communication=shares)) for plan in plans]
    widths = [math.log(band.high / band.low) for band in bands]
    assert widths == sorted(widths)
    assert widths[-1] > 1.4 * widths[0]
    assert "no measured dense run has cp 4 with sequences of 8,192 tokens" in str(bands[1].note)
    assert [band.not_measured is not None for band in bands] == [False, True, True, True]


def test_constants_that_nobody_fitted_put_no_answer_outside_the_runs() -> None:
    asked = replace(question(), given_profile=replace(load_profile("hopper"), name="mine", step_time=0.05))
    assert estimate_plan(asked, Plan(tp=4, pp=4, vp=5)).not_measured is None


def test_errors_grow_with_the_distance() -> None:
    sizes = [spread(apart) for apart in (0, 0.25, 0.4, 0.5, 1, 1.75, 2, 2.25, 9)]
    assert sizes == pytest.approx([0.7, 0.7, 0.88, 1, 1, 1, 1.25, 1.5, 1.5])


def test_runs_of_adapters_are_far_from_full_training() -> None:
    """Llama 2 70B on eight H100, as MLPerf submitted it with adapters."""
    full = Features(
        accelerator="h100-sxm-80gb", generation="hopper", bits=8, moe=False, parameters=6.9e10, accelerators=8,
        sequence_length=8192, global_batch_size=8, plan=Plan(tp=4),
    )  # fmt: skip
    known = shipped_errors("time").table
    for asked, has_adapters in ((full, False), (full._replace(trained="adapters"), True)):
        nearest = near_runs(asked, known)
        assert [each.family == "mlperf-llama2-70b-lora" for each in nearest] == [has_adapters] * len(nearest)


def test_a_run_that_a_full_memory_slowed_says_nothing_of_a_plan_with_room() -> None:
    """Hugging Face's run of 80B parameters took 2.9 times its prediction at 66 of 80 GB."""
    (slow,) = (run for run in read_residuals() if run.id == "nano-020")
    known = shipped_errors("time").table
    assert near_runs(slow.features, known)[0].id == slow.id
    assert slow.id not in {each.id for each in near_runs(slow.features, known, number=len(known.runs), has_room=True)}
    assert near_runs(slow.features, known, [slow], has_room=True)[0].id == slow.id, "a run of one's own"
    asked = replace(question(sequence_length=4096, global_batch_size=256), num_accelerators=32)
    for size, has_room in ((1, True), (4, False)):
        answer = estimate_plan(asked, replace(slow.features.plan, micro_batch_size=size))
        assert answer.has_headroom == has_room
        assert (slow.id in {each.id for each in answer.evidence}) != has_room


def test_weights_are_those_of_the_documentation() -> None:
    text = (Path(__file__).parents[2] / "docs" / "evidence.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    told = {name.strip("`"): float(weight) for names, _, weight, *_ in rows for name in names.split(", ")}
    assert told == {name: pytest.approx(WEIGHTS[name]) for name in ALL}
    assert len(ALL) == len(RESPECTS) == len(set(ALL))


def test_every_key_of_a_near_run_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "output.md").read_text(encoding="utf-8")
    assert all(f"`{each.metadata.get('key', each.name)}`" in text for each in fields(NearRun))
    assert "evidence" in {each.name for each in fields(Estimate)}
