"""Batches within limits: as good as every batch one by one, and contradictions are refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import LLAMA_70B, cluster

import shardplan
from shardplan.base.errors import InputError
from shardplan.decide.batches import LARGEST_REPLICA, MOST_BATCHES, BatchLimits, parse_batch_limits
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job

FEW: dict[str, Any] = {
    "sequence_length": 2048,
    "limit": {"pp": [1, 2], "cp": [1], "sharding": ["zero1"]},
    "tokens": 1e10,
}
"""A small run with a small space."""


def budget(**changes: Any) -> Any:
    return shardplan.budget("llama-3.2-1b", "dgx-h100", **{**FEW, **changes})


def days(**changes: Any) -> float:
    found: float = budget(**changes).options[0].days
    return found


@pytest.mark.parametrize("number", [8, 24])
def test_the_batch_is_as_good_as_any_within_the_limits(number: int) -> None:
    """Every batch of the range on its own, with those that no plan divides left out."""
    low, high = 37, 49
    alone = []
    for batch in range(low, high + 1):
        found = budget(num_accelerators=number, global_batch_size=batch).options
        alone += [found[0].days] if found else []
    assert days(num_accelerators=number, batch_limits=(low, high)) <= min(alone) * (1 + 1e-9)


@pytest.mark.parametrize("limits", [(64, 64), (48, 200), (100, 101)])
def test_wider_limits_never_take_longer(limits: tuple[int, int]) -> None:
    low, high = limits
    inside = days(num_accelerators=16, batch_limits=limits)
    assert days(num_accelerators=16, batch_limits=(low // 2, high + 30)) <= inside * (1 + 1e-9)


def test_more_accelerators_never_take_longer() -> None:
    """Whole nodes, twice as many each time."""
    found = [days(num_accelerators=number, batch_limits="128..512") for number in (8, 16, 32, 64)]
    assert found == sorted(found, reverse=True)


def test_more_days_never_need_more_accelerators_and_the_fewest_are_the_fewest() -> None:
    limits = "64..128"
    of_size = {number: days(num_accelerators=number, batch_limits=limits) for number in (8, 16, 24, 40, 56)}
    needed = []
    for limit in sorted(of_size.values()):
        option = budget(days=limit * (1 + 1e-9), batch_limits=limits).options[0]
        assert not option.shortfalls
        assert option.num_accelerators == min(n for n, own in of_size.items() if own <= limit * (1 + 1e-9))
        needed.append(option.num_accelerators)
    assert needed == sorted(needed, reverse=True)


def test_the_answer_says_the_batch_and_where_it_is_from() -> None:
    (option,) = budget(num_accelerators=16, batch_limits=(64, 130)).to_dict()["options"]
    assert 64 <= option["global_batch_size"] <= 130
    said = f"global batch {option['global_batch_size']} sequences"
    assert any(each.startswith(said) and "64 to 130" in each for each in option["assumptions"])


def test_a_given_batch_within_the_limits_is_among_those_looked_at() -> None:
    assert days(num_accelerators=16, batch_limits="32..128", global_batch_size=96) <= days(
        num_accelerators=16, global_batch_size=96
    )


def test_a_ramp_keeps_its_batches_before_the_last() -> None:
    option = budget(num_accelerators=16, batch_ramp="32:1B", batch_limits="64..128").options[0]
    assert option.stages[0].question.job.global_batch_size == 32
    assert 64 <= option.question.job.global_batch_size <= 128


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batch_limits": "200..100"}, "LOW at most HIGH"),
        ({"batch_limits": (200, 100)}, "LOW at most HIGH"),
        ({"batch_limits": "0..100"}, "above 0"),
        ({"batch_limits": "100"}, "LOW..HIGH"),
        ({"batch_limits": "a..b"}, "LOW..HIGH"),
        ({"batch_limits": (1, 2, 3)}, "LOW..HIGH"),
        ({"batch_limits": (1.5, 2)}, "LOW..HIGH"),
        ({"batch_limits": 64}, "LOW..HIGH"),
        ({"batch_limits": "100..200", "global_batch_size": 64}, "within the batch limits"),
        ({"batch_limits": "101..103", "num_accelerators": 16_384}, "multiple of the replicas"),
        ({"batch_limits": "10000000..10000000"}, "at least one step"),
    ],
)
def test_contradictions_are_refused_with_rule_and_fix(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        budget(**changes)
    assert words in caught.value.rule
    assert caught.value.hint


@given(st.integers(1, 20_000), st.integers(1, 5000), st.integers(0, 5000))
def test_batches_are_within_limits_and_shared_by_replicas(number: int, low: int, more: int) -> None:
    limits = BatchLimits(low=low, high=low + more)
    job = Job(sequence_length=4096, global_batch_size=1)
    question = Question(model=LLAMA_70B, cluster=cluster(), num_accelerators=number, job=job)
    found = limits.batches(question)
    assert len(found) <= MOST_BATCHES
    assert all(low <= batch <= low + more for batch in found)
    shared = [d for d in range(1, number + 1) if number % d == 0 and number <= d * LARGEST_REPLICA]
    assert bool(found) == any((low + more) // d * d >= low for d in shared)


def test_limits_are_read_as_people_write_them() -> None:
    assert parse_batch_limits("1,024..4_096") == BatchLimits(low=1024, high=4096)
