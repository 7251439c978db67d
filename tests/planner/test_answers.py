"""Answers of the search as they were recorded: a change that moves a plan, a count or a time has to be meant."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.planner.answers.questions import QUESTIONS
from tests.planner.answers.record import RECORDS, record_of

TOLERANCE = 1e-9


def approximately(value: Any) -> Any:
    """The same record, with floats to compare within the tolerance and everything else exactly."""
    if isinstance(value, dict):
        return {name: approximately(each) for name, each in value.items()}
    if isinstance(value, list):
        return [approximately(each) for each in value]
    return pytest.approx(value, rel=TOLERANCE) if isinstance(value, float) else value


def as_read(record: dict[str, Any]) -> Any:
    """As it comes back from a file."""
    return json.loads(json.dumps(record))


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_answer_is_the_one_recorded(name: str) -> None:
    recorded = json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))
    answer = as_read(record_of(QUESTIONS[name]))
    for part, value in recorded.items():
        assert answer[part] == approximately(value), part
    assert answer.keys() == recorded.keys()


def test_every_record_has_its_question() -> None:
    assert {path.stem for path in RECORDS.iterdir()} == QUESTIONS.keys()
