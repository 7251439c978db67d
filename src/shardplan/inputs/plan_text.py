"""Plans as short texts: a cell of a table that is read back, and a line for people."""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache
from typing import Any

from shardplan.errors import InputError, shown
from shardplan.fields import described
from shardplan.inputs.plan import Plan

FLAGS = {True: "on", False: "off"}
WORDS = {word: flag for flag, word in FLAGS.items()}
DEGREES = ("tp", "cp", "pp", "vp", "ep", "etp")


def plan_cell(plan: Plan) -> str:
    """The fields of a plan that differ from their defaults: ``tp=4 pp=8 sharding=zero3``.

    ``plan_from_cell(plan_cell(plan)) == plan``.
    """
    values = {field.name: getattr(plan, field.name) for field in fields(plan)}
    changed = {field.name: values[field.name] for field in fields(plan) if values[field.name] != field.default}
    return " ".join(f"{name}={_text(value)}" for name, value in changed.items())


@lru_cache(maxsize=4096)
def plan_from_cell(text: str) -> Plan:
    """The plan of :func:`plan_cell`. Raises ``ValueError`` for what is none."""
    known = described(Plan)
    values: dict[str, Any] = {}
    for part in text.split():
        name, _, value = part.partition("=")
        if name not in known or name in values:
            raise ValueError(f"plan has {shown(part)}; it must be fields of a plan, each once, such as tp=4 pp=8")
        values[name] = _value(known[name].kind.base, value)
    try:
        return Plan(**values)
    except InputError as error:
        raise ValueError(f"plan: {error.message}") from None


def _text(value: object) -> str:
    """A field as text: flags as on and off, numbers and names as they are."""
    if isinstance(value, bool):
        return FLAGS[value]
    return ",".join(str(part) for part in value) if isinstance(value, tuple) else str(value)


def _value(base: type, text: str) -> object:
    """A field of type ``base``; a text that is none of it is refused by the plan itself."""
    if base is bool:
        return WORDS.get(text, text)
    if base is int:
        return int(text) if text.isdecimal() else text
    if base is tuple:
        return tuple(int(part) if part.isdecimal() else part for part in text.split(","))
    return text


def plan_summary(plan: Plan) -> str:
    """The fields that most define a plan, in one line: ``tp 4, pp 8, micro-batch 1, zero1, recompute full``."""
    words = [f"{name} {getattr(plan, name)}" for name in DEGREES if getattr(plan, name) > 1]
    words += [f"micro-batch {plan.micro_batch_size}", plan.sharding]
    words += [f"recompute {plan.recompute}"] if plan.recompute != "none" else []
    words += [f"offload {plan.offload}"] if plan.offload != "none" else []
    return ", ".join(words)
