"""How long a visitor of the web app waits: until the server is ready, the page is painted, a change is answered.

    python benchmarks/page_times.py

Needs the extras ui and test, and Debian's chromium. Times are those of the machine that it runs on, browser included.
Of several runs the least tells what the program takes, the middle what else the machine did.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from statistics import median
from typing import NamedTuple
from urllib.request import urlopen

from playwright.sync_api import Browser, Page, sync_playwright

PORT = 8391
SERVE = f"""
import uvicorn
from shardplan.web.app import create_app
uvicorn.run(create_app(), host="127.0.0.1", port={PORT}, log_level="error")
"""
RUNS = 5
QUESTIONS = (("llama-3.1-70b", 2048), ("deepseek-v3", 2048), ("llama-3.1-405b", 16384))
CHANGE = """(number) => new Promise((resolve) => {
  const old = document.querySelector("#answer [data-said]");
  const found = {};
  const begun = performance.now();
  new PerformanceObserver((list) => {
    for (const each of list.getEntries()) found[each.identifier] = each.renderTime - begun;
    if (!found.verdict || !found.table) return;
    const request = performance.getEntriesByType("resource").filter((each) => each.name.includes("/answer")).at(-1);
    resolve({ ...found, server: request.responseEnd - request.requestStart });
  }).observe({ type: "element" });
  new MutationObserver(() => {
    const place = document.querySelector("#answer [data-said]");
    if (!place || place === old) return;
    place.querySelector(".big").setAttribute("elementtiming", "verdict");
    document.querySelector("table.plans td:nth-child(2)").setAttribute("elementtiming", "table");
  }).observe(document.getElementById("answer"), { childList: true });
  performance.clearResourceTimings();
  const input = document.querySelector("#f-gpus");
  input.value = number;
  input.dispatchEvent(new Event("change", { bubbles: true }));
})"""
"""From the event of a change to when the browser showed the step time and the fastest plan of the table. [ms]"""
SHIFTS = """() => {
  window.shifted = 0;
  new PerformanceObserver((list) => { for (const each of list.getEntries()) window.shifted += each.value; })
    .observe({ type: "layout-shift" });
}"""


class Change(NamedTuple):
    """How long a change took. [s]"""

    verdict: float
    """Until the step time was on the screen."""
    table: float
    """Until the fastest plan of the table was."""
    server: float
    """From the request to the end of the response."""
    rest: float
    """Until the picture of all plans and the reasons were there."""
    shift: float
    """Cumulative layout shift: the share of the window that moved, as browsers count it."""


def started() -> tuple[subprocess.Popen[bytes], float]:
    """A server, and the seconds until it answered."""
    begun = time.perf_counter()
    server = subprocess.Popen([sys.executable, "-c", SERVE])  # noqa: S603  # our own program
    while True:
        try:
            urlopen(f"http://127.0.0.1:{PORT}/healthz").close()  # our own server
        except OSError:
            time.sleep(0.01)
        else:
            return server, time.perf_counter() - begun


def painted(page: Page) -> float:
    """Seconds from the request to the first contentful paint."""
    page.goto(f"http://127.0.0.1:{PORT}/")
    page.wait_for_selector("#answer [data-said]", timeout=120_000)
    entry = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    return float(page.evaluate(entry)) / 1e3


def changed(page: Page, model: str, number: int, run: int) -> Change:
    """A change of the accelerators from half of ``number``; ``run`` makes it a question that was not asked before."""
    page.goto(f"http://127.0.0.1:{PORT}/?model={model}&cluster=dgx-h100&gpus={number // 2}&price={run + 1}")
    _wait_for_all(page)
    page.wait_for_load_state("networkidle")
    page.evaluate(SHIFTS)
    begun = time.perf_counter()
    found = {name: value / 1e3 for name, value in page.evaluate(CHANGE, str(number)).items()}
    _wait_for_all(page)
    return Change(**found, rest=time.perf_counter() - begun, shift=float(page.evaluate("window.shifted")))


def _wait_for_all(page: Page) -> None:
    page.wait_for_selector("#answer[aria-busy=false] [data-said]", timeout=120_000)
    page.wait_for_selector("#why h2", timeout=120_000)
    page.wait_for_selector("#space .main-svg", timeout=120_000)


def _in_new_page(browser: Browser, model: str, number: int, run: int) -> Change:
    page = browser.new_page()
    try:
        return changed(page, model, number, run)
    finally:
        page.close()


def main() -> None:
    """Prints every time."""
    server, ready = started()
    try:
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = browser.new_page()
            print(f"server ready            {ready:6.2f} s")
            print(f"first contentful paint  {painted(page):6.2f} s, the first page of the server")
            for model, number in QUESTIONS:
                print(f"{model} on {number:,}: s until the verdict, the table, all parts; the server's; layout shift")
                runs = [_in_new_page(browser, model, number, run) for run in range(RUNS)]
                for name, of in (("least", min), ("middle", median)):
                    each = Change(*(of(values) for values in zip(*runs, strict=True)))
                    print(f"  {name:7s} {each.verdict:5.2f} {each.table:5.2f} {each.rest:5.2f}", end="")
                    print(f"; {each.server:5.2f}; {each.shift:.3f}")
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
