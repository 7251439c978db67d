"""Configurations: values with lines, interpolation, files that they build on, Python by its syntax tree."""

# ruff: noqa: E501, PT018 - texts stand as they are written

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from shardplan.base.errors import InputError
from shardplan.launch.read import parse_document, read_document
from shardplan.launch.read.python import parse_python, read_python
from shardplan.launch.read.yaml_tree import _EXPONENT

# A text such as 1e5 is a text to PyYAML, and a number to people, to omegaconf and here.
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**12), 10**12),
    st.floats(allow_nan=False),
    st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_characters="\x7f\x85"), max_size=8).filter(
        lambda text: not _EXPONENT.fullmatch(text)
    ),
)
TREES = st.dictionaries(
    st.text("abc_xyz", min_size=1, max_size=4),
    st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1, max_size=3), inner, max_size=3), max_leaves=8),
    max_size=4,
)  # fmt: skip


@given(TREES)
def test_json_is_read_as_the_standard_library_reads_it(tree: dict[str, object]) -> None:
    text = json.dumps(tree, indent=1)
    assert parse_document(text, "json", "x").tree == json.loads(text)
    assert parse_document(text, "jsonc", "x").tree == json.loads(text)


@given(TREES)
def test_yaml_is_read_as_its_library_reads_it(tree: dict[str, object]) -> None:
    text = yaml.safe_dump(tree)
    if "${" not in text and "???" not in text:
        assert parse_document(text, "yaml", "x").tree == yaml.safe_load(text)


def test_values_know_their_line() -> None:
    for kind, text in {
        "yaml": "a:\n  b: 1\n",
        "json": '{"a":\n {"b": 1}}',
        "toml": "[a]\nb = 1\n",
        "ini": "[a]\nb = 1\n",
    }.items():
        value = parse_document(text, kind, "x").values["a.b"]  # type: ignore[arg-type]
        assert (str(value.value), value.line) == ("1", 2), kind


def test_interpolation() -> None:
    text = "a: {b: 2}\nc: ${a.b}\nd:\n  e: ${..a.b}x\n  f: ${multiply:3,${.g}}\n  g: 4\nh: ${oc.env:N,8}\ni: ${N}\nj: ${k}\nl: 1e-4\nm: ${m}\nn: ???\n"
    values = parse_document(text, "yaml", "x").values
    assert {key: value.value for key, value in values.items() if not value.needs} == {
        "a.b": 2, "c": 2, "d.e": "2x", "d.f": 12, "d.g": 4, "h": 8, "l": 1e-4,
    }  # fmt: skip
    assert values["h"].assumes == ("env:N=8",)
    assert values["i"].needs == ("env:N",)
    assert values["j"].needs == ("key:k",)
    assert values["m"].value is None and values["n"].value is None
    assert parse_document(text, "yaml", "x", env={"N": "16"}).tree["h"] == 16


def test_comments_and_commas_at_the_end_only_on_request() -> None:
    text = '{"a": 1, // one\n "b": [1, 2,],}'
    assert parse_document(text, "jsonc", "x").tree == {"a": 1, "b": [1, 2]}
    with pytest.raises(InputError, match="line 1"):
        parse_document(text, "json", "x")


def test_files_that_a_configuration_builds_on(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "70b.yaml").write_text("tp: 8\nlayers: 80\n")
    (tmp_path / "base.yaml").write_text("seed: 1\ntrain: {tp: 1}\n")
    (tmp_path / "a.yaml").write_text("defaults:\n  - base\n  - train: 70b\n  - _self_\n  - ../b\ntrain: {tp: 4}\n")
    document = read_document(tmp_path / "a.yaml")
    assert document.tree == {"seed": 1, "train": {"tp": 4, "layers": 80}}
    assert document.values["train.layers"].file.endswith("70b.yaml")
    assert any("../b" in note for note in document.notes)


def test_python_functions_are_followed() -> None:
    text = """
import os
TP = 4
def base(n=1, *, seq=4096):
    c = Trainer(model=Model(layers=32, n=n), seq=seq)
    c.train.micro = 2
    return c
def big():
    c = base(n=3)
    c.model.layers *= 2
    c.parallel = dict(tp=TP if TP > 2 else 1, pp=int(os.environ.get("PP", "2")))
    if os.environ["X"] == "1":
        c.seq = 8192
    return c
"""
    values = parse_python(text, "x.py", "big").values
    assert {key: value.value for key, value in values.items() if "__" not in key} == {
        "model.layers": 64, "model.n": 3, "train.micro": 2, "parallel.tp": 4, "parallel.pp": 2, "seq": None,
    }  # fmt: skip
    assert values["seq"].needs and values["parallel.pp"].assumes == ("env:PP=2",)
    with pytest.raises(InputError, match="no function small"):
        parse_python(text, "x.py", "small")


def test_python_modules_give_their_assignments(tmp_path: Path) -> None:
    (tmp_path / "c.py").write_text(
        "N = 2 * 4\nmodel = dict(layers=N, kind=f'l{N}')\nmodel['x'] = [N // 3]\nlater = unknown(3)\n"
    )
    document = read_python(tmp_path / "c.py")
    assert document.tree == {"N": 8, "model": {"layers": 8, "kind": "l8", "x": [2]}, "later": None}
    assert document.values["later"].needs == ("code:unknown(3)",)
