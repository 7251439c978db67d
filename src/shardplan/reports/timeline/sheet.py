"""The style sheet of a picture of a step."""

from __future__ import annotations

from shardplan.reports.timeline.hues import HUES, PAGES, Backdrop, ink_on, shades

FONT = "system-ui,-apple-system,Segoe UI,Roboto,Helvetica,Arial,sans-serif"


def sheet(num_chunks: int, theme: str) -> str:
    """Rules of one theme, or of both where it is ``auto``."""
    common = (
        f"text{{font:12px {FONT}}}.t{{font-weight:600;font-size:14px}}.e{{text-anchor:end}}.m{{text-anchor:middle}}"
        "[class^=n]{font-size:10px;text-anchor:middle}.g{fill:none}.k{fill:none;stroke-width:2}"
        ".hx{fill:url(#hatch)}.ml{fill:none;stroke-width:1.2}"
    )
    if theme != "auto":
        return common + _rules(num_chunks, theme)
    return f"{common}{_rules(num_chunks, 'light')}@media(prefers-color-scheme:dark){{{_rules(num_chunks, 'dark')}}}"


def _rules(num_chunks: int, theme: str) -> str:
    page = PAGES[theme]
    rules = [_page_rules(page)]
    for number, hue in enumerate(HUES):
        colours = shades(hue, theme, num_chunks)
        if hue.is_hatched:
            rules.append(f".hp{{fill:{shades(hue, theme, 3)[-1]}}}.hl{{fill:{colours[0]}}}")
            continue
        rules.extend(
            f".h{number}-{chunk}{{fill:{colour}}}.n{number}-{chunk}{{fill:{ink_on(colour)}}}"
            for chunk, colour in enumerate(colours)
        )
    return "".join(rules)


def _page_rules(page: Backdrop) -> str:
    return (
        f".t{{fill:{page.text}}}.s{{fill:{page.faint}}}.g{{stroke:{page.line}}}.k{{stroke:{page.text}}}"
        f".tr{{fill:{page.track}}}.ma{{fill:{page.area}}}.ml{{stroke:{page.faint}}}"
        f".mp{{fill:{page.text}}}"
    )
