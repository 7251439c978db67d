"""Questions answered together as each alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import GB, accelerator, cluster, llama, mixtral, tier
from tests.few import few
from tests.launch.audit.audits import audited
from tests.planner.brute_force import priced
from tests.planner.small import alike, families_of, limits, spaces
from tests.planner.test_brute_force import tight

import shardplan
from shardplan import SearchAnswer, search_many
from shardplan.base.errors import InputError, ShardplanError
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.planner.evaluation import with_chunks
from shardplan.planner.family import KnownPipelines
from shardplan.planner.pricing.cutting import pieces_of
from shardplan.planner.pricing.pairs import Pairs, least_times
from shardplan.planner.pricing.tables import Tables
from shardplan.planner.pruning.bounds import ROUNDING, least_of_exchanges
from shardplan.planner.related.side_by_side import MOST_SYSTEMS, Slice
from shardplan.planner.related.together import best_together, estimates_of
from shardplan.planner.result import SearchResult
from shardplan.planner.scope import Scope
from shardplan.planner.search import search_question
from shardplan.planner.space import Space
from shardplan.planner.stopping import Deadline, SearchStopped


def _alone(asked: Question, limit: dict[str, list[Any]]) -> tuple[object, object, int]:
    """Of a search of its own: the fastest plan, the recommended plan and how many there are."""
    found = search_question(asked, top=1, limit=limit, suggestions=False, use_all=True)
    return (found.estimates[0] if found.estimates else None), found.recommended, found.num_plans_evaluated


def _together(asked: list[Question], limit: dict[str, list[Any]]) -> list[tuple[object, object, int]]:
    """The same of questions that are answered together."""
    found = best_together(asked, Scope(limit=limit), with_recommended=True)
    fastest, recommended = (
        estimates_of(asked, plans, None) for plans in zip(*(each[:2] for each in found), strict=True)
    )
    for plan, estimate in [*zip((each.fastest for each in found), fastest, strict=True)]:
        assert (plan is None) == (estimate is None)
        if plan is not None and estimate is not None:
            assert plan.step_time == pytest.approx(estimate.step_time, rel=1e-12)
            assert plan.peak_memory_bytes == pytest.approx(estimate.peak_memory_bytes, rel=1e-12)
    alone = best_together(asked, Scope(limit=limit))
    assert [each.fastest for each in alone] == [each.fastest for each in found]
    assert {each.recommended for each in alone} == {None}
    return [*zip(fastest, recommended, (each.num_plans for each in found), strict=True)]


@few(10)
@given(alike(), limits())
def test_each_answer_is_that_of_a_search(asked: list[Question], limit: dict[str, list[Any]]) -> None:
    """Plan, ties broken alike, every number and every sentence."""
    try:
        expected = [_alone(each, limit) for each in asked]
    except ShardplanError as error:
        with pytest.raises(type(error)):
            best_together(asked, Scope(limit=limit))
        return
    with pytest.MonkeyPatch.context() as patch:  # many small pieces, so that earlier ones bound later ones
        patch.setattr("shardplan.planner.pricing.cutting.CELLS", 16)
        patch.setattr("shardplan.planner.pricing.cutting.FEW", 4)
        found = _together(asked, limit)
    assert found == expected


def test_capacities_and_networks_decide() -> None:
    """Every network has several fastest plans, and one capacity in which nothing fits; more networks than at a time."""
    capacities, networks = (80.0, 12.0, 6.0, 3.0, 1.5), [2.0 + 3 * n for n in range(MOST_SYSTEMS + 1)]
    asked = [_of_size(question(network=network), memory) for network in networks for memory in capacities]
    found = _together(asked, LIMIT)
    for number in (0, 1, 2, 3, 4, 41, 42, len(asked) - 3, len(asked) - 1):
        assert found[number] == _alone(asked[number], LIMIT)
    fastest = [each for each, *_ in found[: len(capacities)]]
    assert len({getattr(each, "plan", None) for each in fastest}) > 2
    assert fastest[-1] is None


@pytest.mark.parametrize("cells", [64, 4096])
def test_what_bounds_leave_out_is_slower(monkeypatch: pytest.MonkeyPatch, cells: int) -> None:
    """Of a space of thousands of plans in pieces, of which earlier ones bound later ones."""
    monkeypatch.setattr("shardplan.planner.pricing.cutting.CELLS", cells)
    monkeypatch.setattr("shardplan.planner.pricing.cutting.FEW", 4)
    limit = LIMIT | {"tp": [1, 2, 4, 8], "micro_batch_size": [1, 2, 4], "sharding": ["ddp", "zero1", "zero3"]}
    asked = [_of_size(question(64, network=n), memory) for n in (0.5, 5, 50) for memory in (80.0, 6.0, 2.5)]
    assert _together(asked, limit) == [_alone(each, limit) for each in asked]


def _of_size(asked: Question, memory: float) -> Question:
    part = replace(asked.cluster.accelerator, memory_bytes=memory * GB)
    return replace(asked, cluster=replace(asked.cluster, accelerator=part))


@few(6)
@given(spaces(most=2000))
def test_no_plan_is_faster_than_its_bounds(case: tuple[Question, Space]) -> None:
    """Micro-batches on a mean stage, their exchanges alone, and those on the slowest with the bubble."""
    asked, space = case
    for family in families_of(asked, space):
        tables = Tables(question=asked, family=family, known=KnownPipelines())
        exchanges = least_of_exchanges(tables)
        for at, pieces in pieces_of(tables):
            least = tables.least_passes_at(at.points, at.slots)
            for sharding, step in ((sharding, piece.step(sharding)) for piece in pieces for sharding in at.shardings):
                assert np.all(least <= step.busiest * (1 + 1e-12))
                assert np.all(exchanges[sharding, at.points] <= step.step_time * (1 + 1e-12))
                assert np.all(step.work.least_busy <= step.busiest)


WORSE = st.tuples(st.sampled_from((1.0, 0.5, 0.03)), st.sampled_from((1.0, 4.0, 30.0)))
"""Factors on bandwidth and latency."""


def _on(asked: Question, bandwidth: float, latency: float) -> Question:
    """``asked`` with these factors on the rates of its outermost tier."""
    *inner, tier = asked.cluster.tiers
    tier = replace(tier, bandwidth=tier.bandwidth * bandwidth, latency=tier.latency * latency)
    return replace(asked, cluster=replace(asked.cluster, tiers=(*inner, tier)))


@few(8)
@given(spaces(most=1000), st.lists(WORSE, min_size=1, max_size=3))
def test_no_pipeline_is_faster_than_on_the_best_network(
    case: tuple[Question, Space], worse: list[tuple[float, float]]
) -> None:
    """Whatever its sharding."""
    asked, space = case
    beside = Slice.of([*(_on(asked, *each) for each in worse), asked])
    assert beside.best is not None
    for family in families_of(asked, space):
        tables = Tables(question=beside.joint, family=family, known=KnownPipelines())
        slots, points = np.nonzero(family.recomputes)
        plans, _ = with_chunks(tables, np.zeros_like(slots), slots, points)
        times = [
            least_times(tables, Pairs(np.full(len(plans), system), plans.slots, plans.layouts, plans.points))
            for system in range(len(beside.of_systems))
        ]
        assert np.all(times[beside.best] <= np.asarray(times) * (1 + ROUNDING))


def test_the_best_network_is_the_best_in_every_respect() -> None:
    """Or there is none; on other accelerators plans take another time."""
    asked = question(64)
    assert Slice.of([_on(asked, 0.5, 1.0), _on(asked, 2.0, 0.5), asked]).best == 1
    assert Slice.of([_on(asked, 2.0, 2.0), asked]).best is None
    part = replace(asked.cluster.accelerator, memory_bandwidth=asked.cluster.accelerator.memory_bandwidth / 2)
    other = replace(asked, cluster=replace(asked.cluster, accelerator=part))
    assert Slice.of([_on(asked, 2.0, 0.5), other]).best is None


MODEL = llama(1024, 10, 8, 8, 4096)
LIMIT: dict[str, list[Any]] = {
    "tp": [1, 2], "cp": [1], "pp": [1, 2, 4], "vp": [1, 2], "micro_batch_size": [1, 2], "sharding": ["zero1"],
    "recompute": ["none", "full"], "recompute_num_layers": [None],
}  # fmt: skip


def question(num_accelerators: int = 8, *, network: float = 50, sequences: int = 64, model: Any = MODEL) -> Question:
    on = cluster(tier("node", 4, 450), tier("network", None, network), part=accelerator(memory_bytes=80 * GB))
    job = Job(sequence_length=2048, global_batch_size=sequences)
    return Question(model=model, cluster=on, num_accelerators=num_accelerators, job=job)


QUESTIONS = [
    question(), question(16), question(network=5), question(sequences=128), question(model=mixtral()),
    question(model=replace(MODEL, layers=MODEL.layers[:7])), question(16, network=400),
]  # fmt: skip


def _same(together: SearchAnswer, alone: SearchAnswer) -> None:
    """Every field but the time that a search took, and functions, of which one is asked."""
    for each in fields(SearchAnswer):
        if each.compare and each.name != "search_time":
            assert getattr(together, each.name) == getattr(alone, each.name), each.name
    assert together.recommended == alone.recommended
    assert together.fastest == alone.fastest
    assert together.best_where(tp=1) == alone.best_where(tp=1)
    assert together.to_rows() == alone.to_rows()


@pytest.mark.parametrize("top", [1, 3])
def test_many_questions_have_the_answers_of_each(top: int) -> None:
    """In their order, also where they differ in the model, whose pipelines they do not share then."""
    for one, together in zip(QUESTIONS, search_many(QUESTIONS, top=top, limit=LIMIT, stack=None), strict=True):
        assert together.question is one
        alone = SearchAnswer.of(search_question(one, top=top, limit=LIMIT, suggestions=False, use_all=True))
        _same(together, alone)


@few(6)
@given(st.data())
def test_all_that_is_read_of_an_answer_is_what_its_own_search_gives(data: st.DataObject) -> None:
    """Of the first question and the last: what is not answered together is searched for by each alone."""
    asked, limit = data.draw(alike()), data.draw(limits())
    try:
        alone = {
            place: SearchAnswer.of(search_question(asked[place], top=1, limit=limit, suggestions=False, use_all=True))
            for place in {0, len(asked) - 1}
        }
    except shardplan.ShardplanError as error:
        with pytest.raises(type(error)):
            next(search_many(asked, limit=limit, stack=None))
        return
    together = [*search_many(asked, limit=limit, stack=None)]
    assert len(together) == len(asked)
    for place, one in alone.items():
        _same(together[place], one)


def test_what_is_read_of_a_found_plan_needs_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fastest plan, that to take and their estimates; a search is made once, where something else is read."""
    made: list[Question] = []

    def counted(asked: Question, **given: Any) -> SearchResult:
        made.append(asked)
        return search_question(asked, **given)

    monkeypatch.setattr("shardplan.api.many.search_question", counted)
    (answer,) = search_many([question()], limit=LIMIT, stack=None)
    assert answer.found_fastest is not None
    assert answer.fastest is not None
    assert answer.fastest.step_time == pytest.approx(answer.found_fastest.step_time, rel=1e-12)
    assert answer.estimates
    assert answer.recommended is not None
    assert answer.suggestions == ()
    assert not made
    assert answer.ties is not None
    assert answer.num_plans_feasible > 0
    assert made == [question()]


def test_a_question_without_an_answer_has_no_suggestions_among_many() -> None:
    small = replace(question(), cluster=cluster(part=accelerator(memory_bytes=3 * GB)))
    (answer,) = search_many([small], limit=LIMIT, stack=None)
    assert answer.estimates == ()
    assert answer.suggestions == ()
    assert answer.num_plans_evaluated > answer.num_plans_feasible == 0


def test_questions_are_read_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardplan.api.many.MOST_AHEAD", 3)
    read: list[Question] = []

    def posed() -> Iterator[Question]:
        for each in QUESTIONS:
            read.append(each)
            yield each

    answers = search_many(posed(), limit=LIMIT, stack=None)
    assert next(answers).question is QUESTIONS[0]
    assert read == QUESTIONS[:3]
    assert [each.question for each in answers] == QUESTIONS[1:]


def test_questions_before_a_wrong_one_are_answered() -> None:
    answers = search_many([question(), {"model": "llama-3.2-1b"}, question()], limit=LIMIT, stack=None)
    assert next(answers).found_fastest is not None
    with pytest.raises(InputError, match="cluster"):
        next(answers)


def test_a_stopped_search_has_given_the_answers_before_it() -> None:
    found: list[SearchResult] = []

    def read() -> None:
        for answer in search_many(QUESTIONS, limit=LIMIT, stack=None, stop=lambda: len(found) >= 2):
            found.append(answer)  # noqa: PERF402  # each before the next is looked for

    with pytest.raises(SearchStopped):
        read()
    assert [answer.question for answer in found] == QUESTIONS[:3]  # the third is answered with the first


def test_no_time_is_no_search() -> None:
    with pytest.raises(SearchStopped, match="stopped"):
        search_question(question(), limit=LIMIT, stop=Deadline(0))
    with pytest.raises(SearchStopped):
        next(search_many([question()], limit=LIMIT, stack=None, stop=Deadline(0)))
    asked = question()
    with pytest.raises(shardplan.ShardplanError):
        shardplan.search(asked.model, asked.cluster, 8, job=asked.job, stop=Deadline(0))


def test_enough_time_changes_nothing() -> None:
    in_time, free = (search_question(question(), limit=LIMIT, stop=stop) for stop in (Deadline(3600), None))
    assert [answer.plan for answer in in_time.estimates] == [answer.plan for answer in free.estimates]


@pytest.mark.parametrize(
    ("schedules", "vp"),
    [
        (["zb-h1", "1f1b"], [1]), (["zb-h2"], [1]), (["zb-v"], [2]), (["dualpipe"], [1]), (["dualpipe-v"], [2]),
        (["gpipe", "dualpipe"], [1]), (["interleaved", "breadth-first"], [2]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("model", [MODEL, mixtral()], ids=["dense", "experts"])
def test_schedules_in_a_search_are_those_of_single_plans(schedules: list[str], vp: list[int], model: Any) -> None:
    """Counts of all plans, and the best of them one by one; depths of which none or some suit the schedule."""
    asked = question(8, sequences=64, model=model)
    limit = LIMIT | {"schedule": schedules, "vp": vp, "pp": [2, 4], "placement": ["tp-cp-ep-dp-pp"]}
    limit |= {"ep": [1, 2], "etp": [1]} if model.is_moe else {}
    singly = priced(asked, limit)
    asked = tight(asked, singly)
    assert {answer.plan.schedule for answer in singly} == set(schedules)
    found = search_question(asked, limit=limit)
    fitting = [answer for answer in singly if answer.peak_memory_bytes <= float(asked.usable_memory)]
    assert found.num_plans_evaluated == len(singly)
    assert found.num_plans_feasible == len(fitting)
    assert found.estimates[0].step_time == pytest.approx(min(each.step_time for each in fitting), rel=1e-12)
    for answer in found.estimates:
        (same,) = (each for each in singly if each.plan == answer.plan)
        assert same.step_time == pytest.approx(answer.step_time, rel=1e-12)
        assert same.peak_memory_bytes == pytest.approx(answer.peak_memory_bytes, rel=1e-12)


def test_questions_may_be_mappings_and_are_answered_as_search_answers_them() -> None:
    asked = {"model": "llama-3.2-1b", "cluster": "dgx-h100", "num_accelerators": 8, "sequence_length": "2k"}
    limit = {"tp": [1, 2], "pp": [1]}
    one, other = search_many([asked, {**asked, "stack": "torchtitan"}], limit=limit)
    for found, stack in ((one, "megatron-lm"), (other, "torchtitan")):
        alone = shardplan.search(**asked, limit=limit, stack=stack, top=1, use_all=True)  # type: ignore[arg-type]  # a mapping
        assert found.recommended is not None
        assert alone.recommended is not None
        assert found.recommended.plan == alone.recommended.plan
        assert found.recommended.framework == alone.recommended.framework
        assert found.question == alone.question
    assert any("as is usual on NVIDIA" in text for text in one.estimates[0].assumptions)


@pytest.mark.parametrize("asked", [{"model": "llama-3.2-1b"}, {}, "llama-3.2-1b", 3])
def test_what_is_no_question_is_refused(asked: Any) -> None:
    with pytest.raises(InputError):
        next(search_many([asked]))


def test_a_search_is_stopped_while_it_looks_for_what_would_fit() -> None:
    calls: list[bool] = []

    def counted() -> bool:
        calls.append(True)
        return False

    nothing_fits = {"num_accelerators": 1, "global_batch_size": 8}
    survey = shardplan.search("llama-3.1-70b", "dgx-h100", **nothing_fits, stop=counted)  # type: ignore[arg-type]
    assert survey.suggestions
    for last in (1, len(calls) // 2, len(calls)):
        done: list[bool] = []

        def stop(done: list[bool] = done, last: int = last) -> bool:
            done.append(True)
            return len(done) >= last

        with pytest.raises(SearchStopped):
            shardplan.search("llama-3.1-70b", "dgx-h100", **nothing_fits, stop=stop)  # type: ignore[arg-type]
        assert len(done) == last


def test_an_audit_is_stopped_while_it_looks_for_what_is_better(tmp_path: Path) -> None:
    script = tmp_path / "launch.sh"
    script.write_text("torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 4 --bf16\n")
    asked = {"model": "llama-3.2-1b", "cluster": "dgx-h100", "num_accelerators": 8}
    given = {"micro_batch_size": 1, "global_batch_size": 8, "sequence_length": 4096}
    assert audited(script, **asked, given=given).estimate is not None
    with pytest.raises(SearchStopped):
        audited(script, **asked, given=given, stop=Deadline(0))
