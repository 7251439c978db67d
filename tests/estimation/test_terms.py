"""The tables of the terms of a step and of the memory: complete, in order, and told in the documentation."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from hypothesis import given
from tests.few import few
from tests.strategies import Case, cases

from shardplan.estimation.estimate import estimate_plan
from shardplan.estimation.parts.terms import IN_FILES, MEMORY_TERMS, OF_BLOCKS, STEP_TERMS, TERMS, keys_of, term_label
from shardplan.estimation.stage_memory import StageMemory
from shardplan.physics.costs.block import Times

STYLE = Path(__file__).parents[2] / "src" / "shardplan" / "web" / "static" / "style.css"
OUTPUT = Path(__file__).parents[2] / "docs" / "output.md"


@given(cases())
@few(5)
def test_an_estimate_has_every_term_in_the_order_of_files(case: Case) -> None:
    estimate = estimate_plan(case.question, case.plan)
    assert [*estimate.breakdown] == [term.key for term in IN_FILES]
    assert all([*stage] == [term.key for term in MEMORY_TERMS] for stage in estimate.memory)


def test_terms_are_what_formulas_return() -> None:
    assert {term.times for term in OF_BLOCKS} == {field.name for field in fields(Times)} - {"free"}
    assert [term.key for term in MEMORY_TERMS] == [field.name for field in fields(StageMemory)]
    assert len({term.letter for term in MEMORY_TERMS}) == len({term.tone for term in MEMORY_TERMS}) == len(MEMORY_TERMS)


def test_every_tone_is_in_the_style_sheet_of_pages() -> None:
    style = STYLE.read_text(encoding="utf-8")
    assert all(f".{term.tone} {{" in style for term in (*STEP_TERMS, *MEMORY_TERMS))


def test_labels_and_groups() -> None:
    assert term_label("dp_communication") == "dp communication"
    assert term_label("bubble") == TERMS["bubble"].label == "pipeline bubble"
    assert term_label("new_term") == "new term"
    assert keys_of("arithmetic", "passes") == ("matmul", "attention", "memory_bound", "recompute", "companion")
    assert all(key.endswith("_communication") for key in keys_of("communication"))


def test_the_documentation_has_every_term() -> None:
    text = OUTPUT.read_text(encoding="utf-8")
    for term in (*STEP_TERMS, *MEMORY_TERMS):
        assert f"| `{term.key}` | {term.meaning} |" in text
