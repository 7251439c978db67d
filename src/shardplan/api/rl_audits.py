"""``shardplan.audit`` for a launch file of reinforcement learning: two pools, read and priced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardplan.answers.document import AnswerDocument
from shardplan.answers.rl_decisions import rl_launch_document
from shardplan.api.saving import AsPage
from shardplan.base.errors import InputError
from shardplan.base.records import field_values
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.model import ModelConfig
from shardplan.launch.dialects.ask import Ask
from shardplan.rl.launches.audit import RlAudit, audit_rl
from shardplan.rl.launches.reading import RlLaunch
from shardplan.rl.observed import MeasuredPart, differences


@dataclass(frozen=True, kw_only=True)
class RlAuditAnswer(RlAudit, AsPage):
    """The RL step of a launch file."""

    observed: tuple[MeasuredPart, ...] = ()
    """Measurements next to predictions."""

    def document(self, *, is_whole: bool = True) -> AnswerDocument:
        """The answer as a document."""
        return rl_launch_document(self, self.observed, is_whole=is_whole)

    def __repr__(self) -> str:
        return f"<RlAuditAnswer: {self.launch.title}, a step of {self.plan.step_time:.4g} s>"


def audited_rl(
    step: RlLaunch,
    ask: Ask,
    *,
    model: ModelConfig | None,
    cluster: Cluster | None,
    observed: Sequence[str],
    keep: Sequence[str],
) -> RlAuditAnswer:
    """The answer of :func:`shardplan.audit` for a file of reinforcement learning. Raises ``InputError``."""
    if keep:
        raise InputError(
            f"--keep is {', '.join(keep)} for a launch file of {step.title}",
            rule="improvements are sought of training alone; of post-training the file's own pools are priced",
            hint="leave --keep out; `shardplan rl` searches both pools",
        )
    found = audit_rl(ask, model=model, cluster=cluster, launch=step)
    assert found is not None
    return RlAuditAnswer(**field_values(RlAudit, found), observed=differences(observed, found.plan))
