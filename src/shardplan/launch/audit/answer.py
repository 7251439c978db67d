"""The audit of a launch file, whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

from shardplan.base.errors import ShardplanError
from shardplan.base.fields import dataclass
from shardplan.estimation.estimate import Estimate, estimate_plan, in_framework
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.model import ModelConfig
from shardplan.launch.audit.likely import likely
from shardplan.launch.audit.question import Posed, posed, stops, violations
from shardplan.launch.dialects.ask import Ask
from shardplan.launch.dialects.edits import Edits
from shardplan.launch.dialects.read import read_launch
from shardplan.launch.dialects.reading import Break, Reading, Taken

if TYPE_CHECKING:
    from shardplan.launch.audit.improve import Improvement
    from shardplan.launch.audit.observed import GapExplanation, Observed
    from shardplan.planner.stopping import Stop


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What runs, whether it is valid, what it takes, and what would be better."""

    reading: Reading
    """What the file says."""
    posed: Posed
    """The question and the plan, as far as they are known."""
    violations: tuple[Break, ...]
    """Rules that are broken, what stops the run first."""
    estimate: Estimate | None
    """Memory and time; None where something is missing or the plan is not valid."""
    improvements: tuple[Improvement, ...] = ()
    """The most valuable changes."""
    observed: tuple[GapExplanation, ...] = ()
    """Measurements next to the prediction."""
    taken: Taken = field(default_factory=dict)
    """What was taken for what the file leaves open. Improvements are not sought then."""

    @property
    def runs(self) -> bool:
        """Whether nothing that is known stops the run: no broken rule, and enough memory."""
        return not stops(self.violations) and (self.estimate is None or self.estimate.feasible)


def audit_launch(
    ask: Ask,
    *,
    model: ModelConfig | None = None,
    cluster: Cluster | None = None,
    keep: Sequence[str] = (),
    observed: Sequence[str] = (),
    stop: Stop | None = None,
) -> Audit:
    """Reads and judges a launch file. Raises InputError for a file that is not read, and for wrong arguments.

    ``stop`` is asked between pieces of work; raises ``SearchStopped`` where it says yes.
    """
    measured, kept = _arguments(observed, keep)
    reading = read_launch(ask if cluster is None else replace(ask, node=cluster.accelerators_per_node))
    asked = posed(reading, model, cluster)
    taken = likely(reading, asked, cluster)
    again = _with(replace(ask, taken=taken), model, cluster) if taken else None
    reading, asked = again or (reading, asked)
    found = violations(reading, asked)
    now = _estimate(asked)
    runs = not stops(each for each in found if each not in reading.breaks)  # the plan; the file may have to be mended

    def read_again(edits: Edits) -> Posed | None:
        try:
            return posed(read_launch(replace(ask, edits=edits)), model, cluster)
        except ShardplanError:
            return None

    taken = taken if again else {}
    audit = Audit(reading=reading, posed=asked, violations=found, estimate=now, taken=taken)
    question, plan = asked.question, asked.plan
    if question is None or plan is None:
        return audit
    from shardplan.launch.audit.improve import improvements
    from shardplan.launch.audit.observed import explain
    from shardplan.launch.audit.wording import wording_of

    better = () if taken else improvements(
        question, plan, now if runs else None, asked.stack, kept,
        wording=wording_of(reading), read=read_again, stop=stop,
    )  # fmt: skip
    explained = () if now is None else tuple(explain(question, plan, now, each) for each in measured)
    return replace(audit, improvements=better, observed=explained)


def _with(ask: Ask, model: ModelConfig | None, cluster: Cluster | None) -> tuple[Reading, Posed] | None:
    """The file read again with what is taken; None where something is open all the same, or breaks."""
    node = None if cluster is None else cluster.accelerators_per_node
    try:
        reading = read_launch(replace(ask, node=node))
        asked = posed(reading, model, cluster)
    except ShardplanError:
        return None
    return None if asked.missing else (reading, asked)


def _arguments(observed: Sequence[str], keep: Sequence[str]) -> tuple[list[Observed], Sequence[str]]:
    """Measurements, and the fields that stay. What reads them is imported where it is needed: that takes time.

    Raises InputError.
    """
    measured: list[Observed] = []
    if observed:
        from shardplan.launch.audit.observed import parse_observed

        measured = [parse_observed(text) for text in observed]
    if keep:
        from shardplan.launch.audit.improve import check_keep

        check_keep(keep)
    return measured, keep


def _estimate(asked: Posed) -> Estimate | None:
    """The estimate of the plan as it stands; None where it is incomplete or breaks a rule."""
    if asked.question is None or asked.plan is None:
        return None
    try:
        return in_framework(estimate_plan(asked.question, asked.plan), asked.stack, asked.question)
    except ShardplanError:  # the broken rule is among the violations
        return None
