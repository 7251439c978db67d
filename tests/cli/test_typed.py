"""What people type: names and numbers as frameworks and drivers write them, and what is missing or unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import FEW, SMALL, answer, refused, run, unwrapped
from typer.testing import CliRunner

from shardplan.ask.forms import QuestionForm
from shardplan.base.errors import InputError
from shardplan.base.files import DATA
from shardplan.cli.main import app
from shardplan.cli.question import given_by_user
from shardplan.decide.scale import sizes_in

CONFIG = DATA / "models" / "llama-3.2-1b.json"
SMALL_JOB = ("--global-batch-size", "64", "--sequence-length", "2048")


def _plan(record: dict[str, Any]) -> dict[str, Any]:
    plan: dict[str, Any] = record["plans"][0]["plan"]
    return plan


def test_words_of_frameworks_as_flags() -> None:
    words = ("--sharding", "FSDP", "--precision", "bfloat16", "--optimizer", "adamw", "--recompute", "moe_act,norm")
    ours = ("--sharding", "zero3", "--precision", "bf16", "--optimizer", "adam", "--recompute", "activation,layernorm")
    stack = ("--stack", "any")
    assert answer("estimate", *SMALL, *words, *stack) == answer("estimate", *SMALL, *ours, *stack)


def test_lengths_with_a_suffix() -> None:
    """8k is the context that models call 8k, and a comma or an underscore parts thousands."""
    for length in ("2k", "2K", "2_048", "2,048", "2ki"):
        arguments = ("estimate", *SMALL[:-1], length, "--tp", 2)
        assert answer(*arguments)["job"]["sequence_length"] == 2048, length


@pytest.mark.parametrize("name", ["NVIDIA H100 80GB HBM3", "H100", "h100-80gb", "h100_sxm"])
def test_accelerators_as_drivers_print_them(name: str) -> None:
    record = answer("estimate", "llama-3.2-1b", "--accelerator", name, "--gpus", 8, *SMALL_JOB)
    assert record["cluster"]["accelerator"]["name"] == "h100-sxm-80gb"
    said = f"accelerator {name} is taken as h100-sxm-80gb"
    assert any(text.startswith(said) for text in record["plans"][0]["assumptions"])


def test_the_page_of_an_accelerator_says_what_its_name_is_taken_as() -> None:
    assert "H100 is taken as h100-sxm-80gb" in unwrapped(run("accelerators", "H100").stdout)


def test_a_repository_of_the_hub_is_its_built_in_model() -> None:
    record = answer("estimate", "meta-llama/Llama-3.2-1B-Instruct", *SMALL[1:], "--tp", 2)
    assert record["model"]["name"] == "llama-3.2-1b"
    said = "model meta-llama/Llama-3.2-1B-Instruct is taken as llama-3.2-1b"
    assert said in record["plans"][0]["assumptions"]


@pytest.mark.parametrize("arguments", [("plan", "-", *SMALL[1:], *FEW), ("models", "-")])
def test_a_configuration_on_standard_input(arguments: tuple[str, ...]) -> None:
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, list(arguments), input=CONFIG.read_text())
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(("text", "said"), [("", "is empty"), ("[1]", "not a JSON object"), ("{", "is not JSON")])
def test_standard_input_that_is_no_configuration(text: str, said: str) -> None:
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["plan", "-", *SMALL[1:]], input=text)
    assert result.exit_code == 2
    assert said in unwrapped(result.stderr)


def test_a_folder_without_a_slash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mymodel").mkdir()
    (tmp_path / "mymodel" / "config.json").write_bytes(CONFIG.read_bytes())
    monkeypatch.chdir(tmp_path)
    assert answer("estimate", "mymodel", *SMALL[1:])["model"]["name"] == "mymodel"


@pytest.mark.parametrize("stack", ["megatron", "Megatron_Core", "mcore", "MEGATRON-LM"])
def test_other_names_of_a_stack(stack: str) -> None:
    named = answer("estimate", *SMALL, "--stack", "megatron-lm")
    assert answer("estimate", *SMALL, "--stack", stack)["plans"] == named["plans"]


def test_nodes_give_the_number_of_accelerators() -> None:
    arguments = ("estimate", "llama-3.2-1b", "--cluster", "dgx-h100", *SMALL_JOB, "--tp", 2)
    record = answer(*arguments, "--nodes", 2)
    assert record["num_accelerators"] == 16
    assert "2 nodes of 8 accelerators (dgx-h100): 16 accelerators" in record["plans"][0]["assumptions"]
    assert answer(*arguments, "--nodes", 2, "--gpus", 16)["num_accelerators"] == 16


def test_nodes_of_a_plan_file(tmp_path: Path) -> None:
    run("estimate", *SMALL, "--json", tmp_path / "one.json")
    assert answer("estimate", "--from", tmp_path / "one.json", "--nodes", 2)["num_accelerators"] == 16


def test_one_flag_fixes_several_fields() -> None:
    record = answer("plan", *SMALL, "--fix", "TP=2,pipeline_parallel=2", "--stack", "any", *FEW[2:])
    assert {(each["plan"]["tp"], each["plan"]["pp"]) for each in record["plans"]} == {(2, 2)}


def test_a_set_of_modules_is_fixed_with_commas() -> None:
    record = answer("plan", *SMALL, "--fix", "recompute=layernorm,activation", "--stack", "any", *FEW)
    assert {each["plan"]["recompute"] for each in record["plans"]} == {"layernorm,activation"}
    plus = answer("plan", *SMALL, "--fix", "recompute=layernorm+activation", "--stack", "any", *FEW)
    assert plus["plans"] == record["plans"]


def test_words_of_frameworks_in_the_space_of_a_search() -> None:
    limits = ("--limit", "sharding=none,fsdp", "--limit", "pp=1,2,cp=1", "--exclude", "recompute=Full")
    record = answer("plan", *SMALL, *limits, "--stack", "any")
    assert record["space"]["sharding"] == ["ddp", "zero3"]
    assert (record["space"]["pp"], record["space"]["cp"]) == ([1, 2], [1])
    assert "full" not in record["space"]["recompute"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", *SMALL, "--fix", "nonsense=1"), ("plan", *SMALL, "--stack", "nonsense"), ("models", "nonsense"),
        ("clusters", "a"), ("accelerators", "h"), ("plan", *SMALL, "--qqq"),
    ],
    ids=str,
)  # fmt: skip
def test_unknown_names_list_few_and_say_where_all_are(arguments: tuple[str, ...]) -> None:
    text = refused(*arguments)
    assert text.count(", ") <= 8
    assert "`shardplan" in text


@pytest.mark.parametrize("text", ["8-32", "8..32", "8 to 32", "8\u201332", "8 - 32"])
def test_ranges_of_sizes_as_people_write_them(text: str) -> None:
    assert sizes_in(text, "--gpus") == [8, 16, 32]


@pytest.mark.parametrize("text", ["8-", "-8", "8-16-32", "8--32", "32-8"])
def test_what_is_no_range_of_sizes_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        sizes_in(text, "--gpus")


def test_quantities_are_shown_with_the_unit_that_they_are_read_in() -> None:
    flags = QuestionForm(overrides={"inter_node_bandwidth": "100", "memory": "70GB", "price": "2", "node_size": "4"})
    assert given_by_user(flags) == (
        "inter node bandwidth 100 GB/s", "memory 70GB", "price 2 USD/h", "node size 4",
    )  # fmt: skip


def test_seq_is_suggested() -> None:
    assert "did you mean --sequence-length?" in refused("plan", "llama-3.2-1b", "--seq", 2048)
