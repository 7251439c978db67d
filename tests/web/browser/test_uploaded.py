"""Models, clusters and plan files that are put into a page: they travel in its link, or stay in its tab."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from playwright.sync_api import Page, expect
from tests.web.browser.conftest import BIG, answered, change, settled

from shardplan.api.calls import search
from shardplan.base.files import DATA
from shardplan.base.units import format_time
from shardplan.inputs.readers.catalog import load_cluster, load_model

Open = Callable[..., Page]


def paste(page: Page, **changed: Any) -> None:
    """Puts a model of one's own into the form."""
    config = json.loads((DATA / "models" / "llama-3.1-8b.json").read_text()) | {"num_hidden_layers": 24} | changed
    if not page.get_by_label("Text of a config.json").is_visible():
        page.get_by_text("Use a config.json").click()
    page.get_by_label("Text of a config.json").fill(json.dumps(config))
    page.keyboard.press("Tab")


def test_a_pasted_model_travels_in_the_link(page: Page, open_page: Open) -> None:
    paste(page)
    expect(page).to_have_url(re.compile("#config="))
    answered(page)
    size = page.inner_text("#answer .quiet")
    assert "parameters" in size
    again = open_page(page.url)
    answered(again)
    assert again.inner_text("#answer .quiet") == size
    again.get_by_role("link", name="Audit").click()
    answered(again)


def test_a_model_that_is_too_large_for_a_link_stays_in_its_tab(page: Page, open_page: Open, tmp_path: Path) -> None:
    random = Random(1)  # noqa: S311  # text that does not compress
    paste(page, quantization_config={"ignore": [f"layers.{number}.{random.random()}" for number in range(2000)]})
    expect(page).to_have_url(re.compile("#config-kept-"))
    answered(page)
    size = page.inner_text("#answer .quiet")
    assert "this tab keeps it" in page.inner_text("[data-config-state]")
    page.get_by_role("button", name="Copy link").click()
    assert "save a file" in page.inner_text("[data-copy-link]")
    for view in ("Export", "Plan"):
        page.get_by_role("link", name=view, exact=True).click()
        answered(page)
    page.reload()
    answered(page)
    assert page.inner_text("#answer .quiet") == size
    with page.expect_download() as download:
        page.get_by_role("button", name="Save file").click()
    download.value.save_as(tmp_path / "plan.json")
    other = open_page(page.url)
    other.wait_for_selector(".panel.error")
    assert "Open the file" in other.inner_text(".panel.error")
    other.locator("[data-open-session]").set_input_files(tmp_path / "plan.json")
    answered(other)
    assert other.inner_text("#answer .quiet") == size


def test_a_plan_file_about_ones_own_model_and_cluster_opens_shares_and_stays(
    page: Page, open_page: Open, tmp_path: Path
) -> None:
    model = replace(load_model("llama-3.1-8b"), name=f"mine {'long' * 40} <b>&'", vocab_size=64000)
    cluster = load_cluster("dgx-h100", peak_flops={"bf16": "900TFLOP/s"})
    found = search(model, replace(cluster, name="our cluster"), 16, global_batch_size=64)
    (tmp_path / "plan.json").write_text(json.dumps(found.to_dict()))
    page.locator("[data-open-session]").set_input_files(tmp_path / "plan.json")
    settled(page, "cluster=our+cluster")
    assert found.recommended is not None
    assert format_time(found.recommended.step_time) in page.inner_text(BIG)
    assert f"{model.name} on 16 x" in page.inner_text("#verdict-title")
    for view in ("Step", "Export", "Plan"):
        page.get_by_role("link", name=view, exact=True).click()
        answered(page)
        assert f"{model.name} on 16 x" in page.inner_text("#answer")
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    shared = open_page(page.url)
    answered(shared)
    assert "our cluster" in shared.inner_text("#answer .quiet")
    change(shared, "Model", "llama-3.1-8b")
    settled(shared, "model=llama-3.1-8b&cluster=our+cluster")
    assert f"Not used: Model names another one. {model.name} there" in shared.inner_text("[data-config-state]")


def test_files_that_are_no_question_are_refused_in_words(page: Page, tmp_path: Path) -> None:
    for text, said in (('{"schema": "shardplan/scale/1"}', "Decide"), ("{", "is not JSON"), ("{}", "not a plan file")):
        (tmp_path / "other.json").write_text(text)
        page.locator("[data-open-session]").set_input_files(tmp_path / "other.json")
        expect(page.locator(".panel.error")).to_contain_text(said)


def test_a_pasted_plan_file_is_opened_and_a_model_that_goes_is_no_longer_asked_about(page: Page) -> None:
    paste(page)
    settled(page, "model=config.json")
    page.get_by_label("Text of a config.json").fill("")
    expect(page.locator("#error-config")).to_contain_text("The config.json is empty")
    change(page, "Model", "llama-3.1-70b")
    settled(page, "model=llama-3.1-70b")
    found = search("llama-3.1-8b", "dgx-h100", 8, global_batch_size=64)
    page.get_by_label("Text of a config.json").fill(json.dumps(found.to_dict()))
    settled(page, "model=llama-3.1-8b")
    assert "global_batch_size=64" in page.url


def test_a_file_that_is_too_large_is_refused_in_words(page: Page) -> None:
    paste(page, remarks="x" * 5_000_000)
    page.wait_for_selector(".panel.error")
    assert "4,194,304 bytes" in page.inner_text(".panel.error")


def test_a_session_is_saved_and_opened(page: Page, tmp_path: Path) -> None:
    change(page, "Accelerators", "256")
    settled(page, "gpus=256")
    said = page.inner_text(BIG)
    with page.expect_download() as download:
        page.get_by_role("button", name="Save file").click()
    file = tmp_path / "plan.json"
    download.value.save_as(file)
    assert json.loads(file.read_text())["num_accelerators"] == 256
    page.goto("/")
    answered(page)
    page.locator("[data-open-session]").set_input_files(file)
    settled(page, "gpus=256")
    assert page.inner_text(BIG) == said
