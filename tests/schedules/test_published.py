"""Schedules against what their papers print."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.schedules.executor import equal, run

from shardplan.schedules.base import Passes, Pipeline
from shardplan.schedules.registry import SCHEDULES

PROFILED = {
    ("1.5B", 8, 24): (18.522, 18.086, 9.337, 0.601),
    ("1.5B", 8, 32): (18.513, 18.086, 9.331, 0.626),
    ("1.5B", 8, 64): (18.546, 18.097, 9.321, 0.762),
    ("6.2B", 8, 24): (29.718, 29.444, 19.927, 0.527),
    ("6.2B", 8, 32): (29.802, 29.428, 19.530, 0.577),
    ("6.2B", 8, 64): (29.935, 29.621, 19.388, 0.535),
    ("14.6B", 16, 48): (11.347, 11.248, 8.132, 0.377),
    ("14.6B", 16, 64): (11.307, 11.254, 8.101, 0.379),
    ("14.6B", 16, 128): (11.325, 11.308, 8.109, 0.378),
}
"""F, B, W and a transfer in ms, by model, ranks and micro-batches (arXiv 2401.10241, table 9)."""

BUBBLE_RATES = {
    "1f1b": (0.2431, 0.1985, 0.1240, 0.2347, 0.1898, 0.1091, 0.2552, 0.2082, 0.1251),
    "zb-h1": (0.1585, 0.1242, 0.0674, 0.1323, 0.1045, 0.0554, 0.1397, 0.1088, 0.0576),
    "zb-h2": (0.1083, 0.0837, 0.0444, 0.0698, 0.0559, 0.0294, 0.0672, 0.0516, 0.0266),
}
"""Share of the longest rank's time in which it idles, in the order of ``PROFILED`` (arXiv 2401.10241, table 5)."""


def pipeline(pp: int, num_microbatches: int, vp: int = 1) -> Pipeline:
    return Pipeline(pp=pp, vp=vp, num_microbatches=num_microbatches, group_size=pp)


def idle(name: str, at: Pipeline, own: Passes) -> float:
    everyone = own / (1 / at.pp)
    return float(SCHEDULES[name].idle_time(at, own, everyone))


@pytest.mark.parametrize("name", BUBBLE_RATES)
def test_passes_reproduce_the_bubble_rates_of_the_zero_bubble_paper(name: str) -> None:
    """All four printed digits, with transfers of the profiled time; the closed form leaves transfers out."""
    for ((_, pp, m), (forward, gradient, weight, transfer)), rate in zip(
        PROFILED.items(), BUBBLE_RATES[name], strict=True
    ):
        own = Passes(forward=forward, input_gradient=gradient, weight_gradient=weight)
        waits = max(run(SCHEDULES[name], pipeline(pp, m), equal(own, 1), transfer=transfer).idle)
        assert round(waits / (waits + m * float(own.total)), 4) == rate
        closed = idle(name, pipeline(pp, m), own)
        assert 0.75 * waits < closed < waits


@given(st.integers(2, 32), st.floats(0.1, 3), st.floats(0.1, 3), st.floats(0.0, 1.0))
def test_bubbles_of_the_zero_bubble_paper(pp: int, forward: float, gradient: float, part: float) -> None:
    """(p - 1)(F + B - W) and (p - 1)(F + B - 2W), where W is the shortest (arXiv 2401.10241, table 2)."""
    weight = part * min(forward, gradient)
    own = Passes(forward=forward, input_gradient=gradient, weight_gradient=weight)
    at = pipeline(pp, 4 * pp)
    assert idle("zb-h1", at, own) == pytest.approx((pp - 1) * (forward + gradient - weight))
    assert idle("zb-h2", at, own) == pytest.approx((pp - 1) * (forward + gradient - 2 * weight), abs=1e-9)


@pytest.mark.parametrize("name", ["zb-h2", "zb-v"])
def test_no_bubble_where_all_passes_take_as_long(name: str) -> None:
    """arXiv 2401.10241, sections 2 and 6; arXiv 2405.15362."""
    own = Passes(forward=1.0, input_gradient=1.0, weight_gradient=1.0)
    for pp in (2, 4, 8):
        assert idle(name, pipeline(pp, 4 * pp, SCHEDULES[name].least_vp), own) == 0


@given(st.sampled_from([2, 4, 8, 16]), st.floats(0.1, 3), st.floats(0.0, 3), st.floats(0.0, 1.0))
def test_bubble_of_dualpipe(pp: int, forward: float, more: float, part: float) -> None:
    """(PP/2 - 1)(F&B + B - 3W), B being both gradients and F&B as long as its passes (deepseek-ai/DualPipe, README)."""
    gradient = forward + more
    weight = part * gradient
    own = Passes(forward=forward, input_gradient=gradient, weight_gradient=weight)
    backward = gradient + weight
    published = (pp / 2 - 1) * (forward + backward + backward - 3 * weight)
    assert idle("dualpipe", pipeline(pp, 2 * pp), own) == pytest.approx(published, rel=1e-12, abs=1e-12)
    # Cut in half: chunks of half a rank's time, on half of the ranks.
    assert idle("dualpipe-v", pipeline(pp // 2, pp, 2), own / 0.5) == pytest.approx(published, rel=1e-12, abs=1e-12)


def test_drawing_of_dualpipe() -> None:
    """8 ranks, 20 micro-batches, all passes one unit: 66 units from the first pass to the last of a rank, 6 idle."""
    own = Passes(forward=1.0, input_gradient=1.0, weight_gradient=1.0)
    step = run(SCHEDULES["dualpipe"], pipeline(8, 20), equal(own, 1))
    assert step.step_time == 66
    assert max(step.idle) == 6
    assert idle("dualpipe", pipeline(8, 20), own) == 6


@pytest.mark.parametrize("pp", [2, 4, 8, 16])
def test_kept_micro_batches_of_the_published_tables(pp: int) -> None:
    """README of deepseek-ai/DualPipe: PP, PP and PP + 1; arXiv 2401.10241, table 2: p and 2p - 1; 2405.15362: p."""
    at, folded = pipeline(pp, 8 * pp), pipeline(pp, 8 * pp, 2)
    expected = {"1f1b": pp, "zb-h1": pp, "zb-h2": 2 * pp - 1, "dualpipe": pp + 1}
    assert {name: SCHEDULES[name].microbatches_in_flight(at, 0) for name in expected} == expected
    assert SCHEDULES["zb-v"].microbatches_in_flight(folded, 0) == pp
    assert 2 * SCHEDULES["dualpipe-v"].microbatches_in_flight(folded, 0) == 2 * pp + 1
    assert {name for name, schedule in SCHEDULES.items() if schedule.parameter_copies == 2} == {"dualpipe"}
