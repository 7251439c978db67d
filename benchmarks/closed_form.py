"""How near the closed form of the estimate is to the simulation, over the space of twenty questions.

    python benchmarks/closed_form.py [--plans 24] [--seed 0] [--json FILE]

Plans with a pipeline are drawn at random from all that fit: of those that the usual framework runs, and of those of
every other schedule. A difference is closed form / simulation - 1. It has two causes: transfers on their way, which is
what vanishes where transfers are free, and chunks that do not take equal times, which is the rest.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from questions import question_of

from shardplan.estimation.priced import PricedPlan
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan
from shardplan.inputs.schedule_names import BUILT_IN
from shardplan.physics.frameworks.stack import Stack
from shardplan.physics.frameworks.usual_stack import usual_stack
from shardplan.physics.schedules.registry import load_schedule
from shardplan.planner.evaluation import Table, listed_of, outcomes
from shardplan.planner.restrictions import Restrictions
from shardplan.planner.space import declare
from shardplan.planner.survey import survey_of
from shardplan.simulation.plan import simulate_priced

RECORD = Path(__file__).parent / "records" / "closed_form.json"
QUESTIONS = (
    ("llama-3.1-8b", "dgx-h100", 16), ("llama-3.1-8b", "dgx-a100", 64), ("llama-2-13b", "dgx-a100", 64),
    ("qwen3-32b", "dgx-h100", 64), ("gemma-2-27b", "hgx-h200", 64), ("llama-3.1-70b", "dgx-h100", 128),
    ("llama-3.1-70b", "gb200-nvl72", 144), ("qwen2.5-72b", "dgx-b200", 256), ("gpt3-175b", "dgx-a100", 512),
    ("llama-3.1-405b", "dgx-h100", 1024), ("mixtral-8x7b", "dgx-h100", 64), ("mixtral-8x22b", "dgx-h100", 128),
    ("qwen3-30b-a3b", "dgx-h100", 64), ("qwen3-235b-a22b", "dgx-h100", 256), ("gpt-oss-120b", "dgx-b200", 128),
    ("deepseek-v3", "dgx-h100", 512), ("deepseek-v3", "gb200-nvl72", 576), ("nemotron-3-nano-30b-a3b", "dgx-h100", 64),
    ("nemotron-h-56b", "dgx-h100", 128), ("kimi-k2", "hgx-h200", 1024),
)  # fmt: skip
"""Dense, mixture of experts, latent attention and hybrid models."""
NAMED = tuple(name for name in BUILT_IN if name not in ("1f1b", "interleaved"))
"""Schedules that a plan must name."""
MOST_PASSES = 200_000
"""Chunk passes of a plan that is drawn; the steady state of larger ones repeats itself."""
NEAR, FAR = 0.01, 0.05
"""Mean and worst difference that are asked for."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One plan, by closed form and by simulation."""

    model: str
    cluster: str
    plan: Plan
    num_microbatches: int
    is_usual: bool
    """Whether it is of the plans that the usual framework runs."""
    total: float
    """Closed form / simulation - 1."""
    free: float
    """The same where transfers take no time on their way."""

    @property
    def schedule(self) -> str:
        """Its name."""
        return self.plan.effective_schedule

    @property
    def of_transfers(self) -> float:
        """What transfers on their way add."""
        return self.total - self.free


def drawn(question: Question, stack: Stack | None, number: int, draw: np.random.Generator, **limit: Any) -> list[Plan]:
    """Plans with a pipeline that fit, each as likely as any other."""
    survey = survey_of(question, declare(question, Restrictions(limit=limit), stack))
    tables = [(table, _cells(table)) for table in survey.tables]
    counts = np.array([len(cells) for _, cells in tables])
    if not counts.sum():
        return []
    found: list[Plan] = []
    for place in draw.permutation(counts.sum())[: 4 * number]:
        table, cells = tables[int(np.searchsorted(np.cumsum(counts), place, side="right"))]
        cell = cells[int(draw.integers(len(cells)))]
        found += _plan_at(question, table, int(cell), draw)
        if len(found) == number:
            break
    return found


def _cells(table: Table) -> Any:
    """Where the tables have plans with a pipeline that fit."""
    deep = table.family.points["pp"] > 1
    return np.flatnonzero(np.isfinite(table.best) & deep)


def _plan_at(question: Question, table: Table, cell: int, draw: np.random.Generator) -> list[Plan]:
    """One of the plans of a cell that fit, over the chunks per rank; none where it has too many passes."""
    mask = np.zeros(table.best.size, dtype=bool)
    mask[cell] = True
    plans = listed_of(table, mask.reshape(table.best.shape))
    fits = np.flatnonzero(np.broadcast_to(outcomes(question, table.tables, plans).fits, len(plans)))
    plan = plans.plan(table.tables, int(draw.choice(fits)))
    m = PricedPlan.of(question, plan).numbers.num_microbatches
    return [plan] if plan.pp * plan.vp * m <= MOST_PASSES else []


def compared(question: Question, plan: Plan) -> tuple[float, float, int]:
    """Closed form / simulation - 1, the same with free transfers, and the micro-batches."""
    priced, schedule = PricedPlan.of(question, plan), load_schedule(plan.effective_schedule)
    times = priced.chunk_times
    free = replace(times, transfer=0.0 * times.transfer)
    total, alone = (
        priced.step_time / simulate_priced(priced, schedule, times=each).step_time - 1 for each in (times, free)
    )
    return total, alone, int(priced.numbers.num_microbatches)


def study(questions: Sequence[tuple[str, str, int]], number: int, seed: int) -> Iterator[Difference]:
    """All differences, question by question."""
    for place, (model, cluster, count) in enumerate(questions):
        question, draw = question_of(model, cluster, count), np.random.default_rng((seed, place))
        stack = usual_stack(question.cluster.accelerator.vendor)
        plans = [(plan, True) for plan in drawn(question, stack, number, draw)]
        for name in NAMED:
            plans += [(plan, False) for plan in drawn(question, None, max(number // 6, 1), draw, schedule=[name])]
        for plan, is_usual in plans:
            total, free, m = compared(question, plan)
            yield Difference(
                model=model, cluster=cluster, plan=plan, num_microbatches=m, is_usual=is_usual, total=total, free=free
            )


def rows_of(found: Sequence[Difference]) -> list[dict[str, Any]]:
    """Mean and worst difference of groups of plans."""
    groups: dict[str, Callable[[Difference], bool]] = {
        "plans that the usual framework runs": lambda each: each.is_usual,
        "1F1B": lambda each: each.is_usual and each.plan.vp == 1,
        "interleaved": lambda each: each.is_usual and each.plan.vp > 1,
        **{name: partial(_has, name) for name in NAMED},
        "all of these": bool,
    }
    return [_row(name, [each for each in found if holds(each)]) for name, holds in groups.items()]


def _has(name: str, each: Difference) -> bool:
    return not each.is_usual and each.schedule == name


def _row(name: str, found: Sequence[Difference]) -> dict[str, Any]:
    if not found:
        return {"plans": name, "number": 0}
    total, free, moved = (
        np.array([getattr(each, field) for each in found]) for field in ("total", "free", "of_transfers")
    )
    worst = found[int(np.argmax(np.abs(total)))]
    return {
        "plans": name,
        "number": len(found),
        "mean": float(np.mean(np.abs(total))),
        "p90": float(np.quantile(np.abs(total), 0.9)),
        "worst": worst.total,
        "beyond": float(np.mean(np.abs(total) > FAR)),
        "mean_transfers": float(np.mean(np.abs(moved))),
        "mean_chunks": float(np.mean(np.abs(free))),
        "worst_chunks": float(free[np.argmax(np.abs(free))]),
        "worst_plan": f"{worst.model} on {worst.cluster}: {_short(worst)}",
    }


def _short(each: Difference) -> str:
    plan = each.plan
    return f"tp {plan.tp}, pp {plan.pp}, vp {plan.vp}, {each.num_microbatches} micro-batches, {each.schedule}"


def report(record: dict[str, Any]) -> str:
    """The groups as a Markdown table."""
    header = "| plans | number | mean | 90th percentile | worst | above 5 % | mean by transfers | mean by chunks |"
    lines = [header, "|---|" + "--:|" * 7]
    for row in record["rows"]:
        if row["number"]:
            shares = [row[name] for name in ("mean", "p90", "worst", "beyond", "mean_transfers", "mean_chunks")]
            cells = " | ".join(f"{100 * share:.1f} %" for share in shares)  # the worst with its sign
            lines.append(f"| {row['plans']} | {row['number']} | {cells} |")
    return "\n".join(lines)


def main() -> None:
    """Draws, compares, writes and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plans", type=int, default=24, help="of the usual framework, per question")
    parser.add_argument("--questions", type=int, default=len(QUESTIONS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, default=RECORD)
    given = parser.parse_args()
    found = list(study(QUESTIONS[: given.questions], given.plans, given.seed))
    rows = rows_of(found)
    far = sorted((each for each in found if abs(each.total) > FAR), key=lambda each: -abs(each.total))
    record = {
        "benchmark": "closed_form",
        "seed": given.seed,
        "questions": given.questions,
        "rows": rows,
        "far": [{"plan": f"{each.model}: {_short(each)}", "total": each.total, "free": each.free} for each in far[:40]],
    }
    given.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(report(record))


if __name__ == "__main__":
    main()
