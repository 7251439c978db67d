"""A real server and a real browser: Debian's chromium, or the tests are skipped."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright drives the browser: pip install 'shardplan[test]'")
uvicorn = pytest.importorskip("uvicorn", reason="the server is in the ui extra")

from playwright.sync_api import Browser, BrowserContext, Page, Playwright, Request, expect, sync_playwright  # noqa: E402
from tests.chromium import CHROMIUM, FLAGS  # noqa: E402

Open = Callable[..., Page]
PATIENCE = 60_000
"""Time that a page may take on a busy machine. [ms]"""
BIG = "#answer .big"
"""The step time of the plan to take."""
expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """Address of the app on a free port."""
    from shardplan.web.app import create_app
    from shardplan.web.settings import ServerSettings

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = uvicorn.Config(create_app(ServerSettings(port=port)), host="127.0.0.1", port=port, log_level="error")
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + PATIENCE / 1000
    while not running.started and time.monotonic() < deadline:
        time.sleep(0.02)
    assert running.started
    yield f"http://127.0.0.1:{port}"
    running.should_exit = True
    thread.join(timeout=10)


@pytest.fixture(scope="module")
def playwright_driver() -> Iterator[Playwright]:
    """The browser's driver: it keeps an event loop running in this thread, so it ends with its file's tests."""
    if CHROMIUM is None:
        pytest.skip("no chromium: apt install chromium")
    with sync_playwright() as driver:
        yield driver


@pytest.fixture(scope="module")
def browser(playwright_driver: Playwright) -> Iterator[Browser]:
    found = playwright_driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
    yield found
    found.close()


@pytest.fixture(scope="module")
def usual(browser: Browser, server: str) -> BrowserContext:
    """What pages share that ask for nothing special, each a tab of its own: scripts are fetched and compiled once."""
    return browser.new_context(base_url=server)


@pytest.fixture
def open_page(browser: Browser, server: str, usual: BrowserContext) -> Iterator[Open]:
    """Opens addresses of the server; the test fails on errors of the console and on requests to other hosts."""
    problems: list[str] = []
    opened_here: list[Page | BrowserContext] = []

    def opened(path: str = "/", *, width: int = 1280, height: int = 900, **known: Any) -> Page:
        context = browser.new_context(base_url=server, **known) if known else usual
        page = context.new_page()
        opened_here.append(context if known else page)
        page.set_default_timeout(PATIENCE)
        page.set_viewport_size({"width": width, "height": height})
        page.on("console", lambda message: problems.append(message.text) if is_fault(message) else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: problems.append(request.url) if is_elsewhere(request, server) else None)
        page.goto(path)
        return page

    yield opened
    for each in opened_here:
        each.close()
    assert not problems


def is_fault(message: Any) -> bool:
    """Whether the console reports a fault: a refused question (413, 422) is an answer, older requests are aborted."""
    is_meant = any(
        text in message.text for text in ("status of 413", "status of 422", "htmx:afterRequest", "htmx:sendAbort")
    )
    return message.type in ("error", "warning") and not is_meant


def is_elsewhere(request: Request, server: str) -> bool:
    """Whether a request leaves the server."""
    return not request.url.startswith((server, "data:", "blob:"))


@pytest.fixture
def page(open_page: Open) -> Page:
    """The first visit, with its answer."""
    found = open_page("/")
    answered(found)
    return found


def answered(page: Page) -> None:
    """Waits until the answer is there and is not stale."""
    page.wait_for_selector("#answer[aria-busy=false] [data-said]")


def until(page: Page, holds: str) -> None:
    """Waits until an expression of JavaScript holds; the page's own policy lets no string be evaluated in it."""
    for _ in range(PATIENCE // 50):
        if page.evaluate(holds):
            return
        page.wait_for_timeout(50)
    raise AssertionError(holds)


def change(page: Page, label: str, value: str) -> None:
    """Types into a field and leaves it."""
    page.get_by_role("textbox", name=label, exact=True).or_(page.get_by_role("combobox", name=label)).fill(value)
    page.keyboard.press("Tab")


def settled(page: Page, query: str) -> None:
    """Waits for the answer of the question whose address has ``query``."""
    expect(page).to_have_url(re.compile(re.escape(query)))
    answered(page)
