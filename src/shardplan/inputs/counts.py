"""Limits of the counts that describe a model, and the check of them."""

from __future__ import annotations

from shardplan.base.errors import InputError, shown

MAX_DIMENSION = 10**9
"""Largest size accepted for one dimension; real ones stay under ten million."""

MAX_NUM_ACCELERATORS = 10_000_000
"""Largest number of accelerators of a question."""

MAX_NUM_LAYERS = 100_000
"""Largest number of layers accepted."""

MAX_NUM_NORMS = 16
"""Largest number of norms accepted in a layer, each of which is priced on its own; real layers have one to four."""


def check_counts(owner: object, *fields: str, minimum: int = 1, maximum: int = MAX_DIMENSION) -> None:
    """Refuse ``fields`` of the dataclass ``owner`` that are not whole numbers from ``minimum`` to ``maximum``."""
    for field in fields:
        value = getattr(owner, field)
        if type(value) is not int or not minimum <= value <= maximum:
            raise InputError(
                f"{type(owner).__name__}.{field} is {shown(value)}",
                rule=f"{field} is a whole number from {minimum} to {maximum:,}",
                hint=f"correct {field}",
            )
