"""A picture of what a terminal shows, as SVG: light or dark like the page around it, sharp at any size, no script."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

CELL, LINE, SIZE = 8.4, 19, 14
"""Width of a character, height of a line and size of the font, in pixels."""
MARGIN, BAR = 18, 34
"""Around the text, and height of the window's title bar."""
STYLE = re.compile(r"\x1b\[([0-9;]*)m")
BLOCKS = " ▏▎▍▌▋▊▉█"
"""A cell that is filled by none to eight eighths."""
COLOURS = {
    "31": ("#b42318", "#ff7b72"),
    "32": ("#1a7f37", "#56d364"),
    "33": ("#9a6700", "#e3b341"),
    "36": ("#0b7a8a", "#56d4dd"),
    "37": ("#8c959f", "#6e7681"),
    "91": ("#d1495b", "#ff8f98"),
    "93": ("#bf8700", "#f2cc60"),
    "94": ("#2f6fd6", "#79b8ff"),
    "95": ("#8e44ad", "#d2a8ff"),
    "96": ("#1b8a9e", "#76e3ea"),
}
"""Colours of a terminal by their codes, on light pages and on dark ones."""
PAPER, INK, FRAME, DIM = ("#ffffff", "#0d1117"), ("#1f2328", "#e6edf3"), ("#d0d7de", "#30363d"), ("#59636e", "#9198a1")


def terminal_svg(printed: str, *, title: str, columns: int = 80) -> str:
    """A window that shows ``printed``, with its ANSI colours, under ``title``."""
    lines = printed.rstrip("\n").split("\n")
    width, height = columns * CELL + 2 * MARGIN, len(lines) * LINE + BAR + 2 * MARGIN
    drawn = [part for row, line in enumerate(lines) for part in _line(line, BAR + MARGIN + row * LINE)]
    text = STYLE.sub("", printed)
    box = f'viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{html.escape(title)}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {box}>',
            f"<title>{html.escape(title)}</title>",
            f"<desc>{html.escape(text)}</desc>",
            f"<style>{_styles()}</style>",
            f'<rect class="paper frame" x=".5" y=".5" width="{width - 1:g}" height="{height - 1:g}" rx="9"/>',
            *(f'<circle class="dot" cx="{20 + 18 * dot}" cy="{BAR / 2:g}" r="5.5"/>' for dot in range(3)),
            f'<text class="dim" x="{width / 2:g}" y="{BAR / 2 + 5:g}" text-anchor="middle">{html.escape(title)}</text>',
            *drawn,
            "</svg>",
            "",
        ]
    )


def _line(line: str, top: float) -> Iterator[str]:
    """The pieces of a line, each where its column is, so that columns hold in any font."""
    column, codes = 0, ""
    for place, piece in enumerate(STYLE.split(line)):
        if place % 2:
            codes = "" if piece in ("", "0") else f"{codes};{piece}".strip(";")
            continue
        if piece.strip():
            yield _piece(piece, column, top, _classes(codes))
        column += len(piece)


def _piece(text: str, column: int, top: float, classes: str) -> str:
    """A text; a bar where it is made of blocks."""
    x, shown = MARGIN + column * CELL, text.rstrip()
    if set(shown) <= set(BLOCKS):
        width = CELL * sum(BLOCKS.index(block) for block in shown) / 8
        return f'<rect class="{classes}" x="{x:g}" y="{top + 3:g}" width="{width:g}" height="{LINE - 6}"/>'
    lead = len(shown) - len(shown.lstrip())
    word = html.escape(shown.lstrip())
    length = (len(shown) - lead) * CELL
    return (
        f'<text class="{classes}" x="{x + lead * CELL:g}" y="{top + 14:g}" textLength="{length:g}" '
        f'xml:space="preserve">{word}</text>'
    )


def _classes(codes: str) -> str:
    names = {"1": "bold", "2": "dim"}
    return " ".join(names.get(code, f"c{code}") for code in codes.split(";") if code) or "ink"


def _styles() -> str:
    fonts = 'ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace'
    plain = f"text{{font:{SIZE}px {fonts}}}.bold{{font-weight:700}}"
    return f"{plain}{_palette(0)}@media(prefers-color-scheme:dark){{{_palette(1)}}}"


def _palette(side: int) -> str:
    """Rules for light pages (0) or dark ones (1); a piece without a colour of its own has that of ink."""
    own = "".join(f".c{code}{{fill:{pair[side]}}}" for code, pair in COLOURS.items())
    frame = f".paper{{fill:{PAPER[side]}}}.frame{{stroke:{FRAME[side]}}}.dot{{fill:{FRAME[side]}}}"
    return f"text{{fill:{INK[side]}}}.dim{{fill:{DIM[side]}}}{own}{frame}"
