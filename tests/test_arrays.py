from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardplan.arrays import Numbers, all_hold, ceil_divide, share, smooth_maximum, take

positive = st.floats(1e-12, 1e6)


def test_ceil_divide_rounds_up() -> None:
    assert [float(ceil_divide(n, 4)) for n in (0, 1, 4, 5, 8, 9)] == [0, 1, 1, 2, 2, 3]


def test_share_is_never_below_one() -> None:
    assert np.array_equal(share(8, np.array([1, 4, 8, 16])), [8, 2, 1, 1])


def test_all_hold_is_true_of_nothing() -> None:
    assert all_hold([]) is True


def test_all_hold_broadcasts_conditions() -> None:
    rows, columns = np.array([[True], [False]]), np.array([True, False, True])
    assert np.array_equal(all_hold([rows, columns]), [[True, False, True], [False, False, False]])


@given(positive, positive)
def test_smooth_maximum_lies_between_maximum_and_sixth_root_of_two_times_it(first: float, second: float) -> None:
    largest = max(first, second)
    assert largest * (1 - 1e-12) <= smooth_maximum(first, second) <= 2 ** (1 / 6) * largest * (1 + 1e-12)
    assert smooth_maximum(first, second) == smooth_maximum(second, first)


@given(positive)
def test_smooth_maximum_of_equals_is_the_sixth_root_of_two(time: float) -> None:
    assert smooth_maximum(time, time) == pytest.approx(2 ** (1 / 6) * time, rel=1e-12)


@given(positive)
def test_smooth_maximum_with_nothing_is_the_time_itself(time: float) -> None:
    assert smooth_maximum(time, 0.0) == time


def test_smooth_maximum_is_the_sixth_norm() -> None:
    assert smooth_maximum(3.0, 2.0) == pytest.approx((3.0**6 + 2.0**6) ** (1 / 6), rel=1e-14)


@dataclass(frozen=True)
class Record:
    whole: Numbers
    rows: Numbers
    columns: Numbers
    tiers: tuple[Numbers, ...]
    by_name: dict[str, Numbers]


def test_take_cuts_what_varies_along_the_axis_and_nothing_else() -> None:
    rows, columns = np.arange(4.0)[:, None], np.arange(5.0)
    table = rows * columns
    record = Record(1.0, rows, columns, (table, 2.0), {"a": table, "b": columns})
    cut = take(record, (slice(1, 3), slice(None)))
    assert np.array_equal(cut.rows, rows[1:3])
    assert np.array_equal(cut.columns, columns)
    assert np.array_equal(cut.tiers[0], table[1:3])
    assert np.array_equal(cut.by_name["a"], table[1:3])
    assert np.array_equal(cut.by_name["b"], columns)
    assert (cut.whole, cut.tiers[1]) == (1.0, 2.0)


def test_take_leaves_an_axis_of_length_one_whole() -> None:
    assert np.array_equal(take(np.ones((1, 5)), (slice(2, 3), slice(0, 2))), np.ones((1, 2)))


def test_take_commutes_with_arithmetic() -> None:
    rows, columns = np.arange(4.0)[:, None], np.arange(5.0)
    index = (slice(1, 3), slice(0, 4))
    assert np.array_equal(take(rows * columns, index), take(rows, index) * take(columns, index))
