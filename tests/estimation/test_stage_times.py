"""What shows of the traffic of states and of transfers on a stage: windows, switches and chunks, by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.estimation.test_pipelines import AROUND, LOAD, TIMES, WHOLE, WORK, numbers, question
from tests.strategies import Case, cases, without_losses

from shardplan import estimate
from shardplan.calibrate.runs.option_words import OVERLAPS
from shardplan.estimation.charge import CHARGES, StateCharge, state_charge
from shardplan.estimation.load import Around, Loads, StageStates, StageWork
from shardplan.estimation.priced import PricedPlan
from shardplan.estimation.pricing import price
from shardplan.estimation.question import Question
from shardplan.estimation.times import StateTimes, Windows, once_windows, state_times, work_times
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.readers.catalog import load_cluster, load_model
from shardplan.physics.costs.block import BlockCost
from shardplan.physics.frameworks.stack import list_stacks, load_stack
from shardplan.physics.memory import applied_share
from shardplan.physics.workload.stage import Stage, stages

OVERLAPPED = replace(TIMES, windows=Windows(vp=2, group_size=3, sharding=0.5, once=0.25))
"""5 seconds forward and 9 backward that hide nothing: half of them every micro-batch, a quarter of a chunk's once."""


def charge(**times: float) -> StateCharge:
    return StateCharge(**dict.fromkeys(CHARGES, 0.0) | {f"{name}_time": time for name, time in times.items()})


def test_times_of_a_stage_add_up() -> None:
    assert (OVERLAPPED.between, OVERLAPPED.microbatch) == (2, 36)
    assert (OVERLAPPED.free, OVERLAPPED.per_free) == (14, 1 / 14)
    assert OVERLAPPED.sharding_window == 7
    assert (OVERLAPPED.gather_window, OVERLAPPED.reduce_window) == (1.25, 2.25)
    assert (OVERLAPPED.gather_windows, OVERLAPPED.reduce_windows) == (1.25 * 4, 2.25 * 4)
    assert replace(OVERLAPPED, free_forward=0.0, free_backward=0.0).per_free > 1e20
    assert StateTimes(sharded=1.0, reduce=2.0, gather=4.0, update=8.0).once == 14
    assert StateTimes(sharded=1.0, reduce=0.0, gather=0.0, update=0.0).once == 0


@pytest.mark.parametrize(
    ("loads", "sharded", "reduce", "gather"),
    [
        # two chunks: all of it behind four windows; a tenth always shows
        ({"reduce": 20.0, "gather": 8.0}, 0, 20 - 9, 8 - 5),
        ({"reduce": 20.0}, 0, 20 - 9, 0),
        ({"reduce": 5.0}, 0, 0.5, 0),
        ({"reduce": 9.2}, 0, 9.2 / 2 - 2.25, 0),
        ({"sharding": 10.0}, 3, 0, 0),
        ({"sharding": 4.0}, 0.4, 0, 0),
        # of 10 seconds 7 travel behind half of the work: the other half is left
        ({"sharding": 10.0, "reduce": 20.0, "gather": 8.0}, 3, 20 - 4.5, 8 - 2.5),
        ({"sharding": 10.0, "gather": 8.0}, 3, 0, 8 - 2.5),
        ({"sharding": 10.0, "reduce": 20.0}, 3, 20 - 4.5, 0),
        ({"sharding": 10.0, "reduce": 4.6}, 3, 4.6 / 2 - 1.125, 0),
    ],
)
def test_work_hides_each_part_of_the_traffic_once(
    loads: dict[str, float], sharded: float, reduce: float, gather: float
) -> None:
    asked = question(hidden_slowdown=0.1)
    found = state_times(asked, OVERLAPPED, charge(update=3.0, **loads))
    assert (found.sharded, found.reduce, found.gather) == pytest.approx((sharded, reduce, gather))
    assert found.update == 3
    left = 1 - (loads.get("sharding", 0.0) - sharded) / 14
    assert once_windows(asked, OVERLAPPED, charge(**loads)) == pytest.approx((1.25 * left, 2.25 * left))


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ({}, (1, 1, 0.5, 0.6)), ({"pp": 4, "vp": 2}, (2, 4, 0.5, 0.3)), ({"pp": 16, "vp": 2}, (2, 8, 0.5, 0.3)),
        ({"overlap_dp": False}, (1, 1, 0.0, 0.0)),
    ],
)  # fmt: skip
def test_windows_of_a_plan(plan: dict[str, Any], expected: tuple[float, ...]) -> None:
    """Eight micro-batches in groups of as many as there are ranks; a plan's own chunk has its share of the work."""
    found = Windows.of(question(fsdp_window=0.5, dp_window=0.6), numbers(**plan))
    assert (found.vp, found.group_size, found.sharding, found.once) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("plan", "transfer", "left"),
    [
        ({"pp": 4}, 1.0, 1.0),
        ({"pp": 4, "vp": 2}, 2.0, 1.0),
        ({"pp": 4, "overlap_pp": True}, 0.25, (68 - 0.75) / 68),
    ],
)
def test_what_hides_transfers_hides_nothing_else(plan: dict[str, Any], transfer: float, left: float) -> None:
    """Half a second each way for every chunk; a quarter shows behind 68 seconds of work, layers that run again too."""
    asked = question(pp_window=0.5, hidden_slowdown=0.25)
    found = work_times(asked, numbers(**{"overlap_pp": False} | plan), AROUND, WHOLE, WORK)
    assert found.transfer == pytest.approx(transfer)
    assert (found.free_forward, found.free_backward) == pytest.approx((20 * left, 48 * left))
    assert (found.forward, found.backward, found.plain, found.weight_gradient) == (40, 80 + 24, 120, 30)
    assert (found.offload, found.overhead) == (0, 0.25 * plan.get("vp", 1))


def test_transfers_of_plans_that_do_and_do_not_overlap_are_as_each_alone() -> None:
    asked = question(pp_window=0.5, hidden_slowdown=0.25)
    both = replace(numbers(pp=4), overlap_pp=np.array([False, True]))
    found = work_times(asked, both, AROUND, WHOLE, replace(WORK, sum=LOAD))
    assert np.asarray(found.transfer).tolist() == pytest.approx([1.0, 0.25])
    assert np.asarray(found.free).tolist() == pytest.approx([68, 68 - 0.75])


def test_activations_of_plans_that_offload_cross_the_link_there_and_back() -> None:
    """Two seconds one way, in which other links are free; plans that keep them send nothing."""
    both = replace(numbers(), offload_activations=np.array([False, True]))
    away = replace(WORK, sum=replace(LOAD, kept_bytes=2 * 64e9))
    found = work_times(question(hidden_slowdown=1.0), both, replace(AROUND, handover_time=0.0), WHOLE, away)
    assert np.asarray(found.offload).tolist() == pytest.approx([0.0, 4.0])
    assert np.asarray(found.free).tolist() == pytest.approx([68.0, 72.0])
    assert found.transfer == 0


def test_all_that_a_micro_batch_spends_hides_the_way_to_the_host() -> None:
    """A hundredth of 120 seconds and of the 24 that layers run again: 1.44 of 4."""
    away = replace(WORK, sum=replace(LOAD, kept_bytes=2 * 64e9))
    around = replace(AROUND, handover_time=0.0)
    found = work_times(question(offload_window=0.01), numbers(offload="activations"), around, WHOLE, away)
    assert found.offload == pytest.approx(4 - 1.44)


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


NONE: Mapping[str, Any] = OVERLAPS["none"]
ALL: Mapping[str, Any] = dict.fromkeys(NONE, True)
PARTIAL: list[Mapping[str, Any]] = [{**NONE, name: True} for name in NONE] + [{**ALL, name: False} for name in NONE]


@given(cases(), st.sampled_from(PARTIAL))
def test_overlap_never_slows_a_step(case: Case, some: Mapping[str, Any]) -> None:
    """But for what products lose where they are cut into panels, and what the host loses to layers in two streams.

    Work that hides one exchange no longer hides another: the bubble of unequal chunks may grow by a thousandth.
    """
    whole = without_losses(case.question)
    none, part, everything = (
        PricedPlan.of(whole, replace(case.plan, **switches)).step_time for switches in (NONE, some, ALL)
    )
    assert none * (1 + 1e-3) >= part >= everything * (1 - 1e-3)


@given(cases())
def test_nothing_of_the_states_is_hidden_without_overlap(case: Case) -> None:
    question, plan = case.question, replace(case.plan, **NONE)
    numbers = PlanNumbers.of(plan, question.num_accelerators, question.job)
    prices = price(question, numbers)
    loads, around = Loads.of(prices), Around.of(question, numbers, prices)
    for stage in stages(question.model, plan.pp, plan.vp, plan.stage_layers):
        load = StageStates.of(stage, loads.states)
        charge = state_charge(question, numbers, stage, load)
        work = work_times(question, numbers, around, stage, StageWork.of(stage, loads.blocks))
        times = state_times(question, work, charge)
        assert times.sharded == pytest.approx(load.sum.sharding_time + charge.copy_time, rel=1e-12)
        assert times.reduce == pytest.approx(load.sum.reduce_time, rel=1e-12)
        assert times.gather == pytest.approx(load.sum.gather_time, rel=1e-12)
        assert work.transfer == 2 * plan.vp * prices.handover.time


@pytest.mark.parametrize("stack", list_stacks())
@pytest.mark.parametrize("cluster", ["dgx-h100", "dgx-b200", "gb200-nvl72"])
def test_every_stack_can_run_without_overlap(stack: str, cluster: str) -> None:
    """A weak-scaling step of a dense 70B model, from 64 to 16,384 accelerators: slower without, by a bounded factor."""
    chosen, model, on = load_stack(stack), load_model("llama-3.1-70b"), load_cluster(cluster)
    fields = chosen.plan_fields() | {"sharding": "zero1", "offload": "none"}
    times = []
    for n in (64, 1024, 16384):
        job = Job(sequence_length=8192, global_batch_size=n, **chosen.job_fields("bf16"))
        plan = Plan(**fields | {"tp": 4, "pp": 4, "vp": 5})
        none, part, everything = (
            estimate(model, on, n, replace(plan, **switches), job=job).step_time
            for switches in (NONE, {**NONE, "overlap_dp": True}, ALL)
        )
        assert none > part > everything
        times.append(none)
    assert times[2] < 1.25 * times[0]  # latencies and stragglers of thousands stay small beside the work
