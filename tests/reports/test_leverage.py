"""What would help most: it is priced, and it can be done."""

from __future__ import annotations

import re
from typing import Any

import shardplan
from shardplan.physics.frameworks.stack import load_stack
from shardplan.planner.result import SearchResult
from shardplan.planner.search import search_question
from shardplan.reports.explanation import explain
from shardplan.reports.texts.explanation import most_helpful

SPLIT = {"tp": 1, "pp": 1, "cp": 1, "ep": 16, "sharding": "zero1", "micro_batch_size": 1}


def _searched(**software: Any) -> SearchResult:
    job: dict[str, Any] = {"global_batch_size": 512, "sequence_length": 4096, "stack": "megatron-lm"}
    asked = shardplan.question("qwen3-30b-a3b", "dgx-h100", 64, **job, software=software)
    return search_question(asked, top=1, fix=SPLIT, stack=load_stack("megatron-lm"), offers=False)


def _better(result: SearchResult) -> str:
    reasons = explain(result)
    assert reasons is not None
    return most_helpful(result, reasons)


def test_another_dispatcher_is_named_with_its_options_and_saves_what_it_says() -> None:
    now = _searched(moe_dispatcher="alltoall")  # stated, so that the search does not choose it
    text = _better(now)
    assert text.startswith("--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend ")
    value = re.search(r"--software moe_dispatcher=(\w+)", text)
    share = re.search(r"\(([0-9.]+) %\)", text)
    assert value is not None
    assert share is not None
    then = _searched(moe_dispatcher=value[1])
    recommended = [each.ties.recommended.step_time for each in (now, then) if each.ties is not None]
    assert 100 * (1 - recommended[1] / recommended[0]) >= float(share[1]) - 0.05
    assert "moe_dispatcher" not in _better(then)
