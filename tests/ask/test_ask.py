"""One door: forms declare every field once, and the same words put the same question, whoever brings them."""

from __future__ import annotations

import inspect
import math
from typing import Any

import pytest

import shardplan
from shardplan.ask import forms, task_forms
from shardplan.ask.forms import HOW, QuestionForm, SearchForm, SpaceForm
from shardplan.ask.questions import ask, ask_again, ask_search, choices_in, record_of
from shardplan.base.errors import InputError
from shardplan.base.fields import described
from shardplan.estimation.question import Question
from shardplan.planner.restrictions import LIBRARY
from shardplan.planner.search import search_question

FORMS = [
    form
    for module in (forms, task_forms)
    for form in vars(module).values()
    if isinstance(form, type) and form.__module__ == module.__name__
]
TEXTS = QuestionForm(
    model="llama-3.2-1b",
    cluster="dgx-h100",
    num_accelerators="16",
    job={"sequence_length": "2k", "precision": "bfloat16", "tokens": "1T"},
    software=["kernels=eager,cuda_graphs=off"],
    overrides={"memory": "70GB", "node_size": "4"},
    stack="mcore",
)
VALUES: dict[str, Any] = {
    "model": "llama-3.2-1b",
    "num_accelerators": 16,
    "job": {"sequence_length": 2048, "precision": "bf16", "tokens": 1e12},
    "software": {"kernels": "eager", "cuda_graphs": "none"},
    "stack": "megatron-lm",
}
REPLACED: dict[str, Any] = {"memory": 70e9, "node_size": 4}


def posed(**changes: Any) -> Question:
    return ask({**VALUES, "cluster": "dgx-h100", "overrides": REPLACED, **changes}).question


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_fields_of_forms_say_what_they_are(form: type[Any]) -> None:
    for field in described(form).values():
        assert field.about.help.endswith("."), field.name
        is_number = field.kind.base in (int, float) and not field.about.unit
        assert not is_number or -math.inf < field.about.least < field.about.most < math.inf, field.name


def test_how_a_space_is_searched_is_what_the_search_takes() -> None:
    assert {*HOW} <= inspect.signature(search_question).parameters.keys()
    assert {*HOW} <= inspect.signature(shardplan.search).parameters.keys()
    assert {*described(SearchForm)} == {*described(SpaceForm), *HOW}


def test_texts_values_and_names_alone_put_the_same_question() -> None:
    of_texts = ask(record_of(TEXTS)).question
    assert posed().job == of_texts.job
    assert posed().cluster.accelerator.memory_bytes == of_texts.cluster.accelerator.memory_bytes
    assert (posed().num_accelerators, posed().model) == (of_texts.num_accelerators, of_texts.model)
    cluster = shardplan.load_cluster("dgx-h100", memory=70e9, node_size=4)
    assert ask({**VALUES, "cluster": cluster}).question == posed()
    assert ask({**VALUES, "cluster": "dgx-h100", "overrides": REPLACED}, reads_files=False).question == posed()


def test_nodes_stand_for_accelerators() -> None:
    asked = {name: value for name, value in VALUES.items() if name != "num_accelerators"} | {"cluster": "dgx-h100"}
    found = ask({**asked, "nodes": 2})
    assert found.question.num_accelerators == 16
    assert found.assumptions[0] == "2 nodes of 8 accelerators (dgx-h100): 16 accelerators"
    with pytest.raises(InputError, match="so that 2 have 16"):
        ask({**asked, "nodes": 2, "num_accelerators": 8})


def test_constants_that_are_not_the_usual_ones_are_said() -> None:
    asked = {**VALUES, "cluster": "dgx-h100"}
    assert ask(asked).warnings == ()
    assert ask({**asked, "profile": "Hopper"}).warnings == ("constants of the profile hopper",)
    other = ("constants of the profile volta, which is made for volta, not for hopper",)
    assert ask({**asked, "profile": "volta"}).warnings == other


def test_what_a_search_may_not_take_is_excluded() -> None:
    record = record_of(TEXTS, SpaceForm(fix=["tp=2,pp=1"], limit=["cp=1,2"], without=["deepep,hybridep"]))
    found = choices_in(record)
    assert found["fix"] == {"tp": ("2",), "pp": ("1",)}
    assert found["limit"] == {"cp": ("1", "2")}
    assert found["exclude"] == {LIBRARY: ("deepep", "hybridep")}
    assert ask_search(record).question == ask(record).question


def test_a_question_asked_again_keeps_what_is_not_given() -> None:
    before = posed()
    again = ask_again(before, {"precision": "fp8", "software": {}, "overrides": {"memory": 60e9}}, None).question
    assert (again.job.precision, again.job.sequence_length) == ("fp8", 2048)
    assert again.job.software.kernels == "eager"
    assert again.cluster.accelerator.memory_bytes == 60e9
    assert again.cluster.innermost.size == 4
    assert ask_again(before, {"num_accelerators": 8}, None).question.num_accelerators == 8


@pytest.mark.parametrize("size", ["64", "8x8", "8 X 8", "8\u00d78"])
def test_a_size_as_people_write_it(size: str) -> None:
    posed = ask({"model": "llama-3.2-1b", "cluster": "dgx-h100", "num_accelerators": size})
    assert (posed.question.num_accelerators, posed.warnings) == (64, ())


@pytest.mark.parametrize("size", ["8x4", "0x8", "8x", "8x8x8", "-8", "8.5", ""])
def test_what_is_no_size_is_refused(size: str) -> None:
    """A node of eight: 8x4 contradicts the cluster, and is neither 32 nor 64."""
    with pytest.raises(InputError, match=r"gpus is|num_accelerators is") as refused:
        ask({"model": "llama-3.2-1b", "cluster": "dgx-h100", "num_accelerators": size})
    assert repr(size) in refused.value.message


@pytest.mark.parametrize(
    ("size", "said"), [(60, "4 of the 8 places in the last node"), (4, "4 of the 8 places in a node")]
)
def test_a_node_that_is_partly_empty_is_said(size: int, said: str) -> None:
    assert said in str(ask({"model": "llama-3.2-1b", "cluster": "dgx-h100", "num_accelerators": size}).warnings)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "all": ({"stack": "ALL"}, "stack is all"),
    "a field": ({"sequence_len": 3}, "unknown keyword 'sequence_len'"),
    "a path": ({"model": "/etc/passwd"}, "unknown model"),
    "another path": ({"cluster": "./cluster.yaml"}, "unknown cluster"),
    "a profile": ({"profile": "./mine.yaml"}, "unknown profile"),
    "a stack": ({"stack": "./stack.yaml"}, "unknown stack"),
    "two clusters": ({"cluster": shardplan.load_cluster("dgx-h100"), "accelerator": "h100-sxm-80gb"}, "in full"),
    "none": ({"cluster": None}, "neither cluster nor accelerator"),
}


@pytest.mark.parametrize("name", WRONG)
def test_who_may_not_read_files_gives_names_alone(name: str) -> None:
    changes, said = WRONG[name]
    with pytest.raises(InputError, match=said):
        ask({**VALUES, "cluster": "dgx-h100", **changes}, reads_files=False)
