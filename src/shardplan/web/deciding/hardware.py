"""Plans that are best in some respect, and which hardware matters."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from shardplan.answers.pareto import pareto_document
from shardplan.answers.sensitivity import sensitivity_document
from shardplan.decisions import pareto as fronts
from shardplan.decisions import sensitivity as sensitivities
from shardplan.decisions.searching import Progress
from shardplan.inputs.readers.typed import number
from shardplan.planner.stopping import Stop
from shardplan.web.deciding.common import Shown, Values, link, searches, shown
from shardplan.web.state import PageQuestion, about_field

ROWS: Final = 24
"""Plans of a front that are listed, about."""


def pareto(question: PageQuestion, _values: Values, stop: Stop, _progress: Progress) -> Shown:
    """Plans that no other is better than in every respect."""
    put = question.put_search(stop)
    front = fronts.pareto_front(put.question, searches(question, put, stop))

    def address(point: fronts.ParetoPoint) -> str:
        return link(question, point.estimate)

    return shown(pareto_document(replace(front, assumptions=put.assumptions), listed=ROWS), address)


def sensitivity(question: PageQuestion, values: Values, stop: Stop, progress: Progress) -> Shown:
    """How the best step time follows the hardware."""
    with about_field("factor"):
        factor = number(values["factor"], "factor", least=1.001, most=100.0)
    put = question.put_search(stop)
    found = sensitivities.sensitivity_of(put.question, searches(question, put, stop), factor=factor, progress=progress)
    return shown(sensitivity_document(replace(found, assumptions=put.assumptions)))
