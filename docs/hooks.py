"""What mkdocs runs while it builds.

Equations become MathML. Pages whose tables are out of date, and pages that load from other hosts, are refused.
"""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

sys.path.insert(0, str(Path(__file__).parent))

from generate_tables import NEW, filled, for_build

EQUATION = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
LOADED = re.compile(
    r"""(?:<(?:script|img|iframe|source)\b[^>]*?\bsrc=|<link\b[^>]*?\bhref=)["']?((?:https?:)?//[^"'\s>]+)"""
)


def on_page_markdown(text: str, *, page: Any, **_: Any) -> str:
    """The page, with tables that were not written into it yet. Raises ``PluginError`` where one is out of date."""
    new = filled(text, depth=page.file.src_uri.count("/"))
    if new != text and not NEW.search(text):
        message = f"{page.file.src_path}: a table is out of date: run python docs/generate_tables.py"
        raise PluginError(message)
    return for_build(new)


def on_page_content(content: str, *, page: Any, **_: Any) -> str:
    """Equations of a page as MathML, which browsers draw without a script. Raises ``PluginError`` for unknown TeX."""
    return EQUATION.sub(lambda match: _mathml(match[2], page.file.src_path, is_block=match[1] == "div"), content)


def on_post_build(*, config: Any, **_: Any) -> None:
    """Refuses pages that load scripts, styles or images from other hosts. Raises ``PluginError``."""
    for path in sorted(Path(config["site_dir"]).rglob("*.html")):
        if found := LOADED.findall(path.read_text(encoding="utf-8")):
            message = f"{path.name} loads from other hosts: {', '.join(sorted(set(found)))}"
            raise PluginError(message)


def _mathml(escaped: str, page: str, *, is_block: bool) -> str:
    tex = html.unescape(escaped).strip()
    drawn = convert(tex, display="block" if is_block else "inline")
    if "\\" in drawn:
        message = f"{page}: no MathML for {tex}"
        raise PluginError(message)
    return f'<div class="equation">{drawn}</div>' if is_block else drawn
