"""A plan as a launch script of Megatron-Bridge: a bare recipe, and every field of the plan and the model over it.

Names: ``src/megatron/bridge/recipes/gpt/h100/vanilla_gpt.py``, ``training/config.py`` and
``scripts/training/run_recipe.py`` at 067f987d, ``launch_with_sbatch.sh`` there for the environment; fields of ``model``
are those of Megatron Core.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from shardplan.inputs.layers import LatentAttention
from shardplan.launch.export import megatron_lm
from shardplan.launch.export.details import (
    NORM_EPSILON,
    ROTARY_BASE,
    detail_placeholders,
    detail_word,
    scaling_of_bridge,
    unknown_details,
)
from shardplan.launch.export.megatron_lm import training_placeholders
from shardplan.launch.export.shell import Given, LaunchText, Word, exported
from shardplan.launch.export.written import Export, LaunchCase, Placeholder, losses, pairs

RECIPE: Final = "vanilla_gpt_pretrain_1gpu_h100_bf16_config"
"""Has the defaults of Megatron-LM and no model of its own."""
LATENT_RECIPE: Final = "deepseek_v3_pretrain_1024gpu_h100_bf16_config"
"""Has multi-head latent attention, which is a kind of model of its own."""
SAID: Final = ("attention", "dropout", "grad_dtype", "blocking_launches", "loss_kernel")
"""Fields of a job and of its software that are written, or named by ``_gradients``."""


def export(case: LaunchCase) -> Export:
    """The launch script, and what Megatron-Bridge does not express on its command line."""
    lost = (
        *_gradients(case),
        *losses(case, said=SAID, features=megatron_lm.features(case.decoder)),
        *megatron_lm.lost_details(case, _activation(case), states_scaling=scaling_of_bridge(case) is not None),
    )
    relied = _relies_on(case)
    script = LaunchText(
        lost=lost,
        relies_on=relied,
        placeholders=_placeholders(case),
        environment={"TORCH_NCCL_AVOID_RECORD_STREAMS": "1", **megatron_lm.environment(case)},
        options={
            "Recipe": [["--recipe", _recipe(case)], ["--mode", "pretrain"]],
            "Model": _model(case),
            "Plan": [[f"{key}={value}"] for key, value in pairs(case.options.options).items()],
            "Training": _training(),
        },
        program=[Given("MEGATRON_BRIDGE", after="/scripts/training/run_recipe.py")],
    )
    return exported(case, script)


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


def _recipe(case: LaunchCase) -> str:
    return LATENT_RECIPE if isinstance(case.decoder.attention, LatentAttention) else RECIPE


def _model(case: LaunchCase) -> list[Sequence[Word]]:
    values = {**model_values(case), **(scaling_of_bridge(case) or {})}
    return [
        *([f"model.{name}={text(value)}"] for name, value in values.items()),
        [f"model.activation_func={_activation(case)}"],
        *([[detail_word(case, ROTARY_BASE, "model.rotary_base=")]] if any(case.decoder.rotary) else []),
        [detail_word(case, NORM_EPSILON, "model.layernorm_epsilon=")],
    ]


def _activation(case: LaunchCase) -> str:
    return "silu" if case.decoder.gated else "gelu"


def _gradients(case: LaunchCase) -> tuple[str, ...]:
    if case.job.grad_dtype == "fp32" or case.job.precision == "fp32":
        return ()
    what = f"grad dtype {case.job.grad_dtype}: mixed_precision by name reduces gradients in fp32"
    return (f"{what}; set grad_reduce_in_fp32 of its configuration in Python",)


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


def _placeholders(case: LaunchCase) -> list[Placeholder]:
    return [
        Placeholder(name="MEGATRON_BRIDGE", value="/path/to/Megatron-Bridge", about="checkout of Megatron-Bridge"),
        Placeholder(name="TOKENIZER", value="/path/to/tokenizer", about="folder or name of a Hugging Face tokenizer"),
        Placeholder(name="DATA_PATH", value="/path/to/data", about="prefix of a preprocessed data set"),
        Placeholder(name="CHECKPOINTS", value="/path/to/checkpoints", about="where checkpoints are written and read"),
        *detail_placeholders(case),
        *training_placeholders(case),
    ]


def _relies_on(case: LaunchCase) -> tuple[str, ...]:
    found = [f"the rest is that of the recipe {_recipe(case)}", *unknown_details(case, _activation(case))]
    if _recipe(case) == LATENT_RECIPE and not case.model.details.scaling_kind:
        found.append("rotary positions are scaled as in the recipe (YaRN, 40): model.rotary_scaling_factor=1 for none")
    return tuple(found)
