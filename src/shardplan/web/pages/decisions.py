"""The decisions of the page by name: what each is called, and the function that answers it."""

from __future__ import annotations

from typing import Final

from shardplan.web.deciding.budgets import budget
from shardplan.web.deciding.changes import whatif
from shardplan.web.deciding.common import Decide
from shardplan.web.deciding.fitting import fit
from shardplan.web.deciding.hardware import pareto, sensitivity
from shardplan.web.deciding.sizes import pareto_sizes, scale, vary

DECISIONS: Final = {
    "scale": "How many accelerators pay",
    "pareto_sizes": "Time, accelerators and money",
    "fit": "What fits at most",
    "vary": "Other sequences, batches or networks",
    "whatif": "What if hardware or job change",
    "pareto": "Time, memory and robustness",
    "sensitivity": "Which hardware parameter pays",
    "budget": "Budget of a whole run",
}
ANSWERS: Final[dict[str, Decide]] = {
    "scale": scale,
    "pareto_sizes": pareto_sizes,
    "fit": fit,
    "vary": vary,
    "whatif": whatif,
    "pareto": pareto,
    "sensitivity": sensitivity,
    "budget": budget,
}
