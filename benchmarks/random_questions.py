"""Random questions, odd counts among them: does every answer run, is it believable, and do more accelerators help?

python benchmarks/random_questions.py [--questions 200] [--seed 0] [--json FILE]

The record is benchmarks/records/random_questions.json where no other file is named.

Each question is a built-in model on a built-in cluster with a count from 8 to 100,000 and its default job, asked twice:
with that count and, the job unchanged, with up to a fifth more. An answer is the best of the search and what it offers.
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
from typing import Any

import numpy as np

from shardplan import search
from shardplan.calibration.predict import ask_all
from shardplan.calibration.runs.rows import shipped_runs
from shardplan.errors import ShardplanError
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.flops import model_flops_per_token
from shardplan.frameworks.runnable import refusals
from shardplan.frameworks.usual_stack import usual_stack
from shardplan.inputs.degrees import Setting
from shardplan.inputs.job import Job
from shardplan.inputs.readers.catalog import load_cluster, load_model
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
    """Tokens per second with more accelerators over those with fewer."""
    distance: float | None = None
    """To the nearest measured run."""
    band: float | None = None
    """90th over 10th percentile of the step time."""

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
    put = Asked(model=model, cluster=cluster, num_accelerators=count, more=more, seconds=seconds, fits=False)
    found = None if fewer_answer is None else _best(fewer_answer)
    more_found = None if more_answer is None else _best(more_answer)
    if fewer_answer is None or found is None:
        return put
    best, tokens = found
    near = best.evidence
    measured = measured_mfus().get((fewer_answer.question.cluster.accelerator.name, best.peak_format), [])
    return replace(
        put,
        fits=True,
        refusals=sum(_refusals(each) for each in (fewer_answer, more_answer) if each is not None),
        mfu=best.mfu,
        best_measured_mfu=max((mfu for mfu, _, _ in measured), default=None),
        models_measured=len({name for _, is_moe, name in measured if is_moe == fewer_answer.question.model.is_moe}),
        tokens_of_more=None if more_found is None else more_found[1] / tokens,
        distance=near[0].distance if near else None,
        band=best.step_time_p90 / best.step_time_p10,
    )


def _answer(model: str, cluster: str, count: int, job: Job | None = None) -> SearchResult | None:
    try:
        return search(load_model(model), load_cluster(cluster), count, job=job, top=3)
    except ShardplanError:  # a count that the cluster does not have
        return None


def _best(result: SearchResult) -> tuple[Estimate, float] | None:
    """The answer with most tokens per second: the plan to take, what is offered, or what would fit; None: nothing."""
    length = result.question.job.sequence_length
    taken = result.estimates[:1] if result.recommended is None else (result.recommended,)
    found = [*taken, *(each.estimate for each in result.offers)]
    most = result.question.num_accelerators
    found += [_fastest_like(result, each.estimate) for each in result.suggestions if each.num_accelerators <= most]
    rates = [each.dp * each.plan.micro_batch_size * each.num_microbatches * length / each.step_time for each in found]
    place = int(np.argmax(rates)) if rates else None
    return None if place is None else (found[place], rates[place])


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


@cache
def measured_mfus() -> Mapping[tuple[str, str], Sequence[tuple[float, bool, str]]]:
    """Measured MFU, kind of model (mixture of experts or not) and model, by accelerator and number format."""
    found: dict[tuple[str, str], list[tuple[float, bool, str]]] = defaultdict(list)
    for each in ask_all([run for run in shipped_runs() if run.step_time is not None])[0]:
        q = each.question
        part, form = q.cluster.accelerator, q.job.recipe.matmul
        flops = model_flops_per_token(q.model, q.job.sequence_length) * q.job.tokens_per_step
        mfu = flops / (each.run.step_time * q.num_accelerators * part.peak(form))  # type: ignore[operator]
        found[part.name, form].append((mfu, q.model.is_moe, each.run.model))
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
        "questions, and those with a plan that fits": f"{record['questions']}, {record['answered']}",
        "listed plans that their framework refuses": record["refused_plans"],
        "MFU more than 5 points above the best measured of part and precision": f"{len(record['too_good'])} of {good}",
        f"the same where {ENOUGH_MODELS} models of the kind or more were measured": f"{well} of {known}",
        "tokens/s that fall by more than 2 % as accelerators are added": f"{len(record['slower_with_more'])} of {more}",
        "rank correlation of the distance to the nearest run and the width of the band": order,
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
