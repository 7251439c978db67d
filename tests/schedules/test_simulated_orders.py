"""Orders that only the simulation runs, pass by pass: patterns, searches against closed forms, and traced orders."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from tests.simulation.cases import even, passes, pipeline, step

from shardplan.errors import InputError
from shardplan.schedules.base import ChunkTimes, Pipeline
from shardplan.schedules.registry import closed_form, load_any_schedule
from shardplan.schedules.simulated.v_pattern import VHalf, VMin, VPattern
from shardplan.schedules.simulated.zero_bubble_search import KEPT_SHARE


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
