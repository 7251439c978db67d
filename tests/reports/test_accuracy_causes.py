"""Known causes of large errors: they speak of runs that exist, and of inputs that exist."""

import re
from fnmatch import fnmatchcase
from pathlib import Path

from shardplan.calibration.predict import Prediction
from shardplan.calibration.runs import shipped_runs
from shardplan.calibration.validate import Validation, validate_runs
from shardplan.reports.accuracy_causes import cause_of, causes, known_causes

DOCS = Path(__file__).parents[2] / "docs"


def test_every_pattern_names_published_runs() -> None:
    ids = [run.id for run in shipped_runs()]
    for known in known_causes():
        for pattern in known.runs:
            assert any(fnmatchcase(name, pattern) for name in ids), pattern


def test_what_to_state_exists() -> None:
    flags = {flag for known in known_causes() for flag in re.findall(r"--[a-z-]+", known.state)}
    reference = (DOCS / "cli.md").read_text(encoding="utf-8")
    assert flags
    assert [flag for flag in flags if flag not in reference] == []


def test_runs_without_a_cause_are_the_rest() -> None:
    checked = validate_runs(shipped_runs()[::40])
    rows = causes(checked, None)
    assert rows[-1]["cause"] is None
    assert rows[-1]["in_sample"]["n"] == len([one for one in checked.predictions if _is_rest(one)])
    assert all(row["left_out"] is None for row in rows)


def test_runs_of_ones_own_have_no_section() -> None:
    assert causes(Validation(predictions=(), skipped=(), sweeps=()), None) == []


def _is_rest(one: Prediction) -> bool:
    return cause_of(one.run.id) is None and one.run.tier != "B" and one.log_time_ratio is not None
