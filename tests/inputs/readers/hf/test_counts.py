"""Exact parameter counts of every family: counted on modules, by hand from published code, and as published."""

from collections.abc import Mapping

import pytest
from tests.inputs.readers.hf.manifest import Counted, counted

from shardplan.base.errors import InputError
from shardplan.inputs.layers import MixtureOfExperts
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.readers.catalog import load_model
from shardplan.inputs.readers.hf.config import FAMILIES, model_from_config

COUNTED = counted()
BY_HAND = {"arctic", "bailing_moe", "deepseek", "deepseek_v4", "glm5_next_text", "grok-1", "solar_open"}
"""Families whose modules were not counted in transformers, counted below."""


def read(config: Mapping[str, object]) -> ModelConfig:
    return model_from_config(config, name="x")


@pytest.mark.parametrize("row", COUNTED, ids=[f"{i}-{row.family}" for i, row in enumerate(COUNTED)])
def test_counts_are_those_of_the_modules(row: Counted) -> None:
    model = read(row.file)
    assert (model.num_parameters, model.num_active_parameters) == (row.total, row.active)


def test_every_family_is_counted() -> None:
    assert {row.family for row in COUNTED} | BY_HAND == set(FAMILIES)
    assert not {row.family for row in COUNTED} & BY_HAND


SMALL = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 160,
    "max_position_embeddings": 128,
}
ATTENTION = 64 * (4 + 2 + 2) * 16 + 4 * 16 * 64


def test_arctic() -> None:
    """Snowflake/snowflake-arctic-base, modeling_arctic.py: experts, and an MLP of the hidden size with a norm."""
    fields = {"model_type": "arctic", "num_local_experts": 6, "num_experts_per_tok": 2, "moe_layer_frequency": 1,
              "use_residual": True, "parallel_attn_mlp_res": True}  # fmt: skip
    layer = ATTENTION + 6 * 3 * 64 * 96 + 64 * 6 + 3 * 64 * 64 + 3 * 64
    ends = 2 * 160 * 64 + 64
    assert read({**SMALL, **fields}).num_parameters == 3 * layer + ends
    dense = ATTENTION + 3 * 64 * 96 + 2 * 64
    assert read({**SMALL, **fields, "moe_layer_frequency": 2}).num_parameters == layer + 2 * dense + ends


def test_bailing_moe() -> None:
    """inclusionAI/Ling-lite, modeling_bailing_moe.py: routed and shared experts of one width behind dense layers."""
    fields = {"model_type": "bailing_moe", "num_experts": 6, "num_experts_per_tok": 2, "num_shared_experts": 2,
              "moe_intermediate_size": 24, "first_k_dense_replace": 1}  # fmt: skip
    routed, dense = 6 * 3 * 64 * 24 + 64 * 6 + 3 * 64 * 48, 3 * 64 * 96
    expected = 3 * (ATTENTION + 2 * 64) + dense + 2 * routed + 2 * 160 * 64 + 64
    assert read({**SMALL, **fields}).num_parameters == expected
    normalised = read({**SMALL, **fields, "use_qk_norm": True, "use_qkv_bias": True})
    assert normalised.num_parameters == expected + 3 * (2 * 16 + (4 + 2 + 2) * 16)


def test_deepseek_moe() -> None:
    """deepseek-ai/deepseek-moe-16b-base, modeling_deepseek.py."""
    fields = {"model_type": "deepseek", "n_routed_experts": 6, "num_experts_per_tok": 2, "n_shared_experts": 2,
              "moe_intermediate_size": 24, "first_k_dense_replace": 1}  # fmt: skip
    routed, dense = 6 * 3 * 64 * 24 + 64 * 6 + 3 * 64 * 48, 3 * 64 * 96
    expected = 3 * (ATTENTION + 2 * 64) + dense + 2 * routed + 2 * 160 * 64 + 64
    assert read({**SMALL, **fields}).num_parameters == expected


V4 = {
    "model_type": "deepseek_v4", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "head_dim": 16,
    "q_lora_rank": 24, "o_lora_rank": 8, "o_groups": 2, "sliding_window": 8, "index_topk": 4, "index_n_heads": 2,
    "index_head_dim": 12, "hc_mult": 4, "n_routed_experts": 6, "num_experts_per_tok": 2, "n_shared_experts": 1,
    "moe_intermediate_size": 24, "vocab_size": 160, "max_position_embeddings": 128, "num_hash_layers": 1,
    "compress_ratios": [0, 4, 128, 0], "num_nextn_predict_layers": 1, "tie_word_embeddings": False,
}  # fmt: skip


def test_deepseek_v4() -> None:
    """modeling_deepseek_v4.py of transformers 5.24, module by module; ends and mixes behind."""
    h, n, d, r = 64, 4, 16, 24
    attention = h * r + r + r * n * d + h * d + d + n * d * 8 + 2 * 8 * h + n
    heavy = 2 * h * d + 128 * d + d
    sparse = 2 * h * 2 * d + 4 * 2 * d + d + (2 * h * 24 + 4 * 24 + 12 + r * 2 * 12 + h * 2)
    layer = attention + 6 * 3 * h * 24 + 6 * h + 3 * h * 24 + 2 * h + 2 * (24 * 4 * h + 24 + 3)
    ends = 2 * 160 * h + h + (4 * 4 * h + 4 + 1)
    model = read(V4)
    assert model.num_parameters == 3 * layer + heavy + sparse + ends
    block = layer + 2 * h * h + 3 * h + 4 * 4 * h + 4 + 1
    assert model.num_mtp_parameters == block
    typed = {**V4, "layer_types": ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"]}
    del typed["compress_ratios"]
    assert read(typed) == model


def test_deepseek_v4_flash_is_as_large_as_published() -> None:
    """Model card of DeepSeek-V4-Flash: 284B parameters, 13B of them active (the input table, 0.5B, not counted)."""
    model = load_model("deepseek-v4-flash")
    assert round(model.num_parameters / 1e9) == 284
    assert round(model.num_active_parameters_without_input_embedding / 1e9) == 13


def test_glm_5_3() -> None:
    """modeling_glm5_next.py of transformers 5.24, module by module: three of four layers are delta attention."""
    h, n, d, ranks = 64, 4, 16, (24, 12)
    file = {
        "model_type": "glm5_next_text", "hidden_size": h, "intermediate_size": 96, "moe_intermediate_size": 24,
        "num_hidden_layers": 4, "num_attention_heads": n, "num_key_value_heads": n, "n_routed_experts": 6,
        "num_experts_per_tok": 2, "n_shared_experts": 1, "q_lora_rank": 24, "kv_lora_rank": 12, "qk_rope_head_dim": 0,
        "qk_nope_head_dim": d, "v_head_dim": 20, "index_n_heads": 2, "index_head_dim": 8, "index_topk": 32,
        "index_kpool": 16, "linear_num_heads": 4, "linear_head_dim": d, "linear_conv_kernel_dim": 4, "hc_mult": 4,
        "vocab_size": 160, "max_position_embeddings": 128, "tie_word_embeddings": False,
    }  # fmt: skip
    wide = n * d
    delta = 4 * h * wide + 3 * 4 * wide + 2 * (h * d + d * wide) + h * n + wide + n + d
    latent = h * ranks[0] + ranks[0] + ranks[0] * n * d + h * ranks[1] + ranks[1] + ranks[1] * n * (d + 20) + n * 20 * h
    indexer = ranks[0] * 2 * 8 + h * 8 + 2 * 8 + h * 2 + 16 * 8 + 8 * h
    around = 2 * h + 2 * (24 * 4 * h + 24 + 3)
    sparse, dense = 6 * 3 * h * 24 + 6 * h + 3 * h * 24, 3 * h * 96
    model = read(file)
    assert model.num_parameters == 3 * (delta + dense) + latent + indexer + sparse + 4 * around + 2 * 160 * h + h
    with pytest.raises(InputError, match="qk_rope_head_dim"):
        read({**file, "qk_rope_head_dim": 8})


def test_solar_open_is_as_large_as_published() -> None:
    """The class of upstage/Solar-Open-100B: 102.6B parameters, 12B of them active (its model card, from memory)."""
    model = load_model("solar-open-100b")
    assert model.num_parameters / 1e9 == pytest.approx(102.6, abs=0.1)
    assert round(model.num_active_parameters / 1e9) == 12


@pytest.mark.parametrize(
    "family", ["hy_v4", "mistral_large4_text", "qwen4_exp_text", "mimo_v2_flash", "minimax_m3_vl_text"]
)
def test_a_refused_family_names_the_part_that_is_unknown(family: str) -> None:
    with pytest.raises(InputError, match=f"{family}' is not supported: its ") as refused:
        read({**SMALL, "model_type": family})
    assert "this part is unknown here" in refused.value.hint


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"compress_ratios": [0, 4, 100]}, "the nearest is 128"),
        ({"compress_ratios": [0, 4]}, "names 2 layers of 3"),
        ({"o_groups": 3}, "4 heads do not divide into 3 groups"),
        ({"attention_bias": True}, "attention_bias"),
        ({"num_key_value_heads": 2}, "num_key_value_heads"),
        ({"hc_mult": 0}, "hc_mult"),
    ],
)
def test_other_deepseek_v4_files_are_refused(changed: Mapping[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read({**V4, **changed})


GROK_1 = {
    "model_type": "grok-1",
    "emb_size": 48 * 128,
    "widening_factor": 8,
    "key_size": 128,
    "num_q_heads": 48,
    "num_kv_heads": 8,
    "num_layers": 64,
    "num_experts": 8,
    "num_selected_experts": 2,
    "vocab_size": 128 * 1024,
    "sequence_len": 8192,
}
"""xai-org/grok-1, run.py."""


def test_grok_1_in_its_own_words_and_in_those_of_its_conversions() -> None:
    """xai-org/grok-1, model.py: ffn_size is 8 x 6144 x 2 / 3, four norms per layer, one table for both ends."""
    attention = 2 * 6144 * 6144 + 2 * 6144 * 1024
    layer = attention + 8 * 3 * 6144 * 32768 + 6144 * 8 + 4 * 6144
    expected = 64 * layer + 131072 * 6144 + 6144
    assert read(GROK_1).num_parameters == expected
    converted = {"model_type": "grok-1", "hidden_size": 6144, "intermediate_size": 32768, "num_hidden_layers": 64,
                 "num_attention_heads": 48, "num_key_value_heads": 8, "num_experts": 8, "num_experts_per_tok": 2,
                 "vocab_size": 131072, "max_position_embeddings": 8192, "max_attn_value": 30.0}  # fmt: skip
    assert read(converted) == read(GROK_1)
    assert expected - 131072 * 6144 == pytest.approx(314e9, rel=0.005)  # github.com/xai-org/grok-1: 314B parameters


PUBLISHED = {
    # arXiv 2412.13663, table 4: 149 M and 395 M
    "modernbert-base": ({"model_type": "modernbert", "vocab_size": 50368, "hidden_size": 768, "intermediate_size": 1152,
                         "num_hidden_layers": 22, "num_attention_heads": 12, "max_position_embeddings": 8192,
                         "global_attn_every_n_layers": 3, "local_attention": 128}, 149e6, 149e6),
    "modernbert-large": ({"model_type": "modernbert", "vocab_size": 50368, "hidden_size": 1024,
                          "intermediate_size": 2624, "num_hidden_layers": 28, "num_attention_heads": 16,
                          "max_position_embeddings": 8192}, 395e6, 395e6),
    # arXiv 2506.13585, section 2: 456 B, 45.9 B active
    "minimax-m1": ({"model_type": "minimax_m1", "hidden_size": 6144, "intermediate_size": 9216, "head_dim": 128,
                    "num_attention_heads": 64, "num_key_value_heads": 8, "num_hidden_layers": 80,
                    "num_local_experts": 32, "num_experts_per_tok": 2, "attn_type_list": ([0] * 7 + [1]) * 10,
                    "vocab_size": 200064, "max_position_embeddings": 10240000, "postnorm": True,
                    "shared_intermediate_size": 0, "layernorm_full_attention_alpha": 3.55,
                    "rotary_dim": 64}, 456e9, 45.9e9),
    # arXiv 2403.19887, section 3.1: 52 B, 12 B active
    "jamba-v0.1": ({"model_type": "jamba", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
                    "num_attention_heads": 32, "num_key_value_heads": 8, "num_experts": 16, "num_experts_per_tok": 2,
                    "vocab_size": 65536, "max_position_embeddings": 262144, "attn_layer_period": 8,
                    "attn_layer_offset": 4, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2,
                    "mamba_dt_rank": 256, "expert_layer_period": 2, "expert_layer_offset": 1}, 52e9, 12e9),
    # arXiv 2510.26692: 48 B, 3 B active
    "kimi-linear": ({"model_type": "kimi_linear", "hidden_size": 2304, "intermediate_size": 9216, "head_dim": 72,
                     "num_hidden_layers": 27, "num_attention_heads": 32, "num_key_value_heads": 32, "q_lora_rank": None,
                     "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
                     "mla_use_nope": True, "moe_intermediate_size": 1024, "num_experts": 256,
                     "num_experts_per_token": 8, "num_shared_experts": 1, "first_k_dense_replace": 1,
                     "moe_layer_freq": 1, "num_expert_group": 1, "topk_group": 1, "vocab_size": 163840,
                     "model_max_length": 1048576, "num_nextn_predict_layers": 0,
                     "linear_attn_config": {"head_dim": 128, "num_heads": 32, "short_conv_kernel_size": 4,
                                            "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
                                            "kda_layers": [i for i in range(1, 27) if i % 4]}}, 48e9, 3e9),
    # github.com/inclusionAI/Ling: 16.8 B, 2.75 B active
    "ling-lite": ({"model_type": "bailing_moe", "hidden_size": 2048, "intermediate_size": 5632, "head_dim": 128,
                   "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 4, "num_experts": 64,
                   "num_experts_per_tok": 6, "num_shared_experts": 2, "moe_intermediate_size": 1408,
                   "vocab_size": 126464, "max_position_embeddings": 16384, "norm_head": True}, 16.8e9, 2.75e9),
    # snowflake.com, "Snowflake Arctic", 2024: 480 B, 17 B active
    "arctic": ({"model_type": "arctic", "hidden_size": 7168, "intermediate_size": 4864, "num_attention_heads": 56,
                "num_key_value_heads": 8, "num_hidden_layers": 35, "num_local_experts": 128, "num_experts_per_tok": 2,
                "moe_layer_frequency": 1, "use_residual": True, "parallel_attn_mlp_res": True, "vocab_size": 32000,
                "max_position_embeddings": 4096}, 480e9, 17e9),
    # github.com/Tencent-Hunyuan/Hunyuan-A13B: 80 B, 13 B active
    "hunyuan-a13b": ({"model_type": "hunyuan_v1_moe", "hidden_size": 4096, "intermediate_size": 3072, "head_dim": 128,
                      "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "num_experts": 64,
                      "moe_topk": [8] * 32, "moe_intermediate_size": [3072] * 32, "num_shared_expert": [1] * 32,
                      "vocab_size": 128167, "max_position_embeddings": 32768, "tie_word_embeddings": True,
                      "use_mixed_mlp_moe": True, "use_qk_norm": True}, 80e9, 13e9),
    # arXiv 2304.07193, table 17: ViT-g of 1.1 B
    "dinov2-giant": ({"model_type": "dinov2", "hidden_size": 1536, "num_hidden_layers": 40, "num_attention_heads": 24,
                      "mlp_ratio": 4, "image_size": 518, "patch_size": 14, "use_swiglu_ffn": True}, 1.1e9, 1.1e9),
    # arXiv 2405.21060, table 1: 2.7 B
    "mamba2-2.7b": ({"model_type": "mamba2", "hidden_size": 2560, "num_hidden_layers": 64, "state_size": 128,
                     "num_heads": 80, "head_dim": 64, "n_groups": 1, "vocab_size": 50288,
                     "tie_word_embeddings": True}, 2.7e9, 2.7e9),
    # arXiv 2507.22448, table 1: 34 B
    "falcon-h1-34b": ({"model_type": "falcon_h1", "hidden_size": 5120, "intermediate_size": 21504,
                       "num_hidden_layers": 72, "num_attention_heads": 20, "num_key_value_heads": 4, "head_dim": 128,
                       "mamba_d_ssm": 4096, "mamba_n_heads": 32, "mamba_d_head": 128, "mamba_n_groups": 2,
                       "mamba_d_state": 256, "vocab_size": 261120, "max_position_embeddings": 262144}, 34e9, 34e9),
    # model cards: 9.78 B, 8 B, 32.0 B, and 8.3 B of which 1.5 B are active
    "bamba-9b": ({"model_type": "bamba", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
                  "num_attention_heads": 32, "num_key_value_heads": 8, "attn_layer_indices": [9, 18, 27],
                  "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_state": 128,
                  "vocab_size": 128256, "max_position_embeddings": 4096}, 9.78e9, 9.78e9),
    "apertus-8b": ({"model_type": "apertus", "hidden_size": 4096, "intermediate_size": 21504, "num_hidden_layers": 32,
                    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 131072,
                    "max_position_embeddings": 65536}, 8.05e9, 8.05e9),
    "exaone-4-32b": ({"model_type": "exaone4", "hidden_size": 5120, "intermediate_size": 27392, "head_dim": 128,
                      "num_hidden_layers": 64, "num_attention_heads": 40, "num_key_value_heads": 8,
                      "vocab_size": 102400, "max_position_embeddings": 131072, "sliding_window": 4096,
                      "sliding_window_pattern": "LLLG"}, 32e9, 32e9),
    "lfm2-8b-a1b": ({"model_type": "lfm2_moe", "hidden_size": 2048, "intermediate_size": 7168,
                     "moe_intermediate_size": 1792, "num_hidden_layers": 24, "num_dense_layers": 2, "num_experts": 32,
                     "num_experts_per_tok": 4, "num_attention_heads": 32, "num_key_value_heads": 8,
                     "vocab_size": 65536, "max_position_embeddings": 128000,
                     "layer_types": ["full_attention" if i in (2, 6, 10, 14, 18, 21) else "conv"
                                     for i in range(24)]}, 8.3e9, 1.5e9),
    # arXiv 2312.00752, table 3: 2.8 B
    "mamba-2.8b": ({"model_type": "mamba", "hidden_size": 2560, "num_hidden_layers": 64, "state_size": 16,
                    "intermediate_size": 5120, "time_step_rank": 160, "vocab_size": 50280}, 2.8e9, 2.8e9),
}  # fmt: skip
"""Files and what their makers publish."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_counts(name: str) -> None:
    config, total, active = PUBLISHED[name]
    model = read(config)
    assert model.num_parameters == pytest.approx(total, rel=0.04)
    assert model.num_active_parameters_without_input_embedding == pytest.approx(active, rel=0.1)


def test_experts_and_shared_experts_of_published_files() -> None:
    hunyuan = read(PUBLISHED["hunyuan-a13b"][0]).layers[0].mlp
    assert isinstance(hunyuan, MixtureOfExperts)
    assert (hunyuan.top_k, hunyuan.shared_intermediate_size) == (8, 3072)
    arctic = read(PUBLISHED["arctic"][0]).layers[0].mlp
    assert isinstance(arctic, MixtureOfExperts)
    assert (arctic.intermediate_size, arctic.shared_intermediate_size) == (4864, 7168)


ALONGSIDE: Mapping[str, Mapping[str, object]] = {
    "apertus": {"qk_norm": True, "post_norm": False, "mlp_bias": False, "rope_scaling": {"factor": 8.0}},
    "bloom": {"num_attention_heads": 4, "seq_length": 2048, "offset_alibi": 100, "bias_dropout_fusion": True,
              "skip_bias_add": True, "pretraining_tp": 4, "unk_token_id": 0},
    "cohere2": {"layer_switch": 4, "order_of_interleaved_layers": "local_attn_first", "use_gated_activation": True,
                "use_parallel_block": True, "use_parallel_embedding": True, "logit_scale": 1, "rotary_pct": 1.0},
    "deepseek_v3": {"ep_size": 1, "moe_layer_freq": 1, "topk_method": "noaux_tc", "seq_aux": True,
                    "aux_loss_alpha": 0.001, "scoring_func": "sigmoid", "auto_map": {"AutoConfig": "x"}},
    "dinov2": {"mlp_ratio": 4, "out_features": ["stage12"], "out_indices": [12], "stage_names": ["stem", "stage1"],
               "drop_path_rate": 0.0, "layerscale_value": 1.0, "apply_layernorm": True},
    "ernie4_5_moe": {"moe_capacity": [64, 64, 64], "moe_gate": "topk", "moe_use_aux_free": True,
                     "num_nextn_predict_layers": 0, "use_rmsnorm": True, "compression_ratio": 1.0},
    "falcon_h1": {"attn_layer_indices": None, "mlp_expansion_factor": 8, "mamba_use_mlp": True,
                  "ssm_multipliers": [0.35, 0.25], "mlp_multipliers": [0.88, 0.5], "num_logits_to_keep": 1,
                  "mamba_norm_before_gate": False, "time_step_limit": [0.0, 100.0], "attention_in_multiplier": 1},
    "hunyuan_v1_dense": {"attention_head_dim": 16, "cla_share_factor": 2, "use_cla": False, "num_media_embeds": 257,
                         "org_vocab_size": 128167, "num_experts": 1, "moe_topk": 1, "num_shared_expert": 1,
                         "anyres_pooling_size": 2, "vit_patch": 1, "dense_list": [4096, 0], "use_qk_norm": True},
    "jamba": {"use_mamba_kernels": True, "mamba_inner_layernorms": True, "num_logits_to_keep": 1,
              "calc_logits_for_entire_prompt": False, "sliding_window": None},
    "kimi_linear": {"head_dim": 72, "mla_use_nope": True, "moe_layer_freq": 1, "use_grouped_topk": True,
                    "moe_renormalize": True, "moe_router_activation_func": "sigmoid", "num_nextn_predict_layers": 0},
    "lfm2": {"block_dim": 64, "conv_dim": 64, "conv_dim_out": 64, "block_use_swiglu": True, "block_norm_eps": 1e-5,
             "use_pos_enc": True, "conv_use_xavier_init": True, "block_mlp_init_scale": 1.0, "num_heads": 4},
    "llama4_text": {"attn_temperature_tuning": 4, "floor_scale": 8192, "attn_scale": 0.1, "moe_layers": [],
                    "for_llm_compressor": False, "cache_implementation": "hybrid"},
    "minimax_m1": {"layernorm_full_attention_alpha": 3.5, "postnorm": True, "shared_intermediate_size": 0,
                   "shared_moe_mode": "sigmoid", "rotary_dim": 64, "sliding_window": None},
    "modernbert": {"global_rope_theta": 160000, "local_rope_theta": 10000, "layer_norm_eps": 1e-5,
                   "initializer_cutoff_factor": 2.0, "position_embedding_type": "absolute", "cls_token_id": 1,
                   "local_attention": 128, "reference_compile": None, "repad_logits_with_grad": False},
    "phi3": {"original_max_position_embeddings": 128, "full_attn_mod": 1, "interpolate_factor": 1,
             "lm_head_bias": False, "sliding_window": 2047, "embd_pdrop": 0.0},
    "qwen2": {"max_window_layers": 28, "sliding_window": 32768, "use_sliding_window": False, "use_mrope": False},
    "qwen3_5_text": {"attn_output_gate": True, "mtp_num_hidden_layers": 0, "mtp_use_dedicated_embeddings": False,
                     "mamba_ssm_dtype": "float32", "full_attention_interval": 4, "partial_rotary_factor": 0.25},
    "starcoder2": {"mlp_type": "default", "norm_type": "layer_norm", "norm_epsilon": 1e-5, "residual_dropout": 0.1},
    "xlm-roberta": {"output_past": True, "position_embedding_type": "absolute", "gradient_checkpointing": False},
}  # fmt: skip
"""What published files hold besides, and what changes no layer."""


@pytest.mark.parametrize("family", ALONGSIDE)
def test_what_published_files_hold_besides_does_not_keep_them_from_being_read(family: str) -> None:
    row = next(row for row in COUNTED if row.family == family)
    assert read({**row.file, **ALONGSIDE[family]}).num_parameters == row.total


@pytest.mark.parametrize(
    ("family", "fields"),
    [
        ("apertus", {"qk_norm": False}),
        ("jamba", {"mamba_inner_layernorms": False}),
        ("hunyuan_v1_dense", {"use_cla": True}),
        ("hunyuan_v1_dense", {"num_experts": 16}),
        ("cohere2", {"use_gated_activation": False}),
        ("mpt", {"attn_config": {"qk_ln": True}}),
        ("qwen3_5_text", {"attn_output_gate": False}),
        ("minimax_m1", {"shared_intermediate_size": 512}),
        ("bamba", {"mamba_expand": 3}),
        ("mamba2", {"expand": 3}),
        ("falcon_h1", {"projectors_bias": True}),
        ("kimi_linear", {"linear_attn_config": {"num_heads": 4, "full_attn_layers": [1], "kda_layers": [2]}}),
    ],
)
def test_variants_of_a_family_that_are_not_read_are_refused(family: str, fields: Mapping[str, object]) -> None:
    row = next(row for row in COUNTED if row.family == family)
    with pytest.raises(InputError) as caught:
        read({**row.file, **fields})
    assert next(iter(fields)) in f"{caught.value.message} {caught.value.rule}"
    assert caught.value.hint
