"""Clusters and accelerators described in files: what is read, what is filled in, what is refused."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardplan.base.errors import InputError, UnitError, UnknownNameError
from shardplan.inputs.readers.catalog import cluster_of_accelerator, load_accelerator, load_cluster

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
MINE: dict[str, Any] = {
    "name": "mine",
    "accelerator": "h100-sxm-80gb",
    "accelerators_per_node": 8,
    "tiers": [
        {"name": "node", "link_type": "nvlink", "size": 8, "bandwidth": "450 GB/s"},
        {"name": "spine", "link_type": "roce", "bandwidth": "50 GB/s"},
    ],
}


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., Path]:
    def write(content: object, name: str = "mine.yaml") -> Path:
        path = tmp_path / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    return write


def test_the_examples_are_read() -> None:
    cluster = load_cluster(EXAMPLES / "my-cluster.yaml")
    assert [(tier.name, tier.size, tier.bandwidth) for tier in cluster.tiers] == [
        ("node", 8, 450e9), ("rail", 256, 50e9), ("spine", None, 25e9),
    ]  # fmt: skip
    assert cluster.marks == {"tiers.rail.latency": "one week in May"}
    assert cluster.sources["tiers.rail.bandwidth"] == "data sheet of the adapter"
    assert len(cluster.assumptions) == 1  # the latency of the node, which the file does not state
    part = cluster_of_accelerator(EXAMPLES / "my-accelerator.yaml").accelerator
    assert (part.memory_bytes, part.peak("fp8"), part.generation) == (96e9, 1.6e15, "hopper")
    assert part.marks == {"peak_flops.fp8": "before release"}


def test_the_page_shows_the_examples() -> None:
    page = (ROOT / "docs" / "inputs" / "clusters.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert blocks == [
        (EXAMPLES / name).read_text(encoding="utf-8") for name in ("my-cluster.yaml", "my-accelerator.yaml")
    ]


def test_yaml_and_json_are_one_format(file: Callable[..., Path]) -> None:
    from_json = load_cluster(file(MINE, "mine.json"))
    from_yaml = load_cluster(file(yaml.safe_dump(MINE), "mine.yaml"))
    assert replace(from_json, sources={}, marks={}) == replace(from_yaml, sources={}, marks={})
    assert load_cluster(str(file(MINE, "noending"))) == load_cluster(file(MINE, "noending"))


def test_a_part_described_in_place_or_beside(file: Callable[..., Path]) -> None:
    part = yaml.safe_load((EXAMPLES / "my-accelerator.yaml").read_text(encoding="utf-8"))
    in_place = load_cluster(file({**MINE, "accelerator": part}))
    file(part, "part.json")
    beside = load_cluster(file({**MINE, "accelerator": "part.json"}))
    assert replace(in_place.accelerator, sources={}) == replace(beside.accelerator, sources={})
    file({**part, "usual_cluster": "./mine.yaml"}, "part.json")
    usual = cluster_of_accelerator(file({**part, "usual_cluster": "./mine.yaml"}, "part.json"))
    assert usual.name == "mine"


@pytest.mark.parametrize("link_type", ["infiniband", "roce", "efa", "nvlink", "ici", "pcie", "tcp", "other"])
def test_latency_by_kind_of_network(link_type: str, file: Callable[..., Path]) -> None:
    """Filled in where a file states none, said with its source."""
    spine = {"name": "spine", "link_type": link_type, "bandwidth": "50 GB/s"}
    cluster = load_cluster(file({**MINE, "tiers": [MINE["tiers"][0], spine]}))
    field = "tiers.spine.latency"
    lines = [line for line in cluster.assumptions if line.startswith("latency of tier 'spine': ")]
    assert len(lines) == 1
    assert f"the default of {link_type}" in lines[0]
    assert lines[0].endswith(cluster.sources[field])
    assert 1e-7 < cluster.tiers[-1].latency < 1e-4
    stated = load_cluster(file({**MINE, "tiers": [MINE["tiers"][0], {**spine, "latency": "2 us"}]}))
    assert stated.tiers[-1].latency == 2e-6
    assert not any(line.startswith("latency of tier 'spine'") for line in stated.assumptions)


def _with_tier(**fields: object) -> dict[str, Any]:
    return {**MINE, "tiers": [{**MINE["tiers"][0], **fields}, MINE["tiers"][1]]}


PART = {"name": "p", "memory": "80 GB", "memory_bandwidth": "3 TB/s", "peak_flops": {"bf16": "900 TFLOP/s"}}


@pytest.mark.parametrize(
    ("ending", "text", "message"),
    [
        ("yaml", "", "is empty"),
        ("yaml", " \n# nothing\n", "not fields with values"),
        ("yaml", b"\xff\xfe\x00\x01", "is not text in UTF-8"),
        ("yaml", "name: \0", "is not YAML"),
        ("yaml", "name: [", "is not YAML: .* in line"),
        ("yaml", "a: 1\na: 2\n", "repeats the field 'a' in line 2"),
        ("yaml", "a: &x [1]\nb: *x\n", "uses a YAML alias in line 2"),
        ("yaml", "a: 1\n---\nb: 2\n", "a second document in line 2"),
        ("yaml", "[" * 9999, "is nested deeper than 20 levels"),
        ("yaml", "a: " + "{a: " * 50 + "1" + "}" * 50, "is nested deeper than 20 levels"),
        ("yaml", "!!python/object/apply:os.getcwd []", "uses the YAML tag '.*' in line 1"),
        ("yaml", "a: 1\nb: !!timestamp 2001-99-99", "uses the YAML tag '.*' in line 2"),
        ("yaml", "a: !!bool x", "uses the YAML tag"),
        ("yaml", "a: !!int ''", "uses the YAML tag"),
        ("yaml", "a: ! x", "uses the YAML tag"),
        ("yaml", "a: 0x" + "f" * 100, "a whole number of more than 100 digits"),
        ("yaml", "a: [1, {b: " + "9" * 5000 + "}]", "a value that cannot be read"),
        ("yaml", "a: " + "1_" * 200 + "1", "a whole number of more than 100 digits"),
        ("yaml", "? [1]\n: 2\n", "is not YAML"),
        ("yaml", "1: 2", "has the field 1, which is not text"),
        ("yaml", "[1, 2]", "holds a list"),
        ("yaml", "5", "holds a single value"),
        ("yaml", "x" * 300_000, "has 300,000 bytes, more than 262,144"),
        ("json", '{"a": 1, "a": 2}', "repeats the field 'a'"),
        ("json", '{"name": ' + "[" * 900 + "]" * 900 + "}", "is nested deeper than 20 levels"),
        ("json", "[" * 200_000, "is nested deeper than 20 levels"),
        ("json", '{"a": ' + "9" * 5000 + "}", "more than 100 digits"),
        ("json", "{a: 1}", "is not JSON"),
        ("json", "[]", "holds a list"),
        ("json", r'{"a": "\ud800"}', "half of a character"),
        ("json", r'{"a": {"\udfff": 1}}', "half of a character"),
    ],
    ids=count(),
)
def test_bad_texts(ending: str, text: str | bytes, message: str, file: Callable[..., Path]) -> None:
    with pytest.raises(InputError, match=message) as refused:
        load_cluster(file(text, f"mine.{ending}"))
    assert refused.value.rule
    assert refused.value.hint


BAD_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"acelerator": "x"}, "acelerator is not a field of this format: did you mean accelerator"),
    ({"colour": "red"}, "colour is not a field of this format"),
    ({"accelerator": None}, "accelerator is None: it must be a name, a path or a set of fields"),
    ({"accelerator": "h100-sx"}, "unknown accelerator 'h100-sx'"),
    ({"accelerator": "missing.yaml"}, "accelerator file 'missing.yaml' does not exist"),
    ({"accelerator": {**PART, "memry": 1}}, r"accelerator\.memry is not a field .* did you mean memory"),
    ({"accelerator": {**PART, "memory": 80}}, "memory: 80 has no unit"),
    ({"accelerator": {**PART, "peak_flops": {"bf15": "1 TFLOP/s"}}}, "did you mean bf16"),
    ({"accelerator": {**PART, "peak_flops": {}}}, "peak_flops is empty"),
    ({"accelerator": {**PART, "generation": "hoper"}}, "did you mean hopper"),
    ({"name": 5}, "name is 5: it must be a text"),
    ({"name": ""}, "name is '': it must be a longer text"),
    ({"tiers": []}, "has no network tier"),
    ({"tiers": "fast"}, "tiers is 'fast': it must be a list"),
    ({"tiers": [5]}, r"tiers\.0 is 5: it must be a set of fields"),
    ({"tiers": MINE["tiers"][:1]}, r"tier sizes \[8\]"),
    ({"accelerators_per_node": 8.5}, "accelerators_per_node: 8.5 is not a whole number"),
    ({"accelerators_per_node": True}, "is True: it must be a number or a text with its unit"),
    ({"accelerators_per_node": {"value": 8, "unit": "GB"}}, "8 has the unit 'GB' in place of accelerators"),
    ({"accelerators_per_node": {"unit": "accelerators"}}, r"accelerators_per_node\.value is missing"),
]
BAD_TIERS: list[tuple[dict[str, Any], str]] = [
    ({"bandwith": "1 GB/s"}, r"tiers\.0\.bandwith is not a field .* did you mean bandwidth"),
    ({"bandwidth": 450}, r"tiers\.node\.bandwidth: 450 has no unit"),
    ({"bandwidth": "450 us"}, r"tiers\.node\.bandwidth: '450 us' has the unit 'us' of a time"),
    ({"bandwidth": {"value": 450, "unit": "GiBps"}}, "unknown unit 'GiBps'"),
    ({"bandwidth": {"value": "450 GB/s", "unit": "GB/s"}}, "is not a number followed by its unit"),
    ({"bandwidth": {"value": -450, "unit": "GB/s"}}, "is negative"),
    ({"bandwidth": {"value": 0, "unit": "GB/s"}}, "is zero"),
    ({"bandwidth": {"value": 1e300, "unit": "GB/s"}}, "is too much|is not a number"),
    ({"bandwidth": {"value": math.nan, "unit": "GB/s"}}, "is not a number"),
    ({"bandwidth": {"value": math.inf, "unit": "GB/s"}}, "is not a number"),
    ({"bandwidth": {"value": [450], "unit": "GB/s"}}, "it must be a number or a text"),
    ({"bandwidth": [450]}, "it must be a set of fields"),
    ({"latency": "5"}, r"tiers\.node\.latency: '5' has no unit"),
    ({"size": 0}, "size is 0"),
    ({"size": "8 GB"}, "of an amount of data"),
    ({"topology": "ring"}, "unknown topology"),
    ({"link_type": "nvlnk"}, "did you mean nvlink"),
    ({"topology": "torus", "torus_shape": [-2, -4]}, "torus_shape is -2"),
    ({"torus_shape": "2x4"}, "torus_shape is '2x4': it must be a list"),
]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        *(({**MINE, **changes}, message) for changes, message in BAD_FIELDS),
        *((_with_tier(**changes), message) for changes, message in BAD_TIERS),
    ],
    ids=count(),
)
@pytest.mark.parametrize("ending", ["yaml", "json"])
def test_bad_fields(document: dict[str, Any], message: str, ending: str, file: Callable[..., Path]) -> None:
    text = yaml.safe_dump(document) if ending == "yaml" else json.dumps(document)
    with pytest.raises(InputError, match=message) as refused:
        load_cluster(file(text, f"mine.{ending}"))
    assert refused.value.rule
    assert refused.value.hint


def test_a_file_that_lacks_almost_all(file: Callable[..., Path]) -> None:
    with pytest.raises(InputError, match=r"accelerator is missing \(and 2 more\)"):
        load_cluster(file({"name": "x"}))


def test_a_part_without_links_needs_a_cluster(file: Callable[..., Path]) -> None:
    part = {"name": "p", "memory": "80 GB", "memory_bandwidth": "3 TB/s", "peak_flops": {"bf16": "900 TFLOP/s"}}
    with pytest.raises(InputError, match="states no link that joins a node of 8"):
        cluster_of_accelerator(file(part))
    linked = {
        **part,
        "scale_up": {"link_type": "nvlink", "size": 4, "bandwidth": "300 GB/s"},
        "accelerators_per_node": 4,
    }
    cluster = cluster_of_accelerator(file(linked))
    assert [(tier.name, tier.size) for tier in cluster.tiers] == [("node", 4), ("cluster", None)]
    assert load_cluster("dgx-h100", accelerator=file(part)).accelerator.name == "p"


@pytest.mark.parametrize(
    "text", ["!" * 99_999, "x" * 99_999 + ": 1", "name: {" + "y" * 99_999 + ": 1}", "a: 1\n" * 9_999]
)
def test_errors_are_short(text: str, file: Callable[..., Path]) -> None:
    with pytest.raises(InputError) as refused:
        load_cluster(file(text))
    assert len(refused.value.message) < 600
    with pytest.raises(InputError) as refused:
        load_cluster(file(_with_tier(link_type=text)))
    assert len(refused.value.message) < 600


def test_places_that_are_no_file(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo.yaml"
    os.mkfifo(fifo)
    for path, message in (
        (tmp_path, "is a directory"),
        (fifo, "is not a regular file"),
        (tmp_path / "x", "does not exist"),
    ):
        with pytest.raises(InputError, match=message):
            load_cluster(path)


def test_a_date_is_a_text(file: Callable[..., Path]) -> None:
    assert load_cluster(file(yaml.safe_dump(MINE) + "date: 2026-11-01\n")).name == "mine"


def test_units_are_refused_as_units(file: Callable[..., Path]) -> None:
    with pytest.raises(UnitError):
        load_cluster(file(_with_tier(bandwidth="450 us")))
    with pytest.raises(UnknownNameError):
        load_cluster(file({**MINE, "accelerator": "h100-sx"}))


LEAVES = st.text(max_size=6) | st.sampled_from(
    (None, True, 0, -1, 8, 2.5, math.nan, math.inf, 10**30, "", "8", "450 GB/s", "5us", "nvlink", "torus", "tpu-v4")
)
NAMES = st.sampled_from(("name", "size", "bandwidth", "latency", "value", "unit", "tiers", "accelerator", "bf16", "x"))
DOCUMENTS = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6
)


@given(
    field=st.sampled_from((*MINE, "notes", "host_memory", "sources", "price_per_hour")),
    value=DOCUMENTS,
    deep=st.booleans(),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_document_is_a_cluster_or_refused(field: str, value: object, deep: bool, tmp_path: Path) -> None:  # noqa: FBT001  # drawn
    document = _with_tier(**{field: value}) if deep else {**MINE, field: value}
    for name, text in (("x.json", json.dumps(document)), ("x.yaml", yaml.safe_dump(document))):
        (tmp_path / name).write_text(text, encoding="utf-8")
        try:
            assert load_cluster(tmp_path / name).tiers
        except InputError:
            continue


@given(text=st.text(max_size=60) | st.binary(max_size=60))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_refused(text: str | bytes, tmp_path: Path) -> None:
    for ending in ("yaml", "json"):
        path = tmp_path / f"x.{ending}"
        path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", errors="surrogatepass"))
        with pytest.raises(InputError):
            load_cluster(path)
        with pytest.raises(InputError):
            load_accelerator(path)
