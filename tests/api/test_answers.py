"""Questions as people write them in Python, and answers that show, save and load themselves."""

from __future__ import annotations

import ast
import html.parser
import json
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from tests.cli.commands import FEW, SMALL, answer

import shardplan
from shardplan import InputError, Job, Plan, PlanAnswer, SearchAnswer, UnknownNameError, load, search
from shardplan.api.questions import JobFields
from shardplan.reports.plan_file import plan_file_record, read_plan_file

ASKED: dict[str, Any] = {"global_batch_size": 64, "sequence_length": 2048}
LIMITS: dict[str, Any] = {"pp": (1, 2), "cp": 1, "sharding": ("zero1", "zero3")}


@cache
def found() -> SearchAnswer:
    return search("llama-3.2-1b", "dgx-h100", 8, limit=LIMITS, **ASKED)


def test_names_and_keywords_ask_what_the_command_line_asks() -> None:
    record, same = found().to_dict(), answer("plan", *SMALL, *FEW)
    for name in ("explanation", "truth", "stages"):  # what the command adds
        del same[name]
    for each in (record, same):
        del each["search_time_s"], each["fewer"]["search_time_s"]
        for plan in (*each["plans"], each["recommended"]["plan"]):
            del plan["assumptions"]  # the command line also lists what was not searched
    assert json.loads(json.dumps(record)) == same


@pytest.mark.parametrize("job", [Job(**ASKED), ASKED, {"global_batch_size": 1, **ASKED}])
def test_objects_and_mappings_ask_the_same(job: Job | dict[str, Any]) -> None:
    model, cluster = shardplan.load_model("llama-3.2-1b"), shardplan.load_cluster("dgx-h100")
    by_object = search(model, cluster, 8, job=job, limit=LIMITS)
    assert [e.plan for e in by_object.estimates] == [e.plan for e in found().estimates]
    assert by_object.estimates[0].step_time == found().estimates[0].step_time


def test_a_keyword_takes_the_place_of_a_field_of_the_job() -> None:
    job = Job(sequence_length=4096, global_batch_size=64, precision="fp8")
    asked = shardplan.question("llama-3.2-1b", "dgx-h100", 8, job=job, sequence_length=2048, dropout=True)
    assert (asked.job.sequence_length, asked.job.precision, asked.job.dropout) == (2048, "fp8", True)


def test_keywords_are_the_fields_of_a_job() -> None:
    assert [*get_type_hints(JobFields)] == [field.name for field in fields(Job)]


def test_software_is_the_frameworks_but_for_what_is_given() -> None:
    asked = shardplan.question("llama-3.2-1b", "dgx-h100", 8, stack="nanotron", software={"kernels": "fused"}, **ASKED)
    usual = shardplan.question("llama-3.2-1b", "dgx-h100", 8, stack="nanotron", **ASKED)
    assert usual.job.software.kernels == "eager"
    assert asked.job.software == replace(usual.job.software, kernels="fused")


def test_many_questions_are_put_by_name() -> None:
    asked = [shardplan.question("llama-3.2-1b", "dgx-h100", gpus, **ASKED) for gpus in (8, 16)]
    times = [result.estimates[0].step_time for result in shardplan.search_many(asked, limit=LIMITS)]
    assert times[1] < times[0]


def test_an_estimate_takes_a_plan_as_a_mapping() -> None:
    given = {"tp": 2, "recompute": "full"}
    by_mapping = shardplan.estimate("llama-3.2-1b", "dgx-h100", 8, given, **ASKED)
    assert by_mapping == shardplan.estimate("llama-3.2-1b", "dgx-h100", 8, Plan(tp=2, recompute="full"), **ASKED)
    assert by_mapping.question.job.global_batch_size == 64


def test_answers_are_saved_and_loaded(tmp_path: Path) -> None:
    path = found().save(tmp_path / "plans.json")
    again = load(path)
    assert isinstance(again, SearchAnswer)
    assert again.to_dict() == found().to_dict()
    assert again.recommended == found().recommended
    assert again.fastest == found().fastest
    assert read_plan_file(path).estimates == tuple(e for e in read_plan_file(path).estimates)
    one = found().fastest
    assert one is not None
    alone = load(one.save(tmp_path / "one.json"))
    assert isinstance(alone, PlanAnswer)
    assert alone == one
    assert sorted(each.name for each in tmp_path.iterdir()) == ["one.json", "plans.json"]


def test_a_file_of_another_kind_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    path.write_text("notes")
    with pytest.raises(InputError, match="which exists and is not an answer of shardplan"):
        found().save(path)
    assert path.read_text() == "notes"
    found().save(path, overwrite=True)
    found().save(path)
    with pytest.raises(InputError, match="cannot write"):
        found().save(tmp_path / "none" / "plans.json")


def test_a_row_for_each_plan_with_units_in_the_names() -> None:
    rows = found().to_rows()
    assert len(rows) in (len(found().estimates), len(found().estimates) + 1)
    assert sum(row["recommended"] for row in rows) == 1
    for row, estimate in zip(rows, found().estimates, strict=False):
        assert row["step_time_s"] == estimate.step_time
        assert row["tp"] == estimate.plan.tp
        assert row["matmul_s"] == estimate.breakdown["matmul"]
        assert all(isinstance(cell, int | float | str | bool | None) for cell in row.values())
    assert len({tuple(row) for row in rows}) == 1
    totals = [sum(row[f"{term}_s"] for term in found().estimates[0].breakdown) for row in rows]
    assert totals == pytest.approx([row["step_time_s"] for row in rows])


def test_frames_are_those_of_the_library_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    class Module:
        @staticmethod
        def DataFrame(rows: list[dict[str, Any]]) -> tuple[str, int]:  # noqa: N802
            return "frame", len(rows)

    monkeypatch.setattr("shardplan.api.saving.find_spec", lambda name: name if name == "pandas" else None)
    monkeypatch.setattr("shardplan.api.saving.import_module", lambda name: Module if name == "pandas" else None)
    assert found().to_frame() == ("frame", len(found().to_rows()))
    with pytest.raises(InputError, match="polars cannot be imported"):
        found().to_frame("polars")
    with pytest.raises(InputError, match="numpy cannot be imported"):
        found().to_frame("numpy")


def test_a_short_text_stands_for_an_answer() -> None:
    for each in (found(), found().fastest):
        text = repr(each)
        assert len(text) < 300
        assert "a step, MFU " in text
    nothing = search("llama-3.1-405b", "dgx-h100", 8, limit={"cp": 1}, **ASKED)
    assert "0 of " in repr(nothing)
    assert "Nothing fits." in nothing._repr_html_()
    assert nothing.fastest is None


class _Tags(html.parser.HTMLParser):
    """Every tag that opens is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "br":
            self.open.append(tag)
        assert not any(name in ("src", "href") for name, _ in attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_notebook_shows_an_answer() -> None:
    text = found()._repr_html_()
    parser = _Tags()
    parser.feed(text)
    assert parser.open == []
    best = found().recommended
    assert best is not None
    assert "Memory" in text
    assert text.count('<tr class="good">') == 1
    assert best.question.model.name in text  # type: ignore[attr-defined]  # it is an answer's own kind of estimate


def test_names_in_html_are_escaped() -> None:
    model = replace(shardplan.load_model("llama-3.2-1b"), name="<script>alert(1)</script>")
    text = shardplan.estimate(model, "dgx-h100", 8, {}, **ASKED)._repr_html_()
    assert "<script>" not in text


WRONG: dict[str, tuple[Any, str]] = {
    "model": (lambda: search(3, "dgx-h100", 8), "model is 3; it must be a name"),  # type: ignore[arg-type]
    "cluster": (lambda: search("llama-3.2-1b", None, 8), "cluster is None; it must be a name"),  # type: ignore[arg-type]
    "number": (lambda: search("llama-3.2-1b", "dgx-h100", 8.5), r"number of accelerators is 8\.5"),  # type: ignore[arg-type]
    "keyword": (lambda: search("llama-3.2-1b", "dgx-h100", 8, global_batch=3), "unknown keyword 'global_batch'"),  # type: ignore[call-arg]
    "job": (lambda: search("llama-3.2-1b", "dgx-h100", 8, job=3), "job is 3; it must be a mapping"),  # type: ignore[arg-type]
    "field of the job": (lambda: search("llama-3.2-1b", "dgx-h100", 8, job={"batch": 3}), "unknown field of the job"),
    "software": (lambda: search("llama-3.2-1b", "dgx-h100", 8, software=3), "software is 3"),  # type: ignore[arg-type]
    "field of software": (
        lambda: search("llama-3.2-1b", "dgx-h100", 8, software={"kernel": "eager"}),
        "unknown field of software 'kernel'",
    ),
    "plan": (lambda: shardplan.estimate("llama-3.2-1b", "dgx-h100", 8, {"tpp": 3}), "unknown plan 'tpp'"),
    "no plan": (lambda: shardplan.estimate("llama-3.2-1b", "dgx-h100", 8, 3), "plan is 3; it must be a mapping"),  # type: ignore[arg-type]
    "fix": (lambda: search("llama-3.2-1b", "dgx-h100", 8, fix=3), "fix is 3; it must be a mapping"),  # type: ignore[arg-type]
    "stack": (lambda: search("llama-3.2-1b", "dgx-h100", 8, stack=3), "stack is 3; it must be the name"),  # type: ignore[arg-type]
    "profile": (lambda: search("llama-3.2-1b", "dgx-h100", 8, profile=3), "profile is 3; it must be"),  # type: ignore[arg-type]
    "frameworks": (
        lambda: shardplan.search_frameworks("llama-3.2-1b", "dgx-h100", 8, stacks=["any"]),
        "stacks has 'any'",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named_with_what_to_write(name: str) -> None:
    call, said = WRONG[name]
    with pytest.raises(InputError, match=said) as caught:
        call()
    assert caught.value.hint


def test_a_name_that_is_none_has_near_ones() -> None:
    with pytest.raises(UnknownNameError, match="did you mean"):
        search("llama-3.2-1", "dgx-h100", 8)


def test_an_error_shows_its_hint() -> None:
    with pytest.raises(InputError) as caught:
        search("llama-3.2-1b", "dgx-h100", 8, fix={"tp": "x"})
    assert caught.value.__notes__ == ['hint: fix={"tp": VALUE} or limit={"tp": [VALUE, VALUE]}']


def test_the_surface_is_what_dir_lists() -> None:
    assert set(dir(shardplan)) == {*shardplan.__all__, "__version__"}


ROOT = Path(shardplan.__file__).parent
DOCUMENTED = {
    "api/answers.py": ("PlanAnswer", "SearchAnswer"),
    "estimation/estimate.py": ("Estimate",),
    "estimation/evidence.py": ("NearRun",),
    "estimation/question.py": ("Question",),
    "inputs/cluster.py": ("Accelerator", "Cluster", "NetworkTier"),
    "inputs/job.py": ("Job",),
    "inputs/model.py": ("ModelConfig",),
    "inputs/plan.py": ("Plan",),
    "inputs/software.py": ("Software",),
    "planner/related/frameworks.py": ("FrameworkAnswer",),
    "planner/result.py": ("SearchResult", "Suggestion", "Offer"),
    "planner/robustness.py": ("Robustness", "Ties"),
}


@pytest.mark.parametrize("file", DOCUMENTED)
def test_every_public_field_says_what_it_is(file: str) -> None:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    for record in (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name in DOCUMENTED[file]):
        for node, following in zip(record.body, [*record.body[1:], None], strict=True):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                says = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
                assert says or node.target.id.isupper(), f"{record.name}.{node.target.id} has no docstring"


def test_a_record_is_what_the_file_holds(tmp_path: Path) -> None:
    path = found().save(tmp_path / "plans.json")
    assert plan_file_record(read_plan_file(path)) == json.loads(path.read_text())


def test_what_is_no_document_is_short_and_has_html() -> None:
    frameworks = shardplan.search_frameworks("llama-3.2-1b", "dgx-h100", 8, stacks=["torchtitan"], limit={"pp": [1]})
    export = shardplan.export(found(), "megatron-lm")
    for each in (frameworks, frameworks[0], export, shardplan.load_accelerator("h100-sxm-80gb")):
        assert len(repr(each)) < 300
        assert "\n" not in repr(each)
    assert "torchtitan" in frameworks._repr_html_()
    assert "--micro-batch-size" in export._repr_html_()


def test_a_variant_is_the_plan_with_other_fields() -> None:
    answer = found()
    assert answer.recommended is not None
    same = answer.variant()
    assert (same.plan, same.step_time) == (answer.recommended.plan, answer.recommended.step_time)
    full = answer.variant(recompute="full")
    assert full.plan == replace(answer.recommended.plan, recompute="full")
    assert full.step_time > answer.recommended.step_time
    assert full.variant(recompute=answer.recommended.plan.recompute).step_time == same.step_time
    with pytest.raises(shardplan.InputError, match="did you mean tp"):
        answer.variant(tpp=2)
