"""Kinds of launch files that are named and not read, and switches that records write without a value."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.launch.scripts import read

from shardplan.base.errors import InputError
from shardplan.launch.dialects.megatron_core.megatron_options import BARE

pytest.importorskip("tree_sitter_bash")

FLAGSCALE = "system: {tensor_model_parallel_size: 1}\nmodel: {num_layers: 12, hidden_size: 768, micro_batch_size: 2}\n"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("model: {target_model_path: Qwen/Qwen3-8B, draft_model_config: d.json}", "SpecForge"),
        ("off_by_n: 1\ngroup_size: 8\ntrainer: {model: x}", "torchforge"),
        ("loss_functions: [{function: kl}]\nsequence_length: 16384", "DistillKit"),
        ("compute: {gpus: 8}\ncommand: composer train.py", "mcli"),
    ],
)
def test_a_refusal_names_what_was_seen(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(InputError, match=named):
        read(tmp_path, "a.yaml", text)


def test_layers_of_another_kind_under_flagscale_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "rwkv").mkdir()
    assert "layers of another kind" in read(tmp_path / "rwkv", "7b.yaml", FLAGSCALE).missing["model"][0]
    assert "layers of another kind" not in str(read(tmp_path, "7b.yaml", FLAGSCALE).missing.get("model"))


def test_switches_are_those_that_records_write_without_a_value() -> None:
    assert {"moe-paged-stash", "cpu-optimizer", "sequence-parallel"} <= BARE
    assert BARE.isdisjoint({"cpu-offloading-num-layers", "tensor-model-parallel-size"})
