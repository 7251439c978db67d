"""Random questions, odd counts among them: does every answer run, is it the best to take, do more accelerators help?

python benchmarks/random_questions.py [--questions 200] [--seed 0] [--json FILE]

The record is benchmarks/records/random_questions.json where no other file is named.

Each question is a built-in model on a built-in cluster with a count from 8 to 100,000 and its default job, asked twice:
with that count and, the job unchanged, with up to a fifth more. An answer is the best of the search and what it offers.
Of the recommended plan it is asked if a listed one is both faster and smaller, whether it may not fit where a listed
one that takes little longer is safe, and whether anything shows that its framework runs it.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shardplan import search
from shardplan.base.errors import ShardplanError
from shardplan.calibrate.predict import ask_all
from shardplan.calibrate.runs.rows import shipped_runs
from shardplan.estimation.charge import model_flops_per_token
from shardplan.estimation.estimate import Estimate
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import Setting
from shardplan.inputs.readers.catalog import load_cluster, load_model
from shardplan.inputs.software import CHOSEN, Software
from shardplan.physics.frameworks.runnable import refusals
from shardplan.physics.frameworks.usual_stack import usual_stack
from shardplan.planner.priced_plans import ROOM_FACTOR
from shardplan.planner.result import SearchResult

RECORD = Path(__file__).parent / "records" / "random_questions.json"
MODELS = (
    "llama-3.2-1b", "llama-3.2-3b", "llama-3.1-8b", "qwen3-8b", "llama-2-13b", "gemma-2-27b", "qwen3-32b",
    "llama-3.1-70b", "qwen2.5-72b", "gpt3-175b", "llama-3.1-405b", "mixtral-8x7b", "qwen3-30b-a3b", "gpt-oss-120b",
    "mixtral-8x22b", "qwen3-235b-a22b", "deepseek-v3",
)  # fmt: skip
CLUSTERS = (
    "dgx-a100", "dgx-h100", "hgx-h200", "dgx-b200", "gb200-nvl72", "gb300-nvl72", "hgx-mi300x", "tpu-v5p-pod",
    "tpu-v6e-pod", "atlas-910b",
)  # fmt: skip
FEWEST, MOST = 8, 100_000
MOST_ADDED = 0.2
MOST_BEYOND_MEASURED = 0.05
"""MFU above the best measured of its part and precision from which an answer is not believed."""
ENOUGH_MODELS = 3
"""Measured models of one kind, part and precision from which their best MFU tells what can be reached: B200 has a dense
one in bf16, 8B on one node with the optimizer in host memory; H200 has one too."""
LISTED = 10
"""Plans of an answer that are compared with the one to take."""
SAME = 1e-9
"""Share by which numbers differ that are the same."""
LEAST_OF_FEWER = 0.98
"""Share of the tokens per second with fewer accelerators that more of them train at least."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One question and what came of it."""

    model: str
    cluster: str
    num_accelerators: int
    more: int
    """The larger count."""
    seconds: float
    fits: bool
    refusals: int = 0
    """Rules of its framework that the answer breaks."""
    mfu: float | None = None
    best_measured_mfu: float | None = None
    models_measured: int = 0
    """Models of its kind, dense or mixture of experts, whose runs on this part and precision tell that."""
    tokens_of_more: float | None = None
    """Tokens per second of the fastest plan with more accelerators over those with fewer, the batch unchanged."""
    distance: float | None = None
    """To the nearest measured run."""
    band: float | None = None
    """90th over 10th percentile of the step time."""
    is_dominated: bool = False
    """Whether a listed plan is both faster and smaller than the recommended plan."""
    is_dominated_by_tested: bool = False
    """Whether such a plan is of a kind that something shows to run, where that one is too, or neither is."""
    gives_up_room: bool = False
    """Whether the recommended plan may not fit though a listed plan that takes little longer fits for sure."""
    is_untested: bool = False
    """Whether nothing shows that the framework runs the recommended plan."""
    software: tuple[str, ...] = ()
    """What is not plain in the answer's software."""
    cause: str | None = None
    """Why the MFU may be above all that was measured, where it is."""

    @property
    def is_above_measured(self) -> bool:
        """Whether the MFU is above all that was measured on the part in this precision."""
        known = self.mfu is not None and self.best_measured_mfu is not None
        return known and self.mfu > self.best_measured_mfu  # type: ignore[operator]

    @property
    def is_too_good(self) -> bool:
        """Whether the MFU is beyond what was measured."""
        known = self.mfu is not None and self.best_measured_mfu is not None
        return known and self.mfu > self.best_measured_mfu + MOST_BEYOND_MEASURED  # type: ignore[operator]

    @property
    def is_well_measured(self) -> bool:
        """Whether runs of enough models tell what the part reaches in this precision."""
        return self.models_measured >= ENOUGH_MODELS

    @property
    def is_slower_with_more(self) -> bool:
        """Whether accelerators that are added cost tokens per second."""
        return self.tokens_of_more is not None and self.tokens_of_more < LEAST_OF_FEWER


def questions(number: int, seed: int) -> Iterator[tuple[str, str, int, int]]:
    """Model, cluster, count and a larger count."""
    draw = random.Random(seed)  # noqa: S311  # a draw that can be repeated
    for _ in range(number):
        model, cluster = draw.choice(MODELS), draw.choice(CLUSTERS)
        count = round(math.exp(draw.uniform(math.log(FEWEST), math.log(MOST / (1 + MOST_ADDED)))))
        count = count if draw.random() < 0.5 else max(count // 8, 1) * 8
        yield model, cluster, count, count + draw.randint(1, max(round(MOST_ADDED * count), 1))


def ask(model: str, cluster: str, count: int, more: int) -> Asked:
    """Asks one question with both counts."""
    started = time.process_time()
    fewer_answer = _answer(model, cluster, count)
    job = None if fewer_answer is None else fewer_answer.question.job
    more_answer = _answer(model, cluster, more, job)
    seconds = time.process_time() - started
    posed = Asked(model=model, cluster=cluster, num_accelerators=count, more=more, seconds=seconds, fits=False)
    best = None if fewer_answer is None else _best(fewer_answer)
    if fewer_answer is None or best is None:
        return posed
    near = best.evidence
    asked = fewer_answer.question
    measured = measured_mfus().get((asked.cluster.accelerator.name, best.peak_format), [])
    posed = replace(
        posed,
        fits=True,
        refusals=sum(_refusals(each) for each in (fewer_answer, more_answer) if each is not None),
        mfu=best.mfu,
        best_measured_mfu=max((each.mfu for each in measured), default=None),
        models_measured=len({each.model for each in measured if each.is_moe == asked.model.is_moe}),
        tokens_of_more=_rate_of_more(fewer_answer, more_answer),
        distance=near[0].distance if near else None,
        band=best.step_time_p90 / best.step_time_p10,
        software=software_of(asked.running(vars(best.plan)).job.software, best.plan),
        **_choice(fewer_answer),
    )
    return replace(posed, cause=_cause(posed, measured, is_moe=asked.model.is_moe) if posed.is_above_measured else None)


def _choice(result: SearchResult) -> dict[str, Any]:
    """What is wrong with the recommended plan beside those that are listed."""
    taken = result.recommended
    if taken is None:
        return {}
    room = float(result.question.usable_memory)
    better = [each for each in result.estimates if _is_faster_and_smaller(each, taken)]
    longest = ROOM_FACTOR * min(each.step_time for each in result.estimates)
    near = [each for each in result.estimates if each.step_time <= longest]
    return {
        "is_dominated": bool(better),
        "is_dominated_by_tested": any(taken.untested or not each.untested for each in better),
        "gives_up_room": taken.peak_memory_p90_bytes > room
        and any(each.peak_memory_p90_bytes <= room for each in near),
        "is_untested": bool(taken.untested),
    }


def _is_faster_and_smaller(one: Estimate, other: Estimate) -> bool:
    is_faster = one.step_time < other.step_time * (1 - SAME)
    return is_faster and one.peak_memory_bytes < other.peak_memory_bytes * (1 - SAME)


def software_of(software: Software, plan: Plan) -> tuple[str, ...]:
    """Choices that are not plain, as words; overlaps where they make a difference."""
    overlaps = {"overlap_tp": plan.overlap_tp and plan.tp > 1, "overlap_ep": plan.overlap_ep and plan.ep > 1}
    own = (f"{name} {getattr(software, name)}" for name, plain in CHOSEN.items() if getattr(software, name) != plain)
    return (*(name for name, is_on in overlaps.items() if is_on), *own)


def _cause(found: Asked, measured: Sequence[Measured], *, is_moe: bool) -> str:
    """Why an answer may be above what was measured: what runs of the part lack, the first that is so."""
    kind, known = "mixtures" if is_moe else "dense models", [each for each in measured if each.is_moe == is_moe]
    new = [each for each in found.software if not any(each in run.software for run in known)]
    best = max(measured, key=lambda each: each.mfu)
    if found.models_measured < ENOUGH_MODELS:
        return f"{found.models_measured} {kind} measured on it in this precision"
    if new:
        return f"no {kind} measured on it with {', '.join(new)}"
    if found.num_accelerators < best.num_accelerators:
        return f"fewer accelerators than the {best.num_accelerators:,} of the best run ({best.model})"
    return f"another model than that of the best run ({best.model}), at distance {found.distance or 0.0:.1f} from all"


def _answer(model: str, cluster: str, count: int, job: Job | None = None) -> SearchResult | None:
    try:
        return search(load_model(model), load_cluster(cluster), count, job=job, top=LISTED)
    except ShardplanError:  # a count that the cluster does not have
        return None


def _best(result: SearchResult) -> Estimate | None:
    """The answer with most tokens per second: the recommended plan, an offer, or what would fit; None: nothing."""
    length = result.question.job.sequence_length
    taken = result.estimates[:1] if result.recommended is None else (result.recommended,)
    found = [*taken, *(each.estimate for each in result.offers)]
    most = result.question.num_accelerators
    found += [_fastest_like(result, each.estimate) for each in result.suggestions if each.num_accelerators <= most]
    rates = [each.dp * each.plan.micro_batch_size * each.num_microbatches * length / each.step_time for each in found]
    return found[int(np.argmax(rates))] if rates else None


def _rate_of_more(fewer: SearchResult, more: SearchResult | None) -> float | None:
    """How much faster the fastest plan is on more accelerators, the batch unchanged; None where either has no plan."""
    if more is None or not fewer.estimates or not more.estimates:
        return None
    return fewer.estimates[0].step_time / more.estimates[0].step_time


def _fastest_like(result: SearchResult, suggested: Estimate) -> Estimate:
    """The fastest plan of the count and batch of a suggestion, since offers are the fastest too."""
    asked = result.question
    batch = suggested.dp * suggested.plan.micro_batch_size * suggested.num_microbatches
    job = replace(asked.job, global_batch_size=batch)
    estimates = search(asked.model, asked.cluster, suggested.num_accelerators_used, job=job, top=1).estimates
    return estimates[0] if estimates else suggested


def _refusals(result: SearchResult) -> int:
    """Rules of the framework that listed plans break."""
    question = result.question
    stack = usual_stack(question.cluster.accelerator.vendor)
    if stack is None:
        return 0
    setting = Setting.of(question.model, question.cluster, question.num_accelerators, question.job)
    return sum(len(refusals(stack, each.plan, setting)) for each in result.estimates)


class Measured(NamedTuple):
    """A measured run."""

    mfu: float
    is_moe: bool
    model: str
    num_accelerators: int
    software: tuple[str, ...]
    """What is not plain in it."""


@cache
def measured_mfus() -> Mapping[tuple[str, str], Sequence[Measured]]:
    """Measured runs by accelerator and number format."""
    found: dict[tuple[str, str], list[Measured]] = defaultdict(list)
    for each in ask_all([run for run in shipped_runs() if run.step_time is not None])[0]:
        q = each.question
        part, form = q.cluster.accelerator, q.job.recipe.matmul
        flops = model_flops_per_token(q.model, q.job.sequence_length) * q.job.tokens_per_step
        mfu = flops / (each.run.step_time * q.num_accelerators * part.peak(form))  # type: ignore[operator]
        software = software_of(q.running(vars(each.plan)).job.software, each.plan)
        found[part.name, form].append(Measured(mfu, q.model.is_moe, each.run.model, q.num_accelerators, software))
    return found


def record_of(asked: Sequence[Asked], seed: int) -> dict[str, Any]:
    """Counts of what is wrong, and the worst answers."""
    answered = [each for each in asked if each.fits]
    known = [each for each in answered if each.distance is not None and each.band is not None]
    order = np.corrcoef(_ranks([each.distance for each in known]), _ranks([each.band for each in known]))[0, 1]
    return {
        "benchmark": "random_questions",
        "seed": seed,
        "questions": len(asked),
        "answered": len(answered),
        "refused_plans": sum(each.refusals for each in answered),
        "too_good": [_short(each) for each in answered if each.is_too_good],
        "too_good_where_models_were_measured": sum(each.is_too_good and each.is_well_measured for each in answered),
        "with_well_measured_mfu": sum(each.is_well_measured for each in answered),
        "with_measured_mfu": sum(each.best_measured_mfu is not None for each in answered),
        "above_measured": [_short(each) for each in answered if each.is_above_measured],
        "dominated": sum(each.is_dominated for each in answered),
        "dominated_by_tested": [_short(each) for each in answered if each.is_dominated_by_tested],
        "gives_up_room": [_short(each) for each in answered if each.gives_up_room],
        "untested": [_short(each) for each in answered if each.is_untested],
        "slower_with_more": [_short(each) for each in answered if each.is_slower_with_more],
        "asked_with_more": sum(each.tokens_of_more is not None for each in answered),
        "rank_correlation_of_distance_and_band": round(float(order), 3) if len(known) > 2 else None,
        "median_seconds": round(float(np.median([each.seconds for each in asked])), 3),
    }


def _ranks(values: Sequence[Any]) -> Any:
    return np.argsort(np.argsort(np.asarray(values, dtype=float)))


def _short(each: Asked) -> dict[str, Any]:
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in asdict(each).items()}


def report(record: dict[str, Any]) -> str:
    """The record as a Markdown table."""
    good, more = record["with_measured_mfu"], record["asked_with_more"]
    well, known = record["too_good_where_models_were_measured"], record["with_well_measured_mfu"]
    order = record["rank_correlation_of_distance_and_band"]
    rows = {
        "questions; with a plan that fits": f"{record['questions']}, {record['answered']}",
        "listed plans that their framework refuses": record["refused_plans"],
        "recommended plans that a listed plan beats in time and memory": record["dominated"],
        "of these, the listed plan is as well tested": len(record["dominated_by_tested"]),
        "recommended plans that may not fit, though a listed one within 15 % is safe": len(record["gives_up_room"]),
        "recommended plans that no test, recipe or run shows": len(record["untested"]),
        "MFU above the best measured of accelerator and precision": f"{len(record['above_measured'])} of {good}",
        "MFU more than 5 points above it": f"{len(record['too_good'])} of {good}",
        f"the same, if {ENOUGH_MODELS} or more models of the kind were measured": f"{well} of {known}",
        "slower by 2 % or more on more accelerators, same batch": f"{len(record['slower_with_more'])} of {more}",
        "rank correlation of the distance to the nearest run with the width of the band": order,
    }
    return "\n".join(["| | |", "|---|--:|", *(f"| {name} | {value} |" for name, value in rows.items())])


def main() -> None:
    """Asks, counts, writes and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, default=RECORD)
    given = parser.parse_args()
    asked = [ask(*each) for each in questions(given.questions, given.seed)]
    record = record_of(asked, given.seed)
    given.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(report(record))


if __name__ == "__main__":
    main()
