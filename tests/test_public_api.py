"""The public names: what a user can import, and that importing costs nothing before it is used."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

import shardplan

NEEDED = {
    "Job", "Plan", "Estimate", "SearchResult", "estimate", "search", "load_model", "load_cluster", "load_accelerator",
    "InputError", "PlanError", "ShardplanError", "UnknownNameError",
}  # fmt: skip


def test_the_names_are_there() -> None:
    assert set(shardplan.__all__) >= NEEDED
    assert shardplan.__all__ == sorted(shardplan.__all__, key=lambda name: (not name[0].isupper(), name))
    for name in shardplan.__all__:
        assert getattr(shardplan, name) is getattr(shardplan, name)
    assert set(dir(shardplan)) >= set(shardplan.__all__)


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'serch'"):
        _ = shardplan.serch


def test_a_question_from_start_to_end() -> None:
    model, cluster = shardplan.load_model("llama-3.2-1b"), shardplan.load_cluster("dgx-h100")
    job = shardplan.Job(sequence_length=2048, global_batch_size=64)
    answer = shardplan.search(model, cluster, 8, job=job, top=2, limit={"pp": (1, 2)})
    best = answer.estimates[0]
    again = shardplan.estimate(model, cluster, 8, best.plan, job=job)
    assert replace(best, assumptions=()) == replace(again, assumptions=())
    assert {*again.assumptions} <= {*best.assumptions}
    assert isinstance(best, shardplan.Estimate)


def test_importing_loads_nothing_that_is_slow() -> None:
    program = (
        "import sys, shardplan; print(' '.join({'numpy', 'pydantic', 'yaml', 'rich', 'typer'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "\n"
