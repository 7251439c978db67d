"""What configurations of the Hugging Face families mean, field by field, against published models."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from shardplan.base.errors import InputError
from shardplan.inputs.layers import MLP, Attention, LatentAttention, MixtureOfExperts
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.readers.catalog import load_model
from shardplan.inputs.readers.hf.config import _ARCHITECTURES, FAMILIES, model_from_config
from shardplan.inputs.readers.hf.refusals import UNSUPPORTED
from shardplan.inputs.readers.names import MODELS
from shardplan.inputs.recurrent import LinearAttention, StateSpace

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "vocab_size": 100,
    "max_position_embeddings": 32,
}
MOE = {**LLAMA, "num_key_value_heads": 4, "moe_intermediate_size": 16, "num_experts_per_tok": 2}


def read(config: Mapping[str, object], /, **fields: object) -> ModelConfig:
    return model_from_config({**config, **fields}, name="x")


def shipped(name: str, **fields: object) -> dict[str, Any]:
    return {**json.loads((MODELS / f"{name}.json").read_text(encoding="utf-8")), **fields}


def attentions(model: ModelConfig) -> list[Attention]:
    return [layer.mixer for layer in model.layers if isinstance(layer.mixer, Attention)]


def moe_layers(model: ModelConfig) -> list[int]:
    return [i for i, layer in enumerate(model.layers) if isinstance(layer.mlp, MixtureOfExperts)]


def experts(model: ModelConfig) -> MixtureOfExperts:
    return next(layer.mlp for layer in model.layers if isinstance(layer.mlp, MixtureOfExperts))


def test_gpt2_spells_its_dimensions_its_own_way() -> None:
    model = read(shipped("gpt2"))
    assert (model.hidden_size, model.num_hidden_layers, model.max_position_embeddings) == (768, 12, 1024)
    assert attentions(model)[0].num_heads == 12
    assert read(shipped("gpt2", n_inner=None)) == model == read(shipped("gpt2", n_inner=4 * 768))


@pytest.mark.parametrize(("name", "heads"), [("gpt2", 12), ("gpt-neox-20b", 64), ("llama-2-7b", 32)])
def test_without_key_value_heads_there_are_as_many_as_query_heads(name: str, heads: int) -> None:
    config = shipped(name)
    config.pop("num_key_value_heads", None)
    assert {mixer.num_kv_heads for mixer in attentions(read(config))} == {heads}


@pytest.mark.parametrize(
    ("name", "head_dim", "even_share"),
    [
        ("qwen3-0.6b", 128, 1024 // 16),
        ("gemma-2-9b", 256, 3584 // 16),
        ("gpt-oss-20b", 64, 2880 // 64),
        ("nemotron-3-nano-30b-a3b", 128, 2688 // 32),
        ("nemotron-h-56b", 128, 8192 // 64),  # spelt attention_head_dim
        ("llama-2-7b", 128, 4096 // 32),  # not in the file
    ],
)
def test_heads_need_not_share_the_hidden_size(name: str, head_dim: int, even_share: int) -> None:
    assert {mixer.head_dim for mixer in attentions(load_model(name))} == {head_dim}
    assert (head_dim == even_share) == (name in ("nemotron-h-56b", "llama-2-7b"))


def test_llama_4_calls_the_width_of_its_experts_intermediate_size() -> None:
    maverick, scout = load_model("llama-4-maverick"), load_model("llama-4-scout")
    assert moe_layers(maverick) == list(range(1, 48, 2))
    assert moe_layers(scout) == list(range(48))
    assert {layer.mlp for layer in maverick.layers if isinstance(layer.mlp, MLP)} == {
        MLP(intermediate_size=16384, gated=True)
    }
    for model, num_experts in ((maverick, 128), (scout, 16)):
        moe = experts(model)
        assert (moe.num_experts, moe.top_k, moe.intermediate_size) == (num_experts, 1, 8192)
        assert moe.shared_intermediate_size == 8192  # always one shared expert, which no field says


def test_llama_4_attends_in_chunks_but_for_every_fourth_layer() -> None:
    chunks = [(mixer.chunk, mixer.rotary) for mixer in attentions(load_model("llama-4-scout"))]
    assert chunks == [(8192, True), (8192, True), (8192, True), (None, False)] * 12


@pytest.mark.parametrize("spelling", ["num_experts", "num_local_experts", "n_routed_experts"])
@pytest.mark.parametrize("family", ["qwen3_moe", "deepseek", "glm4_moe"])
def test_spellings_of_the_number_of_experts(family: str, spelling: str) -> None:
    assert experts(read(MOE, model_type=family, **{spelling: 6})).num_experts == 6


@pytest.mark.parametrize("spelling", ["num_experts_per_tok", "experts_per_token", "top_k_experts"])
def test_spellings_of_the_experts_that_a_token_visits(spelling: str) -> None:
    config = shipped("gpt-oss-20b")
    del config["num_experts_per_tok"]
    config.pop("experts_per_token", None)
    assert experts(read(config, **{spelling: 4})).top_k == 4


def test_spellings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InputError, match="num_experts_per_tok is 4 and experts_per_token is 5"):
        read(shipped("gpt-oss-20b", experts_per_token=5))


def test_shared_experts_by_number_and_by_width() -> None:
    assert experts(load_model("deepseek-v2")).shared_intermediate_size == 2 * 1536
    assert experts(load_model("nemotron-3-nano-30b-a3b")).shared_intermediate_size == 3712
    moe = experts(read(QWEN3_NEXT))
    assert (moe.shared_intermediate_size, moe.shared_gate) == (512, True)


@pytest.mark.parametrize(
    ("family", "fields", "expected"),
    [
        ("deepseek", {"first_k_dense_replace": 1}, [1, 2, 3]),
        ("deepseek", {"first_k_dense_replace": 1, "moe_layer_freq": 2}, [2]),
        ("deepseek", {"first_k_dense_replace": 4}, []),
        ("qwen3_moe", {}, [0, 1, 2, 3]),
        ("qwen3_moe", {"decoder_sparse_step": 2}, [1, 3]),
        ("qwen3_moe", {"decoder_sparse_step": 1, "mlp_only_layers": [0, 2]}, [1, 3]),
        ("glm4_moe", {}, [1, 2, 3]),
        ("glm4_moe", {"mlp_layer_types": ["dense", "dense", "sparse", "dense"]}, [2]),
    ],
)
def test_which_layers_have_experts(family: str, fields: dict[str, object], expected: list[int]) -> None:
    assert moe_layers(read(MOE, model_type=family, num_experts=4, **fields)) == expected


def test_letters_and_words_of_a_hybrid_pattern_mean_the_same() -> None:
    letters = shipped("nemotron-3-nano-30b-a3b")
    words = {"M": "mamba", "*": "attention", "E": "moe"}
    spelt = {k: v for k, v in letters.items() if k != "hybrid_override_pattern"}
    pattern = [words[letter] for letter in letters["hybrid_override_pattern"]]
    assert read(spelt, layers_block_type=pattern) == read(letters)
    assert moe_layers(read(letters))[:3] == [1, 3, 6]


def test_nemotron_h_counts_mamba_attention_and_mlp_layers() -> None:
    # arXiv 2504.03624, table 1: 118 layers, 54 Mamba-2, 10 attention and 54 MLP
    model = load_model("nemotron-h-56b")
    mixers = [type(layer.mixer).__name__ for layer in model.layers]
    assert [mixers.count(name) for name in ("StateSpace", "Attention", "NoneType")] == [54, 10, 54]
    mamba = next(layer.mixer for layer in model.layers if isinstance(layer.mixer, StateSpace))
    assert (mamba.num_heads, mamba.head_dim, mamba.state_size, mamba.num_groups) == (256, 64, 256, 8)


def test_latent_attention_with_and_without_a_query_rank() -> None:
    # arXiv 2412.19437, section 4.2: 128 heads of 128 channels, ranks 1536 and 512, 64 rotary channels
    mixer = load_model("deepseek-v3").layers[0].mixer
    assert isinstance(mixer, LatentAttention)
    down, up = 7168 * (1536 + 512 + 64), 1536 * 128 * (128 + 64) + 512 * 128 * (128 + 128)
    assert mixer.num_parameters(7168) == down + up + 128 * 128 * 7168 + 1536 + 512
    lite = load_model("deepseek-v2-lite").layers[0].mixer
    assert isinstance(lite, LatentAttention)
    assert lite.q_lora_rank is None
    with pytest.raises(InputError, match="q_lora_rank is missing"):
        read({k: v for k, v in shipped("deepseek-v2-lite").items() if k != "q_lora_rank"})


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("deepseek-v2", (8, 3)),  # arXiv 2405.04434, section 2.2.2: at most 3 of 8 devices
        ("deepseek-v2-lite", (1, 1)),  # greedy routing
        ("deepseek-v3", (8, 4)),  # arXiv 2412.19437, section 4.2: at most 4 nodes
        ("kimi-k2", (1, 1)),  # arXiv 2507.20534, section 2.3: no groups
        ("glm-4.5", (1, 1)),
        ("glm-5", (1, 1)),
        ("mixtral-8x7b", (1, 1)),
        ("nemotron-3-nano-30b-a3b", (1, 1)),
    ],
)
def test_groups_that_limit_routing(name: str, groups: tuple[int, int]) -> None:
    routed = next(layer.mlp for layer in load_model(name).layers if isinstance(layer.mlp, MixtureOfExperts))
    assert (routed.n_group, routed.topk_group) == groups


def test_groups_that_a_file_leaves_out_are_those_of_the_family() -> None:
    bare = {k: v for k, v in shipped("deepseek-v3").items() if k not in ("n_group", "topk_group")}
    assert read(bare).layers == load_model("deepseek-v3").layers
    ungrouped = read(bare, n_group=None, topk_group=None).layers[-1].mlp
    assert isinstance(ungrouped, MixtureOfExperts)
    assert (ungrouped.n_group, ungrouped.topk_group) == (1, 1)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"n_group": 7}, "n_group divides the number of experts"),
        ({"topk_group": 9}, "topk_group is at most n_group"),
        ({"n_group": 128, "topk_group": 3}, "hold at least top_k experts"),
        ({"n_group": 0}, "n_group"),
        ({"topk_group": "four"}, "topk_group"),
    ],
)
def test_groups_that_cannot_be(changes: dict[str, object], said: str) -> None:
    with pytest.raises(InputError) as caught:
        read(shipped("deepseek-v3"), **changes)
    assert said in f"{caught.value.message} {caught.value.rule}"


def test_sparse_attention_has_an_indexer() -> None:
    mixer = load_model("glm-5").layers[0].mixer
    assert isinstance(mixer, LatentAttention)
    assert (mixer.index_topk, mixer.index_num_heads, mixer.index_head_dim) == (2048, 32, 128)


@pytest.mark.parametrize(
    ("name", "windows"),
    [
        ("gpt-oss-120b", [128, None] * 18),
        ("gemma-2-9b", [4096, None] * 21),
        ("gemma-3-27b-text", ([1024] * 5 + [None]) * 10 + [1024] * 2),
        ("mistral-7b", [4096] * 32),
        ("qwen2.5-7b", [None] * 28),
    ],
)
def test_which_layers_attend_within_a_window(name: str, windows: list[int | None]) -> None:
    assert [mixer.window for mixer in attentions(load_model(name))] == windows


def test_other_ways_to_say_which_layers_slide() -> None:
    gemma = shipped("gemma-3-4b-text")
    pattern = gemma.pop("sliding_window_pattern")
    assert read(gemma) == read(gemma, _sliding_window_pattern=pattern) == load_model_as_x("gemma-3-4b-text")
    listed = ["full_attention"] + ["sliding_attention"] * 33
    assert [mixer.window for mixer in attentions(read(gemma, layer_types=listed))] == [None] + [1024] * 33
    assert {mixer.window for mixer in attentions(read(shipped("mistral-7b", sliding_window=None)))} == {None}
    qwen = shipped("qwen2.5-7b", use_sliding_window=True, sliding_window=512, max_window_layers=26)
    assert [mixer.window for mixer in attentions(read(qwen))] == [None] * 26 + [512] * 2


def load_model_as_x(name: str) -> ModelConfig:
    return read(shipped(name))


QWEN3_NEXT = {
    "model_type": "qwen3_next",
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "max_position_embeddings": 262144,
    "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "num_experts": 512,
    "num_experts_per_tok": 10,
}


def test_linear_attention_but_for_every_fourth_layer() -> None:
    model = read(QWEN3_NEXT)
    linear = [isinstance(layer.mixer, LinearAttention) for layer in model.layers]
    assert linear == [True, True, True, False] * 12
    assert {mixer.output_gate for mixer in attentions(model)} == {True}
    assert model.num_parameters == pytest.approx(80e9, rel=0.01)  # named after it: Qwen3-Next-80B-A3B


@pytest.mark.parametrize("spelling", ["num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers"])
def test_prediction_blocks_are_said_and_not_counted(spelling: str) -> None:
    config = {k: v for k, v in shipped("deepseek-v3").items() if k != "num_nextn_predict_layers"}
    model = read(config, **{spelling: 2})
    assert model.num_mtp_layers == 2
    assert model.num_parameters == load_model("deepseek-v3").num_parameters
    assert any("2 multi-token-prediction blocks are" in note for note in model.notes)
    assert load_model("kimi-k2").num_mtp_layers == 0
    assert load_model("minimax-m2.5").num_mtp_layers == 3


def test_what_families_do_that_no_field_says() -> None:
    assert load_model("gpt2").tie_word_embeddings
    assert load_model("gemma-3-27b-text").tie_word_embeddings
    assert not read(LLAMA).tie_word_embeddings
    qwen2 = attentions(load_model("qwen2.5-7b"))[0]
    assert (qwen2.qkv_bias, qwen2.output_bias) == (True, False)
    assert {attentions(load_model(name))[0].qk_norm for name in ("qwen3-8b", "gemma-3-27b-text")} == {"head"}


def test_biases_that_a_field_asks_for() -> None:
    plain = read(LLAMA)
    assert read(LLAMA, attention_bias=True).num_parameters - plain.num_parameters == 4 * 4 * 64
    assert read(LLAMA, mlp_bias=True).num_parameters - plain.num_parameters == 4 * (2 * 160 + 64)


def test_rotary_and_dtype_fields_change_nothing_here() -> None:
    newer = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}, "dtype": "bfloat16"}
    older = {"rope_theta": 1e6, "rope_scaling": None, "torch_dtype": "float16", "partial_rotary_factor": 0.5}
    assert read(LLAMA, **newer) == read(LLAMA, **older) == read(LLAMA)


def test_quantised_weights_are_ignored_and_said() -> None:
    model = read(LLAMA, quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]})
    assert model.num_parameters == read(LLAMA).num_parameters
    assert [note for note in model.notes if "quantization_config (fp8) is ignored" in note]


def test_the_text_model_of_a_multimodal_file() -> None:
    scout = shipped("llama-4-scout")
    model = read({"model_type": "llama4", "text_config": scout, "vision_config": {"hidden_size": 1408}})
    assert model.num_parameters == load_model("llama-4-scout").num_parameters
    assert any("text model of a multimodal file" in note for note in model.notes)
    unnamed = {k: v for k, v in scout.items() if k != "model_type"}
    assert read({"model_type": "llama4", "text_config": unnamed}).layers == model.layers


def test_a_multimodal_file_states_only_what_differs_from_the_class() -> None:
    # the published gemma-3-4b-pt gives six fields of its text model; the others are defaults of the class
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}
    model = read({"model_type": "gemma3", "text_config": {**text, "sliding_window": 1024}})
    assert model.num_parameters == load_model("gemma-3-4b-text").num_parameters
    assert any("num_attention_heads 8" in note for note in model.notes)


def test_kimi_says_its_own_model_type() -> None:
    config = shipped("kimi-k2")
    assert (config["model_type"], config["architectures"]) == ("kimi_k2", ["DeepseekV3ForCausalLM"])
    renamed = read(config, model_type="moonshot")  # unknown: its class decides
    assert renamed.layers == read(config).layers
    assert any("read as deepseek_v3, the family of its class DeepseekV3ForCausalLM" in note for note in renamed.notes)


@pytest.mark.parametrize(
    ("fields", "total", "active"),
    [  # model cards of Gemma 4
        ({"hidden_size": 5376, "num_hidden_layers": 60, "num_attention_heads": 32, "num_key_value_heads": 16,
          "num_global_key_value_heads": 4, "intermediate_size": 21504}, 30.7e9, 30.7e9),
        ({"hidden_size": 2816, "num_hidden_layers": 30, "num_attention_heads": 16, "num_key_value_heads": 8,
          "num_global_key_value_heads": 2, "intermediate_size": 2112, "enable_moe_block": True, "num_experts": 128,
          "top_k_experts": 8, "moe_intermediate_size": 704}, 25.2e9, 3.8e9),
    ],
    ids=["31b", "26b-a4b"],
)  # fmt: skip
def test_gemma_4(fields: dict[str, object], total: float, active: float) -> None:
    common = {
        "model_type": "gemma4_text",
        "head_dim": 256,
        "vocab_size": 262144,
        "max_position_embeddings": 262144,
        "hidden_size_per_layer_input": 0,
        "sliding_window": 1024,
        "use_bidirectional_attention": "vision",
    }
    model = read(common, global_head_dim=512, attention_k_eq_v=True, **fields)
    assert model.num_parameters == pytest.approx(total, rel=2e-3)
    assert model.num_active_parameters == pytest.approx(active, rel=1e-2)
    every_sixth = {str(i): {"head_dim": 512, "num_key_value_heads": fields["num_global_key_value_heads"]}
                   for i in range(5, model.num_hidden_layers, 6)}  # fmt: skip
    assert read(common, per_layer_config=every_sixth, attention_k_eq_v=True, **fields).layers == model.layers
    with pytest.raises(InputError, match="inputs of their own"):
        read(common, **fields, hidden_size_per_layer_input=256)


def test_encoders_see_all_tokens() -> None:
    # arXiv 1810.04805: 110 M; counted with the masked-language head by transformers: 109,514,298
    bert = read({"model_type": "bert", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
                 "intermediate_size": 3072, "vocab_size": 30522, "max_position_embeddings": 512})  # fmt: skip
    assert bert.num_parameters == 109_514_298
    assert not bert.causal
    assert not any(mixer.causal for mixer in attentions(bert))


def test_bloom() -> None:
    # model card of BLOOM: 176,247,271,424 parameters, of which 3,596,615,680 embeddings
    bloom = read({"model_type": "bloom", "hidden_size": 14336, "n_layer": 70, "n_head": 112, "vocab_size": 250880})
    assert (bloom.num_parameters, bloom.num_embedding_parameters) == (176_247_271_424, 3_596_615_680)
    assert not any(mixer.rotary for mixer in attentions(bloom))


@pytest.mark.parametrize("given", ["lama", "deepseek_v33", "hunyuan_v2_moe", "olmo_hybrid", "bambam", "minimax_m9", ""])
def test_no_other_family_is_guessed(given: str) -> None:
    with pytest.raises(InputError, match=f"model_type '{given}' is not known") as caught:
        read(LLAMA, model_type=given)
    assert "did you mean" not in str(caught.value)
    assert not any(f" {family} " in f"{caught.value.hint} " for family in FAMILIES)


@pytest.mark.parametrize(("given", "meant"), [("Qwen3", "qwen3"), ("falcon-h1", "falcon_h1"), ("Grok-1", "grok-1")])
def test_another_spelling_of_a_family_is_said(given: str, meant: str) -> None:
    with pytest.raises(InputError) as caught:
        read(LLAMA, model_type=given)
    assert caught.value.hint == f"write it '{meant}'"


def test_a_file_is_read_as_the_family_of_its_class_if_all_shapes_are_understood() -> None:
    own = {**LLAMA, "model_type": "mine", "architectures": ["LlamaForCausalLM"]}
    assert read(own).layers == read(LLAMA).layers
    assert set(_ARCHITECTURES.values()) <= set(FAMILIES)
    with pytest.raises(InputError, match="num_experts is 8, which llama models are not read with"):
        read(own, num_experts=8)


@pytest.mark.parametrize(
    ("family", "fields"),
    [
        ("llama", {"num_experts": 8}),
        ("llama", {"n_routed_experts": 64}),
        ("llama", {"sliding_window": 4096}),
        ("llama", {"layer_types": ["full_attention", "sliding_attention"] * 2}),
        ("llama", {"mamba_d_state": 128}),
        ("llama", {"mamba_d_head": "auto"}),
        ("llama", {"kv_lora_rank": 512}),
        ("llama", {"attn_layer_indices": [1]}),
        ("llama", {"use_qk_norm": True}),
        ("llama", {"linear_attn_config": {"num_heads": 4}}),
        ("llama", {"num_memory_tokens": 4}),
        ("llama", {"mlp_ratio": 3.5}),
        ("llama", {"ffn_bias": True}),
        ("mixtral", {"n_shared_experts": 2, "num_local_experts": 4, "num_experts_per_tok": 2}),
        ("qwen3", {"num_experts": 8}),
        ("gpt_neox", {"num_key_value_heads": 4}),
        ("modernbert", {"num_register_tokens": 4}),
    ],
)
def test_unread_fields_that_bear_a_shape_are_refused_by_name(family: str, fields: dict[str, object]) -> None:
    base = {**LLAMA, "num_key_value_heads": 8}
    with pytest.raises(InputError, match=next(iter(fields))) as caught:
        read(base, model_type=family, **fields)
    assert caught.value.hint


@pytest.mark.parametrize(
    "fields",
    [
        {"num_experts": 0, "n_routed_experts": None, "sliding_window": None, "use_qk_norm": False, "moe_layers": []},
        {"layer_types": ["full_attention"] * 4, "num_labels": 2, "num_beams": 1, "chunk_size_feed_forward": 0},
        {"rope_scaling": {"factor": 8.0}, "rms_norm_eps": 1e-5, "bos_token_id": 1, "ep_size": 1, "pretraining_tp": 1},
        {"auto_map": {"AutoConfig": "x.Y"}, "task_specific_params": {"a": 1}, "vision_config": {"hidden_size": 8}},
        {
            "attention_dropout": 0.1,
            "initializer_range": 0.02,
            "n_ctx": 32,
            "num_return_sequences": 1,
            "use_cache": True,
        },
    ],
)
def test_fields_without_a_shape_and_shapes_of_nothing_are_left_alone(fields: dict[str, object]) -> None:
    assert read(LLAMA, **fields).layers == read(LLAMA).layers


@pytest.mark.parametrize("family", UNSUPPORTED)
def test_families_without_a_cost_model_are_refused_with_the_reason(family: str) -> None:
    assert family not in FAMILIES
    with pytest.raises(InputError, match=f"model_type '{family}' is not supported") as caught:
        read(LLAMA, model_type=family)
    assert UNSUPPORTED[family] in caught.value.message


@pytest.mark.parametrize(
    "fields",
    [
        {"o_lora_rank": 1024},
        {"compress_ratios": [4, 128]},
        {"is_encoder_decoder": True},
        {"per_layer_config": {"0": {"head_dim": 8}}},
    ],
)
def test_fields_that_make_other_layers_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(InputError, match=next(iter(fields))) as caught:
        read(LLAMA, **fields)
    assert caught.value.rule == "the architecture is supported"
    assert caught.value.hint
