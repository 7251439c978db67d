"""Clusters and accelerators by name, and the cluster that an accelerator alone takes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardplan.base.errors import InputError
from shardplan.base.files import DATA
from shardplan.base.words import folded
from shardplan.inputs.readers.catalog import (
    cluster_of_accelerator,
    list_accelerators,
    list_clusters,
    load_accelerator,
    load_cluster,
)


@pytest.mark.parametrize("name", ["DGX-H100", "Dgx-h100", "dgx_h100", "DGX H100"])
def test_names_in_any_case(name: str) -> None:
    assert replace(load_cluster(name), assumptions=()) == replace(load_cluster("dgx-h100"), assumptions=())
    assert load_cluster(name).name == "dgx-h100"


@pytest.mark.parametrize(
    ("name", "cluster"), [("mi355x", "hgx-mi355x"), ("H100", "dgx-h100"), ("gb200", "gb200-nvl72")]
)
def test_the_name_of_an_accelerator_is_its_usual_cluster(name: str, cluster: str) -> None:
    assert load_cluster(name).name == cluster
    assert replace(load_cluster(name), assumptions=()) == replace(cluster_of_accelerator(name), assumptions=())
    assert any("the usual one of" in text for text in load_cluster(name).assumptions)


@pytest.mark.parametrize(
    ("load", "name", "message", "hint"),
    [
        (load_cluster, "dgx-h10", "unknown cluster 'dgx-h10': did you mean dgx-h100", "shardplan clusters"),
        (load_cluster, "nowhere", "unknown cluster 'nowhere'", "see `shardplan clusters`"),
        (load_accelerator, "dgx-h100", "unknown accelerator", "dgx-h100 is one of the clusters"),
        (load_accelerator, "a100", "unknown accelerator 'a100'", "a100-sxm-40gb, a100-sxm-80gb"),
        (cluster_of_accelerator, "h100-sx", "did you mean h100-sxm-80gb", "h100-sxm-80gb"),
        (load_cluster, "", "cluster is ''", "shardplan clusters"),
        (load_cluster, None, "cluster is None", "shardplan clusters"),
        (load_cluster, 7, "cluster is 7", "shardplan clusters"),
        (load_cluster, b"dgx-h100", "cluster is b'dgx-h100'", "shardplan clusters"),
        (load_cluster, "a\0b", r"unknown cluster 'a\\x00b'", "shardplan clusters"),
        (load_cluster, "x" * 9999, "unknown cluster 'x{100}'", "shardplan clusters"),
        (load_cluster, "x" * 9999 + ".yaml", "does not exist", "shardplan clusters"),
        (load_cluster, "./dgx-h100.yaml", r"'\./dgx-h100\.yaml' does not exist", "or give a name: dgx-h100"),
        (load_cluster, Path("dgx-h100"), "'dgx-h100' does not exist", "or give a name: dgx-h100"),
    ],
    ids=lambda value: getattr(value, "__name__", ascii(value)[:30]),
)
def test_wrong_names(load: Callable[[Any], object], name: Any, message: str, hint: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        load(name)
    assert hint in refused.value.hint


@given(name=st.text(max_size=40))
def test_any_name_is_known_or_refused(name: str) -> None:
    try:
        assert folded(load_cluster(name).name) == folded(name)
    except InputError:
        assert name.lower() not in list_clusters()


def test_naming_a_cluster_imports_no_validator() -> None:
    """Importing one of them takes longer than reading all shipped files."""
    code = """
import sys
from shardplan.inputs.readers.catalog import load_cluster
load_cluster("dgx-h100")
print(*sys.modules)
"""
    modules = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert {"yaml", "pydantic", "numpy"} & set(modules) == set()


@pytest.mark.parametrize("name", list_accelerators())
def test_every_accelerator_has_a_usual_cluster(name: str) -> None:
    cluster = cluster_of_accelerator(name)
    assert cluster.accelerator == load_accelerator(name)
    assert cluster.assumptions[0].startswith("no cluster given")
    assert cluster.tiers[-1].size is None


@pytest.mark.parametrize(
    ("accelerator", "cluster"),
    [
        ("h100-sxm-80gb", "dgx-h100"),
        ("a100-sxm-80gb", "dgx-a100"),
        ("gb200-186gb", "gb200-nvl72"),
        ("tpu-v5p", "tpu-v5p-pod"),
    ],
)
def test_usual_node_types(accelerator: str, cluster: str) -> None:
    usual = cluster_of_accelerator(accelerator)
    assert usual.tiers == load_cluster(cluster).tiers
    assert (
        usual.assumptions[0] == f"no cluster given: {load_cluster(cluster).full_name}, the usual one of {accelerator}"
    )


@pytest.mark.parametrize("name", ["h100-sxm-80gb", "mi355x", "MI355X"])
def test_an_accelerator_that_is_named_as_the_cluster_is_said_to_be_one(name: str) -> None:
    usual, named = cluster_of_accelerator(name), load_cluster(name)
    assert replace(named, assumptions=()) == replace(usual, assumptions=())
    assert named.assumptions[0].startswith(f"{name} is the name of an accelerator: {usual.full_name}, the usual one of")
    assert not [text for text in named.assumptions if "no cluster" in text]


def test_a_part_brings_its_own_links_into_a_foreign_node() -> None:
    """A800: an A100 with NVLink cut from 600 to 400 GB/s in both directions together."""
    cluster = cluster_of_accelerator("a800-sxm-80gb")
    assert cluster.innermost.bandwidth == 200e9
    assert cluster.price_per_hour is None
    assert any("a800-sxm-80gb in place of a100-sxm-80gb" in line for line in cluster.assumptions)
    assert any(
        "bandwidth of tier 'node': 200 GB/s, the NVLink3 of a800-sxm-80gb" in line for line in cluster.assumptions
    )


def test_another_accelerator_in_a_cluster() -> None:
    cluster = load_cluster("dgx-h100", accelerator="h200-sxm-141gb", inter_node_bandwidth="25")
    assert cluster.accelerator.name == "h200-sxm-141gb"
    assert cluster == load_cluster(
        "dgx-h100", accelerator=load_accelerator("h200-sxm-141gb"), inter_node_bandwidth="25"
    )
    assert load_cluster("dgx-h100", accelerator="h100-sxm-80gb") == load_cluster("dgx-h100")


def test_lists_are_sorted_and_complete() -> None:
    for folder, listed in (("clusters", list_clusters()), ("accelerators", list_accelerators())):
        assert listed == sorted(path.stem for path in (DATA / folder).glob("*.yaml"))
