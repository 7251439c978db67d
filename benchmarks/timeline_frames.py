"""How fast the timeline is drawn: frames a second in Chromium of a step with 100,000 events and its memory.

python benchmarks/timeline_frames.py

Needs the extra test, and chromium. Each movement runs for three seconds and draws the timeline anew in every frame. The
processor time says what a frame takes whatever else the machine does.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from playwright.sync_api import CDPSession, sync_playwright

from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.readers.catalog import load_cluster, load_model
from shardplan.physics.schedules.registry import load_schedule
from shardplan.reports.timeline.page import timeline_html
from shardplan.simulation.plan import simulate_plan, timeline_of
from shardplan.simulation.step import Disturbance
from shardplan.simulation.timeline import StepTimeline

PLAN: Final = Plan(tp=8, pp=16, vp=5, recompute="full")
MOVEMENTS: Final = {
    "whole step": "view.changed()",
    "zoom from the whole step to a thousandth": "view.zoom(Math.exp(-Math.log(1000) / 90), view.step.last / 3)",
    "move at a twentieth of the step": "(view.to - view.from < view.step.last / 19) "
    "? view.move(0.02) : view.show(0, view.step.last / 20)",
    "measure the whole step": "view.measure({ from: 0, to: view.step.last - (n % 100) })",
}
"""What happens before every frame."""
RUN: Final = """([movement, seconds]) => new Promise((done) => {
  const view = window.shardplanView;
  const move = new Function("view", "n", movement);
  view.show(0, view.step.last);
  let n = 0;
  const begin = performance.now();
  const frame = () => {
    const passed = (performance.now() - begin) / 1000;
    if (passed > seconds) return done([n, passed]);
    n += 1;
    move(view, n);
    return requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
})"""


def large_step() -> StepTimeline:
    """Llama 3.1 70B on 128 H100, 16 ranks with five chunks, 320 micro-batches; jitter makes all ranks differ."""
    question = Question(
        model=load_model("llama-3.1-70b"),
        cluster=load_cluster("dgx-h100"),
        num_accelerators=128,
        job=Job(sequence_length=8192, global_batch_size=320),
    )
    jitter = Disturbance(jitter=0.05, seed=1)
    return timeline_of(simulate_plan(question, PLAN, load_schedule("interleaved"), disturbance=jitter))


def main() -> int:
    """Prints frames a second and the work of one."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    step = large_step()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        file = Path(folder) / "step.html"
        file.write_text(timeline_html(step), encoding="utf-8")
        print(f"{len(step.events):,} events, {step.num_ranks} ranks, a page of {file.stat().st_size / 1e6:.2f} MB")
        page = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"]).new_page(
            viewport={"width": 1440, "height": 900}
        )
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        page.goto(file.as_uri())
        page.wait_for_function("document.documentElement.dataset.ready")
        for name, movement in MOVEMENTS.items():
            before = work_of(session)
            number, seconds = page.evaluate(RUN, [movement, 3])
            work = (work_of(session) - before) / number
            print(f"{name}: {number / seconds:.0f} frames a second, {1e3 * work:.1f} ms of processor time for each")
    return 0


def work_of(session: CDPSession) -> float:
    """Processor time of the page's own thread so far. [s]"""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))


if __name__ == "__main__":
    sys.exit(main())
