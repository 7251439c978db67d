"""FlagScale: Megatron-LM's options in two YAML files, the experiment and the training."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from shardplan.launch.dialects.megatron_core.megatron import megatron_facts
from shardplan.launch.dialects.megatron_core.megatron_options import BARE
from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.settings import Option, Options, Settings, as_option, state
from shardplan.launch.dialects.values import degree, switch

NAME: Final = "flagscale"
VERSION: Final = "main of 2025 (da4935ec)"


def is_flagscale(settings: Settings) -> bool:
    """Whether a document is an experiment of FlagScale, or the training of one."""
    is_experiment = settings.has("experiment.task") and (settings.has("experiment.runner") or settings.has("train"))
    return is_experiment or _is_training(settings)


_OTHER: Final = re.compile(r"rwkv|mamba|llava|qwen2_5_vl|pi0|robo|diffusion|[/_]emu")
"""In the name of a program, or of a training's folders: layers that the options of Megatron-LM do not describe."""


def _is_training(settings: Settings) -> bool:
    return settings.has("system") and settings.has("model.micro_batch_size")


def flagscale_facts(facts: Facts, settings: Settings) -> None:
    """Reads an experiment with the training that it is joined with, or that training alone."""
    if _is_training(settings):
        facts.miss("num_accelerators", ("the experiment that names this training: --gpus",))
        settings = Settings({f"train.{key}": each for key, each in settings.items()})
    if settings.value("experiment.task.backend") not in {None, "megatron"}:
        facts.doubt(f"{settings['experiment.task.backend'].place} {settings.value('experiment.task.backend')}")
    entry = settings.first("experiment.task.entrypoint")
    program = str(entry.value or "" if entry is not None else "").rpartition("/")[2] or facts.file
    if _OTHER.search(program.lower()):
        facts.miss("model", (f"{entry.said if entry is not None else facts.file}: layers of another kind: --model",))
    state(facts, "nodes", settings.first("experiment.runner.nnodes"), degree)
    state(facts, "per_node", settings.first("experiment.runner.nproc_per_node"), degree)
    nodes, each = facts.number("nodes"), facts.number("per_node")
    if nodes and each:
        facts.derive("num_accelerators", nodes * each, f"{nodes} nodes x {each} processes")
    options = {option.name: option for option in _options(settings)}
    if not options:
        facts.open = ("the file of the training (defaults)",)
    if settings.value("action") == "auto_tune":
        for name, key in TUNED.items():
            chosen = settings.first(f"experiment.auto_tuner.space.{name}")
            if chosen is not None:
                facts.miss(key, (f"{chosen.place}: the tuner chooses",))
    hetero = settings.first("train.system.hetero.enable_hetero", "train.model.hetero.enable_hetero")
    if hetero is not None and switch(hetero.value):
        for key in ("tp", "pp", "dp", "cp", "ep", "stage_layers", "num_accelerators", "recompute"):
            facts.miss(key, (f"{hetero.place}: stages of different degrees have no counterpart",))
    megatron_facts(facts, Options(given=options, repeated={}))


def _options(settings: Settings) -> Iterator[Option]:
    """Settings of the training as options: true is a bare one, false and null are none."""
    for key, setting in settings.items():
        if not key.startswith(("train.system.", "train.model.", "train.data.")):
            continue
        name = key.rpartition(".")[2].replace("_", "-")
        off = (setting.value is None or setting.value is False) and not setting.needs
        if off or (re.search(r"\.(hetero|logging|tokenizer|checkpoint)\.", key) and name not in OF_TOKENIZER):
            continue
        option = as_option(setting, name)
        yield replace(option, words=()) if name in BARE else option


OF_MODEL: Final = ("micro_batch_size", "global_batch_size", "seq_length", "num_layers")
"""Keys of the section ``model``; those of plans besides are of ``system``."""


def as_settings(options: str) -> tuple[str, ...]:
    """Options of Megatron-LM as keys of the training's file.

    >>> as_settings("--micro-batch-size 2 --overlap-grad-reduce")
    ('model.micro_batch_size: 2', 'system.overlap_grad_reduce: true')
    """
    found = (each.partition(" ") for each in re.split(r"(?:^| +)--(?=[a-z])", options) if each)
    pairs = ((name.replace("-", "_"), value.strip() or "true") for name, _, value in found)
    return tuple(f"{'model' if name in OF_MODEL else 'system'}.{name}: {value}" for name, value in pairs)


TUNED: Final = {
    "tensor_model_parallel_size": "tp", "pipeline_model_parallel_size": "pp", "context_parallel_size": "cp",
    "expert_model_parallel_size": "ep", "num_layers_per_virtual_pipeline_stage": "vp", "use_recompute": "recompute",
    "micro_batch_size": "micro_batch_size", "use_distributed_optimizer": "sharding",
    "sequence_parallel": "sequence_parallel",
}  # fmt: skip
"""What ``action: auto_tune`` chooses from a space."""
OF_TOKENIZER: Final = ("tokenizer-type", "tokenizer-path", "vocab-size")
