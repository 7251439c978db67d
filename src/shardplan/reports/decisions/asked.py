"""What a decision was asked about, for its record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardplan.estimation.question import Question
from shardplan.records import plain
from shardplan.version import VERSION


def asked_record(question: Question, assumptions: Sequence[str]) -> dict[str, Any]:
    """Version, model, cluster, size and job, and what was assumed in putting the question."""
    return {
        "shardplan_version": VERSION,
        "model": question.model.name,
        "cluster": question.cluster.name,
        "accelerator": question.cluster.accelerator.name,
        "num_accelerators": question.num_accelerators,
        "job": plain(question.job),
        "assumptions": list(assumptions),
    }
