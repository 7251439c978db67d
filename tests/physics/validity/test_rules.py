from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import GPT3_175B, LLAMA_70B, LLAMA_405B, cluster, deepseek_v3, llama, mixtral
from tests.strategies import Case, cases

from shardplan.base.errors import PlanError
from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import Degrees, Setting, num_microbatches
from shardplan.physics.schedules.registry import SCHEDULES
from shardplan.physics.validity import RULES, broken_rule, check_plans

MIXTRAL = mixtral()
DEEPSEEK = deepseek_v3()
SIX_KEYS = llama(1536, 4, 24, 6, 4096)


class Breach(NamedTuple):
    rule: str
    model: ModelConfig
    num_accelerators: int
    global_batch_size: int
    plan: Plan
    values: tuple[str, ...]
    """What the message must hold."""
    knob: str
    """What the hint must hold."""
    sequence_length: int = 4096
    companion: str = "none"

    @property
    def setting(self) -> Setting:
        job = Job(
            sequence_length=self.sequence_length, global_batch_size=self.global_batch_size, companion=self.companion
        )
        return Setting.of(self.model, cluster(), self.num_accelerators, job)


BREACHES = [
    Breach(
        "offloaded layers are layers of activations", LLAMA_70B, 64, 64, Plan(offload_num_layers=4),
        ("4", "none"), "activations",
    ),
    Breach(
        "tp x cp x pp divides the accelerators", LLAMA_70B, 64, 64, Plan(tp=8, cp=2, pp=8),
        ("128", "64"), "degrees",
    ),
    Breach(
        "tp x cp x pp divides the accelerators", LLAMA_70B, 1000, 1000, Plan(tp=8, pp=16),
        ("128", "1,000"), "degrees",
    ),
    Breach("every stage has layers", LLAMA_70B, 64, 64, Plan(pp=16, vp=6), ("96", "80"), "pp or vp"),
    Breach(
        "every stage has layers", LLAMA_70B, 64, 64, Plan(pp=2, stage_layers=(40, 41)),
        ("81", "80"), "stage_layers",
    ),
    Breach("every stage has layers", LLAMA_70B, 64, 64, Plan(pp=2, stage_layers=(80,)), ("1 ", "80"), "stage_layers"),
    Breach(
        "every stage has layers", LLAMA_70B, 64, 64, Plan(pp=4, stage_layers=(40, 0, 40, 0)),
        ("80",), "stage_layers",
    ),
    Breach("tensor-parallel ranks share heads evenly", GPT3_175B, 10, 10, Plan(tp=5), ("5", "96"), "tp"),
    Breach("tensor-parallel ranks share heads evenly", DEEPSEEK, 12, 12, Plan(tp=3), ("3", "128"), "tp"),
    Breach("key-value heads divide tp, or tp divides them", SIX_KEYS, 8, 8, Plan(tp=4), ("4", "6"), "tp"),
    Breach(
        "tensor-parallel ranks share the MLP width evenly", llama(1024, 2, 16, 16, 2050), 8, 8, Plan(tp=4),
        ("4", "2050"), "tp",
    ),
    Breach(
        "two-dimensional tensor parallelism has a grid", LLAMA_70B, 16, 16, Plan(tp=8, tp_rows=2),
        ("1d", "2"), "summa",
    ),
    Breach(
        "two-dimensional tensor parallelism has a grid", LLAMA_70B, 16, 16, Plan(tp=8, tp_kind="summa"), ("summa", "1"),
        "tp_rows",
    ),
    Breach(
        "two-dimensional tensor parallelism has a grid", MIXTRAL, 16, 16, Plan(tp=8, tp_kind="summa", tp_rows=2),
        ("summa", "8"), "tp_kind",
    ),
    Breach("ranks share the sequence evenly", LLAMA_70B, 16, 16, Plan(cp=16), ("4080", "16"), "2 cp", 4080),
    Breach("ranks share the sequence evenly", LLAMA_70B, 16, 16, Plan(tp=8), ("1001", "8"), "sequence", 1001),
    Breach(
        "all-to-all context parallelism shares heads", LLAMA_70B, 128, 128, Plan(tp=8, cp=16, cp_comm="a2a"),
        ("8", "16", "64"), "cp",
    ),
    Breach(
        "all-to-all context parallelism shares heads", LLAMA_70B, 64, 64, Plan(tp=4, cp=4, cp_comm="a2a"),
        ("4", "64 heads", "8 for keys"), "p2p",
    ),
    Breach("experts are shared only where there are experts", LLAMA_70B, 8, 8, Plan(ep=8), ("8", "llama"), "ep"),
    Breach("experts are shared only where there are experts", LLAMA_70B, 8, 8, Plan(etp=2), ("2", "llama"), "etp"),
    Breach("expert-parallel ranks share experts evenly", MIXTRAL, 16, 16, Plan(ep=16), ("16", "8"), "ep"),
    Breach(
        "expert-tensor-parallel ranks share the expert width evenly", MIXTRAL, 9, 9, Plan(etp=3),
        ("3", "14336"), "etp",
    ),
    Breach(
        "mixtures of experts split their tokens over tensor-parallel ranks", MIXTRAL, 16, 16,
        Plan(tp=2, sequence_parallel=False), ("2",), "sequence_parallel",
    ),
    Breach("ep x etp x pp divides the accelerators", MIXTRAL, 16, 16, Plan(pp=4, ep=8), ("32", "16"), "ep"),
    Breach(
        "placement keeps pipeline stages together", MIXTRAL, 64, 64, Plan(tp=2, pp=4, ep=8, placement="tp-cp-ep-pp-dp"),
        ("tp-cp-ep-pp-dp", "2", "8"), "pp outermost",
    ),
    Breach("micro-batches divide the global batch", LLAMA_70B, 1000, 1024, Plan(tp=8), ("125", "1024"), "1000 or 1125"),
    Breach("micro-batches divide the global batch", LLAMA_70B, 16, 8, Plan(), ("16", "8"), "16"),
    Breach(
        "interleaving has whole groups of micro-batches", LLAMA_70B, 16, 132,
        Plan(tp=4, pp=4, vp=5, micro_batch_size=2),
        ("66", "4", "5"), "global batch size",
    ),
    Breach("interleaving has whole groups of micro-batches", LLAMA_70B, 16, 64, Plan(vp=2), ("1", "2"), "vp"),
    Breach(
        "interleaving has whole groups of micro-batches", LLAMA_70B, 16, 64, Plan(pp=4, vp=2, schedule="1f1b"),
        ("1f1b", "2"), "vp",
    ),
    Breach("the schedule is known", LLAMA_70B, 16, 64, Plan(pp=4, schedule="1f1c"), ("1f1c",), "did you mean 1f1b"),
    Breach(
        "the schedule suits the pipeline", LLAMA_70B, 16, 64, Plan(pp=4, schedule="breadth-first"),
        ("breadth-first", "1"), "set vp to 2 or more",
    ),
    Breach(
        "the schedule suits the pipeline", LLAMA_70B, 16, 64, Plan(pp=4, schedule="zb-v"), ("zb-v", "1"), "set vp to 2",
    ),
    Breach(
        "the schedule suits the pipeline", LLAMA_70B, 16, 64,
        Plan(pp=4, schedule="zb-v", stage_layers=(20, 20, 20, 20)), ("zb-v", "1"), "set vp to 2",
    ),
    Breach(
        "the schedule suits the pipeline", LLAMA_70B, 16, 64, Plan(pp=4, vp=4, schedule="dualpipe-v"),
        ("dualpipe-v", "4"), "set vp to 2",
    ),
    Breach(
        "the schedule suits the pipeline", LLAMA_70B, 16, 24, Plan(pp=4, schedule="zb-h2"), ("zb-h2", "4", "6"),
        "global batch size to 28",
    ),
    Breach(
        "the schedule suits the pipeline", LLAMA_70B, 15, 60, Plan(pp=5, schedule="dualpipe"), ("dualpipe", "5"),
        "even pp",
    ),
    Breach(
        "the schedule suits the pipeline", LLAMA_70B, 16, 36, Plan(pp=4, schedule="dualpipe"), ("dualpipe", "9"),
        "set the global batch size to 40",
    ),
    Breach(
        "the schedule suits the pipeline", LLAMA_70B, 16, 64, Plan(pp=4, vp=2, schedule="dualpipe"),
        ("dualpipe", "2"), "set vp to 1",
    ),
    Breach(
        "the schedule suits the pipeline", LLAMA_70B, 16, 64, Plan(vp=2, schedule="zb-v"), ("zb-v", "1"), "raise pp",
    ),
    Breach(
        "sharding groups divide the replicas", LLAMA_70B, 64, 64, Plan(tp=8, sharding_degree=3),
        ("3", "8"), "sharding_degree",
    ),
    Breach(
        "sharding groups divide the replicas", LLAMA_70B, 64, 64, Plan(sharding="hsdp"),
        ("hsdp", "64"), "sharding_degree",
    ),
    Breach(
        "sharding groups divide the replicas", LLAMA_70B, 64, 64, Plan(tp=8, sharding="hsdp", sharding_degree=8),
        ("hsdp", "8"), "smaller",
    ),
    Breach(
        "recomputed modules exist in the model", LLAMA_70B, 8, 8, Plan(recompute="moe"),
        ("moe", "llama"), "experts",
    ),
    Breach(
        "recomputed modules exist in the model", LLAMA_70B, 8, 8, Plan(recompute="core_attn,mla_up_proj"),
        ("mla_up_proj", "llama"), "latent",
    ),
    Breach(
        "companions are split as the model is", LLAMA_70B, 64, 64, Plan(tp=16), ("llama-3.2-3b", "16", "24"), "tp",
        companion="reward=llama-3.2-3b",
    ),
]  # fmt: skip


@pytest.mark.parametrize("breach", BREACHES, ids=[f"{i}: {breach.rule}" for i, breach in enumerate(BREACHES)])
def test_every_rule_refuses_with_the_values_and_the_knob(breach: Breach) -> None:
    s = breach.setting
    with pytest.raises(PlanError) as refusal:
        check_plans((breach.plan,), s)
    assert refusal.value.rule == breach.rule
    for value in breach.values:
        assert value in refusal.value.message
    assert breach.knob in refusal.value.hint


def test_every_rule_is_broken_by_some_plan_above() -> None:
    assert {breach.rule for breach in BREACHES} == {rule.name for rule in RULES}


def valid(model: ModelConfig, num_accelerators: int, global_batch_size: int, plan: Plan, length: int = 4096) -> bool:
    job = Job(sequence_length=length, global_batch_size=global_batch_size)
    return broken_rule(Setting.of(model, cluster(), num_accelerators, job), plan) is None


def test_plans_that_were_run_are_valid() -> None:
    assert valid(GPT3_175B, 1024, 1536, Plan(tp=8, pp=8), 2048)  # arXiv 2104.04473, table 1
    assert valid(LLAMA_405B, 16384, 2048, Plan(tp=8, pp=16, vp=7), 8192)  # arXiv 2407.21783, table 4
    assert valid(LLAMA_405B, 16384, 128, Plan(tp=8, cp=16, pp=16), 131072)  # the same at 131,072 tokens
    assert valid(DEEPSEEK, 2048, 15360, Plan(pp=16, ep=64))  # arXiv 2412.19437, section 3.2


@pytest.mark.parametrize(
    ("count", "group", "holds"),
    [
        (32, None, True),
        (33, None, False),  # 132 sequences on 4 replicas: refused only at run time by Megatron-LM, after the launch
        (34, None, False),
        (3, None, False),  # fewer micro-batches than stages
        (4, None, True),
        (36, 8, True),  # 36 mod 8 = 4, which is pp
        (34, 8, False),
        (37, 8, True),  # 37 mod 8 = 5 > pp
        (32, 3, False),  # a group smaller than pp
        (32, 32, True),
        (32, 33, False),  # a group larger than all micro-batches
    ],
)
def test_interleaving_rule_of_megatron(count: int, group: int | None, holds: object) -> None:
    """The group size g lies in [pp, M], and M mod g is 0 or at least pp (Megatron-LM, core/pipeline_parallel)."""
    plan = Plan(tp=8, pp=4, vp=5, microbatch_group_size=group)
    assert valid(LLAMA_70B, 128, 4 * count, plan) is holds


def test_batch_hint_names_sizes_that_are_valid() -> None:
    for size in (1000, 1125):
        assert valid(LLAMA_70B, 1000, size, Plan(tp=8))


def test_interleaving_hint_names_a_size_that_is_valid() -> None:
    breach = next(b for b in BREACHES if b.rule.startswith("interleaving") and b.plan.vp == 5)
    rule = broken_rule(breach.setting, breach.plan)
    assert rule is not None
    size = int(
        "".join(c for c in rule.hint(breach.setting, breach.plan).split("size to ")[1].split(",")[0] if c.isdigit())
    )
    assert valid(breach.model, breach.num_accelerators, size, breach.plan)


def test_num_microbatches() -> None:
    s = BREACHES[0].setting
    assert num_microbatches(s, Degrees.of(Plan(tp=8, micro_batch_size=2))) == 4


def degrees_of_many(candidates: list[dict[str, int]], plan: Plan) -> Degrees:
    """The numbers of several plans as arrays."""
    columns: dict[str, Any] = {
        name: np.array([candidate[name] for candidate in candidates])
        for name in ("tp", "cp", "pp", "vp", "ep", "etp", "micro_batch_size", "tp_rows")
    }
    return replace(Degrees.of(plan), **columns)


few = st.sampled_from((1, 1, 2, 3, 4, 8, 16))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_rules_of_schedules_hold_alike_on_numbers_and_arrays(schedule: str) -> None:
    s = Setting.of(LLAMA_70B, cluster(), 64, Job(sequence_length=4096, global_batch_size=48))
    plan = Plan(schedule=schedule)
    candidates = [
        {**dict.fromkeys(("cp", "ep", "etp", "tp_rows"), 1), "tp": tp, "pp": pp, "vp": vp, "micro_batch_size": size}
        for tp in (1, 8) for pp in (1, 2, 4, 8) for vp in (1, 2, 3) for size in (1, 2)
    ]  # fmt: skip
    many = degrees_of_many(candidates, plan)
    for rule in (rule for rule in RULES if "schedule" in rule.name or "interleaving" in rule.name):
        together = np.broadcast_to(rule.holds(s, many), len(candidates))
        singly = [bool(np.all(rule.holds(s, Degrees.of(replace(plan, **candidate))))) for candidate in candidates]  # type: ignore[arg-type]  # all are numbers
        assert together.tolist() == singly, rule.name


def test_a_rank_may_hold_any_chunks_but_none_may_be_empty() -> None:
    """Rank 1 holds the chunks in the middle of a V, but the second and the fourth of a loop."""
    folded = Plan(pp=2, vp=2, schedule="zb-v", stage_layers=(40, 0, 0, 40))
    assert not valid(LLAMA_70B, 16, 64, folded)
    assert valid(LLAMA_70B, 16, 64, replace(folded, stage_layers=(40, 0, 20, 20)))
    assert valid(LLAMA_70B, 16, 64, replace(folded, schedule="interleaved"))


def test_a_stage_without_layers_holds_the_embedding_or_the_head() -> None:
    assert valid(LLAMA_70B, 16, 64, Plan(pp=2, stage_layers=(80, 0)))
    assert valid(LLAMA_70B, 16, 64, Plan(pp=4, stage_layers=(0, 40, 40, 0)))
    assert not valid(LLAMA_70B, 16, 64, Plan(pp=4, stage_layers=(40, 0, 40, 0)))


@given(
    cases(),
    st.lists(
        st.fixed_dictionaries(dict.fromkeys(("tp", "cp", "pp", "vp", "ep", "etp", "micro_batch_size", "tp_rows"), few)),
        min_size=2,
        max_size=20,
    ),
)
def test_rules_hold_alike_on_numbers_and_arrays(case: Case, candidates: list[dict[str, int]]) -> None:
    question = case.question
    s = Setting.of(question.model, question.cluster, question.num_accelerators, question.job)
    plan = replace(
        case.plan, schedule=None, sharding_degree=None, sharding="zero1", microbatch_group_size=None, stage_layers=None
    )
    interleaved = np.array([candidate["vp"] > 1 for candidate in candidates])
    many = replace(degrees_of_many(candidates, plan), interleaved=interleaved)
    for rule in RULES:
        together = np.broadcast_to(rule.holds(s, many), len(candidates))
        singly = [bool(np.all(rule.holds(s, Degrees.of(replace(plan, **candidate))))) for candidate in candidates]  # type: ignore[arg-type]  # all are numbers
        assert together.tolist() == singly, rule.name


@given(
    cases(),
    st.lists(st.integers(0, 12), min_size=2, max_size=12),
    st.lists(st.integers(0, 12), min_size=12, max_size=12),
)
def test_sharding_and_groups_hold_alike_on_numbers_and_arrays(
    case: Case, shardings: list[int], groups: list[int]
) -> None:
    question = case.question
    s = Setting.of(question.model, question.cluster, question.num_accelerators, question.job)
    sizes = groups[: len(shardings)]
    many = replace(Degrees.of(case.plan), sharding_degree=np.array(shardings), microbatch_group_size=np.array(sizes))
    plans = [
        replace(case.plan, sharding_degree=degree or None, microbatch_group_size=group or None)
        for degree, group in zip(shardings, sizes, strict=True)
    ]
    for rule in RULES:
        together = np.broadcast_to(rule.holds(s, many), len(plans))
        singly = [bool(np.all(rule.holds(s, Degrees.of(plan)))) for plan in plans]
        assert together.tolist() == singly, rule.name


@given(cases())
def test_valid_plans_keep_every_rule(case: Case) -> None:
    question = case.question
    s = Setting.of(question.model, question.cluster, question.num_accelerators, question.job)
    assert all(bool(np.all(rule.holds(s, Degrees.of(case.plan)))) for rule in RULES)
    check_plans((case.plan,), s)


@given(
    st.fixed_dictionaries(
        dict.fromkeys(("tp", "cp", "pp", "vp", "ep", "etp", "micro_batch_size", "tp_rows"), st.integers(1, 1_000_000))
    ),
    st.sampled_from((LLAMA_70B, MIXTRAL, DEEPSEEK)),
    st.sampled_from((1, 7, 1000, 24576)),
)
def test_any_degrees_get_an_answer_in_words(degrees: dict[str, int], model: ModelConfig, num_accelerators: int) -> None:
    job = Job(sequence_length=4096, global_batch_size=num_accelerators)
    plan = Plan(**degrees)  # type: ignore[arg-type]  # all are numbers
    s = Setting.of(model, cluster(), num_accelerators, job)
    rule = broken_rule(s, plan)
    if rule is not None:
        assert rule.message(s, plan)
        assert rule.hint(s, plan)


def test_degrees_hold_every_field_that_rules_read() -> None:
    plan = Plan(tp=8, cp=2, pp=4, vp=5, ep=1, micro_batch_size=2, sharding_degree=4, microbatch_group_size=8)
    numbers = Degrees.of(plan)
    for field in fields(Degrees):
        if hasattr(plan, field.name):
            assert getattr(numbers, field.name) == getattr(plan, field.name), field.name
    assert numbers.interleaved
