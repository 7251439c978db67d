"""The example notebooks run, and show what they say they show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_notebooks import run_notebook, texts

ROOT = Path(__file__).parent.parent
OF_TODAY = ("compare-the-models", "plan-a-training-run")
"""Notebooks that show our own estimate, whose numbers change with its formulas: they run, but are not compared."""
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["compare-the-models", "plan-a-training-run", "reproduce-the-paper"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_it_stores(path: Path) -> None:
    stored, found = texts(json.loads(path.read_text())), texts(run_notebook(path))
    assert len(found) == len(stored)
    if path.stem not in OF_TODAY:
        assert found == stored, "run python docs/run_notebooks.py"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_pictures(path: Path) -> None:
    found = json.loads(path.read_text())
    assert any("image/png" in output.get("data", {}) for cell in found["cells"] for output in cell.get("outputs", []))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_one_that_jupyter_reads(path: Path) -> None:
    notebook = json.loads(path.read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    identifiers = [cell["id"] for cell in notebook["cells"]]
    assert len(identifiers) == len(set(identifiers))
    for cell in notebook["cells"]:
        needed = {"code": {"execution_count", "outputs"}, "markdown": set()}[cell["cell_type"]]
        assert set(cell) == {"cell_type", "id", "metadata", "source"} | needed


def test_outputs_are_what_is_printed_and_what_a_cell_ends_with(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["text"]},
        {"cell_type": "code", "source": ["x = 2\n", "print('two')\n", "x * 21"]},
        {"cell_type": "code", "source": ["x = 3;"]},
        {"cell_type": "code", "source": []},
    ]
    path = tmp_path / "small.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    found = run_notebook(path)
    assert texts(found) == [["two\n"], ["42"]]
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "source": ["1 / 0"]}]}))
    with pytest.raises(ZeroDivisionError):
        run_notebook(path)
