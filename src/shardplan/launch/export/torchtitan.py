"""A plan as a launch script of torchtitan: a named configuration, and every option of the plan over it.

Names: ``torchtitan/config/configs.py`` at b5bcd76c and of 0.3.0, ``run_train.sh`` for the environment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from shardplan.base.fields import dataclass
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.readers.catalog import load_model
from shardplan.launch.dialects.settings import named_configurations
from shardplan.launch.export.shell import Given, LaunchText, Word, blocking, exported
from shardplan.launch.export.torchtitan_configuration import (
    FEATURES,
    FUNCTION,
    can_be_built,
    module_name,
    plain_configuration,
    stages_stated,
    text,
)
from shardplan.launch.export.written import Export, LaunchCase, Placeholder, flags, losses

_ASYNC: Final = "compile.enable_async_tensor_parallel"
SAID: Final = ("kernels", "cuda_graphs", "blocking_launches")


@dataclass(frozen=True, kw_only=True)
class ConfigurationSource:
    """Where torchtitan takes the configuration from, over which the line states the plan."""

    module: Word
    config: Word
    sets: Mapping[str, object]
    """Options that it sets."""
    text: str = ""
    """What stands in the module, where it is written next to the script."""
    lost: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether a user names it."""
        return isinstance(self.module, Given)


def export(case: LaunchCase) -> Export:
    """The launch script, the configuration where none with a name will do, and what torchtitan does not express."""
    found = _source(case)
    relied = _relies_on(found)
    script = LaunchText(
        lost=found.lost,
        relies_on=relied,
        placeholders=_placeholders(case, found),
        environment={"PYTORCH_ALLOC_CONF": "expandable_segments:True", **blocking(case)},
        options=_options(case, found),
        program=["-m", "torchtitan.train"],
    )
    beside = {f"{module_name(case)}.py": found.text} if found.text else {}
    missing = [name for name in ("rope_theta", "norm_eps") if getattr(case.model.details, name) is None]
    return exported(case, script, beside=beside, to_fill=missing if found.text and not found.sets else ())


def _source(case: LaunchCase) -> ConfigurationSource:
    """A configuration with a name, one that is written here, or else one that a user has."""
    precision = "bf16" if case.job.precision == "fp32" else case.job.precision  # fp32 is an option over those in bf16
    alike = {each.precision: each for each in named_configurations() if _is_same(load_model(each.model), case.model)}
    features = [name for name in case.decoder.features if name != "mtp"]  # the model is named as a whole
    if precision in alike and plain_configuration(case, alike[precision]):
        known, lost = alike[precision], losses(case, said=(*SAID, "precision"), features=features)
        return ConfigurationSource(module=known.module, config=known.config, sets=known.sets, lost=lost)
    base = alike.get("bf16")
    if base is None and not can_be_built(case):
        return ConfigurationSource(module=Given("MODULE"), config=Given("CONFIG"), sets={}, lost=_of_ones_own(case))
    stages = ("stage_layers", "vp") if stages_stated(case) else ()
    lost = losses(case, said=(*SAID, "precision", *stages), features=FEATURES if base is None else features)
    sets = {} if base is None else base.sets
    return ConfigurationSource(
        module=module_name(case), config=FUNCTION, sets=sets, text=text(case, base, lost), lost=lost
    )


def _is_same(known: ModelConfig, model: ModelConfig) -> bool:
    return (known.hidden_size, known.vocab_size, known.layers) == (model.hidden_size, model.vocab_size, model.layers)


def _of_ones_own(case: LaunchCase) -> tuple[str, ...]:
    """What a configuration decides that a user writes: torchtitan has no layers of the model's kind."""
    software, d, stages = case.job.software, case.decoder, stages_stated(case)
    size = f"{case.model.num_hidden_layers} layers of hidden size {case.model.hidden_size}, {d.ffn_size} wide"
    what = f"{case.model.name} in {case.job.precision} ({size})"
    found = [
        f"the model: torchtitan has no layers like those of {what}; CONFIG must name yours",
        f"precision {case.job.precision}: that of your configuration",
        f"optimizer {case.job.optimizer}: that of your configuration",
    ]
    if case.model.is_moe and software.moe_dispatcher != "alltoall":
        backend = f"model_registry(moe_comm_backend='{software.moe_dispatcher}')"
        found.append(f"moe dispatcher {software.moe_dispatcher}: {backend} in the configuration")
    if software.fused_loss:
        found.append("fused loss: loss=ChunkedLossWrapper.Config(...) in the configuration")
    if stages:
        found.append(f"stage layers {','.join(map(str, stages))}: module_fqns_per_model_part in the configuration")
    return (*found, *losses(case, said=(*SAID, "precision", "stage_layers"), features=[*d.features]))


def _options(case: LaunchCase, found: ConfigurationSource) -> dict[str, Sequence[Sequence[Word]]]:
    """The subcommand of activation checkpointing comes last."""
    of_plan = flags(case.options.options)
    last = [words for words in of_plan if words[0].startswith("activation-checkpoint:")]
    return {
        "Model": [
            ["--module", found.module],
            ["--config", found.config],
        ],
        "Training": [["--hf_assets_path", Given("TOKENIZER")], ["--training.steps", Given("TRAIN_STEPS")]],
        "Precision and kernels": _kernels(case, of_plan, found),
        "Plan": [words for words in of_plan if words not in last] + _without_experts(case, found) + last,
    }


def _without_experts(case: LaunchCase, found: ConfigurationSource) -> list[Sequence[str]]:
    """Expert parallelism of a dense model, where the configuration may set it."""
    return [["--parallelism.expert_parallel_degree", "1"]] if found.is_open and not case.model.is_moe else []


def _kernels(case: LaunchCase, of_plan: Sequence[Sequence[str]], found: ConfigurationSource) -> list[Sequence[Word]]:
    """Formats and compilation, also where the configuration sets them otherwise."""
    software, words = case.job.software, [["--training.dtype", "float32"]]
    is_compiled = software.kernels == "fused"
    if is_compiled and ["--compile.enable"] not in of_plan:
        words.append(["--compile.enable"])
    if is_compiled and "compile.components" in found.sets:
        words.append(["--compile.components", "model,loss"])
    if not is_compiled and (found.text or found.is_open or "compile.enable" in found.sets):
        words.append(["--compile.no_enable"])
    if ["--compile.enable_async_tensor_parallel"] not in of_plan and (found.is_open or _ASYNC in found.sets):
        words.append(["--compile.no_enable_async_tensor_parallel"])
    if case.plan.offload == "none" and found.is_open:
        words.append(["--training.no_enable_cpu_offload"])
    return list(words)


def _placeholders(case: LaunchCase, found: ConfigurationSource) -> list[Placeholder]:
    named = [
        Placeholder(name="MODULE", value="your_package", about="module with your configuration"),
        Placeholder(name="CONFIG", value="your_configuration", about="function in its config_registry"),
    ]
    return [
        Placeholder(name="TOKENIZER", value="/path/to/hf/assets", about="folder with the model's tokenizer files"),
        Placeholder(name="TRAIN_STEPS", value=str(case.num_steps or 1000), about="optimizer steps"),
        *(named if found.is_open else []),
    ]


def _relies_on(found: ConfigurationSource) -> tuple[str, ...]:
    name = "your configuration" if found.is_open else f"the configuration {found.config}"
    return (
        f"data set, learning rate, validation and checkpoints are those of {name}: change it in Python",
        "gradients are reduced in fp32 (training.mixed_precision_reduce has no other value)",
    )
