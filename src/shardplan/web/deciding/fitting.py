"""The largest sequence, micro-batch or model that fits, and the fewest accelerators that train the job."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, cast, get_args

from shardplan.answers.fit import SOUGHT, fit_document
from shardplan.decisions.largest import SMALLEST, LargestFit, Sought, fitted, still_assumed
from shardplan.decisions.searching import Progress
from shardplan.errors import UnknownNameError
from shardplan.planner.stopping import Stop
from shardplan.web.deciding.common import Shown, Values, link, searches, shown
from shardplan.web.state import PageQuestion, about_field

SOUGHT_NAMES: Final = {
    name: f"{'Smallest' if name in SMALLEST else 'Largest'} {SOUGHT[name][0]}" for name in get_args(Sought)
}
ROWS: Final = 12


def fit(question: PageQuestion, values: Values, stop: Stop, _progress: Progress) -> Shown:
    """The largest or smallest value that fits, with its plan."""
    sought = cast("Sought", values["sought"])
    with about_field("sought"):
        if sought not in SOUGHT_NAMES:
            raise UnknownNameError("quantity", f"{sought:.40}", SOUGHT_NAMES, hint="choose one of the list")
    put = _without(question, sought).put_search(stop)
    found = fitted(put.question, sought, searches(question, put, stop), keeps_batch="global_batch_size" in question.job)
    found = replace(found, assumptions=still_assumed(sought, put.assumptions))
    document = shown(fit_document(found, listed=ROWS))
    return document | ({"link": _link(question, found)} if found.value else {})


def _without(question: PageQuestion, sought: Sought) -> PageQuestion:
    """The question without what is sought."""
    if sought == "gpus":
        return question.with_values(gpus="1")
    return question.with_values(job={name: text for name, text in question.job.items() if name != sought})


def _link(question: PageQuestion, found: LargestFit) -> str:
    """The step at that value; a model with another number of layers has no address."""
    estimate, value = found.answered.estimate, str(found.value)
    if found.sought == "layers":
        return ""
    if found.sought == "gpus":
        return link(question, estimate, gpus=value)
    if found.sought == "sequence_length":
        return link(question, estimate, job={**question.job, found.sought: value})
    return link(question, estimate)
