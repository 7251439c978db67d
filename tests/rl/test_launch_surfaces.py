"""A launch file of post-training is the same two pools on the command line, in Python, for requests and on the page."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.testclient import TestClient
from tests.cli.commands import answer, refused
from tests.rl.test_launch import FILES

import shardplan
from shardplan import RlAuditAnswer
from shardplan.answers.document import plain_text, summary
from shardplan.base.errors import InputError
from shardplan.web.app import create_app
from shardplan.web.settings import ServerSettings

GIVEN = {"response_mean": 400}
SAID: dict[str, dict[str, Any]] = dict.fromkeys(FILES, GIVEN) | {"trl": GIVEN | {"rollout_accelerators": 8}}


def page_of(client: TestClient, name: str, **fields: str) -> str:
    file, text = FILES[name]
    body = urlencode({"script": text, "name": file, "audit_cluster": "dgx-h100", **fields})
    headers = {"Content-Type": "application/x-www-form-urlencoded", "HX-Request": "true"}
    found = client.post("/audit/answer", content=body, headers=headers)
    assert found.status_code == 200, found.text
    return html.unescape(re.sub(r"<[^>]*>", "", found.text))


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(create_app(ServerSettings(time_limit=120.0)), base_url="http://127.0.0.1:8321") as found:
        yield found


@pytest.mark.parametrize("name", FILES)
def test_the_same_document_everywhere(client: TestClient, tmp_path: Path, name: str) -> None:
    file, text = FILES[name]
    path, given = tmp_path / file, SAID[name]
    path.write_text(text)
    found = shardplan.audit(path, cluster="dgx-h100", given=given)
    assert isinstance(found, RlAuditAnswer)
    flags = [part for key, value in given.items() for part in ("--given", f"{key}={value}")]
    record = answer("audit", path, "--cluster", "dgx-h100", *flags)
    assert record == found.to_dict()
    body = {"text": text, "name": file, "cluster": "dgx-h100", "given": given}
    asked = client.post("/api/audit", json=body)
    assert asked.status_code == 200, asked.text
    assert asked.json()["plans"] == record["plans"]
    assert asked.json()["facts"] == record["facts"]
    shown = page_of(client, name, **{f"given.{key}": str(value) for key, value in given.items()})
    document = found.document(is_whole=True)
    assert summary(document).removesuffix(".") in shown
    assert [part.title for part in document.parts if part.title not in shown] == []
    assert all(plain_text(line.words) in shown for line in document.head[1:])
    assert "/tmp" not in shown  # noqa: S108  # what must not be shown


def test_the_page_asks_for_what_is_open_by_name(client: TestClient) -> None:
    file, text = FILES["verl"]
    body = urlencode({"script": text.replace("Qwen/Qwen3-8B", "/data/mine"), "name": file})
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    found = client.post("/audit/answer", content=body, headers=headers).text
    for name in ("given.response_mean", "audit_model"):
        assert f'name="{name}"' in found
    assert "choose a cluster in the form" in found
    assert "values are missing" in found


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"cluster": None}, "response_mean"),
        ({"given": GIVEN, "keep": ["tp"]}, "keep is tp"),
        ({"given": GIVEN, "observed": ["luck 7"]}, "luck 7"),
        ({"given": GIVEN, "model": "nothing"}, "nothing"),
        ({"given": {"response_mean": "many"}}, "many"),
    ],
    ids=["open", "keep", "observed", "model", "given"],
)
def test_requests_are_refused_in_their_own_words(client: TestClient, asked: dict[str, Any], said: str) -> None:
    file, text = FILES["verl"]
    found = client.post("/api/audit", json={"text": text, "name": file, "cluster": "dgx-h100", **asked})
    assert found.status_code == 422
    error = found.json()["error"]
    assert said in error["message"]
    assert error["rule"]
    assert error["hint"]
    assert "--" not in error["hint"]


def test_what_was_measured_is_explained_and_nothing_is_left_unsaid(client: TestClient, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(FILES["verl"][1])
    found = shardplan.audit(path, cluster="dgx-h100", given=GIVEN, observed="step 100s")
    assert isinstance(found, RlAuditAnswer)
    assert found.observed[0].ratio == pytest.approx(100 / found.plan.step_time)
    assert "What was measured" in page_of(client, "verl", observed="step 100s", **{"given.response_mean": "400"})
    with pytest.raises(InputError, match="keep"):
        shardplan.audit(path, cluster="dgx-h100", given=GIVEN, keep=["tp"])
    assert "--keep" in refused("audit", path, "--cluster", "dgx-h100", "--given", "response_mean=400", "--keep", "tp")
