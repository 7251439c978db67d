"""The page of a step in a browser: what its scripts read, draw and answer. Skipped where there is no Chromium."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.reports.timeline.steps import HOSTILE, step_of, with_memory

from shardplan.reports.timeline.bars import HUES, Bars
from shardplan.reports.timeline.page import timeline_html
from shardplan.simulation.timeline import COMPUTE, StepTimeline

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs a Chromium browser")

PROBE = """
<script>
(async () => {
  while (!document.documentElement.dataset.ready) await new Promise((done) => setTimeout(done, 10));
  const view = window.shardplanView;
  const press = (key) => view.sheets.ranks.canvas.dispatchEvent(new KeyboardEvent("keydown", { key }));
  const found = {};
  try { (() => { BODY })(); } catch (error) { found.error = String(error); }
  document.body.replaceChildren(made("pre", JSON.stringify(found), { id: "found" }));
})();
</script>
"""


def asked(timeline: StepTimeline, body: str, folder: Path, size: str = "1000,800") -> dict[str, Any]:
    """What ``body`` puts into ``found`` when the page is open."""
    page = folder / "page.html"
    page.write_text(
        timeline_html(timeline).replace("</body>", PROBE.replace("BODY", body) + "</body>"), encoding="utf-8"
    )
    assert BROWSER is not None
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=4000", f"--window-size={size}")
    command = [BROWSER, *flags, f"--user-data-dir={folder / 'profile'}", "--dump-dom", page.as_uri()]
    shown = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    match = re.search(r'<pre id="found">(.*?)</pre>', shown, re.DOTALL)
    assert match, shown[-2000:]
    found: dict[str, Any] = json.loads(html.unescape(match[1]))
    assert "error" not in found, found
    return found


@pytest.fixture
def timeline() -> StepTimeline:
    """A step of four ranks, of which one has a name that is a script."""
    return replace(with_memory(step_of(pp=4, num_microbatches=8, transfer=0.25)), rank_names=("a", HOSTILE, "c", "d"))


def test_the_scripts_read_every_event(timeline: StepTimeline, tmp_path: Path) -> None:
    body = """
        const { step } = view;
        Object.assign(found, { start: [...step.start], stop: [...step.stop], kind: [...step.kind], tick: step.tick_s });
    """
    found, events = asked(timeline, body, tmp_path), timeline.events
    np.testing.assert_allclose(np.array(found["start"]) * found["tick"], events.start, atol=1e-6)
    np.testing.assert_allclose(np.array(found["stop"]) * found["tick"], events.end, atol=1e-6)
    assert found["kind"] == events.kind.tolist()


def test_shares_of_time_and_memory_are_those_of_python(timeline: StepTimeline, tmp_path: Path) -> None:
    body = """
        const { step } = view;
        const [begin, end] = visible(step, 2, 0, 0, step.last);
        found.shares = [...sharesOf(step, { from: 0, to: step.last }, begin, end, 7)];
        found.parts = step.parts;
        found.held = heldAt(step.memory, 3, 2.5 / step.tick_s);
        found.peak = document.getElementById("peak").textContent;
    """
    found = asked(timeline, body, tmp_path)
    shares = np.zeros((len(HUES), 7))
    for part, own in zip(found["parts"], np.array(found["shares"]).reshape(7, -1).T, strict=True):
        shares[part // 2] += own  # critical and not
    np.testing.assert_allclose(shares, Bars.of(timeline).shares(COMPUTE, 7)[2], atol=1e-5)
    assert found["held"] == pytest.approx(7e9, rel=1e-6)
    assert "8.00 GB" in found["peak"]


def test_an_event_is_named(timeline: StepTimeline, tmp_path: Path) -> None:
    """The last of 4 ranks starts after 3 forward passes and 3 transfers, at 3.75 s."""
    body = """
        const { step } = view;
        found.at = eventText(step, eventAt(step, 3, 0, 4 / step.tick_s, 0), 3);
        found.waits = eventAt(step, 3, 0, 0.5 / step.tick_s, 0);
        const { canvas } = view.sheets.ranks;
        const { left, top } = canvas.getBoundingClientRect();
        canvas.dispatchEvent(new PointerEvent("pointermove", { clientX: left + view.left + 4, clientY: top + 5 }));
        found.tip = document.getElementById("tip").textContent;
    """
    found = asked(timeline, body, tmp_path)
    told = ["Forward on d", "micro-batch 0, chunk 0", "1.00 s", "from 3,750 ms to 4,750 ms", "on the critical path"]
    assert found["at"] == told
    assert found["waits"] == -1
    assert found["tip"].startswith("Forward on a\nmicro-batch 0, chunk 0\n1.00 s")


def test_keys_choose_and_zoom(timeline: StepTimeline, tmp_path: Path) -> None:
    body = """
        press("ArrowDown"); press("ArrowRight"); press("ArrowRight");
        found.selected = document.getElementById("selected").textContent;
        found.rank = document.getElementById("rank-choice").value;
        press("+");
        found.zoomed = (view.to - view.from) / view.step.last;
        press("0");
        found.whole = [view.from, view.to - view.step.last];
        press("c");
        found.critical = [view.marksCritical, document.getElementById("critical").checked];
    """
    found = asked(timeline, body, tmp_path)
    assert "Forward on" in found["selected"]
    assert "micro-batch 1, chunk 0" in found["selected"]
    assert found["rank"] == "1"
    assert found["zoomed"] == pytest.approx(0.5)
    assert found["whole"] == [0, 0]
    assert found["critical"] == [True, True]


def test_the_wheel_zooms_and_lets_the_page_scroll(timeline: StepTimeline, tmp_path: Path) -> None:
    """The moment under the pointer stays; where the whole step is shown the page scrolls."""
    body = """
        const { canvas } = view.sheets.ranks;
        const { left, top } = canvas.getBoundingClientRect();
        const aim = view.left + 0.25 * view.frame.width;
        const before = view.moment(aim);
        const wheel = { deltaY: -200, clientX: left + aim, clientY: top + 5, cancelable: true };
        const isMoved = () => !canvas.dispatchEvent(new WheelEvent("wheel", wheel));
        const { last } = view.step;
        found.wheel = [isMoved(), (view.to - view.from) / last, (view.moment(aim) - before) / last];
        press("0");
        wheel.deltaY = 200;
        found.scrolls = isMoved();
    """
    found = asked(timeline, body, tmp_path)
    assert found["wheel"] == [True, pytest.approx(np.exp(-0.5)), pytest.approx(0, abs=1e-3)]
    assert not found["scrolls"]


def test_names_are_text_and_the_page_has_two_themes(timeline: StepTimeline, tmp_path: Path) -> None:
    body = """
        found.layer = document.getElementById("layer-table").rows[1].cells[0].textContent;
        document.getElementById("theme").click();
        view.draw();
        found.theme = document.documentElement.dataset.theme;
        found.scripts = document.querySelectorAll("b[onclick]").length;
    """
    found = asked(timeline, body, tmp_path)
    assert found["layer"] == HOSTILE
    assert found["theme"] in {"light", "dark"}
    assert found["scripts"] == 0


def test_a_narrow_window_and_a_dense_step(tmp_path: Path) -> None:
    """64,000 events where a phone shows them: nothing is wider than the window, and shares are drawn."""
    timeline = step_of("interleaved", pp=16, vp=4, num_microbatches=256)
    found = asked(
        timeline,
        """
        view.draw();
        found.wide = document.documentElement.scrollWidth - innerWidth;
        found.merged = !document.getElementById("merged").hidden;
        const pixel = view.sheets.rank.context.getImageData(view.sheets.rank.canvas.width / 2, 40, 1, 1).data;
        found.drawn = [...pixel];
        """,
        tmp_path,
        size="375,800",
    )
    assert found["wide"] <= 0
    assert found["merged"]
    assert found["drawn"][3] == 255
