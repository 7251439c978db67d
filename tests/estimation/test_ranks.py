"""Which ranks form the groups of a plan, and where they lie: Megatron's documented groups, others counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from shardplan import load_cluster, load_model
from shardplan.answers.sections import counted_elsewhere, first_group, layout_record, ranks_text, span
from shardplan.estimation.estimate import estimate_plan
from shardplan.estimation.question import Question
from shardplan.estimation.ranks import RankLayout, layout_of
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan


def laid_out(
    plan: Plan, gpus: int = 16, *, model: str = "llama-3.1-8b", cluster: str = "dgx-h100", idle: int = 0
) -> RankLayout:
    question = Question(
        model=load_model(model),
        cluster=load_cluster(cluster),
        num_accelerators=gpus,
        num_idle=idle,
        job=Job(sequence_length=4096, global_batch_size=gpus),
    )
    return layout_of(question, estimate_plan(question, plan))


def groups_of(layout: RankLayout) -> dict[str, list[list[int]]]:
    return {kind.name: kind.groups(layout.num_ranks).tolist() for kind in layout.kinds}


TP, INNER_PP = "tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"
MEGATRON = (
    (16, Plan(tp=2, pp=4), "dp", [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15]]),
    (16, Plan(tp=2, pp=4), "tp", [[at, at + 1] for at in range(0, 16, 2)]),
    (16, Plan(tp=2, pp=4), "pp", [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]),
    (8, Plan(tp=2, pp=2, placement=INNER_PP), "dp", [[0, 4], [1, 5], [2, 6], [3, 7]]),
    (24, Plan(tp=2, pp=4), "dp", [[at, at + 2, at + 4] for at in (0, 1, 6, 7, 12, 13, 18, 19)]),
)  # fmt: skip


@pytest.mark.parametrize(("gpus", "plan", "kind", "expected"), MEGATRON)
def test_groups_are_those_that_megatron_documents(gpus: int, plan: Plan, kind: str, expected: list[list[int]]) -> None:
    """megatron/core/parallel_state.py at d98e8a6: initialize_model_parallel for 16, RankGenerator for 8 and 24."""
    assert groups_of(laid_out(plan, gpus))[kind] == expected


CASES = (
    ("llama-3.1-8b", 16, Plan(tp=2, cp=2, pp=2)),
    ("llama-3.1-8b", 48, Plan(tp=4, pp=2, placement=INNER_PP)),
    ("mixtral-8x7b", 64, Plan(tp=2, pp=4, ep=8, etp=2)),
    ("mixtral-8x7b", 64, Plan(tp=4, cp=2, ep=4, etp=1, pp=2)),
)


@pytest.mark.parametrize(("model", "gpus", "plan"), CASES)
def test_groups_are_rows_of_the_ranks_in_the_shape_of_the_degrees(model: str, gpus: int, plan: Plan) -> None:
    """As Megatron's own tests build them: dense layers reshaped to pp x dp x cp x tp, experts to pp x edp x ep x etp.

    tests/unit_tests/test_parallel_state.py, golden_rank_result_from_past_code.
    """
    layout = laid_out(plan, gpus, model=model)
    dense = {"tp": plan.tp, "cp": plan.cp, "dp": plan.dp(gpus), "pp": plan.pp}
    experts = {"etp": plan.etp, "ep": plan.ep, "edp": gpus // (plan.pp * plan.ep * plan.etp)}
    order = ("tp", "cp", "pp", "dp") if plan.placement == INNER_PP else ("tp", "cp", "dp", "pp")
    shapes = [{name: dense[name] for name in order}]
    shapes += [{**experts, "pp": plan.pp}] if model == "mixtral-8x7b" else []
    expected: dict[str, list[list[int]]] = {}
    for shape in shapes:
        ranks = np.arange(gpus).reshape(*reversed(shape.values()))
        for axis, (name, degree) in enumerate(reversed(shape.items())):
            if degree > 1:
                expected[name] = sorted(np.moveaxis(ranks, axis, -1).reshape(-1, degree).tolist())
    found = {name: sorted(groups) for name, groups in groups_of(layout).items() if name != "dp-cp"}
    assert found == expected


@pytest.mark.parametrize(("model", "gpus", "plan"), CASES)
def test_groups_share_out_the_ranks(model: str, gpus: int, plan: Plan) -> None:
    layout = laid_out(plan, gpus, model=model)
    for kind in layout.kinds:
        groups = kind.groups(gpus)
        assert sorted(groups.ravel().tolist()) == [*range(gpus)]
        assert groups.shape == (gpus // kind.size, kind.size)
        assert np.array_equal(kind.places(groups), np.tile(np.arange(kind.size), (len(groups), 1)))


def test_numbered_parts_of_a_placement_lie_where_they_are_put() -> None:
    """tp:2-dp:2-...: two of four tensor-parallel ranks are neighbours, two lie beyond a pair of replicas."""
    found = groups_of(laid_out(Plan(tp=4, pp=2, placement="tp:2-dp:2-tp-cp-ep-dp-pp"), 16))
    assert found["tp"][0] == [0, 1, 4, 5]
    assert found["dp"][0] == [0, 2]
    assert found["pp"][0] == [0, 8]


PLACED = (
    # cluster, used, idle, rank, where it is
    ("dgx-h100", 16, 0, 13, {"node": 1, "accelerator": 5}),
    ("gb200-nvl72", 576, 0, 75, {"rack": 1, "node": 18, "accelerator": 3}),
    ("gb200-nvl72", 512, 64, 64, {"rack": 1, "node": 16, "accelerator": 0}),
    ("dgx-h100", 12, 0, 6, {"node": 1, "accelerator": 0}),
    ("dgx-h100", 36, 0, 35, {"node": 4, "accelerator": 3}),
    ("meta-grandteton-ib", 6144, 0, 3072, {"pod": 1, "node": 384, "accelerator": 0}),
)
"""The second is the fourth accelerator of the first node of the second rack; 512 of 576 use 64 of 72 in each rack;
twelve are six on each of two nodes, 36 four nodes of eight and four more."""


@pytest.mark.parametrize(("cluster", "gpus", "idle", "rank", "expected"), PLACED)
def test_a_rank_lies_in_the_domains_that_it_is_counted_into(
    cluster: str, gpus: int, idle: int, rank: int, expected: dict[str, int]
) -> None:
    found = laid_out(Plan(tp=1), gpus, cluster=cluster, idle=idle).places(np.asarray([rank]))
    assert {name: numbers.item() for name, numbers in found.items()} == expected


def test_no_accelerator_has_two_ranks_and_no_node_too_many() -> None:
    for gpus, idle in ((576, 0), (512, 64), (280, 8), (100, 0)):
        layout = laid_out(Plan(tp=1), gpus, cluster="gb200-nvl72", idle=idle)
        found = layout.places(np.arange(gpus))
        assert len({*zip(found["node"].tolist(), found["accelerator"].tolist(), strict=True)}) == gpus
        assert found["accelerator"].max() < 4
        racks = np.bincount(found["rack"])
        assert racks.max() <= 72
        assert all(len({*found["rack"][found["node"] == node].tolist()}) == 1 for node in range(found["node"].max()))


def test_bytes_are_those_of_the_estimate_and_go_with_the_ranks_that_exchange_them() -> None:
    layout = laid_out(Plan(tp=2, cp=2, pp=2), 32)
    sent = {kind.name: kind.sent for kind in layout.kinds}
    assert sent["dp-cp"]["cluster"] > 0
    assert not sent["dp"]
    assert counted_elsewhere(layout) == ["dp: counted with dp-cp"]
    inside = {kind.name for kind in layout.kinds if layout.spread(kind, layout.node) == 1}
    for name in inside & {"tp", "cp"}:
        assert not sent[name]["cluster"]
    assert sent["pp"]["cluster"] > 0
    assert span(layout, layout.kinds[-1]) == "2 nodes"


def test_a_group_that_lies_across_racks_is_counted_where_it_lies_in_most() -> None:
    """Pairs 8 apart on racks of 72: 0 and 8 share a rack, 64 and 72 do not."""
    layout = laid_out(Plan(tp=8, cp=2), 144, cluster="gb200-nvl72")
    pair = next(kind for kind in layout.kinds if kind.name == "cp")
    assert span(layout, pair) == "2 racks"
    assert pair.sent["cluster"] > 0


def test_the_record_has_every_rank() -> None:
    record = layout_record(laid_out(Plan(tp=2, pp=4), 16))
    assert record["ranks"][13] == {"rank": 13, "node": 1, "accelerator": 5, "tp": 1, "dp": 0, "pp": 3}
    assert [each["name"] for each in record["groups"]] == ["tp", "dp", "pp"]


def test_ranks_are_named_in_few_words() -> None:
    layout = laid_out(Plan(tp=2, pp=4), 64)
    assert [first_group(layout, kind) for kind in layout.kinds] == ["0, 1", "0, 2 ... 14", "0, 16, 32, 48"]
    assert ranks_text([0, 1, 4, 5, 8, 9]) == "0, 1, 4 ... 9"
    assert ranks_text([3, 4]) == "3, 4"
