"""Options of measured runs that say what is computed again and what waits on the host, MaxText's among them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from shardplan.calibration.runs.choices import Choices
from shardplan.words import folded, guess, one_of, words

MOST_DIGITS: Final = 6
LAYERS: Final = "a whole number of layers of each stage"


def is_count(text: str) -> bool:
    """Whether the text is a whole number of a size that a model may have."""
    return text.isdecimal() and len(text) <= MOST_DIGITS


def recompute_layers(choices: Choices, key: str, value: str) -> None:
    """Layers of each stage that recompute."""
    if is_count(value):
        choices.state(key, "plan", recompute_num_layers=int(value))
    else:
        choices.not_known(key, value, LAYERS)


def offloaded_layers(choices: Choices, key: str, value: str) -> None:
    """Activations of this number of layers of each stage."""
    if not is_count(value):
        choices.not_known(key, value, LAYERS)
        return
    kind, layers = ("activations", int(value)) if int(value) else ("none", None)
    choices.state(key, "plan", offload=kind, offload_num_layers=layers)


def remat_policy(choices: Choices, key: str, value: str) -> None:
    """MaxText's named policies; the tensors of ``custom`` are in ``remat_tensors``."""
    policy = POLICIES.get(folded(value))
    if policy is not None:
        choices.state(key, "plan", recompute=policy)
    elif folded(value) != "custom":
        choices.not_known(key, value, one_of((*NAMES.values(), "custom")), guess(value, NAMES))


MODULES: Final = {
    "full": "full",
    "layernorm,activation,core_attn": "minimal",
    "layernorm,activation,core_attn,mlp": "qkv_proj_offloaded save_qkv_proj save_dot_except_mlp",
    "layernorm,activation,mlp": "save_dot_with_context_except_mlp",
    "layernorm,activation": "minimal_with_context",
}
"""Modules that MaxText's policies compute again (a policy is named after what it keeps)."""

POLICIES: Final[Mapping[str, str]] = words(MODULES)
NAMES: Final = {folded(name): name for listed in MODULES.values() for name in listed.split()}


def remat_tensors(choices: Choices, key: str, value: str) -> None:
    """Named tensors that stay on the device or wait on the host; all others are computed again."""
    listed = [word.strip() for word in value.split(",") if word.strip()]
    items = [re.fullmatch(r"([^:\s]+) *: *(device|offload|remat)", word) for word in listed]
    places = {item[1]: item[2] for item in items if item}
    if not items or len(places) < len(items):
        choices.not_known(key, value, "a comma list of name:device, name:offload or name:remat, each name once")
        return
    choices.state(key, "plan", recompute=_recomputed({name for name, place in places.items() if place != "remat"}))


PROJECTIONS: Final = frozenset({"query_proj", "key_proj", "value_proj"})


def _recomputed(kept: set[str]) -> str:
    """What is computed again where these tensors are kept."""
    if not (kept >= PROJECTIONS or "qkv_proj" in kept):
        return "full"
    modules = ["layernorm", "activation"]
    modules += [] if "context" in kept else ["core_attn"]
    modules += [] if kept & {"mlpwi", "mlpwi_0"} else ["mlp"]
    return ",".join(modules)
