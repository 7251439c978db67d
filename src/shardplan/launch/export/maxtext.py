"""A plan as a launch script of MaxText: ``base.yml`` and every key of the plan and the model over it.

Names: ``src/maxtext/configs/base.yml`` and ``types.py``, ``src/maxtext/common/common_types.py`` (kinds of layers) and
``src/maxtext/utils/max_utils.py`` (environment of several hosts) at e591f30c.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from shardplan.inputs.layers import Attention, LatentAttention
from shardplan.launch.export.details import (
    NORM_EPSILON,
    ROTARY_BASE,
    SILU,
    Yarn,
    detail_placeholders,
    detail_word,
    llama3_factor,
    number_text,
    unknown_details,
    unlike_details,
    yarn_of,
)
from shardplan.launch.export.megatron_lm import training_placeholders
from shardplan.launch.export.shell import Given, Launcher, Word, blocking, exported
from shardplan.launch.export.written import Export, LaunchCase, Placeholder, losses, pairs

SAID: Final = ("attention", "dropout", "blocking_launches", "fused_loss")
FEATURES: Final = {
    "llama2": ("tied_embeddings", "qkv_bias"),
    "mixtral": ("tied_embeddings", "experts"),
    "qwen3": ("tied_embeddings", "qk_norm_head"),
    "qwen3_moe": ("tied_embeddings", "qk_norm_head", "experts"),
    "deepseek": ("latent_attention", "experts", "some_dense", "shared_experts", "expert_groups", "mtp"),
}
"""What each kind of layer has, of the kinds that are exported."""
_TPU: Final = "Google"
_BALANCED: Final = "context_parallel_load_balance"
_LLAMA3_FACTOR: Final = 8
"""The factor that ``LLaMARotaryEmbedding`` has in its code."""


def export(case: LaunchCase) -> Export:
    """The launch script, and what MaxText does not express."""
    lost = (
        *_layers(case),
        *losses(case, said=SAID, features=FEATURES[_block(case)]),
        *unlike_details(case, _details_said(case)),
    )
    return exported(
        case,
        ["python3", "-m", "maxtext.trainers.pre_train.train", Given("MAXTEXT", after="/configs/base.yml")],
        lost=lost,
        relies_on=unknown_details(case, "SiLU"),
        placeholders=_placeholders(case),
        environment=_environment(case),
        options={
            "Model": [[f"{name}={_text(value)}"] for name, value in _model(case).items()],
            "Plan": [[f"{key}={value}"] for key, value in pairs(case.options.options).items()],
            "Training": _training(case),
        },
        launcher=_launcher(case),
    )


def _block(case: LaunchCase) -> str:
    """The kind of layer."""
    features = case.decoder.features
    if isinstance(case.decoder.attention, LatentAttention):
        return "deepseek"
    kinds = {(True, True): "qwen3_moe", (True, False): "qwen3", (False, True): "mixtral", (False, False): "llama2"}
    return kinds["qk_norm_head" in features, "experts" in features]


def _layers(case: LaunchCase) -> tuple[str, ...]:
    """Layers of experts that do not all follow the dense ones."""
    has = case.decoder.has_experts
    in_order = list(has) == sorted(has)
    return () if in_order else ("dense layers between layers of experts: MaxText has them in front",)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _model(case: LaunchCase) -> dict[str, Any]:
    model, d = case.model, case.decoder
    return {
        "decoder_block": _block(case),
        "base_emb_dim": model.hidden_size,
        "base_mlp_dim": d.ffn_size,
        "base_num_decoder_layers": model.num_hidden_layers,
        "vocab_size": model.vocab_size,
        "logits_via_embedding": model.tie_word_embeddings,
        "enable_dropout": case.job.dropout,
        **_attention(case),
        **_positions(case),
        **_experts(case),
        **({"mtp_num_layers": model.num_mtp_layers} if model.num_mtp_layers else {}),
    }


def _details_said(case: LaunchCase) -> tuple[str, ...]:
    """Details that keys state: the gate's function, positions of Llama 3.1, the router of DeepSeek's layers."""
    known = case.model.details
    acts = ("hidden_act",) if known.hidden_act in SILU else ()
    scaling = ("rope_scaling",) if _positions(case) else ()
    return (*acts, *scaling, *(("router",) if _block(case) == "deepseek" else ()))


def _positions(case: LaunchCase) -> dict[str, Any]:
    """The scaling of rotary positions: that of Llama 3.1, or YaRN; empty where keys do not say it."""
    if llama3_factor(case) == _LLAMA3_FACTOR:
        return {"rope_type": "llama3.1", "rope_use_scale": True}
    yarn, is_latent = yarn_of(case), isinstance(case.decoder.attention, LatentAttention)
    return {} if yarn is None else _yarn(case, yarn, is_latent=is_latent)


def _yarn(case: LaunchCase, yarn: Yarn, *, is_latent: bool) -> dict[str, Any]:
    """Keys of YaRN; numbers are whole, and latent attention scales scores and not positions."""
    whole = {
        "original_max_position_embeddings": yarn.original_max_position_embeddings,
        "rope_factor": yarn.factor,
        "beta_fast": yarn.beta_fast,
        "beta_slow": yarn.beta_slow,
    }
    scales_scores = is_latent and yarn.mscale is not None and yarn.mscale == yarn.mscale_all_dim
    scales_positions = not is_latent and yarn.mscale is None and yarn.mscale_all_dim is None
    if any(value % 1 for value in whole.values()) or not (scales_scores or scales_positions):
        return {}
    return {
        "rope_type": "yarn",
        "max_position_embeddings": case.model.max_position_embeddings,
        **{name: int(value) for name, value in whole.items()},
        **({"mscale": number_text(yarn.mscale)} if scales_scores and yarn.mscale is not None else {}),
        "rope_truncate": yarn.truncate,
        "rope_interleave": is_latent,
        "rope_attention_scaling": scales_positions,
    }


def _router(case: LaunchCase) -> dict[str, Any]:
    """How scores are made, which only DeepSeek's layers read."""
    known, found = case.model.details, dict[str, Any]()
    if known.scoring_func is not None:
        found["routed_score_func"] = known.scoring_func
    if known.routed_scaling_factor is not None:
        found["routed_scaling_factor"] = number_text(known.routed_scaling_factor)
    return found


def _attention(case: LaunchCase) -> dict[str, Any]:
    a = case.decoder.attention
    found: dict[str, Any] = {**_kernel(case), "base_num_query_heads": a.num_heads}
    if isinstance(a, Attention):
        return found | {
            "base_num_kv_heads": a.num_kv_heads,
            "head_dim": a.head_dim,
            "use_qk_norm": a.qk_norm == "head",
            "attention_bias": a.qkv_bias,
        }
    return found | {
        "base_num_kv_heads": a.num_heads,
        "attention_type": "mla",
        "q_lora_rank": a.q_lora_rank or 0,
        "kv_lora_rank": a.kv_lora_rank,
        "qk_nope_head_dim": a.qk_nope_head_dim,
        "qk_rope_head_dim": a.qk_rope_head_dim,
        "v_head_dim": a.v_head_dim,
    }


def _kernel(case: LaunchCase) -> dict[str, Any]:
    """The kernel of attention: splash on TPUs, cuDNN by Transformer Engine on GPUs, and what exchanges need there.

    Kernels of Transformer Engine pack documents along a context in rings alone (``attention_op.py``).
    """
    exchange = case.plan.cp_comm if case.plan.cp > 1 else None
    if case.job.attention == "unfused":
        return {"attention": "dot_product"}
    if case.cluster.accelerator.vendor != _TPU:
        is_packed = exchange in (None, "p2p")
        return {"attention": "cudnn_flash_te", **({"max_segments_per_seq": 32} if is_packed else {"packing": False})}
    of_exchange = {"p2p": {"use_tokamax_splash": True}, "a2a": {"use_tokamax_splash": True, _BALANCED: False}}
    return {"attention": "flash", **of_exchange.get(exchange or "", {})}


def _experts(case: LaunchCase) -> dict[str, Any]:
    e = case.decoder.experts
    if e is None:
        return {}
    found: dict[str, Any] = {
        "num_experts": e.num_experts,
        "num_experts_per_tok": e.top_k,
        "base_moe_mlp_dim": e.intermediate_size,
    }
    if _block(case) == "deepseek":
        found["first_num_dense_layers"] = case.decoder.has_experts.count(False)
        found |= _router(case)
        found["shared_experts"] = e.shared_intermediate_size // e.intermediate_size
        if e.n_group > 1:
            found |= {"n_routing_groups": e.n_group, "topk_routing_group": e.topk_group}
    elif case.model.details.norm_topk_prob is not None:
        found["norm_topk_prob"] = case.model.details.norm_topk_prob
    return found


def _training(case: LaunchCase) -> list[Sequence[Word]]:
    hardware = "tpu" if case.cluster.accelerator.vendor == _TPU else "gpu"
    return [
        [f"hardware={hardware}"],
        *([[detail_word(case, ROTARY_BASE, "rope_max_timescale=")]] if any(case.decoder.rotary) else []),
        [detail_word(case, NORM_EPSILON, "normalization_layer_epsilon=")],
        [Given("RUN_NAME", "run_name=")],
        [Given("OUTPUT", "base_output_directory=")],
        ["dataset_type=hf"],
        [Given("DATASET", "hf_path=")],
        ["tokenizer_type=huggingface"],
        [Given("TOKENIZER", "tokenizer_path=")],
        [Given("TRAIN_STEPS", "steps=")],
        [Given("LEARNING_RATE", "learning_rate=")],
    ]


def _placeholders(case: LaunchCase) -> list[Placeholder]:
    training = [each for each in training_placeholders(case) if each.name in ("TRAIN_STEPS", "LEARNING_RATE")]
    return [
        Placeholder("MAXTEXT", "/path/to/maxtext/src/maxtext", "folder of the package maxtext"),
        Placeholder("TOKENIZER", "/path/to/tokenizer", "folder or name of a Hugging Face tokenizer"),
        Placeholder("DATASET", "/path/to/dataset", "name of a data set on the Hugging Face hub"),
        Placeholder("OUTPUT", "/path/to/output", "folder or bucket of checkpoints and logs"),
        Placeholder("RUN_NAME", "run", "name of the run"),
        *detail_placeholders(case),
        *training,
    ]


def _environment(case: LaunchCase) -> dict[str, str]:
    found = blocking(case)
    if case.cluster.accelerator.vendor == _TPU or case.num_nodes == 1:
        return found
    return found | {"JAX_COORDINATOR_PORT": "29500", "NNODES": str(case.num_nodes)}


def _launcher(case: LaunchCase) -> Launcher:
    """One process for a node, which drives all its accelerators. On TPUs every host runs the script."""
    if case.cluster.accelerator.vendor == _TPU:
        return Launcher(words=[], tasks_per_node=0)
    if case.num_nodes == 1:
        return Launcher(words=[])
    start = "'NODE_RANK=$SLURM_PROCID exec \"$@\"'"
    names = ('export JAX_COORDINATOR_IP="$HEAD_NODE"',)
    return Launcher(words=["srun", "bash", "-c", start, "launch"], environment=names)
