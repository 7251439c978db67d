"""Ranges of a field, and questions that degrees alone rule out."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import GB, SMALL, accelerator, cluster

from shardplan.errors import InputError
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.planner.points import families
from shardplan.planner.related.counts import can_have_plans
from shardplan.planner.restrictions import Restrictions
from shardplan.planner.search import search_question
from shardplan.planner.space import declare

ASKED = Question(
    model=SMALL,
    cluster=cluster(part=accelerator(memory_bytes=80 * GB)),
    num_accelerators=48,
    job=Job(sequence_length=2048, global_batch_size=96),
)


@pytest.mark.parametrize(
    ("name", "text", "values"),
    [
        ("pp", "1..7", (1, 2, 3, 4, 6)),  # divisors of 48
        ("tp", "2 .. 4", (2, 3, 4)),
        ("micro_batch_size", "5..9", (6, 8)),  # divisors of 96
        ("vp", "2..4", (2, 3, 4)),
        ("recompute_num_layers", "0..2", (0, 1, 2)),
    ],
)
def test_a_range_has_every_value_that_can_be_valid(name: str, text: str, values: tuple[int, ...]) -> None:
    assert declare(ASKED, Restrictions(limit={name: (text,)})).axes[name] == values


def test_a_range_may_stand_among_values_and_be_excluded() -> None:
    space = declare(ASKED, Restrictions(limit={"pp": ("1..3", "8")}, exclude={"tp": ("3..48",)}))
    assert space.axes["pp"] == (1, 2, 3, 8)
    assert space.axes["tp"] == (1, 2)
    # A range that holds no candidate excludes nothing.
    assert declare(ASKED, Restrictions(exclude={"pp": ("9..11",)})).axes == declare(ASKED, Restrictions()).axes


def test_a_range_finds_what_its_values_find() -> None:
    ranged = search_question(ASKED, limit={"pp": "1..4"}, top=3)
    listed = search_question(ASKED, limit={"pp": [1, 2, 3, 4]}, top=3)
    assert [each.plan for each in ranged.estimates] == [each.plan for each in listed.estimates]


@pytest.mark.parametrize(
    ("restrictions", "message", "hint"),
    [
        (Restrictions(limit={"pp": ("25..47",)}), "none of them divides 48 accelerators", "1, 2, 3, 4, 6, 8"),
        (Restrictions(limit={"pp": ("8..2",)}), "ends before it starts", "pp=2..8"),
        (Restrictions(limit={"sharding": ("1..2",)}), "takes no range", "sharding=VALUE"),
        (Restrictions(limit={"pp": ("1-4",)}), "pp is '1-4'", "--limit pp=1..4"),
        (Restrictions(fix={"pp": ("1..4",)}), "fixed to a range", "--limit pp=1..4"),
        (Restrictions(fix={"pp": (2, 4)}), "fixed to 2 values", "--limit pp=2,4"),
        (Restrictions(limit={"micro_batch_size": ("5..5",)}), "global batch of 96", "1, 2, 3, 4, 6"),
    ],
)
def test_ranges_that_mean_nothing_are_refused(restrictions: Restrictions, message: str, hint: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        declare(ASKED, restrictions)
    assert hint in error.value.hint


@settings(max_examples=30)
@given(
    number=st.integers(1, 64),
    batch=st.integers(1, 96),
    fix=st.dictionaries(st.sampled_from(["tp", "pp", "cp", "dp"]), st.integers(1, 12).map(lambda n: (n,)), max_size=3),
)
def test_no_question_with_a_valid_plan_is_ruled_out(number: int, batch: int, fix: dict[str, tuple[int, ...]]) -> None:
    asked = replace(ASKED, num_accelerators=number, job=replace(ASKED.job, global_batch_size=batch))
    restrictions = Restrictions(fix=fix)
    try:
        has_plans = next(families(asked, declare(asked, restrictions), Counter()), None) is not None
    except InputError:
        return
    assert can_have_plans(asked, restrictions) or not has_plans


def test_degrees_that_share_no_heads_are_ruled_out_on_any_number() -> None:
    for number in (3, 6, 48, 63):
        asked = replace(ASKED, num_accelerators=number)
        assert not can_have_plans(asked, Restrictions(fix={"tp": (3,)}))  # SMALL has 8 heads
    assert can_have_plans(ASKED, Restrictions(fix={"tp": (4,)}))
