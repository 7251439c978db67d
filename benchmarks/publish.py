"""Puts the records into the documentation: the tables of docs/speed.md and docs/calibrate.md, and the figure.

A page marks where the table of a record goes with ``<!-- measured: NAME -->`` and ``<!-- end -->``. Drawing needs the
extra ``bench``.
"""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import cast

from measure import Record

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "benchmarks" / "records"
PAGES = tuple(ROOT / "docs" / f"{name}.md" for name in ("speed", "calibrate", "search", "simulation"))
ASSETS = ROOT / "docs" / "assets"
BLOCK = re.compile(r"(<!-- measured: (?P<name>\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> None:
    """Rewrites page and figures."""
    from draw_scaling import draw_all

    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
    draw_all(_record("scaling"), ASSETS)


def filled(page: str) -> str:
    """The page with the table of each record, and the machine of the first."""
    return BLOCK.sub(lambda block: f"{block[1]}\n{_block(block['name'])}\n\n{block[3]}", page)


def _block(name: str) -> str:
    if name == "machine":
        facts = _record("evaluation_rate")["machine"]
        return f"{facts['processor']}, one core; {facts['system']}, Python {facts['python']}, NumPy {facts['numpy']}."
    return str(importlib.import_module(name).report(_record(name)))


def _record(name: str) -> Record:
    return cast("Record", json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
