"""How a router shares tokens among experts: in words, as the load of the most loaded rank, or expert by expert.

It is written as ``balanced``, ``early``, ``learned``; a ratio such as 1.25; or the shares of all experts of a layer,
``0.3,0.2,0.3,0.2`` in their order or ``0:0.6,3:0.4`` by number, layers separated by semicolons.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from shardplan.base.errors import InputError, UnknownNameError, shown
from shardplan.base.fields import dataclass
from shardplan.base.files import DATA, shipped_document
from shardplan.inputs.layers import MixtureOfExperts

BALANCED: Final = "balanced"
WORDS: Final = (BALANCED, "early", "learned")
BIASES: Final = " with biases"
MOST_RATIO: Final = 1000.0
NEAR_ONE: Final = 0.005
"""Largest difference from one of the sum of a layer's shares, as with rounded ones."""
_RULE: Final = "shares of tokens add up to one over the experts of a layer"


@dataclass(frozen=True, kw_only=True)
class Routing:
    """A parsed routing text."""

    word: str = ""
    """State of the router; empty if one of the other fields holds."""
    ratio: float | None = None
    """Load of the most loaded rank relative to the mean, whatever its experts."""
    layers: tuple[Mapping[int, float], ...] = ()
    """Share of a layer's token copies by expert; experts that are not named get none."""

    @property
    def is_balanced(self) -> bool:
        """Whether all experts get the same number of tokens."""
        return self.word == BALANCED or self.ratio == 1

    def spread(self, moe: MixtureOfExperts) -> float:
        r"""Standard deviation of the loads of single experts relative to their mean, :math:`\sigma_{64} \sqrt{E/64}`.

        Only for a router in a named state; biases that are moved against the load hold once they are learned.
        """
        known = _states()
        by_bias = self.word + BIASES
        state = known["states"][by_bias if moe.balanced_by_bias and by_bias in known["states"] else self.word]
        return float(state["spread"]) * math.sqrt(moe.num_experts / known["experts"])

    def check(self, moe: MixtureOfExperts, name: str) -> None:
        """Refuses shares of experts that ``moe``, of the model ``name``, does not have. Raises ``InputError``."""
        experts, most = moe.num_experts, 1 / moe.top_k
        for shares in self.layers:
            beyond = [expert for expert in shares if expert >= experts]
            if beyond:
                raise InputError(
                    f"routing names expert {min(beyond)}, and a layer of {name} has {experts}",
                    rule="routing names experts of the model, counted from 0",
                    hint=f"the nearest is {experts - 1}",
                )
            expert = max(shares, key=lambda each: shares[each])
            if shares[expert] > most + NEAR_ONE:
                raise InputError(
                    f"routing gives expert {expert} the share {shares[expert]:g} of all copies of tokens",
                    rule=f"an expert gets one of a token's {moe.top_k} copies at most",
                    hint=f"the nearest share is {most:g}",
                )


@lru_cache(maxsize=1)
def _states() -> Mapping[str, Any]:
    return shipped_document(DATA / "routing.yaml")


@lru_cache(maxsize=256)
def routing_of(text: str) -> Routing:
    """The routing in a text. Raises ``InputError`` if it is no routing, or its shares do not add up."""
    said = text.strip().lower()
    if said in WORDS:
        return Routing(word=said)
    if "," in said or ":" in said or ";" in said:
        return Routing(layers=tuple(_shares(layer) for layer in said.split(";")))
    ratio = _number(said)
    if math.isnan(ratio):
        raise UnknownNameError("routing", text, WORDS, hint=f"{', '.join(WORDS)}, a ratio such as 1.25, or shares")
    if not 1 <= ratio <= MOST_RATIO:
        near = 1.0 if ratio < 1 else MOST_RATIO
        raise InputError(
            f"routing is {shown(text)}; a ratio of the most loaded rank to the mean is from 1 to {MOST_RATIO:,.0f}",
            rule=f"a ratio of the most loaded rank to the mean is from 1 to {MOST_RATIO:,.0f}",
            hint=f"the nearest is {near:g}",
        )
    return Routing(ratio=ratio)


def _shares(text: str) -> Mapping[int, float]:
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    named = [entry.partition(":") for entry in entries]
    numbers = [place if not colon else _expert(first) for place, (first, colon, _) in enumerate(named)]
    values = [_share(last if colon else first) for first, colon, last in named]
    if len(set(numbers)) < len(numbers):
        twice = next(each for each in numbers if numbers.count(each) > 1)
        raise InputError(f"routing gives expert {twice} two shares", rule=_RULE, hint="give each expert one share")
    total = math.fsum(values)
    if abs(total - 1) > NEAR_ONE:
        factor = f"divide each by {total:g}" if total > 0 else "give the share of each expert"
        raise InputError(
            f"the shares of routing add up to {total:g}, not to 1", rule=_RULE, hint=f"the nearest is 1: {factor}"
        )
    return {number: value / total for number, value in zip(numbers, values, strict=True)}


def _expert(text: str) -> int:
    if not text.strip().isdecimal() or len(text) > 6:
        raise InputError(
            f"routing names expert {shown(text)}",
            rule="experts are named by number, counted from 0",
            hint="write 0:0.6,3:0.4, or all shares in the order of the experts",
        )
    return int(text)


def _share(text: str) -> float:
    value = _number(text)
    if not 0 <= value <= 1:
        near = "" if math.isnan(value) else f"the nearest is {0 if value < 0 else 1}; "
        raise InputError(
            f"routing holds the share {shown(text)}",
            rule="a share of tokens is a number from 0 to 1",
            hint=f"{near}counts of tokens are shares once they are divided by their sum",
        )
    return value


def _number(text: str) -> float:
    try:
        return math.nan if "_" in text else float(text)
    except ValueError:
        return math.nan
