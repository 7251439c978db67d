"""The RL page in a real browser."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect
from tests.web.browser.conftest import answered, change, settled
from tests.web.browser.test_views import violations

Open = Callable[..., Page]
STEP = "/rl?model=llama-3.2-1b&cluster=dgx-h100&gpus=16&rl.prompts=32&rl.samples=8&rl.response_tokens=mean=256,max=1k"


def test_the_form_is_filled_and_the_verdict_read(open_page: Open) -> None:
    page = open_page(f"{STEP}&rl.placement=in-turns")
    answered(page)
    verdict = page.locator("#answer .lead")
    expect(verdict).to_contain_text("Two pools in turns, 8 + 8 accelerators")
    expect(page.locator("#chart-1 .barlayer path").first).to_be_attached()
    page.get_by_role("combobox", name="Placement").fill("colocated")
    page.keyboard.press("Enter")
    settled(page, "rl.placement=colocated")
    expect(verdict).to_contain_text("Colocated, 16 accelerators")
    change(page, "Prompts", "0")
    expect(page.locator("#error-rl\\.prompts")).to_contain_text("whole number")
    change(page, "Prompts", "64")
    settled(page, "rl.prompts=64")
    expect(page.locator("#answer")).to_contain_text("64 prompts x 8 answers")
    link = page.get_by_role("link", name="See the trainer's step")
    link.click()
    answered(page)
    assert "/step?" in page.url


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_and_nothing_overflows(open_page: Open, scheme: str) -> None:
    page = open_page(f"{STEP}&rl.updates=2", width=1440, color_scheme=scheme, reduced_motion="reduce")
    answered(page)
    page.wait_for_load_state("networkidle")
    assert not violations(page)
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_without_scripts_the_page_has_its_answer(open_page: Open) -> None:
    page = open_page(f"{STEP}&rl.placement=colocated&answer=here", java_script_enabled=False)
    expect(page.locator("#answer")).to_contain_text("Where the time of a step goes")
