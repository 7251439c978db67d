"""A plan as files of DeepSpeed or of Accelerate with a launch line that trains a Hugging Face model.

Names: ``deepspeed/runtime/config.py`` and ``deepspeed/runtime/zero/config.py`` at edaa7221; ``TrainingArguments`` and
``examples/pytorch/language-modeling/run_clm.py`` of Hugging Face transformers.

Names: ``src/accelerate/commands/config/config_args.py``, ``commands/launch.py`` and ``parallelism_config.py`` at
16cb6eb8; those of the plan are in ``data/launch/accelerate.yaml``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import yaml

from shardplan.launch.export.megatron_lm import training_placeholders
from shardplan.launch.export.shell import Given, Launcher, Word, blocking, exported, quoted
from shardplan.launch.export.written import Export, LaunchCase, Placeholder, comment_of, keys, losses, nested, pairs

MODEL_FEATURES: Final = ("mtp",)
"""Features that the models of transformers lack; all others follow from the named configuration."""
_PROGRAM: Final = (Given("TRANSFORMERS", after="/examples/pytorch/language-modeling/run_clm.py"),)


def training_options(values: Mapping[str, Any]) -> dict[str, Sequence[Sequence[Word]]]:
    """Arguments of the script: what the plan decides in ``values``, and the rest from the block."""
    return {
        "Plan": [[f"--{name}", *([] if value is True else [str(value)])] for name, value in values.items()],
        "Training": [
            ["--do_train"],
            ["--config_name", Given("MODEL")],
            ["--tokenizer_name", Given("TOKENIZER")],
            ["--dataset_name", Given("DATASET")],
            ["--max_steps", Given("TRAIN_STEPS")],
            ["--learning_rate", Given("LEARNING_RATE")],
            ["--warmup_steps", Given("WARMUP_STEPS")],
            ["--lr_scheduler_type", "cosine"],
            ["--output_dir", Given("CHECKPOINTS")],
        ],
    }


def placeholders(case: LaunchCase) -> list[Placeholder]:
    """Names that the script reads."""
    model = case.model
    size = f"{model.num_hidden_layers} layers of hidden size {model.hidden_size}"
    training = [each for each in training_placeholders(case) if each.name != "MIN_LEARNING_RATE"]
    return [
        Placeholder("TRANSFORMERS", "/path/to/transformers", "checkout with examples/pytorch"),
        Placeholder("MODEL", "/path/to/model", f"Hugging Face configuration with {size}"),
        Placeholder("TOKENIZER", "/path/to/tokenizer", "folder or name of a Hugging Face tokenizer"),
        Placeholder("DATASET", "/path/to/dataset", "name of a data set on the hub, or a folder"),
        Placeholder("CHECKPOINTS", "/path/to/checkpoints", "where checkpoints are written"),
        *training,
    ]


def relies_on(case: LaunchCase) -> tuple[str, ...]:
    """What the script and its model take for granted."""
    model = case.model
    size = f"{model.num_hidden_layers} layers, hidden size {model.hidden_size}, vocabulary {model.vocab_size}"
    return (
        f"the model is the one that MODEL names ({size})",
        "attention runs as transformers chooses it (scaled_dot_product_attention of PyTorch)",
    )


_OF_SCRIPT: Final = ("use_liger_kernel", "gradient_checkpointing")
"""Arguments of the Trainer of transformers."""


def export_deepspeed(case: LaunchCase) -> Export:
    """The JSON file with its launch script, and what they do not express."""
    lost, name = _lost(case, "blocking_launches", "sequence_length", "fused_loss"), f"{case.stem}.json"
    known = keys(case.options.options)
    document = _deepspeed_document(case, {key: value for key, value in known.items() if key not in _OF_SCRIPT})
    return exported(
        case,
        _PROGRAM,
        lost=lost,
        relies_on=relies_on(case),
        placeholders=placeholders(case),
        environment={**blocking(case), **_variables(case)},
        options={"DeepSpeed": [["--deepspeed", name]], **training_options(_script_values(case, known))},
        beside={name: json.dumps(document, indent=2) + "\n"},
    )


def _lost(case: LaunchCase, *said: str) -> tuple[str, ...]:
    features = [name for name in case.decoder.features if name not in MODEL_FEATURES]
    return losses(case, said=said, features=features)


def _variables(case: LaunchCase) -> dict[str, str]:
    """Options that are variables of the environment, which Accelerate reads."""
    return {key: value for key, value in pairs(case.options.options).items() if key.isupper()}


def _deepspeed_document(case: LaunchCase, values: dict[str, Any]) -> dict[str, Any]:
    """The DeepSpeed file. ``auto`` is what the Trainer of transformers fills from its own arguments."""
    document = nested(values)
    document["optimizer"]["params"] = {"lr": "auto", "weight_decay": "auto"}
    if case.job.optimizer == "adam":
        document["optimizer"]["params"] |= {"betas": "auto", "eps": "auto"}
    document["gradient_clipping"] = 1.0
    if document["zero_optimization"]["stage"] == 3:
        document["zero_optimization"]["stage3_gather_16bit_weights_on_model_save"] = True
    return document


def _script_values(case: LaunchCase, known: Mapping[str, Any]) -> dict[str, Any]:
    formats: dict[str, Any] = {} if case.job.precision == "fp32" else {case.job.precision: True}
    return {
        "block_size": case.job.sequence_length,
        "per_device_train_batch_size": case.plan.micro_batch_size,
        "gradient_accumulation_steps": case.num_microbatches,
        **formats,
        **{name: known[name] for name in _OF_SCRIPT if name in known},
    }


def export_accelerate(case: LaunchCase) -> Export:
    """The YAML file with its launch script, and what they do not express."""
    lost, values = _lost(case, "blocking_launches"), nested(keys(case.options.options))
    of_script = values.pop("script")
    document = yaml.safe_dump(_accelerate_document(case, values), sort_keys=False)
    return exported(
        case,
        _PROGRAM,
        lost=lost,
        relies_on=relies_on(case),
        placeholders=placeholders(case),
        environment=blocking(case),
        options=training_options(of_script),
        launcher=_accelerate_launcher(case),
        beside={f"{case.stem}.yaml": comment_of(case, lost) + document},
    )


def _accelerate_document(case: LaunchCase, values: dict[str, Any]) -> dict[str, Any]:
    return {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": values.pop("distributed_type"),
        "mixed_precision": values.pop("mixed_precision"),
        "num_machines": case.num_nodes,
        "num_processes": values.pop("num_processes"),
        "main_process_port": 29500,
        "rdzv_backend": "c10d" if case.num_nodes > 1 else "static",
        "main_training_function": "main",
        "use_cpu": False,
        **values,
    }


def _accelerate_launcher(case: LaunchCase) -> Launcher:
    words = ["accelerate", "launch", "--config_file", quoted(f"{case.stem}.yaml")]
    if case.num_nodes == 1:
        return Launcher(words=words)
    return Launcher(words=["srun", *words, "--main_process_ip", '"$HEAD_NODE"'], environment=("export HEAD_NODE",))
