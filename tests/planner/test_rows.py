"""Rows of tables: every pair that a plan has, once, and where it is."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shardplan.planner.pricing.cutting import STEP, priced_together
from shardplan.planner.pricing.numbers import ALONE, Rows

some = st.lists(st.integers(0, 30), min_size=1, max_size=12, unique=True).map(sorted)


def columns(lists: list[list[int]]) -> list[np.ndarray[tuple[int], np.dtype[np.intp]]]:
    return [np.asarray(each, dtype=np.intp) for each in lists]


@given(st.data())
def test_every_pair_of_a_depth_has_a_row_of_its_own(data: st.DataObject) -> None:
    depths = data.draw(some)
    held = [data.draw(some) for _ in depths]
    priced = [data.draw(some) for _ in depths]
    rows = Rows.of(depths, columns(held), columns(priced))
    wanted = [(depth, *pair) for depth, h, k in zip(depths, held, priced, strict=True) for pair in product(h, k)]
    at = rows.at(*columns([list(each) for each in zip(*wanted, strict=True)]))
    assert sorted(at.tolist()) == list(range(len(rows.keys)))
    assert rows.compositions[at].tolist() == [composition for _, composition, _ in wanted]
    assert rows.keys[at].tolist() == [key for _, _, key in wanted]


@given(st.lists(st.integers(1, 3 * ALONE), min_size=1, max_size=6), st.sampled_from((64, ALONE, 4 * ALONE)))
def test_pieces_are_all_rows_in_order_and_long_compositions_are_alone(sizes: list[int], length: int) -> None:
    held = columns([[number] for number in range(len(sizes))])
    rows = Rows.of(range(len(sizes)), held, columns([list(range(size)) for size in sizes]))
    pieces = [*rows.pieces(length)]
    assert [piece.start for piece in pieces] == [0, *(piece.stop for piece in pieces[:-1])]
    assert pieces[-1].stop == len(rows.keys)
    for piece in pieces:
        held_here = rows.compositions[piece]
        different = set(held_here.tolist())
        assert len(different) == 1 or all(sizes[number] < ALONE for number in different)
        assert len(held_here) <= max(length, ALONE - 1)


def test_large_sets_that_differ_are_priced_alone_and_small_ones_with_others() -> None:
    """Of two large sets each would be priced with what the other alone has; that costs more than a piece of work."""
    slots = np.asarray([[1, 0, 0, 0], [0, 1, 1, 1], [1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 1]], dtype=bool)
    shardings = np.asarray([[1, 1], [1, 1], [1, 1], [1, 0], [0, 1]], dtype=bool)
    sizes = np.asarray([10 * STEP, 10 * STEP, STEP // 2, 7, 7])
    assert priced_together(slots, shardings, sizes).tolist() == [1, 2, 1, 0, 0]


def test_sets_of_few_plans_are_one() -> None:
    sets = np.asarray(list(product([False, True], repeat=4)))
    assert set(priced_together(sets, sets, np.full(len(sets), 3)).tolist()) == {0}
