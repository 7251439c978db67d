"""Processor time of a question to ``search_many``, of 1,000 that differ in number of accelerators and in bandwidth.

The more bandwidths there are for each number, the more a question shares with others. A loop over ``search`` answers
some of the same questions, and its answers are compared: the fastest plan and the plan to take are the same.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import numpy as np
from measure import Record, parser, table, write_record

from shardplan import question, search_many
from shardplan.api.many import ManyAnswer
from shardplan.estimation.question import Question
from shardplan.frameworks.usual_stack import USUAL, Wanted, chosen_stack
from shardplan.inputs.readers.catalog import load_cluster, load_model
from shardplan.inputs.readers.overrides import override
from shardplan.planner.search import search_question

MODEL, CLUSTER = "llama-3.1-70b", "dgx-h100"
SHAPES = ((40, 25),)
"""Numbers of accelerators, and bandwidths of each."""
STEP = 64
"""Accelerators by which they differ; of more than ``MOST`` steps, smaller ones."""
MOST = 64
LOOPED = 30
"""Questions of the loop over ``search``."""


def main() -> None:
    """Measures, prints the table and writes the record."""
    flags = parser(__doc__ or "", runs=1).parse_args()
    rows = [_measured(*shape) for shape in (((2, 2),) if flags.tiny else SHAPES)]
    print(report({"rows": rows}))
    write_record(flags.json, "many", model=MODEL, cluster=CLUSTER, rows=rows)


def report(record: Record) -> str:
    """The record as a table."""
    header = ("questions", "plans of each", "`search`, ms", "`search_many`, ms", "with estimates, ms", "ratio")
    return table(header, [_row(each) for each in record["rows"]])


def _row(each: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"{each['sizes']} sizes x {each['bandwidths']} bandwidths",
        f"{each['plans']:,.0f}",
        f"{1e3 * each['search_cpu_s']:,.0f}",
        f"{1e3 * each['many_cpu_s']:,.1f}",
        f"{1e3 * each['estimates_cpu_s']:,.1f}",
        f"{each['search_cpu_s'] / each['many_cpu_s']:.0f}",
    )


def _questions(sizes: int, bandwidths: int) -> list[Question]:
    """The default job of every number of accelerators; bandwidths between nodes from 12.5 to 400 GB/s."""
    model, base = load_model(MODEL), load_cluster(CLUSTER)
    step = STEP if sizes <= MOST else STEP * MOST // sizes // 8 * 8
    clusters = [override(base, {"inter_node_bandwidth": float(b)}) for b in np.geomspace(12.5e9, 400e9, bandwidths)]
    return [question(model, each, step * (n + 1)) for n in range(sizes) for each in clusters]


def _measured(sizes: int, bandwidths: int) -> dict[str, Any]:
    asked = _questions(sizes, bandwidths)
    chosen = np.random.default_rng(0).permutation(len(asked))[:LOOPED].tolist()
    started = time.process_time()
    many = [*search_many(asked)]
    many_time = time.process_time() - started
    started = time.process_time()
    for each in many:
        _ = each.recommended
    estimates_time = time.process_time() - started
    looped = _looped([many[number] for number in chosen])
    return {
        "sizes": sizes,
        "bandwidths": bandwidths,
        "plans": float(np.mean([each.num_plans_evaluated for each in many])),
        "search_cpu_s": looped / len(chosen),
        "many_cpu_s": many_time / len(asked),
        "estimates_cpu_s": (many_time + estimates_time) / len(asked),
    }


def _looped(answers: Iterable[ManyAnswer]) -> float:
    """Processor time of searches of the same questions, one by one. [s]"""
    total = 0.0
    for each in answers:
        asked = each.question
        stack, _ = chosen_stack(USUAL, asked.cluster.accelerator.vendor, Wanted.of(asked.model, {}))
        started = time.process_time()
        alone = search_question(asked, top=1, suggestions=False, stack=stack)
        total += time.process_time() - started
        plans = [None if plan is None else plan.plan for plan in (each.found_fastest, each.found_to_take)]
        expected = [alone.estimates[0].plan if alone.estimates else None, alone.recommended and alone.recommended.plan]
        if plans != expected:
            raise ValueError(f"search_many has another answer to {asked}")
    return total


if __name__ == "__main__":
    main()
