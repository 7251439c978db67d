"""Where the seconds of a step and the bytes of its fullest stage go, and sections of a report as one page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final

from shardplan.base.fields import dataclass
from shardplan.base.units import format_bytes
from shardplan.estimation.parts.terms import MEMORY
from shardplan.reports.texts.answer import band_name

if TYPE_CHECKING:
    from shardplan.estimation.estimate import Estimate

SMALLEST_SHARE: Final = 5e-5
"""A term below this share of the step is left out of the split."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """One part of a whole."""

    name: str
    value: float
    """Seconds or bytes."""
    share: float
    """Of the whole."""


@dataclass(frozen=True, kw_only=True)
class MemoryBar:
    """Memory of the fullest stage against what can be used."""

    stage: int
    num_stages: int
    parts: tuple[Share, ...]
    """Shares are of the usable memory."""
    used_bytes: float
    usable_bytes: float

    @property
    def free_bytes(self) -> float:
        """What is left; negative where it does not fit."""
        return self.usable_bytes - self.used_bytes


def step_split(estimate: Estimate) -> tuple[Share, ...]:
    """Terms of the step time on the slowest stage, largest first."""
    shares = (
        Share(name=name, value=time, share=time / estimate.step_time) for name, time in estimate.breakdown.items()
    )
    return tuple(sorted((s for s in shares if s.share >= SMALLEST_SHARE), key=lambda s: -s.value))


def memory_bar(estimate: Estimate) -> MemoryBar:
    """Parts of the fullest stage's memory."""
    parts = estimate.memory[estimate.fullest_stage]
    usable = estimate.usable_memory_bytes
    return MemoryBar(
        stage=estimate.fullest_stage,
        num_stages=len(estimate.memory),
        parts=tuple(Share(name=name, value=parts[name], share=parts[name] / usable) for name in MEMORY if parts[name]),
        used_bytes=estimate.peak_memory_bytes,
        usable_bytes=usable,
    )


def memory_use(estimate: Estimate) -> str:
    """Memory of the fullest stage against what can be used, and what is missing."""
    bar = memory_bar(estimate)
    stage = f"; stage {bar.stage}" if bar.num_stages > 1 else ""
    missing = f", {format_bytes(-bar.free_bytes)} too much" if bar.free_bytes < 0 else ""
    used = f"{format_bytes(bar.used_bytes)} of {format_bytes(bar.usable_bytes)} usable{_memory_band(estimate)}"
    return f"{used}{missing}{stage}"


def _memory_band(estimate: Estimate) -> str:
    """The two ends of the memory's band."""
    low, high = estimate.peak_memory_p10_bytes, estimate.peak_memory_p90_bytes
    basis = band_name(estimate.peak_memory_basis)
    return f" ({format_bytes(low)} to {format_bytes(high)}, {basis})" if low < high else ""


Rows = Sequence[Sequence[str]]
_PAGE_STYLE = (
    ":root{color-scheme:light dark}"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:72em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse;margin:1em 0;font-size:14px}"
    "td,th{padding:.25em .7em;text-align:right;border-bottom:1px solid #8884;vertical-align:top}"
    "td:first-child,th:first-child,.w td,.w th{text-align:left}svg{max-width:40em;display:block}"
)


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading with what stands beneath it: paragraphs, a figure, a table."""

    title: str
    level: int = 2
    text: str = ""
    figure: str = ""
    """Its name."""
    columns: Sequence[str] = ()
    rows: Rows = ()

    @classmethod
    def of(
        cls,
        title: str,
        rows: Sequence[Any],
        columns: Iterable[tuple[str, Callable[[Any], str]]],
        *,
        level: int = 2,
        text: str = "",
        figure: str = "",
    ) -> Section:
        """A table of ``rows`` with ``columns``, each a title and the cell of a row; without rows there is no text."""
        titles, cells = zip(*columns, strict=True)
        return cls(
            title=title,
            level=level,
            text=text if rows else "",
            figure=figure,
            columns=titles,
            rows=[[cell(row) for cell in cells] for row in rows],
        )


def html_of(sections: Iterable[Section], figures: Mapping[str, str], title: str) -> str:
    """Sections as one HTML file that loads nothing. ``figures``: SVG of every figure by name."""
    body = "".join(_html(section, figures) for section in sections)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="generator" content="shardplan">'
        f"<title>{escape(title)}</title>"
        f'<meta name="viewport" content="width=device-width"><style>{_PAGE_STYLE}</style></head>\n'
        f"<body><h1>{escape(title)}</h1>\n{body}</body></html>\n"
    )


def _html(section: Section, figures: Mapping[str, str]) -> str:
    parts = [f"<h{section.level}>{escape(section.title)}</h{section.level}>"]
    parts += [f"<p>{escape(section.text)}</p>"] if section.text else []
    parts += [figures[section.figure]] if section.figure in figures else []
    if section.rows:
        head = "".join(f"<th>{escape(column)}</th>" for column in section.columns)
        lines = "\n".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in section.rows
        )
        css = ' class="w"' if is_wordy(section) else ""
        parts.append(f"<table{css}><tr>{head}</tr>\n{lines}</table>")
    return "\n".join(parts) + "\n"


def is_wordy(section: Section) -> bool:
    """Whether the table holds sentences."""
    return any(len(cell) > 60 for row in section.rows for cell in row)
