"""Configurations that torchtitan has by name: their model, precision and the options that they set."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from shardplan.fields import dataclass
from shardplan.files import DATA, shipped_document


@dataclass(frozen=True, kw_only=True)
class NamedConfiguration:
    """A function of torchtitan that gives a model of a size."""

    module: str
    config: str
    model: str
    """Built-in model with the same layers."""
    precision: str = "bf16"
    """Of its products: converters in its Python decide it, and no option does."""
    sets: Mapping[str, object]
    """Options that it sets, by name."""


@cache
def named_configurations() -> tuple[NamedConfiguration, ...]:
    """Those on record."""
    document = shipped_document(DATA / "launch" / "torchtitan.yaml")
    return tuple(NamedConfiguration(**each) for each in document["configurations"])


def configuration_named(module: object, config: object) -> NamedConfiguration | None:
    """The configuration of that name; None where it is not on record."""
    return next((each for each in named_configurations() if (each.module, each.config) == (module, config)), None)
