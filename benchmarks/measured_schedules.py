"""Measured runs of the zero-bubble paper, by the estimate and by the simulation of the schedule that they ran.

    python benchmarks/measured_schedules.py [--json FILE]

The runs are those of arXiv 2401.10241, tables 4, 7 and 10, as shipped among the measured runs (family zero-bubble):
throughputs of the authors' fork of Megatron-LM on A100 nodes. Errors are predicted / measured step time - 1.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shardplan.calibrate.predict import ask_all
from shardplan.calibrate.runs.questions import AskedRun
from shardplan.calibrate.runs.rows import shipped_runs
from shardplan.estimation.priced import PricedPlan
from shardplan.physics.schedules.registry import load_any_schedule
from shardplan.simulation.plan import simulate_priced

RECORD = Path(__file__).parent / "records" / "measured_schedules.json"
FAMILY = "zero-bubble"


def errors_of(asked: AskedRun) -> tuple[str, float, float]:
    """Schedule, and errors of the step time by the estimate and by the simulation."""
    measured = asked.run.step_time or np.nan
    name = str(asked.run.options.get("schedule", asked.plan.effective_schedule))
    priced = PricedPlan.of(asked.question, asked.plan)
    simulated = simulate_priced(priced, load_any_schedule(name))
    return name, priced.step_time / measured - 1, simulated.step_time / measured - 1


def rows_of(runs: Sequence[AskedRun]) -> list[dict[str, Any]]:
    """Mean errors by schedule, and how well each orders the schedules of a setting."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for asked in runs:
        name, estimated, simulated = errors_of(asked)
        found[name].append((estimated, simulated))
    found["all of them"] = [each for errors in list(found.values()) for each in errors]
    return [_row(name, np.array(errors)) for name, errors in found.items()]


def _row(name: str, errors: Any) -> dict[str, Any]:
    return {
        "schedule": name,
        "number": len(errors),
        **{
            f"{what}_{of}": float(value)
            for of, column in zip(("estimate", "simulation"), errors.T, strict=True)
            for what, value in (("mean", np.abs(column).mean()), ("bias", column.mean()), ("worst", _worst(column)))
        },
    }


def _worst(errors: Any) -> float:
    return float(errors[np.argmax(np.abs(errors))])


def report(record: dict[str, Any]) -> str:
    """The errors as a Markdown table."""
    header = "| schedule | runs | estimate: mean error | bias | worst | simulation: mean error | bias | worst |"
    names = [f"{what}_{of}" for of in ("estimate", "simulation") for what in ("mean", "bias", "worst")]
    lines = [header, "|---|" + "--:|" * 7]
    for row in record["rows"]:
        cells = " | ".join(f"{100 * row[name]:.1f} %" for name in names)
        lines.append(f"| {row['schedule']} | {row['number']} | {cells} |")
    return "\n".join(lines)


def main() -> None:
    """Predicts, writes and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, default=RECORD)
    given = parser.parse_args()
    runs = [run for run in shipped_runs() if run.family == FAMILY and run.step_time is not None]
    record = {"benchmark": "measured_schedules", "rows": rows_of(ask_all(runs)[0])}
    given.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(report(record))


if __name__ == "__main__":
    main()
