"""A step as SVG."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reports.timeline.steps import HOSTILE, parsed, step_of, with_memory

from shardplan.base.outputs import SVG
from shardplan.reports.timeline.bars import BLACK, HUES, PAGES, WHITE, Bars, contrast, ink_on, shades, ticks
from shardplan.reports.timeline.picture import MOST_BYTES, timeline_svg
from shardplan.simulation.timeline import COMPUTE, StepTimeline

NAMESPACE = "{http://www.w3.org/2000/svg}"


def shapes(svg: str, css: str) -> int:
    """Closed shapes of the paths of a class that starts with ``css``."""
    paths = [path for path in parsed(svg).iter(f"{NAMESPACE}path") if path.get("class", "").startswith(css)]
    return sum(path.get("d", "").count("z") for path in paths)


@pytest.mark.parametrize(
    ("name", "vp", "pp"), [("1f1b", 1, 4), ("interleaved", 2, 4), ("zb-h1", 1, 8), ("dualpipe", 1, 8), ("gpipe", 1, 1)]
)
def test_every_event_is_one_shape_of_well_formed_xml(name: str, vp: int, pp: int) -> None:
    timeline = step_of(name, pp=pp, vp=vp, num_microbatches=2 * pp, transfer=0.1)
    svg = timeline_svg(timeline)
    assert shapes(svg, "h") == len(timeline.events)
    assert SVG.mark is not None and SVG.mark.match(svg.encode())  # noqa: PT018  # one fact


def test_numbers_are_those_of_micro_batches() -> None:
    """4 ranks run 8 micro-batches forward and back; recomputation carries no number."""
    texts = parsed(timeline_svg(step_of())).iter(f"{NAMESPACE}text")
    numbers = [str(text.text) for text in texts if text.get("class", "").startswith("n")]
    assert sorted(numbers) == sorted(str(number) for number in range(8) for _ in range(2 * 4))


def test_a_large_step_is_merged_into_a_small_picture_that_says_so() -> None:
    timeline = step_of("interleaved", pp=16, vp=4, num_microbatches=128, transfer=0.1)
    svg = timeline_svg(timeline)
    assert len(svg) < MOST_BYTES
    assert f"{len(timeline.events):,} events, too many to draw one by one" in svg


def test_more_ranks_than_rows() -> None:
    svg = timeline_svg(step_of(pp=160, num_microbatches=4))
    assert "128 of 160 stages are shown." in svg
    assert len(svg) < MOST_BYTES


def test_merged_columns_hold_all_work() -> None:
    """Shares times the width of a column are the seconds of the events, of every rank and hue."""
    bars = Bars.of(step_of("zb-h1", pp=4, num_microbatches=9, transfer=0.3))
    shares = bars.shares(COMPUTE, 37)
    assert shares.min() >= 0
    assert shares.sum(axis=1).max() <= 1 + 1e-9
    for row in range(4):
        for hue in range(len(HUES)):
            these = (bars.row == row) & (bars.hue == hue) & (bars.events.lane == COMPUTE)
            assert shares[row, hue].sum() * bars.end / 37 == pytest.approx(bars.events.duration[these].sum())


@given(first=st.integers(1, 60), second=st.integers(1, 60))
def test_merged_columns_do_not_depend_on_their_number(first: int, second: int) -> None:
    bars = Bars.of(step_of(pp=2, num_microbatches=5))
    one, other = (bars.shares(COMPUTE, number).mean(axis=2) for number in (first, second))
    np.testing.assert_allclose(one, other, atol=1e-9)


def test_texts_are_escaped() -> None:
    timeline = replace(with_memory(step_of(pp=2)), title=HOSTILE, rank_names=(HOSTILE, "b"))
    svg = timeline_svg(timeline)
    assert HOSTILE not in svg
    assert parsed(svg).get("aria-label") == HOSTILE


def test_memory_is_below_on_the_same_axis() -> None:
    timeline = with_memory(step_of(pp=2))
    svg = timeline_svg(timeline)
    assert svg.count('class="mp"') == 2  # a peak for each rank
    assert "above the 5.00 GB that it always holds, up to 3.00 GB" in svg
    assert "8.00 GB" in svg
    few = timeline_svg(with_memory(step_of(pp=12, num_microbatches=12)))
    assert few.count('class="mp"') == 1  # the range of all ranks, and the fullest one
    assert 'class="mp"' not in timeline_svg(step_of(pp=2))


def test_themes() -> None:
    timeline = step_of(pp=2)
    light, dark, auto = (timeline_svg(timeline, theme=theme) for theme in ("light", "dark", "auto"))
    assert "prefers-color-scheme" in auto
    assert "prefers-color-scheme" not in light + dark
    assert PAGES["dark"].text in dark
    assert PAGES["dark"].text not in light


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_numbers_can_be_read_on_every_shade(theme: str) -> None:
    """WCAG 2.1 asks for 4.5 to 1. Passes carry numbers, the rest does not."""
    for hue in HUES[:5]:
        for colour in shades(hue, theme, 6):
            assert contrast(ink_on(colour), colour) >= 4.5
    page = PAGES[theme]
    assert contrast(page.text, page.paper) >= 7
    assert contrast(page.faint, page.paper) >= 4.5


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_hues_differ_in_lightness(theme: str) -> None:
    """What the colour-blind, and a printer without colours, tell apart: forward, backward and weight gradient."""
    lightness = [contrast(shades(HUES[number], theme, 1)[0], BLACK) for number in (0, 4, 3)]
    assert all(later / earlier > 1.25 for earlier, later in pairwise(sorted(lightness)))


def test_contrast_of_the_standard() -> None:
    """WCAG 2.1: black on white is 21 to 1, #777777 on white 4.48 to 1."""
    assert contrast("#000000", WHITE) == pytest.approx(21)
    assert contrast("#777777", WHITE) == pytest.approx(4.48, abs=0.005)


@given(st.floats(1e-6, 1e5), st.integers(2, 12))
def test_ticks_are_round_and_within(length: float, most: int) -> None:
    found = ticks(length, most)
    moments = [moment for moment, _ in found]
    assert moments[0] == 0
    assert moments[-1] <= length * (1 + 1e-9)
    assert len(found) <= most + 1
    steps = np.diff(moments)
    np.testing.assert_allclose(steps, steps[0] if len(steps) else 0)
    assert re.fullmatch(r"0(\.0+)? (s|ms|µs)", found[0][1])


def test_ticks_in_milliseconds() -> None:
    moments, texts = zip(*ticks(0.35, 8), strict=True)
    assert moments == pytest.approx([0.05 * number for number in range(8)])
    assert texts == ("0 ms", "50", "100", "150", "200", "250", "300", "350")


def test_a_step_of_no_events() -> None:
    timeline = step_of(pp=2)
    empty: StepTimeline = replace(timeline, events=timeline.events.at(slice(0, 0)))
    assert parsed(timeline_svg(empty)).tag == f"{NAMESPACE}svg"
