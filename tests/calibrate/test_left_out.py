"""What a fit does not see: whole configurations, chosen by a seed, and never all."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.calibrate.rows import CELLS, write

from shardplan.calibrate.left_out import configurations_of, held_out, split_of
from shardplan.calibrate.predict import ask_all, cases_of
from shardplan.calibrate.runs.rows import read_runs

SHARES = st.floats(0, 0.9)
SEEDS = st.integers(0, 10**6)


@given(st.lists(st.text(max_size=8), unique=True, min_size=1, max_size=40), SHARES, SEEDS)
def test_of_runs_that_all_differ_the_share_is_held_out(names: list[str], share: float, seed: int) -> None:
    chosen = held_out(names, share, seed)
    assert chosen == held_out(names[::-1], share, seed)
    assert chosen <= set(names)
    assert len(chosen) == min(round(share * len(names)), len(names) - 1)


@given(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=40), SHARES, SEEDS)
def test_of_runs_that_repeat_some_are_held_out_and_never_all(names: list[str], share: float, seed: int) -> None:
    chosen = held_out(names, share, seed)
    number = sum(name in chosen for name in names)
    assert chosen <= set(names)
    assert number <= max(round(share * len(names)), len(names) // 2)
    assert number < len(names)
    assert bool(chosen) == (len(set(names)) > 1 and round(share * len(names)) > 0)


def test_a_configuration_of_most_runs_is_passed_over() -> None:
    names = ["large"] * 97 + ["a", "b", "c"]
    assert all(held_out(names, 0.3, seed) == {"a", "b", "c"} for seed in range(20))


def test_every_configuration_is_held_out_by_some_seed() -> None:
    names = ["a"] * 8 + ["b"] * 8
    assert {one for seed in range(20) for one in held_out(names, 0.3, seed)} == {"a", "b"}


def test_a_larger_share_holds_out_the_same_runs_and_more() -> None:
    names = [f"run-{number}" for number in range(20)]
    chosen = [held_out(names, share / 10, 0) for share in range(10)]
    assert all(one <= other for one, other in pairwise(chosen))


SAME: tuple[dict[str, str], ...] = ({"step_time_s": "6"}, {"source": "another night"}, {"framework": "megatron"})
OTHER: tuple[dict[str, str], ...] = (
    {"model": "llama-3.2-1b"},
    {"num_accelerators": "32"},
    {"global_batch_size": "128"},
    {"micro_batch_size": "2"},
    {"recompute": "full"},
    {"inter_node_gb_s": "12.5"},
)


def _num_configurations(folder: Path, *others: dict[str, str]) -> int:
    slow = {**CELLS, "step_time_s": "60"}
    rows = [slow, *({**slow, "id": f"other-{place}", **cells} for place, cells in enumerate(others))]
    asked, skipped = ask_all(read_runs(write(folder, *rows)))
    assert not skipped
    return len(set(configurations_of(cases_of(asked))))


def test_a_configuration_is_a_question_with_its_plan(tmp_path: Path) -> None:
    """Another word for a framework, another night and another time are repeats."""
    assert _num_configurations(tmp_path, *SAME) == 1
    assert _num_configurations(tmp_path, *OTHER) == 1 + len(OTHER)


def test_a_split_keeps_every_run_once_and_configurations_whole(tmp_path: Path) -> None:
    rows = [
        {**CELLS, "id": f"{size}-{place}", "global_batch_size": str(64 * size), "step_time_s": "100"}
        for size in range(1, 14)
        for place in range(2)
    ]
    cases = cases_of(ask_all(read_runs(write(tmp_path, *rows)))[0])
    split = split_of(cases, 0.3, 0)
    names = [[case.asked.run.id for case in part] for part in (split.seen, split.unseen)]
    assert sorted(names[0] + names[1]) == sorted(row["id"] for row in rows)
    sizes = [{name.partition("-")[0] for name in part} for part in names]
    assert not sizes[0] & sizes[1]
    assert (len(names[1]), split.num_configurations) == (8, 13)
    folds: dict[str, str] = {}
    for name, fold in zip(names[0], split.groups, strict=True):
        assert folds.setdefault(name.partition("-")[0], fold) == fold
    assert len(split.folds) == 9  # of as many configurations that are seen
