"""What records show working: measured runs are shown, what nothing runs is untested, columns are single plans."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from shardplan import load_cluster, load_model
from shardplan.base.errors import InputError, UnknownNameError
from shardplan.calibrate.predict import ask_all
from shardplan.calibrate.runs.drafts import stack_of
from shardplan.calibrate.runs.rows import shipped_runs
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import Degrees, Setting
from shardplan.physics.frameworks.capabilities import Capabilities, read_capabilities
from shardplan.physics.frameworks.runnable import NOTHING_SHOWN, fields_that_decide, untested, untested_aspects
from shardplan.physics.frameworks.stack import Stack, list_stacks, load_stack

HEAD: dict[str, Any] = {"version": "1", "date": "2026-08"}
SHOWN: dict[str, Any] = {
    "aspect": "sharding in a pipeline",
    "concerns": "pp > 1",
    "asks": "{sharding} in a pipeline",
    "evidence": [{"when": 'sharding == "zero1"', "source": "tests/a.py"}],
}


def _setting(stack: str, model: str = "llama-3.1-70b", cluster: str = "dgx-h100", **job: Any) -> Setting:
    fields = load_stack(stack).job_fields(job.get("precision", "bf16"))
    software = replace(fields.pop("software"), **job.pop("software", {}))
    asked = Job(**{"sequence_length": 4096, "global_batch_size": 512, **fields, **job}, software=software)
    return Setting.of(load_model(model), load_cluster(cluster), 64, asked)


def _said(stack: str, plan: Plan, **about: Any) -> str:
    return " ".join(untested_aspects(load_stack(stack), _setting(stack, **about), plan))


OF_OTHER_TRAINERS = ("prime-rl",)
"""Families priced as another framework, whose record says nothing of them."""


def test_runs_that_were_measured_are_shown() -> None:
    asked, _ = ask_all(shipped_runs())
    found = {}
    for each in asked:
        if each.run.family in OF_OTHER_TRAINERS:
            continue
        stack, question = stack_of(each.run), each.question
        setting = Setting.of(question.model, question.cluster, question.num_accelerators, question.job)
        found[each.run.id] = untested_aspects(stack, setting, each.plan)
    assert {run: said for run, said in found.items() if said} == {}


def test_runs_that_records_name_are_shipped() -> None:
    known = {run.id for run in shipped_runs()}
    named = {
        name
        for stack in map(load_stack, list_stacks())
        for aspect in (stack.can_run.shown if stack.can_run else None) or ()
        for each in aspect.evidence
        for names in re.findall(r"measured runs? ([\w.\-]+)(?: and ([\w.\-]+))?", each.source)
        for name in names
        if name
    }
    assert named
    assert named <= known


def test_every_framework_states_what_it_has_and_what_is_shown() -> None:
    for stack in map(load_stack, list_stacks()):
        can = stack.can_run
        assert can is not None
        assert None not in (can.layer_kinds, can.shown, can.libraries, can.software), stack.name
        assert "fused_loss" in (can.software or {}), stack.name


@pytest.mark.parametrize("sharding", ["zero2", "zero3"])
def test_megatron_fsdp_runs_in_no_pipeline_that_is_tested(sharding: Any) -> None:
    assert f"no test or recipe runs {sharding} in an interleaved pipeline" in _said(
        "megatron-lm", Plan(tp=8, pp=4, vp=5, sharding=sharding)
    )
    assert f"{sharding} in a pipeline" in _said("megatron-bridge", Plan(tp=8, pp=4, sharding=sharding))
    assert _said("megatron-lm", Plan(tp=8, sharding=sharding)) == ""


USUAL: tuple[dict[str, Any], ...] = (
    {"tp": 8, "pp": 4},
    {"tp": 8, "pp": 4, "vp": 5},
    {"tp": 8, "pp": 4, "vp": 5, "recompute": "selective"},
    {"tp": 4, "pp": 4, "recompute": "full"},
    {"tp": 4, "cp": 2, "pp": 2, "vp": 2, "overlap_tp": True},
    {"tp": 8, "sharding": "ddp"},
)


@pytest.mark.parametrize("plan", USUAL)
@pytest.mark.parametrize("stack", ["megatron-lm", "megatron-bridge", "nemo"])
def test_usual_plans_of_dense_models_are_shown(stack: str, plan: dict[str, Any]) -> None:
    assert _said(stack, Plan(**plan)) == ""


@pytest.mark.parametrize("stack", ["megatron-lm", "megatron-bridge"])
@pytest.mark.parametrize("dispatcher", ["alltoall", "hybridep"])
def test_usual_plans_of_mixtures_are_shown(stack: str, dispatcher: str) -> None:
    about: dict[str, Any] = {"model": "qwen3-235b-a22b", "software": {"moe_dispatcher": dispatcher}}
    for plan in (Plan(ep=8), Plan(tp=2, ep=8, pp=2), Plan(ep=8, pp=2, vp=2), Plan(ep=8, recompute="full")):
        assert _said(stack, plan, **about) == ""


def test_columns_are_single_plans() -> None:
    for name in ("megatron-lm", "torchtitan", "deepspeed", "maxtext"):
        stack, setting = load_stack(name), _setting(name)
        for sharding in ("zero1", "zero3"):
            plans = [
                Plan(tp=tp, cp=cp, pp=pp, vp=vp, sharding=sharding)
                for tp, cp, pp, vp in product((1, 8), (1, 2), (1, 2, 4), (1, 2))
            ]
            columns = np.broadcast_to(untested(stack, setting, Degrees.of_all(plans)), len(plans))
            assert columns.tolist() == [bool(untested_aspects(stack, setting, plan)) for plan in plans]


def test_fields_that_decide_are_those_of_the_conditions() -> None:
    found = fields_that_decide(load_stack("megatron-lm"))
    assert {"pp", "vp", "sharding", "overlap_ep", "recompute", "tp"} <= {*found}
    assert fields_that_decide(None) == ()


def _record(*shown: Any) -> Capabilities:
    return read_capabilities({**HEAD, "shown": list(shown)}, "test")


def test_a_record_that_shows_nothing_and_no_record() -> None:
    setting, plan = _setting("megatron-lm"), Plan(tp=8)
    silent = Stack(name="own", full_name="own", can_run=read_capabilities(HEAD, "test"))
    assert untested(silent, setting, Degrees.of(plan)) is True
    assert untested_aspects(silent, setting, plan) == (f"own 1: {NOTHING_SHOWN}",)
    for nothing in (None, Stack(name="own", full_name="own")):
        assert not untested(nothing, setting, Degrees.of(plan))
        assert untested_aspects(nothing, setting, plan) == ()


def test_aspects_of_a_record_of_ones_own() -> None:
    stack, setting = Stack(name="own", full_name="own", can_run=_record(SHOWN)), _setting("megatron-lm")
    assert untested_aspects(stack, setting, Plan(tp=8)) == ()
    assert untested_aspects(stack, setting, Plan(tp=8, pp=2)) == ()
    said = untested_aspects(stack, setting, Plan(tp=8, pp=2, sharding="ddp"))
    assert said == ("own 1: no test or recipe runs ddp in a pipeline",)


@pytest.mark.parametrize(
    "change",
    [
        {"aspect": ""},
        {"concerns": 3},
        {"asks": "{"},
        {"evidence": {}},
        {"evidence": [{"when": "pp > 1"}]},
        {"evidence": [{"when": "pp >", "source": "a"}]},
    ],
)
def test_a_malformed_aspect(change: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        _record({**SHOWN, **change})


def test_unknown_names_in_an_aspect() -> None:
    for wrong in ({**SHOWN, "proof": 1}, {**SHOWN, "concerns": "pipelines > 1"}):
        with pytest.raises(UnknownNameError):
            _record(wrong)
