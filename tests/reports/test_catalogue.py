"""Lists and details of the catalogue."""

from __future__ import annotations

import json

import pytest

from shardplan.estimation.flops import model_flops_per_token
from shardplan.inputs.readers.catalog import (
    list_accelerators,
    list_clusters,
    list_models,
    load_accelerator,
    load_cluster,
    load_model,
)
from shardplan.reports import catalogue
from shardplan.reports.model_record import DERIVED, model_from_record


def test_the_lists_are_complete() -> None:
    assert [entry.name for entry in catalogue.model_entries()] == list_models()
    assert [entry.name for entry in catalogue.cluster_entries()] == list_clusters()
    assert [entry.name for entry in catalogue.accelerator_entries()] == list_accelerators()


def test_rows_are_plain_and_carry_units() -> None:
    for entries in (catalogue.model_entries(), catalogue.cluster_entries(), catalogue.accelerator_entries()):
        json.dumps([entry.record for entry in entries], allow_nan=False)
    row = next(e for e in catalogue.accelerator_entries() if e.name == "h100-sxm-80gb").record
    assert row["memory_bandwidth_bytes_per_s"] == pytest.approx(3.35e12)
    assert row["peak_flops_bf16_per_s"] == pytest.approx(989e12)


@pytest.mark.parametrize("name", list_models())
def test_details_of_a_model_are_those_of_its_file(name: str) -> None:
    model, details = load_model(name), catalogue.model_details(name)
    assert details["num_parameters"] == model.num_parameters
    assert details["num_active_parameters"] == model.num_active_parameters
    assert details["model_flops_per_token"] == model_flops_per_token(model, details["sequence_length"])
    assert catalogue.model_values(details)
    json.dumps(details, allow_nan=False)


def test_dimensions_have_their_hugging_face_names() -> None:
    details = catalogue.model_details("deepseek-v3", sequence_length=4096)
    assert details["sequence_length"] == 4096
    assert details["num_attention_heads"] == 128
    assert details["kv_lora_rank"] == 512
    assert details["num_experts"] == 256
    assert details["num_experts_per_tok"] == 8
    assert details["moe_intermediate_size"] == 2048
    assert details["intermediate_size"] == 18432
    assert catalogue.model_details("llama-3.1-70b")["num_key_value_heads"] == 8
    assert catalogue.model_details("gemma-3-27b-text")["sliding_window"] == [1024, None]


@pytest.mark.parametrize(
    ("name", "field", "shown"),
    [
        ("gpt-oss-120b", "sliding_window", "128 in 18 of 36 layers"),
        ("gemma-3-27b-text", "sliding_window", "1,024 in 52 of 62 layers"),
        ("mistral-7b", "sliding_window", 4096),
    ],
)
def test_windows_say_in_which_layers(name: str, field: str, shown: object) -> None:
    values = {value.field: value.value for value in catalogue.model_values(catalogue.model_details(name))}
    assert values[field] == shown


def test_details_of_a_model_hold_a_model() -> None:
    details = catalogue.model_details("llama-3.1-8b")
    model = load_model("llama-3.1-8b")
    known = {field for field in details if hasattr(model, field) or field.startswith("layer_")}
    assert set(DERIVED) <= known
    own = {
        name: details[name]
        for name in (*model.__dataclass_fields__, "layer_kinds", "layer_pattern")
        if name in details and name != "layers"
    }
    assert model_from_record(own) == model


def test_every_value_of_hardware_has_a_source() -> None:
    for name in list_clusters():
        cluster = load_cluster(name)
        assert all(value.source for value in catalogue.cluster_values(cluster)), name
        json.dumps(catalogue.cluster_details(cluster), allow_nan=False)
    for name in list_accelerators():
        part = load_accelerator(name)
        assert all(value.source for value in catalogue.accelerator_values(part)), name
        json.dumps(catalogue.accelerator_details(part), allow_nan=False)


def test_marks_are_visible() -> None:
    part = load_accelerator("h100-sxm-80gb")
    assert {v.field for v in catalogue.accelerator_values(part) if v.mark} == part.marks.keys()
    entry = next(e for e in catalogue.accelerator_entries() if e.name == part.name)
    assert entry.num_marks == len(part.marks)
