"""The picture of the layout: what lights up is what Python computes, by pointer and by keyboard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from playwright.sync_api import Page, expect
from tests.web.browser.conftest import answered

from shardplan.estimation.ranks import GroupKind, Level, RankLayout, Strided

SMALL = "model=llama-3.1-8b&cluster=dgx-h100&gpus=16&lock.tp=2&lock.pp=2&lock.cp=1&lock.micro_batch_size=1"
COMPUTE = """async ([kinds, levels, ranks]) => {
  const { groupOf, placeIn, domainsOf } = await import(document.querySelector('script[src*="layout.js"]').src);
  return ranks.map((rank) => [kinds.map((k) => groupOf(k, rank)), kinds.map((k) => placeIn(k, rank)),
                              domainsOf(levels, rank)]);
}"""


def test_the_page_computes_groups_and_domains_as_the_command_line(open_page: Callable[..., Page]) -> None:
    kinds = [
        GroupKind(name=name, runs=tuple(Strided(*run) for run in runs), sent={})
        for name, runs in (("tp", [(2, 1), (2, 6)]), ("dp", [(3, 2), (12, 12)]), ("pp", [(2, 144)]))
    ]
    levels = (Level("node", 4, 4), Level("rack", 72, 70))
    layout = RankLayout(num_ranks=288, order="", levels=levels, kinds=tuple(kinds), tiers=())
    ranks = np.arange(288)
    places = layout.places(ranks)
    of_rank: list[dict[int, list[int]]] = [
        {rank: sorted(group) for group in kind.groups(288).tolist() for rank in group} for kind in kinds
    ]
    expected: list[Any] = [
        [
            [groups[rank] for groups in of_rank],
            [int(kind.places(ranks)[rank]) for kind in kinds],
            [int(places[level.name][rank]) for level in levels],
        ]
        for rank in range(288)
    ]
    page = open_page(f"/step?{SMALL}")
    answered(page)
    data = [[{"runs": kind.runs} for kind in kinds], [level._asdict() for level in levels], ranks.tolist()]
    assert page.evaluate(COMPUTE, data) == expected


def test_ranks_are_told_by_pointer_and_by_keyboard(open_page: Callable[..., Page]) -> None:
    """Of 16 ranks with tp 2 and pp 2, rank 13 is the sixth of node 1."""
    page = open_page(f"/step?{SMALL}")
    answered(page)
    said, groups = page.locator("[data-rank-said]"), page.locator("[data-kind=tp] [data-group]")
    expect(said).to_contain_text("Rank 0: accelerator 0 of node 0; tp 0, dp 0, pp 0")
    page.locator("canvas.ranks").focus()
    for key in ("ArrowDown", *["ArrowRight"] * 5):
        page.keyboard.press(key)
    expect(said).to_contain_text("Rank 13: accelerator 5 of node 1")
    expect(groups).to_have_text("12, 13")
    expect(page.locator("[data-node] tr.own td").first).to_have_text("13")
    before = page.locator("canvas.ranks").evaluate("(canvas) => canvas.toDataURL()")
    page.locator("[data-kind=pp] button").focus()
    assert page.locator("canvas.ranks").evaluate("(canvas) => canvas.toDataURL()") != before
    page.locator("canvas.ranks").hover(position={"x": 10, "y": 10})
    expect(said).to_contain_text("Rank 0: accelerator 0 of node 0")


def test_without_scripts_one_node_and_the_groups_are_there(open_page: Callable[..., Page]) -> None:
    page = open_page(f"/step?{SMALL}&answer=here", java_script_enabled=False)
    layout = page.get_by_role("region", name="Layout")
    expect(layout).to_contain_text("16 ranks in the order tp-cp-ep")
    expect(layout.locator("[data-kind]")).to_have_count(3)
    expect(layout.locator("canvas")).to_be_hidden()
    assert page.locator(".step-picture").evaluate("(image) => image.decode().then(() => image.naturalWidth)") > 0
