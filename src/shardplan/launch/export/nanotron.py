"""A plan as a configuration of nanotron and the line that launches it.

Names: ``src/nanotron/config/config.py``, ``models_config.py`` and ``parallelism_config.py`` at 2411b022;
``slurm_launcher.py`` for the environment.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

from shardplan.inputs.layers import Attention
from shardplan.launch.export.details import FILL_IN, unknown_details, unlike_details
from shardplan.launch.export.shell import Given, blocking, exported
from shardplan.launch.export.written import (
    END,
    START,
    Export,
    LaunchCase,
    Placeholder,
    comment_of,
    keys,
    losses,
    nested,
)

SAID: Final = ("grad_dtype", "blocking_launches")
FEATURES: Final = ("tied_embeddings", "qkv_bias", "experts", "some_dense", "shared_experts", "windows")
PLACES: Final = {
    "tokenizer": "tokenizer.tokenizer_name_or_path",
    "data": "data_stages: hf_dataset_or_datasets",
    "checkpoints": "checkpoints.checkpoints_path",
    "steps": "tokens.train_steps",
    "learning rate": "optimizer.learning_rate_scheduler",
}
"""What a user fills in, with the key that holds it."""


def export(case: LaunchCase) -> Export:
    """The YAML file with its launch script, and what they do not express."""
    details = ("hidden_act", "initializer_range")
    lost = (*_head_size(case), *losses(case, said=SAID, features=_features(case)), *unlike_details(case, details))
    name = f"{case.stem}.yaml"
    return exported(
        case,
        [Given("NANOTRON", after="/run_train.py")],
        lost=lost,
        relies_on=unknown_details(case, "SiLU"),
        placeholders=[Placeholder("NANOTRON", "/path/to/nanotron", "checkout with run_train.py")],
        environment={"CUDA_DEVICE_MAX_CONNECTIONS": "1", **blocking(case)},
        options={"Configuration": [["--config-file", name]]},
        beside={name: _yaml(case, lost)},
        to_fill=(*PLACES.values(), *_unknown(case)),
    )


def _unknown(case: LaunchCase) -> tuple[str, ...]:
    """Keys of the model that hold no value yet."""
    known, prefix = case.model.details, "model.model_config."
    keys_ = {
        f"{prefix}rope_theta": known.rope_theta,
        f"{prefix}rms_norm_eps": known.norm_eps,
        "model.init_method.std": known.initializer_range,
    }
    return tuple(key for key, value in keys_.items() if value is None)


def _is_qwen(case: LaunchCase) -> bool:
    """Whether the model needs the class that has experts, windows, biases and context parallelism."""
    return case.plan.cp > 1 or bool({"experts", "windows", "qkv_bias"} & {*case.decoder.features})


def _features(case: LaunchCase) -> tuple[str, ...]:
    has_one_window = len(set(case.decoder.windows)) == 1
    return tuple(name for name in FEATURES if name != "windows" or has_one_window)


def _head_size(case: LaunchCase) -> tuple[str, ...]:
    a = case.decoder.attention
    if not isinstance(a, Attention) or a.head_dim * a.num_heads == case.model.hidden_size:
        return ()
    return (f"heads of {a.head_dim}: nanotron takes hidden size / heads",)


def _yaml(case: LaunchCase, lost: tuple[str, ...]) -> str:
    *first, last = ("tokens.train_steps", "learning_rate_scheduler", *_unknown(case))
    below = f"{', '.join(first)} and {last} are yours too"
    block = f"# {START} ({below}).\n{_dump(_yours())}# {END}\n"
    return comment_of(case, lost) + block + _dump(_document(case))


def _dump(document: dict[str, Any]) -> str:
    return yaml.safe_dump(document, sort_keys=False)


def _yours() -> dict[str, Any]:
    """Sections that a plan says nothing about."""
    data = {"dataset": {"hf_dataset_or_datasets": "/path/to/dataset", "text_column_name": "text"}, "seed": 42}
    return {
        "general": {"project": "shardplan", "run": "run", "seed": 42},
        "tokenizer": {"tokenizer_name_or_path": "/path/to/tokenizer"},
        "data_stages": [{"name": "training", "start_training_step": 1, "data": data | {"num_loading_workers": 1}}],
        "checkpoints": {"checkpoints_path": "/path/to/checkpoints", "checkpoint_interval": 1000},
    }


def _document(case: LaunchCase) -> dict[str, Any]:
    """Sections that follow from the plan. Options of the plan come last: they win."""
    document: dict[str, Any] = {
        "model": {
            "init_method": {"std": _known(case.model.details.initializer_range)},
            "make_vocab_size_divisible_by": 1,
            "model_config": _model(case),
        },
        "tokens": {"train_steps": case.num_steps or 1000},
        "optimizer": _optimizer(case),
    }
    return _merged(document, nested(keys(case.options.options)))


def _merged(first: dict[str, Any], last: dict[str, Any]) -> dict[str, Any]:
    both = {name: _merged(first[name], value) for name, value in last.items() if isinstance(first.get(name), dict)}
    return {**first, **last, **both}


def _model(case: LaunchCase) -> dict[str, Any]:
    model, a = case.model, case.decoder.attention
    kind = "is_qwen2_config" if _is_qwen(case) else "is_llama_config"
    found: dict[str, Any] = {
        kind: True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": model.details.hidden_act or "silu",
        "hidden_size": model.hidden_size,
        "intermediate_size": case.decoder.ffn_size,
        "max_position_embeddings": max(model.max_position_embeddings, case.job.sequence_length),
        "num_attention_heads": a.num_heads,
        "num_hidden_layers": model.num_hidden_layers,
        "num_key_value_heads": a.num_kv_heads if isinstance(a, Attention) else a.num_heads,
        "rms_norm_eps": _known(model.details.norm_eps),
        "rope_theta": _known(model.details.rope_theta),
        "tie_word_embeddings": model.tie_word_embeddings,
        "vocab_size": model.vocab_size,
    }
    if "qkv_bias" in case.decoder.features:
        found["attention_bias"] = True
    window = case.decoder.windows[0]
    if window is not None and len(set(case.decoder.windows)) == 1:
        found["sliding_window_size"] = window
    if case.plan.cp > 1 and case.plan.cp_comm == "allgather":
        found["ring_attn_heads_k_stride"] = 1
    return found | _experts(case)


def _known(value: float | None) -> float | str:
    return FILL_IN if value is None else value


def _experts(case: LaunchCase) -> dict[str, Any]:
    e = case.decoder.experts
    if e is None:
        return {}
    return {
        "moe_config": {
            "num_experts": e.num_experts,
            "top_k": e.top_k,
            "moe_intermediate_size": e.intermediate_size,
            "layers": [at for at, has in enumerate(case.decoder.has_experts) if has],
            "enable_shared_expert": e.shared_intermediate_size > 0,
            "shared_expert_intermediate_size": e.shared_intermediate_size,
            "token_dispatcher_type": "alltoall",
        }
    }


def _optimizer(case: LaunchCase) -> dict[str, Any]:
    adam = {"adam_beta1": 0.9, "adam_beta2": 0.95, "adam_eps": 1e-8, "torch_adam_is_fused": True}
    schedule = {"lr_warmup_steps": 100, "lr_warmup_style": "linear", "lr_decay_style": "cosine", "min_decay_lr": 3e-5}
    return {
        "accumulate_grad_in_fp32": case.job.grad_dtype == "fp32",
        "clip_grad": 1.0,
        "weight_decay": 0.1,
        "learning_rate_scheduler": {"learning_rate": 3e-4, **schedule},
        "optimizer_factory": adam if case.job.optimizer == "adam" else {},
    }
