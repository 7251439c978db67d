"""What is exported is read again as the same plan, for the same model and job: at the same step time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.chosen import CHOSEN, with_software

import shardplan
from shardplan.estimation.estimate import estimate_plan
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.launch.audit.question import posed
from shardplan.launch.dialects.ask import Ask
from shardplan.launch.dialects.read import read_launch

pytest.importorskip("tree_sitter_bash")

QUESTIONS: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("llama-3.1-8b", 16, {"global_batch_size": 64}),
    ("llama-3.1-70b", 64, {"global_batch_size": 128, "precision": "fp8"}),
    ("qwen3-30b-a3b", 32, {"global_batch_size": 128}),
)
FIXED: tuple[dict[str, Any], ...] = (
    {},
    {"pp": 2},
    {"sharding": "zero3", "recompute": "full"},
    {"tp": 4, "overlap_dp": False},
)


@pytest.mark.parametrize("fix", FIXED, ids=str)
@pytest.mark.parametrize(("model", "number", "job"), QUESTIONS, ids=[each[0] for each in QUESTIONS])
def test_megatron_lm(tmp_path: Path, model: str, number: int, job: dict[str, Any], fix: dict[str, Any]) -> None:
    found = shardplan.search(model, "dgx-h100", number, stack="megatron-lm", fix=fix, top=3, **job)
    for place, estimate in enumerate(found.estimates):
        path = tmp_path / f"launch{place}.sh"
        assert isinstance(estimate, shardplan.PlanAnswer)
        shardplan.export(estimate, "megatron-lm", path=path)
        again = posed(read_launch(Ask(path=path)), None, found.question.cluster)
        assert again.missing == {}
        assert again.plan is not None
        assert again.question is not None
        assert with_software(again.question, again.plan) == with_software(found.question, estimate.plan)
        assert again.question.job == _run_by(found.question, estimate.plan)
        assert estimate_plan(again.question, again.plan).step_time == pytest.approx(estimate.step_time, rel=1e-9)


def _run_by(question: Question, plan: Plan) -> Job:
    """The job with the software that the plan chooses: a launch file knows one of each."""
    chosen = with_software(question, plan)
    software = replace(question.job.software, **{name: getattr(chosen, name) for name in CHOSEN})
    return replace(question.job, software=software)
