"""A plan as a launch script of NeMo 2: a recipe by name, and every field of the plan and the model over it.

Names: ``nemo/collections/llm/recipes``, ``nemo/lightning/pytorch/strategies/megatron_strategy.py`` and
``examples/llm/pretrain/README.md`` at 8cfedd72; fields of ``model.config`` are those of Megatron Core.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shardplan.inputs.layers import LatentAttention
from shardplan.launch.export import megatron_lm
from shardplan.launch.export.details import NORM_EPSILON, ROTARY_BASE, detail_placeholders, detail_word, unknown_details
from shardplan.launch.export.megatron_bridge import model_values, text
from shardplan.launch.export.megatron_lm import training_placeholders
from shardplan.launch.export.shell import Given, Launcher, LaunchText, Word, exported
from shardplan.launch.export.written import Export, LaunchCase, Placeholder, losses, pairs

SAID: Final = ("attention", "dropout", "grad_dtype", "blocking_launches", "loss_kernel")
_NEWER: Final = ("vocab_size",)
"""Fields of the tokenizer."""


def export(case: LaunchCase) -> Export:
    """The launch script, and what NeMo does not express on its command line."""
    features = [
        name for name in megatron_lm.features(case.decoder) if name not in ("sinks", "output_gate", "latent_experts")
    ]
    unsaid = megatron_lm.lost_details(case, _activation(case), states_scaling=False)
    lost = (*_vocabulary(case), *losses(case, said=SAID, features=features), *unsaid)
    relied = _relies_on(case)
    script = LaunchText(
        lost=lost,
        relies_on=relied,
        placeholders=_placeholders(case),
        environment=megatron_lm.environment(case),
        options={
            "Model": _model(case),
            "Plan": [[f"{key}={value}"] for key, value in pairs(case.options.options).items()],
            "Training": _training(case),
        },
        program=["nemo", "llm", "pretrain", "--yes", "--factory", f"{_recipe(case)}({_nodes(case)})"],
    )
    return exported(case, script, launcher=Launcher(words=["srun"], tasks_per_node=case.processes_per_node))


def _vocabulary(case: LaunchCase) -> tuple[str, ...]:
    return (f"the vocabulary of {case.model.vocab_size} tokens: the tokenizer of the recipe's data decides it",)


def _nodes(case: LaunchCase) -> str:
    return f"num_nodes={case.num_nodes}, num_gpus_per_node={case.processes_per_node}"


def _recipe(case: LaunchCase) -> str:
    """A recipe whose activation and kind of attention are the model's; all sizes are given over it."""
    if isinstance(case.decoder.attention, LatentAttention):
        return "deepseek_v3"
    if not case.decoder.gated:
        return "gpt3_175b"
    return "llama3_8b" if case.decoder.experts is None else "mixtral_8x7b"


def _model(case: LaunchCase) -> list[Sequence[Word]]:
    values = {name: value for name, value in model_values(case).items() if name not in _NEWER}
    return [
        *([f"model.config.{name}={text(value)}"] for name, value in values.items()),
        *([[detail_word(case, ROTARY_BASE, "model.config.rotary_base=")]] if any(case.decoder.rotary) else []),
        [detail_word(case, NORM_EPSILON, "model.config.layernorm_epsilon=")],
    ]


def _activation(case: LaunchCase) -> str:
    """The function of the recipe, which no option changes."""
    return "silu" if case.decoder.gated else "gelu"


def _training(case: LaunchCase) -> list[Sequence[Word]]:
    in_fp32 = "true" if case.job.grad_dtype == "fp32" else "false"
    gradients = [[f"trainer.plugins.grad_reduce_in_fp32={in_fp32}"]] if case.job.precision != "fp32" else []
    return [
        *gradients,
        [Given("TRAIN_STEPS", "trainer.max_steps=")],
        [Given("LEARNING_RATE", "optim.config.lr=")],
        [Given("MIN_LEARNING_RATE", "optim.lr_scheduler.min_lr=")],
        [Given("WARMUP_STEPS", "optim.lr_scheduler.warmup_steps=")],
        [Given("CHECKPOINTS", "log.log_dir=")],
    ]


def _placeholders(case: LaunchCase) -> list[Placeholder]:
    return [
        Placeholder(name="CHECKPOINTS", value="/path/to/checkpoints", about="where logs and checkpoints are written"),
        *detail_placeholders(case),
        *training_placeholders(case),
    ]


def _relies_on(case: LaunchCase) -> tuple[str, ...]:
    return (
        f"data and tokenizer are those of the recipe {_recipe(case)}, which trains on mock data: name your data module",
        *unknown_details(case, f"that of the recipe ({_activation(case)})"),
    )
