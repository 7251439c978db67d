"""Windows: no communication hides behind work that is not there, whatever the bandwidth."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import Case, cases, without_losses

from shardplan.costs.block import BlockCost
from shardplan.estimation.charge import state_charge
from shardplan.estimation.load import Around, Loads, StageStates, StageWork
from shardplan.estimation.priced import PricedPlan
from shardplan.estimation.question import Question
from shardplan.estimation.times import state_times, work_times
from shardplan.inputs.plan import Plan
from shardplan.memory.activations import applied_share
from shardplan.workload.stage import Stage

SAME = 1e-9
WINDOWS = ("tp_window", "cp_window", "ep_window", "pp_window", "offload_window", "dp_window", "fsdp_window")
IN_BLOCKS = ("tp", "cp", "ep")


@st.composite
def any_bandwidth(draw: st.DrawFn) -> Case:
    """A case whose tiers are each up to a thousand times slower or faster."""
    case = draw(cases())
    factors = st.floats(-3, 3).map(lambda power: 10**power)
    tiers = tuple(replace(tier, bandwidth=tier.bandwidth * draw(factors)) for tier in case.question.cluster.tiers)
    return replace(case, question=replace(case.question, cluster=replace(case.question.cluster, tiers=tiers)))


@dataclass(frozen=True)
class Spent:
    """Seconds of a step on one stage."""

    computation: float
    """Arithmetic, memory-bound passes, and the time for which kernels wait for their launch."""
    shown: dict[str, float]
    """Exposed communication, by dimension."""


def spent(priced: PricedPlan, stage: Stage) -> Spent:
    """What a stage spends on a step."""
    question, numbers, prices = priced.question, priced.numbers, priced.prices
    m, share = float(numbers.num_microbatches), float(applied_share(stage.num_layers, numbers))
    loads, around = Loads.of(prices), Around.of(question, numbers, prices)
    charge = state_charge(question, numbers, stage, StageStates.of(stage, loads.states))
    times = work_times(question, numbers, around, stage, StageWork.of(stage, loads.blocks))
    states = state_times(question, times, charge)

    def in_blocks(name: str) -> float:
        def of_block(cost: BlockCost) -> Any:
            once = getattr(cost.forward, name) + getattr(cost.backward, name)
            return once + share * getattr(cost.recomputed, name)

        return m * float(prices.blocks.total(stage, of_block))

    return Spent(
        computation=in_blocks("compute") + in_blocks("host"),
        shown={name: in_blocks(name) for name in IN_BLOCKS}
        | {
            "pp": m * float(times.transfer),
            "offload": m * float(times.offload),
            "dp": m * float(states.sharded) + float(states.reduce) + float(states.gather),
        },
    )


def without_windows(question: Question) -> Question:
    """The same where no work hides any communication."""
    changes: dict[str, Any] = dict.fromkeys(WINDOWS, 0.0) | {"tp_fill": 1.0, "summa_panels": 1}
    closed = replace(question.profile, **changes)
    return replace(question, given_profile=closed)


def stages_spent(case: Case) -> list[tuple[Spent, Spent]]:
    """Every stage as it is, and where nothing is hidden."""
    priced = PricedPlan.of(case.question, case.plan)
    closed = PricedPlan.of(without_windows(case.question), case.plan)
    return [(spent(priced, stage), spent(closed, stage)) for stage in priced.stages]


@given(any_bandwidth())
def test_no_dimension_shows_more_than_its_time(case: Case) -> None:
    for shown, whole in stages_spent(case):
        for name, time in shown.shown.items():
            assert time <= whole.shown[name] * (1 + SAME), name


@given(any_bandwidth())
def test_work_hides_communication_once(case: Case) -> None:
    """What networks hide of all dimensions together is at most the computation of the step, and the wait for the host.

    Activations go to the host over a link of their own, while the same work runs and waits for networks.
    """
    for shown, whole in stages_spent(case):
        hidden = {name: whole.shown[name] - time for name, time in shown.shown.items()}
        to_host, waits = hidden.pop("offload"), shown.shown["offload"]
        busy, rounding = shown.computation + sum(shown.shown.values()) - waits, SAME * sum(whole.shown.values())
        assert to_host <= busy * (1 + SAME) + rounding
        assert sum(hidden.values()) <= (shown.computation + waits) * (1 + SAME) + rounding


@given(any_bandwidth())
def test_no_step_is_shorter_than_a_wire_is_busy(case: Case) -> None:
    """Bytes that a rank sends on a tier, over the tier's nominal bandwidth."""
    priced = PricedPlan.of(case.question, case.plan)
    tiers = range(len(case.question.network.tiers))
    moved = [sum([*sent.values()][tier] for sent in priced.communication().values()) for tier in tiers]
    wires = (sent / rate for sent, rate in zip(moved, case.question.network.bandwidth, strict=True))
    assert priced.step_time * (1 + SAME) >= max(wires)


@given(any_bandwidth(), st.integers(0, 2), st.floats(1, 1000))
def test_more_bandwidth_never_makes_a_step_longer(case: Case, which: int, factor: float) -> None:
    """Of any one tier."""
    question = case.question
    tiers = list(question.cluster.tiers)
    which = min(which, len(tiers) - 1)
    tiers[which] = replace(tiers[which], bandwidth=factor * tiers[which].bandwidth)
    faster = replace(question, cluster=replace(question.cluster, tiers=tuple(tiers)))
    before, after = (PricedPlan.of(each, case.plan).step_time for each in (question, faster))
    assert after <= before * (1 + SAME)


@given(any_bandwidth(), st.sampled_from(("overlap_tp", "overlap_dp", "overlap_pp", "overlap_ep")))
def test_an_overlap_never_slows_a_plan(case: Case, switch: str) -> None:
    """Switched on while all others stay as they are; but for panels, and for what the host loses to two streams."""
    asked = without_losses(case.question)  # the bubble of unequal chunks may grow by a thousandth
    off, on = (PricedPlan.of(asked, switched(case.plan, switch, to)).step_time for to in (False, True))
    assert on <= off * (1 + 1e-3)


def switched(plan: Plan, switch: str, to: bool) -> Plan:  # noqa: FBT001  # the value of a field
    changes: dict[str, Any] = {switch: to}
    return replace(plan, **changes)


@given(any_bandwidth())
def test_terms_sum_to_the_step(case: Case) -> None:
    priced = PricedPlan.of(case.question, case.plan)
    assert math.fsum(priced.breakdown.values()) == pytest.approx(priced.step_time, rel=1e-12)
    assert all(time >= 0 for time in priced.breakdown.values()), priced.breakdown
