"""Where the built-in models come from, and their parameter counts as others count them."""

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


def _source(row: Mapping[str, str]) -> ModelSource:
    return ModelSource(
        name=row["name"],
        hf_id=row["hf_id"],
        num_parameters=int(row["num_parameters"]),
        num_active_parameters=int(row["num_active_parameters"]),
        source=row["source"],
        mark=row["mark"],
    )
