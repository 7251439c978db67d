"""Arrays of plans, each field along an axis of its own, against the same plans one at a time."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import product
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies import Case, cases, divisors, tensor_degrees

from shardplan.estimation.estimate import estimate_plan
from shardplan.estimation.layout import pipeline_of, whole_model
from shardplan.estimation.load import loads_of
from shardplan.estimation.pricing import price
from shardplan.estimation.question import Question
from shardplan.estimation.step import Step, step_of
from shardplan.inputs.batch import Batch
from shardplan.inputs.plan import Plan
from shardplan.workload.stage import Stage, kinds_of_stage, side_by_side

SAME = 1e-12
SINGLE = ("num_accelerators", "pp", "schedule", "tp_kind", "cp_comm", "placement", "stage_layers")
"""Fields that are one value for all plans of a batch."""


def on_own_axes(values: Any) -> Any:
    """An array cut to length one along every axis on which it does not vary."""
    array = np.asarray(values)
    for axis in range(array.ndim):
        first = array.take([0], axis=axis)
        if np.array_equal(np.broadcast_to(first, array.shape), array):
            array = first
    return array


def stacked(batches: Any) -> Batch:
    """Batches of single plans, in an array of objects, as one batch of arrays."""
    shape = batches.shape

    def gathered(value: Any) -> Any:
        return on_own_axes(np.array([value(one) for one in batches.ravel()]).reshape(shape))

    numbers: dict[str, Any] = {
        field.name: gathered(lambda one, name=field.name: getattr(one, name))
        for field in fields(Batch)
        if field.name not in (*SINGLE, "recompute")
    }
    first: Batch = batches.ravel()[0]
    modules = {name: gathered(lambda one, name=name: one.recompute[name]) for name in first.recompute}
    return replace(first, recompute=modules, **numbers)


def step(question: Question, batch: Batch, kinds: tuple[Stage, ...]) -> Step:
    return step_of(question, batch, loads_of(price(question, batch)), kinds, whole_model(question.model))


def kinds_of(question: Question, plan: Plan, vp: int) -> tuple[Stage, ...]:
    return kinds_of_stage(pipeline_of(question, plan.pp, vp))


def alternatives(draw: st.DrawFn, case: Case) -> tuple[list[dict[str, Any]], ...]:
    """Values along four axes: sharding, recomputation, chunks per rank, and the degrees of a layer."""
    n, plan, model = case.question.num_accelerators, case.plan, case.question.model
    replicas = n // plan.pp
    shardings = draw(st.lists(st.sampled_from(("ddp", "zero1", "zero2", "zero3")), min_size=1, max_size=3, unique=True))
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
        [{"sharding": sharding} for sharding in shardings],
        [{"recompute": policy, "recompute_num_layers": layers} for policy, layers in policies],
        [{"vp": vp} for vp in vps],
        points,
    )


@settings(max_examples=40)
@given(cases(), st.data())
def test_an_array_of_plans_is_its_plans_one_at_a_time(case: Case, data: st.DataObject) -> None:
    question = case.question
    plain = replace(case.plan, sharding="zero1", sharding_degree=None, schedule=None, ep=1, etp=1, stage_layers=None)
    axes = data.draw(st.composite(lambda draw: alternatives(draw, case))())
    shape = tuple(len(axis) for axis in axes)
    batches = np.empty(shape, dtype=object)
    for index in product(*(range(length) for length in shape)):
        changes: dict[str, Any] = {}
        for axis, position in zip(axes, index, strict=True):
            changes |= axis[position]
        batches[index] = Batch.of(replace(plain, **changes), question.num_accelerators, question.job)
    vps = [axis["vp"] for axis in axes[2]]
    together = step(question, stacked(batches), side_by_side([kinds_of(question, plain, vp) for vp in vps]))
    for index in product(*(range(length) for length in shape)):
        singly = step(question, batches[index], kinds_of(question, plain, vps[index[2]]))
        for field in fields(Step):
            one = float(getattr(singly, field.name))
            among = float(np.broadcast_to(getattr(together, field.name), shape)[index])
            assert abs(among - one) <= SAME * abs(one), (field.name, index)


@given(cases())
def test_a_batch_of_one_is_the_estimate(case: Case) -> None:
    question, plan = case.question, case.plan
    single = Batch.of(plan, question.num_accelerators, question.job)
    batch = stacked(np.array([single], dtype=object).reshape(1, 1, 1, 1))
    outcome = step(question, batch, pipeline_of(question, plan.pp, plan.vp, plan.stage_layers))
    answer = estimate_plan(question, plan)
    assert np.asarray(outcome.step_time).item() == answer.step_time
    assert np.asarray(outcome.peak_memory_bytes).item() == answer.peak_memory_bytes
    assert np.asarray(outcome.fits).item() is answer.feasible
