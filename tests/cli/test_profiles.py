"""``shardplan profiles`` and ``stacks``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import answer, run, unwrapped

from shardplan.inputs.profile import constants_of, generations, load_profile
from shardplan.physics.frameworks.stack import list_stacks, load_stack

TABLES_OF_PARTS = ("accelerator_rate", "matmul_efficiency", "network_efficiency")
"""Tables whose keys are parts, number formats and links, which not every generation has."""


def test_lists_are_complete() -> None:
    assert [each["name"] for each in answer("profiles")["profiles"]] == ["default", *generations()]
    assert [each["name"] for each in answer("stacks")["stacks"]] == list_stacks()
    listed = [part for each in answer("profiles")["profiles"] for part in each["accelerators"]]
    assert "h100-sxm-80gb" in listed
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize("name", ["default", *generations()])
def test_every_constant_of_a_profile_has_its_origin(name: str) -> None:
    record, profile = answer("profiles", name), load_profile(name)
    values = {(row["name"], row["key"]): row["value"] for row in record["constants"]}
    for constant, described in profile.constants.items():
        value: Any = described.value
        table: dict[str | None, Any] = value if isinstance(value, dict) else {None: value}
        shown = {key: values.pop((constant, key)) for key in table if (constant, key) in values}
        assert shown == {key: table[key] for key in shown}
        assert set(table) == set(shown) or (name != "default" and constant in TABLES_OF_PARTS)
    assert values == {}
    assert all(row["unit"] and row["source"] for row in record["constants"])
    text = run("profiles", name, columns=140).stdout
    assert [row["name"] for row in record["constants"] if row["name"] not in text] == []


@pytest.mark.parametrize("name", ["default", *generations()])
def test_every_constant_has_an_uncertainty_and_says_whose(name: str) -> None:
    for row in answer("profiles", name)["constants"]:
        label = (row["name"], row["key"])
        assert row["sd"] is not None, label
        assert (row["fitted_on"] is None) == bool(row["sd_basis"]), label
        assert (row["sd"] == 0) == (row["fitted_on"] is None and "by definition" in row["sd_basis"]), label
        assert row["sd"] < 1, label


def test_an_uncertainty_that_is_assumed_reaches_no_fit_and_no_robustness() -> None:
    """The ``sd`` that estimates and fits read stays that of fitted constants."""
    for generation in ("default", *generations()):
        for name, constant in constants_of(generation).items():
            assert (constant.sd is None) == (constant.fitted_on is None), name
            assert (constant.assumed_sd is None) == (constant.sd_basis is None), name
            spread, fitted = constant.assumed_sd, constant.sd
            if isinstance(spread, dict) and isinstance(fitted, dict):
                assert not {key for keys in spread for key in keys.split("+")} & {
                    key for keys in fitted for key in keys.split("+")
                }, name


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_nothing_is_dropped_where_there_is_little_room(columns: int) -> None:
    text = unwrapped(run("profiles", "hopper", columns=columns).stdout)
    for words in (
        "fraction of nominal bandwidth",
        "0.755 (sd 0.035)",
        str(constants_of("hopper")["attention_efficiency"].value),
        "by definition",
        "fp8 without the casts",
    ):
        assert words in text


def test_a_generation_shows_only_what_its_parts_can_use() -> None:
    shown = {(row["name"], row["key"]) for row in answer("profiles", "hopper")["constants"]}
    rated = {key for name, key in shown if name == "accelerator_rate"}
    assert rated == {"gh200-96gb", "gh200-144gb", "h100-sxm-96gb-500w"}
    assert not {"ici", "xgmi", "hccs", "neuronlink"} & {key for name, key in shown if name == "network_efficiency"}
    assert {"nvlink", "pcie", "efa", "other"} <= {key for name, key in shown if name == "network_efficiency"}
    assert ("matmul_efficiency", "nvfp4") not in shown  # Blackwell is the first that has it
    tpu = {(row["name"], row["key"]) for row in answer("profiles", "tpu")["constants"]}
    assert {key for name, key in tpu if name == "accelerator_rate"} == {
        "tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu-v7-ironwood",
    }  # fmt: skip
    assert ("network_efficiency", "ici") in tpu
    assert ("network_efficiency", "nvlink") not in tpu
    everything = {(row["name"], row["key"]) for row in answer("profiles", "default")["constants"]}
    assert everything >= shown | tpu


def test_fitted_constants_show_what_they_were() -> None:
    rows = {(row["name"], row["key"]): row for row in answer("profiles", "hopper")["constants"]}
    row = rows["matmul_efficiency", "bf16"]
    assert row["prior"] > 0
    assert row["prior_sd"] > row["sd"] > 0
    assert row["stated_in"] == "hopper"
    assert rows["memory_efficiency", None]["stated_in"] == "default"


def test_a_profile_of_ones_own_shows_what_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "generation: hopper\nmatmul_efficiency: {value: {bf16: 0.7}, unit: fraction of dense peak, source: my own}\n"
    )
    rows = answer("profiles", path)["constants"]
    assert [(row["name"], row["key"]) for row in rows if row["stated_in"] == "mine"] == [("matmul_efficiency", "bf16")]
    assert [row["key"] for row in rows if row["source"] == "my own"] == ["bf16"]
    text = run("profiles", path).stdout
    assert "matmul_efficiency[bf16]**" in text
    assert "matmul_efficiency[fp8]*" in text


@pytest.mark.parametrize("name", list_stacks())
def test_every_default_of_a_stack_has_its_source(name: str) -> None:
    record, stack = answer("stacks", name), load_stack(name)
    stated = {f"{part}.{field}" for part in ("software", "job", "plan") for field in record[part]}
    assert stated <= set(record["sources"])
    assert record["plan"] == stack.plan_fields()
    text = run("stacks", name, columns=120).stdout
    assert [field for field in record["software"] if field not in text] == []


@pytest.mark.parametrize("name", ["nanotron", "nemo", "hai-llm", "torchtitan@0.3"])
def test_what_a_framework_can_run_is_shown_with_its_sources(name: str) -> None:
    record, can = answer("stacks", name)["can_run"], load_stack(name).can_run
    assert can is not None
    assert (record["version"], record["date"]) == (can.version, can.date)
    assert [*record["entries"]] == [*can.stated]
    assert all(entry["source"] for entry in (*record["entries"].values(), *record["refuses"]))
    text = " ".join(run("stacks", name, columns=120).stdout.split())
    assert can.version in text
    assert all(rule.instead in text for rule in can.refuses)
    assert ("from memory" in text) == bool(can.from_memory)


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
@pytest.mark.parametrize("arguments", [("profiles",), ("profiles", "hopper"), ("stacks",), ("stacks", "torchtitan")])
def test_lines_fit_the_terminal(arguments: tuple[str, ...], columns: int) -> None:
    lines = run(*arguments, columns=columns).stdout.splitlines()
    assert max(map(len, lines)) <= max(columns, 60)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("profiles", "hoper"), "did you mean hopper"),
        (("profiles", ""), "unknown profile"),
        (("profiles", "./none.yaml"), "does not exist"),
        (("profiles", "a\0b/"), "no null characters"),
        (("profiles", "x" * 5000), "unknown profile"),
        (("stacks", "torchtita"), "did you mean torchtitan"),
        (("stacks", "./none.yaml"), "does not exist"),
        (("stacks", "torchtitan@9"), "unknown version of torchtitan"),
        (("stacks", ""), "unknown stack"),
    ],
)
def test_unknown_names(arguments: tuple[str, ...], words: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert words in unwrapped(result.stderr)
