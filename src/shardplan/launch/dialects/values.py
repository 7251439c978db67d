"""Texts and plain values of launch files as the project's values; None where a text is not understood."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from shardplan.base.words import FLAGS, folded
from shardplan.inputs.words import OPTIMIZERS, PRECISIONS, SCHEDULES

Convert = Callable[[object], object]
"""A value of a file as one of ours; None where it is not one."""

_WHOLE: Final = re.compile(r"[+-]?\d{1,18}")


def whole(value: object) -> int | None:
    """A whole number; ``10_000`` is one in YAML 1.1 and TOML, ``4.0`` where a file writes it so."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    text = str(value).strip().replace("_", "")
    return int(text) if _WHOLE.fullmatch(text) else None


def degree(value: object) -> int | None:
    """A whole number from 1."""
    number = whole(value)
    return number if number is not None and number >= 1 else None


def number(value: object) -> float | None:
    """Any finite number."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        found = float(str(value))
    except ValueError:
        return None
    return found if abs(found) < float("inf") else None


def switch(value: object) -> bool | None:
    """A switch in any of its spellings."""
    return value if isinstance(value, bool) else FLAGS.get(folded(str(value)))


def on_off(on: str, off: str) -> Convert:
    """Reads a switch as one of two words."""
    return lambda value: None if (state := switch(value)) is None else on if state else off


def opposite(value: object) -> bool | None:
    """A switch that turns off what is asked for."""
    return None if (state := switch(value)) is None else not state


def words_of(words: Mapping[str, object]) -> Convert:
    """Reads one of ``words``, in any case of letters."""
    return lambda value: words.get(str(value).strip().lower())


def text(value: object) -> str | None:
    """A text that is not empty; a bare option, which is true, has none."""
    is_text = isinstance(value, str | int | float) and not isinstance(value, bool)
    return str(value).strip() or None if is_text else None


def precision(value: object) -> str | None:
    """A precision under any of its names."""
    return PRECISIONS.get(folded(str(value)))


def optimizer(value: object) -> str | None:
    """An optimizer under any of its names; the last part of a path such as ``torch.optim.AdamW``.

    >>> optimizer("paged_adamw_32bit"), optimizer("rmsprop")  # pages of bitsandbytes move under pressure alone
    ('adam', None)
    """
    name = str(value).rsplit(".", 1)[-1].lower().removeprefix("paged_").replace("_32bit", "")
    return OPTIMIZERS.get(folded(name))


ATTENTION: Final = ("attn_implementation", "attn_impl", "attn-impl")
"""Names of the attention kernel in trainers."""


def attention(value: object) -> str | None:
    """An implementation of transformers: ``eager`` writes its scores; the others are fused."""
    word = folded(str(value)).replace("kernels-community/", "")
    fused = word.startswith(("flash", "sdpa", "flex", "fa2", "fa3", "xformers"))
    return "unfused" if word == "eager" else "flash" if fused else None


def schedule(value: object) -> str | None:
    """A pipeline schedule under any of its names."""
    return SCHEDULES.get(folded(str(value)))


def zero_stage(value: object) -> str | None:
    """The sharding of a stage of ZeRO."""
    return {0: "ddp", 1: "zero1", 2: "zero2", 3: "zero3"}.get(-1 if (stage := whole(value)) is None else stage)


def normalization(value: object) -> str:
    """A norm by its name."""
    return "RMSNorm" if "rms" in str(value).lower() else "LayerNorm"


CONVERTS: Final[Mapping[str, Convert]] = {
    each.__name__: each
    for each in (
        whole, degree, number, switch, opposite, text, precision, optimizer, attention, schedule, zero_stage,
        normalization, str,
    )
}  # fmt: skip
"""How records of dialects read a value, by name."""
