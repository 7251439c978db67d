"""The page of a step: its data, read back as the page reads them."""

from __future__ import annotations

import base64
import json
import re
import zlib
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reports.timeline.steps import HOSTILE, step_of, with_memory

from shardplan.base.files import shipped_text
from shardplan.base.outputs import HEAD, HTML
from shardplan.estimation.parts.terms import MEMORY
from shardplan.reports.timeline.bars import MEMORY_HUES
from shardplan.reports.timeline.page import groups, packed, page_data, timeline_html
from shardplan.simulation.timeline import EVENT_KINDS, LANES, Events, StepTimeline


def data_of(page: str) -> dict[str, Any]:
    """What the scripts find in a page."""
    (text,) = re.findall(r'<script type="application/json" id="t-data">(.*?)</script>', page, re.DOTALL)
    data: dict[str, Any] = json.loads(text)
    return data


def unpacked(text: str) -> np.ndarray[Any, Any]:
    """As assets/data.js describes a column."""
    return np.cumsum(np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype="<i4"), dtype="<i4")


@given(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=30))
def test_a_column_survives(numbers: list[int]) -> None:
    assert unpacked(packed(np.array(numbers, dtype=np.int64))).tolist() == numbers


@pytest.mark.parametrize(("name", "vp"), [("1f1b", 1), ("interleaved", 2), ("dualpipe", 1)])
def test_the_page_holds_every_event(name: str, vp: int) -> None:
    timeline = step_of(name, vp=vp, pp=4, num_microbatches=8, transfer=0.25)
    data = data_of(timeline_html(timeline))
    events: Events = timeline.events
    places = np.repeat(np.arange(timeline.num_ranks * len(LANES)), data["counts"])
    assert (places == events.rank * len(LANES) + events.lane).all()
    columns = {name: unpacked(text) for name, text in data["columns"].items()}
    for exact in ("kind", "chunk", "microbatch", "critical"):
        assert (columns[exact] == getattr(events, exact)).all()
    tick = data["tick_s"]
    np.testing.assert_allclose(columns["start"] * tick, events.start, atol=tick)
    np.testing.assert_allclose(columns["duration"] * tick, events.duration, atol=tick)
    assert [kind["name"] for kind in data["kinds"]] == list(EVENT_KINDS)


def test_events_that_touch_still_do() -> None:
    """The last rank of 1F1B never waits after its first piece."""
    timeline = step_of(pp=3, num_microbatches=7)
    columns = {name: unpacked(text) for name, text in page_data(timeline)["columns"].items()}
    last = timeline.events.rank == 2
    start, duration = (columns[name][last] for name in ("start", "duration"))
    assert (start[1:] == (start + duration)[:-1]).all()


def test_memory_survives() -> None:
    timeline = with_memory(step_of(pp=2))
    memory = page_data(timeline)["memory"]
    held = unpacked(memory["columns"]["allocated"]) * memory["unit_bytes"]
    np.testing.assert_allclose(held.reshape(2, 5)[0], timeline.memory[0].allocated, rtol=1e-6)
    peak = memory["peaks"][1]
    assert sum(part["bytes"] for part in peak["parts"]) == peak["bytes"] == 8e9
    assert peak["parts"][1]["note"] == "3 micro-batches, 0 to 2"
    assert page_data(step_of(pp=2))["memory"] is None


def test_identical_ranks_are_one_group() -> None:
    timeline = step_of(pp=2)
    assert groups(timeline) == [[0], [1]]
    first = timeline.events.of_rank(0)
    doubled = Events(
        **{name: np.concatenate([getattr(first, name)] * 2) for name in vars(first) if name != "rank"},
        rank=np.repeat([0, 1], len(first)),
    )
    twice: StepTimeline = replace(timeline, events=doubled)
    assert groups(twice) == [[0, 1]]


def test_every_text_is_escaped() -> None:
    timeline = replace(with_memory(step_of(pp=2)), title=HOSTILE, rank_names=(HOSTILE, "b"))
    page = timeline_html(timeline)
    assert HOSTILE not in page
    data = data_of(page)
    assert data["title"] == data["rank_names"][0] == data["layer"][0]["name"] == HOSTILE


def test_the_page_needs_no_network_and_is_known_as_ours() -> None:
    page = timeline_html(with_memory(step_of(pp=2)))
    assert not re.search(r"""(src|href)=|url\(|https?:|@import|fetch\(""", page)
    assert HTML.mark is not None
    assert HTML.mark.match(page.encode()[:HEAD])
    assert "$" not in re.sub(r"\$\{[^}]*", "", page.split("<script>")[0])  # nothing was left to put in


def test_a_large_step_is_a_small_page() -> None:
    """About a byte for each event."""
    timeline = step_of("interleaved", pp=16, vp=4, num_microbatches=128, transfer=0.1)
    assert len(timeline_html(timeline)) < 50_000 + 4 * len(timeline.events)


def test_parts_of_memory_have_the_colours_of_the_web_app() -> None:
    """Of the tokens of its style sheet, in light and in dark."""
    style = shipped_text(Path(str(files("shardplan.web"))) / "static" / "style.css")
    light, dark = (dict(re.findall(r"--([cm]\d+): (#\w{6})", text)) for text in style.split("@media", 1))
    for name, colours in MEMORY_HUES.items():
        tone = MEMORY[name].tone.replace("t", "c")
        assert (colours["light"], colours["dark"]) == (light[tone], dark[tone]), name
