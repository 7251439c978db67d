"""Rows of papers, as the simulation runs them."""

from __future__ import annotations

import csv
from pathlib import Path

from tests.simulation.cases import even, passes, pipeline, step

from shardplan.physics.schedules.base import Pipeline
from shardplan.simulation.step import SimulatedStep

PUBLISHED = Path(__file__).parent / "published"


def rows(name: str) -> list[dict[str, str]]:
    lines = (PUBLISHED / f"{name}.csv").read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def simulated(row: dict[str, str]) -> tuple[Pipeline, SimulatedStep]:
    """A row of table 5: uniform stages, from the times of table 9."""
    own = passes(*(float(row[f"{name}_ms"]) for name in ("forward", "input_gradient", "weight_gradient")))
    at = pipeline(int(row["num_ranks"]), int(row["num_microbatches"]), int(row["chunks_per_rank"]))
    return at, step(row["schedule"], at, even(own, at, float(row["transfer_ms"])))
