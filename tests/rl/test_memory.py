"""Memory of accelerators that trainer and engine share: limits of its phases, and runs of which some is known."""

from __future__ import annotations

import pytest
from tests.rl.steps import asked

from shardplan.base.fields import replace
from shardplan.rl.memory import MeasuredMemory, PhaseMemory, measured_memory, phase_memory, with_one_length
from shardplan.rl.search import RlPlan, search_rl
from shardplan.rl.transfer import engine_facts

FACTS = engine_facts("vllm")
ROWS = {row.id: row for row in measured_memory()}
LIMITED = [row for row in ROWS.values() if row.failed is not None]


@pytest.fixture(scope="module")
def plan() -> RlPlan:
    one = asked({"fix": {"train.tp": ["1"]}}, placement="colocated")
    (found,) = search_rl(one.task, one.searches).plans
    return found


def phases(plan: RlPlan, **stay: bool) -> PhaseMemory:
    given = {"states_stay": False, "engine_stays": False} | stay
    return phase_memory(plan.trained.priced, plan.pool.engine, plan.pool.memory, FACTS, **given)


def test_what_stays_is_held_in_the_other_phases(plan: RlPlan) -> None:
    priced, engine = plan.trained.priced, plan.pool.engine
    memory = priced.memory_of(priced.fullest)
    awake = plan.pool.memory + FACTS.reserved
    apart, states, both = (
        phases(plan),
        phases(plan, states_stay=True),
        phases(plan, states_stay=True, engine_stays=True),
    )
    assert apart.training == pytest.approx(priced.peak_memory_bytes + FACTS.asleep)
    assert apart.generation == pytest.approx(awake)
    assert apart.transfer == pytest.approx(memory.weights + engine.weights + FACTS.reserved)
    assert states.generation - apart.generation == pytest.approx(memory.weights + memory.optimizer)
    assert states.training == apart.training
    assert both.training == pytest.approx(priced.peak_memory_bytes + awake)
    assert both.transfer == both.generation
    assert both.fullest == max(both)


def test_an_engine_that_needs_nothing_leaves_the_trainers_memory(plan: RlPlan) -> None:
    nothing = replace(FACTS, asleep=0.0, reserved=0.0)
    found = phase_memory(plan.trained.priced, plan.pool.engine, 0.0, nothing, states_stay=False, engine_stays=False)
    assert found.training == pytest.approx(plan.trained.priced.peak_memory_bytes)
    assert found.generation == 0


def test_deepseek_v3_on_96_accelerators_takes_what_verl_reports() -> None:
    row = ROWS["verl-671b"]
    assert row.phases is not None
    assert row.phases.fullest == pytest.approx(row.peak, rel=0.1)


@pytest.mark.parametrize("row", [row for row in ROWS.values() if row.tokens], ids=lambda row: row.id)
def test_what_ran_is_predicted_to_fit(row: MeasuredMemory) -> None:
    assert row.filling(row.tokens or 0) < 1


@pytest.mark.parametrize("row", LIMITED, ids=lambda row: row.id)
def test_memory_is_full_at_a_length(row: MeasuredMemory) -> None:
    assert row.filling(row.full_at) <= 1 < row.filling(row.full_at + 8)
    assert row.failed is not None
    assert row.failed > row.plan.micro_batch_size


def test_with_one_length_the_limits_are_within_a_third() -> None:
    found = with_one_length()
    assert set(found.errors) == {row.id for row in LIMITED}
    assert all(abs(error) < 0.3 for error in found.errors.values())
    assert 100 < found.tokens < 1024 + 512  # between a short prompt and the longest sequence
