"""Kinds of layers of models whose papers name them."""

from __future__ import annotations

import pytest

from shardplan import load_model
from shardplan.physics.frameworks.stage_layers import LAYER_KINDS, layer_kinds, recurrent_share


@pytest.mark.parametrize(("model", "kinds"), [
    ("llama-3.1-8b", ("attention",)),
    ("gemma-2-9b", ("attention", "sliding-window")),
    ("gpt-oss-20b", ("attention", "sliding-window", "attention-sinks", "experts")),
    ("deepseek-v3", ("latent-attention", "experts", "multi-token-prediction")),
    ("glm-5", ("sparse-attention", "experts", "multi-token-prediction")),
    ("nemotron-h-56b", ("attention", "mamba-2")),
])  # fmt: skip
def test_kinds_of_layers(model: str, kinds: tuple[str, ...]) -> None:
    assert layer_kinds(load_model(model)) == kinds
    assert set(kinds) <= set(LAYER_KINDS)


def test_nemotron_h_has_attention_in_ten_of_its_layers() -> None:
    """Nemotron-H-56B: 118 layers, of which 54 are Mamba-2 and 10 attention (arXiv 2504.03624, table 1)."""
    assert recurrent_share(load_model("nemotron-h-56b")) == pytest.approx(54 / 64)
    assert recurrent_share(load_model("llama-3.1-8b")) == 0
