"""Processor time of a question to ``search_many``, of 1,000 that differ in number of accelerators and in bandwidth.

The more bandwidths there are for each number, the more a question shares with others. Searches of some of the same
questions are made by turns with that, and compared: the fastest plan and the recommended plan are the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from measure import Record, parser, table, write_record

from shardplan import question, search_many
from shardplan.api.many import ManyAnswer
from shardplan.estimation.question import Question
from shardplan.inputs.readers.catalog import load_cluster, load_model
from shardplan.inputs.readers.overrides import override
from shardplan.physics.frameworks.usual_stack import USUAL, Wanted, chosen_stack
from shardplan.planner.result import SearchResult
from shardplan.planner.search import search_question

MODEL, CLUSTER = "llama-3.1-70b", "dgx-h100"
SHAPES = ((20, 50), (40, 25), (100, 10))
"""Numbers of accelerators, and bandwidths of each."""
STEP = 64
"""Accelerators by which they differ; of more than ``MOST`` steps, smaller ones."""
MOST = 64
LOOPED = 40
"""Questions that are searched on their own too."""


def main() -> None:
    """Measures, prints the table and writes the record."""
    flags = parser(__doc__ or "", runs=1).parse_args()
    rows = [_measured(*shape) for shape in (((2, 2),) if flags.tiny else SHAPES)]
    print(report({"rows": rows}))
    write_record(flags.json, "many", model=MODEL, cluster=CLUSTER, rows=rows)


def report(record: Record) -> str:
    """The record as a table."""
    header = ("questions", "plans of each", "`search`, ms", "`search_many`, ms", "ratio", "an estimate, ms")
    return table(header, [_row(each) for each in record["rows"]])


def _row(each: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"{each['sizes']} sizes x {each['bandwidths']} bandwidths",
        f"{each['plans']:,.0f}",
        f"{1e3 * each['search_cpu_s']:,.0f}",
        f"{1e3 * each['many_cpu_s']:,.1f}",
        f"{each['search_cpu_s'] / each['many_cpu_s']:.1f}",
        f"{1e3 * each['estimate_cpu_s']:,.1f}",
    )


def _questions(sizes: int, bandwidths: int) -> list[Question]:
    """The default job of every number of accelerators; bandwidths between nodes from 12.5 to 400 GB/s."""
    model, base = load_model(MODEL), load_cluster(CLUSTER)
    step = STEP if sizes <= MOST else STEP * MOST // sizes // 8 * 8
    clusters = [override(base, {"inter_node_bandwidth": float(b)}) for b in np.geomspace(12.5e9, 400e9, bandwidths)]
    return [question(model, each, step * (n + 1)) for n in range(sizes) for each in clusters]


def _measured(sizes: int, bandwidths: int) -> dict[str, Any]:
    """Answers to all questions as they come, and by turns with them searches of some of the same questions."""
    asked = _questions(sizes, bandwidths)
    chosen = {*np.random.default_rng(0).permutation(len(asked))[:LOOPED].tolist()}
    answers, plans = search_many(asked), []
    many, estimates, alone = [], [], []
    for number in range(len(asked)):
        answer, cpu = _timed(partial(next, answers))
        many.append(cpu)
        plans.append(answer.num_plans_evaluated)
        if number in chosen:
            estimates.append(_timed(partial(getattr, answer, "recommended"))[1])
            found, cpu = _timed(partial(_search, answer.question))
            alone.append(cpu)
            _check(answer, found)
    return {
        "sizes": sizes,
        "bandwidths": bandwidths,
        "plans": float(np.mean(plans)),
        "search_cpu_s": float(np.mean(alone)),
        "many_cpu_s": float(np.mean(many)),
        "estimate_cpu_s": float(np.mean(estimates)),
    }


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What it gives, and its processor time. [s]"""
    started = time.process_time()
    return work(), time.process_time() - started


def _search(asked: Question) -> SearchResult:
    """A search of its own, without suggestions, as for a question of ``search_many``."""
    stack, _ = chosen_stack(USUAL, asked.cluster.accelerator.vendor, Wanted.of(asked.model, {}))
    return search_question(asked, top=1, suggestions=False, stack=stack, use_all=True)


def _check(answer: ManyAnswer, alone: SearchResult) -> None:
    """Whether a search names the same plans."""
    plans = [None if found is None else found.plan for found in (answer.found_fastest, answer.found_recommended)]
    expected = [each and each.plan for each in (next(iter(alone.estimates), None), alone.recommended)]
    if plans != expected:
        raise ValueError(f"search_many has another answer to {answer.question}")


if __name__ == "__main__":
    main()
