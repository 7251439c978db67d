"""Names of accelerators and models that can mean one thing only are taken, and said; others are asked about."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.calibration.rows import asked, run

from shardplan.calibration.predict import ask_all
from shardplan.calibration.runs.names import accelerator_meant, model_meant
from shardplan.frameworks.stack import list_stacks, load_stack
from shardplan.inputs.readers.catalog import list_accelerators, list_models
from shardplan.inputs.readers.model_index import model_sources


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("mi300x", "mi300x-192gb"), ("AMD Instinct MI300X", "mi300x-192gb"), ("h200", "h200-sxm-141gb"),
        ("H200-NVL", "h200-nvl-141gb"), ("NVIDIA B200", "b200-sxm-180gb"), ("H100-SXM5-80GB", "h100-sxm-80gb"),
        ("h100_sxm_80gb", "h100-sxm-80gb"), ("v100-32gb", "v100-sxm2-32gb"), ("l4", "l4-24gb"), ("v5p", "tpu-v5p"),
        ("h100", None), ("a100", None), ("a100-80gb", None), ("mi250x", None), ("tpu", None), ("nvidia", None),
        ("", None), ("h100-sxm-80gb", None), ("H100-SXM-80GB", None), ("parts/h200.yaml", None),
    ],
)  # fmt: skip
def test_accelerators(name: str, meant: str | None) -> None:
    assert accelerator_meant(name) == meant


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("llama-3-8b", "llama-3.1-8b"), ("meta-llama/Llama-3.1-8B", "llama-3.1-8b"),
        ("meta-llama/Meta-Llama-3-70B-Instruct", "llama-3.1-70b"), ("llama31_8b", "llama-3.1-8b"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"), ("qwen3-235b", "qwen3-235b-a22b"), ("gpt3_175b", "gpt3-175b"),
        ("google/gemma-3-27b-it", "gemma-3-27b-text"), ("Mixtral_8x7B", "mixtral-8x7b"),
        ("llama-3.1", None), ("mixtral", None), ("8b", None), ("llama-3.1-9b", None), ("nobody/nothing-7b", None),
        ("", None), ("llama-3.1-8b", None), ("models/llama-3.1-8b.json", None),
    ],
)  # fmt: skip
def test_models(name: str, meant: str | None) -> None:
    assert model_meant(name) == meant


def test_names_of_the_catalogue_are_not_touched() -> None:
    assert [name for name in list_accelerators() if accelerator_meant(name)] == []
    assert [name for name in list_models() if model_meant(name)] == []


def test_every_name_on_the_hub_is_its_model() -> None:
    hub = {source.hf_id: name for name, source in model_sources().items() if source.hf_id}
    assert {hf_id: model_meant(hf_id) for hf_id in hub if hf_id != hub[hf_id]} == hub


def test_what_is_taken_is_said(tmp_path: Path) -> None:
    one = asked(tmp_path, accelerator="h200", model="meta-llama/Llama-3.1-8B")
    plain = asked(tmp_path, accelerator="h200-sxm-141gb", model="llama-3.1-8b")
    assert (one.question, one.plan) == (plain.question, plain.plan)
    assert one.taken == (
        "model meta-llama/Llama-3.1-8B is taken as llama-3.1-8b", "accelerator h200 is taken as h200-sxm-141gb",
    )  # fmt: skip
    assert set(one.taken) <= set(one.assumed)
    assert (one.run.accelerator, plain.taken) == ("h200-sxm-141gb", ())


def test_several_candidates_are_not_chosen_among(tmp_path: Path) -> None:
    _, skipped = ask_all([run(tmp_path, accelerator="h100")])
    assert "h100-nvl-94gb, h100-pcie-80gb, h100-sxm-80gb" in skipped[0].reason


@pytest.mark.parametrize("name", ["x" * 4000, "a/" + "x" * 3000])
def test_names_too_long_for_a_path(tmp_path: Path, name: str) -> None:
    _, skipped = ask_all([run(tmp_path, model=name), run(tmp_path, accelerator=name)])
    assert len(skipped) == 2


def test_an_alias_stands_for_one_framework() -> None:
    stacks = [load_stack(name) for name in list_stacks()]
    aliases = [alias for stack in stacks for alias in stack.aliases]
    assert len(aliases) == len(set(aliases))
    assert set(aliases) & {name for stack in stacks for name in stack.frameworks} == set()
