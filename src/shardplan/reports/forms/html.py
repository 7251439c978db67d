"""An answer as one piece of HTML for a notebook: plan and numbers, memory, split of the step, the best plans.

Colours follow the reader's setting; nothing is loaded from elsewhere, and every text is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from shardplan.estimation.estimate import Estimate
from shardplan.estimation.parts.terms import MEMORY, keys_of, term_label
from shardplan.estimation.question import Question
from shardplan.planner.result import SearchResult
from shardplan.planner.retiming import Retimed
from shardplan.reports.breakdown import Share, memory_bar, step_split
from shardplan.reports.recommendation import against_fastest, faster_by, listed_plans, recommendation, simulated_text
from shardplan.reports.texts.answer import memory_use, percent, question_parts, question_title, rates_text, step_band
from shardplan.reports.texts.plan import plan_words, short_recompute, short_sharding
from shardplan.units import format_bytes, format_time

COLOURS: Final = {
    "bright_blue": "#4477aa",
    "bright_cyan": "#66ccee",
    "bright_magenta": "#aa3377",
    "bright_yellow": "#ccbb44",
    "bright_green": "#228833",
    "bright_red": "#ee6677",
    "white": "#999999",
}
"""Of the parts of memory, by their colour on terminals. The colour-blind can tell them apart (Paul Tol, bright)."""
COMPUTE, LOSS = "#228833", "#cc6677"
ARITHMETIC: Final = keys_of("arithmetic")
MOST_TERMS: Final = 8
STYLE: Final = (
    "<style>.shardplan{font:13px/1.5 system-ui,sans-serif;max-width:62em}.shardplan .bar{display:flex;height:14px;"
    "background:rgba(128,128,128,.2);border-radius:3px;overflow:hidden;margin:3px 0}.shardplan .bar i{display:block;"
    "height:100%}.shardplan table{font:inherit;border-collapse:collapse;margin:6px 0;"
    "white-space:nowrap}.shardplan td,.shardplan th{padding:"
    "1px 10px 1px 0;text-align:right;border:0}.shardplan td:first-child,.shardplan th:first-child{text-align:left}"
    ".shardplan .take{font-weight:600}.shardplan small{opacity:.75}.shardplan .dot{display:inline-block;width:9px;"
    "height:9px;border-radius:2px;margin-right:4px}</style>"
)


def estimate_html(question: Question, estimate: Estimate) -> str:
    """One plan."""
    return _page(_title(question), _verdict(question, estimate), _memory(estimate), _step(estimate))


def search_html(result: SearchResult) -> str:
    """The plan to take, and the best plans."""
    best = result.recommended
    if best is None or result.ties is None:
        why = f" Of the plan that needs least memory, {result.smallest.reason}." if result.smallest else ""
        why += "".join(f" {cause[:1].upper()}{cause[1:]}." for cause in result.causes)
        helps = "".join(f"<li>{escape(each.change)}</li>" for each in result.suggestions)
        return _page(_title(result.question), f"<b>Nothing fits.</b>{escape(why)}<ul>{helps}</ul>")
    found = recommendation(result.ties, result.estimates)
    fastest = "" if found.is_fastest else f"<br>Fastest: {faster_by(found)}, but {against_fastest(found)}."
    return _page(
        _title(result.question),
        _verdict(result.question, best) + fastest,
        _memory(best),
        _step(best),
        _plans(result, best),
    )


def _page(*parts: str) -> str:
    return f'{STYLE}<div class="shardplan">{"".join(f"<div>{part}</div>" for part in parts)}</div>'


def _title(question: Question) -> str:
    parts = " · ".join(question_parts(question))
    return f"<b>{escape(question_title(question))}</b> <small>{escape(parts)}</small>"


def _verdict(question: Question, estimate: Estimate) -> str:
    fits = "Fits" if estimate.feasible else f"Does not fit: {estimate.reason}. If it did"
    rates = rates_text(question, estimate, is_whole=False)
    warning = f"<br>Outside the measured runs: {escape(estimate.not_measured)}." if estimate.not_measured else ""
    runs = f" on {estimate.framework}" if estimate.framework else ""
    return (
        f"{escape(fits)}: <b>{format_time(estimate.step_time)} a step</b> ({step_band(estimate)}), {rates}{warning}<br>"
        f"{escape(' · '.join(plan_words(estimate)))}{escape(runs)}"
    )


def _memory(estimate: Estimate) -> str:
    bar = memory_bar(estimate)
    parts = [(part, COLOURS[MEMORY[part.name].colour]) for part in bar.parts]
    legend = " &nbsp; ".join(
        f'<span class="dot" style="background:{colour}"></span>{escape(part.name)} {format_bytes(part.value)}'
        for part, colour in parts
    )
    return f"Memory {memory_use(estimate)}{_bar(parts)}<small>{legend}</small>"


def _bar(parts: Sequence[tuple[Share, str]]) -> str:
    """Parts side by side, scaled down where they are more than the whole."""
    whole = max(1.0, sum(part.share for part, _ in parts))
    cells = "".join(
        f'<i style="width:{100 * part.share / whole:.2f}%;background:{colour}" title="{escape(part.name)}"></i>'
        for part, colour in parts
    )
    return f'<div class="bar">{cells}</div>'


def _step(estimate: Estimate) -> str:
    """The largest terms of the step, a bar each."""
    shares = step_split(estimate)[:MOST_TERMS]
    rows = "".join(
        f"<tr><td>{escape(term_label(share.name))}</td><td>{format_time(share.value)}</td>"
        f"<td>{percent(share.share)}</td><td style='width:16em'>"
        f"{_bar([(share, COMPUTE if share.name in ARITHMETIC else LOSS)])}</td></tr>"
        for share in shares
    )
    return f"<table><tr><th>Step</th><th></th><th></th><th></th></tr>{rows}</table>"


def _plans(result: SearchResult, best: Estimate) -> str:
    """The listed plans, the one to take among them."""
    listed, places, names, _ = listed_plans(result)
    simulated = None if result.ties is None else result.ties.retimed
    head = [
        "plan",
        "step",
        *(["simulated"] if simulated else []),
        "MFU",
        "memory",
        *names,
        "dp",
        "micro-batch",
        "sharding",
        "recompute",
    ]
    rows = "".join(_plan_row(places.get(each.plan, ""), each, names, best, simulated) for each in listed)
    return f"<table><tr>{''.join(f'<th>{name}</th>' for name in head)}</tr>{rows}</table>"


def _plan_row(place: str, each: Estimate, names: Sequence[str], best: Estimate, simulated: Retimed | None) -> str:
    is_best = each.plan == best.plan
    cells = [
        f"{place} take this".strip() if is_best else place,
        format_time(each.step_time),
        *([] if simulated is None else [simulated_text(simulated, each)]),
        percent(each.mfu),
        format_bytes(each.peak_memory_bytes),
        *(str(getattr(each.plan, name)) for name in names),
        str(each.dp),
        str(each.plan.micro_batch_size),
        short_sharding(each.plan),
        short_recompute(each.plan),
    ]
    style = ' class="take"' if is_best else ""
    return f"<tr{style}>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
