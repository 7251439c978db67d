"""Orders of passes in files of PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from tests.simulation.cases import even, passes, pipeline

from shardplan.errors import InputError
from shardplan.schedules.base import Orders, Pass, Pipeline, Place, Schedule
from shardplan.schedules.registry import list_all_schedules, load_any_schedule
from shardplan.schedules.simulated.order_file import FILE, KINDS, order_of_text
from shardplan.simulation.step import simulate

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
