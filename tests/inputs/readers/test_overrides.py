"""Single values of a cluster that a user replaces."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from shardplan.base.errors import InputError
from shardplan.inputs.readers.catalog import cluster_of_accelerator, load_cluster
from shardplan.inputs.readers.overrides import GIVEN_BY_USER, Overrides, doubts_of

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"


@pytest.mark.parametrize("text", ["25", "25GB/s", "200Gb/s", "200 Gbps", 25e9])
def test_bandwidth_between_nodes(text: str | float) -> None:
    cluster = load_cluster("dgx-h100", inter_node_bandwidth=text)
    assert [tier.bandwidth for tier in cluster.tiers] == [450e9, 25e9]
    assert cluster.sources["tiers.cluster.bandwidth"] == GIVEN_BY_USER
    assert "bandwidth of tier 'cluster': 25.0 GB/s, given by the user, in place of 50.0 GB/s" in cluster.assumptions


@pytest.mark.parametrize(
    ("name", "text", "meant"),
    [
        ("inter_node_bandwidth", "400", "write 400Gb/s"), ("inter_node_bandwidth", "400GB/s", None),
        ("inter_node_bandwidth", "100", None), ("intra_node_bandwidth", "900", None),
        ("memory_bandwidth", "3.35", "write 3.35TB/s"), ("memory_bandwidth", "4800", None),
    ],
)  # fmt: skip
def test_a_bandwidth_without_a_unit_is_questioned_where_another_unit_is_nearer(
    name: str, text: str, meant: str | None
) -> None:
    """A port of a DGX H100 has 400 Gb/s, its memory 3.35 TB/s; 900 GB/s of NVLink may be meant, as twice 450."""
    given: Any = {name: text}
    doubts = doubts_of(load_cluster("dgx-h100", **given))
    assert len(doubts) == (meant is not None)
    assert meant is None or meant in doubts[0]


def test_tiers_further_out_follow() -> None:
    """1:7 oversubscription above the pods stays 1:7 (arXiv 2407.21783, section 3.3.1)."""
    cluster = load_cluster("meta-grandteton-roce", inter_node_bandwidth="100", inter_node_latency="5us")
    pod, spine = cluster.tiers[1:]
    assert pod.bandwidth == 100e9
    assert pod.bandwidth / spine.bandwidth == pytest.approx(7)
    assert (pod.latency, spine.latency) == (5e-6, 5e-6)
    assert cluster.marks.keys() & {"tiers.pod.latency", "tiers.spine.latency"} == set()
    assert not any("the default of roce" in line for line in cluster.assumptions)


def test_latencies_keep_their_difference() -> None:
    cluster = load_cluster(EXAMPLES / "my-cluster.yaml", inter_node_latency="3us", intra_node_latency="1us")
    assert [tier.latency for tier in cluster.tiers] == pytest.approx([1e-6, 3e-6, 5e-6])


def test_racks_are_one_domain() -> None:
    """Inside an NVL72 rack every pair has NVLink: what lies between nodes is the network between racks."""
    cluster = load_cluster("gb200-nvl72", inter_node_bandwidth="100", intra_node_bandwidth="450")
    assert [(tier.name, tier.bandwidth) for tier in cluster.tiers] == [("rack", 450e9), ("cluster", 100e9)]


def test_between_nodes_is_beyond_the_bridge_and_the_host() -> None:
    """PCIe cards in bridged pairs: the network between nodes is the third tier."""
    cluster = cluster_of_accelerator("h100-nvl-94gb", inter_node_bandwidth="25", intra_node_bandwidth="150")
    assert [(tier.name, tier.bandwidth) for tier in cluster.tiers] == [
        ("bridge", 150e9), ("node", 63e9), ("cluster", 25e9),
    ]  # fmt: skip


def test_memory_and_peaks_of_the_part() -> None:
    cluster = load_cluster("dgx-h100", memory="96GB", memory_bandwidth="4TB/s", peak_flops={"bf16": "800", "fp8": 2e15})
    part = cluster.accelerator
    assert (part.memory_bytes, part.memory_bandwidth) == (96e9, 4e12)
    assert (part.peak("bf16"), part.peak("fp8"), part.peak("tf32")) == (800e12, 2e15, 494.5e12)
    given = {name for name, source in part.sources.items() if source == GIVEN_BY_USER}
    assert given == {"memory_bytes", "memory_bandwidth", "peak_flops.bf16", "peak_flops.fp8"}
    assert given & part.marks.keys() == set()
    assert any(line.startswith("memory of an accelerator: 96.0 GB, given by the user") for line in cluster.assumptions)


@pytest.mark.parametrize(
    ("name", "size", "per_node"),
    [("dgx-h100", 4, 4), ("dgx-h100", "16", 16), ("gb200-nvl72", 36, 4), ("gb200-nvl72", 2, 2)],
)
def test_size_of_the_fast_domain(name: str, size: str | int, per_node: int) -> None:
    cluster = load_cluster(name, node_size=size)
    assert cluster.innermost.size == int(size)
    assert cluster.accelerators_per_node == per_node
    assert cluster.sources["tiers." + cluster.innermost.name + ".size"] == GIVEN_BY_USER


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("dgx-h100", {"inter_node_bandwidth": "25us"}, "inter_node_bandwidth: '25us' has the unit 'us' of a time"),
        ("dgx-h100", {"inter_node_bandwidth": "25GiBps"}, "unknown unit 'GiBps'"),
        ("dgx-h100", {"inter_node_bandwidth": "0"}, "inter_node_bandwidth: '0' is zero"),
        ("dgx-h100", {"inter_node_bandwidth": "-25"}, "inter_node_bandwidth: '-25' is negative"),
        ("dgx-h100", {"inter_node_bandwidth": "nan"}, "inter_node_bandwidth: 'nan' is not a number"),
        ("dgx-h100", {"inter_node_bandwidth": math.inf}, "inter_node_bandwidth: inf is not a number"),
        ("dgx-h100", {"inter_node_bandwidth": "25e9"}, "inter_node_bandwidth: '25e9' is too much"),
        ("dgx-h100", {"inter_node_bandwidth": 25}, r"inter_node_bandwidth: 25 is 25\.0 B/s"),
        ("dgx-h100", {"inter_node_bandwidth": []}, "inter_node_bandwidth: .* is a list"),
        ("dgx-h100", {"intra_node_latency": "5"}, "intra_node_latency: '5' has no unit"),
        ("dgx-h100", {"intra_node_latency": 5}, r"intra_node_latency: 5 is 5\.00 s"),
        ("dgx-h100", {"intra_node_latency": "5GB"}, "of an amount of data, not of a time"),
        ("dgx-h100", {"memory": "80e9"}, "memory: '80e9' is too much"),
        ("dgx-h100", {"memory": 80}, r"memory: 80 is 80\.0 B"),
        ("dgx-h100", {"memory_bandwidth": "3350 Gb"}, "memory_bandwidth: "),
        ("dgx-h100", {"peak_flops": "989"}, "peak_flops is '989'"),
        ("dgx-h100", {"peak_flops": {"bf16": "1e30"}}, r"peak_flops\.bf16: '1e30' is too much"),
        ("dgx-h100", {"peak_flops": {"bf15": "989"}}, "did you mean bf16"),
        ("dgx-h100", {"node_size": 0}, "node_size is 0"),
        ("dgx-h100", {"node_size": "7.5"}, "node_size: '7.5' is not a whole number"),
        ("meta-grandteton-roce", {"node_size": 7}, "a tier of 3072 accelerators around a tier of 7"),
        ("hgx-mi300x", {"node_size": 1}, "size is 1"),
        ("tpu-v4-pod", {"node_size": 64}, "tier 'pod' of cluster 'tpu-v4-pod' is a torus"),
        ("dgx-h100", {"inter_node_bandwith": "25"}, "did you mean inter_node_bandwidth"),
    ],
    ids=str,
)
def test_values_that_no_cluster_has(name: str, overrides: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_cluster(name, **overrides)


def test_a_bridge_is_not_the_node() -> None:
    cluster = cluster_of_accelerator("h100-nvl-94gb", node_size=4)
    assert ([tier.size for tier in cluster.tiers], cluster.accelerators_per_node) == ([4, 8, None], 8)


def test_nothing_replaced_is_the_cluster_itself() -> None:
    assert load_cluster("dgx-h100", **dict.fromkeys(Overrides.__annotations__)) == load_cluster("dgx-h100")


def test_a_second_value_replaces_the_first_in_what_is_said() -> None:
    cluster = cluster_of_accelerator("a10-24gb", inter_node_bandwidth="25")
    about = [line for line in cluster.assumptions if line.startswith("bandwidth of tier 'cluster'")]
    assert about == ["bandwidth of tier 'cluster': 25.0 GB/s, given by the user, in place of 12.5 GB/s"]


def test_every_value_that_can_be_replaced_is_documented() -> None:
    page = (ROOT / "docs" / "inputs" / "clusters.md").read_text(encoding="utf-8")
    for name in Overrides.__annotations__:
        assert f"`--{name.replace('_', '-')}" in page, name
