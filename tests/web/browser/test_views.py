"""Journeys through the views besides Plan, in a real browser."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import ClassVar

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.web.browser.conftest import answered, until

from shardplan.base.files import DATA

Open = Callable[..., Page]
SMALL = "model=llama-3.1-8b&cluster=dgx-h100&gpus=16&lock.tp=2&lock.pp=2&lock.cp=1&lock.micro_batch_size=1"
VIEWS = {
    "trust": "/trust?run=ds-azure-gpt-2t",
    "audit": "/audit",
    "step": f"/step?{SMALL}",
    "export": f"/export?{SMALL}",
    "decide": f"/decide?{SMALL}&decide=scale&sizes=8,16",
    "published": f"/published?{SMALL}&figure=F8",
}
WIDE, NARROW = 1920, 390
OUTSIDE_CHARTS = "axe.run({exclude: [['.plot']]})"
"""Charts are thousands of shapes with a table as their text."""
DRAWN = "#t-rank-choice option >> nth=0"
"""What the timeline fills in once it has read its events."""


def violations(page: Page) -> list[tuple[str, list[str]]]:
    """What axe finds outside charts."""
    page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text())
    found = page.evaluate(OUTSIDE_CHARTS)["violations"]
    return [(each["id"], [node["target"] for node in each["nodes"]][:3]) for each in found]


@pytest.mark.parametrize(("view", "scheme"), [*zip(VIEWS, ("light", "dark") * 3, strict=True)])
def test_axe_finds_nothing_and_nothing_overflows(open_page: Open, view: str, scheme: str) -> None:
    page = open_page(VIEWS[view], width=WIDE, color_scheme=scheme, reduced_motion="reduce")
    answered(page)
    page.wait_for_load_state("networkidle")
    assert not violations(page)
    for width in (WIDE, NARROW):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_point_of_trust_opens_its_run_and_the_link_keeps_it(open_page: Open) -> None:
    page = open_page("/trust?gpus=64&run_family=megatron-lm&run_text=")
    answered(page)
    page.locator("#trust-chart .scatterlayer .point").first.click(force=True)
    article = page.locator("article[data-run-id]")
    expect(article).to_contain_text("Why it differs")
    name = article.get_attribute("data-run-id")
    assert f"run={name}" in page.url
    assert "gpus=64" in page.url
    page.reload()
    answered(page)
    expect(page.locator("article[data-run-id]")).to_contain_text(name or "-")


def test_a_row_of_trust_opens_its_run_by_keyboard(open_page: Open) -> None:
    page = open_page("/trust")
    answered(page)
    link = page.locator("td a[data-apply]").nth(2)
    link.focus()
    page.keyboard.press("Enter")
    expect(page.locator("article[data-run-id]")).to_have_attribute("data-run-id", link.inner_text())


def test_a_script_is_audited_and_what_is_missing_is_given(open_page: Open) -> None:
    page = open_page("/audit")
    answered(page)
    area = page.locator("#f-script")
    area.fill(area.input_value().replace("TP=${TP:-8}\n", ""))
    field = page.get_by_label("Environment variable TP")
    field.fill("4")
    field.press("Tab")
    expect(page.locator("#answer")).to_contain_text("it fits")
    expect(field).to_have_value("4")


def test_a_file_is_chosen_and_audited(open_page: Open) -> None:
    page = open_page("/audit")
    answered(page)
    content = b"train_micro_batch_size_per_gpu: 1\n"
    page.locator("#f-file").set_input_files({"name": "ds.yaml", "mimeType": "text/yaml", "buffer": content})
    expect(page.locator("#f-name")).to_have_value("ds.yaml")
    expect(page.locator("#problem")).to_contain_text("Below is still the last answer")
    expect(page.get_by_role("button", name="Undo this change")).to_have_count(0)


def test_the_timeline_draws_and_the_trace_is_saved(open_page: Open) -> None:
    page = open_page(f"/step?{SMALL}")
    answered(page)
    expect(page.locator(DRAWN)).to_be_attached()
    until(page, "shardplanView.frames.length > 0")
    page.locator("#t-ranks").hover(position={"x": 400, "y": 12})
    expect(page.locator("#t-at")).to_contain_text("stage 0 holds")
    expect(page.locator("#t-cursor")).to_be_visible()
    page.get_by_label("Pipeline schedule").select_option("gpipe")
    expect(page.locator("#answer .lead")).to_contain_text("GPipe")
    until(page, "shardplanView.step.title.startsWith('GPipe') && shardplanView.frames.length > 0")
    expect(page.get_by_role("region", name="Schedules side by side")).to_contain_text("gpipe")
    with page.expect_download() as download:
        page.get_by_role("link", name="Trace for Perfetto").click()
    assert download.value.suggested_filename == "trace.json"


def test_launch_files_are_shown_and_saved(open_page: Open) -> None:
    page = open_page(f"/export?{SMALL}")
    answered(page)
    expect(page.locator("#file-1")).to_contain_text("--tensor-model-parallel-size 2")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").first.click()
    assert download.value.suggested_filename == "launch.sh"
    page.get_by_label("Launch files for").select_option("torchtitan")
    expect(page.locator("#answer .lead")).to_contain_text("torchtitan")


def test_a_long_decision_is_stopped_and_asked_again(open_page: Open) -> None:
    page = open_page("/decide")
    answered(page)
    is_question = re.compile(r"/decide/answer\?.*ticket=")
    page.route(is_question, lambda _route: None)  # an answer that takes for ever
    page.get_by_label("Decision").select_option("sensitivity")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#problem")).to_contain_text("Stopped")
    page.unroute(is_question)
    page.get_by_label("Decision").select_option("budget")
    page.get_by_label("Tokens", exact=True).fill("1T")
    expect(page.locator("#answer .lead")).to_contain_text("days on 512")


def test_the_question_goes_from_view_to_view(open_page: Open) -> None:
    page = open_page(f"/export?{SMALL}")
    answered(page)
    page.get_by_role("link", name="Published models").click()
    answered(page)
    assert "lock.tp=2" in page.url
    expect(page.locator("#f-model")).to_have_value("llama-3.1-8b")


def test_an_uploaded_model_goes_from_view_to_view(open_page: Open) -> None:
    config = json.loads((DATA / "models" / "llama-3.1-8b.json").read_text()) | {"num_hidden_layers": 24}
    page = open_page("/?cluster=dgx-h100&gpus=16&lock.tp=2&lock.pp=2&lock.cp=1&lock.micro_batch_size=1")
    answered(page)
    page.get_by_text("Use a config.json").click()
    page.get_by_label("Text of a config.json").fill(json.dumps(config))
    page.keyboard.press("Tab")
    expect(page).to_have_url(re.compile("#config="))
    for view, said in (("Step", "a step, simulated"), ("Export", "Launch files for")):
        page.get_by_role("link", name=view, exact=True).click()
        expect(page).to_have_url(re.compile(f"/{view.lower()}.*#config="))
        answered(page)
        expect(page.locator("#answer")).to_contain_text(said)
        if view == "Step":
            expect(page.locator(DRAWN)).to_be_attached()
            expect(page.get_by_role("region", name="Schedules side by side")).to_contain_text("gpipe")
            with page.expect_download() as download:
                page.get_by_role("button", name="Trace for Perfetto").click()
            assert download.value.suggested_filename == "trace.json"
    assert len(page.context.pages) == 1


class Proxy(BaseHTTPRequestHandler):
    """Passes on what is under its path, which it takes off, as nginx does with ``proxy_pass http://host/;``."""

    under: ClassVar = "/tools/shardplan"
    behind: ClassVar = ""
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Asks the server behind it."""
        connection = HTTPConnection(self.behind, timeout=60)
        inside = self.path.startswith(f"{self.under}/")
        connection.request(
            "GET", self.path.removeprefix(self.under) if inside else "/outside", headers=dict(self.headers)
        )
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length", "date", "server"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        with suppress(ConnectionError):  # a request that the page has given up
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def proxy(server: str) -> Iterator[str]:
    """Address of the app under a path of a proxy."""
    Proxy.behind = server.removeprefix("http://")
    found = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=found.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{found.server_port}{Proxy.under}"
    found.shutdown()
    found.server_close()


def test_behind_a_proxy_everything_is_under_its_path(proxy: str, browser: Browser) -> None:
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: asked.append(message.text) if message.type == "error" else None)
    page.goto(f"{proxy}/?{SMALL}")
    answered(page)
    page.get_by_role("link", name="Step", exact=True).click()
    answered(page)
    expect(page.locator(DRAWN)).to_be_attached()
    expect(page.get_by_role("region", name="Schedules side by side")).to_contain_text("gpipe")
    page.wait_for_selector("#roofline-chart .main-svg")
    assert page.url.startswith(f"{proxy}/step?")
    page.get_by_role("link", name="shardplan").click()
    answered(page)
    page.close()
    assert [each for each in asked if not each.startswith((proxy, "data:", "blob:"))] == []
