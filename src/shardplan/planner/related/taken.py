"""The plan to take of a space: the most robust of those that tie with its fastest."""

from __future__ import annotations

from shardplan.estimation.estimate import Estimate, estimate_plan
from shardplan.planner.answers import Answers
from shardplan.planner.ranking import Cell, different_cells
from shardplan.planner.robustness import recommended_of
from shardplan.planner.survey import Survey


def plan_to_take(survey: Survey) -> Answers:
    """What a search of the same space recommends, found when it is read; none where nothing fits."""
    cells = different_cells(survey.tables, 1)
    return Answers(len(cells), lambda _places: [_recommended(survey, cells[0])])


def _recommended(survey: Survey, fastest: Cell) -> Estimate:
    """The most robust of the plans that tie with those of a cell."""
    priced = survey.with_prices([fastest]).priced
    assert priced is not None
    best = recommended_of(survey.question, priced, fastest=priced.index_of(fastest))
    return estimate_plan(survey.question, priced.plan(best))
