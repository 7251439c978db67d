"""Names of accelerators and models that can mean one thing only are taken; others are asked about."""

from __future__ import annotations

import csv
from collections.abc import Callable

import pytest

from shardplan.base.errors import InputError
from shardplan.base.files import DATA
from shardplan.inputs.readers.catalog import (
    list_accelerators,
    list_clusters,
    list_models,
    load_accelerator,
    load_cluster,
    load_model,
)
from shardplan.inputs.readers.names import model_sources, name_meant, relatives, taken_as

ACCELERATORS = [
    ("mi300x", "mi300x-192gb"), ("AMD Instinct MI300X", "mi300x-192gb"), ("h200", "h200-sxm-141gb"),
    ("H200-NVL", "h200-nvl-141gb"), ("NVIDIA B200", "b200-sxm-180gb"), ("H100-SXM5-80GB", "h100-sxm-80gb"),
    ("h100_sxm_80gb", "h100-sxm-80gb"), ("v100-32gb", "v100-sxm2-32gb"), ("l4", "l4-24gb"), ("v5p", "tpu-v5p"),
    ("a100", None), ("v100", None), ("gh200", None), ("mi250x", None), ("tpu", None), ("nvidia", None),
    ("", None), ("h100-sxm-80gb", None), ("H100-SXM-80GB", None), ("parts/h200.yaml", None),
    # as nvidia-smi, rocm-smi and JAX's device_kind print them
    ("NVIDIA H100 80GB HBM3", "h100-sxm-80gb"), ("NVIDIA H100 PCIe", "h100-pcie-80gb"),
    ("NVIDIA H100 NVL", "h100-nvl-94gb"), ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
    ("NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"), ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
    ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"), ("NVIDIA H200", "h200-sxm-141gb"),
    ("NVIDIA H200 NVL", "h200-nvl-141gb"), ("NVIDIA B200", "b200-sxm-180gb"), ("NVIDIA GB200", "gb200-186gb"),
    ("NVIDIA B300 SXM6 AC", "b300-sxm-288gb"), ("NVIDIA GH200 480GB", "gh200-96gb"),
    ("NVIDIA GH200 144G HBM3e", "gh200-144gb"), ("Tesla V100-SXM2-32GB", "v100-sxm2-32gb"),
    ("NVIDIA L4", "l4-24gb"), ("NVIDIA L40S", "l40s-48gb"), ("NVIDIA A10G", "a10g-24gb"),
    ("NVIDIA RTX A6000", "a6000-48gb"), ("NVIDIA GeForce RTX 4090", "rtx4090-24gb"),
    ("NVIDIA RTX 6000 Ada Generation", "rtx6000-ada-48gb"), ("NVIDIA H20", "h20-sxm-96gb"),
    ("AMD Instinct MI300X OAM", "mi300x-192gb"), ("TPU v5 lite", "tpu-v5e"), ("TPU v5", "tpu-v5p"),
    ("TPU v4", "tpu-v4"), ("TPU v6 lite", "tpu-v6e"),
]  # fmt: skip
MODELS = [
    ("llama-3-8b", "llama-3.1-8b"), ("meta-llama/Llama-3.1-8B", "llama-3.1-8b"),
    ("meta-llama/Meta-Llama-3-70B-Instruct", "llama-3.1-70b"), ("llama31_8b", "llama-3.1-8b"),
    ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"), ("qwen3-235b", "qwen3-235b-a22b"), ("gpt3_175b", "gpt3-175b"),
    ("google/gemma-3-27b-it", "gemma-3-27b-text"), ("Mixtral_8x7B", "mixtral-8x7b"),
    ("llama-3.1", None), ("mixtral", None), ("8b", None), ("llama-3.1-9b", None), ("nobody/nothing-7b", None),
    ("", None), ("llama-3.1-8b", None), ("models/llama-3.1-8b.json", None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("what", "name", "meant"),
    [*(("accelerator", *row) for row in dict(ACCELERATORS).items()), *(("model", *row) for row in MODELS)],
)
def test_what_names_mean(what: str, name: str, meant: str | None) -> None:
    assert name_meant(what, name) == meant


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("H100", "h100-sxm-80gb"), ("h100-80gb", "h100-sxm-80gb"), ("A100-80GB", "a100-sxm-80gb"),
        ("a100-40gb", "a100-sxm-40gb"), ("b200", "b200-sxm-180gb"),
    ],
)  # fmt: skip
def test_the_board_of_clusters_is_usual_and_that_is_said(name: str, meant: str) -> None:
    assert name_meant("accelerator", name) == meant
    assert f"{name} is taken as {meant}" in taken_as("accelerator", name)


def test_others_of_the_name_are_said() -> None:
    assert "h100-pcie-80gb" in taken_as("accelerator", "H100")
    assert "usual" not in taken_as("accelerator", "mi300x")


def test_several_are_listed() -> None:
    with pytest.raises(InputError, match="unknown accelerator 'A100'") as refused:
        load_accelerator("A100")
    assert "a100-sxm-40gb, a100-sxm-80gb" in refused.value.hint


def test_names_of_the_catalogue_are_not_touched() -> None:
    assert [name for name in list_accelerators() if name_meant("accelerator", name)] == []
    assert [name for name in list_models() if name_meant("model", name)] == []


def test_every_name_on_the_hub_is_its_model() -> None:
    hub = {source.hf_id: name for name, source in model_sources().items() if source.hf_id}
    assert {hf_id: name_meant("model", hf_id) for hf_id in hub if hf_id != hub[hf_id]} == hub


@pytest.mark.parametrize(("what", "listed"), [("accelerator", list_accelerators), ("cluster", list_clusters)])
def test_the_tables_of_names_lead_to_what_is_shipped(what: str, listed: Callable[[], list[str]]) -> None:
    with (DATA / f"{what}s" / "names.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["name"] for row in rows} <= {*listed()}
    assert [name_meant(what, row["written"]) for row in rows] == [row["name"] for row in rows]
    assert all(row["source"] for row in rows)


@pytest.mark.parametrize(
    ("name", "accelerator"),
    [
        ("p5.48xlarge", "h100-sxm-80gb"), ("ml.p4d.24xlarge", "a100-sxm-40gb"), ("a3-megagpu-8g", "h100-sxm-80gb"),
        ("Standard_ND96isr_H100_v5", "h100-sxm-80gb"), ("nd96amsr_a100_v4", "a100-sxm-80gb"), ("A100", "a100-sxm-80gb"),
    ],
)  # fmt: skip
def test_clusters_by_the_names_of_clouds(name: str, accelerator: str) -> None:
    """Accelerators of instance types as AWS, Azure and Google Cloud document them."""
    cluster = load_cluster(name)
    assert (cluster.accelerator.name, cluster.accelerators_per_node) == (accelerator, 8)
    assert f"cluster {name} is taken as {cluster.name}" in cluster.assumptions


@pytest.mark.parametrize(
    "path", ["./models/llama-3.1-8b", "/models/llama-3.1-8b", "a/b/llama-3.1-8b", "~/llama-3.1-8b"]
)
def test_a_path_of_nothing_is_no_name(path: str) -> None:
    with pytest.raises(InputError, match="does not exist"):
        load_model(path)


@pytest.mark.parametrize("name", sorted(relatives()))
def test_relatives_have_as_many_parameters_as_their_makers_publish(name: str) -> None:
    assert load_model(name).num_parameters == relatives()[name].num_parameters


@pytest.mark.parametrize(
    ("repository", "name"),
    [
        ("Qwen/Qwen3-4B-Instruct-2507", "qwen3-4b"), ("Qwen/Qwen3-30B-A3B-Thinking-2507", "qwen3-30b-a3b"),
        ("Qwen/Qwen2.5-Coder-32B-Instruct", "qwen2.5-32b"), ("allenai/OLMo-2-1124-7B-SFT", "olmo-2-1124-7b"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"), ("lmsys/vicuna-7b-v1.5", "llama-2-7b"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", "deepseek-r1-distill-qwen-1.5b"),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-v3"), ("Qwen/Qwen2.5-1.5B", "qwen2-1.5b"),
    ],
)  # fmt: skip
def test_repositories_with_other_weights_are_the_model_of_their_shape(repository: str, name: str) -> None:
    assert load_model(repository).name == name
    with pytest.raises(InputError):
        load_model(f"{repository}-of-none")
