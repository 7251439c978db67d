"""The simulation against what papers print and what clusters measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.simulation.cases import even, passes, pipeline, step
from tests.simulation.published_rows import rows, simulated

from shardplan.schedules.base import ChunkTimes, Pipeline
from shardplan.simulation.clock import run
from shardplan.simulation.pieces import NOTHING
from shardplan.simulation.step import SimulatedStep


def only_firsts_go_round(at: Pipeline, whole: SimulatedStep) -> SimulatedStep:
    """The same passes where only the first micro-batch of p waits for its way from the last rank to the first, or back.

    The authors compute table 5 so (efficiency.py of their repository, branch arxiv: ``_rk == 0 and v > 0``).
    """
    pieces = whole.pieces
    goes_round = (pieces.edge != NOTHING) & ((pieces.edge + 1) % at.pp == 0)
    after = np.where(goes_round & (pieces.microbatch % at.pp > 0), NOTHING, pieces.after)
    start, end = run(replace(pieces, after=after), whole.took, whole.transfer)
    return SimulatedStep(pieces=pieces, start=start, end=end, took=whole.took, transfer=whole.transfer)


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "zb-h2"])
def test_bubble_rates_of_the_zero_bubble_paper(name: str) -> None:
    """All four printed digits of every cell (arXiv 2401.10241, table 5, from the times of table 9)."""
    of_schedule = [row for row in rows("zero_bubble_table_5") if row["schedule"] == name]
    assert len(of_schedule) == 9
    rates = [simulated(row)[1].bubble_rate for row in of_schedule]
    assert [round(rate, 4) for rate in rates] == [float(row["bubble_rate"]) for row in of_schedule]


def test_interleaving_of_the_zero_bubble_paper() -> None:
    """All four printed digits as the authors compute it; p of the 2 (p v - 1) exposed transfers are lost so."""
    of_schedule = [row for row in rows("zero_bubble_table_5") if row["schedule"] == "interleaved"]
    assert len(of_schedule) == 9
    for row in of_schedule:
        at, whole = simulated(row)
        printed, theirs = float(row["bubble_rate"]), only_firsts_go_round(at, whole)
        assert round(theirs.bubble_rate, 4) == printed
        assert whole.step_time - theirs.step_time == pytest.approx(at.pp * float(row["transfer_ms"]))
        assert whole.bubble_rate == pytest.approx(printed, abs=0.004)


def test_measured_steps_with_unequal_stages() -> None:
    """Stage times in, step time out: mean error at most 1.5 %, none above 3 %."""
    errors = []
    for row in rows("unequal_stages"):
        forward, backward = (
            np.array([float(time) for time in row[f"{name}_us"].split()]) * 1e-6 for name in ("forward", "backward")
        )
        zero = np.zeros_like(forward)
        times = ChunkTimes(forward=forward, input_gradient=backward, weight_gradient=zero, transfer=zero)
        ran = step("1f1b", pipeline(len(forward), int(row["num_microbatches"])), times)
        errors.append(ran.step_time / float(row["step_time_s"]) - 1)
    assert len(errors) == 4
    assert np.mean(np.abs(errors)) < 0.015
    assert np.max(np.abs(errors)) < 0.03


def test_drawing_of_dualpipe() -> None:
    """8 ranks, 20 micro-batches, all passes one unit: 66 units, 6 idle, 9 in flight (deepseek-ai/DualPipe, README)."""
    at = pipeline(8, 20)
    drawn = step("dualpipe", at, even(passes(), at))
    assert drawn.step_time == 66
    assert max(rank.span - rank.busy_time for rank in drawn.ranks) == 6
    assert {rank.peak_in_flight for rank in drawn.ranks} == {9}


@pytest.mark.parametrize("pp", [2, 4, 8])
def test_activations_of_the_zero_bubble_paper(pp: int) -> None:
    """Whole activations of rank i, from 1: p - i + 1 (1F1B, ZB-H1) and 2 p - 2 i + 1 (ZB-H2) (table 2)."""
    at = pipeline(pp, 4 * pp)
    kept = {
        name: [rank.peak_in_flight for rank in step(name, at, even(passes(), at)).ranks]
        for name in ("1f1b", "zb-h1", "zb-h2")
    }
    assert kept["1f1b"] == kept["zb-h1"] == [pp - rank for rank in range(pp)]
    assert kept["zb-h2"] == [2 * (pp - rank) - 1 for rank in range(pp)]
