"""A search for a named framework against its rules: all plans that it runs are listed, and no others.

The rules are asked about every plan that is listed, and about all others or, of many, a fixed sample.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pytest
from tests.planner.brute_force import meaning
from tests.planner.small import plans_of

from shardplan import load_cluster, load_model, search
from shardplan.base.errors import InputError
from shardplan.estimation.estimate import price_plans
from shardplan.estimation.question import Question
from shardplan.inputs.defaults import default_job
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.physics.frameworks.defaults import job_in_stack, plan_in_stack
from shardplan.physics.frameworks.runnable import all_run, refusals
from shardplan.physics.frameworks.stack import Stack, list_stacks, load_stack
from shardplan.planner.framework_axes import CHOICES
from shardplan.planner.points import families
from shardplan.planner.restrictions import Restrictions
from shardplan.planner.search import search_question
from shardplan.planner.space import GRID, Space, declare

Sampled = TypeVar("Sampled")
STACKS = ("megatron-lm", "torchtitan", "deepspeed", "nanotron", "maxtext", "mindspeed-llm", "internevo")
DENSE, MOE = MODELS = ("llama-3.2-1b", "qwen3-30b-a3b")
SMALL: dict[str, tuple[Any, ...]] = {"tp": (1, 2), "cp": (1, 2), "pp": (1, 2, 4), "micro_batch_size": (1,)}
OPEN: dict[str, dict[str, Any]] = {
    "as usual": {},
    "overlaps": {
        "overlap_tp": (True, False), "overlap_ep": (False, True), "sequence_parallel": (True, False), "tp": (2,),
    },
    "schedules": {
        "schedule": (None, "1f1b", "gpipe", "interleaved", "dualpipe-v"), "overlap_pp": (None, True), "cp": (1,),
        "recompute": ("none", "full"),
    },
    "host memory": {"offload": ("none", "optimizer", "activations"), "cp_comm": ("p2p", "a2a")},
    "layers": {"recompute_num_layers": (None, 2, 3), "sharding_degree": (None, 2), "cp": (1,)},
}  # fmt: skip
"""Fields that a search leaves alone unless it is asked."""


def asked(model: str, stack: Stack, num_accelerators: int = 16) -> Question:
    job, _ = job_in_stack(Job(sequence_length=2048, global_batch_size=32), stack)
    cluster = load_cluster("dgx-h100")
    anywhere = replace(cluster, accelerator=replace(cluster.accelerator, vendor=""))  # no framework refuses it
    return Question(model=load_model(model), cluster=anywhere, num_accelerators=num_accelerators, job=job)


def limits(model: str, more: dict[str, Any]) -> dict[str, Any]:
    experts = {"ep": (1, 4), "etp": (1, 2), "cp": (1,), "pp": (1, 2)} if "a3b" in model else {}
    return {**SMALL, "vp": (1, 2, 3), **experts, **more}


def num_combinations(space: Space) -> int:
    """Of the declared space."""
    grid = math.prod(len(space.axes[name]) for name in (*GRID, "placement") if name != "pp")
    return sum(
        len(space.virtual_stages(pp, switches.get("schedule"), switches.get("stage_layers")))
        * len(space.recomputations(pp)) * len(space.shardings()) * grid
        for switches, pp in itertools.product(space.switches(), space.axes["pp"])
    )  # fmt: skip


def plans(question: Question, space: Space, rejected: Counter[str]) -> list[Plan]:
    """Every plan once, whatever software of the search's choice runs it."""
    found = families(question, space, rejected)
    return [plain(plan) for family in found if family.counts for plan in plans_of(family.whole)]


def plain(plan: Plan) -> Plan:
    """The plan without what the search chooses for it."""
    return replace(plan, **{name: getattr(Plan(), name) for name in CHOICES})


def loss_open(plan: Plan) -> Plan:
    """The plan without its choice of the loss, which the framework's default leaves to the job."""
    return replace(plan, fused_loss=None)


def no_slower(question: Question, plan: Plan, others: Collection[Plan]) -> bool:
    """Whether the plan under some other software takes no longer, in no more memory."""
    own, *found = price_plans(question, [plan, *others])
    return any(
        each.step_time <= own.step_time * (1 + 1e-9) and each.peak_memory_bytes <= own.peak_memory_bytes * (1 + 1e-9)
        for each in found
    )


def has_replicas(question: Question, plan: Plan) -> bool:
    """Without, all kinds of sharding are one plan: the simplest that the framework has is listed."""
    n = question.num_accelerators
    return n > plan.tp * plan.pp or (question.model.is_moe and n > plan.pp * plan.ep * plan.etp)


MOST_JUDGED = 1000
"""Plans that the rules are asked about."""
MOST_ALONE = 150
"""Plans of these, and of those that are listed, that the rules are asked about one by one: a millisecond each."""


def sampled(plans: Sequence[Sampled], most: int) -> list[Sampled]:
    """Some of the plans, the same ones at every run."""
    return [plans[place] for place in np.random.default_rng(len(plans)).permutation(len(plans))[:most]]


CASES = [
    *((name, model, "as usual") for name in STACKS for model in MODELS),
    ("megatron-lm", DENSE, "layers"),
    ("mindspeed-llm", DENSE, "schedules"),
    ("maxtext", DENSE, "schedules"),
    ("megatron-lm", MOE, "overlaps"),
    ("deepspeed", MOE, "host memory"),
]


@pytest.mark.parametrize(("name", "model", "opened"), CASES)
def test_a_search_lists_what_the_framework_runs_and_accounts_for_the_rest(name: str, model: str, opened: str) -> None:
    stack = load_stack(name)
    question = asked(model, stack)
    space = declare(question, Restrictions(limit=limits(model, _possible(stack, question, OPEN[opened]))), stack)
    rejected: Counter[str] = Counter()
    counted = plans(question, space, rejected)
    found = [plan for family in families(question, space, Counter()) for plan in plans_of(family)]
    free = replace(space, framework=None, rules=())
    every, software = [*dict.fromkeys(plans(question, free, Counter()))], space.chosen()
    setting = question.setting
    pairs = sampled([*itertools.product(every, software)], MOST_JUDGED)
    judged = [replace(plan, **chosen) for plan, chosen in pairs]
    asked_about = [*dict.fromkeys([*judged, *found])]
    runs = dict(zip(asked_about, all_run(stack, setting, asked_about), strict=True))
    alone = [*sampled(judged, MOST_ALONE), *sampled(found, MOST_ALONE)]
    assert all(runs[plan] == (not refusals(stack, plan, setting)) for plan in alone)
    runnable = {plan for plan in judged if runs[plan]}
    assert found
    assert len(found) == len(set(found))
    assert len(counted) == len(set(counted))
    assert all(runs[plan] for plan in found)
    listed = {plain(plan) for plan in counted}  # a choice of one value stays in the plans that are counted
    assert {plain(plan) for plan in found} == listed
    assert {plain(plan) for plan in runnable if _is_limited(space, plan)} <= listed
    limited = [plan for plan in found if has_replicas(question, plan) and _is_limited(free, plan)]
    assert {plain(plan) for plan in limited} <= {*every}
    assert all({name: getattr(plan, name) for name in software[0]} in software for plan in limited)
    assert len(counted) + sum(rejected.values()) == num_combinations(space)
    left_out = [plan for plan in runnable - {*found} if _is_limited(space, plan)]
    for plan in sampled(sorted(left_out, key=repr), 12):
        assert no_slower(question, plan, [other for other in found if plain(other) == plain(plan)]), plan


def _possible(stack: Stack, question: Question, more: dict[str, Any]) -> dict[str, Any]:
    """Without what the framework never runs, which is an error of its own."""
    kept = {}
    for name, values in more.items():
        try:
            declare(question, Restrictions(limit={**SMALL, name: values}), stack)
            kept[name] = values
        except InputError:
            pass
    return kept


def _is_limited(space: Space, plan: Plan) -> bool:
    """Whether the space of the framework has the plan's number of recomputed layers: those depend on it."""
    return (plan.recompute, plan.recompute_num_layers) in space.recomputations(plan.pp)


@pytest.mark.parametrize("name", list_stacks())
def test_the_usual_plan_of_a_framework_is_among_its_candidates(name: str) -> None:
    stack = load_stack(name)
    question = asked("llama-3.2-1b", stack)
    if "2021" in name:
        question = replace(question, job=replace(question.job, precision="fp16"))
    space = declare(question, Restrictions(limit=SMALL), stack)
    usual, _ = plan_in_stack(
        Plan(placement=space.axes["placement"][0]),
        stack,
        model=question.model,
        job=question.job,
        num_accelerators=16,
    )
    found = plans(question, space, Counter())
    assert meaning(question, loss_open(plain(usual))) in {meaning(question, loss_open(plan)) for plan in found}
    assert all(getattr(usual, name) in (None, *space.axes.get(name, (getattr(Plan(), name),))) for name in CHOICES)


def test_stages_of_nanotron_are_closed_by_cost() -> None:
    stack = load_stack("nanotron")
    question = asked("llama-3.2-1b", stack)
    found = plans(question, declare(question, Restrictions(limit=SMALL), stack), Counter())
    assert {plan.pp for plan in found} == {1, 2, 4}
    assert all((plan.stage_layers is None) == (plan.pp == 1) for plan in found)


def test_layers_of_megatron_are_recomputed_by_chunks_of_every_size() -> None:
    stack = load_stack("megatron-lm")
    question = asked("llama-3.2-1b", stack)
    found = plans(question, declare(question, Restrictions(limit=SMALL), stack), Counter())
    numbers = {(plan.vp, plan.recompute_num_layers) for plan in found if plan.pp == 4 and plan.recompute == "full"}
    assert {(1, 1), (1, 2), (2, 2), (4, None)} <= numbers
    assert all(number is None or number % vp == 0 for vp, number in numbers)


def test_the_plans_of_a_search_are_estimated_as_they_run() -> None:
    """Recomputation that does not go with the chunks of a plan is neither counted nor listed."""
    model, cluster = load_model("llama-3.1-8b"), load_cluster("dgx-h100")
    job, _ = default_job(model, cluster, 16)
    limit = {"pp": (4,), "recompute": ("full",), "recompute_num_layers": (2, 3), "cp": (1,), "tp": (2, 4)}
    result = search(model, cluster, 16, job=job, limit=limit, stack="megatron-lm", top=30)
    assert result.estimates
    for answer in result.estimates:
        number = answer.plan.recompute_num_layers
        assert number is not None
        assert number % answer.plan.vp == 0
        assert answer.framework == load_stack("megatron-lm").label
    assert result.num_plans_feasible <= result.num_plans_evaluated


REFUSED: list[tuple[str, dict[str, Any], str, str, str]] = [
    ("deepspeed", {"vp": 4}, "deepspeed runs pipelines by 1f1b", "--fix vp=4", "set vp to 1"),
    ("llm-foundry", {"pp": 2}, "llm-foundry has no pipelines", "--fix pp=2", "set pp to 1"),
    ("torchtitan", {"cp_comm": "p2p"}, "torchtitan exchanges keys", "--fix cp_comm=p2p", "set cp_comm to allgather"),
    ("torchtitan", {"recompute": "layernorm"}, "torchtitan supports recompute", "--fix recompute=layernorm", "op_sac"),
    ("nanotron", {"sharding": "zero3"}, "nanotron shards", "--fix sharding=zero3", "set sharding to ddp or zero1"),
    ("deepspeed", {"pp": 2}, "models of Hugging Face transformers have no pipeline", "--fix pp=2", "set pp to 1"),
    ("maxtext", {"schedule": "zb-v"}, "maxtext runs pipelines", "--fix schedule=zb-v", "gpipe or breadth-first"),
    ("torchtitan", {"overlap_dp": False}, "always on", "--fix overlap_dp=False", "turn overlap_dp on"),
]


@pytest.mark.parametrize(("name", "fix", "rule", "flag", "instead"), REFUSED)
def test_what_a_framework_never_runs_is_refused_with_rule_flag_and_what_it_can(
    name: str, fix: dict[str, Any], rule: str, flag: str, instead: str
) -> None:
    stack = load_stack(name)
    with pytest.raises(InputError) as caught:
        search_question(asked("llama-3.1-8b", stack), fix=fix, stack=stack)
    assert rule in caught.value.message
    assert rule in caught.value.rule
    assert flag in caught.value.message
    assert instead in caught.value.hint


def test_a_job_that_a_framework_cannot_run_is_refused() -> None:
    stack = load_stack("nanotron")
    question = asked("llama-3.1-8b", stack)
    question = replace(question, job=replace(question.job, precision="fp8"))
    with pytest.raises(InputError, match="precision: nanotron trains in bf16, fp16, fp32"):
        search_question(question, stack=stack)


def test_a_stack_without_a_record_restricts_nothing() -> None:
    stack = replace(load_stack("deepspeed"), can_run=None)
    question = asked("llama-3.2-1b", stack)
    own, free = (declare(question, Restrictions(limit=SMALL), each) for each in (stack, None))
    assert own.rules == ()
    assert {**free.axes, "overlap_dp": (True,), "sequence_parallel": (False,), "cp_comm": ("a2a",)} == own.axes
