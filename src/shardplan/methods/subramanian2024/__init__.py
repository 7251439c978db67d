"""The cost model and search of arXiv 2410.00273 (S. Subramanian et al., 2024), vectorised.

Q numbers are those of the list of its flaws in the documentation.
"""

from shardplan.methods.subramanian2024.inputs import (
    CORRECTIONS,
    FAITHFUL,
    System,
    Transformer,
    corrections_of,
    load_model,
    load_system,
)
from shardplan.methods.subramanian2024.iteration import STATISTICS, Configuration, PaperSetting, Price, price
from shardplan.methods.subramanian2024.search import SizeResult, search
from shardplan.methods.subramanian2024.strategies import STRATEGIES, strategy_of

__all__ = [
    "CORRECTIONS",
    "FAITHFUL",
    "STATISTICS",
    "STRATEGIES",
    "Configuration",
    "PaperSetting",
    "Price",
    "SizeResult",
    "System",
    "Transformer",
    "corrections_of",
    "load_model",
    "load_system",
    "price",
    "search",
    "strategy_of",
]
