"""The browser that tests open pages in, and how it is started."""

from __future__ import annotations

import shutil
from typing import Final

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
CHROMIUM: Final = next(filter(None, map(shutil.which, NAMES)), None)
"""Where it is; None where there is none."""
LEFT_OUT: Final = (
    "WebUIOmniboxPopup", "WebUIOmniboxAimPopup",  # two pages behind each window, up to 1.4 s of a core
    "AimEnabled", "HttpsUpgrades", "LensOverlay", "MediaRouter", "NetworkTimeServiceQuerying", "OptimizationHints",
    "PaintHolding", "PreconnectToSearch",  # those that playwright leaves out: the last list that is given holds
)  # fmt: skip
FLAGS: Final = ("--no-sandbox", f"--disable-features={','.join(LEFT_OUT)}")
