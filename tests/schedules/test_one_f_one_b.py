"""1F1B with unequal stages: counted by hand, and against its own passes run one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.schedules.executor import run

from shardplan.arrays import Numbers
from shardplan.schedules.base import Passes, Pipeline, Place, RankPasses
from shardplan.schedules.registry import INTERLEAVED, ONE_F_ONE_B, load_schedule

Seconds = NDArray[np.float64]


def through(total: Numbers) -> Passes:
    """Forward and backward passes of several ranks together."""
    return Passes(forward=total, input_gradient=0.0, weight_gradient=0.0)


def of_ranks(forward: Seconds, backward: Seconds, m: int) -> Seconds:
    """Work and idle time of every rank by the closed form."""
    total = forward + backward
    own = RankPasses(
        forward=forward,
        input_gradient=backward,
        weight_gradient=0.0,
        num_behind=np.arange(len(forward))[::-1],
        behind=through(total.sum() - total.cumsum()),
    )
    everyone = Passes(forward=forward.sum(), input_gradient=backward.sum(), weight_gradient=0.0)
    at = Pipeline(pp=len(forward), vp=1, num_microbatches=m, group_size=len(forward))
    return np.asarray(m * total + ONE_F_ONE_B.idle_time(at, own, everyone))


def passes(forward: Seconds, backward: Seconds, m: int) -> float:
    """The step, pass by pass."""
    at = Pipeline(pp=len(forward), vp=1, num_microbatches=m, group_size=len(forward))

    def time(kind: str, place: Place) -> float:
        return float({"F": forward, "B": backward}.get(kind, 0.0 * forward)[place.rank])

    return float(run(ONE_F_ONE_B, at, time).step_time)


@pytest.mark.parametrize(("slow", "step"), [(0, 51.0), (1, 53.0), (2, 55.0), (3, 57.0)])
def test_a_slow_stage_works_while_the_first_micro_batch_is_behind_it(slow: int, step: float) -> None:
    """Four stages of 1 s and 2 s, one of them twice as long, eight micro-batches: 48 s of work on the slow rank.

    Each of the ranks in front of it adds 3 s. Behind it are n = 3 - s ranks, where a micro-batch spends 3 n seconds.
    Meanwhile the rank runs n forward passes of 2 s, or n backward passes of 4 s: n s remain at the start, 0 at the end.
    """
    forward = np.where(np.arange(4) == slow, 2.0, 1.0)
    assert of_ranks(forward, 2 * forward, 8).max() == step == 48 + 3 * slow + (3 - slow)
    assert passes(forward, 2 * forward, 8) == step


def test_with_few_micro_batches_a_rank_waits_once() -> None:
    """Two micro-batches on three ranks, the first twice as long: 2 + 2 F, then 6 s behind it less one F, or 2 B of 4 s.

    The first one is back after 2 + 6 = 8 s, when the rank has long run its second forward pass; then come two backward
    passes of 4 s. The second micro-batch would be back after 4 + 6 = 10 s.
    """
    forward = np.array([2.0, 1.0, 1.0])
    assert of_ranks(forward, 2 * forward, 2)[0] == 2 + 6 + 2 * 4
    assert passes(forward, 2 * forward, 2) == 16


@st.composite
def stages(draw: st.DrawFn, least: float, most: float) -> tuple[Seconds, Seconds, int]:
    """Passes of every rank, forward and backward apart, and micro-batches."""
    pp, times = draw(st.integers(1, 8)), st.floats(least, most)
    forward, backward = (np.array(draw(st.lists(times, min_size=pp, max_size=pp))) for _ in range(2))
    return forward, draw(st.sampled_from([1.0, 2.0, 3.0])) * backward, draw(st.integers(1, 24))


@given(stages(0.05, 3.0))
def test_no_step_is_shorter_than_the_closed_form(case: tuple[Seconds, Seconds, int]) -> None:
    """Of whatever stages: the closed form is a path through the step."""
    assert of_ranks(*case).max() <= passes(*case) * (1 + 1e-12)


@given(stages(0.97, 1.03))
def test_stages_that_differ_by_some_per_cent_take_the_closed_form(case: tuple[Seconds, Seconds, int]) -> None:
    assert of_ranks(*case).max() == pytest.approx(passes(*case), rel=1e-3)


@given(stages(0.97, 1.03))
def test_a_rank_of_unknown_place_waits_at_least_as_long(case: tuple[Seconds, Seconds, int]) -> None:
    forward, backward, m = case
    own = Passes(forward=forward, input_gradient=backward, weight_gradient=0.0)
    everyone = Passes(forward=forward.sum(), input_gradient=backward.sum(), weight_gradient=0.0)
    at = Pipeline(pp=len(forward), vp=1, num_microbatches=m, group_size=len(forward))
    upper = m * own.total + ONE_F_ONE_B.idle_time(at, own, everyone)
    assert np.max(upper) >= of_ranks(forward, backward, m).max() * (1 - 1e-12)


@given(st.integers(1, 4), st.integers(2, 8), st.integers(1, 24), st.floats(0.1, 3.0), st.floats(0.1, 6.0))
def test_of_equal_ranks_the_last_takes_longest(front: int, equal: int, m: int, forward: float, last: float) -> None:
    """So that one rank of each run of equal stages is enough."""
    lengths = np.array([1.0] * front + [forward] * equal + [last])
    of_run = of_ranks(lengths, 2 * lengths, m)[front : front + equal]
    assert of_run[-1] == pytest.approx(of_run.max(), rel=1e-12)


@pytest.mark.parametrize("m", [1, 3, 4, 12])
def test_numbers_and_arrays_agree(m: int) -> None:
    """Arrays over plans whose ranks have more and fewer behind them than there are micro-batches."""
    behind, forward = np.array([0.0, 1.0, 3.0, 7.0]), np.array([1.0, 1.5, 0.5, 2.0])
    own = RankPasses(
        forward=forward, input_gradient=2.0, weight_gradient=0.0, num_behind=behind, behind=through(3.0 * behind)
    )
    everyone = Passes(forward=40.0, input_gradient=0.0, weight_gradient=0.0)
    at = Pipeline(pp=9, vp=1, num_microbatches=m, group_size=9)
    together = ONE_F_ONE_B.idle_time(at, own, everyone)
    for place in range(4):
        one = RankPasses(
            forward=float(forward[place]),
            input_gradient=2.0,
            weight_gradient=0.0,
            num_behind=float(behind[place]),
            behind=through(3.0 * float(behind[place])),
        )
        assert ONE_F_ONE_B.idle_time(at, one, everyone) == np.asarray(together)[place]


@given(
    st.lists(st.tuples(st.floats(0.0, 3.0), st.floats(0.0, 6.0)), min_size=2, max_size=8).filter(
        lambda stages: sum(map(sum, stages)) > 0
    ),
    st.integers(1, 20),
    st.sampled_from((2, 3, 8)),
)
def test_the_slowest_rank_waits_for_the_least_bubble(stages: list[tuple[float, float]], m: int, vp: int) -> None:
    """Whatever the stages and their place: 1F1B, where chunks are interleaved, and GPipe."""
    forward, backward = np.asarray(stages).T
    total, slowest = forward + backward, int((forward + backward).argmax())
    at = Pipeline(pp=len(total), vp=1, num_microbatches=m, group_size=len(total))
    least = (m + ONE_F_ONE_B.least_bubble(at)) * total.mean()
    assert of_ranks(forward, backward, m)[slowest] >= least * (1 - 1e-12)
    assert passes(forward, backward, m) >= least * (1 - 1e-12)
    own = Passes(forward=total[slowest], input_gradient=0.0, weight_gradient=0.0)
    everyone = Passes(forward=total.sum(), input_gradient=0.0, weight_gradient=0.0)
    for schedule, chunks in ((INTERLEAVED, vp), (load_schedule("gpipe"), 1)):
        at = Pipeline(pp=len(total), vp=chunks, num_microbatches=m, group_size=len(total))
        takes = m * own.total + schedule.idle_time(at, own, everyone)
        assert takes >= (m + schedule.least_bubble(at)) * total.mean() * (1 - 1e-12)


def test_a_rank_that_is_busy_meanwhile_has_no_gaps() -> None:
    """Eight micro-batches of 15 s: two forward passes of 5 s last longer than the 6 s behind the first rank."""
    forward = np.array([5.0, 1.0, 1.0])
    assert of_ranks(forward, 2 * forward, 8)[0] == 8 * 15
    assert passes(forward, 2 * forward, 8) == 8 * 15
