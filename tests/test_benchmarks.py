"""The benchmarks run, and the documentation says what they measured. How fast they are is no test: machines differ."""

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
BENCHMARKS = ROOT / "benchmarks"
MEASURED = {"evaluation_rate": "questions", "commands": "commands", "scaling": "by_plans"}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a script of the benchmarks by its name."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


@pytest.mark.parametrize("name", MEASURED)
def test_a_benchmark_prints_and_writes_what_it_measured(
    name: str,
    script: Callable[[str], ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "record.json"
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--tiny", "--runs", "1", "--json", str(path)])
    rates = script("evaluation_rate")
    sample = rates._sample
    monkeypatch.setattr(rates, "LOOP", 20_000)  # of the loop that the machine is measured by
    monkeypatch.setattr(rates, "_sample", lambda found, **_: sample(found, num_plans=10))
    script(name).main()
    printed, record = capsys.readouterr().out, json.loads(path.read_text())
    assert record["benchmark"] == name
    assert set(record["machine"]) == {"processor", "system", "python", "numpy", "shardplan"}
    assert len(record[MEASURED[name]]) >= 1
    assert printed.startswith("| ")


def test_the_page_shows_the_records(script: Callable[[str], ModuleType]) -> None:
    page = (ROOT / "docs" / "speed.md").read_text()
    assert script("publish").filled(page) == page


def test_the_figure_is_drawn_in_both_themes(script: Callable[[str], ModuleType], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")  # of the extra bench
    script("draw_scaling").draw_all(json.loads((BENCHMARKS / "records" / "scaling.json").read_text()), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"speed-scaling-light.svg", "speed-scaling-dark.svg"}
