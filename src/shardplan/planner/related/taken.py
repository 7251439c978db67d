"""The plan to take of a space: the most robust of those that tie with its fastest."""

from __future__ import annotations

from shardplan.estimation.estimate import Estimate, estimate_plan
from shardplan.planner.ranking import different_cells
from shardplan.planner.robustness import recommended_of
from shardplan.planner.survey import Survey


def plan_to_take(survey: Survey) -> Estimate | None:
    """What a search of the same space recommends; None where nothing fits."""
    cells = different_cells(survey.tables, 1)
    priced = survey.with_prices(cells).priced
    if priced is None or not cells:
        return None
    best = recommended_of(survey.question, priced, fastest=priced.index_of(cells[0]))
    return estimate_plan(survey.question, priced.plan(best))
