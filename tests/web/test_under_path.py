"""The app behind a proxy that serves it under a path: no link, file or request of a page leaves that path."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from shardplan import web
from shardplan.web.app import create_app
from shardplan.web.pages import VIEWS, View
from shardplan.web.pages.rendering import relative
from shardplan.web.settings import ServerSettings

UNDER = "/tools/shardplan"
SMALL = "model=llama-3.1-8b&cluster=dgx-h100&gpus=16&lock.tp=2&lock.pp=2&lock.cp=1&lock.micro_batch_size=1"
OWN = "http://127.0.0.1:8321"
FOLDER = Path(web.__file__).parent
ADDRESSES = re.compile(r'(?:href|src|action|formaction|hx-get|hx-post|content)="([^"{#][^"]*)"')


class Stripping:
    """A proxy that takes its path off, as ``proxy_pass http://host/;`` does."""

    def __init__(self, app: Starlette) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = scope["path"]
            scope = {**scope, "path": path.removeprefix(UNDER) if path.startswith(f"{UNDER}/") else "/elsewhere"}
        await self.app(scope, receive, send)


@pytest.fixture(scope="module", params=["stripped", "kept"])
def proxied(request: pytest.FixtureRequest) -> Iterator[TestClient]:
    app = create_app(ServerSettings(root_path=UNDER, time_limit=120.0))
    with TestClient(Stripping(app) if request.param == "stripped" else app, base_url=OWN) as client:
        yield client


def _joined(page: str, address: str) -> str:
    """As a browser resolves an address of a page."""
    from urllib.parse import urljoin, urlsplit

    return urlsplit(urljoin(f"{OWN}{page}", address.replace("&amp;", "&"))).path


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.title)
def test_every_address_of_a_page_is_under_the_path(proxied: TestClient, view: View) -> None:
    where = f"{UNDER}{view.path}"
    page = proxied.get(f"{where}?{SMALL}")
    assert page.status_code == 200
    found = {each for each in ADDRESSES.findall(page.text) if not re.match(r"0; url|[a-z]+ |width=|light", each)}
    assert len(found) > 10
    for address in found:
        path = _joined(where, address)
        assert path.startswith(f"{UNDER}/"), address
        if "static" in path or path.endswith(".js"):
            assert proxied.get(path).status_code == 200, address


def test_answers_and_their_addresses_are_under_the_path(proxied: TestClient) -> None:
    found = proxied.get(f"{UNDER}/step/answer?{SMALL}", headers={"HX-Request": "true"})
    assert _joined(f"{UNDER}/step", found.headers["HX-Replace-Url"]) == f"{UNDER}/step"
    assert all(_joined(f"{UNDER}/step", each).startswith(f"{UNDER}/") for each in ADDRESSES.findall(found.text))
    assert proxied.get(f"{UNDER}/step/timeline?{SMALL}").status_code == 200


def test_rows_of_a_decision_lead_under_the_path(proxied: TestClient) -> None:
    found = proxied.get(f"{UNDER}/decide/answer?{SMALL}&decide=scale&sizes=8,16").text
    rows = re.findall(r'<a href="([^"]*)" data-apply', found)
    assert rows
    assert all(_joined(f"{UNDER}/decide", each) == f"{UNDER}/step" for each in rows)


def test_the_api_says_where_it_is(proxied: TestClient) -> None:
    document = proxied.get(f"{UNDER}/api/openapi.json").json()
    assert document["servers"] == [{"url": UNDER}]
    assert proxied.get(f"{UNDER}/healthz").json()["status"] == "ok"


def test_a_page_that_is_missing_links_to_those_that_are_there(proxied: TestClient) -> None:
    where = f"{UNDER}/some/where/else"
    page = proxied.get(where)
    assert page.status_code == 404
    assert {_joined(where, each) for each in ADDRESSES.findall(page.text) if "step" in each} == {f"{UNDER}/step"}


def test_the_token_leads_back_under_the_path() -> None:
    token = "sixteen characters"
    with TestClient(
        Stripping(create_app(ServerSettings(root_path=UNDER, token=token))), base_url=OWN, follow_redirects=False
    ) as client:
        for path, query in (("/", ""), ("/step", "model=llama-3.1-8b")):
            sent = client.get(f"{UNDER}{path}?{query}&token={token}")
            assert sent.status_code == 303
            assert _joined(f"{UNDER}{path}", sent.headers["location"]) == f"{UNDER}{path}"


def test_no_template_or_script_has_an_address_from_the_root() -> None:
    for file in (*(FOLDER / "templates").glob("*.html"), *(FOLDER / "static").glob("*.js")):
        text = file.read_text(encoding="utf-8")
        absolute = re.findall(r"""(?:href|src|action|hx-get|hx-post)=["']/|(?:fetch|part|ajax)\([^)]*["'`]/""", text)
        assert not absolute, file.name


def test_addresses_become_relative() -> None:
    assert [relative(each) for each in ("/", "/?gpus=8", "/step?a=1", "https://arxiv.org")] == [
        "./", "./?gpus=8", "step?a=1", "https://arxiv.org",
    ]  # fmt: skip
