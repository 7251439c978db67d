"""How long a visitor of the web app waits: until the server is ready, the page is painted, a change is answered.

    python benchmarks/page_times.py

Needs the extras ui and test, and Debian's chromium. Times are those of the machine that it runs on, browser included.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from urllib.request import urlopen

from playwright.sync_api import Page, sync_playwright

PORT = 8391
SERVE = f"""
import uvicorn
from shardplan.web.app import create_app
uvicorn.run(create_app(), host="127.0.0.1", port={PORT}, log_level="error")
"""
QUESTIONS = (("llama-3.1-70b", 2048), ("deepseek-v3", 2048), ("llama-3.1-405b", 16384))
WATCH = """(query) => new Promise((resolve) => {
  const begun = performance.now();
  const look = () => {
    const place = document.querySelector("#answer [data-said]");
    if (location.search.includes(query) && place) return resolve(performance.now() - begun);
    requestAnimationFrame(look);
  };
  look();
  const input = document.querySelector("#f-gpus");
  input.value = query.split("=")[1];
  input.dispatchEvent(new Event("change", { bubbles: true }));
})"""


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


def changed(page: Page, model: str, number: int) -> float:
    """Seconds from a change to the answer."""
    page.goto(f"http://127.0.0.1:{PORT}/?model={model}&cluster=dgx-h100&gpus={number // 2}")
    page.wait_for_selector("#answer[aria-busy=false] [data-said]", timeout=120_000)
    page.wait_for_selector("#why h2, #space h2", timeout=120_000)
    page.wait_for_load_state("networkidle")
    return float(page.evaluate(WATCH, f"gpus={number}")) / 1e3


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
                page = browser.new_page()
                answer = changed(page, model, number)
                page.close()
                print(f"{model:16s} on {number:6,}: answer {answer:5.2f} s")
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
