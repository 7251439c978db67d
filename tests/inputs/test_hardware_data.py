"""The accelerators and clusters that are shipped, against what their makers and operators published."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from shardplan.base.files import DATA
from shardplan.inputs.cluster import Accelerator, Cluster
from shardplan.inputs.readers.catalog import list_accelerators, list_clusters, load_accelerator, load_cluster
from shardplan.inputs.readers.hardware_files import networks
from shardplan.inputs.readers.hardware_schema import check_document

GIB = 2**30

# Dense peaks in TFLOP/s; memory bandwidth in GB/s; memory in GiB as sold; power in W. Data sheets with sparsity are
# halved. Sources, in order:
# NVIDIA Tesla V100 data sheet (2018); A100 Tensor Core GPU data sheets, 40 and 80 GB (2020, 2021);
# H100 Tensor Core GPU data sheet: 1,979 and 3,958 TFLOPS with sparsity; H200 data sheet: 141 GB, 4.8 TB/s;
# DGX B200 data sheet: 72 PFLOPS fp8 with sparsity and 64 TB/s over eight; GB200 NVL72 page: 10 PFLOPS bf16 with
# sparsity over two GPUs, 16 TB/s; L40S data sheet: 362.05 TFLOPS bf16; GeForce RTX 4090: Ada architecture whitepaper,
# appendix A; AMD Instinct MI300X, MI325X and MI355X data sheets; Google Cloud TPU documentation, v4 to v6e;
# AWS Neuron documentation, Trainium2 architecture.
PEAKS = [
    ("v100-sxm2-32gb", "fp16", 125),
    ("a100-sxm-40gb", "bf16", 312),
    ("a100-sxm-80gb", "bf16", 312),
    ("h100-sxm-80gb", "bf16", 1979 / 2),
    ("h100-sxm-80gb", "fp8", 3958 / 2),
    ("h200-sxm-141gb", "bf16", 1979 / 2),
    ("b200-sxm-180gb", "fp8", 72_000 / 2 / 8),
    ("gb200-186gb", "bf16", 10_000 / 2 / 2),
    ("l40s-48gb", "bf16", 362.05),
    ("rtx4090-24gb", "fp32", 82.6),
    ("mi300x-192gb", "bf16", 1307.4),
    ("mi300x-192gb", "fp8", 2614.9),
    ("mi325x-256gb", "bf16", 1307.4),
    ("mi355x-288gb", "bf16", 2516.6),
    ("tpu-v4", "bf16", 275),
    ("tpu-v5e", "bf16", 197),
    ("tpu-v5p", "bf16", 459),
    ("tpu-v6e", "bf16", 918),
    ("trainium2", "bf16", 667),
    ("trainium2", "fp8", 1299),
]
MEMORIES = [
    ("v100-sxm2-32gb", 900, 32, 300),
    ("a100-sxm-40gb", 1555, 40, 400),
    ("a100-sxm-80gb", 2039, 80, 400),
    ("h100-sxm-80gb", 3350, 80, 700),
    ("h200-sxm-141gb", 4800, 141, 700),
    ("b200-sxm-180gb", 8000, 180, 1000),
    ("gb200-186gb", 8000, 186, 1200),
    ("l40s-48gb", 864, 48, 350),
    ("rtx4090-24gb", 1008, 24, 450),
    ("mi300x-192gb", 5300, 192, 750),
    ("mi325x-256gb", 6000, 256, 1000),
    ("mi355x-288gb", 8000, 288, 1400),
    ("tpu-v4", 1228, 32, None),
    ("tpu-v5e", 819, 16, None),
    ("tpu-v5p", 2765, 95, None),
    ("tpu-v6e", 1640, 32, None),
    ("trainium2", 2900, 96, None),
]


@pytest.mark.parametrize(("name", "precision", "peak"), PEAKS)
def test_peaks_of_data_sheets(name: str, precision: str, peak: float) -> None:
    assert load_accelerator(name).peak(precision) == pytest.approx(peak * 1e12, rel=1e-3)


@pytest.mark.parametrize(("name", "bandwidth", "memory", "power"), MEMORIES)
def test_memories_of_data_sheets(name: str, bandwidth: float, memory: float, power: float | None) -> None:
    """Devices report up to some per cent less memory than they are sold with: error correction takes its part."""
    part = load_accelerator(name)
    assert part.memory_bandwidth == pytest.approx(bandwidth * 1e9)
    assert 0.93 <= part.memory_bytes / (memory * GIB) <= 1.002
    assert part.power == power


# NVLink in both directions together, as data sheets give it: V100 300, A100 600, H100 900, B200 1800 GB/s; A800 and
# H800 400 GB/s. MI300X: seven Infinity Fabric links, 896 GB/s in both directions (data sheet).
# How to Scale Your Model, chapter TPUs: ICI per link and direction 45 GB/s (v4, v5e), 90 GB/s (v5p, v6e); six links in
# a 3D torus and four in a 2D torus.
@pytest.mark.parametrize(
    ("cluster", "bandwidth", "size"),
    [
        ("dgx1-v100", 300 / 2, 8),
        ("dgx-a100", 600 / 2, 8),
        ("dgx-h100", 900 / 2, 8),
        ("deepseek-h800", 400 / 2, 8),
        ("dgx-b200", 1800 / 2, 8),
        ("gb200-nvl72", 1800 / 2, 72),
        ("gb300-nvl72", 1800 / 2, 72),
        ("hgx-mi300x", 896 / 2, 8),
        ("tpu-v4-pod", 6 * 45, 4096),
        ("tpu-v5e-pod", 4 * 45, 256),
        ("tpu-v5p-pod", 6 * 90, 8960),
        ("tpu-v6e-pod", 4 * 90, 256),
    ],
)
def test_fast_domains(cluster: str, bandwidth: float, size: int) -> None:
    tier = load_cluster(cluster).innermost
    assert (tier.bandwidth, tier.size) == (bandwidth * 1e9, size)


# Gb/s per node and accelerators per node: DGX A100, H100 and B200 data sheets (8 x 200, 8 x 400, 8 x 400); Narayanan
# et al. 2021, arXiv 2104.04473, section 5 (Selene: eight 200 Gb/s HDR); Llama 3, arXiv 2407.21783, section 3.3.1
# (400 Gb/s per GPU); Zhao et al. 2025, arXiv 2505.09343 (eight 400 Gb/s per H800 node); AWS instance types p4d 400, p5
# 3,200, trn1 800 and trn2 3,200 Gb/s; Azure ND H100 v5 3,200; Google A3 High 800, A3 Mega 1,600 Gb/s for GPUs; NERSC
# Perlmutter, four Slingshot 11 adapters of 200 Gb/s; OLCF Frontier, four for eight dies.
@pytest.mark.parametrize(
    ("name", "node_gigabits", "per_node"),
    [
        ("dgx-a100", 1600, 8),
        ("dgx-h100", 3200, 8),
        ("dgx-b200", 3200, 8),
        ("selene", 1600, 8),
        ("meta-grandteton-roce", 3200, 8),
        ("deepseek-h800", 3200, 8),
        ("aws-p4d", 400, 8),
        ("aws-p5", 3200, 8),
        ("aws-trn1", 800, 16),
        ("aws-trn2", 3200, 16),
        ("azure-nd-h100-v5", 3200, 8),
        ("gcp-a3-high", 800, 8),
        ("gcp-a3-mega", 1600, 8),
        ("perlmutter-gpu", 800, 4),
        ("frontier", 800, 8),
    ],
)
def test_networks_between_nodes(name: str, node_gigabits: float, per_node: int) -> None:
    cluster = load_cluster(name)
    assert cluster.accelerators_per_node == per_node
    assert cluster.tiers[1].bandwidth == node_gigabits * 1e9 / 8 / per_node


def test_oversubscribed_spine() -> None:
    """Pods of 3,072 GPUs at full bisection, eight of them 1:7 oversubscribed (arXiv 2407.21783, section 3.3.1)."""
    cluster = load_cluster("meta-grandteton-roce")
    assert [tier.size for tier in cluster.tiers] == [8, 3072, None]
    assert cluster.max_num_accelerators == 8 * 3072
    assert cluster.tiers[1].bandwidth == pytest.approx(7 * cluster.tiers[2].bandwidth)


@pytest.mark.parametrize("name", ["tpu-v4-pod", "tpu-v5e-pod", "tpu-v5p-pod", "tpu-v6e-pod"])
def test_pods_are_tori(name: str) -> None:
    """How to Scale Your Model, chapter TPUs: 16x16x16, 16x16, 16x20x28 and 16x16."""
    shapes = {"tpu-v4-pod": (16, 16, 16), "tpu-v5p-pod": (16, 20, 28)}
    assert load_cluster(name).innermost.torus_shape == shapes.get(name, (16, 16))


# What every shipped value has


SHIPPED = [
    pytest.param(what, path, id=path.stem)
    for what in ("accelerator", "cluster")
    for path in sorted((DATA / f"{what}s").glob("*.yaml"))
]


def _values(node: Any, place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every quantity of a file with its place."""
    if isinstance(node, dict) and "value" in node:
        yield place, node
    elif isinstance(node, dict | list):
        for key, inner in node.items() if isinstance(node, dict) else enumerate(node):
            yield from _values(inner, f"{place}.{key}")


@pytest.mark.parametrize(("what", "path"), SHIPPED)
def test_shipped_files_are_in_the_format_of_users(what: str, path: Any) -> None:
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    check_document(document, path.name, what=what)
    assert document["name"] == path.stem
    assert re.fullmatch(r"\d{4}-\d{2}", document["date"])


@pytest.mark.parametrize(("what", "path"), SHIPPED)
def test_every_shipped_value_has_unit_and_source(what: str, path: Any) -> None:
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    values = dict(_values(document))
    assert len(values) >= (4 if what == "cluster" else 5)
    for place, value in values.items():
        assert value["unit"], place
        assert value["source"], place
        assert value.keys() <= {"value", "unit", "source", "mark"}, place
    # A source is a text, or a key of the legend; nothing in the legend is idle.
    legend = set(document["sources"])
    assert legend <= {value["source"] for value in values.values()}


def _parts_and_clusters() -> list[Accelerator | Cluster]:
    return [*map(load_accelerator, list_accelerators()), *map(load_cluster, list_clusters())]


@pytest.mark.parametrize("described", _parts_and_clusters(), ids=lambda described: described.name)
def test_sources_reach_the_user(described: Accelerator | Cluster) -> None:
    assert set(described.marks) <= set(described.sources)
    assert "description" not in described.sources.values()
    assert "specification" not in described.sources.values()
    for field, source in described.sources.items():
        if "memory" in source.split():
            assert field in described.marks


@pytest.mark.parametrize(
    "name", ["rubin-288gb", "mi455x-432gb", "b100-sxm-192gb", "mtt-s5000-80gb", "ascend-910c-128gb"]
)
def test_what_was_announced_only_is_marked(name: str) -> None:
    part = load_accelerator(name)
    assert all("low confidence" in part.marks[f"peak_flops.{precision}"] for precision in part.peak_flops)
    assert "low confidence" in part.marks["memory_bandwidth"]


def test_values_from_memory_are_marked() -> None:
    assert "from memory" in load_accelerator("h100-sxm-80gb").marks["memory_bytes"]
    assert "from memory" in load_cluster("colossus-h100").marks["tiers.cluster.bandwidth"]
    assert "from memory" in load_cluster("deepseek-h800").marks["tiers.cluster.latency"]
    assert "assumed" in load_cluster("tpu-v7-pod").marks["tiers.pod.size"]


@pytest.mark.parametrize("name", list_clusters())
def test_clusters_are_plausible(name: str) -> None:
    """Outer tiers are never faster, and their hops never quicker, than inner ones."""
    cluster = load_cluster(name)
    for inner, outer in zip(cluster.tiers, cluster.tiers[1:], strict=False):
        assert outer.bandwidth < inner.bandwidth
        assert outer.latency >= inner.latency
    assert cluster.innermost.size is not None
    assert cluster.innermost.size % cluster.accelerators_per_node == 0
    stated = {name for name in cluster.sources if name.endswith(".latency")}
    assert len(stated) == len(cluster.tiers)


def test_every_kind_of_link_has_a_latency() -> None:
    used = {tier.link_type for name in list_clusters() for tier in load_cluster(name).tiers}
    assert used <= set(networks()["latency"])


def test_latencies_are_those_of_their_sources() -> None:
    """NVLink: HGX H100 as validated by astra-sim. InfiniBand: a hop of NCCL's low-latency tree. ICI: scaling book."""
    latency = {link: (entry["value"], entry["unit"]) for link, entry in networks()["latency"].items()}
    assert latency["nvlink"] == (0.936, "us")
    assert latency["infiniband"] == (5, "us")
    assert latency["ici"] == (1, "us")


@pytest.mark.parametrize(
    ("name", "rate"), [("gh200-96gb", 450e9), ("gh200-144gb", 450e9), ("gb200-186gb", 225e9), ("gb300-288gb", 225e9)]
)
def test_parts_beside_grace_reach_the_host_over_its_own_link(name: str, rate: float) -> None:
    """NVLink-C2C: 450 GB/s per direction and superchip, which holds one GPU (GH200) or two (GB200, GB300)."""
    assert load_accelerator(name).host_link_bandwidth == rate
