"""Laws that hold whatever the numbers: the order of what is given never changes an answer."""

from __future__ import annotations

import csv
import io
import random
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import SMALL, answer
from tests.fuzz.running import fuzz
from tests.workplace import EXAMPLES

LIMITS = {
    "tp": ("1", "2", "4"),
    "pp": ("1", "2"),
    "micro_batch_size": ("1", "2", "4"),
    "sharding": ("ddp", "zero1", "zero3"),
    "recompute": ("none", "full"),
    "cp": ("1",),
}
CHANGING = ("search_time_s",)


def _plan(limits: list[tuple[str, tuple[str, ...]]]) -> dict[str, Any]:
    flags = [word for name, values in limits for word in ("--limit", f"{name}={','.join(values)}")]
    record = answer("plan", *SMALL, *flags)
    return _without_clock(record)


def _without_clock(record: dict[str, Any]) -> dict[str, Any]:
    """A record without how long anything took to find, also of the searches of fewer accelerators."""
    kept = {name: value for name, value in record.items() if name not in CHANGING}
    return {name: _without_clock(value) if isinstance(value, dict) else value for name, value in kept.items()}


def test_the_order_of_limits_and_of_their_values_changes_nothing() -> None:
    expected = _plan(list(LIMITS.items()))

    def one(chance: random.Random) -> list[str]:
        limits = [(name, tuple(chance.sample(values, len(values)))) for name, values in LIMITS.items()]
        chance.shuffle(limits)
        found = _plan(limits)
        return [] if found == expected else [f"{limits}: {[key for key in found if found[key] != expected.get(key)]}"]

    fuzz(3, one)


def _validation(rows: list[list[str]], path: Path) -> tuple[list[Any], Any]:
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows(rows)
    path.write_text(written.getvalue(), encoding="utf-8")
    record = answer("validate", path)
    return sorted(record["rows"], key=lambda row: str(row["id"])), (record["counts"], record["summary"]["all"]["n"])


def test_the_order_of_rows_and_columns_changes_no_prediction(tmp_path: Path) -> None:
    with (EXAMPLES / "my-runs.csv").open(encoding="utf-8", newline="") as file:
        header, *rows = list(csv.reader(file))
    path = tmp_path / "runs.csv"
    expected = _validation([header, *rows], path)

    def one(chance: random.Random) -> list[str]:
        order = chance.sample(range(len(header)), len(header))
        mixed = [[row[at] for at in order] for row in chance.sample(rows, len(rows))]
        found = _validation([[header[at] for at in order], *mixed], path)
        return [] if found == expected else [f"columns {order}"]

    fuzz(3, one)


@pytest.mark.parametrize("factor", [2, 4])
def test_faster_links_never_make_the_best_plan_slower(factor: int) -> None:
    few = ("--limit", "pp=1,2", "--limit", "cp=1")

    def time(bandwidth: int) -> float:
        links = ("--inter-node-bandwidth", f"{bandwidth} GB/s", "--intra-node-bandwidth", f"{9 * bandwidth} GB/s")
        return float(answer("plan", *SMALL, *few, *links)["plans"][0]["step_time_s"])

    assert time(50 * factor) <= time(50) * (1 + 1e-12)
