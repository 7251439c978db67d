"""Values of a ``config.json`` that only launch files need. What is not stated stays unknown."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

from shardplan.inputs.details import ModelDetails

_EPSILONS: Final = (
    "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "layernorm_epsilon", "norm_epsilon", "norm_eps",
)  # fmt: skip
_ACTIVATIONS: Final = ("hidden_act", "hidden_activation", "activation_function", "mlp_hidden_act")
_BASES: Final = ("rope_theta", "rotary_emb_base")
_SHARES: Final = ("partial_rotary_factor", "rotary_pct")
_LONGEST_WORD: Final = 40


def details_of(values: Mapping[str, object]) -> ModelDetails:
    """The details that ``values`` state. ``rope_parameters`` of transformers 5 hold base, share and scaling together.

    A value of another type is taken as not stated: no answer depends on it, and exports ask for what is not known.
    """
    positions = values.get("rope_parameters")
    rotary = {**values, **positions} if isinstance(positions, Mapping) else values
    scaling = positions if isinstance(positions, Mapping) else values.get("rope_scaling")
    return ModelDetails(
        rope_theta=_number(rotary, _BASES),
        partial_rotary_factor=_number(rotary, _SHARES),
        rope_scaling=tuple(_scaling(scaling)) if isinstance(scaling, Mapping) else (),
        norm_eps=_number(values, _EPSILONS),
        hidden_act=_word(values, _ACTIVATIONS),
        initializer_range=_number(values, ("initializer_range",)),
        scoring_func=_word(values, ("scoring_func",)),
        routed_scaling_factor=_number(values, ("routed_scaling_factor",)),
    )


def _number(values: Mapping[str, object], names: tuple[str, ...]) -> float | None:
    """The first of ``names`` that is a positive number."""
    found = (_positive(values.get(name)) for name in names)
    return next((each for each in found if each is not None), None)


def _positive(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and number > 0 else None


def _word(values: Mapping[str, object], names: tuple[str, ...]) -> str | None:
    words = (values.get(name) for name in names)
    return next((each for each in words if isinstance(each, str) and 0 < len(each) <= _LONGEST_WORD), None)


def _scaling(values: Mapping[str, object]) -> Iterator[tuple[str, bool | float | str]]:
    """Kind and numbers of a scaling; ``default`` is none."""
    kind = _word(values, ("rope_type", "type"))
    if kind is None or kind == "default":
        return
    yield "rope_type", kind
    for name, value in values.items():
        if name == "truncate" and value is False:
            yield name, False
        number = _positive(value)
        if isinstance(name, str) and number is not None and name not in (*_BASES, *_SHARES):
            yield name, number
