"""``shardplan.will_resume``: whether a checkpoint loads under another plan."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from shardplan.answers.document import AnswerDocument
from shardplan.answers.resume import Load, load_of, named, of_side, resume_document, side_of_file
from shardplan.api.answers import PlanAnswer, SearchAnswer
from shardplan.api.audits import AuditAnswer
from shardplan.api.saving import AsPage
from shardplan.ask.names import ClusterLike, ModelLike, cluster_of, model_of
from shardplan.base.errors import InputError, check_kind
from shardplan.base.records import field_values
from shardplan.decide.operations import Operations
from shardplan.launch.resume import answer
from shardplan.launch.resume.answer import ResumeSide, side_of_plan, side_of_reading

RunLike: TypeAlias = str | os.PathLike[str] | PlanAnswer | SearchAnswer | AuditAnswer
"""A launch file, a plan file, or what ``estimate``, ``search``, ``load`` or ``audit`` returned."""


@dataclass(frozen=True, kw_only=True)
class ResumeAnswer(answer.Resume, AsPage):
    """Whether a run can resume from the checkpoint of another: state by state, with reasons and sources."""

    load: Load | None = None
    """Bytes and time of the load; None if nothing is loaded or the size is not known."""

    def document(self) -> AnswerDocument:
        """What ``shardplan resume`` prints (docs/output.md names every key of its record)."""
        return resume_document(self, self.load)

    def __repr__(self) -> str:
        return f"<ResumeAnswer: {self.verdict}; {self.why}>"


def will_resume(
    old: RunLike,
    new: RunLike,
    *,
    framework: str | None = None,
    model: ModelLike | None = None,
    cluster: ClusterLike | None = None,
    env: Mapping[str, str] | None = None,
    given: Mapping[str, object] | None = None,
    operations: Operations | None = None,
) -> ResumeAnswer:
    """Whether ``new`` can load the checkpoint that ``old`` saved: ``will_resume("launch.sh", "launch-512.sh")``.

    The answer comes from the record of the framework, with its version, date and sources; what it does not say is
    unknown. ``framework`` is that of plans that name none. ``env`` and ``given`` are as for ``audit``; a key such as
    ``new.NODES`` is for one of the two files. ``operations`` has the bandwidth of checkpoints. Raises ``InputError``
    for a file that cannot be read.
    """
    stated = {key: str(value) for key, value in (given or {}).items()}
    shared = {
        "model": None if model is None else model_of(model),
        "cluster": None if cluster is None else cluster_of(cluster),
    }
    sides = [
        _side(each, framework, env=of_side(env or {}, name), given=of_side(stated, name), **shared)
        for name, each in (("old", old), ("new", new))
    ]
    found = answer.resume(*sides)
    return ResumeAnswer(**field_values(answer.Resume, found), load=load_of(found, operations or Operations()))


def _side(run: RunLike, framework: str | None, **asked: Any) -> ResumeSide:
    """One run. Raises InputError."""
    if isinstance(run, AuditAnswer):
        return side_of_reading(run.reading, run.posed)
    if isinstance(run, PlanAnswer | SearchAnswer):
        picked = run.recommended or run.fastest if isinstance(run, SearchAnswer) else run
        if picked is None:
            raise InputError("no plan of the search fits", rule="a plan is resumed", hint="see its suggestions")
        return named(side_of_plan("plan", run.question, picked.plan, picked.framework), framework)
    check_kind("run", run, str, os.PathLike, hint="the path of a launch file or a plan file")
    return side_of_file(Path(run), framework=framework, **asked)
