"""Tables of plans: rows, layouts, samples and outcomes, each as that of the plan alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from functools import partial
from itertools import product
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.examples import LLAMA_405B, SMALL, cluster, deepseek_v3
from tests.few import few
from tests.planner.small import TIME_OF_ALL, evaluate, families_of, layout_of, positions, questions, spaces

from shardplan.api.questions import ask
from shardplan.estimation.estimate import estimate_plan, estimate_plans, price_plans
from shardplan.estimation.perturbation import GROUPS, perturbed, side_by_side
from shardplan.estimation.priced import PricedPlan
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.software import Software
from shardplan.physics.validity import check_plans
from shardplan.physics.workload.stage import Stage, kinds_of_stage, stages
from shardplan.planner.evaluation import Listed, Table, best_plans, evaluated, listed_of, outcomes
from shardplan.planner.family import Family, KnownPipelines, Layouts
from shardplan.planner.points import families
from shardplan.planner.pricing import cutting
from shardplan.planner.pricing.cutting import STEP, priced_together
from shardplan.planner.pricing.numbers import ALONE, Rows
from shardplan.planner.pricing.pieces import SMALLEST
from shardplan.planner.related.counts import can_fit
from shardplan.planner.restrictions import Restrictions
from shardplan.planner.result import SearchResult
from shardplan.planner.search import search_question
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
        every = [*positions(family)]
        priced = price_plans(question, [family.plan(*position) for position in every])
        answers = dict(zip(every, priced, strict=True))
        for table, name in ((times, "step_time"), (memories, "peak_memory_bytes")):
            wanted = least(family, {position: getattr(answer, name) for position, answer in answers.items()})
            np.testing.assert_allclose(table.best, wanted, rtol=SAME, atol=0)
        fitting = {position: answer for position, answer in answers.items() if answer.fits}
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
            found = best_plans(table.tables, cells, objective)
            priced = price_plans(question, [plan for plan, _ in found])
            for cell, (_, value), alone in zip(cells, found, priced, strict=True):
                assert same(value, float(table.best[cell]))
                assert same(float(getattr(alone, name)), value)


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
            priced = price_plans(one, [family.plan(*position) for position in every])
            assert all(same(time, alone.step_time) for time, alone in zip(row.tolist(), priced, strict=True))


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


some = st.lists(st.integers(0, 30), min_size=1, max_size=12, unique=True).map(sorted)


def columns(lists: list[list[int]]) -> list[np.ndarray[tuple[int], np.dtype[np.intp]]]:
    return [np.asarray(each, dtype=np.intp) for each in lists]


@given(st.data())
def test_every_pair_of_a_depth_has_a_row_of_its_own(data: st.DataObject) -> None:
    depths = data.draw(some)
    held = [data.draw(some) for _ in depths]
    priced = [data.draw(some) for _ in depths]
    rows = Rows.of(depths, columns(held), columns(priced))
    wanted = [(depth, *pair) for depth, h, k in zip(depths, held, priced, strict=True) for pair in product(h, k)]
    at = rows.at(*columns([list(each) for each in zip(*wanted, strict=True)]))
    assert sorted(at.tolist()) == list(range(len(rows.keys)))
    assert rows.compositions[at].tolist() == [composition for _, composition, _ in wanted]
    assert rows.keys[at].tolist() == [key for _, _, key in wanted]


@given(st.lists(st.integers(1, 3 * ALONE), min_size=1, max_size=6), st.sampled_from((64, ALONE, 4 * ALONE)))
def test_pieces_are_all_rows_in_order_and_long_compositions_are_alone(sizes: list[int], length: int) -> None:
    held = columns([[number] for number in range(len(sizes))])
    rows = Rows.of(range(len(sizes)), held, columns([list(range(size)) for size in sizes]))
    pieces = [*rows.pieces(length)]
    assert [piece.start for piece in pieces] == [0, *(piece.stop for piece in pieces[:-1])]
    assert pieces[-1].stop == len(rows.keys)
    for piece in pieces:
        held_here = rows.compositions[piece]
        different = set(held_here.tolist())
        assert len(different) == 1 or all(sizes[number] < ALONE for number in different)
        assert len(held_here) <= max(length, ALONE - 1)


def test_large_sets_that_differ_are_priced_alone_and_small_ones_with_others() -> None:
    """Of two large sets each would be priced with what the other alone has; that costs more than a piece of work."""
    slots = np.asarray([[1, 0, 0, 0], [0, 1, 1, 1], [1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 1]], dtype=bool)
    shardings = np.asarray([[1, 1], [1, 1], [1, 1], [1, 0], [0, 1]], dtype=bool)
    sizes = np.asarray([10 * STEP, 10 * STEP, STEP // 2, 7, 7])
    assert priced_together(slots, shardings, sizes).tolist() == [1, 2, 1, 0, 0]


def test_sets_of_few_plans_are_one() -> None:
    sets = np.asarray(list(product([False, True], repeat=4)))
    assert set(priced_together(sets, sets, np.full(len(sets), 3)).tolist()) == {0}


def laid_out(model: ModelConfig, num_accelerators: int, **limit: list[int]) -> tuple[Family, Layouts]:
    job = Job(sequence_length=4096, global_batch_size=2048)
    question = Question(model=model, cluster=cluster(), num_accelerators=num_accelerators, job=job)
    (family,) = families(question, declare(question, Restrictions(limit=limit)), Counter())
    return family, Layouts.of(question, family, KnownPipelines())


def parts_of(stage: Stage) -> list[float]:
    """Everything that a single stage holds."""
    parts = (stage.num_layers, *stage.counts, stage.has_embedding, stage.has_head, stage.num_mtp_layers)
    return [float(part) for part in parts]


def columns_of(stage: Stage, length: int) -> list[list[float]]:
    """The same of each stage of an array."""
    parts = (stage.num_layers, *stage.counts, stage.has_embedding, stage.has_head, stage.num_mtp_layers)
    return np.stack([np.broadcast_to(np.asarray(part, dtype=float), (length,)) for part in parts], axis=1).tolist()


def ranks_of(stage: Stage, length: int) -> list[float]:
    ranks: list[float] = np.broadcast_to(np.asarray(stage.rank, dtype=float), (length,)).tolist()
    return ranks


@few(10)
@given(questions())
def test_every_layout_has_the_kinds_of_stage_of_its_pipeline(question: Question) -> None:
    for family in families_of(question, declare(question, Restrictions())):
        layouts = Layouts.of(question, family, KnownPipelines())
        pipelines = [(pp, vp) for pp, vps in zip(family.depths, family.vps, strict=True) for vp in vps]
        assert layouts.vp.tolist() == [vp for _, vp in pipelines]
        for layout, (pp, vp) in enumerate(pipelines):
            kinds = kinds_of_stage(stages(question.model, pp, vp))
            assert layouts.num_kinds[layout] == len(kinds)
            for kind, single in enumerate(kinds):
                among = np.asarray([layout])
                composed = layouts.composed(layouts.composition[among, kind])
                assert columns_of(composed, 1) == [parts_of(single)]
                stage = layouts.stage(among, kind)
                assert ranks_of(stage, 1) == [single.rank]
                assert (stage.num_layers, stage.has_head) == (single.num_layers, single.has_head)


@few(10)
@given(questions())
def test_layouts_of_one_depth_lie_together(question: Question) -> None:
    for family in families_of(question, declare(question, Restrictions())):
        layouts = Layouts.of(question, family, KnownPipelines())
        for depth, vps in enumerate(family.vps):
            first = int(layouts.first[depth])
            assert layouts.vp[first : first + len(vps)].tolist() == sorted(vps)
        assert len(layouts.vp) == sum(map(len, family.vps))


@few(10)
@given(questions())
def test_no_composition_is_there_twice(question: Question) -> None:
    for family in families_of(question, declare(question, Restrictions())):
        compositions = Layouts.of(question, family, KnownPipelines()).compositions
        assert len(np.unique(compositions, axis=1).T) == compositions.shape[1]


def test_llama_405b_on_16_stages_has_three_kinds() -> None:
    """arXiv 2407.21783, section 3.3.2: the first and the last stage hold a layer less, and embedding or head."""
    _, layouts = laid_out(LLAMA_405B, 128, pp=[16], vp=[1], tp=[8])
    (row,) = layouts.composition
    assert layouts.num_kinds.tolist() == [3]
    assert layouts.rank.tolist() == [[0, 1, 15]]
    assert columns_of(layouts.composed(row), 3) == [[7, 7, 1, 0, 0], [8, 8, 0, 0, 0], [7, 7, 0, 1, 0]]


def test_stages_of_different_pipelines_share_a_composition() -> None:
    """Eight stages of 7 or 8 layers with experts: the middle ones of DeepSeek-V3 on 8 stages are all alike."""
    family, layouts = laid_out(deepseek_v3(), 64, pp=[4, 8], vp=[1], tp=[1])
    assert family.depths == (4, 8)
    used = np.unique(layouts.composition)
    assert len(used) <= int(layouts.num_kinds.sum())
    held = layouts.composed(used)
    assert np.asarray(held.has_head).sum() == np.asarray(held.has_embedding).sum() == 2


def test_what_all_listed_stages_share_is_a_number() -> None:
    _, layouts = laid_out(LLAMA_405B, 128, pp=[8, 16], vp=[1], tp=[8])
    first = layouts.stage(np.asarray([0, 1, 0]), 0)
    assert first.rank == 0
    assert first.has_embedding == 1
    assert isinstance(first.has_head, float)
    assert np.asarray(first.num_layers).tolist() == [15, 7, 15]


MOST = 400


@pytest.fixture(scope="module", params=["llama-3.1-8b", "mixtral-8x7b"])
def result(request: pytest.FixtureRequest) -> SearchResult:
    return search_question(ask(request.param, "dgx-h100", 64, stack=None).question, suggestions=False)


def test_plans_are_valid_different_and_no_more_than_asked_for(result: SearchResult) -> None:
    sample, asked = result.sample(MOST), result.question
    assert sample is not None
    plans = [sample.plan(index) for index in range(len(sample))]
    assert 0.9 * MOST <= len(set(plans)) == len(plans) <= MOST + len(sample.parts)
    for plan in plans:
        check_plans((plan,), asked.setting)


def test_numbers_are_those_of_the_estimate(result: SearchResult) -> None:
    sample = result.sample(MOST)
    assert sample is not None
    places = range(0, len(sample), 40)
    for place, estimate in zip(
        places, estimate_plans(result.question, [sample.plan(place) for place in places]), strict=True
    ):
        assert sample.step_time[place] == pytest.approx(estimate.step_time, rel=1e-9)
        assert sample.peak_memory_bytes[place] == pytest.approx(estimate.peak_memory_bytes, rel=1e-9)
        assert sample.fits[place] == estimate.feasible


def test_no_sampled_plan_that_fits_is_faster_than_the_best(result: SearchResult) -> None:
    sample = result.sample(MOST)
    assert sample is not None
    assert sample.step_time[sample.fits].min() >= result.estimates[0].step_time * (1 - 1e-9)


def test_the_same_seed_draws_the_same_plans(result: SearchResult) -> None:
    first, again = result.sample(MOST), result.sample(MOST)
    assert first is not None
    assert again is not None
    assert np.array_equal(first.step_time, again.step_time)
