"""Software as part of the plan: the search against every plan under all software, and the orders that it rests on."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st
from hypothesis.errors import UnsatisfiedAssumption
from tests.cli.commands import run, unwrapped
from tests.examples import GB, accelerator, cluster, llama, mixtral, tier
from tests.few import few
from tests.planner.brute_force import product_of, without_software
from tests.planner.small import plans_of, positions
from tests.strategies import Case, cases

from shardplan import search
from shardplan.base.errors import InputError, NotRunnableError, UnknownNameError
from shardplan.estimation.estimate import estimate_plan, price_plans
from shardplan.estimation.question import Question
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.job import Job, Precision
from shardplan.inputs.layers import Attention, MixtureOfExperts
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import Degrees
from shardplan.physics.costs.block import needs_one_queue
from shardplan.physics.frameworks.libraries import needed_libraries
from shardplan.physics.frameworks.runnable import all_run
from shardplan.physics.frameworks.stack import load_stack
from shardplan.physics.validity import broken_rules
from shardplan.planner.family import Family, KnownPipelines
from shardplan.planner.framework_axes import CHOICES
from shardplan.planner.points import families
from shardplan.planner.priced_plans import Needs, has_headroom
from shardplan.planner.pricing.tables import tables_of
from shardplan.planner.pruning.bounds import ROUNDING, least_by_software, least_shares
from shardplan.planner.pruning.computing import Computed, FastEnough
from shardplan.planner.related.forms import plainest
from shardplan.planner.restrictions import Restrictions
from shardplan.planner.result import SearchResult
from shardplan.planner.search import search_question
from shardplan.planner.software import orders
from shardplan.planner.space import Space, declare

MEGATRON = load_stack("megatron-lm")
SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much]
VALUES: Mapping[str, tuple[Any, ...]] = {
    "overlap_tp": (False, True),
    "overlap_ep": (False, True),
    "moe_dispatcher": ("alltoall", "deepep", "hybridep"),
    "cuda_graphs": ("none", "router", "partial", "full"),
}
"""All that Megatron-LM offers."""
SAME_MEMORY = ("overlap_tp", "moe_dispatcher", "cuda_graphs")
SAME = 1e-9
LIBRARIES = ("deepep", "hybridep")
TINY = llama(512, 8, 8, 4, 1536, vocab_size=4096)
MIDDLE = llama(4096, 8, 32, 8, 14336, vocab_size=32000)


def combined(values: Mapping[str, tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    """Every combination."""
    for each in itertools.product(*values.values()):
        yield dict(zip(values, each, strict=True))


def software_of(model: ModelConfig) -> list[dict[str, Any]]:
    """Every combination of choices that makes a difference in a model."""
    experts = ("overlap_ep", "moe_dispatcher")
    return [*combined({name: VALUES[name] for name in VALUES if model.is_moe or name not in experts})]


@st.composite
def machines(draw: st.DrawFn) -> Cluster:
    """Nodes of four or eight, slow and fast, before and after the part that needs one queue no more."""
    bandwidth, memory = draw(st.sampled_from((450.0, 50.0, 900.0))), draw(st.sampled_from((80, 20, 8, 4)))
    part = accelerator(
        generation=draw(st.sampled_from(("hopper", "blackwell", "ampere"))), memory_bytes=memory * GB,
        peak_flops=dict.fromkeys(("fp32", "bf16", "fp8"), draw(st.sampled_from((1e15, 1e14, 4e15)))),
    )  # fmt: skip
    outer = tier("network", None, draw(st.sampled_from((50.0, 5.0))), latency=5e-6)
    return cluster(tier("node", draw(st.sampled_from((8, 4))), bandwidth), outer, part=part)


def experts(hidden_size: int, intermediate_size: int, num_experts: int, top_k: int) -> ModelConfig:
    """A small mixture of experts in six layers."""
    model = mixtral(6)
    moe = MixtureOfExperts(num_experts=num_experts, top_k=top_k, intermediate_size=intermediate_size, gated=True)
    mixer = Attention(num_heads=8, num_kv_heads=4, head_dim=hidden_size // 8)
    return replace(model, hidden_size=hidden_size, layers=(replace(model.layers[0], mixer=mixer, mlp=moe),) * 6)


MIXTURES = (mixtral(4), experts(1024, 512, 16, 4), experts(4096, 1024, 32, 8))


@st.composite
def asked(draw: st.DrawFn, *, moe: bool, most: int = 16) -> Question:
    """A small model on a few accelerators, run by Megatron-LM."""
    n = draw(st.sampled_from([n for n in (16, 8, 4) if n <= most]))
    model = draw(st.sampled_from(MIXTURES if moe else (MIDDLE, TINY)))
    precision: Precision = draw(st.sampled_from(("bf16", "bf16", "fp8")))
    job = Job(
        sequence_length=draw(st.sampled_from((2048, 4096))), global_batch_size=n * draw(st.sampled_from((2, 4))),
        precision=precision, **MEGATRON.job_fields(precision),
    )  # fmt: skip
    return Question(model=model, cluster=draw(machines()), num_accelerators=n, job=job)


@st.composite
def limited(draw: st.DrawFn, *, moe: bool, most: int = 2) -> dict[str, list[Any]]:
    """Candidates of the other fields: few."""

    def some(first: Any, *others: Any) -> list[Any]:
        return [first, *draw(st.lists(st.sampled_from(others), min_size=most - 1, max_size=most - 1, unique=True))]

    found: dict[str, list[Any]] = {
        "tp": some(1, 2, 4), "cp": [1], "pp": some(1, 2, 4), "vp": some(1, 2), "micro_batch_size": [1],
        "sharding": some("zero1", "zero2", "ddp"), "sharding_degree": [None],
        "recompute": some("none", "layernorm,activation", "full"), "recompute_num_layers": [None],
        "placement": ["tp-cp-ep-dp-pp"],
    }  # fmt: skip
    return found | ({"ep": some(1, 2, 4, 8), "etp": some(1, 2)} if moe else {})


def searched(question: Question, limit: Mapping[str, Any], **fix: Any) -> SearchResult | None:
    """The search without what it looks at besides; None where the framework runs nothing of it."""
    try:
        return search_question(
            question, limit=limit, fix=fix, stack=MEGATRON, top=1, offers=False, suggestions=False, use_all=True
        )
    except NotRunnableError:
        return None


def fastest(result: SearchResult | None) -> float:
    """Step time of the fastest plan, before plainer software is looked for; infinite where nothing fits. [s]"""
    best = None if result is None else result.best_where()
    return np.inf if best is None else best.step_time


@few(3, suppress_health_check=SLOW)
@given(asked(moe=False), limited(moe=False))
def test_the_answer_for_a_dense_model_is_the_best_of_all_with_software_fixed(
    question: Question, limit: dict[str, list[Any]]
) -> None:
    check_fixed(question, limit)


@few(1, suppress_health_check=SLOW)
@given(asked(moe=True), limited(moe=True))
def test_the_answer_for_experts_is_the_best_of_all_with_software_fixed(
    question: Question, limit: dict[str, list[Any]]
) -> None:
    check_fixed(question, limit)


def check_fixed(question: Question, limit: dict[str, list[Any]]) -> None:
    """The same time as the best of all searches with one combination each, and no plan is counted twice."""
    found = searched(question, limit)
    every = [searched(question, limit, **software) for software in software_of(question.model)]
    assert fastest(found) == pytest.approx(min(map(fastest, every)), rel=SAME)
    if found is not None:
        known = [each for each in every if each is not None]
        assert max(each.num_plans_evaluated for each in known) <= found.num_plans_evaluated
        assert max(each.num_plans_feasible for each in known) <= found.num_plans_feasible


def declared(question: Question, limit: dict[str, list[Any]]) -> Space:
    """The space of an example, which is left out where the framework runs nothing of it."""
    try:
        return declare(question, Restrictions(limit=limit), MEGATRON)
    except NotRunnableError:
        raise UnsatisfiedAssumption from None


def every_plan(question: Question, limit: dict[str, list[Any]]) -> list[Plan]:
    """Each plan of a space under all software, as long as the rules of plans and those of the framework allow it."""
    setting = question.setting
    declared = declare(question, Restrictions(limit=limit), MEGATRON).declared()
    plain = {name: values for name, values in declared.items() if name not in CHOICES}
    software = software_of(question.model)
    every = [replace(plan, **each) for plan in dict.fromkeys(product_of(plain)) for each in software]
    plans = [plan for plan, rule in zip(every, broken_rules(setting, every), strict=True) if rule is None]
    return [plan for plan, runs in zip(plans, all_run(MEGATRON, setting, plans), strict=True) if runs]


@few(8, suppress_health_check=SLOW)
@given(moe=st.booleans(), data=st.data())
def test_the_answer_is_the_fastest_of_every_plan_under_all_software(*, moe: bool, data: st.DataObject) -> None:
    """And the counts are those of plans that some software runs, however many run them."""
    question, limit = data.draw(asked(moe=moe, most=8)), data.draw(limited(moe=moe))
    found = searched(question, limit)
    assume(found is not None)
    assert found is not None
    plans = every_plan(question, limit)
    priced = price_plans(question, plans)
    assert fastest(found) == pytest.approx(
        min((each.step_time for each in priced if each.fits), default=np.inf), rel=SAME
    )
    assert found.num_plans_evaluated == len({without_software(question, plan) for plan in plans})
    fitting = {without_software(question, each.plan) for each in priced if each.fits}
    assert found.num_plans_feasible == len(fitting)
    best = min((each for each in priced if each.fits), key=lambda each: each.step_time, default=None)
    if best is not None:
        assert estimate_plan(question, best.plan).step_time == pytest.approx(best.step_time, rel=SAME)


def under(case: Case, **software: Any) -> Plan:
    """The plan of a case under other software."""
    return replace(case.plan, **software)


@few(15, suppress_health_check=SLOW)
@given(cases())
def test_no_plan_takes_longer_under_software_that_is_later_in_the_order(case: Case) -> None:
    """HybridEP where no kernel runs all experts of a rank: there it copies what they keep."""
    asked, plan = case.question, case.plan
    several = asked.model.is_moe and 1 < plan.ep < fewest_experts(asked)
    left = {"moe_dispatcher": slice(not several, 2 if asked.job.whole_experts else 3)}
    for name, order in orders(asked.profile, experts=asked.model.is_moe).items():
        plans = [under(case, **{name: value}) for value in order[left.get(name, slice(None))]]
        times = [each.step_time for each in price_plans(asked, plans)]
        assert times == pytest.approx(sorted(times, reverse=True), rel=SAME)
    if needs_one_queue(asked.machine) and plan.ep > 1:
        apart, one_queue = price_plans(asked, [under(case, overlap_ep=True, overlap_tp=on) for on in (False, True)])
        assert apart.step_time <= one_queue.step_time * (1 + SAME)


def fewest_experts(question: Question) -> int:
    """Of any layer with experts."""
    return min(question.setting.num_experts, default=1)


@few(10, suppress_health_check=SLOW)
@given(cases())
def test_software_that_changes_prices_alone_leaves_the_memory_as_it_is(case: Case) -> None:
    """Experts' overlap keeps one more micro-batch: no plan gets smaller."""
    plans = [under(case, **software) for software in combined({name: VALUES[name] for name in SAME_MEMORY})]
    bytes_ = [each.peak_memory_bytes for each in price_plans(case.question, plans)]
    assert bytes_ == pytest.approx([bytes_[0]] * len(bytes_), rel=1e-12)
    apart, together = price_plans(case.question, [under(case, overlap_ep=value) for value in (False, True)])
    assert together.peak_memory_bytes >= apart.peak_memory_bytes * (1 - 1e-12)


@few(6, suppress_health_check=SLOW)
@given(moe=st.booleans(), data=st.data())
def test_bounds_of_other_software_are_below_all_its_plans(*, moe: bool, data: st.DataObject) -> None:
    question, limit = data.draw(asked(moe=moe)), data.draw(limited(moe=moe))
    space = declared(question, limit)
    parts = tables_of(question, families(question, space, Counter()), KnownPipelines())
    firsts: dict[int, Any] = {}
    for each in parts:
        first = firsts.setdefault(id(each.family.whole), each)
        if first is each or each.family.part is None:
            continue
        bound = least_by_software(first.whole_family, **least_shares(first, each))
        check_bound(question, each.family, bound)


@few(6, suppress_health_check=SLOW)
@given(moe=st.booleans(), data=st.data())
def test_plans_under_all_software_are_kept_unless_they_compute_too_long(*, moe: bool, data: st.DataObject) -> None:
    question, limit = data.draw(asked(moe=moe, most=8)), data.draw(limited(moe=moe))
    space = declared(question, limit)
    every = {plan for family in families(question, space, Counter()) for plan in plans_of(family)}
    times = {each.plan: each.step_time for each in price_plans(question, [*every])}
    for within in {*sorted(times.values())[:: max(len(times) // 3, 1)]}:
        kept = {
            plan
            for family in families(question, space, Counter(), FastEnough(within, Computed()))
            for plan in plans_of(family)
        }
        assert {plan for plan, time in times.items() if time <= within} <= kept <= every


def check_bound(question: Question, family: Family, bound: Any) -> None:
    """Below the step of every plan at its slot and point."""
    places, plans = [*positions(family)], plans_of(family)
    for (_, slot, _, point), each in zip(places, price_plans(question, plans), strict=True):
        assert bound[slot, point] <= each.step_time * (1 + ROUNDING)


@few(4, suppress_health_check=SLOW)
@given(moe=st.booleans(), data=st.data())
def test_plainer_software_costs_half_a_percent_at_most_and_no_headroom(*, moe: bool, data: st.DataObject) -> None:
    question, limit = data.draw(asked(moe=moe, most=8)), data.draw(limited(moe=moe))
    space = declared(question, limit)
    plans = every_plan(question, limit)
    assume(plans)
    some = data.draw(st.lists(st.sampled_from(plans), min_size=1, max_size=6, unique=True))
    for before in (each for each in price_plans(question, some) if each.fits):
        needs = Needs(before.step_time, before.peak_memory_bytes)
        after = price_plans(question, [plainest(space, question, before.plan, needs)])[0]
        assert after.fits
        assert after.step_time <= before.step_time * 1.005 * (1 + SAME)
        assert headroom(question, after) or not headroom(question, before)
        changed = {name for name in VALUES if getattr(after.plan, name) != getattr(before.plan, name)}
        assert all(getattr(after.plan, name) == space.axes[name][0] for name in changed)


def headroom(question: Question, priced: Any) -> bool:
    """Whether the upper end of the band of its memory fits."""
    return bool(has_headroom(question, np.asarray(priced.peak_memory_bytes)))


def test_dispatchers_that_a_graph_of_the_whole_step_holds_are_all_looked_at() -> None:
    """Alone a rank needs no dispatcher: HybridEP would copy to pages there what experts keep."""
    stack = load_stack("torchtitan")
    job = Job(sequence_length=2048, global_batch_size=64, **stack.job_fields("bf16"))
    asked = Question(model=mixtral(4), cluster=cluster(), num_accelerators=16, job=job)
    limit: dict[str, list[Any]] = {"tp": [1], "cp": [1], "pp": [1], "ep": [1], "micro_batch_size": [1]}

    def time(*dispatchers: str) -> float:
        both = limit | {"moe_dispatcher": [*dispatchers], "recompute": ["none"]}
        return fastest(search_question(asked, limit=both, stack=stack, top=1, suggestions=False, offers=False))

    assert time(*LIBRARIES) == pytest.approx(min(map(time, LIBRARIES)), rel=SAME)


LIMIT: dict[str, list[Any]] = {"micro_batch_size": [1], "cp": [1], "vp": [1, 2], "etp": [1], "sharding": ["zero1"]}


@pytest.mark.parametrize("missing", [("hybridep",), LIBRARIES])
def test_no_plan_needs_a_library_that_is_not_installed(missing: tuple[str, ...]) -> None:
    found = search(
        "qwen3-30b-a3b", "dgx-h100", 16, global_batch_size=64, stack="megatron-lm", limit=LIMIT,
        exclude={"library": [*missing]},
    )  # fmt: skip
    setting = found.question.setting
    assert found.recommended is not None
    for each in (*found.estimates, found.recommended):
        assert not {*needed_libraries(MEGATRON, setting, Degrees.of(each.plan))} & {*missing}
    free = search("qwen3-30b-a3b", "dgx-h100", 16, global_batch_size=64, stack="megatron-lm", limit=LIMIT)
    assert fastest(free) <= fastest(found) * (1 + SAME)
    assert free.num_plans_evaluated == found.num_plans_evaluated


def test_what_the_answer_becomes_without_its_libraries_is_a_search_without_them() -> None:
    def searched(**more: Any) -> SearchResult:
        return search("qwen3-30b-a3b", "dgx-h100", 16, global_batch_size=64, stack="megatron-lm", limit=LIMIT, **more)

    fixed = searched(fix={"ep": 16})
    for each in fixed.without_libraries():
        other = searched(fix={"ep": 16}, exclude={"library": [*each.missing]})
        assert other.recommended is not None
        assert other.recommended.step_time == pytest.approx(each.step_time, rel=SAME)


def test_the_usual_dispatcher_does_not_come_back_without_its_library() -> None:
    """DeepEP is usual in NeMo AutoModel. What a user left out is not named again among what the plan needs."""
    missing = ["deepep"]
    found = search(
        "qwen3-30b-a3b", "dgx-h100", 16, global_batch_size=64, stack="nemo-automodel", limit={"cp": [1], "pp": [1]},
        exclude={"library": missing},
    )  # fmt: skip
    assert found.recommended is not None
    needed = needed_libraries(load_stack("nemo-automodel"), found.question.setting, Degrees.of(found.recommended.plan))
    assert "deepep" not in needed
    assert all("deepep" not in each.missing for each in found.without_libraries())


def test_overlap_that_no_record_states_is_not_searched() -> None:
    """Of experts in MaxText, were its record without the entry."""
    stack = load_stack("maxtext")
    assert stack.can_run is not None
    stack = replace(stack, can_run=replace(stack.can_run, overlap_ep=None))
    job = Job(sequence_length=2048, global_batch_size=64, **stack.job_fields("bf16"))
    asked = Question(model=mixtral(4), cluster=cluster(), num_accelerators=16, job=job)
    assert declare(asked, Restrictions(), stack).axes.get("overlap_ep", (False,)) == (False,)


def test_software_of_the_job_and_of_its_plans_do_not_contradict() -> None:
    result = run("plan", *EXPERTS, "--software", "cuda_graphs=none", "--fix", "cuda_graphs=full")
    assert result.exit_code == 2, result.output
    assert "none for the job and full for the plan" in unwrapped(result.output)
    same = run("plan", *EXPERTS, "--software", "cuda_graphs=none", "--fix", "cuda_graphs=none", "--limit", "cp=1")
    assert same.exit_code in (0, 1), same.output


def test_dispatchers_of_one_maker_run_on_no_other_part() -> None:
    """Also where tensor-parallel ranks alone share the experts."""
    part = replace(accelerator(), vendor="AMD")
    job = Job(sequence_length=2048, global_batch_size=64, **MEGATRON.job_fields("bf16"))
    asked = Question(model=mixtral(4), cluster=cluster(part=part), num_accelerators=16, job=job)
    plans = [Plan(tp=2, ep=ep, etp=etp, moe_dispatcher="deepep") for ep, etp in ((1, 2), (2, 1), (2, 2))]
    assert not any(all_run(MEGATRON, asked.setting, plans))


EXPERTS = ("qwen3-30b-a3b", "--cluster", "dgx-h100", "--gpus", 8, "--stack", "megatron-lm")
DENSE = ("llama-3.1-8b", "--cluster", "dgx-h100", "--gpus", 8, "--stack", "megatron-lm")
TPU = ("mixtral-8x7b", "--cluster", "tpu-v5p-pod", "--gpus", 64, "--stack", "maxtext")
DEEPEP = ("--fix", "moe_dispatcher=deepep")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((*DENSE, *DEEPEP), "no experts"),
        ((*TPU, *DEEPEP), "maxtext"),
        ((*EXPERTS, *DEEPEP, "--without", "deepep"), "deepep is not installed"),
        ((*EXPERTS, "--without", "deepspeech"), "hybridep"),
    ],
)
def test_software_that_nothing_can_run_ends_with_2_and_the_rule(words: tuple[object, ...], told: str) -> None:
    result = run("plan", *words)
    assert result.exit_code == 2, result.output
    assert told in unwrapped(result.output)


def test_a_plan_of_a_dense_model_names_no_dispatcher() -> None:
    result = run("estimate", *DENSE, "--moe-dispatcher", "deepep")
    assert result.exit_code == 2, result.output
    assert "llama-3.1-8b has no experts" in unwrapped(result.output)


def test_errors_name_what_is_known() -> None:
    with pytest.raises(UnknownNameError, match="deepspeech") as raised:
        search("qwen3-30b-a3b", "dgx-h100", 8, stack="megatron-lm", exclude={"library": ["deepspeech"]})
    assert all(name in str(raised.value.hint) for name in LIBRARIES)
    with pytest.raises(NotRunnableError):
        search(
            "qwen3-30b-a3b",
            "dgx-h100",
            8,
            stack="megatron-lm",
            fix=dict([DEEPEP[1].split("=")]),
            exclude={"library": "deepep"},
        )
    with pytest.raises(InputError):
        search("llama-3.1-8b", "dgx-h100", 8, stack="megatron-lm", fix={"moe_dispatcher": "deepep"})
