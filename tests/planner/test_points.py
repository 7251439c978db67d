"""The points of a space: valid plans, each once, within what users restrict."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import GB, SMALL, accelerator, cluster
from tests.few import few
from tests.planner.small import plans_of, positions, questions, spaces

from shardplan.base.errors import InputError
from shardplan.estimation.estimate import estimate_plan, price_plans
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan, Sharding
from shardplan.inputs.plan_numbers import Degrees, Setting
from shardplan.physics.validity import RULES, Rule, broken_rule, broken_rules
from shardplan.planner.grid import ANOTHER_DP, DUPLICATE, NEEDS
from shardplan.planner.points import families
from shardplan.planner.related.counts import can_have_plans
from shardplan.planner.restrictions import Restrictions
from shardplan.planner.search import search_question
from shardplan.planner.space import GRID, Degree, Filling, Space, declare

FIRST = (
    "every stage has layers",
    "recomputed modules exist in the model",
)
"""Rules that are checked for a pipeline depth as a whole, in this order."""
INTERLEAVING, SHARDING = "interleaving has whole groups of micro-batches", "sharding groups divide the replicas"
"""Rules that are checked last."""


def combinations(space: Space) -> Iterator[Plan]:
    """The declared space of one choice of software, one plan after the other."""
    grids = [name for name in GRID if name != "pp"]
    (software,) = space.chosen()
    for switches, pp in itertools.product(space.switches(), space.axes["pp"]):
        for vp, (policy, layers), (kind, degree), placement, *values in itertools.product(
            space.virtual_stages(pp, switches.get("schedule")),
            space.recomputations(pp),
            space.shardings(),
            space.axes["placement"],
            *(space.axes[name] for name in grids),
        ):
            yield Plan(
                pp=pp, vp=vp, recompute=policy, recompute_num_layers=layers, sharding=kind,
                sharding_degree=degree_of(degree, values), placement=placement, **switches, **software,
                **dict(zip(grids, values, strict=True)),
            )  # fmt: skip


def of_one_software(most: int) -> st.SearchStrategy[tuple[Question, Space]]:
    """Spaces in which no software is left to choose: plans under several are those of ``test_software.py``."""
    return spaces(most=most).filter(lambda asked: len(asked[1].chosen()) == 1)


def degree_of(degree: Degree, values: Sequence[Any]) -> int | None:
    """The degree of a plan with these values of the grid but for its depth."""
    at = dict(zip([name for name in GRID if name != "pp"], values, strict=True))
    return int(degree.degree(at["tp"], at["cp"])) or None if isinstance(degree, Filling) else degree


def rule_named(name: str) -> Rule:
    return next(rule for rule in RULES if rule.name == name)


def why_not(setting: Setting, space: Space, plan: Plan) -> str | None:
    """The first reason for which a search leaves a plan out."""

    def breaks(name: str) -> bool:
        return not bool(np.all(rule_named(name).holds(setting, Degrees.of(plan))))

    dp = plan.dp(setting.num_accelerators)
    others = [rule.name for rule in RULES if rule.name not in (*FIRST, INTERLEAVING, SHARDING)]
    for name in FIRST:
        if breaks(name):
            return name
    if space.dp is not None and dp not in space.dp:
        return ANOTHER_DP
    for name in others:
        if breaks(name):
            return name
    edp = setting.num_accelerators // (plan.pp * plan.ep * plan.etp) if setting.num_experts else 1
    # Replicas of experts lie where those of the dense layers would.
    if in_other_words(setting, space, plan, dp * edp):
        return DUPLICATE
    for name in (INTERLEAVING, SHARDING):
        if breaks(name):
            return name
    return SHARDING if has_earlier_sharding(setting, space, plan) else None


def in_other_words(setting: Setting, space: Space, plan: Plan, dp: int) -> bool:
    """Whether an earlier value of a switch or an earlier placement, if it is valid, makes the same plan."""
    for name, dimensions in NEEDS.items():
        needless = all(getattr(plan, dimension) == 1 for dimension in dimensions)
        if needless and name in space.axes and getattr(plan, name) != space.axes[name][0]:
            return True
    orders = space.axes["placement"]
    kept = rule_named("placement keeps pipeline stages together")
    earlier = [
        order
        for order in orders[: orders.index(plan.placement)]
        if np.all(kept.holds(setting, Degrees.of(replace(plan, placement=order))))
    ]
    alone = [name for name, degree in (("dp", dp), ("pp", plan.pp)) if degree == 1]
    return any(without(name, order) == without(name, plan.placement) for order in earlier for name in alone)


def without(dimension: str, placement: str) -> list[str]:
    return [part for part in placement.split("-") if part != dimension]


def has_earlier_sharding(setting: Setting, space: Space, plan: Plan) -> bool:
    """Whether nothing has replicas, so that a simpler kind of sharding that is valid makes the same plan."""
    n = setting.num_accelerators
    if n > plan.tp * plan.pp or (setting.num_experts and n > plan.pp * plan.ep * plan.etp):
        return False
    grid = [getattr(plan, name) for name in GRID if name != "pp"]
    pairs = [(kind, degree_of(degree, grid)) for kind, degree in space.shardings()]
    kinds, own = get_args(Sharding), (plan.sharding, plan.sharding_degree)
    simpler = [pair for pair in pairs if kinds.index(pair[0]) < kinds.index(own[0])]
    earlier = [*simpler, *(pair for pair in pairs[: pairs.index(own)] if pair[0] == own[0])]
    return any(broken_rule(setting, with_sharding(plan, *pair)) is None for pair in earlier)


def with_sharding(plan: Plan, kind: Any, degree: int | None) -> Plan:
    return replace(plan, sharding=kind, sharding_degree=degree)


@few(8)
@given(of_one_software(3000))
def test_the_grid_keeps_the_plans_that_keep_every_rule(asked: tuple[Question, Space]) -> None:
    question, space = asked
    setting, rejected = question.setting, Counter[str]()
    found = [plan for family in families(question, space, rejected) for plan in plans_of(family)]
    reasons = [(plan, why_not(setting, space, plan)) for plan in combinations(space)]
    assert len(found) == len(set(found))
    assert set(found) == {plan for plan, reason in reasons if reason is None}
    assert +rejected == Counter(reason for _, reason in reasons if reason is not None)
    assert not any(broken_rules(setting, found))


@few(8)
@given(of_one_software(1000))
def test_a_plan_in_other_words_has_the_time_and_memory_of_one_that_is_kept(asked: tuple[Question, Space]) -> None:
    question, space = asked
    setting = question.setting
    reasons = {plan: why_not(setting, space, plan) for plan in combinations(space)}
    broken = broken_rules(setting, [*reasons])
    valid = {plan: reason for (plan, reason), rule in zip(reasons.items(), broken, strict=True) if rule is None}
    for reason, kept in ((DUPLICATE, (None, SHARDING)), (SHARDING, (None,))):
        for other in [plan for plan, why in valid.items() if why == reason][-2:]:
            wanted = pytest.approx(outcome(question, other), rel=1e-9)
            alike = (plan for plan, why in valid.items() if why in kept and numbers(plan) == numbers(other))
            assert any(outcome(question, plan) == wanted for plan in alike), other


def numbers(plan: Plan) -> list[Any]:
    """What plans that are the same in other words have in common."""
    return [getattr(plan, name) for name in (*GRID, "vp", "recompute", "recompute_num_layers")]


def outcome(question: Question, plan: Plan) -> tuple[float, float]:
    """Step time and bytes of the fullest stage."""
    answer = estimate_plan(question, plan)
    return answer.step_time, answer.peak_memory_bytes


@few(6)
@given(spaces(most=3000))
def test_counts_of_a_family_are_those_of_its_plans(asked: tuple[Question, Space]) -> None:
    question, space = asked
    for family in families(question, space, Counter()):
        chunks: Counter[int] = Counter()
        for point in {(point, vp) for _, _, vp, point in positions(family)}:
            chunks[point[0]] += 1
        assert family.num_chunks().tolist() == [chunks[point] for point in range(family.num_points)]
        assert len(set(zip(*(column.tolist() for column in family.points.values()), strict=True))) == family.num_points


@few(6)
@given(questions())
def test_points_that_share_a_layout_differ_in_the_micro_batch_alone(question: Question) -> None:
    for family in families(question, declare(question, Restrictions()), Counter()):
        names = [name for name in family.points if name not in ("layout", "degrees", "position", "micro_batch_size")]
        rows = list(zip(*(family.points[name].tolist() for name in names), strict=True))
        layouts = family.points["layout"].tolist()
        assert len(set(rows)) == len(set(layouts)) == len(set(zip(rows, layouts, strict=True)))
        sizes = list(zip(family.points["micro_batch_size"].tolist(), family.points["position"].tolist(), strict=True))
        assert len({size for size, _ in sizes}) == len(set(sizes))


@few(25)
@given(questions())
def test_points_that_are_placed_alike_have_the_same_plans_and_need_as_much_memory(question: Question) -> None:
    """So a search finds the memory of one of them."""
    declared = declare(question, Restrictions())
    for family in families(question, declared, Counter()):
        chosen, which = family.placed_alike()
        assert chosen[which[chosen]].tolist() == chosen.tolist()
        of_points: dict[int, list[tuple[int, int, int]]] = {}
        for *inner, point in positions(family):
            of_points.setdefault(point, []).append((inner[0], inner[1], inner[2]))
        pairs = []
        for point in np.flatnonzero(chosen[which] != np.arange(family.num_points)).tolist():
            first = int(chosen[which[point]])
            assert of_points[point] == of_points[first]
            plan, other = (family.plan(*of_points[point][-1], each) for each in (point, first))
            assert replace(plan, placement=other.placement) == other != plan
            pairs.append((plan, other))
        placement = next(iter(declared.axes["placement"]))
        kept = [
            (*inner, replace(family.plan(*inner[-1], point), placement=placement))
            for point, inner in of_points.items() if point in chosen
        ]  # fmt: skip
        assert len(set(kept)) == len(kept), "of points that differ in placement alone one is kept"
        priced = [each.peak_memory_bytes for each in price_plans(question, [*itertools.chain(*pairs)])]
        assert priced[::2] == pytest.approx(priced[1::2], rel=1e-12)


@pytest.mark.parametrize("order", [*itertools.permutations(("hsdp", "zero3", "zero1"))])
def test_without_replicas_the_simplest_valid_sharding_stands_for_all(order: tuple[str, ...]) -> None:
    """hsdp needs a group smaller than the replicas, so it is never the one; the order does not matter."""
    job = Job(sequence_length=2048, global_batch_size=64)
    question = Question(model=SMALL, cluster=cluster(), num_accelerators=16, job=job)
    limit: dict[str, Any] = {
        "sharding": order,
        "tp": (8,),
        "pp": (2,),
        "cp": (1,),
        "vp": (1,),
        "micro_batch_size": (1,),
    }
    limit |= {"recompute": ("none",), "placement": ("tp-cp-ep-dp-pp",)}
    rejected: Counter[str] = Counter()
    (family,) = families(question, declare(question, Restrictions(limit=limit)), rejected)
    (plan,) = plans_of(family)
    assert plan.sharding == "zero1"
    assert +rejected == {SHARDING: len(declare(question, Restrictions(limit=limit)).shardings()) - 1}


@pytest.mark.parametrize(
    ("tp", "cp", "inner", "outer"),
    [(1, 1, 8, 64), (2, 1, 4, 32), (2, 2, 4, 32), (8, 1, 0, 8), (2, 8, 0, 32), (3, 1, 0, 0)],
)
def test_groups_of_hybrid_sharding_fill_a_domain_or_eight(tp: int, cp: int, inner: int, outer: int) -> None:
    """With tp 2 four ranks fill a node of eight; with tp 8 a node has one rank, which shares with nobody."""
    job = Job(sequence_length=8192, global_batch_size=512)
    question = Question(model=SMALL, cluster=cluster(), num_accelerators=512, job=job)
    space = declare(question, Restrictions(limit={"sharding": ["hsdp"]}))
    found = [degree.degree(tp, cp) for _, degree in space.shardings() if isinstance(degree, Filling)]
    assert [int(degree) for degree in found] == [inner, outer]
    assert {inner, outer} - {0} <= {*space.declared()["sharding_degree"]} or tp == 3


ASKED = Question(
    model=SMALL,
    cluster=cluster(part=accelerator(memory_bytes=80 * GB)),
    num_accelerators=48,
    job=Job(sequence_length=2048, global_batch_size=96),
)


@pytest.mark.parametrize(
    ("name", "text", "values"),
    [
        ("pp", "1..7", (1, 2, 3, 4, 6)),  # divisors of 48
        ("tp", "2 .. 4", (2, 3, 4)),
        ("micro_batch_size", "5..9", (6, 8)),  # divisors of 96
        ("vp", "2..4", (2, 3, 4)),
        ("recompute_num_layers", "0..2", (0, 1, 2)),
    ],
)
def test_a_range_has_every_value_that_can_be_valid(name: str, text: str, values: tuple[int, ...]) -> None:
    assert declare(ASKED, Restrictions(limit={name: (text,)})).axes[name] == values


def test_a_range_may_stand_among_values_and_be_excluded() -> None:
    space = declare(ASKED, Restrictions(limit={"pp": ("1..3", "8")}, exclude={"tp": ("3..48",)}))
    assert space.axes["pp"] == (1, 2, 3, 8)
    assert space.axes["tp"] == (1, 2)
    # A range that holds no candidate excludes nothing.
    assert declare(ASKED, Restrictions(exclude={"pp": ("9..11",)})).axes == declare(ASKED, Restrictions()).axes


def test_a_range_finds_what_its_values_find() -> None:
    ranged = search_question(ASKED, limit={"pp": "1..4"}, top=3)
    listed = search_question(ASKED, limit={"pp": [1, 2, 3, 4]}, top=3)
    assert [each.plan for each in ranged.estimates] == [each.plan for each in listed.estimates]


@pytest.mark.parametrize(
    ("restrictions", "message", "hint"),
    [
        (Restrictions(limit={"pp": ("25..47",)}), "none of them divides 48 accelerators", "1, 2, 3, 4, 6, 8"),
        (Restrictions(limit={"pp": ("8..2",)}), "ends before it starts", "pp=2..8"),
        (Restrictions(limit={"sharding": ("1..2",)}), "takes no range", "sharding=VALUE"),
        (Restrictions(limit={"pp": ("1-4",)}), "pp is '1-4'", "--limit pp=1..4"),
        (Restrictions(fix={"pp": ("1..4",)}), "fixed to a range", "--limit pp=1..4"),
        (Restrictions(fix={"pp": (2, 4)}), "fixed to 2 values", "--limit pp=2,4"),
        (Restrictions(limit={"micro_batch_size": ("5..5",)}), "global batch of 96", "1, 2, 3, 4, 6"),
    ],
)
def test_ranges_that_mean_nothing_are_refused(restrictions: Restrictions, message: str, hint: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        declare(ASKED, restrictions)
    assert hint in error.value.hint


@settings(max_examples=30)
@given(
    number=st.integers(1, 64),
    batch=st.integers(1, 96),
    fix=st.dictionaries(st.sampled_from(["tp", "pp", "cp", "dp"]), st.integers(1, 12).map(lambda n: (n,)), max_size=3),
)
def test_no_question_with_a_valid_plan_is_ruled_out(number: int, batch: int, fix: dict[str, tuple[int, ...]]) -> None:
    asked = replace(ASKED, num_accelerators=number, job=replace(ASKED.job, global_batch_size=batch))
    restrictions = Restrictions(fix=fix)
    try:
        has_plans = next(families(asked, declare(asked, restrictions), Counter()), None) is not None
    except InputError:
        return
    assert can_have_plans(asked, restrictions) or not has_plans


def test_degrees_that_share_no_heads_are_ruled_out_on_any_number() -> None:
    for number in (3, 6, 48, 63):
        asked = replace(ASKED, num_accelerators=number)
        assert not can_have_plans(asked, Restrictions(fix={"tp": (3,)}))  # SMALL has 8 heads
    assert can_have_plans(ASKED, Restrictions(fix={"tp": (4,)}))
