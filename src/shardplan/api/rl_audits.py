"""``shardplan.audit_rl``: a launch file of post-training understood and priced."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shardplan.answers.document import AnswerDocument
from shardplan.answers.rl_launch import rl_launch_document
from shardplan.api.audits import ask_of_file, named_inputs
from shardplan.api.saving import AsRecord
from shardplan.ask.names import ClusterLike, ModelLike
from shardplan.base.records import field_values
from shardplan.render.html import notebook_html
from shardplan.render.record import document_record
from shardplan.rl.launches.audit import RlAudit
from shardplan.rl.launches.audit import audit_rl as rl_step


@dataclass(frozen=True, kw_only=True)
class RlAuditAnswer(RlAudit, AsRecord):
    """The RL step that a launch file of post-training runs."""

    def to_dict(self) -> dict[str, Any]:
        """The record of `shardplan audit --json` for such a file: that of `shardplan rl`, with what the file says."""
        return document_record(self.document())

    def document(self, *, is_whole: bool = True) -> AnswerDocument:
        """What the answer says."""
        return rl_launch_document(self, is_whole=is_whole)

    def _repr_html_(self) -> str:
        return notebook_html(self.document())

    def __repr__(self) -> str:
        return f"<RlAuditAnswer: {self.launch.title}, a step of {self.plan.step_time:.4g} s>"


def audit_rl(
    file: str | os.PathLike[str],
    *companions: str | os.PathLike[str],
    root: str | os.PathLike[str] | None = None,
    model: ModelLike | None = None,
    cluster: ClusterLike | None = None,
    num_accelerators: int | None = None,
    env: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
    entry: str | None = None,
    given: Mapping[str, object] | None = None,
) -> RlAuditAnswer | None:
    """The RL step of a launch file of post-training; None where it is none.

    Arguments are those of :func:`shardplan.audit`. Raises ``InputError`` as it does.
    """
    ask = ask_of_file((file, *companions), root, num_accelerators, env, arguments, entry, given)
    of_model, of_cluster = named_inputs(model, cluster)
    step = rl_step(ask, model=of_model, cluster=of_cluster)
    return None if step is None else RlAuditAnswer(**field_values(RlAudit, step))
