from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from tests.examples import LLAMA_70B, cluster, deepseek_v3, ideal_profile, mixtral, tier
from tests.strategies import Case, cases

from shardplan.estimation.load import Loads, StageStates, StageWork
from shardplan.estimation.pricing import Prices, num_trained_parameters, output_bytes, price
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.software import Software
from shardplan.physics.workload.stage import stages


def prices(model: ModelConfig, num_accelerators: int, **fields: Any) -> Prices:
    job = Job(sequence_length=4096, global_batch_size=num_accelerators)
    question = Question(
        model=model, cluster=cluster(), num_accelerators=num_accelerators, job=job, given_profile=ideal_profile()
    )
    return price(question, PlanNumbers.of(Plan(**fields), num_accelerators, job))


def test_stages_hand_on_split_activations() -> None:
    """b s h / t elements with sequence parallelism (scatter-gather, arXiv 2104.04473, section 4.1)."""
    for tp in 1, 8:
        inside, outside = prices(LLAMA_70B, 64, tp=tp, pp=8).handover.bytes
        assert (inside, outside) == (0, 2 * 4096 * 8192 / tp)
    assert prices(LLAMA_70B, 8, pp=8).handover.bytes == (2 * 4096 * 8192,)
    assert prices(LLAMA_70B, 8, tp=8).handover.bytes == (0,)


@pytest.mark.parametrize(
    ("num_accelerators", "fields", "outside"),
    [
        (8, {"pp": 8}, None),  # one node
        (8, {"pp": 4}, None),
        (16, {"pp": 16}, 1),  # stages 0 to 7 and 8 to 15: the eighth has its node's seventh beside it
        (32, {"pp": 8, "tp": 4}, 1),  # two stages in each of four nodes: one neighbour here, one there
        (64, {"pp": 8, "tp": 8}, 2),  # a stage fills a node
        (16, {"pp": 2}, 2),  # eight replicas fill a node, the only neighbour lies in the other
        (16, {"pp": 2, "placement": "tp-cp-ep-pp-dp"}, 0),
    ],
)
def test_a_stage_at_the_end_of_a_node_has_at_most_one_neighbour_outside_where_a_node_holds_two_stages(
    num_accelerators: int, fields: dict[str, Any], outside: int | None
) -> None:
    """Of the two neighbours of every stage of a chain, counted by hand, those of the worst-placed stage."""
    output = 2 * 4096 * 8192 / fields.get("tp", 1)
    sent = prices(LLAMA_70B, num_accelerators, **fields).handover.bytes
    assert sent == ((output,) if outside is None else ((2 - outside) / 2 * output, outside / 2 * output))


def test_a_chain_in_nodes_of_several_stages_hands_on_faster_than_one_of_a_stage_per_node() -> None:
    """The mean of an exchange inside and one outside, and no latency is lost."""
    inside, both, outside = (
        float(prices(LLAMA_70B, n, **fields).handover.time)
        for n, fields in ((8, {"pp": 8}), (16, {"pp": 16}), (16, {"pp": 2}))
    )
    assert inside < both < outside
    assert both == pytest.approx((inside + outside) / 2)


def test_only_mixtures_wait_for_their_dispatcher() -> None:
    job = Job(sequence_length=4096, global_batch_size=8)
    profile = ideal_profile(moe_host_time=1.0, moe_host_backward_ratio=2.0)
    for model, host in (LLAMA_70B, 0.0), (mixtral(), 3.0):
        question = Question(model=model, cluster=cluster(), num_accelerators=8, job=job, given_profile=profile)
        (layer,) = price(question, PlanNumbers.of(Plan(), 8, job)).blocks.layers
        assert float(layer.forward.total + layer.backward.total) == pytest.approx(host, abs=0.2)


def test_the_copy_of_the_table_for_multi_token_prediction_is_reduced_with_the_first() -> None:
    """129,280 x 7,168 fp32 gradients all-reduced by two ranks: each sends them once, all of it between nodes."""
    with_mtp, without = (
        prices(deepseek_v3(4, 1, num_mtp_layers=n), 64, pp=4, ep=8).states.head.traffic for n in (1, 0)
    )
    one, other = (sum(traffic.step_bytes[1:]) for traffic in (with_mtp, without))
    table = 129280 * 7168
    states = (4 + 2) * table * (1 / 8 - 1 / 16)  # zero1: 16 replicas in two nodes scatter gradients and gather weights
    assert one - other == pytest.approx(4 * table + states)
    alone, none = (prices(deepseek_v3(4, 1, num_mtp_layers=n), 8, ep=8).states.head.parameters for n in (1, 0))
    assert alone == none


@given(cases())
def test_loads_of_stages_sum_to_the_load_of_the_model(case: Case) -> None:
    question, plan = case.question, case.plan
    loads = Loads.of(price(question, PlanNumbers.of(plan, question.num_accelerators, question.job)))
    pipeline = stages(question.model, plan.pp, plan.vp, plan.stage_layers)
    (whole,) = stages(question.model, 1, 1)
    for name in ("forward", "backward", "recomputed", "kept_bytes", "freed_bytes"):
        total = sum(float(getattr(StageWork.of(stage, loads.blocks).sum, name)) for stage in pipeline)
        assert total == pytest.approx(float(getattr(StageWork.of(whole, loads.blocks).sum, name)), rel=1e-12), name
    for name in ("dense", "experts", "sharding_time", "reduce_time", "gather_time"):
        total = sum(float(getattr(StageStates.of(stage, loads.states).sum, name)) for stage in pipeline)
        assert total == pytest.approx(float(getattr(StageStates.of(whole, loads.states).sum, name)), rel=1e-12), name


def test_tiers_are_priced_apart() -> None:
    on = cluster(tier("node", 4, 450), tier("rack", 64, 100), tier("network", None, 50))
    job = Job(sequence_length=4096, global_batch_size=128)
    question = Question(model=LLAMA_70B, cluster=on, num_accelerators=128, job=job, given_profile=ideal_profile())
    (layer,) = price(question, PlanNumbers.of(Plan(tp=8, sequence_parallel=False), 128, job)).blocks.layers
    node, rack, network = layer.sent_bytes["tp"]
    whole = 4 * 2 * 2 * 4096 * 8192
    assert (node, rack, network) == (whole * 3 / 4, whole / 8, 0)


def test_all_parameters_are_trained_but_for_frozen_ones() -> None:
    """Mixtures too: 46.7 billion parameters of Mixtral 8x7B (arXiv 2401.04088)."""
    job = Job(sequence_length=4096, global_batch_size=8)
    asked = Question(model=mixtral(), cluster=cluster(), num_accelerators=8, job=job, given_profile=ideal_profile())
    assert num_trained_parameters(asked) == pytest.approx(46.7e9, rel=1e-3)
    assert num_trained_parameters(asked) == asked.model.num_parameters


def test_a_prediction_block_is_a_layer_a_head_and_what_joins_two_vectors() -> None:
    """A matrix of 2 h x h, whose products take 6 FLOP of a parameter and token (arXiv 2412.19437, section 2.2)."""
    blocks = prices(deepseek_v3(4, 1, num_mtp_layers=1), 8, ep=8).blocks
    joined = 6 * 4096 * 2 * 7168**2
    expected = blocks.layers[1].training_flops + blocks.head.training_flops + joined
    assert blocks.mtp.training_flops == pytest.approx(expected, rel=1e-9)
    assert prices(deepseek_v3(4, 1), 8, ep=8).blocks.mtp.training_flops == 0


def test_ranks_that_send_parts_of_an_output_gather_it_behind() -> None:
    """Eight ranks of a node send an eighth each; without sequence parallelism they gather it in seven steps."""
    whole = 2 * 4096 * 8192
    job = Job(sequence_length=4096, global_batch_size=64, software=Software(split_transfers=True))
    asked = Question(model=LLAMA_70B, cluster=cluster(), num_accelerators=64, job=job, given_profile=ideal_profile())
    handovers = []
    for parallel in True, False:
        numbers = PlanNumbers.of(Plan(tp=8, pp=8, sequence_parallel=parallel), 64, job)
        assert output_bytes(asked, numbers) == (whole / 8 if parallel else whole)
        handovers.append(price(asked, numbers).handover)
    split, gathered = handovers
    assert sum(split.bytes) == sum(gathered.bytes) == whole / 8
    assert gathered.time - split.time == pytest.approx(7 * (2e-6 + whole / 8 / 450e9))
