"""Who may ask: names of the server, pages of other sites, the token, bodies; and what browsers may do with answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from shardplan.base.errors import InputError
from shardplan.web.app import create_app
from shardplan.web.guard import policy
from shardplan.web.pages import static_path, static_url
from shardplan.web.serving import address_of, with_token
from shardplan.web.settings import ServerSettings

TOKEN = "correct horse battery staple"
OWN = "http://127.0.0.1:8321"


def _client(base_url: str = OWN, **settings: Any) -> TestClient:
    return TestClient(create_app(ServerSettings(api_only=True, **settings)), base_url=base_url, follow_redirects=False)


@pytest.fixture(scope="module")
def own() -> Iterator[TestClient]:
    with _client() as client:
        yield client


@pytest.fixture(scope="module")
def guarded() -> Iterator[TestClient]:
    with _client(token=TOKEN) as client:
        yield client


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8321", "localhost:8321", "localhost", "LOCALHOST", "[::1]:8321", "127.8.8.8"]
)
def test_names_of_this_machine(own: TestClient, host: str) -> None:
    assert own.get("/healthz", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8321", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1", "0.0.0.0",
     "user@localhost", "localhost@evil.example", "localhost/x", "", "localhost:99999", "[::1", "2130706433"],
)  # fmt: skip
def test_other_names_are_refused_since_they_may_have_been_rebound(own: TestClient, host: str) -> None:
    assert own.get("/healthz", headers={"Host": host}).status_code == 400


def test_names_that_are_given_are_names_of_the_server() -> None:
    with _client("http://plan.example.org", allowed_hosts="plan.example.org, other.example") as client:
        assert client.get("/healthz").status_code == 200
        assert client.get("/healthz", headers={"Host": "other.example:443"}).status_code == 200
        assert client.get("/healthz", headers={"Host": "example.org"}).status_code == 400


def test_on_other_addresses_numbers_cannot_be_rebound() -> None:
    with _client("http://10.1.2.3:8321", host="0.0.0.0", token=TOKEN) as client:
        assert client.get("/healthz").status_code == 200
        assert client.get("/healthz", headers={"Host": "evil.example"}).status_code == 400


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "https://localhost:8321"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:8321", "Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    ],
)
def test_pages_of_other_sites_get_nothing(own: TestClient, headers: dict[str, str]) -> None:
    assert own.get("/api/models", headers=headers).status_code == 403
    assert own.post("/api/plan", json={}, headers=headers).status_code == 403


def test_own_pages_programs_and_links_are_welcome(own: TestClient) -> None:
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    for headers in ({}, {"Origin": OWN, "Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}, link):
        assert own.get("/api/models", headers=headers).status_code == 200
    assert own.post("/api/plan", json={}, headers=link).status_code == 403, "a form of another site"


def test_no_other_site_may_read(own: TestClient) -> None:
    asked = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    response = own.options("/api/plan", headers=asked)
    assert response.status_code == 403
    assert not any(name.lower().startswith("access-control") for name in response.headers)


def test_every_request_needs_the_token(guarded: TestClient) -> None:
    refused = guarded.get("/api/models")
    assert refused.status_code == 401
    assert refused.headers["WWW-Authenticate"] == "Bearer"
    assert TOKEN not in refused.text
    assert guarded.get("/healthz").status_code == 200
    for wrong in (f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer", "Bearer ü", TOKEN):
        assert guarded.get("/api/models", headers={"Authorization": wrong.encode("latin-1")}).status_code == 401
    for right in (f"Bearer {TOKEN}", f"bearer {TOKEN}"):
        assert guarded.get("/api/models", headers={"Authorization": right}).status_code == 200


def test_the_address_with_the_token_sets_a_cookie_and_forgets_it(guarded: TestClient) -> None:
    welcome = guarded.get("/api/models", params={"token": TOKEN, "a": "b c"})
    assert welcome.status_code == 303
    assert welcome.headers["Location"] == "./models?a=b+c"  # seen from there
    cookie = welcome.headers["Set-Cookie"]
    assert TOKEN not in cookie
    assert {"httponly", "samesite=strict"} <= {part.strip().lower() for part in cookie.split(";")}
    assert guarded.get("/api/models").status_code == 200, "the client keeps the cookie"
    guarded.cookies.clear()
    assert guarded.get("/api/models", headers={"Cookie": "shardplan_8321=wrong"}).status_code == 401
    assert guarded.get("/api/models", params={"token": f"{TOKEN}x"}).status_code == 401


def test_the_token_leads_to_no_other_host(guarded: TestClient) -> None:
    welcome = guarded.get("http://127.0.0.1:8321//evil.example/x", params={"token": TOKEN})
    assert welcome.status_code == 303
    assert welcome.headers["Location"] == "./x"
    guarded.cookies.clear()


def test_other_addresses_need_a_token_which_is_made_where_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHARDPLAN_TOKEN", raising=False)
    assert with_token(ServerSettings()).token is None
    made = [with_token(ServerSettings(host="0.0.0.0")).token for _ in range(2)]
    assert made[0] is not None
    assert made[0] != made[1]
    assert len(made[0]) >= 40
    monkeypatch.setenv("SHARDPLAN_TOKEN", TOKEN)
    assert with_token(ServerSettings()).token == TOKEN
    assert with_token(ServerSettings(token="x" * 16)).token == "x" * 16
    assert address_of(ServerSettings(token=TOKEN)).endswith("/?token=correct%20horse%20battery%20staple")
    with pytest.raises(InputError, match="characters"):
        with_token(ServerSettings(token="short"))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.1.2.3"])
def test_this_machine_alone_reaches_loopback_addresses(host: str) -> None:
    assert ServerSettings(host=host).is_loopback


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org", "", "localhost.example.org"])
def test_others_reach_other_addresses(host: str) -> None:
    assert not ServerSettings(host=host).is_loopback


def test_bodies_have_a_limit_with_and_without_a_stated_length() -> None:
    with _client(max_body_bytes=1024) as client:
        said = {"Content-Type": "application/json"}
        assert client.post("/api/plan", content=b" " * 1025, headers=said).status_code == 413
        assert client.post("/api/plan", content=iter([b" " * 600] * 2), headers=said).status_code == 413
        assert client.post("/api/plan", content=b" " * 1024, headers=said).status_code == 422
        assert client.post("/api/plan", content=b"", headers={**said, "Content-Length": "9" * 30}).status_code == 413


def test_all_answers_say_what_browsers_may_do(own: TestClient) -> None:
    for path in ("/healthz", "/api/models", "/nothing", "/api/openapi.json"):
        headers = own.get(path).headers
        assert headers["Content-Security-Policy"] == policy()
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Cache-Control"] == "no-store"
        assert "server" not in headers
    assert own.get("/healthz", headers={"Host": "evil.example"}).headers["Content-Security-Policy"] == policy()


def test_the_policy_allows_no_inline_script_and_no_other_host() -> None:
    directives = dict(each.split(" ", 1) for each in policy().split("; "))
    assert directives["default-src"] == "'none'"
    assert directives["script-src"] == "'self'"
    assert not any(word in policy() for word in ("unsafe", "http:", "https:", "*"))


@pytest.mark.parametrize(
    "path",
    ["../app.py", "..%2fapp.py", "%2e%2e/app.py", "....//app.py", "/etc/passwd", "%00", "..\\app.py", "../../app.py"],
)
def test_static_files_are_those_of_the_folder(path: str) -> None:
    with TestClient(create_app(ServerSettings()), base_url=OWN) as client:
        assert client.get(static_url("app.js")).headers["Cache-Control"].endswith("immutable")
        assert client.get(f"{static_path()}/{path}").status_code == 404
        assert client.get(f"/static/{path}").status_code == 404
