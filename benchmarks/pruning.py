"""Processor time of a search that leaves out plans by a bound (``--prune``), and of one that counts all that fit.

Both are run by turns, and their answers are compared: the listed plans, ties and the recommended plan are the same.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial

from measure import Record, parser, table, timed, write_record

from shardplan import search

QUESTIONS = (
    ("llama-3.1-8b", "dgx-h100", 64),
    ("llama-3.1-70b", "dgx-h100", 2048),
    ("llama-3.1-405b", "dgx-h100", 16384),
    ("deepseek-v3", "dgx-h100", 2048),
    ("qwen3-30b-a3b", "dgx-h100", 3072),
    ("kimi-k2", "gb200-nvl72", 4608),
)
TINY = (("llama-3.2-1b", "dgx-h100", 8),)


@dataclass(frozen=True, kw_only=True)
class Pruning:
    """What was measured for one question."""

    model: str
    cluster: str
    num_accelerators: int
    num_plans: int
    """Valid plans."""
    num_priced: int
    """Those that the pruned search priced."""
    whole_cpu_s: float
    """Search without it: the least of all runs."""
    pruned_cpu_s: float
    """Pruned search."""


def main() -> None:
    """Measures, prints the table and writes the record."""
    flags = parser(__doc__ or "", runs=3).parse_args()
    asked = TINY if flags.tiny else QUESTIONS
    record: Record = {
        "runs": flags.runs,
        "questions": [asdict(_measured(*question, runs=flags.runs)) for question in asked],
    }
    print(report(record))
    write_record(flags.json, "pruning", **record)


def report(record: Record) -> str:
    """The record as a table."""
    header = ("question", "plans", "priced", "search, ms", "--prune, ms", "ratio")
    return table(header, [_row(Pruning(**each)) for each in record["questions"]])


def _row(each: Pruning) -> tuple[str, ...]:
    return (
        f"{each.model}, {each.num_accelerators:,} in {each.cluster}",
        f"{each.num_plans:,}",
        f"{each.num_priced:,}",
        f"{1e3 * each.whole_cpu_s:,.0f}",
        f"{1e3 * each.pruned_cpu_s:,.0f}",
        f"{each.pruned_cpu_s / each.whole_cpu_s:.2f}",
    )


def _measured(model: str, cluster: str, num_accelerators: int, *, runs: int) -> Pruning:
    whole = search(model, cluster, num_accelerators)
    pruned = search(model, cluster, num_accelerators, prune=True)
    if (pruned.estimates, pruned.ties) != (whole.estimates, whole.ties):
        raise ValueError(f"the pruned search of {model} has another answer")
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(runs):
        for prune, known in times.items():
            run = timed(partial(search, model, cluster, num_accelerators, prune=prune), runs=1, warm_up=0)
            known.extend(run.cpu_s)
    return Pruning(
        model=model,
        cluster=cluster,
        num_accelerators=num_accelerators,
        num_plans=whole.num_plans_evaluated,
        num_priced=pruned.num_plans_evaluated,
        whole_cpu_s=min(times[False]),
        pruned_cpu_s=min(times[True]),
    )


if __name__ == "__main__":
    main()
