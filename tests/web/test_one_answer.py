"""Pages and requests give the answer of the command line for the same words."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cli.commands import SMALL, answer

import shardplan
from shardplan.base.errors import InputError
from shardplan.decide.sweeps.grid import question_at
from shardplan.web.answered import PageAnswer, answered
from shardplan.web.json.asking import estimate_answer
from shardplan.web.json.bodies import EstimateBody
from shardplan.web.state import FieldError, PageQuestion, plan_code

JOB: dict[str, Any] = {"sequence_length": 2048, "global_batch_size": 64}
TEXTS = {name: str(value) for name, value in JOB.items()}
POINT: dict[str, Any] = {"model": "llama-3.2-1b", "cluster": "dgx-h100", "num_accelerators": 8, **JOB}


def never() -> bool:
    return False


@pytest.fixture(scope="module")
def page() -> PageAnswer:
    return answered(PageQuestion(model="llama-3.2-1b", gpus="8", job=TEXTS), never)


@pytest.fixture(scope="module")
def step_time() -> float:
    time: float = answer("estimate", *SMALL, "--tp", 2, "--pp", 4)["plans"][0]["step_time_s"]
    return time


def test_a_plan_that_is_typed_on_a_page(page: PageAnswer, step_time: float) -> None:
    typed = page.shown("tp=2;pp=4")
    assert typed.step_time == step_time
    assert any(line.startswith("plan as usual in megatron-lm") for line in typed.assumptions)
    assert page.shown("tp=2;pp=4;vp=1").plan.vp == 1


def test_a_plan_of_an_answer_on_a_page_stays(page: PageAnswer) -> None:
    plain = shardplan.estimate("llama-3.2-1b", "dgx-h100", 8, {"tp": 2, "pp": 4, "vp": 1}, **JOB)
    assert page.shown(plan_code(plain.plan)).plan == plain.plan
    assert page.best is not None
    assert page.shown(plan_code(page.best.plan)) is page.best


@pytest.mark.parametrize("code", ["tp=3", "tq=2;rest=default", "rest=other", "tp=2;pp=x"])
def test_what_is_no_plan_is_refused(page: PageAnswer, code: str) -> None:
    with pytest.raises(FieldError):
        page.shown(code)


def test_a_request_gives_what_the_command_line_gives(step_time: float) -> None:
    body = EstimateBody.model_validate(_body())
    assert estimate_answer(body, never)["plans"][0]["step_time_s"] == step_time


def _body() -> dict[str, Any]:
    asked = {name: value for name, value in POINT.items() if name not in JOB}
    return {**asked, "job": JOB, "plan": {"tp": 2, "pp": 4}}


def test_a_sweep_takes_words_and_frameworks_as_a_search_does() -> None:
    found = question_at({**POINT, "train": "qlora", "limit.pp": "1", "limit.cp": "1"})
    theirs = shardplan.search(
        "llama-3.2-1b", "dgx-h100", 8, train="qlora", limit={"pp": [1], "cp": [1]}, **JOB
    ).recommended
    assert found.scope.stack is not None
    assert theirs is not None
    assert theirs.framework == found.scope.stack.label
    assert (found.question.job.train, found.question.job.base_weights) == ("lora", "nf4")
    with pytest.raises(InputError, match="train is qlora with base_weights same"):
        question_at({**POINT, "train": "qlora", "base_weights": "same"})
