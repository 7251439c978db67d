"""Values that are wrong in any way: refused by name, and never by another exception."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.inputs.readers.hf.manifest import counted

from shardplan.base.errors import InputError, ShardplanError
from shardplan.inputs.readers.hf.config import FAMILIES, model_from_config
from shardplan.inputs.readers.hf.fields import SPELLINGS, shown
from shardplan.inputs.readers.names import MODELS, model_sources

CONFIG: Mapping[str, object] = {
    "model_type": "qwen3_moe",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "moe_intermediate_size": 16,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "vocab_size": 100,
    "max_position_embeddings": 32,
    "tie_word_embeddings": False,
}
COUNTS = [key for key, value in CONFIG.items() if type(value) is int]
REQUIRED = [key for key in COUNTS if key != "head_dim"]  # it has a default

SHIPPED: list[dict[str, Any]] = [
    json.loads((MODELS / f"{name}.json").read_text(encoding="utf-8")) for name in model_sources()
]
NAMES = sorted({key for config in SHIPPED for key in config} | {name for names in SPELLINGS.values() for name in names})


def refusal(fields: Mapping[str, object], without: str = "") -> InputError:
    config = {key: value for key, value in {**CONFIG, **fields}.items() if key != without}
    with pytest.raises(InputError) as caught:
        model_from_config(config, name="mine")
    assert caught.value.rule
    assert caught.value.hint
    return caught.value


WRONG: Mapping[str, tuple[object, str]] = {
    "zero": (0, "0"),
    "negative": (-1, "-1"),
    "large": (10**10, "10000000000"),
    "huge": (10**60, "1000000000"),
    "endless": (10**5000, "a number of more than 60 digits"),
    "decimal": (64.0, "64.0"),
    "fraction": (1.5, "1.5"),
    "nan": (float("nan"), "nan"),
    "infinity": (float("inf"), "inf"),
    "minus infinity": (float("-inf"), "-inf"),
    "text": ("64", "'64'"),
    "empty text": ("", "''"),
    "boolean": (True, "True"),
    "list": ([64], "[64]"),
    "endless in a list": ([10**5000], "[a number of more than 60 digits]"),
    "object": ({}, "{}"),
}


@pytest.mark.parametrize("key", COUNTS)
@pytest.mark.parametrize("kind", WRONG)
def test_counts_are_whole_numbers_in_range(key: str, kind: str) -> None:
    value, words = WRONG[kind]
    error = refusal({key: value})
    assert error.message.startswith(f"mine: {key} is ")
    assert words in error.message
    assert error.rule.startswith(f"{key} is a whole number from 1 to ")


@pytest.mark.parametrize("key", REQUIRED)
def test_missing_counts_are_named_with_their_spellings(key: str) -> None:
    error = refusal({}, without=key)
    assert f"{key} is missing" in error.message
    assert all(name in error.hint for name in SPELLINGS.get(key, ()))


@pytest.mark.parametrize("key", [key for key in REQUIRED if key != "num_key_value_heads"])  # null: as many as heads
def test_null_says_nothing(key: str) -> None:
    assert f"{key} is null" in refusal({key: None}).message


@pytest.mark.parametrize("value", ["false", 0, 1, 0.5, [], {}, "yes"])
def test_switches_are_true_or_false(value: object) -> None:
    assert "tie_word_embeddings is " in refusal({"tie_word_embeddings": value}).message


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"num_key_value_heads": 3}, "8 query heads cannot share 3 key-value heads"),
        ({"num_key_value_heads": 16}, "8 query heads cannot share 16 key-value heads"),
        ({"head_dim": None, "num_attention_heads": 12, "hidden_size": 64}, "does not divide into 12 attention heads"),
        ({"num_experts_per_tok": 5}, "a token cannot visit 5 of 4 experts"),
        ({"mlp_only_layers": [2]}, "mlp_only_layers[0] is 2"),
        ({"mlp_only_layers": "0"}, "mlp_only_layers is '0'"),
        ({"layer_types": ["full_attention"]}, "layer_types names 1 layers of 2"),
        ({"layer_types": ["full_attention", "mamba"]}, "layer_types[1] is 'mamba'"),
        ({"layer_types": [["full_attention"]] * 2}, "layer_types[0] is "),
        ({"layer_types": 2}, "layer_types is 2"),
        ({"n_embd": 65}, "hidden_size is 64 and n_embd is 65"),
        ({"model_type": 7}, "model_type is 7"),
        ({"model_type": None}, "model_type is missing"),
        ({"text_config": [1]}, "text_config is [1]"),
        ({"num_hidden_layers": 100_001}, "num_hidden_layers is 100001"),
        (
            {"model_type": "llama4_text", "intermediate_size": 8, "no_rope_layers": [1]},
            "no_rope_layers names 1 layers of 2",
        ),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "MX"}, "letter 2 of hybrid_override_pattern is 'X'"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": ""}, "hybrid_override_pattern has 0 letters"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "*E*"}, "the layer pattern names 3 layers"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": 3}, "hybrid_override_pattern is 3"),
        ({"model_type": "nemotron_h"}, "hybrid_override_pattern is missing"),
        ({"model_type": "mpt", "expansion_ratio": 0.3}, "num_key_value_heads is 4"),
        ({"model_type": "mpt", "num_key_value_heads": 8, "expansion_ratio": 0.3}, "expansion_ratio times d_model"),
        ({"model_type": "vit", "image_size": [8, 16], "patch_size": 4}, "image_size is [8, 16]"),
    ],
)
def test_fields_that_contradict_each_other_are_named(fields: dict[str, object], words: str) -> None:
    assert words in refusal(fields).message


def test_fields_of_a_part_are_named_with_their_place() -> None:
    with pytest.raises(InputError, match=r"mine: text_config\.hidden_size is 0"):
        model_from_config({"model_type": "llava", "text_config": {**CONFIG, "hidden_size": 0}}, name="mine")


def test_messages_stay_short_and_printable() -> None:
    for value in ("x" * 10**6, [0] * 10**5, 10**100_000, [[10**5000]], {"a": {"b": {"c": [1]}}}, "\ud800\x1b[2J"):
        assert len(shown(value)) < 400
        assert shown(value).isprintable()


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 130),
    st.sampled_from([4096, 10**9, 10**12, -(10**30)]),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["M*-E", "full_attention", "sliding_attention", "mamba", *sorted(FAMILIES)]),
    st.lists(st.sampled_from([0, 1, "full_attention", "dense", None]), max_size=4),
)
DOCUMENTS = st.recursive(
    VALUES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=6)
)


def _loads_or_refuses(document: object) -> None:
    try:
        model = model_from_config(document, name="x")
    except ShardplanError as caught:
        refused = caught
    else:
        assert model.num_parameters >= model.num_active_parameters > 0
        assert model.num_mtp_parameters >= 0
        assert len(model.layers) == len(model.layer_pattern)
        return
    assert all((refused.rule, refused.message, refused.hint))


@settings(max_examples=6 * settings().max_examples)
@given(document=DOCUMENTS)
def test_any_document_loads_or_is_refused(document: object) -> None:
    _loads_or_refuses(document)


@settings(max_examples=6 * settings().max_examples)
@given(family=st.sampled_from(sorted(FAMILIES)), fields=st.dictionaries(st.sampled_from(NAMES), VALUES))
def test_any_fields_of_a_family_load_or_are_refused(family: str, fields: dict[str, object]) -> None:
    _loads_or_refuses({**CONFIG, **fields, "model_type": family})


@settings(max_examples=12 * settings().max_examples)
@given(data=st.data())
def test_any_change_of_a_built_in_model_loads_or_is_refused(data: st.DataObject) -> None:
    config = dict(data.draw(st.sampled_from(SHIPPED)))
    for name in data.draw(st.lists(st.sampled_from([*config, *config, *NAMES]), max_size=3)):
        if data.draw(st.integers(0, 5)):
            config[name] = data.draw(VALUES)
        else:
            config.pop(name, None)
    _loads_or_refuses(config)


COUNTED = [row.file for row in counted()]
HUGE = st.sampled_from([0, 1, 3, 10**6, 10**9, 10**10, 10**40, 10**5000, -1, 2.5, float("inf"), float("nan")])
"""Numbers that no model has, and some that one could have."""


@settings(max_examples=8 * settings().max_examples)
@given(data=st.data())
def test_any_change_of_a_model_of_any_family_loads_or_is_refused(data: st.DataObject) -> None:
    """Fields removed, of another type, huge, or of another family: a model or an error that says what to do."""
    config = dict(data.draw(st.sampled_from(COUNTED)))
    for name in data.draw(st.lists(st.sampled_from([*config, *config, *NAMES]), max_size=3)):
        change = data.draw(st.integers(0, 3))
        if change == 0:
            config.pop(name, None)
        else:
            config[name] = data.draw(VALUES if change == 1 else HUGE)
    _loads_or_refuses(config)


@pytest.mark.parametrize("config", COUNTED, ids=[f"{i}-{row['model_type']}" for i, row in enumerate(COUNTED)])
def test_every_field_of_every_family_is_checked(config: Mapping[str, Any]) -> None:
    """One field at a time, absent, null, of each wrong type and huge."""
    for name in config:
        _loads_or_refuses({key: value for key, value in config.items() if key != name})
        for value in (None, True, -1, 0, 10**9, 10**40, 2.5, float("inf"), "auto", [], [1], {}, {"a": [10**5000]}):
            _loads_or_refuses({**config, name: value})


@pytest.mark.parametrize("family", ["llama", "mixtral", "qwen3_moe", "cohere2", "gemma4_unified_text", "llama4_text"])
def test_the_most_layers_are_read_in_time(family: str) -> None:
    _loads_or_refuses({**CONFIG, "model_type": family, "num_hidden_layers": 100_000, "intermediate_size": 8})
