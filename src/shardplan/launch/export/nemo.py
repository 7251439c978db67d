"""A plan as a launch script of NeMo 2: a recipe by name, and every field of the plan and the model over it.

Names: ``nemo/collections/llm/recipes``, ``nemo/lightning/pytorch/strategies/megatron_strategy.py`` and
``examples/llm/pretrain/README.md`` at 8cfedd72; fields of ``model.config`` are those of Megatron Core.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from typing import Final

from shardplan.inputs.layers import LatentAttention
from shardplan.launch.export import megatron_lm
from shardplan.launch.export.details import (
    NORM_EPSILON,
    ROTARY_BASE,
    detail_placeholders,
    detail_word,
    llama3_factor,
    unknown_details,
)
from shardplan.launch.export.megatron_bridge import activation_of_gate, model_values, text
from shardplan.launch.export.megatron_lm import training_placeholders
from shardplan.launch.export.shell import Given, Launcher, Word, exported
from shardplan.launch.export.written import Export, LaunchCase, Placeholder, losses, pairs

SAID: Final = ("dropout", "grad_dtype", "quantised_weights", "blocking_launches", "loss_kernel")
_UNSAID: Final = ("vocab_size", "window_size", "window_attn_skip_freq", "attention_backend", "softmax_type")
"""Fields of the tokenizer, and of types that the command line does not read (tuples and enumerations)."""
_UNSAID_FEATURES: Final = ("windows", "sinks", "output_gate", "latent_experts")
_FILES: Final[Mapping[str, Mapping[str, float]]] = {
    "llama3.1": {"llama31_8b": 8e9, "llama31_70b": 70e9, "llama31_405b": 405e9},
    "gated": {"llama3_8b": 8e9, "llama3_70b": 70e9},
    "plain": {"gpt3_175b": 175e9},
    "experts": {"mixtral_8x7b": 47e9, "mixtral_8x22b": 141e9},
    "latent": {"deepseek_v2_lite": 16e9, "deepseek_v2": 236e9},
}
"""Recipes by the kind of their model, with its parameters."""
_OF_RECIPE: Final[Mapping[str, Mapping[str, object]]] = {
    "latent": {
        "mtp_num_layers": None, "q_lora_rank": None, "moe_router_num_groups": None, "moe_router_group_topk": None,
        "moe_router_topk_scaling_factor": None, "moe_shared_expert_overlap": False,
        "moe_shared_expert_intermediate_size": None,
    },
}  # fmt: skip
"""What a recipe's model has and another of its kind need not have."""
_LLAMA31: Final = 8
"""Factor of the scaled positions of its recipes."""


def export(case: LaunchCase) -> Export:
    """The launch script, and what NeMo does not express on its command line."""
    features = [name for name in megatron_lm.features(case.decoder) if name not in _UNSAID_FEATURES]
    unsaid = megatron_lm.lost_details(case, activation_of_gate(case), states_scaling=_kind(case) == "llama3.1")
    vocabulary = f"the vocabulary of {case.model.vocab_size} tokens: the tokenizer of the recipe's data decides it"
    nodes = f"num_nodes={case.num_nodes}, num_gpus_per_node={case.processes_per_node}"
    lost = (vocabulary, *losses(case, said=SAID, features=features), *unsaid)
    return exported(
        case,
        ["nemo", "llm", "pretrain", "--yes", "--factory", f"{_recipe(case)}({nodes})"],
        lost=lost,
        relies_on=_relies_on(case),
        placeholders=[
            Placeholder("CHECKPOINTS", "/path/to/checkpoints", "where logs and checkpoints are written"),
            *detail_placeholders(case),
            *training_placeholders(case),
        ],
        environment=megatron_lm.environment(case),
        options={
            "Model": _model(case),
            "Plan": [["trainer.callbacks=[]"], *([f"{key}={value}"] for key, value in _plan(case).items())],
            "Training": _training(),
        },
        launcher=Launcher(words=["srun"], tasks_per_node=case.processes_per_node),
    )


def _kind(case: LaunchCase) -> str:
    """The kind of recipe whose activation, attention and scaling of positions are the model's."""
    d = case.decoder
    if isinstance(d.attention, LatentAttention):
        return "latent"
    if not d.gated:
        return "plain"
    if d.experts is not None:
        return "experts"
    return "llama3.1" if llama3_factor(case) == _LLAMA31 else "gated"


def _recipe(case: LaunchCase) -> str:
    """The recipe of that kind whose size is nearest; all sizes are given over it."""
    sizes, own = _FILES[_kind(case)], case.model.num_parameters
    return min(sizes, key=lambda name: abs(log(sizes[name] / own)))


def _plan(case: LaunchCase) -> dict[str, str]:
    """Options of the record, with the gradients of the plan and 8 bits in every layer."""
    job, found = case.job, pairs(case.options.options)
    plugin = {"grad_reduce_in_fp32": job.grad_dtype == "fp32"}
    if job.precision in ("fp8", "mxfp8"):
        gathers = job.software.quantised_weights
        plugin |= {"first_last_layers_bf16": False, "fp8_param_gather": gathers}
        plugin["reuse_grad_buf_for_mxfp8_param_ag"] = (
            gathers and job.precision == "mxfp8" and case.plan.sharding == "zero1"
        )
    return found | {f"trainer.plugins.{name}": text(is_on) for name, is_on in plugin.items()}


def _model(case: LaunchCase) -> list[Sequence[Word]]:
    values = {**_OF_RECIPE.get(_kind(case), {}), **model_values(case)}
    values = {name: value for name, value in values.items() if name not in _UNSAID}
    return [
        *([f"model.config.{name}={text(value)}"] for name, value in values.items()),
        *([[detail_word(case, ROTARY_BASE, "model.config.rotary_base=")]] if any(case.decoder.rotary) else []),
        [detail_word(case, NORM_EPSILON, "model.config.layernorm_epsilon=")],
    ]


def _training() -> list[Sequence[Word]]:
    return [
        [Given("TRAIN_STEPS", "trainer.max_steps=")],
        [Given("LEARNING_RATE", "optim.config.lr=")],
        [Given("MIN_LEARNING_RATE", "optim.lr_scheduler.min_lr=")],
        [Given("WARMUP_STEPS", "optim.lr_scheduler.warmup_steps=")],
        [Given("CHECKPOINTS", "log.log_dir=")],
    ]


def _relies_on(case: LaunchCase) -> tuple[str, ...]:
    return (
        f"data and tokenizer are those of the recipe {_recipe(case)}, which trains on mock data: name your data module",
        *unknown_details(case, f"that of the recipe ({activation_of_gate(case)})"),
    )
