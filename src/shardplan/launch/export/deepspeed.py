"""A plan as a DeepSpeed file and a launch line that trains a Hugging Face model with it.

Names: ``deepspeed/runtime/config.py`` and ``deepspeed/runtime/zero/config.py`` at edaa7221; ``TrainingArguments`` and
``examples/pytorch/language-modeling/run_clm.py`` of Hugging Face transformers.
"""

from __future__ import annotations

import json
from typing import Any, Final

from shardplan.launch.export.hugging_face import MODEL_FEATURES, placeholders, relies_on, training_options
from shardplan.launch.export.shell import Given, LaunchText, blocking, exported
from shardplan.launch.export.written import Export, LaunchCase, keys, losses, nested

SAID: Final = ("blocking_launches", "sequence_length", "fused_loss")
_NOT_JSON: Final = ("mixed_precision",)
"""Keys of Accelerate, not of DeepSpeed."""
_OF_SCRIPT: Final = ("use_liger_kernel",)
"""Arguments of the Trainer of transformers."""


def export(case: LaunchCase) -> Export:
    """The JSON file with its launch script, and what they do not express."""
    features = [name for name in case.decoder.features if name not in MODEL_FEATURES]
    lost = (*_in_python(case), *losses(case, said=SAID, features=features))
    relied = relies_on(case)
    name = f"{case.stem}.json"
    script = LaunchText(
        lost=lost,
        relies_on=relied,
        placeholders=placeholders(case),
        environment=blocking(case),
        options={"DeepSpeed": [["--deepspeed", name]], **training_options(_script_values(case))},
        program=[Given("TRANSFORMERS", after="/examples/pytorch/language-modeling/run_clm.py")],
    )
    return exported(case, script, beside={name: json.dumps(_document(case), indent=2) + "\n"})


def _document(case: LaunchCase) -> dict[str, Any]:
    """The DeepSpeed file. ``auto`` is what the Trainer of transformers fills from its own arguments."""
    known = keys(case.options.options)
    values = {name: value for name, value in known.items() if name not in (*_NOT_JSON, *_OF_SCRIPT)}
    document = nested(values)
    document["optimizer"]["params"] = {"lr": "auto", "weight_decay": "auto"}
    if case.job.optimizer == "adam":
        document["optimizer"]["params"] |= {"betas": "auto", "eps": "auto"}
    document["gradient_clipping"] = 1.0
    if document["zero_optimization"]["stage"] == 3:
        document["zero_optimization"]["stage3_gather_16bit_weights_on_model_save"] = True
    return document


def _in_python(case: LaunchCase) -> tuple[str, ...]:
    """Calls that a training script makes: neither the file nor run_clm.py has them."""
    calls = [each for each in case.options.options if ": " not in each and "gradient_checkpointing" not in each]
    moved = [each for each in case.options.options if each.split(":")[0] in _NOT_JSON]
    return tuple(f"{_field(case, each)}: in the training script, {each}" for each in (*calls, *moved))


def _field(case: LaunchCase, call: str) -> str:
    """The field that a call decides, with its value."""
    return f"pp {case.plan.pp}" if "num_stages" in call else f"precision {case.job.precision}"


def _script_values(case: LaunchCase) -> dict[str, Any]:
    is_recomputed = "model.gradient_checkpointing_enable()" in case.options.options
    of_rest = "bf16" if case.job.precision == "fp8" else case.job.precision
    formats: dict[str, Any] = {} if of_rest == "fp32" else {of_rest: True}
    return {
        "block_size": case.job.sequence_length,
        "per_device_train_batch_size": case.plan.micro_batch_size,
        "gradient_accumulation_steps": case.num_microbatches,
        **formats,
        **({"gradient_checkpointing": True} if is_recomputed else {}),
        **({"use_liger_kernel": True} if case.job.software.fused_loss else {}),
    }
