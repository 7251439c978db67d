"""A step as one page to look around in: all ranks, one rank, one layer; it needs no network.

The page is ``assets/page.html`` with the style sheet, the scripts and the data put in. The data are JSON, and
``assets/data.js`` describes them. The columns of the events are packed: half a million events are a small page.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape
from itertools import pairwise
from pathlib import Path
from string import Template
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.files import shipped_text
from shardplan.base.units import format_time
from shardplan.reports.timeline.bars import BOUNDS, HUES, MEMORY_HUES, PAGES, STACKED, hues, ink_on, shades
from shardplan.simulation.pieces import Ints
from shardplan.simulation.timeline import COMPUTE, EVENT_KINDS, LANES, AlivePart, Events, MemoryTrace, StepTimeline

ASSETS: Final = Path(__file__).parent / "assets"
SCRIPTS: Final = ("data.js", "text.js", "causes.js", "draw.js", "memory.js", "view.js", "input.js", "page.js")
"""In the order in which they run; the web app loads the same ones."""
NUM_TICKS: Final = 2**30
"""Ticks of a step: times are exact to a thousand millionth of it."""
NUM_LEVELS: Final = 2**24
"""Levels between nothing and the highest peak of the memory."""
COLUMNS: Final = ("kind", "chunk", "microbatch", "start", "duration", "critical")


def timeline_html(timeline: StepTimeline) -> str:
    """The page as text."""
    page = Template(shipped_text(ASSETS / "page.html"))
    styles = (shipped_text(ASSETS / name).rstrip() for name in ("page.css", "timeline.css"))
    return page.substitute(
        title=escape(timeline.subject or timeline.title),
        summary=escape(summary(timeline)),
        style=_colours() + "\n".join(styles),
        body=timeline_body(timeline),
        script="\n".join(shipped_text(ASSETS / name).rstrip() for name in SCRIPTS),
    )


def timeline_body(timeline: StepTimeline, *, has_layer: bool = True) -> str:
    """The timeline as part of a page that has its scripts and styles. ``has_layer``: whether it shows a layer too."""
    shown = timeline if has_layer else replace(timeline, layer=())
    data = json.dumps(page_data(shown), ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c")
    return Template(shipped_text(ASSETS / "body.html")).substitute(data=data)


def page_data(timeline: StepTimeline) -> dict[str, Any]:
    """What the scripts read; ``assets/data.js`` says what each entry is."""
    events = timeline.events
    end = float(events.end.max(initial=0.0))
    if timeline.memory:
        end = max(end, *(float(trace.times[-1]) for trace in timeline.memory))
    tick = end / NUM_TICKS if end else 1.0
    num_chunks = max(int(events.chunk.max(initial=0)) + 1, 1)
    places = events.rank * len(LANES) + events.lane
    return {
        "schema": "shardplan/timeline-page/2",
        "title": timeline.title,
        "step_time_s": timeline.step_time,
        "tick_s": tick,
        "num_chunks": num_chunks,
        "rank_names": list(timeline.rank_names),
        "bubble_rates": timeline.bubble_rates.tolist(),
        "groups": groups(timeline),
        "lanes": list(LANES),
        "kinds": [
            {"name": name, "hue": int(hue)}
            for name, hue in zip(EVENT_KINDS, hues(np.arange(len(EVENT_KINDS))), strict=True)
        ],
        "hues": [
            {"label": hue.label, "hatched": hue.is_hatched, "shaded": _is_shaded(events, number)}
            for number, hue in enumerate(HUES)
        ],
        "palettes": {theme: _palette(theme, num_chunks) for theme in PAGES},
        "counts": np.bincount(places, minlength=timeline.num_ranks * len(LANES)).tolist(),
        "columns": {name: packed(column) for name, column in _columns(events, tick).items()},
        "memory": _memory(timeline, tick) if timeline.memory else None,
        "layer": [
            {
                "name": each.name,
                "direction": each.direction,
                "time_s": each.time,
                "exposed_time_s": each.exposed_time,
                "bound": each.bound,
            }
            for each in timeline.drawn_layer
        ],
    }


def groups(timeline: StepTimeline) -> list[list[int]]:
    """Ranks whose events are the same in everything but the rank, in the order of their first one."""
    found: dict[bytes, list[int]] = {}
    events = timeline.events
    bounds = np.searchsorted(events.rank, np.arange(timeline.num_ranks + 1)).tolist()
    columns = [events.lane, events.start, *(getattr(events, name) for name in COLUMNS if name != "start")]
    for rank, (first, last) in enumerate(pairwise(bounds)):
        own = b"".join(np.ascontiguousarray(column[first:last]).tobytes() for column in columns)
        memory = timeline.memory[rank] if timeline.memory else None
        held = memory.times.tobytes() + memory.allocated.tobytes() if memory is not None else b""
        found.setdefault(own + held, []).append(rank)
    return list(found.values())


def packed(column: Ints | NDArray[np.bool_]) -> str:
    """A column of integers: differences as 32-bit integers, low byte first, in a zlib stream, in base64."""
    whole = np.asarray(column).astype("<i4")
    differences = np.diff(whole, prepend=np.zeros(1, dtype="<i4")).astype("<i4")
    return base64.b64encode(zlib.compress(differences.tobytes(), level=6)).decode("ascii")


def _columns(events: Events, tick: float) -> dict[str, Ints | NDArray[np.bool_]]:
    """Columns by name, with moments in ticks: events that touch still do."""
    start, end = (np.rint(moment / tick).astype(np.int64) for moment in (events.start, events.end))
    times = {"start": start, "duration": end - start}
    return {name: times.get(name, getattr(events, name)) for name in COLUMNS}


def _memory(timeline: StepTimeline, tick: float) -> dict[str, Any]:
    """Memory of all ranks, whole and by part."""
    traces = timeline.memory
    unit = max(trace.peak_bytes for trace in traces) / NUM_LEVELS or 1.0
    names = [name for name in STACKED if any(name in trace.by_part for trace in traces)]

    def levels(held: Iterable[NDArray[np.float64]]) -> str:
        return packed(np.concatenate([np.rint(each / unit) for each in held]).astype(np.int64))

    def part(name: str) -> Iterable[NDArray[np.float64]]:
        return (trace.by_part.get(name, np.zeros(len(trace.times))) for trace in traces)

    times = np.concatenate([np.rint(trace.times / tick) for trace in traces]).astype(np.int64)
    return {
        "unit_bytes": unit,
        "usable_bytes": timeline.usable_memory_bytes,
        "counts": [len(trace.times) for trace in traces],
        "parts": names,
        "columns": {"times": packed(times), "allocated": levels(trace.allocated for trace in traces)}
        | {name: levels(part(name)) for name in names},
        "peaks": [_peak(trace, tick) for trace in traces],
    }


def _peak(trace: MemoryTrace, tick: float) -> dict[str, Any]:
    """What is there when most is; chunks that keep the same micro-batches are one entry."""
    together: dict[tuple[int, ...], list[AlivePart]] = {}
    for part in trace.at_peak:
        if part.microbatches:
            together.setdefault(part.microbatches, []).append(part)
    whole = [
        {"name": part.name, "bytes": part.num_bytes, "note": ""} for part in trace.at_peak if not part.microbatches
    ]
    kept = [
        {
            "name": parts[0].name if len(parts) == 1 else f"activations of {len(parts)} model chunks",
            "bytes": sum(part.num_bytes for part in parts),
            "note": _note(numbers),
        }
        for numbers, parts in together.items()
    ]
    return {"time": round(trace.peak_time / tick), "bytes": trace.peak_bytes, "parts": [*whole, *kept]}


def _note(microbatches: Sequence[int]) -> str:
    """Whose activations they are."""
    if len(microbatches) == 1:
        return f"micro-batch {microbatches[0]}"
    return f"{len(microbatches)} micro-batches, {min(microbatches)} to {max(microbatches)}"


def summary(timeline: StepTimeline) -> str:
    """Step time and bubble, behind the schedule where the title is the plan."""
    rates = 100 * timeline.bubble_rates
    most = f"; others wait up to {rates.max():.1f} %" if len(rates) > 1 else ""
    once = timeline.step_time - timeline.pipeline_time
    after = f", of which {format_time(once)} after the pipeline" if once > timeline.step_time * 1e-6 else ""
    schedule = f"{timeline.title}. " if timeline.subject else ""
    bubble = f"Pipeline bubble on the slowest stage {rates.min(initial=100.0):.1f} %{most}."
    return f"{schedule}{format_time(timeline.step_time)} a step{after}. {bubble}"


def _is_shaded(events: Events, number: int) -> bool:
    """Whether the chunks of a hue have shades."""
    own = (hues(events.kind) == number) & (events.lane == COMPUTE)
    return not HUES[number].is_hatched and bool((events.chunk[own] > 0).any())


def _palette(theme: str, num_chunks: int) -> dict[str, Any]:
    colours = [shades(hue, theme, num_chunks) for hue in HUES]
    hatched = next(hue for hue in HUES if hue.is_hatched)
    return {
        "shades": colours,
        "ink": [[ink_on(colour) for colour in each] for each in colours],
        "pale": shades(hatched, theme, 3)[-1],
        "bounds": {bound: shades(hue, theme, 1)[0] for bound, hue in BOUNDS.items()},
        "memory": {name: colours[theme] for name, colours in MEMORY_HUES.items()},
        "page": tokens(theme),
    }


def tokens(theme: str) -> dict[str, str]:
    """Colours of what is not work, under the names that they have on the pages of the web app."""
    return {TOKENS.get(name, name): colour for name, colour in PAGES[theme]._asdict().items()}


TOKENS: Final = {"paper": "panel", "faint": "quiet", "focus": "accent"}


def _colours() -> str:
    """Colours of the page as the reader has set, before a script has run."""
    light, dark = ("".join(f"--{name}:{value};" for name, value in tokens(theme).items()) for theme in PAGES)
    return (
        f":root {{ color-scheme: light dark; {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
    )
