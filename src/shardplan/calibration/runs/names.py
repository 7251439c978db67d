"""Names in measured runs that are not those of the catalogue but can mean one thing there only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from shardplan.calibration.runs.rows import MeasuredRun
from shardplan.calibration.runs.words import folded
from shardplan.inputs.readers.catalog import list_accelerators, list_models
from shardplan.inputs.readers.model_index import model_sources


def with_own_names(run: MeasuredRun) -> tuple[MeasuredRun, tuple[str, ...]]:
    """The run with the catalogue's names of its accelerator and model, and what was taken as what."""
    found = {
        "model": None if _is_file(run.folder, run.model) else model_meant(run.model),
        "accelerator": None if _is_file(Path(), run.accelerator) else accelerator_meant(run.accelerator),
    }
    changed = {column: name for column, name in found.items() if name is not None}
    taken = tuple(f"{column} {getattr(run, column)[:80]} is taken as {name}" for column, name in changed.items())
    return (replace(run, **changed) if changed else run), taken  # type: ignore[arg-type] # names of both are text


def _is_file(folder: Path, name: str) -> bool:
    """Whether the name is the path of something there."""
    try:
        return "/" in name and (folder / name).exists()
    except (OSError, ValueError):  # too long, or with a null character
        return False


MAKERS: Final = frozenset({"nvidia", "amd", "instinct", "intel", "google", "aws", "huawei", "tesla", "geforce"})
NAMED_ALONE: Final = frozenset({"h200-nvl-141gb"})
"""Cards for PCIe servers that came after the part of the same name, and are meant only where they are named in full."""


@cache
def accelerator_meant(name: str) -> str | None:
    """The one accelerator whose name has all parts of ``name``; None where it is known already, or none or several do.

    >>> accelerator_meant("AMD Instinct MI300X")
    'mi300x-192gb'
    >>> accelerator_meant("h100")  # NVL, PCIe or SXM
    """
    if name.lower() in list_accelerators():
        return None
    parts = _form(_parts(name)) - MAKERS
    named = {known: _parts(known) for known in list_accelerators()}
    same = [known for known in named if folded(known) == folded(name)]
    found = same or [known for known, own in named.items() if parts and parts <= _form(own)]
    if len(found) > 1:
        found = [known for known in found if known not in NAMED_ALONE]
    return found[0] if len(found) == 1 else None


def _form(parts: set[str]) -> set[str]:
    """The same with form factors without the number of their socket: ``sxm5`` is ``sxm``."""
    return {re.sub(r"^sxm\d$", "sxm", part) for part in parts}


SAME_SHAPE: Final[Mapping[str, str]] = {
    "llama-3-8b": "llama-3.1-8b",
    "llama-3-70b": "llama-3.1-70b",
    "llama-3.3-70b": "llama-3.1-70b",
    "deepseek-r1": "deepseek-v3",
    "deepseek-v3.1": "deepseek-v3",
}
"""Models whose layers are those of another: they differ in weights, or in how positions are scaled."""
VARIANTS: Final = re.compile(r"[-_](hf|instruct|base|chat|it|pt)$", flags=re.IGNORECASE)
"""Endings of names for other weights of the same shape."""


@cache
def model_meant(name: str) -> str | None:
    """The one built-in model that ``name`` can mean; None where it is known already, or none or several can.

    >>> model_meant("meta-llama/Llama-3.1-8B-Instruct")
    'llama-3.1-8b'
    >>> model_meant("llama-3.1")  # 8b, 70b or 405b
    """
    if name.lower() in list_models() or name.lower().endswith(".json"):
        return None
    own = name.rpartition("/")[2]
    short = VARIANTS.sub("", own).lower().removeprefix("meta-")
    for form in (own, short):
        if _bare(form) in _models():
            return _models()[_bare(form)]
    parts = _parts(short)
    named = {known: known.split("-") for known in list_models()}
    found = [known for known, own_parts in named.items() if own_parts[0] in parts and parts <= set(own_parts)]
    return found[0] if len(found) == 1 else None


@cache
def _models() -> Mapping[str, str]:
    """Built-in models by their bare names, those of the Hugging Face hub among them."""
    hub = {_bare(source.hf_id.rpartition("/")[2]): name for name, source in model_sources().items() if source.hf_id}
    alike = {_bare(name): known for name, known in SAME_SHAPE.items()}
    return hub | alike | {_bare(name): name for name in list_models()}


def _bare(name: str) -> str:
    """``llama31_8b`` and ``Llama-3.1-8B`` are one."""
    return folded(name).replace(".", "")


def _parts(name: str) -> set[str]:
    return {part for part in re.split(r"[-_/\s]+", name.lower()) if part}
