"""Search time against the number of plans and against the number of accelerators.

A search here is what ``shardplan plan`` does where something fits: every valid plan of the space evaluated, the ten
best different ones ranked and answered in full. The space is narrowed and widened by leaving fields at one value or
adding alternatives; the number of accelerators runs from 64 to 65,536 with the default job and space of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from measure import Record, parser, table, timed, write_record
from questions import question_of

from shardplan.estimation.question import Question
from shardplan.planner.ranking import different_cells
from shardplan.planner.restrictions import Choices, Restrictions
from shardplan.planner.space import declare
from shardplan.planner.survey import survey_of

DENSE, EXPERTS = "dense", "mixture of experts"
MODELS = (
    ("llama-3.1-70b", DENSE, 512),
    ("llama-3.1-405b", DENSE, 16384),
    ("qwen3-30b-a3b", EXPERTS, 3072),
    ("deepseek-v3", EXPERTS, 2048),
)
"""Each with its kind and the accelerators for which the space is narrowed and widened."""
CLUSTER = "dgx-h100"
NUM_ACCELERATORS = tuple(2**doubling for doubling in range(6, 17))

NARROW = {
    "sharding": ("zero1",),
    "recompute": ("none",),
    "micro_batch_size": (1,),
    "cp": (1,),
    "tp": (8,),
    "pp": (8,),
}
"""The narrowest space; it is widened by leaving one after the other free, last first, down to the default space."""
WIDE = {
    "overlap_dp": (True, False),
    "overlap_tp": (False, True),
    "sequence_parallel": (True, False),
}
"""Alternatives added to the default space, one after the other."""
TOP = 10


@dataclass(frozen=True, kw_only=True)
class Search:
    """One search."""

    model: str
    kind: str
    num_accelerators: int
    num_plans: int
    search_s: float
    search_cpu_s: float


def main() -> None:
    """Measures, prints the tables and writes the record."""
    flags = parser(__doc__ or "", runs=5).parse_args()
    models = (("llama-3.2-1b", DENSE, 8),) if flags.tiny else MODELS
    worlds = (8, 16) if flags.tiny else NUM_ACCELERATORS
    by_plans = [
        _search(name, kind, n, limit, runs=flags.runs)
        for name, kind, n in models
        for limit in _spaces({} if flags.tiny else WIDE)
    ]
    by_accelerators = [_search(name, kind, n, {}, runs=flags.runs) for name, kind, _ in models for n in worlds]
    record: Record = {
        "runs": flags.runs,
        "cluster": CLUSTER,
        "by_plans": [asdict(each) for each in by_plans],
        "by_accelerators": [asdict(each) for each in by_accelerators],
    }
    print(report(record))
    write_record(flags.json, "scaling", **record)


def report(record: Record) -> str:
    """The record as two tables."""
    header = ("model", "accelerators", "plans", "seconds", "plans/s")
    tables = [
        table(header, [_row(Search(**each)) for each in record[name]]) for name in ("by_plans", "by_accelerators")
    ]
    return "\n\n".join(tables)


def _row(each: Search) -> tuple[str, ...]:
    return (
        each.model,
        f"{each.num_accelerators:,}",
        f"{each.num_plans:,}",
        f"{each.search_s:.3f}",
        f"{each.num_plans / each.search_s / 1e6:.2f} M",
    )


def _spaces(wide: Choices) -> Iterator[Choices]:
    """Limits from the narrowest space to the widest."""
    for kept in range(len(NARROW), 0, -1):
        yield dict(list(NARROW.items())[:kept])
    for added in range(len(wide) + 1):
        yield dict(list(wide.items())[:added])


def _search(model: str, kind: str, num_accelerators: int, limit: Choices, *, runs: int) -> Search:
    question = question_of(model, CLUSTER, num_accelerators)
    num_plans = _answer(question, limit)
    timing = timed(lambda: _answer(question, limit), runs=runs, warm_up=0)
    return Search(
        model=model,
        kind=kind,
        num_accelerators=num_accelerators,
        num_plans=num_plans,
        search_s=timing.median_s,
        search_cpu_s=timing.median_cpu_s,
    )


def _answer(question: Question, limit: Choices) -> int:
    """Searches, and returns how many plans were evaluated."""
    survey = survey_of(question, declare(question, Restrictions(limit=limit)))
    for cell in different_cells(survey.tables, TOP):
        survey.estimate(cell)
    return survey.num_evaluated


if __name__ == "__main__":
    main()
