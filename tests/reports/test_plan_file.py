"""Plan files: what is written can be read again, and nothing else can."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from tests.examples import SMALL, accelerator, cluster
from tests.few import few
from tests.strategies import Case, cases

from shardplan import search
from shardplan.base.errors import InputError
from shardplan.base.version import VERSION
from shardplan.estimation.band import features_of
from shardplan.estimation.estimate import estimate_plan
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.readers.catalog import list_models, load_model
from shardplan.inputs.readers.residuals import Residual
from shardplan.planner.result import SearchResult
from shardplan.planner.search import search_question
from shardplan.reports.model_record import model_from_record, model_record
from shardplan.reports.plan_file import PlanFile, SearchAccount, plan_file_from_record, plan_file_record, read_plan_file


@cache
def searched(memory: float = 80e9) -> SearchResult:
    """A small search: with plans, or with suggestions where the memory is too small."""
    job = Job(sequence_length=2048, global_batch_size=64, tokens=1e12)
    part = accelerator(memory_bytes=memory)
    return search_question(Question(model=SMALL, cluster=cluster(part=part), num_accelerators=16, job=job), top=3)


def through_json(record: dict[str, Any]) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(json.dumps(record, allow_nan=False))
    return loaded


@given(cases())
@few(12)
def test_what_is_written_is_read_again(case: Case) -> None:
    file = PlanFile(question=case.question, estimates=(estimate_plan(case.question, case.plan),))
    assert plan_file_from_record(through_json(plan_file_record(file))) == file


def test_plans_have_the_options_of_their_framework() -> None:
    job = Job(sequence_length=2048, global_batch_size=64)
    found = search(SMALL, cluster(), 16, job=job, stack="deepspeed", fix={"tp": 2}, top=2)
    record = through_json(plan_file_record(PlanFile.of(found)))
    for plan in (*record["plans"], record["recommended"]["plan"]):
        assert {"train_batch_size: auto", "tensor_parallel.autotp_size: 2"} <= {*plan["framework_options"]}
        assert plan["framework_unsaid"] == ["sequence_length"]
    assert through_json(plan_file_record(plan_file_from_record(record))) == record
    anywhere = plan_file_record(PlanFile.of(searched()))["plans"][0]
    assert (anywhere["framework_options"], anywhere["framework_unsaid"]) == (None, None)


@pytest.mark.parametrize("memory", [80e9, 1.5e9])
def test_a_search_is_read_again_with_its_account(memory: float) -> None:
    file = PlanFile.of(searched(memory))
    read = plan_file_from_record(through_json(plan_file_record(file)))
    assert read == file
    assert read.search is not None
    assert bool(read.estimates) != bool(read.search.lightest)


def test_a_plan_of_a_file_gives_the_same_estimate_again() -> None:
    read = plan_file_from_record(through_json(plan_file_record(PlanFile.of(searched()))))
    again = estimate_plan(read.question, read.pick(2).plan)
    assert math.isclose(again.step_time, read.pick(2).step_time, rel_tol=1e-12)
    assert again == searched().estimates[1]


@pytest.mark.parametrize("name", list_models())
def test_every_model_is_read_again(name: str) -> None:
    model = load_model(name)
    assert model_from_record(through_json(model_record(model))) == model


def test_constants_of_ones_own_are_read_again() -> None:
    question = searched().question
    own = replace(question.profile, matmul_launch_time=1e-4, constants={})
    asked = replace(question, given_profile=own)
    file = PlanFile(question=asked, estimates=(estimate_plan(asked, Plan(tp=2)),))
    assert plan_file_from_record(through_json(plan_file_record(file))).question.profile == own


def test_errors_of_a_profiles_own_runs_and_its_generation_are_read_again() -> None:
    """They make the band; a profile that moved no constant may have them too."""
    question = searched().question
    features = features_of(question)._replace(parameters=8e9)
    run = Residual(id="mine", family="", features=features, time=0.25, memory=None)
    changes: tuple[dict[str, Any], ...] = ({"left_out_errors": (run,)}, {"generation": "volta", "step_time": 0.05})
    for change in changes:
        asked = replace(question, given_profile=replace(question.profile, constants={}, **change))
        file = PlanFile(question=asked, estimates=(estimate_plan(asked, Plan(tp=2)),))
        read = plan_file_from_record(through_json(plan_file_record(file)))
        assert replace(read.question.profile, constants={}) == asked.given_profile
        assert estimate_plan(read.question, Plan(tp=2)) == file.estimates[0]


@pytest.mark.parametrize(("name", "value"), [("cast_byte", 1.0), ("cast_bytes", {"a": 1.0}), ("cast_bytes", "much")])
def test_constants_of_another_version_give_way_to_those_of_this_one(name: str, value: object) -> None:
    record = through_json(plan_file_record(PlanFile.of(searched())))
    record["profile"][name] = value
    read = plan_file_from_record(record)
    assert read.has_other_constants
    assert read.question == searched().question
    assert not plan_file_from_record(plan_file_record(PlanFile.of(searched()))).has_other_constants


@pytest.mark.parametrize("name", ["plans", "tensor-parallel", "fully-sharded"])
def test_the_example_files_have_the_constants_of_this_version(name: str) -> None:
    examples = Path(__file__).parents[2] / "examples"
    assert not read_plan_file(examples / f"{name}.json").has_other_constants


def test_the_numbers_agree_with_each_other() -> None:
    record = plan_file_record(PlanFile.of(searched()))
    assert record["num_plans_feasible"] <= record["num_plans_evaluated"]
    for plan in record["plans"]:
        assert math.isclose(sum(plan["breakdown_s"].values()), plan["step_time_s"], rel_tol=1e-9)
        assert len(plan["memory_bytes"]) == plan["plan"]["pp"] == len(plan["stage_layers"])
        assert math.isclose(max(sum(stage.values()) for stage in plan["memory_bytes"]), plan["peak_memory_bytes"])
        assert plan["step_time_p10_s"] <= plan["step_time_s"] <= plan["step_time_p90_s"]
        assert plan["feasible"] == (plan["reason"] is None)
        tokens = record["job"]["sequence_length"] * record["job"]["global_batch_size"]
        rate = plan["tokens_per_s_per_accelerator"] * record["num_accelerators"]
        assert math.isclose(rate * plan["step_time_s"], tokens, rel_tol=1e-9)
        assert math.isclose(plan["time_to_train_s"] * rate, record["job"]["tokens"], rel_tol=1e-9)


HOSTILE: dict[str, tuple[tuple[str | int, ...], object]] = {
    "another schema": (("schema",), "shardplan/plan-file/9"),
    "no schema": (("schema",), None),
    "schema of another kind": (("schema",), {"a": 1}),
    "plans missing": (("plans",), ...),
    "plans of another kind": (("plans",), {"0": {}}),
    "a plan that is a list": (("plans", 0, "plan"), []),
    "a degree in words": (("plans", 0, "plan", "tp"), "four"),
    "a degree as text": (("plans", 0, "plan", "tp"), "4"),
    "a degree of zero": (("plans", 0, "plan", "tp"), 0),
    "a degree that is true": (("plans", 0, "plan", "tp"), True),
    "a degree with a fraction": (("plans", 0, "plan", "tp"), 2.5),
    "a degree of thirty digits": (("plans", 0, "plan", "tp"), 10**30),
    "an unknown choice": (("plans", 0, "plan", "sharding"), "zero9"),
    "an unknown module": (("plans", 0, "plan", "recompute"), "core_atn"),
    "a placement of nonsense": (("plans", 0, "plan", "placement"), "tp-tp"),
    "a time that is not a number": (("plans", 0, "step_time_s"), math.nan),
    "a time without end": (("plans", 0, "step_time_s"), math.inf),
    "a time of zero": (("plans", 0, "step_time_s"), 0),
    "a stage that is not there": (("plans", 0, "fullest_stage"), 99),
    "a negative stage": (("plans", 0, "slowest_stage"), -1),
    "no memory": (("plans", 0, "memory_bytes"), []),
    "no usable memory": (("plans", 0, "usable_memory_bytes"), 0.0),
    "no job": (("job",), ...),
    "an unknown precision": (("job", "precision"), "bf15"),
    "a sequence of nothing": (("job", "sequence_length"), 0),
    "a negative world": (("num_accelerators",), -1),
    "a world too large": (("num_accelerators",), 10**30),
    "a world as text": (("num_accelerators",), "16"),
    "a model of another kind": (("model",), "llama"),
    "a model without a size": (("model", "hidden_size"), ...),
    "a negative size": (("model", "hidden_size"), -1),
    "no layers": (("model", "layer_kinds"), []),
    "a layer beyond the kinds": (("model", "layer_pattern"), [7]),
    "a mixer of an unknown kind": (("model", "layer_kinds", 0, "mixer", "kind"), "magic"),
    "more norms than can be priced": (("model", "layer_kinds", 0, "num_norms"), 10**7),
    "heads that do not divide": (("model", "layer_kinds", 0, "mixer", "num_kv_heads"), 3),
    "a cluster of another kind": (("cluster",), []),
    "a cluster without tiers": (("cluster", "tiers"), []),
    "a negative bandwidth": (("cluster", "tiers", 0, "bandwidth_bytes_per_s"), -5.0),
    "a generation that is none": (("cluster", "accelerator", "generation"), "../default"),
    "a constant below zero": (("profile", "cast_bytes"), -1.0),
    "a constant that is a list": (("profile", "cast_bytes"), [1.0]),
    "constants of another kind": (("profile",), "hopper"),
    "constants of an unknown generation": (("profile_origin",), {"generation": "zzz", "left_out_errors": []}),
    "errors that are none": (("profile_origin",), {"generation": "hopper", "left_out_errors": [{"id": "mine"}]}),
    "rejected of another kind": (("rejected",), 5),
    "a number of ties that is none": (("num_plans_tied",), "many"),
    "a recommended plan that is none": (("recommended", "plan"), {}),
    "a recommended plan without a place": (("recommended", "place"), ...),
    "a robustness of another kind": (("plans", 0, "robustness"), 5),
    "a time lost of another kind": (("plans", 0, "robustness", "lost_time_s", "network"), "much"),
    "a suggestion without a plan": (("suggestions",), [{"change": "more", "num_accelerators": 2}]),
}


def test_the_recommended_plan_can_be_picked() -> None:
    file = plan_file_from_record(through_json(plan_file_record(PlanFile.of(searched()))))
    assert file.pick("recommended") == searched().recommended
    single = PlanFile(question=file.question, estimates=file.estimates[:1])
    with pytest.raises(InputError, match="recommends none"):
        single.pick("recommended")


def test_ties_and_the_reason_stand_in_the_file() -> None:
    result = searched()
    record = through_json(plan_file_record(PlanFile.of(result)))
    assert result.ties is not None
    limit = record["tie_factor"] * record["plans"][0]["step_time_s"]
    assert [plan["is_tie"] for plan in record["plans"]] == [plan["step_time_s"] <= limit for plan in record["plans"]]
    assert all((plan["robustness"] is None) != plan["is_tie"] for plan in record["plans"])
    assert record["num_plans_tied"] == result.ties.num_plans
    assert record["num_plans_tied_with_headroom"] == result.ties.num_with_headroom
    told, place = record["recommended"], record["recommended"]["place"]
    assert told["plan"]["is_tie"]
    assert told["reason"]
    assert (place is None) or record["plans"][place - 1] == told["plan"]
    assert through_json(plan_file_record(PlanFile.of(searched(1.5e9))))["recommended"] is None


def test_ties_of_another_version_give_way() -> None:
    """A file of the first version has none, one of a later version may know of other groups of constants."""
    older = through_json(plan_file_record(PlanFile.of(searched())))
    for name in ("recommended", "tie_factor", "num_plans_tied", "num_plans_tied_with_headroom"):
        del older[name]
    for plan in older["plans"]:
        del plan["is_tie"], plan["robustness"]
    later = through_json(plan_file_record(PlanFile.of(searched())))
    later["recommended"]["plan"]["robustness"]["lost_time_s"]["weather"] = 1.0
    for record in (older, later):
        read = plan_file_from_record(record)
        assert read.estimates == searched().estimates
        assert read.search is not None
        assert read.search.ties is None


def test_a_constant_may_be_zero() -> None:
    """A limit case: no straggler, nothing hidden."""
    question = searched().question
    ideal = replace(question.profile, straggler_growth=0.0, tp_window=0.0, constants={})
    file = PlanFile.of(search_question(replace(question, given_profile=ideal), top=1))
    assert plan_file_from_record(through_json(plan_file_record(file))) == file


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_in_words(name: str) -> None:
    record: Any = through_json(plan_file_record(PlanFile.of(searched())))
    path, value = HOSTILE[name]
    place = record
    for part in path[:-1]:
        place = place[part]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = copy.deepcopy(value)
    with pytest.raises(InputError) as raised:
        plan_file_from_record(record)
    assert raised.value.rule
    assert raised.value.hint
    assert len(raised.value.message) < 600


OPEN = {
    *("sources", "marks", "peak_flops_per_s", "gemm_efficiency", "rejected", "space", "profile", "left_out_errors"),
    *("breakdown_s", "memory_bytes", "communication_bytes", "lost_time_s", "explanation"),
}
"""Keys whose value is a table by name, not a set of fields."""


def _later(value: Any) -> Any:
    """``value`` with a new key in every set of fields."""
    if isinstance(value, list):
        return [_later(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: each if name in OPEN else _later(each) for name, each in value.items()} | {"added_later": {"a": [1]}}


@pytest.mark.parametrize("memory", [80e9, 1.5e9])
def test_keys_of_a_later_version_are_ignored(memory: float) -> None:
    record = through_json(plan_file_record(PlanFile.of(searched(memory))))
    later = _later(record) | {"shardplan_version": "99.0.0"}
    assert plan_file_from_record(later) == plan_file_from_record(record)


@pytest.mark.parametrize("version", [VERSION, "0.0.1", ""])
def test_a_misspelt_key_of_a_plan_is_refused_with_the_nearest(version: str) -> None:
    record = through_json(plan_file_record(PlanFile.of(searched()))) | {"shardplan_version": version}
    record["plans"][0]["plan"]["tpp"] = record["plans"][0]["plan"].pop("tp")
    with pytest.raises(InputError) as raised:
        plan_file_from_record(record)
    assert "plans.0.plan.tpp" in raised.value.message
    assert "tp" in raised.value.hint.split(" or ")[0]


@pytest.mark.parametrize(
    ("software", "meant"),
    [
        ({"sharded_accumulation": False, "flat_gradients": False}, "none"),
        ({"sharded_accumulation": True, "flat_gradients": False}, "parameters"),
        ({"sharded_accumulation": False, "flat_gradients": True}, "flat"),
    ],
)
def test_switches_of_an_earlier_version_are_the_choices_of_this_one(software: dict[str, bool], meant: str) -> None:
    record = through_json(plan_file_record(PlanFile.of(searched(80e9))))
    record["job"]["software"] |= software
    assert plan_file_from_record(record).question.job.software.sharded_accumulation == meant


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"   ",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"\xff\xfe\x00",
        b'{"schema": "shardplan/plan-file/1", "schema": "x"}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"schema": "shardplan/plan-file/1"}',
        b'{"error": {"rule": "r", "message": "it failed", "hint": "h"}}',
        b'{"model_type": "llama", "hidden_size": 64}',
    ],
)
def test_a_file_that_is_no_plan_file_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "plans.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"plans\.json"):
        read_plan_file(path)


def test_a_path_that_is_no_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.json", Path("a\0b"), Path("x" * 5000)):
        with pytest.raises(InputError):
            read_plan_file(path)


def test_a_plan_is_picked_by_its_place_from_one() -> None:
    file = PlanFile.of(searched())
    assert file.pick(1) is file.estimates[0]
    for number in (0, -1, len(file.estimates) + 1):
        with pytest.raises(InputError, match="the file holds 1 to 3"):
            file.pick(number)
    with pytest.raises(InputError, match="nothing fitted"):
        replace(file, estimates=()).pick(1)


def test_the_account_is_that_of_the_search() -> None:
    account = SearchAccount.of(searched())
    assert account.num_plans_evaluated == searched().num_plans_evaluated
    assert account.rejected == searched().rejected
