"""Where nothing fits: the lightest plan, numbers that divide badly, and changes that would help."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from itertools import product
from math import prod
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.commands import run, unwrapped
from tests.few import few
from tests.planner.small import TIME_OF_ALL, evaluate, families_of, spaces
from tests.planner.test_runnable import asked as question_in

import shardplan
from shardplan import InputError, Plan, estimate, search
from shardplan.base.errors import PlanError
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Offload
from shardplan.physics.frameworks.stack import load_stack
from shardplan.planner.evaluation import best_plans, evaluated
from shardplan.planner.family import KnownPipelines
from shardplan.planner.pricing.pieces import SMALLEST
from shardplan.planner.pricing.tables import Tables
from shardplan.planner.ranking import best_cell
from shardplan.planner.related import causes
from shardplan.planner.related.causes import factors, near_length, next_pair
from shardplan.planner.related.counts import LARGEST_UNIT, layouts_of
from shardplan.planner.search import search_question
from shardplan.planner.space import Space


@few(8)
@given(spaces(most=4000), st.sampled_from((1, 64)))
def test_it_is_the_first_of_those_that_need_least(asked: tuple[Question, Space], first: int) -> None:
    """However few plans are looked at first."""
    question, space = asked
    tables = [evaluate(question, family, SMALLEST) for family in families_of(question, space)]
    cell = best_cell(tables)
    if cell is None:
        return
    ((plan, _),) = best_plans(cell.tables, [cell.position], SMALLEST)
    with mock.patch.object(causes, "FIRST", first):
        assert causes.lightest_plan([each.tables for each in tables]) == plan


def test_a_pruned_search_names_the_same_plan() -> None:
    """Of the software that may run it, the usual."""
    pruned, whole = (shardplan.search("llama-3.1-405b", "dgx-h100", 8, prune=prune).smallest for prune in (True, False))
    assert pruned is not None
    assert pruned == whole
    assert pruned.plan.cuda_graphs == "none"


MODEL = "llama-3.1-8b"
BAD: dict[str, Any] = {"sequence_length": 1_000_003}
ONE_OF_EACH: dict[str, Any] = {"vp": 1, "micro_batch_size": 1}
MANY: dict[str, Any] = {"global_batch_size": 1024, "limit": {"cp": 1, **ONE_OF_EACH}}
"""On 509 accelerators, so that the search is short."""


@cache
def bad() -> shardplan.SearchAnswer:
    """A sequence of a prime number of tokens."""
    return search(MODEL, "dgx-h100", 8, use_all=True, **BAD)


def asked(number: int, length: int, batch: int) -> shardplan.Question:
    return shardplan.question(MODEL, "dgx-h100", number, sequence_length=length, global_batch_size=batch)


@given(st.integers(1, 10**9))
def test_factors_multiply_to_the_number(number: int) -> None:
    text = factors(number)
    if text == "a prime number":
        assert all(number % each for each in range(2, min(int(number**0.5) + 1, 2000)))
        return
    parts = [part.replace(",", "").partition("^") for part in text.split(" x ")]
    found = prod(int(base) ** int(power or 1) for base, _, power in parts) if text != "one" else 1
    assert found == number


@given(number=st.integers(1, 4096), length=st.integers(1, 131_072))
def test_the_length_nearby_is_shared_by_twice_the_ranks(number: int, length: int) -> None:
    near = near_length(asked(number, length, 1))
    ranks = number & -number
    if near is None:
        assert length % 2 == 0 or length < 128
        assert length % (2 * ranks) == 0 or 2 * ranks > length / 64
        return
    assert abs(near - length) <= length / 64
    assert near % 2 == 0
    assert near != length


@given(number=st.integers(1, 3000), batch=st.integers(1, 3000))
def test_the_next_count_fills_nodes_and_has_more_layouts(number: int, batch: int) -> None:
    pair = next_pair(asked(number, 4096, batch))
    if pair is not None:
        assert number < pair[0] < number + LARGEST_UNIT
        before, after = layouts_of(np.asarray([(number, batch), pair]), 32)
        assert after > before


def test_the_least_memory_is_that_of_all_plans() -> None:
    """Brute force over degrees, recomputation, sharding, sequence parallelism and what lives on the host."""
    found = search(MODEL, "dgx-h100", 8, limit=ONE_OF_EACH, **BAD)
    assert not found.estimates
    assert found.smallest is not None
    least = min(_peaks(8))
    assert found.smallest.peak_memory_bytes == pytest.approx(least, rel=1e-9)
    assert least < 200e9  # 980 GB were named without the plans that share no sequence


def _peaks(number: int) -> list[float]:
    peaks = []
    kinds = product(
        (1, 2, 4, 8), (1, 2, 4, 8), ("ddp", "zero1", "zero3"), (True, False), ("none", "optimizer", "activations")
    )
    for tp, pp, sharding, shared, offload in kinds:
        plan = {
            "tp": tp, "pp": pp, "vp": 1, "sharding": sharding, "sequence_parallel": shared, "offload": offload,
            "recompute": "full",
        }  # fmt: skip
        try:
            answer = estimate(MODEL, "dgx-h100", number, plan, **BAD)
        except PlanError:
            continue
        if not answer.refusals:
            peaks.append(answer.peak_memory_bytes)
    return peaks


@pytest.mark.parametrize("place", ["optimizer", "activations"])
def test_what_is_fixed_stays_fixed_in_the_least(place: str) -> None:
    found = search(MODEL, "dgx-h100", 8, fix={"offload": place}, limit=ONE_OF_EACH, **BAD)
    assert found.smallest is not None
    assert found.smallest.plan.offload == place
    none = search(MODEL, "dgx-h100", 8, exclude={"offload": place}, limit=ONE_OF_EACH, **BAD)
    assert none.smallest is not None
    assert none.smallest.plan.offload != place


def test_where_a_plan_fits_on_the_host_the_least_is_one_that_does_not() -> None:
    found = search("llama-3.1-70b", "dgx-h100", 13)
    assert any("host memory" in each.change for each in found.suggestions)
    assert found.smallest is not None
    assert not found.smallest.feasible


def test_a_sequence_that_ranks_cannot_share_leaves_plans_without_sequence_parallelism() -> None:
    odd = search("llama-3.2-1b", "dgx-h100", 8, sequence_length=4097, global_batch_size=64)
    assert {True, False} == {*odd.space["sequence_parallel"]}
    assert odd.best_where(tp=2) is not None
    even = search("llama-3.2-1b", "dgx-h100", 8, sequence_length=4096, global_batch_size=64)
    assert even.space["sequence_parallel"] == (True,)
    held = search(
        "llama-3.2-1b", "dgx-h100", 8, sequence_length=4097, global_batch_size=64, fix={"sequence_parallel": True}
    )
    assert held.space["sequence_parallel"] == (True,)


@pytest.mark.parametrize(
    ("model", "number", "fields", "said"),
    [
        (MODEL, 8, BAD, "a sequence of 1,000,003 tokens (a prime number)"),
        ("mixtral-8x7b", 8, {"sequence_length": 131_071}, "a sequence of 131,071 tokens (a prime number)"),
        (MODEL, 7, {"sequence_length": 131_072}, "7 accelerators (a prime number)"),
        ("llama-3.1-405b", 509, MANY, "509 accelerators (a prime number)"),
    ],
)
def test_the_number_that_divides_badly_is_the_cause(model: str, number: int, fields: Any, said: str) -> None:
    found = bad() if fields is BAD else search(model, "dgx-h100", number, use_all=True, **fields)
    assert not found.estimates
    assert any(said in cause for cause in found.causes), found.causes
    for each in found.suggestions:
        assert each.estimate.feasible
        assert each.estimate.num_accelerators_used == each.num_accelerators


@pytest.mark.parametrize(
    ("model", "number", "fields"),
    [
        (MODEL, 7, {"sequence_length": 131_072, "global_batch_size": 28}),
        ("llama-3.1-405b", 509, MANY),
    ],
)
def test_a_count_that_divides_badly_leaves_some_idle(model: str, number: int, fields: Any) -> None:
    """Where that is allowed, the answer is that of a search for as many as are used."""
    found = search(model, "dgx-h100", number, **fields)
    used = found.estimates[0].num_accelerators_used
    assert used < number
    assert found.causes == ()
    alone = search(model, "dgx-h100", used, use_all=True, **fields)
    assert alone.estimates[0].plan == found.estimates[0].plan
    assert alone.estimates[0].step_time == found.estimates[0].step_time


def test_a_batch_that_divides_badly_is_the_cause() -> None:
    few: dict[str, Any] = {"fix": {"tp": 8}, "limit": {"pp": [1, 2, 4, 8]}, "use_all": True}
    found = search("llama-3.1-405b", "dgx-h100", 384, global_batch_size=1021, **few)
    assert not found.estimates
    assert any("a batch of 1,021 sequences (a prime number)" in cause for cause in found.causes), found.causes


@pytest.mark.parametrize(
    ("model", "number", "fields"), [(MODEL, 1, {"sequence_length": 131_072}), ("llama-3.1-405b", 8, {})]
)
def test_numbers_that_divide_well_are_not_blamed(model: str, number: int, fields: Any) -> None:
    found = search(model, "dgx-h100", number, **fields)
    assert not found.estimates
    assert found.causes == ()


def test_a_change_of_the_length_is_checked_by_the_estimate() -> None:
    found = search(MODEL, "dgx-h100", 8, fix={"cp": 8}, sequence_length=131_101)
    change = next(each for each in found.suggestions if "--sequence-length" in each.change)
    length = int(change.change.split()[-1])
    again = estimate(MODEL, "dgx-h100", 8, change.estimate.plan, sequence_length=length)
    assert again.step_time == change.estimate.step_time
    assert again.feasible


def test_the_cause_is_in_text_file_and_notebook(tmp_path: Any) -> None:
    flags = ("plan", MODEL, "--cluster", "dgx-h100", "--gpus", 7, "--sequence-length", 131_072, "--use-all")
    result = run(*flags, "--json", tmp_path / "none.json")
    assert result.exit_code == 1
    assert "Cause 7 accelerators (a prime number) leave few layouts" in unwrapped(result.output)
    record = json.loads((tmp_path / "none.json").read_text())
    loaded = shardplan.load(tmp_path / "none.json")
    assert isinstance(loaded, shardplan.SearchAnswer)
    assert [*loaded.causes] == record["causes"] != []
    assert "7 accelerators (a prime number)" in loaded._repr_html_()


@pytest.mark.parametrize("length", [0, -1, 1.5, "1,000,00x", 2**40])
def test_a_length_that_is_none_is_refused(length: Any) -> None:
    with pytest.raises(InputError):
        search(MODEL, "dgx-h100", 8, sequence_length=length)


def test_a_stated_plan_of_the_least_is_priced_again() -> None:
    found = bad()
    assert found.smallest is not None
    again = estimate(MODEL, "dgx-h100", 8, replace(found.smallest.plan), **BAD)
    assert again.peak_memory_bytes == found.smallest.peak_memory_bytes
    assert isinstance(found.smallest.plan, Plan)


@few(8)
@given(spaces(most=4000), st.sampled_from(("none", "optimizer", "activations")))
def test_plans_that_offload_something_else_have_prices_of_their_own(
    asked: tuple[Question, Space], offload: Offload
) -> None:
    question, space = asked
    for family in families_of(question, space):
        shared = Tables(question=question, family=family, known=KnownPipelines()).offloading(offload)
        alone = Tables(question=question, family=shared.family, known=KnownPipelines())
        assert shared.family.plan(0, 0, 1, 0).offload == offload
        for objective in (SMALLEST, TIME_OF_ALL):
            assert np.array_equal(evaluated(shared, objective).best, evaluated(alone, objective).best)


@pytest.mark.parametrize("stack", ["megatron-lm", "torchtitan", "deepspeed"])
def test_states_in_host_memory_lead_to_the_plan_that_is_found_with_them_there(stack: str) -> None:
    """The same plan with the same numbers; for frameworks without that there is no such suggestion."""
    framework, limit = load_stack(stack), {"tp": (4, 8), "cp": (1,)}
    question = question_in("llama-3.1-70b", framework, 8)
    result = search_question(question, limit=limit, stack=framework)
    assert not result.estimates
    suggested = [each.estimate for each in result.suggestions if "--fix offload=optimizer" in each.change]
    can_run = framework.can_run
    assert can_run is not None
    if "optimizer" not in (can_run.offload or ()):
        assert not suggested
        return
    alone = search_question(question, limit=limit, fix={"offload": "optimizer"}, stack=framework, suggestions=False)
    assert suggested[:1] == [alone.recommended]
