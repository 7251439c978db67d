"""The RL page and the RL question of the JSON API: they answer as the command does, and refuse in our words."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import shardplan
from shardplan.answers.document import plain_text, summary
from shardplan.ask.rl_forms import RlForm
from shardplan.base.fields import described
from shardplan.web.app import create_app
from shardplan.web.settings import ServerSettings

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
    asked = {**QUESTION, **STEP, "model": "deepseek-v3", "num_accelerators": 8, "placement": "colocated"}
    found = api.post("/api/rl", json=asked).json()
    assert found["plans"] == []
    assert "memory" in found["refused"]["colocated"]


def test_lengths_are_numbers_or_texts(api: TestClient) -> None:
    found = api.post("/api/rl", json={**QUESTION, **STEP, "prompt_tokens": "1k", "pack_tokens": "4k"}).json()
    assert (found["rl"]["prompt_tokens"], found["rl"]["pack_tokens"]) == (1024, 4096)
    assert "pack_tokens" in refused(api, pack_tokens="0")["message"]


def test_sizes_changes_and_the_whole_run(api: TestClient) -> None:
    asked = {**QUESTION, **STEP, "num_accelerators": [16, 8], "change": ["samples=16"], "steps": 100}
    found = api.post("/api/rl", json=asked).json()
    assert [each["variant"] for each in found["sizes"]] == ["8", "16"]
    assert found["changes"][1]["change"] > 0
    assert found["run"]["best"]["days"] > 0


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
        ({"change": ["moon=full"]}, "moon"),
        ({"change": ["cluster=/etc/passwd"]}, "cluster"),
        ({"change": ["critic=/etc/passwd"], "algorithm": "ppo"}, "model"),
        ({"days": 3.0}, "days"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_has_no_meaning_is_refused_in_our_words(api: TestClient, changes: dict[str, object], said: str) -> None:
    error = refused(api, **changes)
    assert said in error["message"]
    assert error["rule"]
    assert error["hint"]
    assert "--" not in error["hint"], "fields, not flags"


PAGE = "model=llama-3.2-1b&cluster=dgx-h100&gpus=16&rl.prompts=32&rl.samples=8&rl.response_tokens=mean=256,max=1k"
ONE = f"{PAGE}&rl.placement=in-turns"


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(create_app(ServerSettings(time_limit=120.0)), base_url="http://127.0.0.1:8321") as found:
        yield found


def test_a_page_has_the_fields_of_the_form(client: TestClient) -> None:
    page = client.get(f"/rl?{PAGE}").text
    assert [name for name in described(RlForm) if f'name="rl.{name}"' not in page] == []
    assert 'value="mean=256,max=1k"' in page
    assert "--" not in re.sub(r"<[^>]*>", "", page.partition("<aside")[2].partition("</aside>")[0])


def test_the_answer_is_that_of_the_document(client: TestClient) -> None:
    answer = shardplan.rl("llama-3.2-1b", "dgx-h100", 16, **STEP)
    found = client.get(f"/rl/answer?{ONE}")
    assert found.status_code == 200
    text = html.unescape(re.sub(r"<[^>]*>", "", found.text))
    document = answer.document()
    assert all(plain_text(line.words) in text for line in document.head)
    assert summary(document).removesuffix(".") in text
    assert [part.title for part in document.parts if part.title not in text] == []
    assert found.headers["HX-Replace-Url"] == f"rl?{ONE}"
    assert "data-chart=" in found.text


def test_more_is_asked_of_the_page(client: TestClient) -> None:
    more = "rl.change=samples=16;updates=2&rl.sizes=8,16&rl.steps=100&rl.observed=step 9s, generation 7s"
    found = client.get(f"/rl/answer?{ONE}&{more}&global_batch_size=64").text
    for text in (
        "After each change",
        "updates=2",
        "Sizes",
        "What was measured",
        "global batch size 64 of the question",
    ):
        assert text in found
    apart = client.get(f"/rl/answer?{PAGE}&gpus=8&rl.generating=8&rl.rollout_cluster=dgx-h100").text
    assert "8 + 8 accelerators" in apart


def test_a_node_moved_to_the_other_pool_is_one_click_away(client: TestClient) -> None:
    found = client.get(f"/rl/answer?{PAGE.replace('gpus=16', 'gpus=24')}&rl.placement=in-turns").text
    assert "One node to the other pool" in found
    assert "The trainer waits" in found
    assert '"name": "waits"' in found
    links = [html.unescape(each) for each in re.findall(r'href="(rl\?[^"]*rl\.generating=[^"]*)"', found)]
    assert links
    there = client.get(links[0].replace("rl?", "/rl/answer?"))
    assert there.status_code == 200
    given = re.search(r"gpus=(\d+).*rl\.generating=(\d+)", links[0])
    assert given
    assert int(given[1]) + int(given[2]) == 24
    assert f"{given[1]} + {given[2]} accelerators" in there.text


def test_the_trainer_has_its_step(client: TestClient) -> None:
    link = re.search(r'href="(step[^"]*)"', client.get(f"/rl/answer?{ONE}").text)
    assert link
    found = client.get(html.unescape(link[1]).replace("step?", "/step/answer?"))
    assert found.status_code == 200
    assert "a step, simulated" in found.text


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("rl.prompts=0", "rl.prompts"),
        ("rl.prompts=", "rl.prompts"),
        ("rl.response_tokens=long", "rl.response_tokens"),
        ("rl.response_tokens=mean=2k,max=1M", "rl.response_tokens"),
        ("rl.response_tokens=file=/etc/passwd", "rl.response_tokens"),
        ("rl.updates=7", "rl.updates"),
        ("rl.algorithm=sarsa", "rl.algorithm"),
        ("rl.placement=luck", "rl.placement"),
        ("rl.critic=/etc/passwd", "rl.critic"),
        ("rl.critic=llama-3.1-8b", "rl.critic"),
        ("rl.rollout_cluster=/etc/passwd", "rl.rollout_cluster"),
        ("rl.engine=x", "rl.engine"),
        ("rl.transfer=x", "rl.transfer"),
        ("rl.rollout_precision=fp3", "rl.rollout_precision"),
        ("rl.staleness=0&rl.placement=async", "rl.staleness"),
        ("rl.pack_tokens=100", "rl.pack_tokens"),
        ("rl.speculative=medusa", "rl.speculative"),
        ("rl.observed=luck 7", "rl.observed"),
        ("rl.change=moon=full", "rl.change"),
        ("rl.change=cluster=/etc/passwd", "rl.change"),
        ("rl.days=3", "rl.days"),
        ("rl.fix=tp=2", "rl.fix"),
        ("rl.sizes=many", "rl.sizes"),
        ("rl.generating=x", "rl.generating"),
        ("rl.generating=8&rl.placement=colocated", "rl.placement"),
        ("gpus=none", "gpus"),
        ("gpus=8%2B", "gpus"),
        ("model=nothing", "model"),
        ("cluster=/etc/passwd", "cluster"),
        ("lock.tq=3", "lock.tq"),
    ],
)
def test_what_is_wrong_stands_next_to_its_field(client: TestClient, query: str, field: str) -> None:
    found = client.get(f"/rl/answer?{ONE}&{query}", headers={"HX-Request": "true"})
    assert found.status_code == 422
    assert f'data-wrong="{field}"' in found.text
    assert "Fix" in found.text
    assert "Rule" in found.text or field not in ("rl.staleness", "rl.updates", "rl.pack_tokens", "rl.fix")


def test_the_schema_has_every_field_of_the_form(api: TestClient) -> None:
    body = api.get("/api/openapi.json").json()["components"]["schemas"]["RlBody"]
    assert {*described(RlForm)} <= {*body["properties"]}
    assert {"prompts", "samples", "response_tokens"} <= {*body["required"]}
    assert all(each.get("description") for each in body["properties"].values())
