"""Journeys of the Plan view."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect
from tests.web.browser.conftest import BIG, answered, change, settled

Open = Callable[..., Page]
SHIFTED = """() => new Promise((resolve) => {
  let sum = 0;
  new PerformanceObserver((list) => { for (const each of list.getEntries()) sum += each.value; })
    .observe({ type: "layout-shift", buffered: true });
  setTimeout(() => resolve(sum), 100);
})"""
"""Share of the window that moved since the page was opened."""


def test_first_visit_has_an_answer_with_units(page: Page) -> None:
    assert re.search(r"[\d.]+ m?s a step", page.inner_text(BIG))
    page.locator("#drawer > summary").click()
    text = page.inner_text("#answer")
    for part in ("80 % band", "MFU", "TFLOP/s bf16", "usable", "per accelerator", "measured run", "megatron-lm"):
        assert part in text


def test_every_change_asks_again_and_the_address_puts_the_same_question(page: Page, open_page: Open) -> None:
    before = page.inner_text(BIG)
    change(page, "Accelerators", "1024")
    settled(page, "gpus=1024")
    after = page.inner_text(BIG)
    assert after != before
    again = open_page(page.url)
    answered(again)
    assert again.inner_text(BIG) == after


def test_a_model_is_chosen_with_the_keyboard(page: Page) -> None:
    box = page.get_by_role("combobox", name="Model")
    box.focus()
    page.keyboard.type("llama-3.1-8")
    expect(page.locator("#f-model-options [role=option]")).to_have_count(1)
    page.keyboard.press("Enter")
    settled(page, "model=llama-3.1-8b")
    assert "llama-3.1-8b" in page.inner_text("#verdict-title")


def test_a_field_is_locked_and_freed(page: Page) -> None:
    chip = page.locator('[data-lock="lock.tp"]')
    value = chip.get_attribute("data-value")
    chip.click()
    settled(page, f"lock.tp={value}")
    expect(page.locator('[data-lock="lock.tp"]')).to_have_attribute("aria-pressed", "true")
    page.locator('[data-lock="lock.tp"]').click()
    expect(page).to_have_url(re.compile(r"^(?!.*lock)"))
    answered(page)


def test_the_keyboard_stays_where_it_was(page: Page) -> None:
    page.locator('[data-lock="lock.tp"]').focus()
    page.keyboard.press("Enter")
    settled(page, "lock.tp=")
    expect(page.locator('[data-lock="lock.tp"]')).to_be_focused()
    page.locator("table.plans tbody tr:not(.take) [data-show]").last.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-one]")
    page.get_by_role("button", name="Close").focus()
    page.keyboard.press("Enter")
    expect(page.locator("[data-one]")).to_have_count(0)


def test_a_locked_value_is_kept(open_page: Open) -> None:
    page = open_page("/?model=llama-3.1-70b&cluster=dgx-h100&gpus=512&lock.tp=8")
    answered(page)
    expect(page.locator('[data-lock="lock.tp"]')).to_have_attribute("data-value", "8")


def test_plans_are_sorted_filtered_pinned_and_compared(page: Page) -> None:
    titles = page.locator("table.plans thead th").all_inner_texts()
    at = next(number for number, title in enumerate(titles, start=1) if title.startswith("memory"))
    page.get_by_role("button", name="memory", exact=True).click()
    cells = page.locator(f"table.plans tbody tr td:nth-child({at})")
    values = [float(each.get_attribute("data-v") or "nan") for each in cells.all()]
    assert values == sorted(values)
    page.get_by_label("Filter").fill("tp 8")
    rows = page.locator("table.plans tbody tr:visible")
    assert all("tp 8" in (row.get_attribute("data-words") or "") for row in rows.all())
    rows.first.locator("[data-pin]").click()
    columns = page.locator("#compare thead th:not(:first-child)")
    expect(columns).to_have_count(2)
    assert "pin=" in page.url
    page.locator("#compare [data-pin]").click()
    expect(columns).to_have_count(0)


def test_an_answer_that_is_kept_stays_a_column_beside_the_next_question(page: Page) -> None:
    before = page.inner_text(BIG).removesuffix(" a step")
    page.get_by_role("button", name="Keep to compare").click()
    expect(page).to_have_url(re.compile("pin="))
    change(page, "Accelerators", "256")
    settled(page, "gpus=256")
    after = page.inner_text(BIG).removesuffix(" a step")
    steps = page.locator("#compare tr:has(> th:text-is('step time')) td")
    expect(steps).to_have_count(2)
    assert [each.split()[:2] for each in steps.all_inner_texts()] == [after.split(), before.split()]
    assert page.locator("#compare .better, #compare .worse").count() > 3


def test_why_not_this_plan(page: Page) -> None:
    page.locator("table.plans tbody tr:not(.take) [data-show]").first.click()
    page.wait_for_selector("[data-one]")
    assert re.search(r"longer|shorter|as long|memory", page.inner_text("[data-one]"))
    assert "show=" in page.url


def test_a_click_on_a_point_shows_that_plan(page: Page) -> None:
    page.wait_for_selector("[data-space] .main-svg")
    point = page.locator("[data-space] .scatterlayer .trace:last-child .point").first
    point.scroll_into_view_if_needed()
    box = point.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector("[data-one]")


def test_a_box_in_the_picture_filters_the_table_and_the_filter_searches_all_plans(page: Page) -> None:
    page.wait_for_selector("[data-space] .main-svg")
    place = page.locator("[data-space] .nsewdrag").first
    place.scroll_into_view_if_needed()
    box = place.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.1 * box["width"], box["y"] + 0.3 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.5 * box["height"], steps=4)
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.6 * box["height"], steps=4)
    page.mouse.up()
    expect(page.locator("[data-count]")).to_contain_text("of the drawn plans")
    assert re.fullmatch(r"step [\d.]+\.\.[\d.]+, memory [\d.]+\.\.[\d.]+", page.get_by_label("Filter").input_value())
    page.get_by_label("Filter").fill("tp 99")
    page.get_by_role("button", name="Lock tp=99, and see why").click()
    settled(page, "lock.tp=99")


def test_leaving_a_field_does_not_ask_again_what_was_asked_while_typing(page: Page) -> None:
    page.wait_for_load_state("networkidle")
    box = page.get_by_label("Accelerators", exact=True)
    box.fill("256")
    settled(page, "gpus=256")
    later: list[str] = []
    page.on("request", lambda request: later.append(request.url) if "/answer" in request.url else None)
    box.press("Tab")
    change(page, "Sequence length", "4k")
    settled(page, "sequence_length=4k")
    assert len(later) == 1


def test_an_error_is_at_its_field(page: Page) -> None:
    change(page, "Sequence length", "many")
    page.wait_for_selector(".panel.error")
    expect(page.get_by_label("Sequence length")).to_have_attribute("aria-invalid", "true")
    assert "Sequence length is 'many'" in page.inner_text("#error-sequence_length")
    change(page, "Sequence length", "4k")
    settled(page, "sequence_length=4k")
    expect(page.get_by_label("Sequence length")).not_to_have_attribute("aria-invalid", "true")


def test_an_unknown_model_is_named_with_its_neighbours(page: Page) -> None:
    change(page, "Model", "llama-3.1-71b")
    page.wait_for_selector(".panel.error")
    assert "llama-3.1-70b" in page.inner_text(".panel.error")


def test_where_nothing_fits_what_would_fit_is_one_click_away(open_page: Open) -> None:
    page = open_page("/?model=llama-3.1-405b&cluster=dgx-h100&gpus=8")
    answered(page)
    assert "Nothing fits" in page.inner_text("#answer")
    page.locator("[data-apply]").first.click()
    page.wait_for_selector(BIG)


def test_tokens_and_price_give_days_and_money(page: Page) -> None:
    change(page, "Tokens", "15T")
    settled(page, "tokens=15T")
    change(page, "Price", "2.5")
    settled(page, "price=2.5")
    text = page.inner_text(".tiles")
    assert re.search(r"[\d.]+[kMB]? USD", text)
    assert "accelerator-hours" in text


def test_an_older_answer_never_replaces_a_newer_one(page: Page) -> None:
    for number in ("64", "128", "256", "1024"):
        page.get_by_label("Accelerators", exact=True).fill(number)
    settled(page, "gpus=1024")
    page.wait_for_timeout(500)
    assert "gpus=1024" in page.url
    assert "1,024 x" in page.inner_text("#verdict-title")


def test_every_script_is_loaded_once(page: Page) -> None:
    page.wait_for_selector("[data-space] .main-svg")
    found = page.evaluate("performance.getEntriesByType('resource').map((each) => new URL(each.name).pathname)")
    scripts = [each.rpartition("/")[2] for each in found if each.endswith(".js")]
    assert {"app.js", "charts.js", "plan.js", "plotly.min.js"} <= set(scripts)
    assert len(scripts) == len(set(scripts))


def test_a_new_question_drops_the_figure_and_the_parts_of_the_older_answer(page: Page) -> None:
    page.wait_for_selector("[data-space] .main-svg")
    page.evaluate("() => { const { purge } = Plotly; window.purged = 0; Plotly.purge = (x) => (purged++, purge(x)); }")
    page.route("**/space?*gpus=256*", lambda _route: None)  # never answered
    with page.expect_request("**/space?*gpus=256*"):
        change(page, "Accelerators", "256")
    with page.expect_event("requestfailed", lambda request: "/space" in request.url):
        change(page, "Accelerators", "1024")
    settled(page, "gpus=1024")
    page.wait_for_selector("[data-space] .main-svg")
    assert page.evaluate("purged") == 1


def test_a_phone_has_the_question_in_one_line_and_plans_as_cards(open_page: Open) -> None:
    page = open_page("/", width=390, has_touch=True, is_mobile=True)
    answered(page)
    line = page.locator(".fold > summary")
    expect(line).to_contain_text("llama-3.1-70b on 512 x")
    box = line.bounding_box()
    assert box is not None
    assert box["height"] < 50
    gpus = page.get_by_label("Accelerators", exact=True)
    assert not gpus.is_visible()
    line.click()
    assert gpus.is_visible()
    card = page.locator("table.plans tbody tr").first
    edges = card.bounding_box()
    assert edges is not None
    for each in card.locator("td:visible").all():
        cell = each.bounding_box()
        assert cell is not None
        assert edges["x"] <= cell["x"]
        assert cell["x"] + cell["width"] <= edges["x"] + edges["width"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1920])
def test_pages_fit_their_width(open_page: Open, scheme: str, width: int) -> None:
    page = open_page("/", width=width, color_scheme=scheme)
    answered(page)
    page.wait_for_selector("[data-space] .main-svg")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(SHIFTED) < 0.02


def test_without_javascript_a_button_asks(open_page: Open) -> None:
    page = open_page("/", java_script_enabled=False)
    page.wait_for_url("**answer=here")
    assert "a step" in page.inner_text(BIG)
    assert "What would help most" in page.inner_text("#why")
    page.get_by_role("link", name="micro-batch 1", exact=True).click()
    page.wait_for_url("**lock.micro_batch_size=1**answer=here")
    page.get_by_role("link", name="Why not plan 1:").click()
    page.wait_for_url("**show=**answer=here")
    assert re.search(r"longer|shorter|as long|memory", page.inner_text("#one"))
    page.get_by_role("link", name="Export").click()
    page.wait_for_url("**/export?answer=here")
    assert "--tensor-model-parallel-size" in page.inner_text("#file-1")


def test_a_framework_that_refuses_a_lock_says_so_and_the_lock_is_freed_with_one_click(open_page: Open) -> None:
    page = open_page("/?model=llama-3.1-8b&cluster=dgx-h100&gpus=64&stack=megatron-lm&lock.tp_kind=summa")
    page.wait_for_selector(".panel.error")
    assert "The framework does not run this" in page.inner_text(".panel.error")
    page.get_by_role("button", name="Leave this field free").click()
    answered(page)
    assert "lock" not in page.url


def test_a_large_space_is_searched_whole(open_page: Open) -> None:
    page = open_page("/?model=mixtral-8x7b&cluster=dgx-h100&gpus=64")
    answered(page)
    page.wait_for_selector("#why h2")
    assert "that fit" in page.inner_text("#answer")


def test_the_last_answer_stays_while_a_field_is_wrong_and_a_fix_is_one_click(page: Page) -> None:
    before = page.inner_text(BIG)
    change(page, "Model", "llama-3.1-71b")
    expect(page.locator("#problem .panel.error")).to_contain_text(
        "Below is still the last answer: llama-3.1-70b on 512"
    )
    assert page.inner_text(BIG) == before
    expect(page.locator("#answer")).to_have_attribute("aria-busy", "false")
    page.locator("#problem").get_by_role("button", name="llama-3.1-8b").click()
    settled(page, "model=llama-3.1-8b")
    expect(page.locator("#problem .panel")).to_have_count(0)
    change(page, "Sequence length", "many")
    page.get_by_role("button", name="Undo this change").click()
    expect(page.locator("#problem .panel")).to_have_count(0)
    expect(page.get_by_label("Sequence length")).to_have_value("")


def test_a_name_that_is_being_typed_asks_nothing(page: Page) -> None:
    page.wait_for_load_state("networkidle")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "answer" in request.url else None)
    box = page.get_by_role("combobox", name="Model")
    box.fill("")
    box.press_sequentially("d")
    page.wait_for_timeout(600)
    assert not asked
    expect(page.locator("#problem .panel")).to_have_count(0)


def test_every_change_is_an_entry_of_the_history_and_is_undone(page: Page) -> None:
    gpus = page.get_by_label("Accelerators", exact=True)
    first = page.inner_text(BIG)
    change(page, "Accelerators", "1024")
    settled(page, "gpus=1024")
    strip = page.get_by_role("navigation", name="Last questions")
    expect(strip.locator("a").last).to_contain_text(re.compile("512 \u2192 1,024 accelerators -[45]\\d %"))
    page.locator('[data-lock="lock.tp"]').click()
    settled(page, "lock.tp=")
    page.get_by_role("button", name="Undo", exact=True).click()
    expect(page).to_have_url(re.compile(r"^(?!.*lock)"))
    expect(page.locator("[name='lock.tp']")).to_have_value("")
    page.go_back()
    settled(page, "gpus=512")
    expect(gpus).to_have_value("512")
    expect(page.locator(BIG)).to_have_text(first)
    expect(page.get_by_role("button", name="Undo", exact=True)).to_be_disabled()
    page.go_forward()
    settled(page, "gpus=1024")
    strip.locator("a").first.click()
    settled(page, "gpus=512")
    expect(gpus).to_have_value("512")
    page.reload()
    answered(page)
    expect(strip.locator("a")).to_have_count(3)


def test_the_parts_of_an_answer_are_about_its_question(page: Page) -> None:
    page.wait_for_load_state("networkidle")
    change(page, "Accelerators", "none at all")
    page.wait_for_selector("#problem .panel.error")
    page.locator("table.plans tbody tr:not(.take) [data-show]").first.click()
    page.wait_for_selector("[data-one] .bar")


def test_what_matters_is_above_the_fold(open_page: Open) -> None:
    page = open_page("/", width=1440, height=900)
    answered(page)
    moves = page.locator("#moves li")
    expect(moves).to_have_count(3)
    for each in moves.all_inner_texts():
        assert re.fullmatch(r".+: [+-][\d.]+ m?s(, .+)?|.+: same", each)
    last = moves.last.bounding_box()
    assert last is not None
    assert last["y"] + last["height"] < 700
    table = page.locator("table.plans").bounding_box()
    assert table is not None
    assert table["y"] < 700
    why = page.inner_text("#answer .below")
    assert why.startswith("Why this plan.")
    moves.first.locator("[data-show]").click()
    page.wait_for_selector("[data-one]")


def test_the_drawer_has_the_launch_file_and_stays_open(page: Page) -> None:
    page.locator("#drawer > summary").click()
    assert page.get_by_role("button", name="Copy command line of this search").is_visible()
    page.locator("#launch > summary").click()
    expect(page.locator("#drawer .code").first).to_contain_text("torchrun")
    assert "/export" not in page.url
    change(page, "Accelerators", "256")
    settled(page, "gpus=256")
    assert page.get_by_role("button", name="Copy command line of this search").is_visible()
