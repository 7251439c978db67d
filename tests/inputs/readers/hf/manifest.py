"""Small models of every family with their exact counts, which ``counts.yaml`` holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml


@dataclass(frozen=True, kw_only=True)
class Counted:
    """A model whose parameters were counted on its modules."""

    family: str
    config: Mapping[str, Any]
    total: int
    active: int
    head: Literal["causal", "masked", "image", "text"] = "causal"
    as_family: str = ""
    """Family of ``transformers`` that has the same modules."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """Fields that this family spells in another way."""

    @property
    def file(self) -> dict[str, Any]:
        """The configuration as a file would hold it."""
        classes = {"architectures": ["ForImageClassification"]} if self.head == "image" else {}
        return {"model_type": self.family, **classes, **self.config}


@cache
def counted() -> tuple[Counted, ...]:
    """Every model of the manifest."""
    rows = yaml.safe_load((Path(__file__).parent / "counts.yaml").read_text(encoding="utf-8"))
    return tuple(
        Counted(**{"active": row["total"], **{k: v for k, v in row.items() if k != "as"}}, as_family=row.get("as", ""))
        for row in rows
    )
