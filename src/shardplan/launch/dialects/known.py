"""Frameworks that are recognised but not read: a file of theirs is refused by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from shardplan.errors import InputError
from shardplan.launch.dialects.launches import Launch
from shardplan.launch.dialects.settings import Options, Settings
from shardplan.launch.read.facts import Command

READ: Final = (
    "Megatron-LM, Megatron-DeepSpeed, torchtitan, DeepSpeed, accelerate, the Trainer of Hugging Face, nanotron, "
    "MaxText, GPT-NeoX, NeMo 1, LLaMA-Factory, axolotl, ms-swift, llm-foundry, OLMo, InternEvo, recipes of "
    "Megatron-Bridge and NeMo 2, FlagScale, levanter, lingua, torchtune, fms-fsdp"
)
"""Frameworks whose files are read."""

MARKS: Final[Mapping[str, tuple[str, ...]]] = {
    "SageMaker HyperPod": ("run.model_type", "hyperpod_config"),
    "NeuronX Distributed Training": ("distributed_strategy.tensor_model_parallel_size",),
    "verl": ("actor_rollout_ref", "algorithm.adv_estimator"),
    "NeMo RL": ("policy.megatron_cfg", "grpo"),
    "OLMo-core": ("train_module", "data_loader.global_batch_size"),
    "Primus": ("modules.pre_trainer", "work_group"),
    "Aleph Alpha Scaling": ("transformer_architecture", "topology.model_parallel_size"),
    "OpenRLHF": ("actor_num_nodes", "vllm_num_engines"),
    "SwissArmyTransformer": ("args.model_parallel_size",),
    "Megatron-LM's own YAML": ("language_model.num_layers",),
    "PaddlePaddle": ("sharding_parallel_degree",),
    "Weights & Biases, the record of a run": ("_wandb",),
    "MaxDiffusion": ("diffusion_scheduler_config",),
}
"""Keys by which a file is recognised."""

COMMANDS: Final[Mapping[str, str]] = {
    "colossalai": "ColossalAI",
    "flagscale": "FlagScale, whose configuration is the file to give",
    "levanter": "levanter, whose configuration is the file to give",
    "lingua": "lingua, whose configuration is the file to give",
    "verl": "verl",
    "openrlhf": "OpenRLHF",
    "olmo_core": "OLMo-core",
    "tune": "torchtune, whose configuration is the file to give",
    "train_fsdp2.py": "MindSpeed-LLM's FSDP2",
    "picotron": "picotron",
    "primus": "Primus",
    "launcher_scripts/main.py": "the NeMo launcher, whose configuration is the file to give",
    "benchmarks/benchmark_runner.py": "MaxText's benchmark runner, whose models are code",
    "benchmarks.benchmark_runner": "MaxText's benchmark runner, whose models are code",
    "maxtext.trainers.post_train.rl.train_rl": "MaxText's reinforcement learning",
    "maxdiffusion": "MaxDiffusion",
    "src.maxdiffusion": "MaxDiffusion",
    "paddle": "PaddlePaddle",
    "oneflow": "OneFlow",
    "oneflow_gpt.training": "OneFlow",
    "chatlearn_entrypoint.py": "ChatLearn",
    "tinyllama.py": "TinyLlama",
}
"""Programs and launchers by which a line is recognised."""


def refused(settings: Settings) -> str | None:
    """The framework of a configuration that is recognised but not read."""
    return next((name for name, marks in MARKS.items() if any(settings.has(mark) for mark in marks)), None)


def refuse(path: Path, settings: Settings) -> InputError:
    """What to say of a configuration that no dialect reads."""
    return _error(path, refused(settings))


def refused_command(program: str, launchers: Sequence[str]) -> str | None:
    """The framework of a line that is recognised but not read."""
    for mark, name in COMMANDS.items():
        lower = f"/{program.lower()}"
        if mark in launchers or lower.startswith(f"/{mark}") or f"/{mark}/" in lower or lower.endswith(f"/{mark}"):
            return name
    return None


MODES: Final = ("pretrain", "finetune", "inference")
"""What ``--mode`` of SwissArmyTransformer says (``sat/arguments.py`` of THUDM/SwissArmyTransformer)."""


def refused_options(options: Options, command: Command) -> str | None:
    """The framework of options that look like Megatron-LM's and mean something else."""
    mode = options.first("mode")
    is_of_sat = mode is not None and mode.value in MODES and options.first("model-parallel-size", "experiment-name")
    if "actor_num_nodes" in options and "vllm_num_engines" in options:
        return "OpenRLHF"
    is_of_sat = is_of_sat or options.first("inner-hidden-size", "max-sequence-length", "layernorm-order")
    return "SwissArmyTransformer" if is_of_sat or "SAT_HOME" in {**command.exported, **command.assignments} else None


def refuse_by_command(path: Path, name: str, launch: Launch) -> InputError:
    """What to say of a launch line that is recognised but not read."""
    return _error(path, name, f" (line {launch.command.line})")


def _error(path: Path, name: str | None, where: str = "") -> InputError:
    what = (
        f"a launch file of {name}, which is recognised but not read{where}" if name else "of no framework that is read"
    )
    return InputError(
        f"{path} is {what}",
        rule="a launch file is of a framework that is read",
        hint=f"read are {READ}; or put the plan by flags to `shardplan estimate`",
    )
