"""The search against the plain way: every plan of a small space checked and estimated on its own."""

from __future__ import annotations

import itertools
import math
import pickle
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import GB, LLAMA_70B, SMALL, accelerator, cluster, llama, tier
from tests.few import few
from tests.planner.small import TIME_OF_ALL, evaluate
from tests.strategies import clusters, jobs, models

from shardplan import search
from shardplan.base.arrays import divisors
from shardplan.base.errors import InputError, UnknownNameError
from shardplan.estimation.estimate import Estimate, estimate_plan, estimate_plans, price_plans
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import Setting
from shardplan.physics.validity import broken_rules
from shardplan.planner.evaluation import Listed, best_plans, outcomes
from shardplan.planner.points import families
from shardplan.planner.restrictions import Restrictions
from shardplan.planner.search import search_question
from shardplan.planner.space import declare


def question(num_accelerators: int = 16, *, memory: float = 80 * GB, batch: int = 64, **changes: Any) -> Question:
    job = Job(sequence_length=2048, global_batch_size=batch)
    fields: dict[str, Any] = {"model": SMALL, "cluster": cluster(part=accelerator(memory_bytes=memory)), "job": job}
    return Question(num_accelerators=num_accelerators, **(fields | changes))


def valid_plans(asked: Question, candidates: dict[str, list[Any]]) -> list[Plan]:
    """Every valid plan of a product of candidates, the slow way."""
    setting = Setting.of(asked.model, asked.cluster, asked.num_accelerators, asked.job)
    every = [Plan(**dict(zip(candidates, values, strict=True))) for values in itertools.product(*candidates.values())]
    plans = [plan for plan in every if plan.pp > 1 or plan.vp == 1]
    return [plan for plan, rule in zip(plans, broken_rules(setting, plans), strict=True) if rule is None]


CANDIDATES: dict[str, list[Any]] = {
    "tp": [1, 4, 8],
    "cp": [1, 2],
    "pp": [1, 2, 4],
    "vp": [1, 2],
    "micro_batch_size": [1, 2],
    "sharding": ["ddp", "zero3"],
    "recompute": ["none", "layernorm,activation", "full"],
}


def test_the_best_plan_is_the_best_of_all_estimated_one_by_one() -> None:
    """Where some fit and some do not."""
    asked = question(memory=2.6 * GB)
    placement = ["tp-cp-ep-dp-pp"]
    limit = {**CANDIDATES, "placement": placement, "recompute_num_layers": [None]}
    result = search_question(asked, limit=limit, top=1)
    # Without replicas all shardings are one plan, which the search counts once.
    valid = valid_plans(asked, CANDIDATES)
    plans = [plan for plan in valid if asked.num_accelerators > plan.tp * plan.pp or plan.sharding == "ddp"]
    fitting = [each for each in price_plans(asked, plans) if each.fits]
    assert 0 < len(fitting) < len(plans)
    assert result.num_plans_evaluated == len(plans)
    assert result.num_plans_feasible == len(fitting)
    best = min(fitting, key=lambda each: each.step_time)
    assert result.estimates[0].step_time == pytest.approx(best.step_time, rel=1e-12)
    assert estimate_plan(asked, best.plan).step_time == pytest.approx(best.step_time, rel=1e-12)


def test_evaluated_and_rejected_plans_make_up_the_declared_space() -> None:
    asked = question()
    limit = {**CANDIDATES, "placement": ["tp-cp-ep-dp-pp"], "recompute_num_layers": [None], "pp": [2, 4]}
    result = search_question(asked, limit=limit, top=1)
    declared = math.prod(len(values) for values in limit.values())
    assert result.num_plans_evaluated + sum(result.rejected.values()) == declared


@pytest.mark.parametrize(
    ("restriction", "rule"),
    [
        ({"recompute": ["moe"]}, "recomputed modules exist in the model"),
        ({"pp": [16]}, "every stage has layers"),
        ({"vp": [40]}, "every stage has layers"),
        ({"dp": [5]}, "dp is one of those asked for"),
        ({"schedule": ["interleaved"], "pp": [1]}, "interleaving has whole groups of micro-batches"),
    ],
)
def test_where_no_plan_is_valid_the_rule_is_counted(restriction: dict[str, Any], rule: str) -> None:
    result = search_question(question(), limit=restriction, top=1)
    assert result.num_plans_evaluated == 0
    assert result.rejected[rule] > 0


def test_what_a_field_loses_to_a_rule_is_counted() -> None:
    limit = {**CANDIDATES, "placement": ["tp-cp-ep-dp-pp"], "recompute_num_layers": [None], "pp": [2, 4]}
    limit |= {"recompute": ["none", "moe"], "vp": [1, 2, 40]}
    result = search_question(question(), limit=limit, top=1)
    assert result.num_plans_evaluated
    assert result.num_plans_evaluated + sum(result.rejected.values()) == math.prod(map(len, limit.values()))


@few(8)
@given(st.data())
def test_arrays_and_one_plan_at_a_time_agree(data: st.DataObject) -> None:
    """A plan drawn from the whole default space (small spaces, every plan of them: ``test_evaluation``)."""
    model = data.draw(models())
    n = data.draw(st.sampled_from((1, 4, 8, 24, 48)))
    job = data.draw(jobs(n * data.draw(st.sampled_from((1, 4, 6)))))
    asked = Question(model=model, cluster=data.draw(clusters()), num_accelerators=n, job=job)
    limit = {"offload": [data.draw(st.sampled_from(("none", "optimizer", "activations")))]}
    for family in families(asked, declare(asked, Restrictions(limit=limit)), Counter()):
        table = evaluate(asked, family, TIME_OF_ALL)
        cells = np.argwhere(np.isfinite(table.best))
        sharding, slot, point = (int(i) for i in cells[data.draw(st.integers(0, len(cells) - 1))])
        ((plan, value),) = best_plans(table.tables, [(sharding, slot, point)], TIME_OF_ALL)
        answer = estimate_plan(asked, plan)
        assert value == pytest.approx(answer.step_time, rel=1e-12)
        assert table.best[sharding, slot, point] == pytest.approx(answer.step_time, rel=1e-12)
        depth = int(family.points["depth"][point])
        layout = int(table.tables.layouts.first[depth]) + family.vps[depth].index(plan.vp)
        index = ([sharding], [slot], [layout], [point])
        listed = Listed(**dict(zip(("shardings", "slots", "layouts", "points"), map(np.asarray, index), strict=True)))
        step = outcomes(asked, table.tables, listed)
        assert np.asarray(step.peak_memory_bytes).item() == pytest.approx(answer.peak_memory_bytes, rel=1e-12)


@pytest.mark.parametrize("kinds", [*itertools.permutations(("hsdp", "zero2", "zero1"))])
def test_the_order_of_candidates_does_not_matter(kinds: tuple[str, ...]) -> None:
    """Also without replicas, where the first that is valid stands for all."""
    asked, limit = question(8), {"tp": [4, 8], "pp": [1, 2], "cp": [1]}
    found, sorted_ = (search_question(asked, limit={**limit, "sharding": order}) for order in (kinds, sorted(kinds)))
    assert found.num_plans_evaluated == sorted_.num_plans_evaluated > 0
    assert found.num_plans_feasible == sorted_.num_plans_feasible > 0
    assert found.estimates[0].step_time == sorted_.estimates[0].step_time


def test_every_estimate_of_a_result_fits_and_they_come_best_first() -> None:
    result = search_question(question(memory=4 * GB), top=20)
    times = [answer.step_time for answer in result.estimates]
    assert times == sorted(times)
    assert all(answer.feasible for answer in result.estimates)
    assert len(times) == 20


def test_top_plans_differ_in_their_degrees() -> None:
    result = search_question(question(64), top=10)
    degrees = [(a.plan.tp, a.plan.cp, a.plan.pp, a.plan.ep, a.plan.etp) for a in result.estimates]
    assert len(set(degrees)) == 10


def test_where_degrees_are_few_top_plans_differ_in_other_fields() -> None:
    result = search_question(question(1), top=5)
    assert len({answer.plan for answer in result.estimates}) == 5


def test_top_of_more_than_there_are_gives_all() -> None:
    result = search_question(question(1), top=10_000)
    assert 1 < len(result.estimates) <= result.num_plans_feasible


FEWER: dict[str, list[Any]] = {"cp": [1, 2], "sharding": ["ddp", "zero1", "zero3"], "placement": ["tp-cp-ep-dp-pp"]}
"""A space of the same kinds of plan, with fewer of each."""


def best_time(asked: Question, **changes: Any) -> float:
    changed = replace(asked, cluster=replace(asked.cluster, **changes))
    return search_question(changed, top=1, limit=FEWER).estimates[0].step_time


@few(5)
@given(
    memory=st.floats(4, 40),
    bandwidth=st.floats(1, 400),
    factor=st.floats(1.01, 8),
    n=st.sampled_from((8, 24, 64)),
)
def test_better_hardware_never_makes_the_best_plan_slower(
    memory: float, bandwidth: float, factor: float, n: int
) -> None:
    part = accelerator(memory_bytes=memory * GB)
    network = (tier("node", 8, 450), tier("network", None, bandwidth, latency=5e-6))
    asked = question(n, cluster=cluster(*network, part=part), batch=48)
    limit = best_time(asked) * (1 + 1e-9)
    faster = replace(part, peak_flops={name: factor * rate for name, rate in part.peak_flops.items()})
    assert best_time(asked, accelerator=replace(part, memory_bytes=part.memory_bytes * factor)) <= limit
    assert best_time(asked, accelerator=replace(part, memory_bandwidth=part.memory_bandwidth * factor)) <= limit
    assert best_time(asked, accelerator=faster) <= limit
    assert best_time(asked, tiers=(network[0], replace(network[1], bandwidth=network[1].bandwidth * factor))) <= limit
    assert best_time(asked, tiers=(network[0], replace(network[1], latency=network[1].latency / factor))) <= limit


def test_what_was_taken_for_granted_is_said_from_python_too() -> None:
    asked = question()
    lines = search(asked.model, asked.cluster, 16, top=1).estimates[0].assumptions
    assert any(line.startswith("global batch") for line in lines)
    assert any(line.startswith("job fields at their defaults: precision bf16") for line in lines)
    given = search(asked.model, asked.cluster, 16, job=asked.job, limit={"cp_comm": ["a2a"]}, top=1)
    assert not any("of the job" in line for line in given.estimates[0].assumptions)
    first = given.stating_what_was_not_searched().estimates[0].assumptions[0]
    assert first.startswith("not searched: offload none")
    assert "cp_comm" not in first


def test_suggestions_say_their_own_values() -> None:
    tight = search_question(question(16, model=LLAMA_70B, memory=40 * GB), limit={"tp": [8]}, top=1)
    assert tight.suggestions
    for each in tight.stating_what_was_not_searched().suggestions:
        line = next(text for text in each.estimate.assumptions if text.startswith("not searched"))
        assert f"offload {each.estimate.plan.offload}" in line


def test_a_wider_space_never_has_a_slower_best_plan() -> None:
    asked = question(32)
    narrow = search_question(asked, top=1, limit={"tp": [2, 4], "recompute": ["full"]}).estimates[0].step_time
    wide = search_question(asked, top=1).estimates[0].step_time
    assert wide <= narrow


@pytest.mark.parametrize(
    ("restriction", "check"),
    [
        ({"fix": {"tp": [4]}}, lambda a: a.plan.tp == 4),
        ({"fix": {"tp": ["4"]}}, lambda a: a.plan.tp == 4),
        ({"limit": {"pp": ["1", "2"]}}, lambda a: a.plan.pp in (1, 2)),
        ({"exclude": {"tp": [1, 2]}}, lambda a: a.plan.tp > 2),
        ({"fix": {"dp": [4]}}, lambda a: a.dp == 4),
        ({"exclude": {"dp": [1, 2, 4]}}, lambda a: a.dp > 4),
        ({"fix": {"schedule": ["gpipe"]}, "limit": {"pp": [4]}}, lambda a: a.plan.schedule == "gpipe"),
        ({"fix": {"schedule": ["interleaved"]}}, lambda a: a.plan.vp > 1),
        ({"fix": {"schedule": ["1f1b"]}}, lambda a: a.plan.vp == 1),
        ({"fix": {"vp": [2]}}, lambda a: a.plan.vp == 2),
        ({"exclude": {"vp": [1]}}, lambda a: a.plan.vp > 1),
        ({"fix": {"sharding": ["hsdp"]}}, lambda a: a.plan.sharding == "hsdp" and a.plan.sharding_degree),
        ({"fix": {"sharding_degree": [2]}}, lambda a: a.plan.sharding == "ddp" or a.plan.sharding_degree == 2),
        ({"fix": {"recompute": ["layernorm+mlp"]}}, lambda a: a.plan.recompute == "layernorm,mlp"),
        ({"fix": {"recompute": ["full"], "recompute_num_layers": ["1"]}}, lambda a: a.plan.recompute_num_layers == 1),
        ({"limit": {"tp_kind": ["summa"]}}, lambda a: a.plan.tp_rows > 1 and a.plan.tp_kind == "summa"),
        ({"fix": {"cp_comm": ["a2a"]}}, lambda a: a.plan.cp_comm == "a2a"),
        ({"fix": {"sequence_parallel": ["no"]}}, lambda a: not a.plan.sequence_parallel),
        ({"fix": {"placement": ["dp-tp-cp-ep-pp"]}}, lambda a: a.plan.placement == "dp-tp-cp-ep-pp"),
        (
            {"fix": {"stage_layers": ["1+2+2+3"], "pp": [4], "vp": [1]}},
            lambda a: a.plan.stage_layers == (1, 2, 2, 3) == a.stage_layers,
        ),
    ],
)
def test_restrictions_hold_for_every_plan(restriction: dict[str, Any], check: Any) -> None:
    estimates = search_question(question(64), top=10, **restriction).estimates
    assert estimates
    assert all(check(answer) for answer in estimates)


@pytest.mark.parametrize(
    "restriction",
    [
        {"fix": {"tq": [4]}},
        {"fix": {"tp": [0]}},
        {"fix": {"tp": ["four"]}},
        {"fix": {"tp": ["4.0"]}},
        {"fix": {"tp": [-1]}},
        {"fix": {"tp": [2.5]}},
        {"fix": {"tp": [True]}},
        {"fix": {"tp": [1, 2]}},
        {"fix": {"tp": []}},
        {"fix": {"tp": ["9" * 5000]}},
        {"fix": {"tp": [4]}, "limit": {"tp": [2, 4]}},
        {"limit": {"sharding": ["zero4"]}},
        {"limit": {"recompute": ["mpl"]}},
        {"exclude": {"sharding": ["ddp", "zero1", "zero2", "zero3", "hsdp"]}},
        {"exclude": {"tp": list(divisors(64))}},
        {"fix": {"placement": ["tp-pp"]}},
        {"fix": {"stage_layers": ["1+x"]}},
        {"fix": {"dp": [0]}},
    ],
)
def test_wrong_restrictions_are_refused(restriction: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        search_question(question(64), **restriction)
    assert caught.value.rule
    assert caught.value.message


def test_a_single_value_stands_for_a_list_of_it() -> None:
    listed = search_question(question(), top=1, fix={"tp": [2], "recompute": ["full"]}, limit={"pp": [1]})
    alone = search_question(question(), top=1, fix={"tp": 2, "recompute": "full"}, limit={"pp": 1})
    assert alone.space == listed.space
    assert alone.estimates == listed.estimates


def test_a_misspelt_field_is_recognised() -> None:
    with pytest.raises(UnknownNameError, match="micro_batch_size"):
        search_question(question(), fix={"microbatch_size": [1]})


@pytest.mark.parametrize("n", [1, 2, 7, 24, 96, 100, 1000])
def test_any_number_of_accelerators_has_plans_for_the_default_job(n: int) -> None:
    result = search(llama(512, 8, 8, 4, 2048), cluster(), n, top=1)
    assert result.estimates


def test_alternatives_are_found_in_the_tables() -> None:
    result = search_question(question(64, memory=8 * GB), top=1)
    whole = result.best_where()
    assert whole == result.estimates[0]
    halved = result.best_where(tp=2, recompute="full")
    assert isinstance(halved, Estimate)
    direct = search_question(question(64, memory=8 * GB), top=1, fix={"tp": [2], "recompute": ["full"]}).estimates[0]
    assert halved == direct
    assert result.best_where(tp=5) is None
    with pytest.raises(UnknownNameError):
        result.best_where(tq=5)


def test_progress_is_told_to_the_end() -> None:
    told: list[tuple[int, int]] = []
    search_question(question(64), progress=lambda done, total: told.append((done, total)))
    assert [done for done, _ in told] == list(range(1, told[-1][1] + 1))


def test_where_nothing_fits_the_smallest_plan_and_changes_that_fit_are_told() -> None:
    job = Job(sequence_length=4096, global_batch_size=64)
    result = search(LLAMA_70B, cluster(), 8, job=job)
    assert result.estimates == ()
    assert result.num_plans_evaluated > 0
    assert result.smallest is not None
    assert "too much" in str(result.smallest.reason)
    assert result.suggestions
    assert all(suggestion.estimate.feasible for suggestion in result.suggestions)
    changes = " ".join(suggestion.change for suggestion in result.suggestions)
    assert "--gpus" in changes


def test_a_restriction_that_keeps_plans_from_fitting_is_named() -> None:
    job = Job(sequence_length=4096, global_batch_size=64)
    result = search(
        LLAMA_70B,
        cluster(),
        64,
        job=job,
        fix={"sharding": ["ddp"], "tp": [1]},
        exclude={"pp": [16, 32, 64]},
        use_all=True,
    )
    assert result.estimates == ()
    assert any(suggestion.change == "leave tp free" for suggestion in result.suggestions)


def test_where_no_plan_is_valid_a_neighbouring_count_or_batch_is_named() -> None:
    result = search(SMALL, cluster(), 97, job=Job(sequence_length=2048, global_batch_size=100), use_all=True)
    assert result.num_plans_evaluated == 0
    assert result.rejected
    changes = [each.change for each in result.suggestions]
    assert "a global batch of 97 sequences: --global-batch-size 97" in changes  # with all accelerators
    assert any("--gpus" in each and "--global-batch-size" not in each for each in changes)  # with the batch asked for
    assert all(each.estimate.feasible for each in result.suggestions)


@pytest.mark.parametrize("top", [0, -3, True, 2.5])
def test_a_search_lists_at_least_one_plan(top: Any) -> None:
    with pytest.raises(InputError, match="top is"):
        search(LLAMA_70B, cluster(), 8, top=top)


def test_a_head_without_parameters_of_its_own_is_searched() -> None:
    """OLMo 1B (arXiv 2402.00838): norms without weights and a tied head leave the head nothing to gather."""
    model = replace(llama(256, 4, 8, 8, 768, vocab_size=1024, tied=True), norm_weight=False)
    found = search(model, cluster(), 8, limit={"sharding": ["zero2", "zero3"], "pp": [1, 2]})
    for answer in found.estimates:
        assert answer.step_time == pytest.approx(estimate_plan(found.question, answer.plan).step_time, rel=1e-12)


DEEP_JOB = Job(sequence_length=512, global_batch_size=64)


def deep(num_layers: int) -> ModelConfig:
    return llama(64, num_layers, 4, 4, 128, vocab_size=128)


@pytest.mark.parametrize(("num_layers", "most"), [(200, 101), (254, 128), (10_000, 128)])
def test_model_chunks_of_deep_models_are_bounded(num_layers: int, most: int) -> None:
    question = Question(model=deep(num_layers), cluster=cluster(), num_accelerators=64, job=DEEP_JOB)
    space = declare(question, Restrictions())
    assert space.virtual_stages(2, None) == tuple(range(1, most + 1))


@pytest.mark.parametrize(("num_layers", "times"), [(200, 0), (2000, 1)])
def test_that_more_model_chunks_are_not_searched_is_said(num_layers: int, times: int) -> None:
    result = search(deep(num_layers), cluster(), 8, job=DEEP_JOB, top=1, limit={"pp": (1, 2)})
    assert sum("not searched: vp above 128" in text for text in result.estimates[0].assumptions) == times


def test_a_suggestion_is_the_plan_that_its_own_search_recommends() -> None:
    asked = question(8, model=LLAMA_70B)
    (larger,) = [each for each in search_question(asked).suggestions if each.num_accelerators > 8]
    own = search_question(replace(asked, num_accelerators=larger.num_accelerators)).recommended
    assert own is not None
    assert larger.estimate.plan == own.plan
    assert larger.estimate.step_time == own.step_time


def test_listed_plans_are_answered_when_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def counted(asked: Question, plans: Sequence[Plan]) -> tuple[Estimate, ...]:
        made.append(len(plans))
        return estimate_plans(asked, plans)

    monkeypatch.setattr("shardplan.planner.search.estimate_plans", counted)
    result = search_question(question(memory=16 * GB), suggestions=False, top=5)
    assert made == []
    first = result.estimates[0]
    assert sum(made) <= 2  # the recommended plan is answered with it
    assert result.recommended is not None
    assert sum(made) <= 2
    every = [*result.estimates]
    assert every[0] is first
    assert len(made) == 2
    assert every == [estimate_plan(result.question, each.plan) for each in every]
    assert result.estimates == tuple(every)
    assert result.estimates[1:3] == tuple(every[1:3])
    assert result.estimates[-1] == every[-1]
    assert pickle.loads(pickle.dumps(result.estimates)) == tuple(every)  # noqa: S301  # our own
    with pytest.raises(IndexError):
        result.estimates[5]


@pytest.mark.parametrize("top", [1, 5])
def test_plans_are_listed_where_none_of_the_ties_has_room_in_memory(top: int) -> None:
    """Slower plans are priced too then, in tables that hold more points than those the listed plans were found in."""
    found = search("qwen3-30b-a3b", "dgx-h100", 8, sequence_length=32768, global_batch_size=64, top=top)
    best = found.best_where()
    assert not any(each.has_headroom for each in found.estimates)
    assert len(found.estimates) == top
    assert best is not None
    assert found.estimates[0].step_time == best.step_time
