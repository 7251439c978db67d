from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardplan.base.arrays import (
    Numbers,
    all_hold,
    ceil_divide,
    coded,
    concatenated,
    distinct,
    divisors,
    gather,
    is_zero,
    mapped,
    share,
    smooth_maximum,
    where,
    without_zeros,
)

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


def test_a_choice_by_one_flag_is_the_chosen_value_itself() -> None:
    yes, no = np.arange(3.0), np.zeros((2, 1))
    for flag in (True, False):
        assert where(flag, yes, no) is (yes if flag else no)
    assert where(np.equal(1, 1), yes, no) is yes


@given(st.lists(st.tuples(st.booleans(), positive, positive), min_size=1))
def test_a_choice_by_an_array_is_that_of_each_flag(rows: list[tuple[bool, float, float]]) -> None:
    flags, yes, no = (np.asarray(column) for column in zip(*rows, strict=True))
    chosen = where(flags, yes, no)
    assert np.asarray(chosen).tolist() == [where(*row) for row in rows]


def test_only_the_number_zero_is_zero() -> None:
    assert is_zero(0)
    assert is_zero(0.0)
    assert not any(is_zero(value) for value in (1, 1e-300, np.zeros(3), np.zeros(())))


def test_arrays_of_zeros_become_the_number() -> None:
    record = Record(0.0, np.zeros(3), np.array([0.0, 1.0]), (np.zeros(2), 2.0), {"a": np.zeros(1)})
    lighter = without_zeros(record)
    assert (lighter.whole, lighter.rows, lighter.tiers, lighter.by_name) == (0.0, 0.0, (0.0, 2.0), {"a": 0.0})
    assert lighter.columns is record.columns


def test_gather_takes_from_what_varies_along_the_last_axis_and_nothing_else() -> None:
    rows, columns = np.arange(4.0)[:, None], np.arange(5.0)
    table = rows * columns
    record = Record(1.0, rows, columns, (table, 2.0), {"a": table, "b": np.ones(1)})
    index = np.array([3, 0, 3, 1])
    taken = gather(record, index)
    assert np.array_equal(taken.columns, columns[index])
    assert np.array_equal(taken.tiers[0], table[:, index])
    assert np.array_equal(taken.by_name["a"], table[:, index])
    assert taken.rows is rows
    assert np.array_equal(taken.by_name["b"], np.ones(1))
    assert (taken.whole, taken.tiers[1]) == (1.0, 2.0)


@given(st.lists(st.integers(0, 4), max_size=8))
def test_gather_commutes_with_arithmetic(places: list[int]) -> None:
    rows, columns, index = np.arange(4.0)[:, None], np.arange(5.0), np.asarray(places, dtype=np.intp)
    assert np.array_equal(gather(rows * columns, index), gather(rows, index) * gather(columns, index))


def test_mapped_changes_arrays_wherever_they_are() -> None:
    record = Record(1.0, np.ones(2), 3.0, (np.ones(3), 2.0), {"a": np.ones(4), "b": 5.0})
    sizes = mapped(record, lambda array: float(array.size))
    assert sizes == Record(1.0, 2.0, 3.0, (3.0, 2.0), {"a": 4.0, "b": 5.0})
    assert mapped("text", lambda _: 0.0) == "text"


def test_concatenated_records_are_one_after_the_other() -> None:
    one = Record(1.0, np.arange(2.0), 3.0, (np.ones(2), 2.0), {"a": 0.0})
    other = Record(1.0, np.arange(3.0), 4.0, (5.0, 2.0), {"a": np.ones(3)})
    both = concatenated([one, other], [2, 3])
    assert (both.whole, both.tiers[1]) == (1.0, 2.0)
    assert np.array_equal(both.rows, [0, 1, 0, 1, 2])
    assert np.array_equal(both.columns, [3, 3, 4, 4, 4])
    assert np.array_equal(both.tiers[0], [1, 1, 5, 5, 5])
    assert np.array_equal(both.by_name["a"], [0, 0, 1, 1, 1])


def test_equal_arrays_are_joined_too() -> None:
    """An array has an element for each plan of its record, even where two records share it."""
    ones = np.ones(2)
    assert np.array_equal(concatenated([ones, ones], [2, 2]), np.ones(4))


@given(st.lists(st.lists(st.integers(0, 9), min_size=1), min_size=1, max_size=4), st.data())
def test_gather_undoes_concatenated(columns: list[list[int]], data: st.DataObject) -> None:
    records = [Record(2.0, np.asarray(c), float(c[0]), (np.asarray(c) * 2,), {}) for c in columns]
    lengths = [len(column) for column in columns]
    number = data.draw(st.integers(0, len(columns) - 1))
    start = sum(lengths[:number])
    part = gather(concatenated(records, lengths), np.arange(start, start + lengths[number]))
    assert np.array_equal(part.rows, np.asarray(columns[number])) or sum(lengths) == 1
    assert np.array_equal(part.tiers[0], 2 * np.asarray(columns[number]))


@given(st.lists(st.integers(0, 20), min_size=1))
def test_distinct_numbers_give_every_code_back(codes: list[int]) -> None:
    values, position = distinct(np.asarray(codes, dtype=np.intp), 21)
    assert values.tolist() == sorted(set(codes))
    assert values[position].tolist() == codes


@given(st.lists(st.tuples(st.sampled_from((1.0, 2.5, 8.0)), st.integers(-2, 2), st.booleans()), min_size=1))
def test_rows_have_the_same_code_where_they_are_equal_and_only_there(rows: list[tuple[float, int, bool]]) -> None:
    code, limit = coded(*(np.asarray(column) for column in zip(*rows, strict=True)))
    numbers = code.tolist()
    assert all(0 <= number < limit for number in numbers)
    assert len(set(numbers)) == len(set(rows)) == len(set(zip(numbers, rows, strict=True)))


def test_the_smooth_maximum_of_no_times_is_no_time() -> None:
    assert smooth_maximum(0.0, 0.0) == 0.0
    found = np.asarray(smooth_maximum(np.asarray([0.0, 0.0, 2.0]), np.asarray([0.0, 3.0, 2.0])))
    assert found.tolist() == pytest.approx([0.0, 3.0, 2.0 * 2 ** (1 / 6)])
    assert found[0] == 0.0


def test_divisors() -> None:
    for number in (1, 2, 12, 97, 360, 4096):
        assert divisors(number) == tuple(n for n in range(1, number + 1) if number % n == 0)
