"""Lists and details of the catalogue."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from shardplan.answers import catalogue
from shardplan.answers.document import AnswerDocument, RowTable
from shardplan.estimation.charge import model_flops_per_token
from shardplan.inputs.readers.catalog import (
    list_accelerators,
    list_clusters,
    list_models,
    load_accelerator,
    load_cluster,
    load_model,
)
from shardplan.render.record import document_record
from shardplan.reports.model_record import DERIVED, model_from_record


@pytest.mark.parametrize(
    ("document", "names"),
    [
        (catalogue.models_document, list_models),
        (catalogue.clusters_document, list_clusters),
        (catalogue.accelerators_document, list_accelerators),
    ],
)
def test_the_lists_are_complete_and_plain(
    document: Callable[[], AnswerDocument], names: Callable[[], list[str]]
) -> None:
    record = document_record(document())
    assert [row["name"] for row in record[document().name]] == names()
    json.dumps(record, allow_nan=False)


def test_rows_carry_units() -> None:
    rows = document_record(catalogue.accelerators_document())["accelerators"]
    row = next(each for each in rows if each["name"] == "h100-sxm-80gb")
    assert row["memory_bandwidth_bytes_per_s"] == pytest.approx(3.35e12)
    assert row["peak_flops_bf16_per_s"] == pytest.approx(989e12)
    assert row["num_marks"] == len(load_accelerator("h100-sxm-80gb").marks)


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
        ("gpt-oss-120b", "sliding window", "128 in 18 of 36 layers"),
        ("gemma-3-27b-text", "sliding window", "1,024 in 52 of 62 layers"),
        ("mistral-7b", "sliding window", "4,096"),
    ],
)
def test_windows_say_in_which_layers(name: str, field: str, shown: object) -> None:
    assert dict(catalogue.model_values(catalogue.model_details(name)))[field] == shown


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


@pytest.mark.parametrize(
    "document",
    [
        *(catalogue.cluster_document(load_cluster(name)) for name in list_clusters()),
        *(catalogue.accelerator_document(load_accelerator(name)) for name in list_accelerators()),
    ],
    ids=lambda document: document.record()["name"],
)
def test_every_value_of_hardware_has_a_source(document: AnswerDocument) -> None:
    values = next(block for part in document.parts for block in part.blocks if isinstance(block, RowTable)).rows
    assert all(value.source for value in values)
    json.dumps(document_record(document), allow_nan=False)


def test_marks_are_visible() -> None:
    part = load_accelerator("h100-sxm-80gb")
    table = catalogue.accelerator_document(part).parts[0].blocks[0]
    assert isinstance(table, RowTable)
    assert {value.field for value in table.rows if value.mark} == part.marks.keys()
