"""Complete plan estimates per second on one core, inside a search.

An estimate is counted when a valid plan has got its step time, its peak memory, the bytes it sends and whether it fits
(``Survey.num_evaluated``). Two rates measured in the same run stand beside it: plans estimated one at a time, and a
plain NumPy loop over a million plans as a measure of the machine.
"""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import asdict, dataclass

import numpy as np
from measure import Record, parser, table, timed, write_record
from questions import question_of

from shardplan.estimation.estimate import estimate_plan
from shardplan.inputs.plan import Plan
from shardplan.planner.family import Family
from shardplan.planner.points import families
from shardplan.planner.restrictions import Restrictions
from shardplan.planner.space import declare
from shardplan.planner.survey import survey_of

QUESTIONS = (
    ("llama-3.1-8b", "dgx-h100", 64),
    ("llama-3.1-70b", "dgx-h100", 512),
    ("llama-3.1-70b", "gb200-nvl72", 576),
    ("llama-3.1-405b", "dgx-h100", 16384),
    ("nemotron-h-56b", "dgx-h100", 6144),
    ("deepseek-v3", "dgx-h100", 2048),
    ("qwen3-30b-a3b", "dgx-h100", 3072),
    ("kimi-k2", "gb200-nvl72", 4608),
)
"""Dense and hybrid models first, then mixtures of experts, whose spaces are larger."""
TINY = (("llama-3.2-1b", "dgx-h100", 8),)

NUM_GATHERS = 15
NUM_OPERATIONS = 90
LOOP = 1_000_000
"""Plans of the plain loop."""
PIECE = 16_384
"""Plans of the plain loop that are worked on together: their arrays stay in the second-level cache."""
TABLE = 4_096
"""Length of the tables that the plain loop gathers from."""


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What was measured for one question."""

    model: str
    cluster: str
    num_accelerators: int
    num_families: int
    num_points: int
    """Combinations of the degrees that shape a layer, over all families."""
    num_plans: int
    survey_s: float
    """Wall time from the declared space to the value of its last plan, rules of validity included."""
    survey_cpu_s: float
    plans_per_s: float
    """Plans over ``survey_s``."""
    single_per_s: float
    """Plans that ``estimate_plan`` answers one at a time."""
    plain_loop_per_s: float
    """Plans of the plain loop, measured just before."""


def main() -> None:
    """Measures, prints the table and writes the record."""
    flags = parser(__doc__ or "", runs=9).parse_args()
    asked = TINY if flags.tiny else QUESTIONS
    record: Record = {
        "runs": flags.runs,
        "questions": [asdict(_rates(*question, runs=flags.runs)) for question in asked],
    }
    print(report(record))
    write_record(flags.json, "evaluation_rate", **record)


def report(record: Record) -> str:
    """The record as a table."""
    header = ("question", "plans", "seconds", "plans/s", "one at a time", "ratio", "of the plain loop")
    measured = [Rates(**each) for each in record["questions"]]
    rows = [_row(each) for each in measured]
    loop = f"{statistics.median(each.plain_loop_per_s for each in measured) / 1e6:.1f} M plans/s"
    return (
        f"{table(header, rows)}\n\nPlain loop, {NUM_GATHERS} gathers and {NUM_OPERATIONS} operations per plan: {loop}."
    )


def _row(rates: Rates) -> tuple[str, ...]:
    return (
        f"{rates.model}, {rates.num_accelerators:,} in {rates.cluster}",
        f"{rates.num_plans:,}",
        f"{rates.survey_s:.3f}",
        f"{rates.plans_per_s / 1e6:.1f} M",
        f"{rates.single_per_s:,.0f}",
        f"{rates.plans_per_s / rates.single_per_s:,.0f}",
        f"{rates.plans_per_s / rates.plain_loop_per_s:.2f}",
    )


def _rates(model: str, cluster: str, num_accelerators: int, *, runs: int) -> Rates:
    question = question_of(model, cluster, num_accelerators)
    space = declare(question, Restrictions())
    found = list(families(question, space, Counter()))
    plain_loop_per_s = _plain_loop(runs=runs)
    num_plans = survey_of(question, space).num_evaluated
    survey = timed(lambda: survey_of(question, space), runs=runs, warm_up=0)
    sample = _sample(found, num_plans=min(200, num_plans))
    single = timed(lambda: [estimate_plan(question, plan) for plan in sample], runs=3)
    return Rates(
        model=model,
        cluster=cluster,
        num_accelerators=num_accelerators,
        num_families=len(found),
        num_points=sum(family.num_points for family in found),
        num_plans=num_plans,
        survey_s=survey.median_s,
        survey_cpu_s=survey.median_cpu_s,
        plans_per_s=num_plans / survey.median_s,
        single_per_s=len(sample) / single.median_s,
        plain_loop_per_s=plain_loop_per_s,
    )


def _sample(found: list[Family], *, num_plans: int) -> list[Plan]:
    """Valid plans of the space, drawn with a fixed seed: a family by its number of points, then each axis alone."""
    random = np.random.default_rng(0)
    weights = np.asarray([family.num_points for family in found])
    plans = []
    for number in random.choice(len(found), size=num_plans, p=weights / weights.sum()):
        family = found[number]
        point = int(random.integers(family.num_points))
        sharding = int(random.choice(np.flatnonzero(family.shards[:, point])))
        depth = int(family.points["depth"][point])
        chunks = [vp for vp in family.vps[depth] if vp == 1 or family.interleaves[point]]
        slot = int(random.choice(np.flatnonzero(family.recomputes[:, depth])))
        plans.append(family.plan(sharding, slot, int(random.choice(chunks)), point))
    return plans


def _plain_loop(*, runs: int) -> float:
    """Plans per second of a loop that gathers and combines columns of numbers and means nothing."""
    random = np.random.default_rng(0)
    tables = random.uniform(1.0, 2.0, (NUM_GATHERS, TABLE))
    indices = random.integers(0, TABLE, (NUM_GATHERS, LOOP))
    total, column = np.empty(PIECE), np.empty(PIECE)

    def piece(at: slice) -> None:
        length = indices[0, at].size
        sums, values = total[:length], column[:length]
        sums.fill(1.0)
        for values_of, index in zip(tables, indices, strict=True):
            np.take(values_of, index[at], out=values, mode="clip")
            for _ in range(NUM_OPERATIONS // NUM_GATHERS // 3):
                np.multiply(sums, values, out=sums)
                np.add(sums, values, out=sums)
                np.minimum(sums, 2.0, out=sums)

    def loop() -> None:
        for start in range(0, LOOP, PIECE):
            piece(slice(start, start + PIECE))

    return LOOP / timed(loop, runs=runs).median_s


if __name__ == "__main__":
    main()
