"""Details of a model that launch files state, and how Megatron's frameworks state the scaling of rotary positions.

Names: ``MLATransformerConfig`` of ``megatron/core/transformer/transformer_config.py`` and
``megatron/training/arguments.py`` at d98e8a64; ``src/megatron/bridge/models/gpt_provider.py`` and
``conversion/model_bridge.py`` at 067f987d.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from shardplan.inputs.layers import LatentAttention
from shardplan.launch.export.shell import Given, Word
from shardplan.launch.export.written import LaunchCase, Placeholder

FILL_IN: Final = "FILL_IN"
"""Value of a placeholder that has no usual value: no framework takes it for a number."""
SILU: Final = ("silu", "swish")
_LLAMA3: Final = {"low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8192}
"""Numbers of Llama 3.1 that frameworks have in their code, next to the factor that is an option."""


class Detail(NamedTuple):
    """A detail that a launch file must state."""

    field: str
    """Of ``ModelDetails``."""
    placeholder: str
    about: str


ROTARY_BASE: Final = Detail("rope_theta", "ROTARY_BASE", "rope_theta of the model's config.json")
NORM_EPSILON: Final = Detail("norm_eps", "NORM_EPSILON", "rms_norm_eps or layer_norm_eps of the model's config.json")


def detail_word(case: LaunchCase, detail: Detail, before: str = "") -> Word:
    """The value where it is known, the placeholder where not, behind ``before``."""
    value = getattr(case.model.details, detail.field)
    return Given(detail.placeholder, before) if value is None else f"{before}{number_text(value)}"


def number_text(value: float) -> str:
    """A number as options have it; whole ones without a point."""
    return f"{value:.12g}"


def needed(case: LaunchCase) -> tuple[Detail, ...]:
    """Details that launch files of a decoder state."""
    return (*((ROTARY_BASE,) if any(case.decoder.rotary) else ()), NORM_EPSILON)


def detail_placeholders(case: LaunchCase) -> list[Placeholder]:
    """Those of ``needed`` that are not known."""
    return [
        Placeholder(each.placeholder, FILL_IN, each.about)
        for each in needed(case)
        if getattr(case.model.details, each.field) is None
    ]


def llama3_factor(case: LaunchCase) -> float | None:
    """The factor of the scaling of Llama 3.1, whose other numbers frameworks have in their code; None: another."""
    known = dict(case.model.details.rope_scaling)
    if case.model.details.scaling_kind != "llama3" or any(known.get(key) != value for key, value in _LLAMA3.items()):
        return None
    factor = known.get("factor")
    return factor if isinstance(factor, float) else None


class Yarn(NamedTuple):
    """Numbers of YaRN (arXiv 2309.00071) as ``config.json`` names them; where one is not stated, its default there."""

    factor: float
    original_max_position_embeddings: float
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True
    """Whether the range between the two kinds of frequencies ends at whole numbers."""


def yarn_of(case: LaunchCase) -> Yarn | None:
    """The scaling of rotary positions where it is YaRN and nothing of it has another name."""
    known: dict[str, Any] = dict(case.model.details.rope_scaling)
    numbers = {name: value for name, value in known.items() if name not in ("rope_type", "type")}
    is_whole = {"factor", "original_max_position_embeddings"} <= {*numbers} <= {*Yarn._fields}
    return Yarn(**numbers) if case.model.details.scaling_kind == "yarn" and is_whole else None


def unlike_details(case: LaunchCase, said: Sequence[str]) -> tuple[str, ...]:
    """Known details that a framework's files do not state; ``said``: fields of ``ModelDetails`` that they do."""
    details, found = case.model.details, []
    if any(case.decoder.rotary) and details.scaling_kind and "rope_scaling" not in said:
        known = ((name, value) for name, value in details.rope_scaling if name != "rope_type")
        texts = (f"{name} {value if isinstance(value, str) else number_text(value)}" for name, value in known)
        found.append(f"scaling of rotary positions: {details.scaling_kind} ({', '.join(texts)})")
    if details.partial_rotary_factor not in (None, 1) and "partial_rotary_factor" not in said:
        found.append(f"rotary positions of {details.partial_rotary_factor:g} of every head's channels")
    if details.hidden_act is not None and "hidden_act" not in said:
        found.append(f"activation function {details.hidden_act}")
    if case.decoder.experts is not None and details.scoring_func not in (None, "softmax") and "router" not in said:
        found.append(f"{details.scoring_func} scores of the router")
    if case.decoder.experts is not None and details.norm_topk_prob is False and "norm_topk_prob" not in said:
        found.append("weights of a token's experts that do not add up to one")
    if case.decoder.experts is not None and details.routed_scaling_factor not in (None, 1) and "router" not in said:
        found.append(f"routed experts' outputs times {details.routed_scaling_factor:g}")
    return tuple(found)


def unknown_details(case: LaunchCase, activation: str) -> tuple[str, ...]:
    """Details that shardplan does not know; ``activation``: the function that the files take where none is stated."""
    details, experts = case.model.details, case.decoder.experts
    found = [] if details.hidden_act else [f"the activation function is {activation}: the model's is not known"]
    if any(case.decoder.rotary) and details.rope_theta is None:
        found.append("scaling of rotary positions: set it as the model has it")
    if experts is not None:
        score = "" if details.scoring_func else "score function, scaling and "
        found.append(f"the router's {score}balancing: set it as the model has it")
    return tuple(found)


def scaling_of_bridge(case: LaunchCase) -> dict[str, Any] | None:
    """Fields of Megatron-Bridge's model; None where it cannot state the scaling."""
    factor, yarn, is_latent = llama3_factor(case), yarn_of(case), isinstance(case.decoder.attention, LatentAttention)
    if factor is not None and not is_latent:
        return {"rope_scaling": True, "rope_scaling_factor": number_text(factor)}
    if yarn is not None:
        return _of_latent(yarn) if is_latent else _of_usual(yarn)
    return None if case.model.details.scaling_kind else {}


def scaling_of_megatron_lm(case: LaunchCase) -> list[Sequence[str]] | None:
    """Options of Megatron-LM; None where they cannot state the scaling.

    The numbers of YaRN that are no options have the defaults of ``MLATransformerConfig``; for attention that is not
    latent the factor is no option.
    """
    factor, yarn, is_latent = llama3_factor(case), yarn_of(case), isinstance(case.decoder.attention, LatentAttention)
    if factor is not None and not is_latent:
        return [["--use-rope-scaling", "--rope-scaling-factor", number_text(factor)]]
    if yarn is None or not is_latent:
        return None if case.model.details.scaling_kind else []
    found = _of_latent(yarn)
    fixed = {"original_max_position_embeddings": "4096", "beta_fast": "32", "beta_slow": "1"}
    if found is None or any(found[name] != value for name, value in fixed.items()):
        return None
    return [[f"--{name.replace('_', '-')}", value] for name, value in found.items() if name not in fixed]


def _of_latent(yarn: Yarn) -> dict[str, str] | None:
    """Fields of latent attention, which ends the range of frequencies at whole numbers."""
    if not yarn.truncate:
        return None
    return {
        "rope_type": "yarn",
        "rotary_scaling_factor": number_text(yarn.factor),
        "original_max_position_embeddings": number_text(yarn.original_max_position_embeddings),
        "beta_fast": number_text(yarn.beta_fast),
        "beta_slow": number_text(yarn.beta_slow),
        "mscale": number_text(1 if yarn.mscale is None else yarn.mscale),
        "mscale_all_dim": number_text(0 if yarn.mscale_all_dim is None else yarn.mscale_all_dim),
    }


def _of_usual(yarn: Yarn) -> dict[str, Any]:
    """Fields of other attention."""
    values = {
        "rotary_scaling_factor": yarn.factor,
        "original_max_position_embeddings": yarn.original_max_position_embeddings,
        "beta_fast": yarn.beta_fast,
        "beta_slow": yarn.beta_slow,
        "mscale": yarn.mscale,
        "mscale_all_dim": yarn.mscale_all_dim,
    }
    numbers = {f"yarn_{name}": number_text(value) for name, value in values.items() if value is not None}
    return {"position_embedding_type": "yarn", **numbers, "yarn_correction_range_round_to_int": yarn.truncate}
