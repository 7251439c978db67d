"""Where the built-in models come from, their parameter counts as others count them, and the batches of their makers."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Final

from shardplan.fields import dataclass
from shardplan.files import DATA

MODELS: Final = DATA / "models"
"""Folder of the built-in models."""


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """Origin of one built-in model."""

    name: str
    """Name of the model."""
    hf_id: str
    """Repository on the Hugging Face hub; empty: the model was never published there."""
    num_parameters: int
    """All parameters, counted on the modules of ``transformers``."""
    num_active_parameters: int
    """As ``num_parameters``, with the routed experts cut to those that a token visits."""
    source: str
    """Where the dimensions stand."""
    mark: str
    """Why confidence in them is low; empty where it is not."""


@cache
def model_sources() -> Mapping[str, ModelSource]:
    """The origin of every built-in model, by name."""
    with (MODELS / "index.csv").open(encoding="utf-8", newline="") as file:
        sources = [_source(row) for row in csv.DictReader(file)]
    return MappingProxyType({source.name: source for source in sources})


@dataclass(frozen=True, kw_only=True)
class MakersBatch:
    """Batch with which the maker of a built-in model trained it, where that is published."""

    name: str
    """Name of the model."""
    tokens: int
    """Of one step, when the batch had grown."""
    source: str
    """Where that stands, and in which words."""
    mark: str
    """Why confidence in it is low; empty where it is not."""


@cache
def makers_batches() -> Mapping[str, MakersBatch]:
    """The batches that are published, by name of the model."""
    with (MODELS / "batches.csv").open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    found = [
        MakersBatch(name=row["name"], tokens=int(row["tokens"]), source=row["source"], mark=row["mark"]) for row in rows
    ]
    return MappingProxyType({each.name: each for each in found})


def _source(row: Mapping[str, str]) -> ModelSource:
    return ModelSource(
        name=row["name"],
        hf_id=row["hf_id"],
        num_parameters=int(row["num_parameters"]),
        num_active_parameters=int(row["num_active_parameters"]),
        source=row["source"],
        mark=row["mark"],
    )
