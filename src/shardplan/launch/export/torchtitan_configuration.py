"""A configuration in Python, next to the launch script of torchtitan where none that has a name says the plan.

It starts from a configuration of torchtitan and replaces what no option does: the layers of another model, converters
of low precision, how tokens reach their experts, stages, and the loss. Its code is ``data/launch/
torchtitan_configuration.txt``; what it is told stands in constants at its top, which are read again without running it.

Names: ``torchtitan/models/common/config_utils.py``, ``models/qwen3/__init__.py`` (a decoder of attention layers with
and without norms of queries and keys, dense or of experts), ``components/quantization`` and ``components/loss.py`` at
b5bcd76c and of 0.3.0.
"""

from __future__ import annotations

import re
from pprint import pformat
from typing import Any, Final

from shardplan.base.files import DATA
from shardplan.inputs.layers import Attention
from shardplan.inputs.plan import chunk_layers
from shardplan.launch.dialects.settings import NamedConfiguration
from shardplan.launch.export.details import FILL_IN, SILU, llama3_factor, yarn_of
from shardplan.launch.export.written import LaunchCase, head
from shardplan.physics.frameworks.stage_layers import torchtitan_layers

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


def text(case: LaunchCase, base: NamedConfiguration | None, lost: tuple[str, ...]) -> str:
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
    comment = "".join(f"# {line}\n" for line in head(case, lost, ()))
    return comment + _CODE.read_text(encoding="utf-8").replace("CONSTANTS", lines, 1).replace(_LENGTHS, length)


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
