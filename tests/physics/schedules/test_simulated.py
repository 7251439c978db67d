"""Schedules that are simulated alone: their orders, and orders from files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.simulation.cases import even, passes, pipeline, step
from tests.simulation.published_rows import rows, simulated

from shardplan.base.errors import InputError
from shardplan.physics.schedules.base import ChunkTimes, Orders, Pass, Passes, Pipeline, Place, Schedule
from shardplan.physics.schedules.order_file import FILE, KINDS, order_of_text
from shardplan.physics.schedules.registry import closed_form, list_all_schedules, load_any_schedule
from shardplan.physics.schedules.v_pattern import VHalf, VMin, VPattern
from shardplan.physics.schedules.zero_bubble_search import KEPT_SHARE
from shardplan.simulation.pieces import FORWARD, INPUT_GRADIENT, NOTHING, WEIGHT_GRADIENT
from shardplan.simulation.step import SimulatedStep, simulate

ROUNDING = 1e-9
seconds = st.floats(0.05, 3.0)


@st.composite
def own_passes(draw: st.DrawFn) -> Passes:
    return passes(draw(seconds), draw(seconds), draw(seconds))


@pytest.mark.parametrize("name", ["zb-1p", "zb-2p"])
def test_bubble_rates_of_the_zero_bubble_paper(name: str) -> None:
    """All four printed digits of every cell (arXiv 2401.10241, table 5, from the times of table 9)."""
    of_schedule = [row for row in rows("zero_bubble_table_5") if row["schedule"] == name]
    assert len(of_schedule) == 9
    rates = [simulated(row)[1].bubble_rate for row in of_schedule]
    assert [round(rate, 4) for rate in rates] == [float(row["bubble_rate"]) for row in of_schedule]


@pytest.mark.parametrize("pp", [2, 3, 4, 5, 6, 8, 12])
def test_schedules_with_controllable_memory(pp: int) -> None:
    """Peak activations (p + 2) // 2 and (p + 4) // 3 of a stage; V-Min's bubble is 2/3 of 1F1B's (arXiv 2405.15362)."""
    at = pipeline(pp, 8 * pp, 2)
    half, least, greedy = (step(name, at, even(passes(), at)) for name in ("v-half", "v-min", "zbv-greedy"))
    assert max(rank.peak_kept for rank in half.ranks) / 2 == (pp + 2) // 2
    assert max(rank.peak_kept for rank in least.ranks) / 2 <= (pp + 4) // 3
    assert max(rank.peak_kept for rank in greedy.ranks) <= 2 * pp
    plain = step("1f1b", pipeline(pp, 8 * pp), even(passes(), pipeline(pp, 8 * pp)))
    bubble = plain.step_time - 24 * pp
    assert least.step_time - 24 * pp <= 0.85 * bubble
    assert half.step_time - 24 * pp <= 0.85 * bubble
    assert greedy.step_time - 24 * pp <= 0.3 * bubble


@pytest.mark.parametrize("name", ["zb-1p", "zb-2p"])
@given(st.integers(1, 6), st.integers(1, 20), own_passes(), st.integers(0, 12))
def test_searched_orders_keep_to_their_limit(name: str, pp: int, m: int, own: Passes, more: int) -> None:
    at = pipeline(pp, m)
    searched = step(name, at, even(own, at, 0.05, limit=pp + more))
    assert max(rank.peak_in_flight for rank in searched.ranks) <= pp + more
    with pytest.raises(InputError, match="max_in_flight is 0"):
        step(name, at, even(own, at, limit=0))


@given(st.integers(2, 6), st.integers(1, 20), own_passes(), st.integers(2, 12))
def test_a_greedy_order_keeps_to_its_limit(pp: int, m: int, own: Passes, limit: int) -> None:
    at = pipeline(pp, m, 2)
    greedy = step("zbv-greedy", at, even(own, at, 0.05, limit=limit))
    assert max(rank.peak_kept for rank in greedy.ranks) <= limit
    with pytest.raises(InputError, match="max_in_flight is 1"):
        step("zbv-greedy", at, even(own, at, limit=1))


@given(st.integers(2, 5), st.integers(1, 12), st.integers(2, 12), st.integers(0, 1000))
def test_a_greedy_rank_starts_what_is_there(pp: int, m: int, limit: int, seed: int) -> None:
    """No rank waits while a pass that it may run is there; no forward or weight gradient goes before a B that is."""
    at, generator = pipeline(pp, m, 2), np.random.default_rng(seed)
    forward, gradient, weight, transfer = generator.uniform(0.2, 2.0, (4, 2 * pp))
    times = ChunkTimes(
        forward=forward, input_gradient=gradient, weight_gradient=weight, transfer=transfer / 10, max_in_flight=limit
    )
    ran = step("zbv-greedy", at, times)
    for piece, kept, later in left_at_each_start(ran):
        may_keep = (ran.pieces.kind[later] != FORWARD) | (limit - kept >= 2 - ran.pieces.chunk[later])
        there = later[may_keep & (arrivals(ran)[later] < ran.start[piece] - ROUNDING)]
        if waited(ran, piece):
            assert not len(there)
        if ran.pieces.kind[piece] != INPUT_GRADIENT:
            assert not np.any(ran.pieces.kind[there] == INPUT_GRADIENT)


def arrivals(ran: SimulatedStep) -> NDArray[Any]:
    """When every piece has what it needs, of another rank and of its own. [s]"""
    pieces = ran.pieces
    from_others = np.where(pieces.after == NOTHING, 0.0, ran.end[pieces.after] + ran.transfer)
    columns = zip(*(each.tolist() for each in (pieces.kind, pieces.position, pieces.microbatch)), strict=True)
    ends = dict(zip(columns, ran.end.tolist(), strict=True))
    before = {INPUT_GRADIENT: FORWARD, WEIGHT_GRADIENT: INPUT_GRADIENT}
    own = [ends.get((before.get(kind), position, microbatch), 0.0) for kind, position, microbatch in ends]
    return np.maximum(from_others, own)


def waited(ran: SimulatedStep, piece: int) -> bool:
    """Whether the rank did nothing just before a piece."""
    is_first = piece in ran.pieces.bounds
    return bool(ran.start[piece] > (0.0 if is_first else ran.end[piece - 1]) + ROUNDING)


def left_at_each_start(ran: SimulatedStep) -> Iterator[tuple[int, int, NDArray[Any]]]:
    """Every piece, how many chunk passes its rank keeps when it starts, and the pieces that run there later."""
    kept_more = {FORWARD: 1, WEIGHT_GRADIENT: -1}
    for first, end in zip(ran.pieces.bounds[:-1], ran.pieces.bounds[1:], strict=True):
        kept = 0
        for piece in range(first, end):
            yield piece, kept, np.arange(piece + 1, end)
            kept += kept_more.get(int(ran.pieces.kind[piece]), 0)


def uneven(seed: int, at: Pipeline, limit: int | None = None) -> ChunkTimes:
    """Passes from 0.2 to 2 s, transfers of a tenth of that."""
    forward, gradient, weight, transfer = np.random.default_rng(seed).uniform(0.2, 2, (4, int(at.pp * at.vp)))
    return ChunkTimes(
        forward=forward, input_gradient=gradient, weight_gradient=weight, transfer=transfer / 10, max_in_flight=limit
    )


def orders(name: str, at: Pipeline, times: ChunkTimes) -> list[str]:
    """The passes of every rank as text."""
    return [
        " ".join(f"{one.kind}{one.chunk}{one.microbatch}" for one in order)
        for order in load_any_schedule(name).order(at, times)
    ]


@pytest.mark.parametrize("seed", range(40))
def test_a_search_in_the_memory_of_1f1b_finds_zb_h1_for_equal_stages(seed: int) -> None:
    """Where W <= F (arXiv 2401.10241, table 5: ZB-1p as ZB-H1); in twice the memory no order is longer than ZB-H2."""
    generator = np.random.default_rng(seed)
    pp, m = int(generator.integers(1, 7)), int(generator.integers(1, 17))
    forward, gradient = generator.uniform(0.2, 2, 2)
    at, own = pipeline(pp, m), passes(forward, gradient, generator.uniform(0, 1) * forward)
    searched, fixed = step("zb-1p", at, even(own, at)), step("zb-h1", at, even(own, at))
    assert searched.step_time == pytest.approx(fixed.step_time, rel=1e-12)
    if m >= 2 * pp - 1:
        twice, more = step("zb-2p", at, even(own, at)), step("zb-h2", at, even(own, at))
        assert twice.step_time <= more.step_time * (1 + 1e-12)


def test_what_an_input_gradient_leaves_for_its_weight_gradient() -> None:
    """32 of 34 + 5 a s / h, with heads of 128 and 1,024 tokens (arXiv 2401.10241, table 1)."""
    assert KEPT_SHARE == 32 / (34 + 5 * 1024 / 128)


def test_a_search_takes_the_limit_that_is_given() -> None:
    """ZB-1p in the memory of ZB-2p is ZB-2p, and the other way round; the least is what 1F1B keeps."""
    at = pipeline(4, 10)
    for seed in range(5):
        once, twice = (orders(name, at, uneven(seed, at)) for name in ("zb-1p", "zb-2p"))
        assert once != twice
        assert orders("zb-1p", at, uneven(seed, at, 8)) == twice
        assert orders("zb-2p", at, uneven(seed, at, 4)) == once
    for few, least in ((pipeline(4, 10), 4), (pipeline(4, 3), 3)):
        assert orders("zb-1p", few, uneven(0, few, least))
        with pytest.raises(InputError, match=f"max_in_flight is {least - 1}") as refusal:
            orders("zb-1p", few, uneven(0, few, least - 1))
        assert refusal.value.hint == f"set max_in_flight to {least} or more"


def test_searched_steps_of_very_uneven_stages_stay_as_short() -> None:
    """Pipelines with passes from 0.2 to 2.7 s, slow transfers and limits from p to 2 p, together as recorded.

    The second number is of all ranks together: a change of the heuristic shows in some rank.
    """
    longest = together = 0.0
    for seed in (*range(50), 183):
        generator = np.random.default_rng(seed)
        pp = int(generator.integers(3, 8))
        at = pipeline(pp, int(generator.integers(pp, 20)))
        forward, gradient, weight, transfer = np.exp(generator.uniform(-1.5, 1, (4, pp)))
        times = ChunkTimes(
            forward=forward,
            input_gradient=gradient,
            weight_gradient=weight,
            transfer=transfer * generator.uniform(0, 0.6),
            max_in_flight=int(generator.integers(pp, 2 * pp + 1)),
        )
        found = step("zb-1p", at, times)
        assert found.step_time <= step("1f1b", at, times).step_time * (1 + 1e-12)
        longest, together = longest + found.step_time, together + float(found.spans.sum())
    assert (longest, together) == pytest.approx((3252.459123, 14815.935080), abs=1e-6)


def test_greedy_steps_of_uneven_stages_stay_as_short() -> None:
    """Sixty pipelines, together as long as recorded."""
    times = []
    for seed in range(60):
        generator = np.random.default_rng(seed)
        at = pipeline(int(generator.integers(2, 7)), int(generator.integers(1, 17)), 2)
        times.append(step("zbv-greedy", at, uneven(seed, at)).step_time)
    assert sum(times) == pytest.approx(4761.351078, abs=1e-6)


@pytest.mark.parametrize(("pattern", "down"), [(VHalf(), 2), (VMin(), 1)])
@pytest.mark.parametrize("pp", [2, 3, 4, 5, 6, 7, 12])
def test_a_pattern_goes_down_the_ranks_and_up_without_two_passes_in_one_unit(
    pattern: VPattern, down: int, pp: int
) -> None:
    """Units to the next rank: 2 down and 1 up for V-Half, 1 for V-Min (arXiv 2405.15362, section 3)."""
    units = [pattern.units(pp, rank) for rank in range(pp)]
    first, last = units[0], units[-1]
    for one, other in pairwise(units):
        assert tuple(np.subtract(other, one)) == (down, -1, down, -1)
    assert all(len({unit % 6 for unit in of_rank}) == 4 for of_rank in units)
    waits = (pp % 2 == 0) * 3 if down == 2 else (pp % 3 == 0) * 2
    assert first[0] == 0
    assert (last[1] - last[0], first[2] - first[1], last[3] - last[2]) == (1, 1 + waits, down)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("v-half", [
            "F00 F10 F01 B10 W10 F11 B00 B11 W00 W11 B01 W01",
            "F00 F10 F01 F11 B10 W10 B00 W00 B11 W11 B01 W01",
        ]),
        ("v-min", [
            "F00 F10 B10 W10 F01 B00 W00 F11 B11 W11 B01 W01",
            "F00 F10 B10 B00 F01 F11 W10 W00 B11 B01 W11 W01",
        ]),
        ("zbv-greedy", [
            "F00 F01 F10 B10 F11 B11 B00 W10 B01 W11 W00 W01", "F00 F10 F01 F11 B10 B00 B11 B01 W10 W11 W00 W01",
        ]),
    ],
)  # fmt: skip
def test_two_micro_batches_on_two_ranks(name: str, expected: list[str]) -> None:
    """Every pass takes one second; followed by hand, chunk and micro-batch after the kind."""
    at = pipeline(2, 2, 2)
    assert orders(name, at, even(passes(), at)) == expected


def test_an_eager_rank_warms_up_twice_as_far() -> None:
    """2 (p - r - 1) forward passes before the first pair (arXiv 2211.05322, section 4)."""
    at = pipeline(3, 6)
    found = orders("eager-1f1b", at, even(passes(), at))
    assert [order.split().index("BW00") for order in found] == [5, 3, 1]
    assert found[1] == "F00 F01 F02 BW00 F03 BW01 F04 BW02 F05 BW03 BW04 BW05"


@pytest.mark.parametrize(
    ("name", "priced_as"),
    [
        ("zb-1p", "zb-h1"),
        ("zb-2p", "zb-h2"),
        ("eager-1f1b", "1f1b"),
        ("1f1b", "1f1b"),
        ("v-half", None),
        ("zbv-greedy", None),
    ],
)
def test_a_closed_form_is_that_of_a_schedule_it_holds_for(name: str, priced_as: str | None) -> None:
    found = closed_form(load_any_schedule(name))
    assert (found and found.name) == priced_as


LETTERS = {kind: letter for letter, kind in KINDS.items()}

ONE_F_ONE_B = "0F0,0F1,,,0B0,,0B1\n,1F0,1B0,1F1,1B1,1SEND_B1\n"


def order_text(schedule: Schedule, at: Pipeline, orders: Orders) -> str:
    """``orders`` as PyTorch writes them."""
    path = schedule.path(int(at.pp), int(at.vp), int(at.num_microbatches), 0)
    stages = {place: stage for stage, place in enumerate(path)}
    lines = [
        ",".join(cells(order, [stages[Place(rank, one.chunk)] for one in order])) for rank, order in enumerate(orders)
    ]
    return "\n".join(lines) + "\n"


def cells(order: Sequence[Pass], stages: Sequence[int]) -> Iterator[str]:
    """One for every block."""
    block: list[str] = []
    for one, stage in zip(order, stages, strict=True):
        block.append(f"{stage}{LETTERS[one.kind]}{one.microbatch}")
        if not one.joined:
            yield block[0] if len(block) == 1 else f"({';'.join(block)})OVERLAP_F_B"
            block = []


def test_a_file_runs_as_it_says() -> None:
    """1F1B of two ranks and two micro-batches: (2 + 1) x 3 s."""
    schedule, at = order_of_text(ONE_F_ONE_B, "order.csv"), pipeline(2, 2)
    assert not schedule.splits_backward
    assert simulate(schedule, at, even(passes(), at)).step_time == 9


@pytest.mark.parametrize("name", [name for name in list_all_schedules() if name != "dualpipe"])
def test_an_order_of_ours_is_read_as_it_is(name: str) -> None:
    schedule = load_any_schedule(name)
    at = pipeline(4, 8, schedule.least_vp)
    times = even(passes(), at, 0.1)
    orders = schedule.order(at, times)
    again = order_of_text(order_text(schedule, at, orders), "order.csv")
    assert [list(order) for order in again.order(at, times)] == [list(order) for order in orders]
    assert simulate(again, at, times).step_time == pytest.approx(simulate(schedule, at, times).step_time)


def test_blocks_are_read() -> None:
    (first,) = order_of_text("0F0,(0F1;0B0)OVERLAP_F_B,0I1,0W1\n", "order.csv").orders
    assert [one.joined for one in first] == [False, True, False, False, False]
    assert [one.kind for one in first] == ["F", "F", "BW", "B", "W"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "order.csv has no passes"),
        ("0F0,0B0\n\n1F0,1B0\n", "row 2"),
        ("0F0,0B0\n1F0,1X0\n", "row 2 \\(rank 1\\), cell 2 is '1X0'"),
        ("0F0,0B0\n0F1,0B1\n", "stage 0 on rank 0 \\(row 1 of order.csv\\) and rank 1"),
        ("0F0,0B0\n2F0,2B0\n", "no stage 1"),
        ("0F0,0B0,2F0,2B0\n1F0,1B0\n", "rank 1 \\(row 2 of order.csv\\) has 1 stages"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why) as refusal:
        order_of_text(text, "order.csv")
    assert refusal.value.hint


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0F0,0B0,0F1,0B1\n1F0,1B0,1F1\n", "micro-batch 1 in stage 1 is missing on rank 1 \\(row 2 of order.csv\\)"),
        ("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n", "rank 1 \\(row 2 of order.csv\\) waits with"),
        ("0F0,0B0,0F1,0B1\n1B0,1F0,1F1,1B1\n", "runs after its gradient on rank 1 \\(row 2 of order.csv\\)"),
    ],
)
def test_missing_passes_and_cycles_name_row_and_rank(text: str, why: str) -> None:
    at = pipeline(2, 2)
    with pytest.raises(InputError, match=why):
        simulate(order_of_text(text, "order.csv"), at, even(passes(), at))
    with pytest.raises(InputError, match="cannot run 3 micro-batches") as refusal:
        simulate(order_of_text(ONE_F_ONE_B, "order.csv"), pipeline(2, 3), even(passes(), at))
    assert "2 ranks with 1 chunks each and 2 micro-batches" in refusal.value.hint


def test_a_file_says_what_runs_it() -> None:
    """Two ranks with a chunk each and two micro-batches, of 16 sequences."""
    schedule = order_of_text(ONE_F_ONE_B, "order.csv")
    assert (schedule.least_vp, schedule.vp, schedule.num_microbatches) == (1, 1, 2)
    assert schedule.needs == "2 ranks with 1 chunks each and 2 micro-batches, as order.csv has"
    assert schedule.can_run(pipeline(2, 2))
    for at, flags in (
        (pipeline(3, 2), "--pp 2 --global-batch-size 48"),
        (pipeline(2, 2, 2), "--vp 1"),
        (pipeline(2, 3), "--global-batch-size 32"),
    ):
        assert not schedule.can_run(at)
        assert " ".join(schedule.flags(at, 16)) == flags


def test_stages_lie_where_the_rows_have_them() -> None:
    """Rank 0 has the stages 0 and 3, rank 1 the others; weight gradients are apart; an empty last row is none."""
    text = "3F0,3B0,0F0,0B0\n2F0,1F0,1I0,1W0,2I0,2W0\n\n"
    schedule = order_of_text(text, "order.csv")
    assert schedule.splits_backward
    assert schedule.path(2, 2, 1, 0) == (Place(0, 0), Place(1, 0), Place(1, 1), Place(0, 1))
    assert [one.chunk for one in schedule.orders[0]] == [1, 1, 0, 0]
    assert [one.chunk for one in schedule.orders[1]] == [1, 0, 0, 0, 1, 1]
    assert schedule.rank_name(1) == "rank 1 (row 2 of order.csv)"


def test_a_file_of_a_schedule_is_64_mib_at_most() -> None:
    assert FILE.most_bytes == 2**26
