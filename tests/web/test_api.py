"""The JSON API answers as the command line does with --json, and refuses what has no meaning."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from shardplan import load
from shardplan.base.fields import described
from shardplan.base.files import DATA
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.planner.stopping import SearchStopped
from shardplan.web.json.bodies import CompareBody, SimulateBody
from shardplan.web.json.routes import CATALOGUES, TASKS
from shardplan.web.state import FieldError, PageQuestion

QUESTION: dict[str, Any] = {"model": "llama-3.1-8b", "cluster": "dgx-h100", "num_accelerators": 16}
JOB = {"global_batch_size": 64}
FLAGS = ["llama-3.1-8b", "--cluster", "dgx-h100", "--gpus", "16", "--global-batch-size", "64"]


def _asked(api: TestClient, name: str, **body: object) -> Any:
    response = api.post(f"/api/{name}", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def _refused(api: TestClient, name: str, status: int = 422, **body: object) -> Any:
    response = api.post(f"/api/{name}", json=body)
    assert response.status_code == status, response.text
    return response.json()["error"]


def _of_command(tmp_path: Path, *arguments: str) -> Any:
    from shardplan.cli.main import app

    with pytest.raises(SystemExit) as ended:
        app([*arguments, "--json", str(tmp_path / "answer.json")])
    assert ended.value.code in (0, 1)
    return json.loads((tmp_path / "answer.json").read_text())


def _without(record: Mapping[str, Any], *names: str) -> Any:
    """The record without what differs by run or by the order in which it was assumed."""
    kept = {name: value for name, value in record.items() if name not in (*names, "search_time_s", "assumptions")}
    return {
        name: _without(value)
        if isinstance(value, dict)
        else [_without(each) if isinstance(each, dict) else each for each in value]
        if isinstance(value, list)
        else value
        for name, value in kept.items()
    }


@pytest.fixture(scope="module")
def plans(api: TestClient) -> Any:
    return _asked(api, "plan", **QUESTION, job=JOB, fix={"tp": 2}, top=3)


def test_a_search_answers_as_the_command_does(plans: Any, tmp_path: Path) -> None:
    of_command = _of_command(tmp_path, "plan", *FLAGS, "--fix", "tp=2", "--top", "3")
    assert _without(plans) == _without(of_command)
    assert {*plans["plans"][0]["assumptions"]} == {*of_command["plans"][0]["assumptions"]}


def test_an_estimate_answers_as_python_does(api: TestClient) -> None:
    from shardplan import estimate

    found = _asked(api, "estimate", **QUESTION, job=JOB, plan={"tp": 2, "sharding": "fsdp"})
    same = estimate("llama-3.1-8b", "dgx-h100", 16, {"tp": 2, "sharding": "fsdp"}, global_batch_size=64)
    assert found == json.loads(json.dumps(same.to_dict()))


def test_answers_are_plan_files(plans: Any, tmp_path: Path) -> None:
    (tmp_path / "plans.json").write_text(json.dumps(plans))
    assert load(tmp_path / "plans.json").to_dict()["plans"] == plans["plans"]


def test_plans_side_by_side(api: TestClient, plans: Any) -> None:
    of_one = _asked(api, "compare", files=[plans], picks=[1, 2, "recommended"])
    assert [each["pick"] for each in of_one["plans"]] == [1, 2, "recommended"]
    two = _asked(api, "compare", files=[plans, plans])
    assert len(two["plans"]) == 2
    assert (
        "picks has 3 elements for 2 files" in _refused(api, "compare", files=[plans, plans], picks=[1, 1, 1])["message"]
    )


def test_a_plan_as_launch_files(api: TestClient, plans: Any) -> None:
    made = _asked(api, "export", file=plans, to="megatron-lm", pick=1)
    assert "--tensor-model-parallel-size 2" in made["files"]["launch.sh"].replace("=", " ")
    assert "torch" in _refused(api, "export", file=plans, to="torchtitann")["message"]


def test_a_step_simulated(api: TestClient, plans: Any) -> None:
    calm = _asked(api, "simulate", file=plans)
    slow = _asked(api, "simulate", file=plans, slow_ranks={"0": 1.5})
    assert slow["step_time_s"] > calm["step_time_s"]
    same = [_asked(api, "simulate", file=plans, jitter=0.1, seed=3)["step_time_s"] for _ in range(2)]
    assert same[0] == same[1] != calm["step_time_s"]


@pytest.mark.parametrize(("name", "body"), [("simulate", SimulateBody), ("compare", CompareBody)])
def test_what_takes_long_ends_when_nobody_waits(plans: Any, name: str, body: Any) -> None:
    task = next(each for each in TASKS if each.name == name)
    asked = body(file=plans) if name == "simulate" else body(files=[plans, plans])
    with pytest.raises(SearchStopped):
        task.work(asked, lambda: True)


def test_a_step_that_would_take_minutes_is_not_simulated(api: TestClient) -> None:
    job = {"global_batch_size": 2**31}
    file = _asked(api, "estimate", **QUESTION | {"num_accelerators": 8}, job=job, plan={"pp": 8})
    assert "forward passes" in _refused(api, "simulate", file=file)["message"]


def test_a_launch_script_audited(api: TestClient) -> None:
    script = "torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 4 --data-path /a/b\n"
    found = _asked(api, "audit", text=script, model="llama-3.1-8b", cluster="dgx-h100", num_accelerators=8)
    assert found["framework"] == "megatron-lm"
    assert found["file"] == "launch.sh"


def test_a_budget(api: TestClient) -> None:
    run = {"model": "llama-3.1-8b", "job": {"tokens": "100B"}, "num_accelerators": 64}
    found = _asked(api, "budget", **run, clusters=["dgx-h100", "dgx-b200"], overrides={"price": 2.0})
    assert [each["cluster"] for each in found["options"]] == ["dgx-h100", "dgx-b200"]
    assert [each["price_per_accelerator_hour"] for each in found["options"]] == [2.0, 2.0]


@pytest.mark.parametrize("catalogue", CATALOGUES, ids=lambda each: each.name)
def test_lists_and_what_is_in_them(api: TestClient, catalogue: Any, tmp_path: Path) -> None:
    listed = api.get(f"/api/{catalogue.name}").json()
    assert listed == _of_command(tmp_path, catalogue.name)
    name = listed[catalogue.name][0]["name"]
    one = api.get(f"/api/{catalogue.name}/{name}")
    assert one.json() == _of_command(tmp_path, catalogue.name, name)
    assert api.get(f"/api/{catalogue.name}/nothing-of-this-name").status_code == 422


def test_models_and_clusters_in_full(api: TestClient, plans: Any) -> None:
    config = {
        "model_type": "llama", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 8,
        "num_attention_heads": 16, "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 4096,
    }  # fmt: skip
    found = _asked(api, "estimate", **QUESTION | {"model": config, "cluster": plans["cluster"]}, plan={})
    assert found["model"]["num_hidden_layers"] == 8
    slower = {"inter_node_bandwidth": "5GB/s"}
    at_5 = _asked(api, "estimate", **QUESTION, job=JOB, plan={}, overrides=slower)
    assert at_5["cluster"]["tiers"][1]["bandwidth_bytes_per_s"] == 5e9
    part = _asked(api, "estimate", model="llama-3.1-8b", accelerator="H100", num_accelerators=8, plan={})
    assert part["cluster"]["accelerator"]["name"].startswith("h100")


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "../../etc/passwd", "examples/config.json", ".", "~", "file:/etc/passwd", "a\x00b", "C:\\x",
     "x" * 200],
)  # fmt: skip
@pytest.mark.parametrize("field", ["model", "cluster", "accelerator", "stack", "profile"])
def test_names_are_names_not_paths(api: TestClient, field: str, name: str) -> None:
    error = _refused(api, "plan", **{**QUESTION, field: name})
    assert "exist" not in error["message"]
    assert "known" in error["rule"] or "request" in error["rule"]


def test_a_script_names_no_file_of_the_server(api: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = {"model_type": "llama", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 7}
    secret |= {"num_attention_heads": 16, "vocab_size": 32000}
    (tmp_path / "inside").mkdir()
    (tmp_path / "config.json").write_text(json.dumps(secret))
    monkeypatch.chdir(tmp_path / "inside")
    (tmp_path / "inside" / "config.json").write_text(json.dumps(secret))
    for named in (tmp_path, tmp_path / "config.json", "config.json", "inside/../config.json", "../config.json", "."):
        text = f"model_name_or_path: {named}\nper_device_train_batch_size: 1\nbf16: true\n"
        response = api.post("/api/audit", json={"text": text, "name": "train.yaml", "cluster": "dgx-h100"})
        assert '"num_hidden_layers": 7' not in response.text, named
        assert str(tmp_path / "inside") not in response.text.replace(str(named), "")


@pytest.mark.parametrize("file", ["config.json", "secret.json", ""])
def test_a_companion_is_no_file_of_the_server(api: TestClient, tmp_path: Path, file: str) -> None:
    shipped = (DATA / "models" / "llama-3.1-70b.json").read_text()
    (tmp_path / "config.json").write_text(shipped)
    job = JOB | {"companion": f"teacher={tmp_path / file}"}
    asked: dict[str, Any] = QUESTION | {"job": job}
    run: dict[str, Any] = {"model": "llama-3.1-8b", "clusters": ["dgx-h100"], "num_accelerators": 16}
    run["job"] = job | {"tokens": 1e9}
    step: dict[str, Any] = {"prompts": 8, "samples": 8, "response_tokens": "mean=1k,max=2k"}
    errors = [
        _refused(api, "plan", **asked),
        _refused(api, "estimate", **asked, plan={}),
        _refused(api, "budget", **run),
        _refused(api, "rl", **QUESTION, **step, job={"companion": job["companion"]}),
    ]
    assert {error["rule"] for error in errors} == {errors[0]["rule"]}
    assert all("unknown model" in error["message"] for error in errors)
    with pytest.raises(FieldError, match="unknown model"):
        PageQuestion(model="llama-3.1-8b", gpus="16", job={"companion": str(job["companion"])}).posed()


WRONG: list[tuple[dict[str, object], str]] = [
    ({"modle": "llama-3.1-8b"}, "did you mean model"),
    ({"num_accelerators": 0}, "num_accelerators"),
    ({"num_accelerators": 2**31 + 1}, "num_accelerators"),
    ({"num_accelerators": "8"}, "num_accelerators"),
    ({"num_accelerators": True}, "num_accelerators is True: it must be a whole number or a text"),
    ({"num_accelerators": -8}, "num_accelerators is -8: it must be greater than or equal to 1"),
    ({"limit": {"tp": [1, 2, None]}}, "limit.tp.2 is None"),
    ({"num_accelerators": 1e999}, "infinite"),
    ({"job": {"precision": "fp7"}}, "job.precision"),
    ({"job": {"presicion": "fp8"}}, "did you mean precision"),
    ({"job": {"software": {"kernels": "none"}}}, "job.software.kernels"),
    ({"job": {"sequence_length": "long"}}, "sequence_length"),
    ({"fix": {"tpp": 2}}, "tpp"),
    ({"fix": {"tp": "many"}}, "tp"),
    ({"fix": {"tp": {"a": 1}}}, "fix.tp is {'a': 1}: it must be true or false, a whole number"),
    ({"top": 1000}, "top"),
    ({"stack": "all"}, "stack is all"),
    ({"cluster": {}}, "cluster"),
    ({"cluster": None}, "neither cluster nor accelerator"),
    ({"model": {}}, "model"),
    ({"overrides": {"memory": "much"}}, "much"),
]


@pytest.mark.parametrize(("changes", "said"), WRONG, ids=lambda value: str(value)[:40])
def test_what_has_no_meaning_is_refused_in_our_words(api: TestClient, changes: dict[str, object], said: str) -> None:
    content = json.dumps({**QUESTION, **changes})
    response = api.post("/api/plan", content=content, headers={"Content-Type": "application/json"})
    assert response.status_code == 422, response.text
    error = response.json()["error"]
    assert said in error["message"]
    assert error["rule"]
    assert error["hint"]
    assert "--" not in re.sub("`[^`]*`", "", error["hint"]), "fields, not flags"


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"model": NaN}', b'{"a": 1, "a": 2}', b"[" * 100_000, b'{"a":' * 5000,
     b'{"num_accelerators": ' + b"9" * 5000 + b"}", b'{"model": "\\ud800"}'],
    ids=lambda raw: str(raw[:20]),
)  # fmt: skip
def test_what_is_no_json_object_is_refused(api: TestClient, raw: bytes) -> None:
    response = api.post("/api/plan", content=raw, headers={"Content-Type": "application/json"})
    assert response.status_code == 422
    assert response.json()["error"]["hint"]


def test_other_content_and_other_methods(api: TestClient) -> None:
    assert api.post("/api/plan", content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 415
    assert api.post("/api/plan", data={"model": "x"}).status_code == 415
    assert api.get("/api/plan").status_code == 405
    assert api.post("/api/plan/x", json={}).json()["error"]["rule"]
    assert api.get("/api/nothing").status_code == 404


def test_bodies_have_all_fields_of_the_records(api: TestClient) -> None:
    schemas = api.get("/api/openapi.json").json()["components"]["schemas"]
    assert {*described(Job), "software"} == {*schemas["JobBody"]["properties"]}
    assert {*described(Plan)} == {*schemas["PlanBody"]["properties"]}
    assert all(each.get("description") for each in schemas["JobBody"]["properties"].values())


@pytest.mark.parametrize("task", [each for each in TASKS if each.example], ids=lambda each: each.name)
def test_examples_of_the_document_are_answered(api: TestClient, task: Any) -> None:
    assert _asked(api, task.name, **task.example)["schema"] == f"shardplan/{task.schema}"


def test_the_server_says_that_it_is_up(api: TestClient) -> None:
    assert api.get("/healthz").json()["status"] == "ok"
