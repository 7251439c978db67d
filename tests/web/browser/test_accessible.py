"""Pages by axe-core: labels, roles, contrast, landmarks."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import Any

import pytest
from playwright.sync_api import Page
from tests.web.browser.conftest import answered

Open = Callable[..., Page]
STATES = {
    "answer": "/?tokens=15T&price=2.5&pin=tp=8;pp=4&show=tp=8;pp=2",
    "nothing fits": "/?model=llama-3.1-405b&cluster=dgx-h100&gpus=8",
    "error": "/?gpus=none",
}


RULES = {
    "light": "axe.run()",
    "dark": "axe.run({exclude: [['.plot']]}, {runOnly: ['color-contrast']})",
}
"""By scheme: all of them once, and of the dark colours what depends on colours; a chart takes them from its page."""


def violations(page: Page, scheme: str) -> list[Any]:
    """What axe finds, in a few words each."""
    page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text())
    found = page.evaluate(RULES[scheme])["violations"]
    return [(each["id"], [node["target"] for node in each["nodes"]][:3]) for each in found]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("state", STATES)
def test_axe_finds_nothing(open_page: Open, state: str, scheme: str) -> None:
    page = open_page(STATES[state], color_scheme=scheme, reduced_motion="reduce")
    if state == "error":
        page.wait_for_selector(".panel.error")
    else:
        answered(page)
        page.wait_for_load_state("networkidle")
    assert not violations(page, scheme)
