"""Parameter counts, against independent counts, closed formulas and what the models' makers publish."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardplan.base.errors import InputError
from shardplan.inputs.layers import MLP, Attention, LatentAttention, Layer, MixtureOfExperts
from shardplan.inputs.model import ModelConfig, PatchEmbedding
from shardplan.inputs.readers.catalog import list_models, load_model
from shardplan.inputs.readers.hf.config import model_from_config
from shardplan.inputs.readers.names import MODELS, ModelSource, model_sources
from shardplan.inputs.recurrent import LinearAttention, StateSpace

FEW = st.integers(1, 12)
SIZE = st.integers(1, 4096)


@pytest.mark.parametrize("source", model_sources().values(), ids=model_sources())
def test_counts_of_every_built_in_model_equal_the_index(source: ModelSource) -> None:
    # counted on the modules of transformers 5.23 (meta device), qwen3.5-35b-a3b on the shapes of its weights:
    # independent of the formulas of this project
    model = load_model(source.name)
    assert model.num_parameters == source.num_parameters
    assert model.num_active_parameters == source.num_active_parameters
    assert model.is_moe == (source.num_active_parameters < source.num_parameters)


def test_the_index_lists_every_built_in_model_with_its_source() -> None:
    assert sorted(model_sources()) == list_models() == sorted(path.stem for path in MODELS.glob("*.json"))
    assert len(model_sources()) == 52
    assert [source.name for source in model_sources().values() if not source.source] == []


def test_dimensions_from_memory_are_marked_and_said_with_every_use() -> None:
    marked = {name: source.mark for name, source in model_sources().items() if source.mark}
    assert sorted(marked) == ["glm-4.5", "gpt2-xl", "vit-h-14", "vit-l-16"]
    for name, mark in marked.items():
        assert "from memory" in mark
        assert f"dimensions {mark}" in load_model(name).notes
    assert load_model("llama-3.1-70b").notes == ()


@pytest.mark.parametrize(
    ("name", "published", "active"),
    [
        ("gpt-neox-20b", 20_554_567_680, None),  # arXiv 2204.06745, section 2
        ("llama-3.1-405b", 405e9, None),  # arXiv 2407.21783
        ("mixtral-8x7b", 46.7e9, 12.9e9),  # mistral.ai, "Mixtral of experts", 2023
        ("mixtral-8x22b", 141e9, 39e9),  # mistral.ai, "Cheaper, better, faster, stronger", 2024
        ("qwen2.5-72b", 72.7e9, None),  # model card
        ("qwen3-30b-a3b", 30.5e9, 3.3e9),  # model card
        ("qwen3.5-35b-a3b", 35e9, None),  # its name, with the vision encoder
        ("deepseek-v2", 236e9, 21e9),  # arXiv 2405.04434
        ("deepseek-v2-lite", 15.7e9, None),  # arXiv 2405.04434, appendix B
        ("deepseek-v3", 671e9, 37e9),  # arXiv 2412.19437
        ("kimi-k2", 1.04e12, None),  # arXiv 2507.20534, table 2
        ("gpt-oss-120b", 116.83e9, None),  # arXiv 2508.10925, table 1
        ("gpt-oss-20b", 20.91e9, None),  # arXiv 2508.10925, table 1
        ("megatron-530b", 530e9, None),  # arXiv 2201.11990
        ("nemotron-3-nano-30b-a3b", 31.6e9, None),  # model card
        ("vit-b-16", 86e6, None),  # arXiv 2010.11929, table 1
        ("vit-l-16", 307e6, None),  # arXiv 2010.11929, table 1
        ("vit-h-14", 632e6, None),  # arXiv 2010.11929, table 1
        ("llama-4-maverick", None, 17e9),  # model card
    ],
)
def test_published_parameter_counts(name: str, published: float | None, active: float | None) -> None:
    model = load_model(name)
    if published is not None:
        assert model.num_parameters == pytest.approx(published, rel=0.015)
    if active is not None:
        assert model.num_active_parameters == pytest.approx(active, rel=0.02)


@pytest.mark.parametrize(("name", "published"), [("gpt-oss-120b", 5.13e9), ("gpt-oss-20b", 3.61e9)])
def test_published_active_counts_without_the_input_table(name: str, published: float) -> None:
    # arXiv 2508.10925, table 1: unembedding counted, embedding not
    assert load_model(name).num_active_parameters_without_input_embedding == pytest.approx(published, rel=1e-3)


def test_published_count_without_embeddings() -> None:
    # Qwen3-30B-A3B model card: 29.9 B without embeddings
    model = load_model("qwen3-30b-a3b")
    total = model.num_parameters - 2 * model.num_embedding_parameters
    assert total == pytest.approx(29.9e9, rel=1e-3)


def test_published_count_of_the_prediction_block() -> None:
    # weights of DeepSeek-V3 as published: 11.5 B of their own, beside the shared embedding and head of 0.9 B each
    model = load_model("deepseek-v3")
    assert model.num_mtp_parameters == pytest.approx(11.5e9, rel=0.01)
    assert model.num_embedding_parameters == pytest.approx(0.9e9, rel=0.05)


@pytest.mark.parametrize(
    ("billions", "hidden_size", "num_layers", "num_heads"),
    [  # arXiv 2104.04473, table 1
        (1.7, 2304, 24, 24),
        (3.6, 3072, 30, 32),
        (7.5, 4096, 36, 32),
        (18.4, 6144, 40, 48),
        (39.1, 8192, 48, 64),
        (76.1, 10240, 60, 80),
        (145.6, 12288, 80, 96),
        (310.1, 16384, 96, 128),
        (529.6, 20480, 105, 128),
        (1008.0, 25600, 128, 160),
    ],
)
def test_megatron_gpt_counts(billions: float, hidden_size: int, num_layers: int, num_heads: int) -> None:
    model = model_from_config(
        {
            "model_type": "gpt2",
            "n_embd": hidden_size,
            "n_layer": num_layers,
            "n_head": num_heads,
            "n_positions": 2048,
            "vocab_size": 51200,
        },
        name="gpt",
    )
    h, l, v, s = hidden_size, num_layers, 51200, 2048  # noqa: E741 - the letters of the paper
    by_equation_2 = 12 * l * h**2 * (1 + 13 / (12 * h) + (v + s) / (12 * l * h))
    assert model.num_parameters - 2 * h == pytest.approx(by_equation_2, rel=1e-12)  # it leaves out the final norm
    # the table rounds 1.652 B to 1.7 B
    assert model.num_parameters == pytest.approx(billions * 1e9, abs=0.06e9)


@given(h=FEW, n=FEW, d=SIZE, f=SIZE, layers=FEW, vocab=SIZE, group=FEW, tied=st.booleans())
def test_llama_count(*, h: int, n: int, d: int, f: int, layers: int, vocab: int, group: int, tied: bool) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": h,
        "num_attention_heads": n * group,
        "num_key_value_heads": n,
        "head_dim": d,
        "intermediate_size": f,
        "num_hidden_layers": layers,
        "vocab_size": vocab,
        "max_position_embeddings": 1,
        "tie_word_embeddings": tied,
    }
    matrices = [(h, n * group * d), (h, n * d), (h, n * d), (n * group * d, h), (h, f), (h, f), (f, h)]
    expected = layers * (sum(a * b for a, b in matrices) + 2 * h) + h + vocab * h * (1 if tied else 2)
    assert model_from_config(config, name="x").num_parameters == expected


@given(n=FEW, d=SIZE, layers=FEW, vocab=SIZE, positions=SIZE)
def test_gpt2_count(n: int, d: int, layers: int, vocab: int, positions: int) -> None:
    h = n * d
    config = {"n_embd": h, "n_head": n, "n_layer": layers, "n_positions": positions, "vocab_size": vocab}
    linears = [(h, 3 * h), (h, h), (h, 4 * h), (4 * h, h)]
    norm = 2 * h
    expected = (vocab + positions) * h + layers * (sum((a + 1) * b for a, b in linears) + 2 * norm) + norm
    assert model_from_config({"model_type": "gpt2", **config}, name="x").num_parameters == expected


@given(h=SIZE, f=SIZE, experts=FEW, idle=FEW, layers=FEW)
def test_mixtral_count(h: int, f: int, experts: int, idle: int, layers: int) -> None:
    config = {
        "model_type": "mixtral",
        "hidden_size": h,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "intermediate_size": f,
        "num_local_experts": experts + idle,
        "num_experts_per_tok": experts,
        "num_hidden_layers": layers,
        "vocab_size": 10,
        "max_position_embeddings": 1,
    }
    model = model_from_config(config, name="x")
    shared = h * 8 * (4 + 2 + 2 + 4) + h * (experts + idle) + 2 * h
    assert model.num_parameters == 20 * h + h + layers * (shared + (experts + idle) * 3 * h * f)
    assert model.num_parameters - model.num_active_parameters == layers * idle * 3 * h * f


def test_layers_are_kept_in_order_as_distinct_kinds_and_a_pattern() -> None:
    model = load_model("deepseek-v3")
    assert len(model.layer_kinds) == 2
    assert model.layer_pattern == (0,) * 3 + (1,) * 58
    assert [model.layer_kinds[i] for i in model.layer_pattern] == list(model.layers)


def test_a_vision_transformer_has_no_vocabulary_and_no_causal_mask() -> None:
    model = load_model("vit-l-16")
    assert (model.vocab_size, model.causal, model.num_labels) == (0, False, 1000)
    assert model.max_position_embeddings == (224 // 16) ** 2 + 1  # patches and the class token
    assert all(isinstance(layer.mixer, Attention) and not layer.mixer.causal for layer in model.layers)


def _model(**fields: object) -> ModelConfig:
    layer = Layer(mixer=None, mlp=MLP(intermediate_size=8, gated=True), num_norms=1)
    defaults = {
        "name": "x",
        "model_type": "llama",
        "hidden_size": 4,
        "layers": (layer,),
        "vocab_size": 10,
        "tie_word_embeddings": False,
        "norm_bias": False,
        "max_position_embeddings": 16,
    }
    return ModelConfig(**{**defaults, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fields",
    [
        *({"hidden_size": value} for value in (0, -4, 4.0, True, 10**12, "4")),
        *(
            {"max_position_embeddings": 0},
            {"vocab_size": -1},
            {"vocab_size": 0},
            {"layers": ()},
            {"num_mtp_layers": -1},
        ),
    ],
)
def test_a_model_of_impossible_size_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(InputError) as caught:
        _model(**fields)
    assert caught.value.rule
    assert caught.value.hint


LATENT = {"num_heads": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8}
STATE_SPACE = {"num_heads": 8, "head_dim": 8, "state_size": 8, "conv_kernel": 4, "chunk_size": 8, "conv_bias": True,
               "proj_bias": False}  # fmt: skip


@pytest.mark.parametrize(
    ("part", "fields", "says"),
    [
        (Attention, {"num_heads": 64, "num_kv_heads": 7, "head_dim": 128}, "64 query heads cannot share 7 key-value"),
        (Attention, {"num_heads": 8, "num_kv_heads": 8, "head_dim": 128, "window": 0}, "window is 0"),
        (LatentAttention, LATENT | {"q_lora_rank": None, "index_topk": 4}, "q_lora_rank is None"),
        (StateSpace, STATE_SPACE | {"num_groups": 3}, "8 state-space heads do not divide into 3 groups"),
        (
            LinearAttention,
            {"num_key_heads": 3, "num_value_heads": 4, "key_head_dim": 8, "value_head_dim": 8, "conv_kernel": 4},
            "4 value heads cannot share 3 key heads",
        ),
        (MLP, {"intermediate_size": 0, "gated": True}, "intermediate_size is 0"),
        (
            MixtureOfExperts,
            {"num_experts": 4, "top_k": 5, "intermediate_size": 8, "gated": True},
            "a token cannot visit 5 of 4 experts",
        ),
        (LatentAttention, LATENT | {"q_lora_rank": 8, "index_topk": 2, "index_num_heads": 2}, "index_head_dim is 0"),
        (Layer, {"mixer": None, "mlp": None, "num_norms": 1}, "neither mixer nor mlp"),
        (Layer, {"mixer": None, "mlp": MLP(intermediate_size=8, gated=True), "num_norms": 10**7}, "num_norms is 1000"),
        (PatchEmbedding, {"image_size": 8, "patch_size": 16, "num_channels": 3}, "patches of 16 pixels"),
    ],
)
def test_parts_that_contradict_themselves_are_refused(part: type, fields: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        part(**fields)
    assert caught.value.rule
    assert caught.value.hint
