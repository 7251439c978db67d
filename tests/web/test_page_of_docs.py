"""The examples of the page on the web app run against a server, and the container file is what the page says."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.web.conftest import Served, serving

from shardplan.fields import described
from shardplan.web.json.tasks import CATALOGUES, TASKS
from shardplan.web.settings import ServerSettings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "howto" / "run-the-web-app.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:8321"


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(ServerSettings(api_only=True)) as found:
        yield found


def test_examples_in_python_run(served: Served) -> None:
    (code,) = _blocks("py")
    names: dict[str, Any] = {}
    exec(compile(code.replace(ADDRESS, f"http://127.0.0.1:{served.port}"), "page", "exec"), names)  # noqa: S102
    assert names["found"]["plans"]
    assert names["rows"]
    assert names["script"].startswith("#!")


def test_examples_with_curl_run(served: Served) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    found, refused = (_curl(block, served) for block in _blocks("bash"))
    assert len(found["plans"]) == 3
    assert refused == json.loads(_blocks("json")[0])


def _curl(block: str, served: Served) -> Any:
    command = shlex.split(block.replace(ADDRESS, f"http://127.0.0.1:{served.port}"))
    return json.loads(subprocess.run(command, capture_output=True, check=True, text=True, timeout=120).stdout)


def test_the_page_names_every_request() -> None:
    for task in TASKS:
        assert f"`POST /api/{task.name}`" in PAGE
    for catalogue in CATALOGUES:
        assert f"{catalogue.name}`" in PAGE


def test_flags_that_the_page_names_are_flags() -> None:
    known = {field.flag for field in described(ServerSettings).values()} | {"--open", "--json"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE)) <= known | {"--seconds", "--requests", "--api-only"}


def test_the_container_runs_as_a_user_without_rights() -> None:
    lines = (ROOT / "Containerfile").read_text(encoding="utf-8").splitlines()
    user = next(number for number, line in enumerate(lines) if line.startswith("USER "))
    assert lines[user] == "USER 10001"
    assert user < next(number for number, line in enumerate(lines) if line.startswith("ENTRYPOINT"))
    assert not any(
        "/" in line.split()[1] or "." in line.split()[1].split(":")[0] for line in lines if line[:5] == "FROM "
    )
