"""Fewer accelerators than were given: which counts are searched, and what an answer says of those left idle."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import SMALL, cluster
from tests.few import few
from tests.planner.small import questions

import shardplan
from shardplan.estimation.estimate import estimate_plan
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.launch.export.targets import export_estimate
from shardplan.physics.frameworks.stack import load_stack
from shardplan.planner.related.counts import (
    LEAST_GAIN,
    MOST_SEARCHED,
    counts_of_units,
    counts_to_search,
    counts_worth_trying,
)
from shardplan.planner.search import search_question
from shardplan.reports.plan_file import PlanFile, plan_file_from_record, plan_file_record
from shardplan.reports.texts.answer import idle_text, question_title

LIMIT: dict[str, Any] = {"sharding": ["zero1"], "recompute": ["none", "full"], "cp": [1], "etp": [1]}
KIMI: dict[str, Any] = {"precision": "mxfp8", "sequence_length": 4096}


def small(num_accelerators: int, batch: int) -> Question:
    job = Job(sequence_length=2048, global_batch_size=batch)
    return Question(model=SMALL, cluster=cluster(), num_accelerators=num_accelerators, job=job)


def fastest(question: Question, **kinds: Any) -> float:
    result = search_question(question, top=1, limit=LIMIT, suggestions=False, **kinds)
    return result.estimates[0].step_time if result.estimates else float("inf")


@few(5)
@given(st.integers(1, 8), st.integers(1, 8), st.sampled_from((256, 384, 500, 512)))
def test_whole_nodes_that_are_added_never_slow_the_step(nodes: int, added: int, batch: int) -> None:
    """Of up to nine nodes all smaller numbers are searched, but those that are too few by arithmetic."""
    few_nodes, more = 8 * min(nodes, added), 8 * max(nodes, added)
    assert fastest(small(more, batch)) <= fastest(small(few_nodes, batch)) / (1 - LEAST_GAIN)


@few(4)
@given(questions(), st.integers(1, 8), st.integers(1, 8))
def test_accelerators_of_a_node_that_are_added_never_slow_any_model(asked: Question, one: int, other: int) -> None:
    fewer, more = sorted((one, other))
    slower = fastest(replace(asked, num_accelerators=fewer))
    assert fastest(replace(asked, num_accelerators=more)) <= slower / (1 - LEAST_GAIN)


@few(4)
@given(st.integers(2, 72), st.sampled_from((24, 100, 128)))
def test_the_answer_is_the_best_of_the_counts_that_were_searched(number: int, batch: int) -> None:
    """Each searched on its own with all of its accelerators used: brute force over the counts."""
    asked = small(number, batch)
    with_all = fastest(asked, use_all=True)
    result = search_question(asked, top=1, limit=LIMIT, suggestions=False)
    assert result.fewer is not None
    counts = result.fewer.counts
    best = min((fastest(replace(asked, num_accelerators=each), use_all=True) for each in counts), default=float("inf"))
    found = result.estimates[0].step_time if result.estimates else float("inf")
    assert found == pytest.approx(best if best < with_all * (1 - LEAST_GAIN) else with_all, rel=1e-12)
    assert result.question.num_given == number
    assert len(counts) == len({*counts}) <= MOST_SEARCHED


@given(st.integers(2, 20_000), st.integers(1, 5_000), st.floats(0.1, 100.0))
def test_few_counts_are_searched_and_each_is_smaller(number: int, batch: int, time: float) -> None:
    asked = small(number, batch)
    found = counts_to_search(asked, time)
    assert len(found) == len({*found}) <= MOST_SEARCHED
    assert {*found} <= {*counts_worth_trying(asked)}
    assert all(0 < count < number for count in found)
    assert all(count % 8 == 0 for count in found if count in counts_of_units(asked)) or number <= 8


@pytest.mark.parametrize(("number", "batch", "dividing"), [(1024, 511, 1022), (77, 552, 69), (40, 222, 37)])
def test_counts_that_divide_the_batch_are_searched_where_all_accelerators_leave_few_layouts(
    number: int, batch: int, dividing: int
) -> None:
    asked = small(number, batch)
    assert dividing in counts_to_search(asked, 100.0)
    assert fastest(asked) <= fastest(small(dividing, batch)) / (1 - LEAST_GAIN)
    assert counts_worth_trying(small(1024, 512)) == counts_of_units(small(1024, 512))


def test_counts_of_racks_are_whole_ones_or_a_power_of_two_of_each() -> None:
    asked = shardplan.question("kimi-k2", "gb200-nvl72", 288, global_batch_size=512, **KIMI)
    assert counts_of_units(asked) == [64, 72, 128, 144, 192, 216, 256]
    inside = replace(asked, num_accelerators=16)
    assert counts_of_units(inside) == [4, 8, 12]


def test_sixty_four_of_each_rack_are_faster_than_all() -> None:
    """Published runs of large mixtures use 64 of the 72 accelerators of a rack."""
    asked = shardplan.question("kimi-k2", "gb200-nvl72", 4608, global_batch_size=16384, **KIMI)
    result = search_question(asked, limit=LIMIT, top=2, prune=True, offers=False)
    assert (result.question.num_accelerators, result.question.num_idle) == (4096, 512)
    assert result.fewer is not None
    assert result.fewer.step_time_of_all is not None
    assert result.fewer.step_time_of_all > 1.3 * result.estimates[0].step_time
    assert question_title(result.question).endswith("uses 4,096 of 4,608: 64 of 72 in each rack; 512 idle")
    assert "all 4,608 take" in idle_text(result)
    assert any("64 of 72 in each rack" in text for text in result.estimates[0].assumptions)


def test_all_are_used_where_that_is_asked_for() -> None:
    asked = small(40, 128)
    result = search_question(asked, limit=LIMIT, use_all=True)
    assert result.question == asked
    assert result.fewer is None
    assert idle_text(result) == question_title(asked).partition(":")[2] == ""


def test_restrictions_hold_for_fewer_accelerators() -> None:
    """Degrees that are all fixed leave one count; those that divide none leave nothing."""
    result = search_question(small(40, 128), fix={"tp": 2, "pp": 2, "dp": 8, "cp": 1})
    assert result.question.num_accelerators == 32
    assert all((each.plan.tp, each.plan.pp, each.dp) == (2, 2, 8) for each in result.estimates)
    assert search_question(small(40, 128), fix={"tp": 2, "pp": 2, "dp": 8, "cp": 1}, use_all=True).estimates == ()


def test_idle_accelerators_are_paid_for_and_count_in_utilisation() -> None:
    used = small(32, 64)
    used = replace(used, job=replace(used.job, tokens=10**9), cluster=replace(used.cluster, price_per_hour=16.0))
    idle = replace(used, num_accelerators=40).leaving_idle(32)
    alone, beside = estimate_plan(used, Plan(tp=2, pp=2)), estimate_plan(idle, Plan(tp=2, pp=2))
    assert (beside.num_accelerators_used, beside.num_accelerators_idle) == (32, 8)
    assert beside.step_time == alone.step_time
    assert beside.tokens_per_second == pytest.approx(alone.tokens_per_second)
    for name in ("mfu", "hfu", "tokens_per_second_per_accelerator"):
        assert getattr(beside, name) == pytest.approx(getattr(alone, name) * 32 / 40)
    assert alone.money is not None
    assert beside.money == pytest.approx(alone.money * 40 / 32)


def test_a_plan_file_with_idle_accelerators_is_read_as_it_was_written() -> None:
    result = search_question(small(40, 128), top=2)
    assert result.question.num_idle
    written = plan_file_record(PlanFile.of(result))
    assert written["uses"].startswith("uses 32 of 40: 4 of 5 ")
    read = plan_file_from_record(written)
    assert read.question == result.question
    assert read.estimates == tuple(result.estimates)
    assert read.search is not None
    assert read.search.fewer == result.fewer
    assert estimate_plan(read.question, read.pick("recommended").plan).step_time == read.estimates[0].step_time or (
        read.pick("recommended").plan != read.estimates[0].plan
    )


def test_launch_files_start_the_ranks_that_are_used() -> None:
    result = search_question(small(40, 128), top=1, stack=load_stack("megatron-lm"))
    assert result.recommended is not None
    made = export_estimate("megatron-lm", result.question, result.recommended)
    text = "\n".join(made.files.values())
    assert "NODES=${NODES:-4}" in text or "--nodes=4" in text or "--nnodes" in text
    assert any("uses 32 of 40" in each for each in made.not_expressed)


def test_more_sizes_never_take_longer() -> None:
    found = shardplan.scale("llama-3.2-1b", "dgx-h100", [8, 16, 24, 32, 40, 48, 56], global_batch_size=64)
    times = [each.answered.fastest.step_time for each in found.points if each.answered.fastest is not None]
    assert len(times) == 7
    assert all(later <= before * (1 + LEAST_GAIN) for before, later in pairwise(times))
