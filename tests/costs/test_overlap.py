from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import ideal_profile

from shardplan.costs.overlap import (
    beside,
    beside_chunks,
    exposed,
    hidden_share,
    pipelined_products,
)

times = st.floats(0, 1e3)
shares = st.floats(0, 1)


@given(times, shares, shares)
def test_hidden_communication_shows_its_slowdown_only(time: float, share: float, slowdown: float) -> None:
    shown = exposed(time, share, ideal_profile(hidden_slowdown=slowdown))
    assert 0 <= shown <= time * (1 + 1e-12)
    assert shown == pytest.approx(time * (1 - share) + time * share * slowdown, rel=1e-9, abs=1e-15)


def test_limits_of_a_share() -> None:
    assert exposed(2.0, 0.0, ideal_profile(hidden_slowdown=0.5)) == 2.0
    assert exposed(2.0, 1.0, ideal_profile()) == 0.0


@given(times, times, shares)
def test_what_runs_beside_a_window_shows_the_excess_or_its_slowdown(
    time: float, window: float, slowdown: float
) -> None:
    shown = beside(time, window, ideal_profile(hidden_slowdown=slowdown))
    assert shown == max(time - window, slowdown * time)


def test_hidden_share_follows_the_switch() -> None:
    assert hidden_share(overlapped=True, with_overlap=0.8, without=0.5) == 0.8
    assert hidden_share(overlapped=False, with_overlap=0.8, without=0.5) == 0.5


def test_chunks_hide_what_a_window_cannot() -> None:
    """Four chunks run eight micro-batches in turn: three quarters of the gradients travel during 3 x 8 passes."""
    ideal = ideal_profile(hidden_slowdown=0.0)
    assert beside_chunks(8.0, 4.0, 1, 8, ideal) == 8 - 4  # no interleaving: the last backward pass alone
    assert beside_chunks(8.0, 1.0, 4, 8, ideal) == 8 / 4 - 1  # the last chunk's, less its own pass
    assert beside_chunks(80.0, 1.0, 4, 8, ideal) == 80 - 1 - 8 * 3  # bound by the network throughout
    assert beside_chunks(8.0, 0.0, 4, 8, ideal) == 8


@given(times, times, st.integers(1, 16), st.integers(1, 64), shares)
def test_interleaving_never_shows_more(time: float, window: float, chunks: int, group: int, slowdown: float) -> None:
    profile = ideal_profile(hidden_slowdown=slowdown)
    shown = beside_chunks(time, window / chunks, chunks, group, profile)
    assert 0 <= shown <= beside(time, window / chunks, profile) * (1 + 1e-9) + 1e-300
    assert beside_chunks(time, window, 1, group, profile) == beside(time, window, profile)


@given(times, times, st.sampled_from((1, 4, 8, 16)))
def test_pipelined_products_show_the_first_panel_and_the_excess(time: float, products: float, panels: int) -> None:
    shown = pipelined_products(time, products, ideal_profile(summa_panels=panels))
    assert time / panels <= shown <= time * (1 + 1e-12)
    assert shown + products >= time * (1 - 1e-12)
