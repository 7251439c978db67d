"""The examples of the page on the web app run against a server, and the container file is what the page says."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.web.conftest import Served, serving

from shardplan.base.fields import described
from shardplan.web.json.routes import CATALOGUES, TASKS
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


OTHER_FLAGS = {"--seconds", "--requests", "--api-only", "--user", "--memory", "--restart"}
"""Of the benchmarks of the server, of systemd-run and of programs that run containers."""


def test_flags_that_the_page_names_are_flags() -> None:
    known = {field.flag for field in described(ServerSettings).values()} | {"--open", "--json"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE)) <= known | OTHER_FLAGS


CONTAINER = [
    line.split(maxsplit=1)
    for line in (ROOT / "Containerfile").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]
"""Instructions and what they say."""


def _said(instruction: str) -> list[str]:
    return [said for name, said in CONTAINER if name == instruction]


def test_the_container_runs_as_a_user_without_rights() -> None:
    names = [name for name, _ in CONTAINER]
    assert _said("USER") == ["10001"]
    assert names.index("USER") < names.index("ENTRYPOINT")
    last = len(names) - 1 - names[::-1].index("FROM")
    assert all(name not in {"RUN", "COPY", "ADD"} for name in names[names.index("USER") :])
    assert names.index("USER") > last


def test_the_container_is_built_on_a_named_version_of_python() -> None:
    images = [said.split()[0] for said in _said("FROM")]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest = project["requires-python"].removeprefix(">=")
    assert set(images) == {f"python:{oldest}-slim"}


def test_the_container_installs_what_the_project_is() -> None:
    copied = [path for said in _said("COPY") if not said.startswith("--from") for path in said.split()[:-1]]
    assert all((ROOT / path).exists() for path in copied)
    (install,) = [said for said in _said("RUN") if "pip install" in said]
    words = shlex.split(install.partition("&&")[2])
    assert words[0].endswith("/pip")
    assert words[words.index("-c") + 1] == "/source/constraints.txt"
    extra = re.fullmatch(r"/source\[(\w+)\]", words[-1])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert extra is not None
    assert extra[1] in project["optional-dependencies"]


def test_the_container_starts_the_server_with_flags_that_it_has() -> None:
    command = json.loads(_said("ENTRYPOINT")[0])
    assert command[:2] == ["shardplan", "serve"]
    given = dict(zip(command[2::2], command[3::2], strict=True))
    known = {field.flag: field.name for field in described(ServerSettings).values()}
    settings = ServerSettings(**{known[flag]: value for flag, value in given.items()})
    assert settings.is_everywhere  # so that it needs a token
    assert _said("EXPOSE") == [str(settings.port)]
    assert f":{settings.port}/healthz" in _said("HEALTHCHECK")[0]
