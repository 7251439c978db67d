"""Arrays of plans, with fields along axes of their own or all along one, against the same plans one at a time."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies import Case, cases, divisors, tensor_degrees

from shardplan.base.arrays import mapped
from shardplan.estimation.estimate import estimate_plan
from shardplan.estimation.layout import Chunk, pipeline_of, whole_model
from shardplan.estimation.pricing import price
from shardplan.estimation.question import Question
from shardplan.estimation.step import Step, step_of
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.physics.workload.stage import Stage, kinds_of_stage, stacked

SAME = 1e-12
SINGLE = ("num_accelerators", "schedule", "tp_kind", "cp_comm", "placement", "stage_layers")
"""Fields that are one value for all plans of a batch."""


def on_own_axes(values: Any) -> Any:
    """An array cut to length one along every axis on which it does not vary."""
    array = np.asarray(values)
    for axis in range(array.ndim):
        first = array.take([0], axis=axis)
        if np.array_equal(np.broadcast_to(first, array.shape), array):
            array = first
    return array


def joined(batches: Any) -> PlanNumbers:
    """Batches of single plans, in an array of objects, as one batch of arrays."""
    shape = batches.shape

    def gathered(value: Any) -> Any:
        return on_own_axes(np.array([value(one) for one in batches.ravel()]).reshape(shape))

    numbers: dict[str, Any] = {
        field.name: gathered(lambda one, name=field.name: getattr(one, name))
        for field in fields(PlanNumbers)
        if field.name not in (*SINGLE, "recompute", "second_degree")
    }
    first: PlanNumbers = batches.ravel()[0]
    if any(one.second_degree is not None for one in batches.ravel()):
        numbers["second_degree"] = gathered(lambda one: one.second_degree or one.sharding_degree)
    modules = {name: gathered(lambda one, name=name: one.recompute[name]) for name in first.recompute}
    return replace(first, recompute=modules, **numbers)


@dataclass(frozen=True)
class Laid:
    """Stages of a pipeline, or of an array of pipelines, and chunks in groups of which the slowest counts."""

    stages: tuple[Stage, ...]
    rounds: tuple[tuple[Stage, ...], ...]


def step(question: Question, numbers: PlanNumbers, laid: Laid) -> Step:
    prices, whole = price(question, numbers), whole_model(question.model)
    return step_of(question, numbers, prices, laid.stages, whole, rounds=laid.rounds)


def laid_out(question: Question, plan: Plan) -> Laid:
    """The whole pipeline of a plan."""
    pipeline, rounds = pipeline_of(question.model, plan.pp, plan.vp, plan.stage_layers)
    return Laid(pipeline, tuple(tuple(chunk.as_stage() for chunk in group) for group in rounds))


def kinds_of(question: Question, plan: Plan) -> Laid:
    """The same, with those stages alone that can be slowest or fullest."""
    laid = laid_out(question, plan)
    return replace(laid, stages=kinds_of_stage(laid.stages))


def side_by_side(pipelines: list[Laid], shape: tuple[int, ...]) -> Laid:
    """Pipelines as one whose numbers are arrays. One with fewer stages has its last again; chunks may be empty."""

    def columns(lists: list[tuple[Stage, ...]]) -> tuple[Stage, ...]:
        return tuple(mapped(stacked(each), lambda numbers: numbers.reshape(shape)) for each in zip(*lists, strict=True))

    empty = Chunk(counts=(0,) * len(pipelines[0].stages[0].counts)).as_stage()
    most = max(len(laid.rounds) for laid in pipelines)
    groups = [[laid.rounds[n] if n < len(laid.rounds) else () for laid in pipelines] for n in range(most)]
    return Laid(
        columns(
            [filled(laid.stages, laid.stages[-1], max(len(laid.stages) for laid in pipelines)) for laid in pipelines]
        ),
        tuple(columns([filled(group, empty, max(map(len, round_))) for group in round_]) for round_ in groups),
    )


def filled(stages: tuple[Stage, ...], by: Stage, most: int) -> tuple[Stage, ...]:
    return (*stages, *(by,) * (most - len(stages)))


def check(question: Question, plans: list[Plan], together: Step, shape: tuple[int, ...]) -> None:
    """Every plan by itself against its element of the arrays."""
    for number, plan in enumerate(plans):
        numbers = PlanNumbers.of(plan, question.num_accelerators, question.job)
        singly = step(question, numbers, kinds_of(question, plan))
        for name in ("step_time", "peak_memory_bytes", "fits"):
            one = float(getattr(singly, name))
            among = float(np.broadcast_to(getattr(together, name), shape).flat[number])
            assert abs(among - one) <= SAME * abs(one), (name, plan)


def alternatives(draw: st.DrawFn, case: Case) -> tuple[list[dict[str, Any]], ...]:
    """Values along four axes: sharding, recomputation, chunks per rank, and the degrees of a layer."""
    n, plan, model = case.question.num_accelerators, case.plan, case.question.model
    replicas = n // plan.pp
    several = [] if replicas == 1 else [{"sharding": kind, "sharding_degree": 1} for kind in ("hsdp", "hpz")]
    whole = [{"sharding": kind} for kind in ("ddp", "zero1", "zero2", "zero3")]
    shardings = draw(st.lists(st.sampled_from(whole + several), min_size=1, max_size=3, unique_by=str))
    policies = draw(
        st.lists(
            st.tuples(st.sampled_from(("none", "selective", "full", "layernorm")), st.sampled_from((None, 1, 2))),
            min_size=1,
            max_size=3,
            unique=True,
        )
    )
    chunks = [v for v in (1, 2, 3) if plan.pp * v <= model.num_hidden_layers and (v == 1 or plan.pp > 1)]
    vps = draw(st.lists(st.sampled_from(chunks), min_size=1, max_size=3, unique=True))
    tps = [tp for tp in tensor_degrees(model, n) if replicas % tp == 0]
    points = [
        {"tp": tp, "tp_rows": tp if plan.tp_kind == "summa" else 1, "cp": cp,
         "micro_batch_size": draw(st.sampled_from((1, 2, 3))), "sequence_parallel": switch,
         "overlap_tp": switch, "offload": draw(st.sampled_from(("none", "none", "optimizer", "activations")))}
        for tp, cp, switch in draw(
            st.lists(
                st.tuples(st.sampled_from(tps), st.sampled_from((1, 2)), st.booleans()).filter(
                    lambda degrees: replicas // degrees[0] % degrees[1] == 0
                ),
                min_size=1,
                max_size=4,
            )
        )
    ]  # fmt: skip
    if model.is_moe:
        for point in points:
            point["ep"] = draw(st.sampled_from([d for d in divisors(replicas) if d in (1, 2, 4)]))
    return (
        shardings,
        [{"recompute": policy, "recompute_num_layers": layers} for policy, layers in policies],
        [{"vp": vp} for vp in vps],
        points,
    )


def plain(case: Case, **changes: Any) -> Plan:
    """The plan of a case without what depends on its degrees."""
    return replace(
        case.plan, sharding="zero1", sharding_degree=None, schedule=None, ep=1, etp=1, stage_layers=None, **changes
    )


def batches_of(question: Question, plans: list[Plan], shape: tuple[int, ...]) -> PlanNumbers:
    """Plans in numbers, as arrays of a shape."""
    singles = np.empty(len(plans), dtype=object)
    singles[:] = [PlanNumbers.of(plan, question.num_accelerators, question.job) for plan in plans]
    return joined(singles.reshape(shape))


@settings(max_examples=20)
@given(cases(), st.data())
def test_an_array_of_plans_is_its_plans_one_at_a_time(case: Case, data: st.DataObject) -> None:
    """Sharding, recomputation, chunks per rank and the degrees of a layer along axes of their own."""
    question = case.question
    axes = data.draw(st.composite(lambda draw: alternatives(draw, case))())
    shape = tuple(len(axis) for axis in axes)
    plans = [replace(plain(case), **{**one, **two, **three, **four}) for one, two, three, four in product(*axes)]
    pipelines = [kinds_of(question, plain(case, **axis)) for axis in axes[2]]
    kinds = side_by_side(pipelines, (1, 1, -1, 1))
    check(question, plans, step(question, batches_of(question, plans, shape), kinds), shape)


@settings(max_examples=20)
@given(cases(), st.data())
def test_a_column_of_plans_is_its_plans_one_at_a_time(case: Case, data: st.DataObject) -> None:
    """Any plans, of any pipeline depths, along one axis."""
    question, model = case.question, case.question.model
    depths = [pp for pp in divisors(question.num_accelerators) if pp <= model.num_hidden_layers]
    plans: list[Plan] = []
    for pp in data.draw(st.lists(st.sampled_from(depths), min_size=1, max_size=3)):
        deep = replace(case, plan=plain(case, pp=pp, vp=1, tp=1, cp=1, tp_rows=1, tp_kind="1d"))
        axes = data.draw(st.composite(lambda draw, deep=deep: alternatives(draw, deep))())
        choices = [st.sampled_from(axis) for axis in axes]
        chosen = data.draw(st.lists(st.tuples(*choices), min_size=1, max_size=4))
        plans += [replace(deep.plan, **{**a, **b, **c, **d}) for a, b, c, d in chosen]
    kinds = side_by_side([kinds_of(question, plan) for plan in plans], (-1,))
    check(question, plans, step(question, batches_of(question, plans, (-1,)), kinds), (len(plans),))


@given(cases())
def test_a_batch_of_one_is_the_estimate(case: Case) -> None:
    question, plan = case.question, case.plan
    numbers = batches_of(question, [plan], (1, 1, 1, 1))
    outcome = step(question, numbers, laid_out(question, plan))
    answer = estimate_plan(question, plan)
    assert np.asarray(outcome.step_time).item() == pytest.approx(answer.step_time, rel=SAME)
    assert np.asarray(outcome.peak_memory_bytes).item() == pytest.approx(answer.peak_memory_bytes, rel=SAME)
    assert np.asarray(outcome.fits).item() is answer.feasible
