"""Tables of a family against the estimate of each of its plans, one at a time."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.examples import SMALL, cluster
from tests.few import few
from tests.planner.small import TIME_OF_ALL, families_of, layout_of, positions, spaces

from shardplan.estimation.estimate import estimate_plan
from shardplan.estimation.perturbation import GROUPS, perturbed, side_by_side
from shardplan.estimation.priced import PricedPlan
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.software import Software
from shardplan.planner.evaluation import Table, evaluate, evaluated
from shardplan.planner.family import Family
from shardplan.planner.listed import Listed, best_plans, listed_of, outcomes
from shardplan.planner.objective import SMALLEST
from shardplan.planner.pricing import cutting
from shardplan.planner.related.counts import can_fit
from shardplan.planner.restrictions import Restrictions
from shardplan.planner.space import Space, declare
from shardplan.planner.survey import survey_of

SAME = 1e-12


def same(one: float, other: float) -> bool:
    return abs(one - other) <= SAME * abs(other)


def listed(table: Table) -> tuple[Listed, list[tuple[int, int, int, int]]]:
    """All plans of a table, and their positions."""
    family = table.family
    every = [*positions(family)]
    rows = [
        (sharding, slot, layout_of(table.tables.layouts, family, vp, point), point)
        for sharding, slot, vp, point in every
    ]
    shardings, slots, layouts, points = np.asarray(rows, dtype=np.intp).T
    return Listed(shardings=shardings, slots=slots, layouts=layouts, points=points), every


def least(family: Family, values: dict[tuple[int, int, int, int], float]) -> NDArray[np.float64]:
    """The smallest value of every cell over its chunks per rank; infinite where it has no plan."""
    best = np.full((len(family.shardings), len(family.policies), family.num_points), np.inf)
    for (sharding, slot, _, point), value in values.items():
        best[sharding, slot, point] = min(best[sharding, slot, point], value)
    return best


@few(6)
@given(spaces(most=4000))
def test_every_cell_is_the_best_of_its_plans_estimated_one_by_one(asked: tuple[Question, Space]) -> None:
    question, space = asked
    for family in families_of(question, space):
        times, memories = evaluate(question, family, TIME_OF_ALL), evaluate(question, family, SMALLEST)
        answers = {position: estimate_plan(question, family.plan(*position)) for position in positions(family)}
        for table, name in ((times, "step_time"), (memories, "peak_memory_bytes")):
            wanted = least(family, {position: getattr(answer, name) for position, answer in answers.items()})
            np.testing.assert_allclose(table.best, wanted, rtol=SAME, atol=0)
        fitting = {position: answer for position, answer in answers.items() if answer.feasible}
        wanted = least(family, {position: answer.step_time for position, answer in fitting.items()})
        for most in (0, cutting.FEW):  # a layout at a time, or several
            with mock.patch.object(cutting, "FEW", most):
                table = evaluate(question, family)
            np.testing.assert_allclose(table.best, wanted, rtol=SAME, atol=0)
            assert table.num_evaluated == times.num_evaluated == len(answers)
            assert table.num_feasible == times.num_feasible == len(fitting)


@few(8)
@given(spaces(most=4000), st.sampled_from((1, 1024)))
def test_plans_are_left_out_for_their_states_only_where_they_need_more_than_the_limit(
    asked: tuple[Question, Space], few_points: int
) -> None:
    """Whether points are many or few."""
    question, space = asked
    for family in families_of(question, space):
        whole = evaluate(question, family, SMALLEST)
        with mock.patch.object(cutting, "FEW", few_points):
            for limit in np.quantile(whole.best[np.isfinite(whole.best)], (0, 0.3, 0.8)).tolist():
                some = evaluated(whole.tables, SMALLEST, most_bytes=limit)
                within = whole.best <= limit
                np.testing.assert_array_equal(some.best[within], whole.best[within])
                assert np.all(some.best >= whole.best)
            assert np.all(np.isinf(evaluated(whole.tables, SMALLEST, most_bytes=0.0).best))


@few(8)
@given(spaces(most=4000))
def test_no_question_with_a_plan_that_fits_is_ruled_out_for_its_states(asked: tuple[Question, Space]) -> None:
    """On accelerators that hold the plan which needs least memory and nothing more."""
    question, space = asked
    tables = [evaluate(question, family, SMALLEST) for family in families_of(question, space)]
    if not tables:
        return
    least, profile = min(float(table.best.min()) for table in tables), question.profile
    memory = (1 + SAME) * least * (1 + profile.fragmentation_when_full) + profile.context_bytes
    part = replace(question.cluster.accelerator, memory_bytes=float(memory))
    allowed = Restrictions(limit={name: space.axes[name] for name in ("offload",) if name in space.axes})
    assert can_fit(replace(question, cluster=replace(question.cluster, accelerator=part)), allowed)


@few(5)
@given(spaces(most=4000))
def test_the_best_plan_of_a_cell_is_the_one_whose_value_the_table_holds(asked: tuple[Question, Space]) -> None:
    question, space = asked
    for family in families_of(question, space):
        for objective, name in ((TIME_OF_ALL, "step_time"), (SMALLEST, "peak_memory_bytes")):
            table = evaluate(question, family, objective)
            cells = [(int(k), int(s), int(p)) for k, s, p in np.argwhere(np.isfinite(table.best))]
            for cell, (plan, value) in zip(cells, best_plans(table.tables, cells, objective), strict=True):
                assert same(value, float(table.best[cell]))
                assert same(float(getattr(estimate_plan(question, plan), name)), value)


@few(6)
@given(spaces(most=4000))
def test_plans_as_columns_are_these_plans_one_at_a_time(asked: tuple[Question, Space]) -> None:
    question, space = asked
    for family in families_of(question, space):
        table = evaluate(question, family)
        plans, every = listed(table)
        together = outcomes(question, table.tables, plans)
        for number, position in enumerate(every):
            priced = PricedPlan.of(question, family.plan(*position))
            assert same(float(np.asarray(together.step_time)[number]), priced.step_time)
            assert same(float(np.asarray(together.peak_memory_bytes)[number]), priced.peak_memory_bytes)
            assert bool(np.asarray(together.fits)[number]) == priced.fits


@few(5)
@given(spaces(most=1000))  # of every plan as many estimates as there are profiles
def test_columns_under_several_profiles_are_each_profile_alone(asked: tuple[Question, Space]) -> None:
    question, space = asked
    for family in families_of(question, space):
        table = evaluate(question, family)
        plans, every = listed(table)
        under = [question, *map(partial(perturbed, question), GROUPS)]
        times = np.asarray(outcomes(side_by_side(question, num_axes=1), table.tables, plans).step_time)
        for row, one in zip(times, under, strict=True):
            for time, position in zip(row.tolist(), every, strict=True):
                assert same(time, PricedPlan.of(one, family.plan(*position)).step_time)


@few(8)
@given(spaces(most=4000))
def test_plans_near_a_limit_are_those_of_all_cells_up_to_it(asked: tuple[Question, Space]) -> None:
    question, space = asked
    for family in families_of(question, space):
        table = evaluate(question, family, TIME_OF_ALL)
        plans, _ = listed(table)
        limit = float(np.median(table.best[np.isfinite(table.best)]))
        near = listed_of(table, table.best <= limit)
        kept = table.best[plans.shardings, plans.slots, plans.points] <= limit
        wanted = {row for row, is_kept in zip(rows_of(plans), kept.tolist(), strict=True) if is_kept}
        assert sorted(rows_of(near)) == sorted(wanted)


def rows_of(plans: Listed) -> list[tuple[int, ...]]:
    columns = [getattr(plans, field.name).tolist() for field in fields(Listed)]
    return list(zip(*columns, strict=True))


def test_gradients_come_late_only_where_the_sharding_lets_them() -> None:
    """One micro-batch, in software that frees them: tables of several shardings hold what each of them needs."""
    job = Job(sequence_length=2048, global_batch_size=8, software=Software(frees_gradients=True))
    question = Question(model=SMALL, cluster=cluster(), num_accelerators=8, job=job)
    shardings = ("ddp", "zero1", "zero2", "zero3")
    found = declare(question, Restrictions(limit={"sharding": shardings, "tp": (1,), "pp": (1,), "cp": (1,)}))
    survey = survey_of(question, found).under(SMALLEST)
    for table in survey.tables:
        cells = [(int(k), int(s), int(p)) for k, s, p in np.argwhere(np.isfinite(table.best))]
        for cell, (plan, _) in zip(cells, best_plans(table.tables, cells, SMALLEST), strict=True):
            assert same(table.best[cell], estimate_plan(question, plan).peak_memory_bytes), plan
