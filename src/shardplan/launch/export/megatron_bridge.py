"""A plan as a launch script of Megatron-Bridge: a bare recipe, and every field of the plan and the model over it.

Names: ``src/megatron/bridge/recipes/gpt/h100/vanilla_gpt.py``, ``training/config.py`` and
``scripts/training/run_recipe.py`` at 067f987d, ``launch_with_sbatch.sh`` there for the environment; fields of ``model``
are those of Megatron Core.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from shardplan.inputs.layers import LatentAttention
from shardplan.launch.export import megatron_lm
from shardplan.launch.export.details import (
    NORM_EPSILON,
    ROTARY_BASE,
    detail_word,
    scaling_of_bridge,
    unknown_details,
)
from shardplan.launch.export.shell import Given, Word, exported
from shardplan.launch.export.written import Export, LaunchCase, losses, pairs

RECIPE: Final = "vanilla_gpt_pretrain_1gpu_h100_bf16_config"
"""Has the defaults of Megatron-LM and no model of its own."""
LATENT: Final = "megatron.bridge.models.mla_provider.MLAModelProvider"
"""Class of models with multi-head latent attention, whose fields the recipe's model lacks."""
_OF_LATENT: Final = (
    "q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim", "rope_type",
    "original_max_position_embeddings", "beta_fast", "beta_slow", "mscale", "mscale_all_dim",
)  # fmt: skip
MIXED: Final = "megatron.bridge.training.mixed_precision.MixedPrecisionConfig"
_AS_NAMED: Final = {("bf16", "fp32"), ("fp16", "fp16")}
"""Precisions with the gradients that ``mixed_precision`` by name gives them."""
_LOW: Final[Mapping[str, Mapping[str, str]]] = {
    "fp8": {"fp8": "hybrid", "fp8_recipe": "tensorwise"},
    "mxfp8": {"fp8": "e4m3", "fp8_recipe": "mxfp8"},
    "nvfp4": {"fp4": "e2m1", "fp4_recipe": "nvfp4"},
}
"""Formats of 8 and 4 bits, in every layer: by name the first and last layers stay in bf16."""


def export(case: LaunchCase) -> Export:
    """The launch script, and what Megatron-Bridge does not express on its command line."""
    lost = (
        *losses(case, said=megatron_lm.said(case), features=megatron_lm.features(case.decoder)),
        *megatron_lm.lost_details(case, activation_of_gate(case), states_scaling=scaling_of_bridge(case) is not None),
    )
    return exported(
        case,
        [Given("MEGATRON_BRIDGE", after="/scripts/training/run_recipe.py")],
        lost=lost,
        relies_on=(f"the rest is that of the recipe {RECIPE}", *unknown_details(case, activation_of_gate(case))),
        placeholders=megatron_lm.core_placeholders(
            case, "MEGATRON_BRIDGE", "/path/to/Megatron-Bridge", "checkout of Megatron-Bridge"
        ),
        environment={"TORCH_NCCL_AVOID_RECORD_STREAMS": "1", **megatron_lm.environment(case)},
        options={
            "Recipe": [["--recipe", RECIPE], ["--mode", "pretrain"]],
            "Model": _model(case),
            "Plan": [[f"{key}={value}"] for key, value in _plan(case).items()],
            "Training": _training(),
        },
    )


def text(value: Any) -> str:
    """A value as overrides of hydra have it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"[{','.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


def model_values(case: LaunchCase) -> dict[str, Any]:
    """Fields of the model as Megatron Core names them, those included that its options derive."""
    d = case.decoder
    return {
        **megatron_lm.model_fields(case),
        "gated_linear_unit": d.gated,
        "normalization": "LayerNorm" if case.model.norm_bias else "RMSNorm",
        "position_embedding_type": megatron_lm.positions(d),
        "share_embeddings_and_output_weights": case.model.tie_word_embeddings,
        "vocab_size": case.model.vocab_size,
        **megatron_lm.kernel_fields(case),
    }


def _model(case: LaunchCase) -> list[Sequence[Word]]:
    values = {**model_values(case), **(scaling_of_bridge(case) or {}), **_fusions(case)}
    is_latent = isinstance(case.decoder.attention, LatentAttention)
    return [
        *([[f"++model._target_={LATENT}"]] if is_latent else []),
        *([f"{'++' if name in _OF_LATENT else ''}model.{name}={text(value)}"] for name, value in values.items()),
        [f"model.activation_func={activation_of_gate(case)}"],
        *([[detail_word(case, ROTARY_BASE, "model.rotary_base=")]] if any(case.decoder.rotary) else []),
        [detail_word(case, NORM_EPSILON, "model.layernorm_epsilon=")],
    ]


def activation_of_gate(case: LaunchCase) -> str:
    """The function of a recipe's model, which depends on the gate alone."""
    return "silu" if case.decoder.gated else "gelu"


def _fusions(case: LaunchCase) -> dict[str, bool]:
    """Kernels that Megatron-LM fuses unless told otherwise, and the recipe's model does not."""
    if case.job.software.kernels != "fused":
        return {}
    d = case.decoder
    has_bias = bool(megatron_lm.model_fields(case)["add_bias_linear"])
    turns = any(d.rotary) and not isinstance(d.attention, LatentAttention)  # of those, only scaled positions fuse
    fused = {"bias_dropout_fusion": True, "bias_activation_fusion": d.gated or has_bias, "apply_rope_fusion": turns}
    return {name: True for name, is_on in fused.items() if is_on}


def _plan(case: LaunchCase) -> dict[str, str]:
    """Options of the record; the precision in full where its name stands for other gradients or layers."""
    job, found = case.job, pairs(case.options.options)
    if job.precision != "fp32" and (job.precision, job.grad_dtype) not in _AS_NAMED:
        found["mixed_precision"] = _mixed(case)
    if job.moment_dtype in _DTYPES and megatron_lm.has_adam_16(job):
        found["optimizer.use_precision_aware_optimizer"] = "true"
        found |= {f"optimizer.{name}": _DTYPES[job.moment_dtype] for name in ("exp_avg_dtype", "exp_avg_sq_dtype")}
    return found


_DTYPES: Final = {"bf16": "torch.bfloat16", "fp16": "torch.float16"}


def _mixed(case: LaunchCase) -> str:
    """``MixedPrecisionConfig`` as an override builds it (``utils/instantiate_utils.py``)."""
    job, is_fp16 = case.job, case.job.precision == "fp16"
    gathers = job.software.quantised_weights and job.precision in ("fp8", "mxfp8")
    shares_buffer = gathers and job.precision == "mxfp8" and case.plan.sharding == "zero1"
    dtype = f"{{_target_:{_DTYPES['fp16' if is_fp16 else 'bf16']},_call_:false}}"
    values = {
        "_target_": MIXED,
        "fp16" if is_fp16 else "bf16": "true",
        "params_dtype": dtype,
        "pipeline_dtype": dtype,
        "grad_reduce_in_fp32": text(job.grad_dtype == "fp32"),
        **_LOW.get(job.precision, {}),
        **({"fp8_param_gather": "true"} if gathers else {}),
        **({"reuse_grad_buf_for_mxfp8_param_ag": "true"} if shares_buffer else {}),
    }
    return f"{{{','.join(f'{name}:{value}' for name, value in values.items())}}}"


def _training() -> list[Sequence[Word]]:
    return [
        [Given("TRAIN_STEPS", "train.train_iters=")],
        [Given("LEARNING_RATE", "optimizer.lr=")],
        [Given("MIN_LEARNING_RATE", "optimizer.min_lr=")],
        [Given("WARMUP_STEPS", "scheduler.lr_warmup_iters=")],
        ["tokenizer.tokenizer_type=HuggingFaceTokenizer"],
        [Given("TOKENIZER", "tokenizer.tokenizer_model=")],
        [Given("DATA_PATH", "dataset.blend=[[", "],null]")],
        [Given("CHECKPOINTS", "checkpoint.save=")],
        [Given("CHECKPOINTS", "checkpoint.load=")],
    ]
