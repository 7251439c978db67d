"""The page of a step in a browser: what its scripts read, draw and answer. Skipped where there is no Chromium."""

from __future__ import annotations

import html
import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.chromium import CHROMIUM, FLAGS
from tests.reports.timeline.steps import HOSTILE, step_of, with_memory

from shardplan.reports.timeline.bars import HUES, Bars
from shardplan.reports.timeline.page import timeline_html
from shardplan.simulation.timeline import COMPUTE, StepTimeline

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium browser")

PROBE = """
<script>
(async () => {
  while (!document.documentElement.dataset.ready) await new Promise((done) => setTimeout(done, 10));
  const view = window.shardplanView;
  view.sheets.ranks.canvas.focus();
  const press = (key) => view.sheets.ranks.canvas.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
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
    assert CHROMIUM is not None
    flags = ("--headless", *FLAGS, "--disable-gpu", "--virtual-time-budget=4000", f"--window-size={size}")
    command = [CHROMIUM, *flags, f"--user-data-dir={folder / 'profile'}", "--dump-dom", page.as_uri()]
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
        found.peak = element("peak").textContent;
        found.most = mostHeld(step.memory, 0, 0, 2.5 / step.tick_s);
        found.alive = partsAt(step.memory, 1, 2.5 / step.tick_s);
    """
    found = asked(timeline, body, tmp_path)
    shares = np.zeros((len(HUES), 7))
    for part, own in zip(found["parts"], np.array(found["shares"]).reshape(7, -1).T, strict=True):
        shares[part // 2] += own  # critical and not
    np.testing.assert_allclose(shares, Bars.of(timeline).shares(COMPUTE, 7)[2], atol=1e-5)
    assert found["held"] == pytest.approx(7e9, rel=1e-6)
    assert "8.00 GB" in found["peak"]
    assert found["most"] == pytest.approx(7e9, rel=1e-6)
    assert dict(found["alive"]) == {
        "weights": pytest.approx(5e9, rel=1e-6),
        "activations": pytest.approx(2e9, rel=1e-6),
    }


def test_an_event_is_named(timeline: StepTimeline, tmp_path: Path) -> None:
    """The last of 4 ranks starts after 3 forward passes and 3 transfers, at 3.75 s."""
    body = """
        const { step } = view;
        found.at = eventText(step, eventAt(step, 3, 0, 4 / step.tick_s, 0), 3);
        found.waits = eventAt(step, 3, 0, 0.5 / step.tick_s, 0);
        const { canvas } = view.sheets.ranks;
        const { left, top } = canvas.getBoundingClientRect();
        canvas.dispatchEvent(new PointerEvent("pointermove", { clientX: left + view.left + 4, clientY: top + 5 }));
        found.tip = element("tip").textContent;
    """
    found = asked(timeline, body, tmp_path)
    told = ["Forward on d", "micro-batch 0, chunk 0", "1.00 s", "from 3,750 ms to 4,750 ms", "on the critical path"]
    assert found["at"] == told
    assert found["waits"] == -1
    assert found["tip"].startswith("Forward on a\nmicro-batch 0, chunk 0\n1.00 s")


def test_keys_choose_and_zoom(timeline: StepTimeline, tmp_path: Path) -> None:
    body = """
        press("ArrowDown"); press("ArrowRight"); press("ArrowRight");
        found.selected = element("selected").textContent;
        found.rank = element("rank-choice").value;
        press("+");
        found.zoomed = (view.to - view.from) / view.step.last;
        press("0");
        found.whole = [view.from, view.to - view.step.last];
        const before = view.marksCritical;
        press("c");
        found.critical = [before, view.marksCritical, element("critical").checked];
        press("w");
        found.closer = (view.to - view.from) / view.step.last;
        press("d");
        found.moved = view.from / view.step.last;
        press("a"); press("s");
        found.farther = (view.to - view.from) / view.step.last;
    """
    found = asked(timeline, body, tmp_path)
    assert "Forward on" in found["selected"]
    assert "micro-batch 1, chunk 0" in found["selected"]
    assert found["rank"] == "1"
    assert found["zoomed"] == pytest.approx(0.5)
    assert found["whole"] == [0, 0]
    assert found["critical"] == [True, False, False]
    assert found["closer"] == pytest.approx(0.7)
    assert found["moved"] == pytest.approx(0.15 + 0.15 * 0.7)
    assert found["farther"] == pytest.approx(1)


def test_the_wheel_scrolls_the_page_and_zooms_with_ctrl(timeline: StepTimeline, tmp_path: Path) -> None:
    """The moment under the pointer stays; without Ctrl the page scrolls."""
    body = """
        const { canvas } = view.sheets.ranks;
        const { left, top } = canvas.getBoundingClientRect();
        const aim = view.left + 0.25 * view.frame.width;
        const before = view.moment(aim);
        const wheel = { deltaY: -200, clientX: left + aim, clientY: top + 5, cancelable: true };
        const isMoved = (more) => !canvas.dispatchEvent(new WheelEvent("wheel", { ...wheel, ...more }));
        const { last } = view.step;
        found.scrolls = [isMoved({}), isMoved({ deltaX: 300 })];
        found.wheel = [isMoved({ ctrlKey: true }), (view.to - view.from) / last, (view.moment(aim) - before) / last];
        found.sideways = isMoved({ deltaX: 300 });
    """
    found = asked(timeline, body, tmp_path)
    assert found["scrolls"] == [False, False]
    assert found["wheel"] == [True, pytest.approx(np.exp(-0.5)), pytest.approx(0, abs=1e-3)]
    assert found["sideways"]


def test_a_drag_measures_time_work_and_memory(timeline: StepTimeline, tmp_path: Path) -> None:
    """Rank 3 begins at 3.75 s and is busy from then on, a quarter of its time with forward passes."""
    body = """
        const { canvas } = view.sheets.ranks;
        canvas.setPointerCapture = () => {};
        const { left, top } = canvas.getBoundingClientRect();
        view.select(3);
        const at = (seconds) => ({ clientX: left + view.x(seconds / view.step.tick_s), clientY: top + 5 });
        const by = { pointerType: "mouse" };
        const send = (type, seconds) => canvas.dispatchEvent(new PointerEvent(type, { ...by, ...at(seconds) }));
        send("pointerdown", 1.75); send("pointermove", 4); send("pointermove", 7.75); send("pointerup", 7.75);
        found.text = element("measured").textContent;
        found.span = element("measure").textContent;
        found.whole = view.to - view.from === view.step.last;
        press("Enter");
        found.zoomed = (view.to - view.from) * view.step.tick_s;
        press("Escape");
        found.gone = element("measured").textContent;
    """
    found = asked(timeline, body, tmp_path, size="1800,900")
    assert found["span"] == found["text"].split()[1] + " s"
    assert found["zoomed"] == pytest.approx(6, rel=0.02)
    assert found["whole"]
    shares = {name: float(share) for name, share in re.findall(r"([a-z ]+) ([\d.]+) %", found["text"])}
    assert shares[" waits"] == pytest.approx(100 / 3, abs=1)
    assert sum(shares.values()) == pytest.approx(100, abs=0.5)
    assert "holds at most 8.00 GB" in found["text"]
    assert found["gone"] == ""


def test_every_wait_has_its_cause(timeline: StepTimeline, tmp_path: Path) -> None:
    """1F1B: a rank fills with the first micro-batch of the one before; the first waits for gradients of the second."""
    body = """
        const { step } = view;
        const gaps = step.rank_names.map((_, rank) => gapsOf(step, rank, 0, step.last));
        found.causes = gaps.map((own, rank) => own.map((gap) => causeOf(step, rank, gap.event)[0]));
        found.gaps = gaps.map((own) => own.reduce((sum, gap) => sum + gap.to - gap.from, 0) * step.tick_s);
    """
    found, events = asked(timeline, body, tmp_path), timeline.events
    busy = np.bincount(events.rank[events.lane == COMPUTE], events.duration[events.lane == COMPUTE], minlength=4)
    np.testing.assert_allclose(found["gaps"], events.end.max() - busy, atol=1e-4)
    for rank, before in ((1, "a"), (2, HOSTILE), (3, "c")):
        assert found["causes"][rank][0] == f"fill: waits for micro-batch 0 from {before}"
    assert f"waits for micro-batch 0 from {HOSTILE}" in found["causes"][0]
    assert "waits for its turn" not in str(found["causes"])


def test_names_are_text_and_the_page_has_two_themes(timeline: StepTimeline, tmp_path: Path) -> None:
    body = """
        found.layer = element("layer-table").rows[1].cells[0].textContent;
        element("theme").click();
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
        found.merged = !element("merged").hidden;
        const pixel = view.sheets.rank.context.getImageData(view.sheets.rank.canvas.width / 2, 40, 1, 1).data;
        found.drawn = [...pixel];
        """,
        tmp_path,
        size="375,800",
    )
    assert found["wide"] <= 0
    assert found["merged"]
    assert found["drawn"][3] == 255
