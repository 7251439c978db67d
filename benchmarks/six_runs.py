"""How much six runs of a new cluster teach: every family of published runs as if nobody had seen it.

python benchmarks/six_runs.py [--runs 6] [--draws 5]    writes benchmarks/records/six_runs.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from shardplan.calibration.defaults import refit
from shardplan.calibration.few_runs import FewRuns, learnt_from

RECORD = Path(__file__).parent / "records" / "six_runs.json"


PARTS = ("median", "p90", "bias")


def row(found: FewRuns) -> dict[str, object]:
    """One family as a record; errors in shares."""
    errors = {"before": found.before, "after": found.after}
    return {
        "family": found.family,
        "accelerator": found.accelerator,
        "num_runs": found.num_runs,
        **{f"{name}_{part}": round(float(getattr(each, part)), 4) for name, each in errors.items() for part in PARTS},
    }


def report(record: dict[str, Any]) -> str:
    """The record as a Markdown table."""
    lines = [
        "| family | accelerator | runs | before: median / 90th pct (bias) | after |",
        "|---|---|--:|--:|--:|",
        *(
            f"| {each['family']} | `{each['accelerator']}` | {each['num_runs']} | {_errors(each, 'before')} "
            f"| {_errors(each, 'after')} |"
            for each in record["families"]
        ),
    ]
    return "\n".join(lines)


def _errors(each: dict[str, Any], name: str) -> str:
    median, p90, bias = (100 * float(each[f"{name}_{part}"]) for part in PARTS)
    return f"{median:.1f} / {p90:.1f} % ({bias:+.1f} %)"


def main() -> None:
    """Fits without each family, then to some runs of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--draws", type=int, default=5)
    given = parser.parse_args()
    found = learnt_from(refit(), num_runs=given.runs, draws=given.draws)
    record = {"runs": given.runs, "draws": given.draws, "families": [row(each) for each in found]}
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
