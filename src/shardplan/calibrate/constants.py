r"""Which constants a fit may move, how far, and the profiles at any values of them.

A constant is free where its profile file states a prior and its standard deviation. Moves are multiplicative: a value
is its prior times :math:`e^\theta`; a share of one moves in its log-odds. A table's keys joined by ``+`` move together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import Numbers
from shardplan.base.fields import dataclass
from shardplan.inputs.profile import Constant, Profile, assemble, constants_of, generations

Vector = NDArray[np.float64]
DIGITS, SD_DIGITS = 4, 2
"""Significant digits of values and of standard deviations that are written."""
SHARE = "share"
"""Unit of constants between zero and one that move in their log-odds."""


@dataclass(frozen=True)
class Free:
    """One constant, or one group of keys of a table, that a fit may move."""

    generation: str
    """Generation whose file states it, or ``default``."""
    name: str
    keys: tuple[str, ...]
    """Keys of the table that move together; none where the constant is a number."""
    priors: tuple[float, ...]
    """Prior value of each key."""
    sd: float
    is_share: bool

    @property
    def own_label(self) -> str:
        """Its name without that of its generation."""
        return f"{self.name}[{'+'.join(self.keys)}]" if self.keys else self.name

    @property
    def label(self) -> str:
        """Its name in reports."""
        return self.own_label if self.generation == "default" else f"{self.generation}.{self.own_label}"

    def stated(self, values: Sequence[Numbers]) -> Any:
        """Values of its keys as a profile states them: a part of a table, or the number."""
        return dict(zip(self.keys, values, strict=True)) if self.keys else values[0]

    def stated_together(self, value: float) -> Any:
        """What its keys share, likewise."""
        return {"+".join(self.keys): value} if self.keys else value

    def at(self, theta: Numbers) -> tuple[Numbers, ...]:
        """Value of each key at a move of ``theta``."""
        if self.is_share:
            return tuple(1 / (1 + (1 - prior) / prior * np.exp(-np.asarray(theta))) for prior in self.priors)
        return tuple(prior * np.exp(theta) for prior in self.priors)


@cache
def free_constants() -> tuple[Free, ...]:
    """Every free constant of the shipped profiles."""
    return tuple(
        free
        for generation in ("default", *generations())
        for name, constant in constants_of(generation).items()
        for free in _frees(generation, name, constant)
    )


def profiles_at(frees: Sequence[Free], theta: Vector) -> Callable[[str], Profile]:
    """Profiles by generation at moves ``theta``: a row for each set of constants, a column for each of ``frees``."""

    def moved(generation: str) -> dict[str, Constant]:
        constants = dict(constants_of(generation))
        for column, free in enumerate(frees):
            if free.generation == generation:
                before, values = constants[free.name], free.stated(free.at(theta[:, column]))
                constants[free.name] = replace(before, value=with_part(before.value, values))
        return constants

    @cache
    def profile(generation: str) -> Profile:
        return assemble(generation, moved("default"), moved(generation))

    return profile


def rounded(value: float, digits: int = DIGITS) -> float:
    """To significant digits, as it is written."""
    return float(f"{value:.{digits}g}")


def _frees(generation: str, name: str, constant: Constant) -> list[Free]:
    prior, sd = constant.prior, constant.prior_sd
    if prior is None or sd is None:
        return []
    is_share = constant.unit == SHARE
    if isinstance(prior, dict):
        assert isinstance(sd, dict), name
        groups = {tuple(group.split("+")): spread for group, spread in sd.items()}
        return [
            Free(generation, name, keys, tuple(float(prior[key]) for key in keys), float(spread), is_share)
            for keys, spread in groups.items()
        ]
    assert not isinstance(sd, dict), name
    return [Free(generation, name, (), (float(prior),), float(sd), is_share)]


def with_part(table: object, part: Any) -> Any:
    """A table of a profile with a ``part`` of it replaced; a number is replaced as a whole."""
    return {**(table if isinstance(table, Mapping) else {}), **part} if isinstance(part, Mapping) else part
