"""Takes the pictures of the web app in ``docs/howto/web-app.md``: a real server, a real browser.

python docs/generate_screenshots.py              all of them
python docs/generate_screenshots.py step layout  those whose names begin so

Needs the extras ui and test, and chromium. Browsers and fonts differ, so that no check compares the pictures.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import uvicorn
from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from shardplan.web.app import create_app

FOLDER = Path(__file__).parent / "assets" / "web"
PORT = 8392
QUESTION = "/?model=llama-3.1-70b&cluster=dgx-h100&gpus=512&tokens=15T&price=2.5"
PINS = "&pin=tp=8;pp=4;vp=5;recompute=full&pin=tp=2;cp=4;pp=4;vp=14&show=tp=8;pp=2;vp=5"
LAYOUT = "model=deepseek-v3&cluster=gb200-nvl72&gpus=1152&lock.pp=8&lock.tp=1&lock.cp=1&lock.ep=32"
SHARES = {"quality": 75, "method": 6}


class Shot(NamedTuple):
    """A picture of a page."""

    name: str
    path: str
    width: int = 1280
    height: int = 860
    is_dark: bool = False
    part: str = ""
    """Selector of the element that is shown; the window where it is empty."""
    ready: str = "#why h2, .changes"
    """Selector of what is there once the page has all that is shown."""


def of_view(name: str, path: str, ready: str, height: int = 900) -> tuple[Shot, Shot]:
    """A page in light and dark."""
    light = Shot(f"{name}-light", path, height=height, ready=ready)
    return light, light._replace(name=f"{name}-dark", is_dark=True)


SHOTS = (
    Shot("plan", QUESTION),
    Shot("plan-dark", QUESTION, is_dark=True),
    Shot("plan-narrow", QUESTION, width=390, height=860),
    Shot("compare", QUESTION + PINS, part="#compare"),
    Shot("space", QUESTION, width=1680, part=".columns"),
    Shot("nothing-fits", "/?model=llama-3.1-405b&cluster=dgx-h100&gpus=8", height=640),
    *of_view("step", f"/step{QUESTION[1:]}", "#roofline-chart .main-svg", height=1000),
    Shot("layout", f"/step?{LAYOUT}", part="[data-layout]", ready="[data-layout] canvas:not([hidden])"),
    *of_view("decide", f"/decide{QUESTION[1:]}&decide=whatif&change.1=precision&to.1=fp8", "#chart-2 .main-svg"),
    *of_view("trust", f"/trust{QUESTION[1:]}&run=mlm-r0.8-weak-70b", "#trust-chart .main-svg", height=1000),
    *of_view("audit", "/audit", "#answer [data-said]", height=1000),
    *of_view("export", f"/export{QUESTION[1:]}", "#file-1"),
    *of_view("published", f"/published{QUESTION[1:]}", "#limits-figure .main-svg"),
)


def served() -> uvicorn.Server:
    """The app on a thread of its own."""
    server = uvicorn.Server(uvicorn.Config(create_app(), host="127.0.0.1", port=PORT, log_level="error"))
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.05)
    return server


def taken(browser: Browser, shot: Shot) -> bytes:
    """The picture as WebP."""
    scheme = "dark" if shot.is_dark else "light"
    window = {"width": shot.width, "height": shot.height}
    page = browser.new_page(viewport=window, color_scheme=scheme, base_url=f"http://127.0.0.1:{PORT}")  # type: ignore[arg-type]  # names of sides
    page.goto(shot.path)
    page.wait_for_selector(shot.ready, timeout=120_000)
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(800)
    picture = page.locator(shot.part).screenshot() if shot.part else page.screenshot()
    page.close()
    found = BytesIO()
    Image.open(BytesIO(picture)).save(found, "WEBP", **SHARES)
    return found.getvalue()


def main(names: list[str]) -> int:
    """Writes the pictures."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.stderr.write("no chromium: apt install chromium\n")
        return 1
    FOLDER.mkdir(parents=True, exist_ok=True)
    server = served()
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for shot in (each for each in SHOTS if not names or each.name.startswith(tuple(names))):
            (FOLDER / f"{shot.name}.webp").write_bytes(taken(browser, shot))
    server.should_exit = True
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
