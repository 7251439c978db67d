"""What a page says when the server is gone, slow or wrong, and what fingers and paper get."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.web.browser.conftest import PATIENCE, answered, change, settled, until

from shardplan.web.pages import VIEWS, View

Open = Callable[..., Page]
QUESTION = "/?model=llama-3.1-8b&cluster=dgx-h100&gpus=16&lock.tp=2&lock.pp=2&lock.cp=1&lock.micro_batch_size=1"
SMALL_TARGETS = """() => [...document.querySelectorAll("button, input:not([type=checkbox]), select, nav a")]
  .filter((each) => each.checkVisibility() && !each.matches(".link, .hidden, th button"))
  .filter((each) => each.getBoundingClientRect().height < 36)
  .map((each) => each.outerHTML.slice(0, 80))"""


@pytest.fixture
def unwatched(browser: Browser, server: str) -> Iterator[Page]:
    """A page whose console may report the faults that the test makes."""
    context = browser.new_context(base_url=server)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.goto(QUESTION)
    answered(page)
    page.wait_for_selector("#why h2")
    yield page
    context.close()


def test_a_server_that_is_gone_is_said_and_asked_again(unwatched: Page) -> None:
    unwatched.route("**/answer?*", lambda route: route.abort())
    change(unwatched, "Accelerators", "32")
    expect(unwatched.locator(".panel.error")).to_contain_text("The server does not answer")
    assert unwatched.get_by_label("Accelerators", exact=True).input_value() == "32"
    unwatched.unroute("**/answer?*")
    unwatched.get_by_role("button", name="Try again").click()
    settled(unwatched, "gpus=32")


@pytest.mark.parametrize("fault", ["gone", "error"])
def test_a_part_that_does_not_come_says_so_in_its_place(unwatched: Page, fault: str) -> None:
    unwatched.route("**/why?*", lambda route: route.abort() if fault == "gone" else route.fulfill(status=500))
    change(unwatched, "Accelerators", "32")
    settled(unwatched, "gpus=32")
    expect(unwatched.locator("#why")).to_contain_text("could not be loaded")
    unwatched.unroute("**/why?*")
    unwatched.locator("#why").get_by_role("button", name="Try again").click()
    unwatched.wait_for_selector("#why h2")


def test_files_are_not_opened_or_saved_without_a_server(unwatched: Page) -> None:
    unwatched.route("**/plan.json", lambda route: route.abort())
    unwatched.get_by_role("button", name="Save file").click()
    expect(unwatched.locator(".panel.error")).to_contain_text("The server does not answer")


def test_the_tab_names_what_it_is_about(open_page: Open) -> None:
    page = open_page(QUESTION)
    answered(page)
    assert page.title() == "llama-3.1-8b on 16 x NVIDIA H100 SXM5 80GB · Plan · shardplan"
    page.get_by_role("link", name="Export").click()
    answered(page)
    assert page.title() == "llama-3.1-8b on 16 x NVIDIA H100 SXM5 80GB · Export · shardplan"


def test_fingers_have_room(open_page: Open) -> None:
    page = open_page(QUESTION, width=390, has_touch=True, is_mobile=True)
    answered(page)
    page.wait_for_selector("[data-space] .main-svg")
    assert page.evaluate(SMALL_TARGETS) == []
    assert page.evaluate("parseFloat(getComputedStyle(document.getElementById('f-gpus')).fontSize)") >= 16
    assert not page.locator(".modebar").is_visible()


@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_the_form_is_not_clipped_where_a_model_is_pasted(open_page: Open, width: int) -> None:
    page = open_page(QUESTION, width=width)
    if width == 390:  # a phone folds the question
        page.locator(".fold > summary").click()
    page.get_by_text("Use a config.json or plan file").click()
    room, inside = page.evaluate(
        "(({ clientWidth, scrollWidth }) => [clientWidth, scrollWidth])(document.querySelector('.ask'))"
    )
    assert inside <= room


def test_the_tools_of_a_figure_leave_its_legend_free(open_page: Open) -> None:
    page = open_page(QUESTION, width=1440)
    place = page.locator("[data-space]")
    page.wait_for_selector("[data-space] .main-svg")
    place.hover()
    tools, legend = (page.locator(f"[data-space] {part}").bounding_box() for part in (".modebar", ".legend"))
    assert tools is not None
    assert legend is not None
    assert legend["y"] + legend["height"] <= tools["y"]


def test_all_runs_are_shown_with_scripts_too(open_page: Open) -> None:
    page = open_page("/trust?run_accelerator=h100-sxm-80gb")
    answered(page)
    all_of_them = int(page.locator("p:has(> a:text-is('Show all'))").inner_text().split()[2].replace(",", ""))
    page.get_by_role("link", name="Show all").click()
    expect(page.locator(".tall td a[data-apply]")).to_have_count(all_of_them)


def test_a_name_that_is_half_typed_is_not_left_in_its_field(open_page: Open) -> None:
    page = open_page(QUESTION)
    answered(page)
    box = page.get_by_role("combobox", name="Model")
    for key, value in (("Escape", "llama-3.1-8b"), ("Tab", "llama-3.1-70b")):
        box.press("Control+A")
        box.press_sequentially("llama-3.1-7")
        box.press(key)
        expect(box).to_have_value(value)
    settled(page, "model=llama-3.1-70b")
    box.press("Control+A")
    box.press_sequentially("llama")
    page.locator("#verdict-title").click()
    expect(box).to_have_value("llama-3.1-70b")


def test_paper_gets_the_answer_alone_and_whole(open_page: Open) -> None:
    page = open_page(QUESTION)
    answered(page)
    page.wait_for_selector("#why h2")
    page.emulate_media(media="print")
    assert not page.get_by_label("Accelerators", exact=True).is_visible()
    assert page.get_by_role("heading", name="Why this plan").is_visible()
    assert (
        page.evaluate(
            "(({ scrollHeight, clientHeight }) => scrollHeight - clientHeight)(document.querySelector('.plans-room'))"
        )
        <= 1
    )


@pytest.mark.parametrize("view", ["step", "decide", "trust", "export", "published"])
def test_every_page_has_its_link_to_copy(open_page: Open, view: str) -> None:
    page = open_page(f"/{view}{QUESTION[1:]}", permissions=["clipboard-read", "clipboard-write"])
    answered(page)
    page.get_by_role("button", name="Copy link").click()
    until(page, "navigator.clipboard.readText().then((text) => text === location.href)")


def test_a_browser_without_a_clipboard_copies_too(open_page: Open) -> None:
    page = open_page(QUESTION)
    answered(page)
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page.locator("#drawer > summary").click()
    page.get_by_role("button", name="Copy command line of this search").click()
    page.get_by_label("Filter").focus()
    page.keyboard.press("Control+V")
    copied = page.get_by_label("Filter").input_value()
    assert copied.startswith("shardplan plan llama-3.1-8b --cluster dgx-h100 --gpus 16 --fix tp=2 --fix pp=2")


def test_a_plan_that_cannot_be_read_is_marked_in_its_field(open_page: Open) -> None:
    page = open_page("/step?model=llama-3.1-8b&gpus=16&show=tp=3")
    page.wait_for_selector(".panel.error")
    expect(page.get_by_label("Plan", exact=True)).to_have_attribute("aria-invalid", "true")
    assert page.inner_text(".panel.error .lead").startswith("tp 3 x cp 1 x pp 1 = 3")


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.title)
def test_without_scripts_nothing_can_be_pressed_that_does_nothing(open_page: Open, view: View) -> None:
    page = open_page(f"{view.path}{QUESTION[1:]}&answer=here", java_script_enabled=False)
    page.wait_for_selector("#answer > *")
    dead = "button[type=button], input[type=search], input[type=file], canvas, [data-colour], [data-zoom]"
    shown = [each for each in page.locator(dead).all() if each.is_visible()]
    assert not [
        each.inner_text() for each in shown if each.evaluate("(one) => getComputedStyle(one).display") != "contents"
    ]
