"""``shardplan models``, ``clusters`` and ``accelerators``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.commands import answer, run, unwrapped

from shardplan.inputs.readers.catalog import list_accelerators, list_clusters, list_models, load_cluster, load_model
from shardplan.inputs.readers.cluster_record import cluster_from_record

LISTS = {"models": list_models, "clusters": list_clusters, "accelerators": list_accelerators}


@pytest.mark.parametrize("kind", LISTS)
def test_lists_are_complete(kind: str) -> None:
    names = LISTS[kind]()
    text = run(kind).stdout
    assert [name for name in names if name not in text] == []
    assert [row["name"] for row in answer(kind)[kind]] == names


def test_a_model_has_its_counts_and_dimensions() -> None:
    record = answer("models", "llama-3.1-70b")
    assert record["num_parameters"] == 70553706496
    assert record["num_active_parameters"] == 70553706496
    assert record["num_hidden_layers"] == 80
    assert record["num_attention_heads"] == 64
    assert record["num_key_value_heads"] == 8
    assert record["intermediate_size"] == 28672
    assert record["vocab_size"] == 128256
    assert record["sequence_length"] == 8192
    text = run("models", "llama-3.1-70b").stdout
    assert "70,553,706,496" in text


def test_flop_per_token_follow_the_sequence_length() -> None:
    short, long = (
        answer("models", "llama-3.1-70b", "--sequence-length", n)["model_flops_per_token"] for n in (1024, 65536)
    )
    assert 6 * 69e9 < short < long


def test_a_model_of_ones_own(tmp_path: Path) -> None:
    config = {
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 128,
        "tie_word_embeddings": True,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert answer("models", tmp_path)["num_hidden_layers"] == 3
    assert answer("models", tmp_path / "config.json")["num_parameters"] == load_model(tmp_path).num_parameters


def test_a_cluster_can_be_made_again_from_its_record() -> None:
    record = answer("clusters", "gb200-nvl72")
    del record["schema"]
    assert cluster_from_record(record) == load_cluster("gb200-nvl72")


def test_sources_and_marks_are_visible() -> None:
    text = unwrapped(run("accelerators", "gh200-96gb").stdout)
    assert "medium confidence" in text
    assert "Sources" in text
    assert run("clusters").stdout.count("*") > 10
    record = answer("accelerators", "gh200-96gb")
    assert record["marks"]
    assert record["sources"]
