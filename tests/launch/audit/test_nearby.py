"""Plans that an audit looks at: one search answers both lists, and frameworks are asked for many plans at once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import shardplan
from shardplan.inputs.plan import Plan
from shardplan.launch.audit import nearby
from shardplan.physics.frameworks.runnable import all_run, refusals
from shardplan.physics.frameworks.stack import load_stack
from shardplan.planner.pricing.pairs import step_times
from shardplan.planner.pruning import pruned

CASES = [
    ("llama-3.1-8b", "megatron-lm", Plan(tp=4, pp=2, recompute="full"), ()),
    ("llama-3.1-8b", "megatron-lm", Plan(tp=4, pp=2, recompute="full"), ("tp", "micro_batch_size")),
    ("llama-3.1-8b", "torchtitan", Plan(sharding="zero3", recompute="full"), ()),
    ("llama-3.1-8b", "any", Plan(tp=2, cp=2), ("recompute",)),
    ("qwen3-30b-a3b", "megatron-lm", Plan(tp=2, ep=8, sharding="zero1"), ()),
]


@pytest.mark.parametrize(("model", "framework", "plan", "keep"), CASES)
def test_one_search_answers_both_lists(
    model: str, framework: str, plan: Plan, keep: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plans with the degrees as they are come out as a search for these alone finds them."""
    stack = None if framework == "any" else load_stack(framework)
    asked = shardplan.question(model, "dgx-h100", 64, global_batch_size=256, sequence_length=4096, stack=framework)
    together = nearby.nearby_plans(asked, plan, stack, keep, None)
    monkeypatch.setattr(nearby, "_is_part", lambda *_: False)
    assert nearby.nearby_plans(asked, plan, stack, keep, None) == together
    assert len(together) > nearby.MOST


@pytest.mark.parametrize("framework", ["megatron-lm", "torchtitan", "deepspeed", "maxtext", "nanotron"])
def test_a_framework_is_asked_for_many_plans_at_once(framework: str) -> None:
    stack, near = load_stack(framework), list(nearby._neighbours(Plan(tp=4, pp=2, ep=2, recompute="full")))
    asked = shardplan.question("qwen3-30b-a3b", "dgx-h100", 64, global_batch_size=256, sequence_length=4096)
    setting = asked.setting
    alone = [not refusals(stack, each, setting) for each in near]
    assert all_run(stack, setting, near) == alone
    assert all_run(stack, setting, []) == []


@pytest.mark.parametrize("keep", [(), ("recompute",)])
def test_where_little_fits_few_steps_are_priced(keep: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Millions of plans are faster than the few that are known to fit: which of them fit is found before their steps.

    Sequences are so long that activations leave little room. Each choice of software has steps of its own.
    """
    stack, priced = load_stack("megatron-lm"), Counter[tuple[object, ...]]()

    def counted(tables: Any, pairs: Any, wanted: Any, *more: Any, **named: Any) -> Any:
        priced[tuple(tables.family.switches.values())] += int(np.count_nonzero(wanted))
        return step_times(tables, pairs, wanted, *more, **named)

    monkeypatch.setattr(pruned, "step_times", counted)
    asked = shardplan.question(
        "qwen3-235b-a22b", "deepseek-h800", 2048, global_batch_size=32_768, sequence_length=131_072, stack=stack
    )
    plan = Plan(tp=4, cp=256, pp=2, ep=128, sharding="zero1", recompute="full")
    assert len(nearby.nearby_plans(asked, plan, stack, keep, None)) > nearby.MOST
    assert priced.total() < 100_000 * len(priced)
