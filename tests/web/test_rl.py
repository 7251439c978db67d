"""The RL page and the RL question of the JSON API: they answer as the command does, and refuse in our words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from shardplan.ask.rl_forms import RlForm
from shardplan.base.fields import described

QUESTION: dict[str, Any] = {"model": "llama-3.2-1b", "cluster": "dgx-h100", "num_accelerators": 16}
STEP: dict[str, Any] = {"prompts": 32, "samples": 8, "response_tokens": "mean=256,max=1k", "placement": "in-turns"}
FLAGS = (
    *("rl", "llama-3.2-1b", "--cluster", "dgx-h100", "--gpus", "16", "--prompts", "32", "--samples", "8"),
    *("--response-tokens", "mean=256,max=1k", "--placement", "in-turns"),
)


def of_command(tmp_path: Path) -> Any:
    from shardplan.cli.main import app

    with pytest.raises(SystemExit) as ended:
        app([*FLAGS, "--json", str(tmp_path / "answer.json")])
    assert ended.value.code == 0
    return json.loads((tmp_path / "answer.json").read_text())


def refused(api: TestClient, **body: object) -> Any:
    response = api.post("/api/rl", json={**QUESTION, **STEP, **body})
    assert response.status_code == 422, response.text
    return response.json()["error"]


def test_the_api_answers_as_the_command_does(api: TestClient, tmp_path: Path) -> None:
    response = api.post("/api/rl", json={**QUESTION, **STEP})
    assert response.status_code == 200, response.text
    assert response.json() == of_command(tmp_path)


def test_pools_of_their_own_and_what_was_measured(api: TestClient) -> None:
    asked = {**QUESTION, **STEP, "num_accelerators": "8+8", "reference": False, "observed": ["step 20s"]}
    found = api.post("/api/rl", json=asked).json()
    assert [(each["num_train"], each["num_rollout"]) for each in found["plans"]] == [(8, 8)]
    assert found["observed"][0]["measured_s"] == 20
    assert found["rl"]["reference"] is False


def test_where_nothing_fits_the_answer_says_why(api: TestClient) -> None:
    found = api.post("/api/rl", json={**QUESTION, **STEP, "fix": {"rollout.tp": 3}}).json()
    assert found["plans"] == []
    assert "no layout of generation" in found["refused"]["in-turns"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"prompts": 0}, "prompts"),
        ({"prompts": "64"}, "prompts"),
        ({"num_accelerators": "8+"}, "num_accelerators"),
        ({"num_accelerators": "0+8"}, "num_accelerators"),
        ({"promts": 8}, "did you mean prompts"),
        ({"response_tokens": "long"}, "response_tokens"),
        ({"response_tokens": "mean=2k,max=1M"}, "together"),
        ({"response_tokens": "file=/etc/passwd"}, "file"),
        ({"algorithm": "sarsa"}, "algorithm"),
        ({"reference": "perhaps"}, "reference"),
        ({"critic": "/etc/passwd", "algorithm": "ppo"}, "model"),
        ({"rollout_cluster": "/etc/passwd"}, "cluster"),
        ({"critic": "llama-3.1-8b"}, "critic"),
        ({"updates": 7}, "7 optimizer steps"),
        ({"placement": "async", "staleness": 0}, "staleness"),
        ({"placement": "colocated", "num_accelerators": "8+8"}, "placement"),
        ({"job": {"global_batch_size": 64}}, "global_batch_size"),
        ({"fix": {"tp": 2}}, "tp"),
        ({"observed": ["luck 7"]}, "luck"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_has_no_meaning_is_refused_in_our_words(api: TestClient, changes: dict[str, object], said: str) -> None:
    error = refused(api, **changes)
    assert said in error["message"]
    assert error["rule"]
    assert error["hint"]
    assert "--" not in error["hint"], "fields, not flags"


def test_the_schema_has_every_field_of_the_form(api: TestClient) -> None:
    body = api.get("/api/openapi.json").json()["components"]["schemas"]["RlBody"]
    assert {*described(RlForm)} <= {*body["properties"]}
    assert {"prompts", "samples", "response_tokens"} <= {*body["required"]}
    assert all(each.get("description") for each in body["properties"].values())
