"""What exports for Hugging Face training scripts share: ``run_clm.py`` and its arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from shardplan.launch.export.megatron_lm import training_placeholders
from shardplan.launch.export.shell import Given, Word
from shardplan.launch.export.written import LaunchCase, Placeholder

MODEL_FEATURES: Final = ("mtp",)
"""Features that the models of transformers lack; all others follow from the named configuration."""


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
        Placeholder(name="TRANSFORMERS", value="/path/to/transformers", about="checkout with examples/pytorch"),
        Placeholder(name="MODEL", value="/path/to/model", about=f"Hugging Face configuration with {size}"),
        Placeholder(name="TOKENIZER", value="/path/to/tokenizer", about="folder or name of a Hugging Face tokenizer"),
        Placeholder(name="DATASET", value="/path/to/dataset", about="name of a data set on the hub, or a folder"),
        Placeholder(name="CHECKPOINTS", value="/path/to/checkpoints", about="where checkpoints are written"),
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
