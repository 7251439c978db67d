"""Activations that wait on the host: what faster parts do to a step that moves them."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from tests.examples import accelerator, cluster, llama, tier

from shardplan import estimate
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan

MODEL = llama(2048, 8, 16, 16, 8192, vocab_size=32000)
RATES = st.sampled_from((1, 2, 10, 50, 200))


def step_time(plan: Plan, *, node: float, network: float, **part: Any) -> float:
    """Of 16 accelerators with four micro-batches each."""
    on = cluster(tier("node", 8, node, latency=0), tier("network", None, network, latency=0), part=accelerator(**part))
    return estimate(MODEL, on, 16, plan, job=Job(sequence_length=4096, global_batch_size=64)).step_time


@given(
    st.builds(
        Plan,
        offload=st.just("activations"),
        sharding=st.sampled_from(("ddp", "zero1", "zero3")),
        recompute=st.sampled_from(("none", "full")),
    ),
    st.fixed_dictionaries({"node": RATES, "network": RATES}),
    st.fixed_dictionaries(
        {
            "peak_flops": st.sampled_from((1e14, 2e14, 4e14, 8e14)),
            "memory_bandwidth": st.just(3e12),
            "host_link_bandwidth": st.sampled_from((2e9, 8e9, 32e9)),
        }
    ),
    st.tuples(st.sampled_from(("peak_flops", "memory_bandwidth", "host_link_bandwidth")), st.floats(1, 4)),
)
@example(
    Plan(offload="activations", sharding="ddp"),
    {"node": 50, "network": 1},
    {"peak_flops": 1e14, "memory_bandwidth": 3e12, "host_link_bandwidth": 8e9},
    ("peak_flops", 2.0),
)
def test_a_faster_part_never_slows_a_plan_that_offloads_activations(
    plan: Plan, network: dict[str, float], part: dict[str, float], better: tuple[str, float]
) -> None:
    name, factor = better
    faster = {**part, name: part[name] * factor}
    before, after = (_timed(plan, network, rates) for rates in (part, faster))
    assert after <= before * (1 + 1e-12)


def _timed(plan: Plan, network: dict[str, float], rates: dict[str, float]) -> float:
    others = {name: rate for name, rate in rates.items() if name != "peak_flops"}
    return step_time(
        plan, node=network["node"], network=network["network"], peak_flops={"bf16": rates["peak_flops"]}, **others
    )
