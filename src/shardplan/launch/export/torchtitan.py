"""A plan as a launch script of torchtitan: a named configuration, and every option of the plan over it.

Names: ``torchtitan/config/configs.py`` at b5bcd76c and of 0.3.0, ``run_train.sh`` for the environment.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final, NamedTuple

from shardplan.files import DATA, shipped_document
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.readers.catalog import load_model
from shardplan.launch.export.case import LaunchCase
from shardplan.launch.export.shell import Given, LaunchText, Word, bash
from shardplan.launch.export.words import flags
from shardplan.launch.export.written import Export, Placeholder, head, losses

SAID: Final = ("kernels", "cuda_graphs", "blocking_launches")


class KnownConfiguration(NamedTuple):
    """A function of torchtitan that gives a model of a size."""

    module: str
    config: str
    model: str
    precision: str = ""


def export(case: LaunchCase) -> Export:
    """The launch script, and what torchtitan does not express."""
    found = _configuration(case)
    lost = _losses(case, found)
    relied = _relies_on(found)
    script = LaunchText(
        head=head(case, lost, relied),
        placeholders=_placeholders(case, found),
        environment={"PYTORCH_ALLOC_CONF": "expandable_segments:True", **_blocking(case)},
        options=_options(case, found),
        program=["-m", "torchtitan.train"],
    )
    return Export(
        framework=case.stack.label,
        files={f"{case.stem}.sh": bash(case, script)},
        not_expressed=lost,
        placeholders=tuple(each.name for each in script.placeholders),
        relies_on=relied,
    )


@cache
def configurations() -> tuple[KnownConfiguration, ...]:
    """Those on record."""
    document = shipped_document(DATA / "launch" / "torchtitan.yaml")
    return tuple(KnownConfiguration(**each) for each in document["configurations"])


def _configuration(case: LaunchCase) -> KnownConfiguration | None:
    """One that trains this model, in this precision where there is one."""
    alike = [each for each in configurations() if _is_same(load_model(each.model), case.model)]
    exact = [each for each in alike if each.precision == case.job.precision]
    return next((each for each in (*exact, *alike) if each.precision in ("", case.job.precision)), None)


def _is_same(known: ModelConfig, model: ModelConfig) -> bool:
    return (known.hidden_size, known.vocab_size, known.layers) == (model.hidden_size, model.vocab_size, model.layers)


def _losses(case: LaunchCase, found: KnownConfiguration | None) -> tuple[str, ...]:
    named: tuple[str, ...] = ()
    if found is None:
        d = case.decoder
        size = f"{case.model.num_hidden_layers} layers of hidden size {case.model.hidden_size}, {d.ffn_size} wide"
        named = (f"the model: torchtitan has no configuration of {case.model.name} ({size}); CONFIG must name yours",)
    said = (*SAID, "precision") if found is not None and found.precision else SAID
    known = [name for name in case.decoder.features if found is None or name != "mtp"]  # the model is named as a whole
    return (*named, *losses(case, said=said, features=known))


def _options(case: LaunchCase, found: KnownConfiguration | None) -> dict[str, Sequence[Sequence[Word]]]:
    """The subcommand of activation checkpointing comes last."""
    of_plan = flags(case.options.options)
    last = [words for words in of_plan if words[0].startswith("activation-checkpoint:")]
    return {
        "Model": [
            ["--module", found.module if found else Given("MODULE")],
            ["--config", found.config if found else Given("CONFIG")],
        ],
        "Training": [["--hf_assets_path", Given("TOKENIZER")], ["--training.steps", Given("TRAIN_STEPS")]],
        "Precision and kernels": _kernels(case, of_plan),
        "Plan": [words for words in of_plan if words not in last] + last,
    }


def _kernels(case: LaunchCase, of_plan: Sequence[Sequence[str]]) -> list[Sequence[Word]]:
    software, found = case.job.software, [["--training.dtype", "float32"]]
    if software.kernels == "fused" and ["--compile.enable"] not in of_plan:
        found.append(["--compile.enable"])
    if software.cuda_graphs == "none":
        found.append(["--training.disable_cuda_graphs"])
    return list(found)


def _blocking(case: LaunchCase) -> dict[str, str]:
    return {"CUDA_LAUNCH_BLOCKING": "1"} if case.job.software.blocking_launches else {}


def _placeholders(case: LaunchCase, found: KnownConfiguration | None) -> list[Placeholder]:
    named = [
        Placeholder(name="MODULE", value="your_package", about="module with your configuration"),
        Placeholder(name="CONFIG", value="your_configuration", about="function in its config_registry"),
    ]
    return [
        Placeholder(name="TOKENIZER", value="/path/to/hf/assets", about="folder with the model's tokenizer files"),
        Placeholder(name="TRAIN_STEPS", value=str(case.num_steps or 1000), about="optimizer steps"),
        *([] if found else named),
    ]


def _relies_on(found: KnownConfiguration | None) -> tuple[str, ...]:
    name = "your configuration" if found is None else f"the configuration {found.config}"
    return (
        f"data set, learning rate, validation and checkpoints are those of {name}: change it in Python",
        "gradients are reduced in fp32 (training.mixed_precision_reduce has no other value)",
    )
