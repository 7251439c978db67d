"""The paper's three forms of tensor parallelism."""

from __future__ import annotations

from typing import Final

from shardplan.errors import UnknownNameError
from shardplan.published.subramanian2024.strategies.base import Split, Strategy
from shardplan.published.subramanian2024.strategies.context_parallel import ContextParallel
from shardplan.published.subramanian2024.strategies.one_dimensional import OneDimensional
from shardplan.published.subramanian2024.strategies.summa import Summa

__all__ = ["STRATEGIES", "Split", "Strategy", "strategy_of"]

STRATEGIES: Final[dict[str, Strategy]] = {
    strategy.name: strategy for strategy in (OneDimensional(), ContextParallel(), Summa())
}
"""By name, in the order of the paper."""


def strategy_of(name: object) -> Strategy:
    """The strategy called ``name``. Raises ``UnknownNameError``."""
    if not isinstance(name, str) or name.lower() not in STRATEGIES:
        raise UnknownNameError("strategy", f"{name!s:.40}", STRATEGIES, hint=f"one of {', '.join(STRATEGIES)}")
    return STRATEGIES[name.lower()]
