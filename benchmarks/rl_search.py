"""Processor time of the search of an RL step in all placements and splits, over that of its trainer alone.

The trainer's own search is that of ``shardplan plan --use-all``, on all accelerators, with the plans that it lists.
Both are made by turns, the least of all runs counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

from measure import Record, parser, table, timed, write_record

from shardplan.planner.result import SearchResult
from shardplan.rl.asked import AskedRl, ask_rl
from shardplan.rl.search import RlResult, search_rl
from shardplan.rl.sizes import Trainers

QUESTIONS = (
    ("llama-3.1-8b", 32, 4, "mean=800,max=4k"),
    ("qwen3-30b-a3b", 32, 1, "mean=2k,max=4k"),
    ("llama-3.1-70b", 64, 4, "mean=800,max=4k"),
    ("qwen3-30b-a3b", 128, 1, "mean=2k,max=4k"),
    ("llama-3.1-70b", 256, 1, "mean=1k,max=8k"),
    ("deepseek-v3", 512, 1, "mean=800,max=1536"),
)
"""Model, accelerators, optimizer steps and lengths of answers; dense models and mixtures."""
TINY = (("llama-3.2-1b", 24, 1, "mean=500,max=1500"),)
LISTED = 10


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was measured for one question."""

    model: str
    num_accelerators: int
    num_splits: int
    num_searched: int
    """Numbers of accelerators for which the trainer was searched."""
    own_cpu_s: float
    """The trainer's own search: the least of all runs."""
    cpu_s: float
    """The whole search."""


def main() -> None:
    """Measures, prints the table and writes the record."""
    flags = parser(__doc__ or "", runs=3).parse_args()
    asked = TINY if flags.tiny else QUESTIONS
    record: Record = {
        "runs": flags.runs,
        "questions": [asdict(_measured(*question, runs=flags.runs)) for question in asked],
    }
    print(report(record))
    write_record(flags.json, "rl_search", **record)


def report(record: Record) -> str:
    """The record as a table."""
    header = ("question", "splits", "trainers searched", "trainer's own search, ms", "whole search, ms", "ratio")
    return table(header, [_row(Measured(**each)) for each in record["questions"]])


def _row(each: Measured) -> tuple[str, ...]:
    return (
        f"{each.model}, {each.num_accelerators:,} in dgx-h100",
        f"{each.num_splits:,}",
        f"{each.num_searched:,}",
        f"{1e3 * each.own_cpu_s:,.0f}",
        f"{1e3 * each.cpu_s:,.0f}",
        f"{each.cpu_s / each.own_cpu_s:.1f}",
    )


def _measured(model: str, num_accelerators: int, updates: int, lengths: str, *, runs: int) -> Measured:
    def asked() -> AskedRl:
        record = {"model": model, "cluster": "dgx-h100", "num_accelerators": num_accelerators}
        return ask_rl(record, {"prompts": 64, "samples": 32, "response_tokens": lengths, "updates": updates})

    times: list[tuple[float, float]] = []
    found = _whole(asked)
    for _ in range(runs):
        own = timed(partial(_own, asked), runs=1, warm_up=0).cpu_s[0]
        times.append((own, timed(partial(_whole, asked), runs=1, warm_up=0).cpu_s[0]))
    return Measured(
        model=model,
        num_accelerators=num_accelerators,
        num_splits=num_accelerators // 8 - 1,
        num_searched=found.num_searches,
        own_cpu_s=min(own for own, _ in times),
        cpu_s=min(whole for _, whole in times),
    )


def _whole(asked: Callable[[], AskedRl]) -> RlResult:
    one = asked()
    return search_rl(one.task, one.searches)


def _own(asked: Callable[[], AskedRl]) -> SearchResult:
    """The trainer's own search, with what a plan's answer lists."""
    one = asked()
    found = one.searches.result(Trainers(one.task, one.searches, 0.0).asked(one.task.question), top=LISTED)
    if not [*found.estimates, found.recommended]:
        raise ValueError("no plan fits")
    return found


if __name__ == "__main__":
    main()
