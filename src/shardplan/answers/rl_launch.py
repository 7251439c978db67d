"""The answer of ``audit`` for a launch file of post-training: the RL step that it runs, with its phases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shardplan.answers.document import AnswerDocument, Bullets, Column, Line, Part, RowTable
from shardplan.answers.rl import rl_document
from shardplan.base.units import format_bytes
from shardplan.launch.dialects.reading import Fact
from shardplan.rl.launches.audit import RlAudit
from shardplan.rl.observed import MeasuredPart

Row = tuple[str, Fact]
COLUMNS = (
    Column("key", "key", lambda row: row[0], is_text=True),
    Column("value", "value", lambda row: row[1].value, str, is_text=True),
    Column("origin", None, lambda row: row[1].origin),
    Column("why", "where", lambda row: row[1].why, is_text=True),
)


def rl_launch_document(
    found: RlAudit, observed: Sequence[MeasuredPart] = (), *, is_whole: bool = False
) -> AnswerDocument:
    """The step of ``shardplan rl`` with the file's own plans, and what the file says. ``is_whole``: defaults too."""
    step = rl_document(found.result, (), found.assumptions, observed=observed)
    facts, plan = found.launch.facts, found.plan
    rows = [row for row in facts.facts.items() if row[1].value is not None]
    said = [row for row in rows if is_whole or row[1].origin != "assumed"]
    parts = [*step.parts, Part("What the file says", [RowTable(said, COLUMNS)])]
    if facts.not_understood:
        parts.append(Part("Not priced", [Bullets(facts.not_understood)]))
    if found.notes:
        parts.append(Part("To know", [Bullets(found.notes)]))
    verdict = list(step.verdict)
    if not found.fits:
        over = format_bytes(plan.trainer_memory - plan.usable_memory)
        verdict.append(Line(f"Trainer and engine need {over} more than an accelerator has.", "Memory", "bad"))
    return replace(
        step,
        name="rl-launch",
        head=[Line(f"{facts.file}: {found.launch.title}", tone="strong"), *step.head],
        verdict=verdict,
        parts=parts,
        record=lambda: {
            **step.record(),
            "framework": found.launch.title,
            "file": facts.file,
            "facts": RowTable(rows, COLUMNS),
            "not_understood": list(facts.not_understood),
            "notes": list(found.notes),
            "fits": found.fits,
        },
        is_yes=found.fits,
    )
