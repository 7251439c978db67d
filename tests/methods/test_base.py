"""One suite for every method, and a method that another package adds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.examples import GPT3_175B

from shardplan.base.errors import InputError, ShardplanError, UnknownNameError
from shardplan.inputs.job import Job
from shardplan.inputs.readers.catalog import load_cluster
from shardplan.methods.base import Method, MethodError
from shardplan.methods.catalogue import GROUP, broken_methods, list_methods, load_method, load_methods

BUILT_IN = ("calculator", "subramanian2024", "data-movement", "searcher")
JOB = Job(sequence_length=2048, global_batch_size=1536)


@pytest.fixture(params=BUILT_IN)
def method(request: pytest.FixtureRequest) -> Method:
    return load_method(str(request.param))


def test_the_built_in_methods_come_first() -> None:
    assert tuple(list_methods()[:4]) == BUILT_IN
    assert [method.name for method in load_methods()] == list_methods()
    assert broken_methods() == {}


def test_every_method_says_what_it_is(method: Method) -> None:
    assert method.title
    assert "\n" not in method.title
    assert method.source
    assert method.counts
    assert method.leaves_out


@pytest.mark.parametrize("wrong", [{}, {"nonsense": 1}, None, [], "case", 3])
def test_every_method_refuses_what_is_no_case(method: Method, wrong: Any) -> None:
    with pytest.raises(InputError) as caught:
        method.answer(wrong)
    assert caught.value.rule


@pytest.mark.parametrize("text", ["", "{}", "[]", "{", "a,b\n1,2\n", '{"cases": [1]}', "\x00"])
def test_every_method_passes_over_files_of_others(method: Method, text: str) -> None:
    assert method.cases(text) is None


def test_every_method_answers_a_question_of_ours(method: Method) -> None:
    answer = method.plan(GPT3_175B, load_cluster("dgx-h100"), 1024, JOB, top=5)
    assert answer.method == method.name
    assert 1 <= len(answer.rows) <= 5
    assert answer.mapped
    assert answer.ignored
    for row in answer.rows:
        assert {"dp", "tp", "pp"} <= set(row.degrees)
        assert row.step_time is None or row.step_time > 0
        assert row.memory_bytes is None or row.memory_bytes > 0
        assert all(isinstance(value, float) for value in row.parts.values())
    times = [row.step_time for row in answer.rows if row.step_time is not None]
    assert times == sorted(times)


def test_a_refusal_is_a_user_s_error_with_rule_and_hint() -> None:
    error = MethodError("it cannot", rule="it can", hint="ask another")
    assert isinstance(error, ShardplanError)
    assert error.to_record()["error"] == {"rule": "it can", "message": "it cannot", "hint": "ask another"}


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean calculator"):
        load_method("calculater")


PACKAGE = """
from shardplan.methods.base import Method

class Mine(Method):
    name, title, source, counts, leaves_out = "mine", "one line", "a paper", ("time",), ("memory",)
    def answer(self, case): return {}
    def cases(self, text): return None
    def plan(self, model, cluster, num_accelerators, job, *, top=10): raise NotImplementedError

class Half(Method):
    name = "half"

class Renamed(Mine):
    name = "another"

class Impostor(Mine):
    name = "calculator"

def number(): return 3
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package as another project installs it."""
    (tmp_path / "their_methods.py").write_text(PACKAGE)
    info = tmp_path / "their_methods-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-methods\nVersion: 1.0\n")
    points = {"mine": "Mine", "half": "Half", "misnamed": "Renamed", "calculator": "Impostor", "number": "number"}
    lines = [f"{name} = their_methods:{target}" for name, target in points.items()]
    (info / "entry_points.txt").write_text("\n".join((f"[{GROUP}]", *lines, "absent = no_such_module:Thing")) + "\n")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("installed")
def test_a_method_of_another_package_joins() -> None:
    assert list_methods() == [*BUILT_IN, "absent", "half", "mine", "misnamed", "number"]
    assert load_method("mine").title == "one line"
    assert [method.name for method in load_methods()] == [*BUILT_IN, "mine"]


@pytest.mark.usefixtures("installed")
def test_a_built_in_method_cannot_be_replaced() -> None:
    assert type(load_method("calculator")).__module__ == "shardplan.methods.calculator.method"


@pytest.mark.usefixtures("installed")
def test_what_is_wrong_with_another_package_is_said() -> None:
    faults = broken_methods()
    assert set(faults) == {"absent", "half", "misnamed", "number"}
    assert "ModuleNotFoundError" in faults["absent"]
    assert "abstract" in faults["half"]
    assert "calls itself 'another'" in faults["misnamed"]
    assert "no Method" in faults["number"]
    with pytest.raises(InputError, match="cannot be used"):
        load_method("half")
