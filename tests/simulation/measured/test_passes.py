"""Measured steps from dumps and tables: two published ones, and simulated steps that come back as they were."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.simulation.cases import even, passes, pipeline, step
from tests.simulation.measured.files import dump_of, rows_of, write_dump, write_table

from shardplan.base.errors import InputError
from shardplan.physics.schedules.registry import load_any_schedule
from shardplan.simulation.measured.answer import read_measurement
from shardplan.simulation.measured.passes import MeasuredStep
from shardplan.simulation.measured.ranks import Layout
from shardplan.simulation.plan import read_stage_times, stage_times_text
from shardplan.simulation.step import simulate

PUBLISHED = pytest.mark.parametrize(("name", "vp"), [("1f1b", 1), ("interleaved", 2)])
same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)


def read(*paths: Path, **options: Any) -> MeasuredStep:
    found = read_measurement(paths, **options).passes
    assert found is not None
    return found


@PUBLISHED
def test_ranks_of_a_measured_step_ran_the_order_of_our_schedule(name: str, vp: int, tmp_path: Path) -> None:
    found = read(*write_dump(tmp_path, dump_of(name), vp=vp))
    ours = load_any_schedule(name).order(found.at, found.stage_times)
    assert [[tuple(one) for one in order] for order in found.schedule.orders] == [
        [tuple(one) for one in order] for order in ours
    ]


@PUBLISHED
def test_a_step_simulated_with_the_times_of_its_stages_takes_as_long_as_measured(
    name: str, vp: int, tmp_path: Path
) -> None:
    """Within 2 %: the simulation leaves out what single passes lose (rank 0 waits 0.3 s in one pass)."""
    found = read(*write_dump(tmp_path, dump_of(name), vp=vp))
    simulated = simulate(load_any_schedule(name), found.at, found.stage_times)
    assert simulated.step_time == pytest.approx(found.pipeline_time, rel=0.02)


def test_what_a_dump_says_besides_its_passes(tmp_path: Path) -> None:
    paths = write_dump(tmp_path, dump_of("1f1b"))
    found = read_measurement(paths)
    assert (found.step, found.num_steps) == ("11", 2)
    assert found.passes is not None
    assert found.passes.total_times is not None
    assert found.passes.memory_bytes is not None
    assert found.passes.total_times[0] == pytest.approx(3.24195)
    assert found.passes.memory_bytes[7] == pytest.approx(52.203 * 2**30)
    assert found.passes.pipeline_time == pytest.approx(3.241372 - 0.000047)
    assert "config.json" not in "".join(found.passes.notes)
    assert read_measurement([*paths, tmp_path / "config.json"], step="1").step == "1"


def test_a_dump_in_gzip_is_read_as_well(tmp_path: Path) -> None:
    paths = write_dump(tmp_path, dump_of("1f1b"))
    plain = read(*paths)
    for path in paths:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
    packed = read(*(path.with_name(path.name + ".gz") for path in paths))
    assert np.array_equal(plain.start, packed.start)


def test_dumps_that_number_their_passes_need_no_config(tmp_path: Path) -> None:
    """ZB-H1 of two ranks: gradients are split where the file has a weight gradient."""
    first = {
        "fwd_start": [0, 1], "fwd_end": [1, 2], "fwd_minibatch": [0, 1], "fwd_chunk": [0, 0],
        "bwd_start": [3, 5], "bwd_end": [4, 6], "bwd_minibatch": [0, 1], "bwd_chunk": [0, 0],
        "wgrad_start": [4, 6], "wgrad_end": [5, 7], "wgrad_minibatch": [0, 1], "wgrad_chunk": [0, 0],
    }  # fmt: skip
    last = {
        "fwd_start": [1, 3], "fwd_end": [2, 4], "fwd_minibatch": [0, 1], "fwd_chunk": [0, 0],
        "bwd_start": [2, 4], "bwd_end": [3, 5], "bwd_minibatch": [0, 1], "bwd_chunk": [0, 0],
        "wgrad_start": [5], "wgrad_end": [6], "wgrad_minibatch": [0], "wgrad_chunk": [0],
    }  # fmt: skip
    paths = write_dump(tmp_path, {0: first, 1: last}, num_microbatches=2)
    (tmp_path / "config.json").unlink()
    found = read(*paths)
    kinds = ["".join(f"{one.kind}{one.microbatch} " for one in order) for order in found.schedule.orders]
    assert kinds == ["F0 F1 B0 W0 B1 W1 ", "F0 B0 F1 BW1 W0 "]
    assert found.notes == ()
    assert found.pipeline_time == pytest.approx(7e-3)


@given(pp=st.integers(1, 4), vp=st.integers(1, 2), groups=st.integers(1, 4), transfer=st.floats(0.0, 0.5))
@same_folder
def test_a_simulated_step_comes_back_as_it_was(pp: int, vp: int, groups: int, transfer: float, tmp_path: Path) -> None:
    at = pipeline(pp, groups * pp, vp if pp > 1 else 1)
    times = even(passes(1.0, 1.5, 0.5), at, transfer)
    simulated = step("interleaved" if at.vp > 1 else "1f1b", at, times)
    found = read(write_table(tmp_path / "passes.csv", rows_of(simulated)))
    assert found.start == pytest.approx(simulated.start)
    assert found.notes == ()
    assert found.timeline.bubble_rates.max() == pytest.approx(simulated.bubble_rate)
    assert found.busy_times == pytest.approx([rank.busy_time for rank in simulated.ranks])
    assert found.stage_times.forward == pytest.approx(times.forward)
    assert found.stage_times.input_gradient == pytest.approx(times.input_gradient + times.weight_gradient)


@pytest.mark.parametrize("name", ["gpipe", "zb-h1", "zb-v", "v-half", "breadth-first", "dualpipe-v"])
def test_steps_of_every_layout_come_back(name: str, tmp_path: Path) -> None:
    schedule = load_any_schedule(name)
    at = pipeline(4, 12, max(schedule.least_vp, 1))
    simulated = step(schedule, at, even(passes(1.0, 1.1, 0.6), at, 0.1))
    layout = Layout(schedule=schedule, at=at, source="the plan")
    found = read(write_table(tmp_path / "passes.csv", rows_of(simulated)), layout=layout)
    assert found.notes == ()
    assert np.sort(found.start) == pytest.approx(np.sort(simulated.start))
    assert found.pipeline_time == pytest.approx(simulated.step_time)


def test_two_copies_of_a_stage_are_refused(tmp_path: Path) -> None:
    schedule, at = load_any_schedule("dualpipe"), pipeline(4, 12)
    path = write_table(tmp_path / "passes.csv", rows_of(step(schedule, at, even(passes(), at))))
    with pytest.raises(InputError, match="schedule dualpipe has two copies of every stage"):
        read_measurement([path], layout=Layout(schedule=schedule, at=at, source="the plan"))


@given(wrong=st.lists(st.floats(-50.0, 50.0), min_size=3, max_size=3), transfer=st.floats(0.0, 0.5))
@same_folder
def test_wrong_clocks_are_shifted_until_causes_come_first(wrong: list[float], transfer: float, tmp_path: Path) -> None:
    at = pipeline(3, 6)
    simulated = step("1f1b", at, even(passes(), at, transfer))
    found = read(write_table(tmp_path / "passes.csv", rows_of(simulated, dict(enumerate(wrong)))))
    waits = found.pieces.after >= 0
    assert np.all(found.start[waits] >= found.end[found.pieces.after[waits]] - 1e-5)
    assert found.duration == pytest.approx(simulated.end - simulated.start)
    assert found.stage_times.transfer[:2] == pytest.approx([transfer] * 2, abs=1e-5)  # no clock changes it


def test_times_of_stages_are_written_for_simulate(tmp_path: Path) -> None:
    found = read(*write_dump(tmp_path, dump_of("interleaved"), vp=2))
    path = tmp_path / "times.csv"
    path.write_text(stage_times_text(found.stage_times), encoding="utf-8")
    again = read_stage_times(path, 16)
    for name in ("forward", "input_gradient", "weight_gradient", "transfer"):
        assert getattr(again, name) == pytest.approx(getattr(found.stage_times, name), rel=1e-8)


BROKEN: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "ends before it starts": (lambda rank: rank["fwd_end"].__setitem__(3, 0.0), "rank 3 .* pass 3 ends at 0 s, before"),
    "missing pass": (lambda rank: [rank[f"bwd_{edge}"].pop() for edge in ("start", "end")], "has 15 backward passes"),
    "uneven lists": (lambda rank: rank["bwd_end"].pop(), "has 16 times in bwd_start and 15 in bwd_end"),
    "text": (lambda rank: rank["fwd_end"].__setitem__(3, "x"), "item 3 of fwd_end is 'x'"),
    "no list": (lambda rank: rank.pop("bwd_start"), "rank 3 .* has no list bwd_start"),
    "not finite": (lambda rank: rank["fwd_end"].__setitem__(3, float("nan")), "the time is not between"),
    "negative memory": (lambda rank: rank.__setitem__("memory", -1), "memory is -1"),
    "no passes": (lambda rank: rank.update({key: [] for key in rank if "_" in key}), "has no passes"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_dump_is_refused_with_its_rank(fault: str, tmp_path: Path) -> None:
    ranks = dump_of("1f1b")
    BROKEN[fault][0](ranks[3])
    with pytest.raises(InputError, match=BROKEN[fault][1]):
        read_measurement(write_dump(tmp_path, ranks))


def test_dumps_that_do_not_make_a_step_are_refused(tmp_path: Path) -> None:
    paths = write_dump(tmp_path, dump_of("1f1b"))
    (tmp_path / "copy").mkdir()
    copy = tmp_path / "copy" / "pp_rank_2.json"
    copy.write_bytes(paths[2].read_bytes())
    other = tmp_path / "other.json"
    other.write_bytes(paths[2].read_bytes())
    table = write_table(tmp_path / "passes.csv", [(0, "F", 0, 0, 0, 1), (0, "BW", 0, 0, 1, 2)])
    for files, why in (
        ([paths[0], *paths[2:]], "rank 1 is missing"),
        (paths[:4], "has 4 ranks, and config.json next to the files has 8"),
        ([*paths, copy], "rank 2 is there twice"),
        ([*paths[:7], other], "other.json is a pipeline dump of Primus whose name has no rank"),
        ([*paths, table], "of Primus, and passes.csv is a table of passes"),
        ([tmp_path / "config.json"], "0 files"),
    ):
        with pytest.raises(InputError, match=why):
            read_measurement(files)
    with pytest.raises(InputError, match="no step '12'") as caught:
        read_measurement(paths, step="12")
    assert caught.value.hint == "give --step one of 1 to 11"
    (tmp_path / "config.json").write_text(json.dumps({"pp_size": 8, "vp_size": "2"}), encoding="utf-8")
    with pytest.raises(InputError, match=r"vp_size of config\.json is '2'"):
        read_measurement(paths)
    (tmp_path / "config.json").unlink()
    with pytest.raises(InputError, match="does not say which chunk"):
        read_measurement(paths)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"),
        ("0F0,0F1,0B0\n", "an order of passes without times"),
        ("hello\n", "begins with 'hello'"),
        ("rank,kind,start_s,end_s\n0,F,0,1\n", "lacks the column microbatch"),
        ("rank,kind,microbatch,start_s,end_s,colour\n0,F,0,0,1,red\n", "has the column 'colour'"),
        ("rank,kind,microbatch,start_s,end_s\n", "has no passes"),
        ("rank,kind,microbatch,start_s,end_s\n0,X,0,0,1\n", "row 2: kind is 'X'"),
        ("rank,kind,microbatch,start_s,end_s\n0,F,0,0,1\n0,B,0,2,1\n", r"row 3 \(rank 0\): the pass ends at 1 s"),
        ("rank,kind,microbatch,start_s,end_s\n0,F,0,0,1,2\n", "row 2 has 6 cells for 5 columns"),
        ("rank,kind,microbatch,start_s,end_s\n0,F,-1,0,1\n", "row 2: microbatch is '-1'"),
        ("rank,kind,microbatch,start_s,end_s\n0,F,0,0,inf\n", "row 2: end_s is 'inf'"),
        ("rank,kind,microbatch,start_s,end_s\n0,F,0,0,1\n", "input gradient of micro-batch 0 in stage 0 is missing"),
        ("rank,kind,microbatch,start_s,end_s\n0,BW,0,0,1\n0,F,0,1,2\n", "runs after its gradient on rank 0"),
        ("rank,kind,microbatch,start_s,end_s\n0,F,0,0,1\n0,F,0,1,2\n0,BW,0,2,3\n", "runs more than once"),
        ("rank,kind,microbatch,start_s,end_s\n1,F,0,0,1\n1,BW,0,1,2\n", "rank 0 is missing"),
    ],
)
def test_a_table_that_is_no_step_is_refused(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "passes.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=why):
        read_measurement([path])


def test_comments_of_a_table_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "passes.csv"
    path.write_text("# ours\nrank,kind,microbatch,start_s,end_s\n0,F,0,0,1\n\n# the gradients\n0,BW,0,1,3\n")
    assert read(path).pipeline_time == 3


def test_the_last_step_of_a_table_is_the_default(tmp_path: Path) -> None:
    rows = [(0, "F", 0, 0, 0, 1, 9), (0, "BW", 0, 0, 1, 3, 9), (0, "F", 0, 0, 0, 1, 10), (0, "BW", 0, 0, 1, 5, 10)]
    path = write_table(tmp_path / "passes.csv", rows, step=True)
    assert read(path).pipeline_time == 5
    assert read(path, step="9").pipeline_time == 3
