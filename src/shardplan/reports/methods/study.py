"""The whole study of arXiv 2410.00273: what it found, how long it took, its figures, as records."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any, Final

from shardplan.fields import dataclass
from shardplan.published.subramanian2024.figures import Figure, figure
from shardplan.published.subramanian2024.inputs import Corrections
from shardplan.published.subramanian2024.study import Study, study
from shardplan.records import plain

STUDIES: Final = ("subramanian2024",)
"""Methods whose paper's study can be repeated."""


@dataclass(frozen=True, kw_only=True)
class StudyReport:
    """The study and those of its figures that were asked for."""

    results: Study
    search_time: float
    """Wall time of enumerating, pricing and ranking all candidates. [s]"""
    num_workers: int
    corrected: Corrections
    figures: tuple[Figure, ...]

    @property
    def candidates_per_second(self) -> float:
        """Of the wall time."""
        return self.results.num_candidates / self.search_time

    @property
    def num_searches(self) -> int:
        """Searches: model, strategy and system, each for every number of accelerators."""
        return len(self.results.entries)


def run_study(
    figures: Sequence[str],
    *,
    corrected: Corrections,
    executor: Executor | None = None,
    num_workers: int = 1,
) -> StudyReport:
    """Repeats the study; records of the ``figures`` named. Raises ``UnknownNameError`` for one it does not have."""
    started = time.perf_counter()
    results = study(corrected=corrected, executor=executor)
    search_time = time.perf_counter() - started
    return StudyReport(
        results=results,
        search_time=search_time,
        num_workers=num_workers,
        corrected=corrected,
        figures=tuple(figure(name, results, corrected=corrected) for name in figures),
    )


def study_record(report: StudyReport) -> dict[str, Any]:
    """The study as a mapping that JSON can hold; units are in the keys."""
    return {
        "schema": "shardplan/study/1",
        "method": STUDIES[0],
        "corrected": sorted(report.corrected, key=lambda name: int(name[1:])),
        "num_candidates": report.results.num_candidates,
        "num_searches": report.num_searches,
        "search_time_s": report.search_time,
        "candidates_per_s": report.candidates_per_second,
        "num_workers": report.num_workers,
        "best": [_best(entry, number) for entry in report.results.entries for number in range(len(entry.best))],
        "figures": plain(report.figures),
    }


def _best(entry: Any, number: int) -> dict[str, Any]:
    """The best configuration of one size, in the columns of the published results."""
    result, record = entry.best[number], entry.best_records[number]
    counts = {"num_candidates": result.num_candidates, "num_fitting": result.num_fitting}
    return {**record, **counts, "training_days": entry.days(result)}
