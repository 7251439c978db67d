"""Whether a question can have a valid plan at all, by its degrees alone, and one that fits, by its states alone.

Where a user fixes degrees, most neighbouring counts of accelerators and batches have no plan; and a model whose states
exceed all memory together fits by no plan. That is arithmetic, and need not be searched.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Final

from shardplan.arrays import divisors
from shardplan.errors import InputError
from shardplan.estimation.question import Question
from shardplan.inputs.degrees import Degrees
from shardplan.inputs.plan import Plan
from shardplan.planner.pruning.bounds import least_bytes
from shardplan.planner.restrictions import Restrictions, values_given
from shardplan.validity.rules import RULES

OF_HEADS: Final = (
    "tensor-parallel ranks share heads evenly",
    "key-value heads divide tp, or tp divides them",
    "tensor-parallel ranks share the MLP width evenly",
)
"""Rules that no number of accelerators and no batch makes hold."""


def can_have_plans(question: Question, restrictions: Restrictions) -> bool:
    """Whether some degrees that the user allows divide the accelerators and the batch, and tp the heads.

    It is no more than necessary: a question that passes may still have no valid plan.
    """
    try:
        given = values_given(restrictions, question)
    except InputError:  # such as a range without a value that can be valid
        return False
    number, batch = question.num_accelerators, question.job.global_batch_size
    if "tp" in given and not {"tp_kind", "tp_rows"} & {*given}:
        given["tp"] = _sharing_heads(question, given["tp"])
    sizes = _products([given.get(name, divisors(number)) for name in ("tp", "cp", "pp")], number)
    allowed = given.get("dp")
    return any(batch % dp == 0 and (allowed is None or dp in allowed) for dp in (number // size for size in sizes))


def can_fit(question: Question, restrictions: Restrictions) -> bool:
    """Whether the fullest accelerator can hold its share of the states: no more than necessary (``bounds``)."""
    offloads = values_given(restrictions, question).get("offload", (Plan().offload,))
    return any(least_bytes(question, offload) <= float(question.usable_memory) for offload in offloads)


def _products(factors: Iterable[Iterable[int]], number: int) -> set[int]:
    """Products of one of each of the ``factors`` that divide ``number``."""
    sizes = {1}
    for values in factors:
        sizes = {size * value for size, value in itertools.product(sizes, values) if number % (size * value) == 0}
    return sizes


def _sharing_heads(question: Question, degrees: Iterable[int]) -> tuple[int, ...]:
    """Tensor-parallel degrees that share the heads and the MLPs of the model evenly."""
    setting = question.setting
    rules = [rule for rule in RULES if rule.name in OF_HEADS]
    return tuple(tp for tp in degrees if all(rule.holds(setting, Degrees.of(Plan(tp=tp))) for rule in rules))
