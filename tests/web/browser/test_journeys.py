"""The journeys of docs/howto in the app: what each page of the docs does on the command line, at three widths.

A row is a page of the docs, where its journey starts, what is done there and what must be seen then. A wide window
is made narrower at its end; the narrow one is dark. Where the link alone asks the question, a browser without
JavaScript sees the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect
from tests.web.browser.conftest import PATIENCE, answered

DOCS: Final = Path(__file__).parents[3] / "docs" / "howto"
SMALL: Final = "model=llama-3.2-1b&cluster=dgx-h100&gpus=8"
ONE: Final = f"{SMALL}&lock.tp=1&lock.pp=1&lock.cp=1&lock.sharding=zero1"
FULL: Final = ONE.replace("zero1", "zero3")
RL: Final = f"{SMALL}&rl.placement=in-turns&rl.prompts=32&rl.samples=8&rl.response_tokens=mean=256,max=1k"
VERL: Final = (
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo trainer.nnodes=2 trainer.n_gpus_per_node=8\n"
)
WIDTHS: Final = {1440: (1440, 1024), 390: (390,)}
"""Where a journey is made, and the widths at which its end is looked at."""
PHONE: Final = 390


class Journey(NamedTuple):
    """A page of the docs as a visit to the app."""

    howto: str
    start: str
    steps: tuple[tuple[str, ...], ...]
    """``fill`` or ``choose`` a field by its label; ``press`` a button by its name, or what a selector finds."""
    seen: tuple[str, ...]
    """What the answer says then."""
    link: str = ""
    """Where the steps lead, without JavaScript; empty where no link does."""


JOURNEYS: Final = (
    Journey("read-the-answer", f"/?{ONE}", (("press", "#drawer > summary"),), ("of the nearest 10 inside",),
            f"/?{ONE}"),
    Journey("choose-a-framework", f"/?{ONE}", (("choose", "Framework", "torchtitan"),), ("torchtitan",),
            f"/?{ONE}&stack=torchtitan"),
    Journey("compare-plans", f"/?{SMALL}", (("press", "table.plans tr:not(.take) [data-pin]"),), ("Side by side",)),
    Journey("export-a-plan", f"/export?{FULL}", (("choose", "Launch files for", "torchtitan"),),
            ("Launch files for torchtitan",), f"/export?{FULL}&to=torchtitan"),
    Journey("fix-and-limit-the-search", f"/?{SMALL}", (("press", '[data-lock="lock.tp"][aria-pressed=false]'),),
            ("tp 1",), f"/?{SMALL}&lock.tp=1"),
    Journey("how-many-accelerators", f"/decide?{ONE}&decide=scale&sizes=8,16", (("fill", "Sizes", "8,16,32"),),
            ("Speed at each size", "up to 32"), f"/decide?{ONE}&decide=scale&sizes=8,16,32"),
    Journey("lora-and-packed-documents", f"/?{ONE}&train=lora", (("fill", "Tokens", "1T"),),
            ("lora of rank 16", "accelerator-hours"), f"/?{ONE}&train=lora&tokens=1T"),
    Journey("price-a-plan-you-run-today", f"/?{ONE}&tokens=1T", (("fill", "Price", "2.5"),), ("2.50 USD",),
            f"/?{ONE}&tokens=1T&price=2.5"),
    Journey("plan-rl", f"/rl?{RL}", (("fill", "Prompts", "64"),), ("64 prompts x 8 answers", "Two pools in turns"),
            f"/rl?{RL}".replace("prompts=32", "prompts=64")),
    Journey("what-pays", f"/decide?{ONE}&decide=scale&sizes=8", (("choose", "Decision", "sensitivity"),),
            ("elasticity",), f"/decide?{ONE}&decide=sensitivity"),
    Journey("when-nothing-fits", "/?model=llama-3.1-405b&cluster=dgx-h100&gpus=8", (("press", "#answer [data-apply]"),),
            ("a step",)),
    Journey("audit-a-launch-script", "/audit", (("fill", "Measured, to be explained", "step 30s"),),
            ("Measured: step 30s", "no rule is broken")),
    Journey("rl-launch-files", "/audit", (("fill", "Launch script or configuration", VERL),),
            ("a trainer and an engine", "Response mean")),
    Journey("web-app", f"/?{ONE}", (("fill", "Accelerators", "16"), ("seen", "on 16 x"), ("press", "Undo")),
            ("on 8 x",), f"/?{ONE}"),
    Journey("run-the-web-app", "/trust?gpus=8", (("choose", "Kind of model", "dense"),),
            ("Predicted against measured",), "/trust?run_kind=dense"),
)  # fmt: skip


@pytest.fixture(scope="module")
def contexts(browser: Browser, server: str) -> Iterator[dict[str, BrowserContext]]:
    """A window of each kind, which all journeys share."""
    kinds = {
        "light": {"color_scheme": "light"},
        "dark": {"color_scheme": "dark"},
        "plain": {"java_script_enabled": False},
    }
    made = {name: browser.new_context(base_url=server, **kind) for name, kind in kinds.items()}  # type: ignore[arg-type]
    yield made
    for each in made.values():
        each.close()


def unfold(page: Page) -> None:
    """Opens the form, which narrow windows fold to a line."""
    page.evaluate("document.querySelectorAll('details[data-folds]').forEach((each) => { each.open = true; })")


def take(page: Page, kind: str, name: str, value: str = "") -> None:
    """Does a step of a journey."""
    if kind == "fill":
        page.get_by_label(name, exact=True).fill(value)
        page.get_by_label(name, exact=True).press("Tab")
    elif kind == "choose":
        page.get_by_label(name, exact=True).select_option(value)
    elif kind == "seen":
        expect(page.locator("main")).to_contain_text(name)
    elif name.isalpha():
        page.get_by_role("button", name=name, exact=True).click()
    else:
        page.locator(name).first.click()


def test_every_page_of_the_docs_has_its_journey() -> None:
    assert sorted(each.howto for each in JOURNEYS) == sorted(each.stem for each in DOCS.glob("*.md"))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("journey", JOURNEYS, ids=lambda each: each.howto)
def test_journey(contexts: dict[str, BrowserContext], journey: Journey, width: int) -> None:
    context = contexts["dark" if width == PHONE else "light"]
    for each in context.pages:  # of a journey that failed
        each.close()
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.set_viewport_size({"width": width, "height": 900})
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(journey.start)
    answered(page)
    for step in journey.steps:
        unfold(page)
        take(page, *step)
    for text in journey.seen:
        expect(page.locator("main")).to_contain_text(text)
    answered(page)
    for size in WIDTHS[width]:
        page.set_viewport_size({"width": size, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= size
    page.close()
    assert faults == []


@pytest.mark.parametrize("journey", [each for each in JOURNEYS if each.link], ids=lambda each: each.howto)
def test_journey_without_scripts(contexts: dict[str, BrowserContext], journey: Journey) -> None:
    page = contexts["plain"].new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(f"{journey.link}&answer=here")
    for text in journey.seen:
        expect(page.locator("main")).to_contain_text(text)
    page.close()
