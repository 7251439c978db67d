"""Rules that a launch file breaks: of the arithmetic of the world, of shardplan, and of its framework."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from shardplan.frameworks.runnable import refusals
from shardplan.inputs.degrees import Degrees
from shardplan.launch.audit.question import Put
from shardplan.launch.audit.words import in_words_of
from shardplan.launch.dialects.reading import Break, Reading
from shardplan.validity.rules import RULES

DENSE = "tp x cp x pp divides the accelerators"
EXPERT = "ep x etp x pp divides the accelerators"
BATCH = "micro-batches divide the global batch"
EXPERTS = "expert-parallel ranks share experts evenly"
HEADS = "tensor-parallel ranks share heads evenly"
LAYERS = "layers divide into equal stages"


def violations(reading: Reading, put: Put) -> tuple[Break, ...]:
    """Every rule that is broken, what stops a run first; each rule once."""
    ours = (*put.breaks, *_arithmetic(reading), *_rules(put), *_of_framework(put))
    found = [*reading.breaks, *(in_words_of(each, reading) for each in ours)]
    unique = list(
        {
            (each.rule, each.severity, each.values if each.severity == "notice" else ""): each
            for each in reversed(found)
        }.values()
    )
    order = {"stops": 0, "changes": 1, "notice": 2}
    return tuple(sorted(unique, key=lambda each: order[each.severity]))


def stops(found: Iterable[Break]) -> bool:
    """Whether one of them stops the run."""
    return any(each.severity == "stops" for each in found)


def _whole(reading: Reading, key: str) -> int | None:
    value = reading.value(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _arithmetic(reading: Reading) -> Iterator[Break]:
    """What needs no model and no cluster: the two factorisations of the world, the batch, experts, heads."""
    total = _whole(reading, "num_accelerators")
    tp, cp, pp, ep, etp = (_whole(reading, key) for key in ("tp", "cp", "pp", "ep", "etp"))
    if total and tp and cp and pp and total % (tp * cp * pp):
        yield Break(
            rule=DENSE,
            values=f"tp {tp} x cp {cp} x pp {pp} = {tp * cp * pp} for {total:,} accelerators",
            knob="choose degrees whose product divides the accelerators, or start more nodes",
        )
    elif total and tp and cp and pp:
        yield from _batch(reading, total // (tp * cp * pp))
    if total and pp and ep and ep > 1 and total % (ep * (etp or 1) * pp):
        yield Break(
            rule=EXPERT,
            values=f"ep {ep} x etp {etp or 1} x pp {pp} = {ep * (etp or 1) * pp} for {total:,} accelerators",
            knob="choose ep and etp whose product with pp divides the accelerators, or start more nodes",
        )
    experts, heads = _whole(reading, "num_experts"), _whole(reading, "num_attention_heads")
    if experts and ep and experts % ep:
        yield Break(
            rule=EXPERTS, values=f"ep {ep} with {experts} experts", knob=f"choose ep among the divisors of {experts}"
        )
    if heads and tp and heads % tp:
        yield Break(
            rule=HEADS, values=f"tp {tp} with {heads} attention heads", knob=f"choose tp among the divisors of {heads}"
        )


def _batch(reading: Reading, dp: int) -> Iterator[Break]:
    size, batch = _whole(reading, "micro_batch_size"), _whole(reading, "global_batch_size")
    if size and batch and batch % (size * dp):
        yield Break(
            rule=BATCH,
            values=f"dp {dp} x micro-batch {size} = {dp * size} for a global batch of {batch} sequences",
            knob="change the global batch, the micro-batch or the degrees",
        )


def _rules(put: Put) -> Iterator[Break]:
    """Every rule of shardplan that the plan breaks."""
    if put.question is None or put.plan is None:
        return
    setting = put.question.setting
    degrees = Degrees.of(put.plan)
    for rule in RULES:
        if not bool(np.all(rule.holds(setting, degrees))):
            yield Break(rule=rule.name, values=rule.message(setting, put.plan), knob=rule.hint(setting, put.plan))


def _of_framework(put: Put) -> Iterator[Break]:
    """What the framework refuses to run."""
    if put.question is None or put.plan is None or put.stack is None:
        return
    for each in refusals(put.stack, put.plan, put.question.setting):
        yield Break(rule=each.rule, values=each.message, knob=each.hint)
