"""A plan as a launch script of torchtitan: a named configuration, and every option of the plan over it.

Names: ``torchtitan/config/configs.py`` at b5bcd76c and of 0.3.0, ``run_train.sh`` for the environment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import chunk_layers
from shardplan.inputs.readers.catalog import load_model
from shardplan.launch.dialects.settings import NamedConfiguration, named_configurations
from shardplan.launch.export.shell import Given, LaunchText, Word, blocking, exported
from shardplan.launch.export.written import Export, LaunchCase, Placeholder, flags, losses
from shardplan.physics.frameworks.stage_layers import torchtitan_layers

_ASYNC: Final = "compile.enable_async_tensor_parallel"
SAID: Final = ("kernels", "cuda_graphs", "blocking_launches")


def export(case: LaunchCase) -> Export:
    """The launch script, and what torchtitan does not express."""
    found = _configuration(case)
    lost = (*_losses(case, found), *_of_configuration(case))
    relied = _relies_on(found)
    script = LaunchText(
        lost=lost,
        relies_on=relied,
        placeholders=_placeholders(case, found),
        environment={"PYTORCH_ALLOC_CONF": "expandable_segments:True", **blocking(case)},
        options=_options(case, found),
        program=["-m", "torchtitan.train"],
    )
    return exported(case, script)


def _configuration(case: LaunchCase) -> NamedConfiguration | None:
    """One that trains this model in this precision; fp32 is an option over those in bf16."""
    precision = "bf16" if case.job.precision == "fp32" else case.job.precision
    alike = (each for each in named_configurations() if _is_same(load_model(each.model), case.model))
    return next((each for each in alike if each.precision == precision), None)


def _is_same(known: ModelConfig, model: ModelConfig) -> bool:
    return (known.hidden_size, known.vocab_size, known.layers) == (model.hidden_size, model.vocab_size, model.layers)


def _of_configuration(case: LaunchCase) -> tuple[str, ...]:
    """What a configuration function decides and no option says."""
    software, found = case.job.software, []
    if case.model.is_moe and software.moe_dispatcher != "alltoall":
        backend = f"model_registry(moe_comm_backend='{software.moe_dispatcher}')"
        found.append(f"moe dispatcher {software.moe_dispatcher}: {backend} in the configuration")
    if software.fused_loss:
        found.append("fused loss: loss=ChunkedLossWrapper.Config(...) in the configuration")
    return tuple(found)


def _losses(case: LaunchCase, found: NamedConfiguration | None) -> tuple[str, ...]:
    named: tuple[str, ...] = ()
    if found is None:
        d = case.decoder
        size = f"{case.model.num_hidden_layers} layers of hidden size {case.model.hidden_size}, {d.ffn_size} wide"
        what = f"{case.model.name} in {case.job.precision} ({size})"
        named = (
            f"the model: torchtitan has no configuration of {what}; CONFIG must name yours",
            f"precision {case.job.precision}: that of your configuration",
            f"optimizer {case.job.optimizer}: that of your configuration",
        )
    said = (*SAID, "precision")
    known = [name for name in case.decoder.features if found is None or name != "mtp"]  # the model is named as a whole
    return (*named, *_stages(case), *losses(case, said=said, features=known))


def _stages(case: LaunchCase) -> tuple[str, ...]:
    """Layers of a pipeline that torchtitan shares otherwise: what is left over goes to the first stages."""
    plan, number = case.plan, case.model.num_hidden_layers
    if plan.pp == 1 or plan.stage_layers is not None:
        return ()
    planned = chunk_layers(number, plan.pp * plan.vp, case.model.num_mtp_layers)
    ends = (1, 1) if "pipeline_parallel_first_stage_less_layers" not in " ".join(case.options.options) else (0, 0)
    shared = torchtitan_layers(number, plan.pp * plan.vp, *ends)
    words = (",".join(map(str, layers)) for layers in (planned, shared))
    return () if shared == planned else ("stage layers {}: torchtitan has {}".format(*words),)


def _options(case: LaunchCase, found: NamedConfiguration | None) -> dict[str, Sequence[Sequence[Word]]]:
    """The subcommand of activation checkpointing comes last."""
    of_plan = flags(case.options.options)
    last = [words for words in of_plan if words[0].startswith("activation-checkpoint:")]
    return {
        "Model": [
            ["--module", found.module if found else Given("MODULE")],
            ["--config", found.config if found else Given("CONFIG")],
        ],
        "Training": [["--hf_assets_path", Given("TOKENIZER")], ["--training.steps", Given("TRAIN_STEPS")]],
        "Precision and kernels": _kernels(case, of_plan, found),
        "Plan": [words for words in of_plan if words not in last] + _without_experts(case, found) + last,
    }


def _without_experts(case: LaunchCase, named: NamedConfiguration | None) -> list[Sequence[str]]:
    """Expert parallelism of a dense model, where the configuration may set it."""
    is_open = named is None and not case.model.is_moe
    return [["--parallelism.expert_parallel_degree", "1"]] if is_open else []


def _kernels(
    case: LaunchCase, of_plan: Sequence[Sequence[str]], named: NamedConfiguration | None
) -> list[Sequence[Word]]:
    """Formats and compilation, also where the configuration sets them otherwise."""
    software, words = case.job.software, [["--training.dtype", "float32"]]
    sets = {} if named is None else named.sets
    is_compiled = software.kernels == "fused"
    if is_compiled and ["--compile.enable"] not in of_plan:
        words.append(["--compile.enable"])
    if is_compiled and "compile.components" in sets:
        words.append(["--compile.components", "model,loss"])
    if not is_compiled and (named is None or "compile.enable" in sets):
        words.append(["--compile.no_enable"])
    if ["--compile.enable_async_tensor_parallel"] not in of_plan and (named is None or _ASYNC in sets):
        words.append(["--compile.no_enable_async_tensor_parallel"])
    if case.plan.offload == "none" and named is None:
        words.append(["--training.no_enable_cpu_offload"])
    return list(words)


def _placeholders(case: LaunchCase, found: NamedConfiguration | None) -> list[Placeholder]:
    named = [
        Placeholder(name="MODULE", value="your_package", about="module with your configuration"),
        Placeholder(name="CONFIG", value="your_configuration", about="function in its config_registry"),
    ]
    return [
        Placeholder(name="TOKENIZER", value="/path/to/hf/assets", about="folder with the model's tokenizer files"),
        Placeholder(name="TRAIN_STEPS", value=str(case.num_steps or 1000), about="optimizer steps"),
        *([] if found else named),
    ]


def _relies_on(found: NamedConfiguration | None) -> tuple[str, ...]:
    name = "your configuration" if found is None else f"the configuration {found.config}"
    return (
        f"data set, learning rate, validation and checkpoints are those of {name}: change it in Python",
        "gradients are reduced in fp32 (training.mixed_precision_reduce has no other value)",
    )
