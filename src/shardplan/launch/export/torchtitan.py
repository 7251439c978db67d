"""A plan as a launch script of torchtitan: a named configuration, and every option of the plan over it.

Where no configuration that has a name says the plan, one is written in Python next to the script. It starts from a
configuration of torchtitan and replaces what no option does: the layers of another model, converters of low precision,
how tokens reach their experts, stages, and the loss. Its code is ``data/launch/torchtitan_configuration.txt``; what it
is told stands in constants at its top, which are read again without running it.

Names: ``torchtitan/config/configs.py``, ``models/common/config_utils.py``, ``models/qwen3/__init__.py`` (a decoder of
attention layers with and without norms of queries and keys, dense or of experts), ``components/quantization`` and
``components/loss.py`` at b5bcd76c and of 0.3.0, ``run_train.sh`` for the environment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pprint import pformat
from typing import Any, Final

from shardplan.base.fields import dataclass
from shardplan.base.files import DATA
from shardplan.inputs.layers import Attention
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import chunk_layers
from shardplan.inputs.readers.catalog import load_model
from shardplan.launch.dialects.settings import NamedConfiguration, named_configurations
from shardplan.launch.export.details import FILL_IN, SILU, llama3_factor, yarn_of
from shardplan.launch.export.shell import Given, Word, blocking, exported
from shardplan.launch.export.written import Export, LaunchCase, Placeholder, comment_of, flags, losses
from shardplan.physics.frameworks.stage_layers import torchtitan_layers

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
    beside = {f"{module_name(case)}.py": found.text} if found.text else {}
    missing = [name for name in ("rope_theta", "norm_eps") if getattr(case.model.details, name) is None]
    return exported(
        case,
        ["-m", "torchtitan.train"],
        lost=found.lost,
        relies_on=_relies_on(found),
        placeholders=_placeholders(case, found),
        environment={"PYTORCH_ALLOC_CONF": "expandable_segments:True", **blocking(case)},
        options=_options(case, found),
        beside=beside,
        to_fill=missing if found.text and not found.sets else (),
    )


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
        module=module_name(case), config=FUNCTION, sets=sets, text=configuration_text(case, base, lost), lost=lost
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
        Placeholder("MODULE", "your_package", "module with your configuration"),
        Placeholder("CONFIG", "your_configuration", "function in its config_registry"),
    ]
    return [
        Placeholder("TOKENIZER", "/path/to/hf/assets", "folder with the model's tokenizer files"),
        Placeholder("TRAIN_STEPS", str(case.num_steps or 1000), "optimizer steps"),
        *(named if found.is_open else []),
    ]


def _relies_on(found: ConfigurationSource) -> tuple[str, ...]:
    name = "your configuration" if found.is_open else f"the configuration {found.config}"
    return (
        f"data set, learning rate, validation and checkpoints are those of {name}: change it in Python",
        "gradients are reduced in fp32 (training.mixed_precision_reduce has no other value)",
    )


FUNCTION: Final = "training"
"""The function that torchtitan calls."""
BUILT_ON: Final = ("qwen3", "qwen3_32b")
"""The configuration whose layers are replaced where torchtitan has none of the model."""
FEATURES: Final = ("tied_embeddings", "qk_norm_head", "experts", "some_dense", "shared_experts")
"""What layers that are built here can have."""
DISPATCHERS: Final = {"alltoall": "standard"}
_LENGTHS, _LENGTH = "max_context_length", {"0.3.0": "max_seq_len"}
"""What the length of rotary positions is called, and what in an older version."""
_CODE: Final = DATA / "launch" / "torchtitan_configuration.txt"


def module_name(case: LaunchCase) -> str:
    """Name of the module, which Python can import whatever the script is called."""
    return f"configuration_{re.sub('[^A-Za-z0-9_]', '_', case.stem)}"


def can_be_built(case: LaunchCase) -> bool:
    """Whether the layers of the model can be put together from those of torchtitan."""
    decoder, details = case.decoder, case.model.details
    is_plain = isinstance(decoder.attention, Attention) and {*decoder.features} <= {*FEATURES} and all(decoder.rotary)
    return is_plain and details.hidden_act in (None, *SILU) and _rotary(case) is not None


def configuration_text(case: LaunchCase, base: NamedConfiguration | None, lost: tuple[str, ...]) -> str:
    """The module; ``base``: the configuration that trains this model, None: its layers are built."""
    software = case.job.software
    constants = {
        "BASE": BUILT_ON if base is None else (base.module, base.config),
        "MODEL": _model(case) if base is None else None,
        "PRECISION": "bf16" if case.job.precision == "fp32" else case.job.precision,
        "DISPATCHER": DISPATCHERS.get(software.moe_dispatcher, software.moe_dispatcher),
        "CHUNKED_LOSS": software.fused_loss,
        "COMPILED": software.kernels == "fused",
        "STAGES": stages_stated(case) or None,
    }
    lines = "\n".join(f"{name} = {pformat(value, sort_dicts=False, width=110)}" for name, value in constants.items())
    can = case.stack.can_run
    length = _LENGTH.get("" if can is None else can.version, _LENGTHS)
    code = _CODE.read_text(encoding="utf-8").replace("CONSTANTS", lines, 1)
    return comment_of(case, lost) + code.replace(_LENGTHS, length)


def stages_stated(case: LaunchCase) -> tuple[int, ...]:
    """Layers of every stage where torchtitan shares them otherwise by itself: what is left over goes to the first."""
    plan, number = case.plan, case.model.num_hidden_layers
    if plan.pp == 1:
        return ()
    planned = plan.stage_layers or chunk_layers(number, plan.pp * plan.vp, case.model.num_mtp_layers)
    ends = (1, 1) if "pipeline_parallel_first_stage_less_layers" not in " ".join(case.options.options) else (0, 0)
    is_said = not {"stage_layers", "vp"} & {*case.options.unsaid}
    return () if is_said and planned == torchtitan_layers(number, plan.pp * plan.vp, *ends) else planned


def plain_configuration(case: LaunchCase, known: NamedConfiguration | None) -> bool:
    """Whether a configuration that has a name says the plan: all of them have the loss in pieces."""
    software = case.job.software
    is_usual = not case.model.is_moe or software.moe_dispatcher == "alltoall"
    return known is not None and is_usual and software.fused_loss and not stages_stated(case)


def _model(case: LaunchCase) -> dict[str, Any]:
    """Dimensions by the names of ``config.json``, and details as arguments of torchtitan."""
    decoder, details = case.decoder, case.model.details
    attention, experts = decoder.attention, decoder.experts
    assert isinstance(attention, Attention)
    found = {
        "model_name": case.model.name,
        "num_hidden_layers": case.model.num_hidden_layers,
        "hidden_size": case.model.hidden_size,
        "intermediate_size": decoder.ffn_size,
        "num_attention_heads": attention.num_heads,
        "num_key_value_heads": attention.num_kv_heads,
        "head_dim": attention.head_dim,
        "vocab_size": case.model.vocab_size,
        "max_position_embeddings": max(case.model.max_position_embeddings, case.job.sequence_length),
        "qk_norm": attention.qk_norm == "head",
        "tie_word_embeddings": case.model.tie_word_embeddings,
        "norm_eps": FILL_IN if details.norm_eps is None else details.norm_eps,
        "rotary": _rotary(case),
    }
    return found | ({} if experts is None else _experts(case))


def _experts(case: LaunchCase) -> dict[str, Any]:
    experts, details = case.decoder.experts, case.model.details
    assert experts is not None
    return {
        "num_experts": experts.num_experts,
        "num_experts_per_tok": experts.top_k,
        "moe_intermediate_size": experts.intermediate_size,
        "shared_expert_intermediate_size": experts.shared_intermediate_size,
        "moe_layer_freq": tuple(int(has) for has in case.decoder.has_experts),
        "router": {
            "score_func": details.scoring_func or "softmax",
            "route_norm": True if details.norm_topk_prob is None else details.norm_topk_prob,
            "route_scale": details.routed_scaling_factor or 1.0,
        },
    }


def _rotary(case: LaunchCase) -> dict[str, Any] | None:
    """Base and scaling of rotary positions; None where torchtitan cannot state the scaling."""
    details = case.model.details
    base = {"theta": FILL_IN if details.rope_theta is None else details.rope_theta}
    factor, yarn = llama3_factor(case), yarn_of(case)
    if factor is not None:
        return base | {"scaling": "llama", "scaling_factor": factor}
    if yarn is not None and yarn.mscale is None and yarn.mscale_all_dim is None:
        numbers = {"beta_fast": yarn.beta_fast, "beta_slow": yarn.beta_slow, "truncate": yarn.truncate}
        whole = int(yarn.original_max_position_embeddings)
        return base | {"scaling": "yarn", "rope_factor": yarn.factor, "original_seq_len": whole, **numbers}
    return None if details.scaling_kind else base
