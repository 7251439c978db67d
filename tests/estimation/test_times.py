"""What comes between the passes of a micro-batch: transfers, offloaded activations and fixed times, counted by hand."""

from __future__ import annotations

from typing import Any

import pytest
from tests.examples import accelerator, cluster, gpt, ideal_profile, tier

from shardplan.estimation.priced import PricedPlan
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan

LAYERS, HIDDEN, LENGTH = 16, 4096, 2048
MODEL = gpt(HIDDEN, LAYERS, 32, vocab_size=8)
"""Layers whose embedding and head hardly count."""
LINK = 1e9
"""Bytes per second of links that are slower than the work."""


def priced(
    num_microbatches: int,
    *,
    profile: dict[str, Any] | None = None,
    job: dict[str, Any] | None = None,
    host_link: float = LINK,
    replicas: int = 1,
    **plan: Any,
) -> PricedPlan:
    """A pipeline in which memory takes no time, and links to neighbours and to the host take long."""
    on = cluster(
        tier("node", 8, LINK / 1e9, latency=0),
        tier("network", None, LINK / 1e9, latency=0),
        part=accelerator(memory_bandwidth=1e30, host_link_bandwidth=host_link),
    )
    asked = Plan(**plan)
    question = Question(
        model=MODEL, cluster=on, num_accelerators=replicas * asked.pp, given_profile=ideal_profile(**(profile or {})),
        job=Job(sequence_length=LENGTH, global_batch_size=replicas * num_microbatches, **(job or {})),
    )  # fmt: skip
    return PricedPlan.of(question, asked)


# Bubbles.


@pytest.mark.parametrize(
    ("term", "plan", "windows"),
    [
        ("pp_communication", {"overlap_pp": True}, {"pp_window": 1.0}),
        ("offload", {"offload": "activations"}, {"offload_window": 1.0}),
        ("offload", {"offload": "activations", "offload_num_layers": 1}, {"offload_window": 1.0}),
    ],
)
@pytest.mark.parametrize("pp", [2, 8])
def test_bubbles_hold_what_shows_between_stages(
    term: str, pp: int, plan: dict[str, Any], windows: dict[str, float]
) -> None:
    """Bubble over all other time, (p - 1) / m (arXiv 2104.04473, section 2.2), where all that a stage does is slower.

    Work hides a part of the transfers alone. The last stage keeps a little more, for its norm and its head.
    """
    m = 32
    shown, whole = (priced(m, pp=pp, profile=constants, **plan).breakdown for constants in (windows, {}))
    assert 0 < shown[term] < 0.999 * whole[term]
    for split in shown, whole:
        bubble = split["bubble"]
        expected = pytest.approx((pp - 1) / m, rel=1e-3 if term == "pp_communication" else pp / 100)
        assert bubble / (sum(split.values()) - bubble) == expected


@pytest.mark.parametrize(
    ("schedule", "vp", "bubble"),
    [
        ("1f1b", 1, (7, 7)), ("zb-h1", 1, (7, 7)), ("zb-h2", 1, (7, 7)), ("zb-v", 2, (0, 7)), ("dualpipe", 1, (3, 6)),
        ("dualpipe-v", 2, (3.5, 7)),
    ],
)  # fmt: skip
def test_fixed_times_belong_to_forward_passes_and_input_gradients(
    schedule: str, vp: int, bubble: tuple[float, float]
) -> None:
    """Where they are all that takes time, F and B are half of them and W is none.

    Each chunk of a rank has its own. Bubbles in F and B:
    1F1B (p - 1)(F + B + W), ZB-H1 (p - 1)(F + B - W), ZB-H2 (p - 1)(F + B - 2 W), ZB-V
    (p - 1)(B - W), DualPipe (p / 2 - 1)(F&B + B - 3 W) (arXiv 2401.10241, table 2; 2405.15362; 2412.19437, table 2).
    """
    fixed = 1e6
    split = priced(32, pp=8, vp=vp, schedule=schedule, profile={"microbatch_time": fixed}).breakdown
    assert split["fixed"] == 32 * vp * fixed
    assert split["bubble"] == pytest.approx(sum(bubble) / 2 * vp * fixed, rel=1e-4)


@pytest.mark.parametrize("vp", [1, 2])
def test_chunks_have_fixed_times_of_their_own(vp: int) -> None:
    """Interleaving divides the bubble by v where work is all that takes time (arXiv 2104.04473, section 2.2.2).

    It does not divide what every call of a chunk takes: v calls of t in each of p - 1 bubbles of 1 / v.
    """
    split = priced(32, pp=8, vp=vp, schedule="interleaved", profile={"microbatch_time": 1e6}).breakdown
    assert split["fixed"] == 32 * vp * 1e6
    assert split["bubble"] == pytest.approx(7 * 1e6, rel=1e-4)


def test_plans_that_are_priced_together_keep_their_fixed_times() -> None:
    """Stages of all plans lie in one column: each plan takes those of its own."""
    one = priced(32, pp=8, replicas=8, profile={"microbatch_time": 1e6})
    plans = [Plan(pp=8, vp=2, schedule="interleaved"), Plan(pp=4), Plan(pp=2, vp=4, schedule="interleaved")]
    together = PricedPlan.of_all(one.question, plans)
    alone = [PricedPlan.of(one.question, plan) for plan in plans]
    assert [each.breakdown for each in together] == [each.breakdown for each in alone]
    assert [each.breakdown["fixed"] for each in together] == [32 * 2 * 1e6, 16 * 1e6, 8 * 4 * 1e6]


# Activations on the host.

DROPOUT = {"attention": "unfused", "dropout": True}


def activations(layers: float) -> float:
    """s b h (34 + 5 a s / h) bytes of a layer (arXiv 2205.05198, equation 2)."""
    return layers * LENGTH * HIDDEN * (34 + 5 * 32 * LENGTH / HIDDEN)


@pytest.mark.parametrize("layers", [None, 0, 2, 16])
def test_offloaded_activations_cross_the_link_twice(layers: int | None) -> None:
    """Once for every micro-batch on its way there, once on its way back."""
    found = priced(8, offload="activations", offload_num_layers=layers, job=DROPOUT)
    kept = activations(16 if layers is None else layers)
    assert found.breakdown["offload"] == pytest.approx(8 * 2 * kept / LINK, rel=1e-2)
    assert found.host_bytes == pytest.approx([kept], rel=1e-2)


def test_the_host_holds_the_micro_batches_in_flight() -> None:
    """As many as a stage has stages from itself to the end (1F1B), with one of its four layers or all of them."""
    for layers, share in (None, 4), (1, 1):
        found = priced(8, pp=4, offload="activations", offload_num_layers=layers, job=DROPOUT)
        in_flight = [4, 3, 2, 1]
        assert found.host_bytes == pytest.approx([activations(share) * count for count in in_flight], rel=1e-2)


def test_recomputed_tensors_are_not_sent_to_the_host() -> None:
    """Of a layer that runs again as a whole its input alone is kept: 2 s b h bytes."""
    found = priced(8, offload="activations", recompute="full", job=DROPOUT)
    assert found.host_bytes == pytest.approx([16 * 2 * LENGTH * HIDDEN], rel=0.2)
    assert found.breakdown["offload"] == pytest.approx(8 * 2 * found.host_bytes[0] / LINK)


@pytest.mark.parametrize("host_link", [LINK, 300e9, 600e9])
def test_activations_on_their_way_leave_the_network_to_gradients(host_link: float) -> None:
    """The host's link is another one: what of the backward pass is spent, work or wait for the host, hides gradients.

    Attention has 2 s / 24 h of the FLOP of a layer's products, in the backward pass five halves of the forward one's.
    """
    offload: dict[str, Any] = {"replicas": 2, "sharding": "ddp", "offload": "activations", "host_link": host_link}
    bare, hidden = (
        priced(1, profile=constants, **offload).breakdown for constants in ({}, {"offload_window": 1, "dp_window": 1})
    )
    work, away = bare["matmul"] + bare["attention"], bare["offload"]
    assert hidden["offload"] == pytest.approx(max(away - work, 0.0))
    attention = 2 * LENGTH / (24 * HIDDEN)
    backward = (2 + 5 / 2 * attention) / (3 + 7 / 2 * attention)
    expected = min(backward * max(work, away), bare["dp_communication"])
    assert bare["dp_communication"] - hidden["dp_communication"] == pytest.approx(expected, rel=1e-3, abs=1e-9)


def test_every_stage_sends_its_own_layers_to_the_host() -> None:
    """One of its four, of every micro-batch, as the last stage of a pipeline does that fills it."""
    found = priced(8, pp=4, offload="activations", offload_num_layers=1, job=DROPOUT)
    assert found.breakdown["offload"] == pytest.approx(8 * 2 * activations(1) / LINK, rel=1e-2)


def test_plans_that_overlap_transfers_stand_beside_plans_that_do_not() -> None:
    question = priced(8, pp=4, profile={"pp_window": 1.0}).question
    plans = [Plan(pp=4, overlap_pp=overlap) for overlap in (True, False)]
    together, alone = PricedPlan.of_all(question, plans), [PricedPlan.of(question, plan) for plan in plans]
    assert [each.step_time for each in together] == [each.step_time for each in alone]
    assert alone[0].breakdown["pp_communication"] < alone[1].breakdown["pp_communication"]
