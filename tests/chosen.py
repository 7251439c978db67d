"""Plans with the software that they run by, also where they leave it to the job."""

from __future__ import annotations

from dataclasses import replace

from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan

CHOSEN = ("moe_dispatcher", "cuda_graphs", "fused_loss")
"""Fields of the job's software that a plan may state too."""


def with_software(question: Question, plan: Plan) -> Plan:
    """A plan with the software that the job states where the plan leaves it open."""
    stated = {name: getattr(question.job.software, name) for name in CHOSEN if getattr(plan, name) is None}
    return replace(plan, **stated)
