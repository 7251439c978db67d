"""A session is a plan file: of a page, or of the command line."""

from __future__ import annotations

import json

import pytest

from shardplan.api.calls import search
from shardplan.errors import InputError
from shardplan.reports.plan_file import PlanFile, plan_file_from_record
from shardplan.web.planning.answered import answered
from shardplan.web.session import session_in, session_record
from shardplan.web.state import PageQuestion


def test_a_session_comes_back_and_is_a_plan_file() -> None:
    question = PageQuestion(model="llama-3.1-8b", gpus="8", locks={"tp": "2"}, pins=("tp=2",))
    record = session_record(question, PlanFile.of(answered(question, lambda: False).result))
    assert session_in(json.dumps(record)) == question
    assert plan_file_from_record(record).question.num_accelerators == 8


def test_a_plan_file_of_python_is_a_question_of_a_page() -> None:
    found = search("llama-3.1-8b", "dgx-h100", 8, global_batch_size=64, precision="fp8")
    question = session_in(json.dumps(found.to_dict()))
    assert question.put().question == found.question


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "shardplan/other/1"}', "{" * 9000])
def test_what_is_no_session_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        session_in(text)
