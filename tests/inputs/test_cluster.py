"""Accelerators, network tiers and clusters: what they refuse, and their records."""

from __future__ import annotations

import json
import math
from dataclasses import MISSING, fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardplan.base.errors import InputError, UnknownNameError
from shardplan.base.records import plain
from shardplan.inputs.cluster import Accelerator, Cluster, NetworkTier
from shardplan.inputs.readers.catalog import cluster_of_accelerator, list_accelerators, list_clusters, load_cluster
from shardplan.inputs.readers.cluster_record import cluster_from_record

PART = Accelerator(
    name="part",
    full_name="A part",
    vendor="Nobody",
    generation="other",
    memory_bytes=80e9,
    memory_bandwidth=3e12,
    peak_flops={"bf16": 1e15},
)
NODE = NetworkTier(name="node", size=8, bandwidth=450e9, latency=1e-6, kind="NVLink4", link_type="nvlink")
RAIL = NetworkTier(name="rail", size=256, bandwidth=50e9, latency=5e-6, kind="RoCE", link_type="roce")
SPINE = NetworkTier(name="spine", size=None, bandwidth=25e9, latency=8e-6, kind="RoCE", link_type="roce")
CLUSTER = Cluster(
    name="c", full_name="C", accelerator=PART, tiers=(NODE, RAIL, SPINE), accelerators_per_node=8, notes="A note."
)


@pytest.mark.parametrize("name", ["memory_bytes", "memory_bandwidth", "vector_flops", "host_link_bandwidth", "power"])
@pytest.mark.parametrize("value", [0, -1.0, math.nan, "80", True], ids=repr)
def test_quantities_of_a_part_are_above_zero(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=rf"accelerator 'part': {name} is "):
        replace(PART, **{name: value})


@pytest.mark.parametrize(
    ("described", "changes", "message"),
    [
        (PART, {"peak_flops": {}}, "peak_flops is empty"),
        (PART, {"peak_flops": {"bf16": math.nan}}, r"peak_flops\.bf16 is nan"),
        (PART, {"peak_flops": {"bf15": 1e15}}, "unknown precision of accelerator 'part' 'bf15': did you mean bf16"),
        (PART, {"generation": "hoper"}, "unknown generation of accelerator 'part' 'hoper': did you mean hopper"),
        (PART, {"gemm_efficiency": {"bf16": 1.2}}, r"gemm_efficiency\.bf16 is 1\.2"),
        (PART, {"memory_efficiency": 0.0}, r"memory_efficiency is 0\.0"),
        (PART, {"price_per_hour": -1.0}, r"price_per_hour is -1\.0"),
        (PART, {"num_cores": 13.5}, r"num_cores is 13\.5"),
        (PART, {"memory_bytes": None}, "memory_bytes is None"),
        (NODE, {"size": 0}, "size is 0"),
        (NODE, {"size": 8.0}, r"size is 8\.0"),
        (NODE, {"size": 1, "topology": "mesh"}, "size is 1"),
        (NODE, {"bandwidth": 0.0}, r"bandwidth is 0\.0"),
        (NODE, {"bandwidth": math.nan}, "bandwidth is nan"),
        (NODE, {"latency": -1e-6}, "latency is -1e-06"),
        (NODE, {"latency": math.nan}, "latency is nan"),
        (NODE, {"topology": "ring"}, "unknown topology of network tier 'node' 'ring'"),
        (NODE, {"link_type": "nvlnk"}, "did you mean nvlink"),
        (NODE, {"topology": "torus"}, "topology torus with torus_shape"),
        (NODE, {"torus_shape": (2, 4)}, "topology switch with torus_shape"),
        (NODE, {"topology": "torus", "torus_shape": (2, 2)}, "holds 4 accelerators, size says 8"),
        (NODE, {"topology": "torus", "torus_shape": (-2, -4)}, "torus_shape is -2"),
        (NODE, {"topology": "torus", "torus_shape": (8, 1)}, "torus_shape is 1"),
        (NODE, {"topology": "torus", "torus_shape": (4, 2), "size": None}, "size says None"),
        (CLUSTER, {"tiers": ()}, "has no network tier"),
        (CLUSTER, {"tiers": (NODE,)}, r"tier sizes \[8\]"),
        (CLUSTER, {"tiers": (SPINE, RAIL)}, r"tier sizes \[None, 256\]"),
        (CLUSTER, {"tiers": (NODE, replace(RAIL, size=12), SPINE)}, "a tier of 12 accelerators around a tier of 8"),
        (CLUSTER, {"tiers": (RAIL, NODE, SPINE)}, "a tier of 8 accelerators around a tier of 256"),
        (CLUSTER, {"tiers": (NODE, replace(SPINE, name="node"))}, r"tiers \['node', 'node'\]"),
        (CLUSTER, {"accelerators_per_node": 0}, "accelerators_per_node is 0"),
        (CLUSTER, {"accelerators_per_node": 7.5}, r"accelerators_per_node is 7\.5"),
        (CLUSTER, {"max_num_accelerators": -8}, "max_num_accelerators is -8"),
        (CLUSTER, {"host_memory_bytes": 0.0}, r"host_memory_bytes is 0\.0"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else None,
)
def test_what_a_part_a_tier_and_a_cluster_cannot_be(described: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(described, **changes)


def test_limits_of_the_textbook_are_allowed() -> None:
    """Infinite bandwidth and zero latency: the limits in which costs have known values."""
    ideal = replace(NODE, bandwidth=math.inf, latency=0.0)
    assert (ideal.bandwidth, ideal.latency) == (math.inf, 0.0)


def test_tiers_by_name_and_place() -> None:
    assert CLUSTER.innermost is NODE
    assert CLUSTER.tiers[-1] is SPINE
    assert CLUSTER.tier("rail") is RAIL
    assert [tier.size for tier in CLUSTER.tiers] == [8, 256, None]
    with pytest.raises(UnknownNameError, match="unknown network tier 'rial': did you mean rail"):
        CLUSTER.tier("rial")


def test_a_peak_that_the_part_lacks() -> None:
    assert PART.peak("bf16") == 1e15
    with pytest.raises(InputError, match="has no fp8 peak; it has bf16"):
        PART.peak("fp8")


def test_nobody_else_can_change_a_cluster() -> None:
    peaks = {"bf16": 1e15}
    part = replace(PART, peak_flops=peaks)
    peaks["bf16"] = 1.0
    assert part.peak("bf16") == 1e15
    assert hash(part) == hash(PART)
    assert hash(CLUSTER) == hash(replace(CLUSTER))


# Records


@pytest.mark.parametrize("name", list_clusters())
def test_shipped_clusters_survive_their_record(name: str) -> None:
    cluster = load_cluster(name)
    assert cluster_from_record(json.loads(json.dumps(plain(cluster), allow_nan=False))) == cluster


@pytest.mark.parametrize("name", list_accelerators())
def test_usual_clusters_survive_their_record(name: str) -> None:
    cluster = cluster_of_accelerator(name, inter_node_bandwidth="25", memory="70GB")
    assert cluster_from_record(json.loads(json.dumps(plain(cluster), allow_nan=False))) == cluster


def test_a_record_holds_every_field_with_its_unit() -> None:
    record = plain(CLUSTER)
    assert len(record) == len(fields(Cluster))
    assert len(record["accelerator"]) == len(fields(Accelerator))
    assert len(record["tiers"][0]) == len(fields(NetworkTier))
    assert record["tiers"][1]["bandwidth_bytes_per_s"] == 50e9
    assert record["tiers"][1]["latency_s"] == 5e-6
    assert record["accelerator"] == plain(PART)
    assert record["accelerator"]["peak_flops_per_s"] == {"bf16": 1e15}


def test_a_record_may_leave_out_what_has_a_default() -> None:
    record = plain(CLUSTER)
    for entry, kind in ((record, Cluster), (record["accelerator"], Accelerator), (record["tiers"][0], NetworkTier)):
        for field in fields(kind):
            if field.default is not MISSING or field.default_factory is not MISSING:
                entry.pop(field.name, None)
    assert cluster_from_record(record) == replace(
        CLUSTER, notes="", tiers=(replace(NODE, link_type="other"), *CLUSTER.tiers[1:])
    )


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ((), None, "cluster is a NoneType"),
        ((), [], "cluster is a list"),
        (("name",), 5, r"cluster\.name is 5: it must be a text"),
        (("accelerator",), "h100-sxm-80gb", r"cluster\.accelerator is 'h100-sxm-80gb': it must be a set of fields"),
        (
            ("accelerator", "memory_bytes"),
            "80 GB",
            r"cluster\.accelerator\.memory_bytes is '80 GB': it must be a number",
        ),
        (("accelerator", "memory_bytes"), math.nan, "memory_bytes is nan"),
        (("accelerator", "memory_bytes"), math.inf, "memory_bytes is inf"),
        (("accelerator", "memory_bytes"), 10**400, "memory_bytes is 1000.*: it must be a finite number"),
        (("accelerator", "memory_bytes"), True, "memory_bytes is True"),
        (("accelerator", "memory_bytes"), -80e9, "memory_bytes is -80000000000"),
        (
            ("accelerator", "peak_flops_per_s"),
            {"bf16": "fast"},
            "peak_flops_per_s.bf16 is 'fast': it must be a number",
        ),
        (("accelerator", "generation"), "hoper", "did you mean hopper"),
        (("accelerator", "sources"), [1], r"sources is \[1\]: it must be a set of fields"),
        (("tiers",), {}, r"cluster\.tiers is {}: it must be a list"),
        (("tiers",), [], "has no network tier"),
        (("tiers", 0), None, r"cluster\.tiers\.0 is None: it must be a set of fields"),
        (("tiers", 1, "size"), 2.5, r"cluster\.tiers\.1\.size is 2\.5: it must be a whole number"),
        (("tiers", 1, "size"), 10**400, "size is 1000.*: it must be less than 1000000000000000000"),
        (("tiers", 0, "torus_shape"), [[]], r"torus_shape\.0 is \[\]: it must be a whole number"),
        (("tiers", 0, "bandwidth_bytes_per_s"), None, r"bandwidth_bytes_per_s is None: it must be a number"),
        (("accelerators_per_node",), None, r"accelerators_per_node is None"),
        (("assumptions",), "none", r"assumptions is 'none': it must be a list"),
    ],
    ids=lambda value: "huge" if value == 10**400 else ascii(value)[:40],
)
def test_hostile_records(path: tuple[str | int, ...], value: object, message: str) -> None:
    record: Any = json.loads(json.dumps(plain(CLUSTER)))
    place = record
    for step in path[:-1]:
        place = place[step]
    if path:
        place[path[-1]] = value
    with pytest.raises(InputError, match=message):
        cluster_from_record(record if path else value)


def test_a_number_that_python_does_not_print() -> None:
    record = plain(CLUSTER)
    with pytest.raises(InputError, match="cluster cannot be read"):
        cluster_from_record({**record, "host_memory_bytes": 10**5000})


@pytest.mark.parametrize("key", ["name", "accelerator", "tiers", "accelerators_per_node"])
def test_a_record_without_what_it_needs(key: str) -> None:
    record = plain(CLUSTER)
    del record[key]
    with pytest.raises(InputError, match=rf"cluster\.{key} is missing"):
        cluster_from_record(record)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(value=JSON_VALUES, steps=st.lists(st.integers(0, 30), min_size=1, max_size=4))
def test_any_other_record_is_refused_or_another_cluster(value: object, steps: list[int]) -> None:
    """One value anywhere in a record is replaced: an InputError or a cluster, nothing else."""
    record: Any = json.loads(json.dumps(plain(CLUSTER)))
    place = record
    for step in steps[:-1]:
        inner = [
            part for part in (place.values() if isinstance(place, dict) else place) if isinstance(part, dict | list)
        ]
        place = inner[step % len(inner)] if inner else place
    keys: Any = list(place) if isinstance(place, dict) else range(len(place))
    if keys:
        place[keys[steps[-1] % len(keys)]] = value
    try:
        cluster = cluster_from_record(record)
    except InputError:
        return
    assert cluster_from_record(plain(cluster)) == cluster
