"""``shardplan.audit``: a launch file read, checked and improved."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from shardplan.answers.audit import audit_document
from shardplan.answers.document import AnswerDocument
from shardplan.api.saving import AsPage
from shardplan.ask.names import ClusterLike, ModelLike, cluster_of, model_of
from shardplan.base.errors import check_kind
from shardplan.base.records import field_values
from shardplan.launch.audit import answer
from shardplan.launch.dialects.ask import Ask
from shardplan.launch.dialects.callers import started
from shardplan.launch.read.places import Places
from shardplan.planner.stopping import Stop
from shardplan.rl.launches.reading import read_rl_launch

if TYPE_CHECKING:
    from shardplan.api.rl_audits import RlAuditAnswer


@dataclass(frozen=True, kw_only=True)
class AuditAnswer(answer.Audit, AsPage):
    """The plan of a launch file, the rules it breaks, its estimate, and what would be better."""

    def document(self) -> AnswerDocument:
        """The answer as a document."""
        return audit_document(self, states_assumptions=True)

    def __repr__(self) -> str:
        state = "runs" if self.runs else "does not run as written"
        return f"<AuditAnswer: {self.reading.framework}, {state}>"


def audit(
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
    observed: Sequence[str] | str = (),
    keep: Sequence[str] = (),
    stop: Stop | None = None,
) -> AuditAnswer | RlAuditAnswer:
    """Reads a launch file without running it: ``audit("launch.sh", cluster="dgx-h100", num_accelerators=512)``.

    ``companions`` are files that it names, and configurations that go with it; ``root`` is the folder that it is
    launched from. ``env`` are environment variables, ``arguments`` those of the script, ``entry`` is a function of a
    configuration in Python; ``given`` are values of keys that the file leaves open (``missing`` names them).
    ``observed`` are measurements such as ``"step 7.9s"``, ``"1500tok/s"``, ``"120 TFLOP/s"`` or ``"OOM rank 0"``.
    ``keep`` are fields of the plan that improvements do not change. ``stop`` is called between pieces of work, such as
    a ``Deadline``. For a launch file of reinforcement learning the answer is its RL step, with both pools of the file.
    Raises ``InputError`` for a file that cannot be read, and for wrong arguments; a plan that breaks a rule is an
    answer.
    """
    for each in (file, *companions):
        check_kind("file", each, str, os.PathLike, hint='write audit("launch.sh")')
    ask = ask_of_file((file, *companions), root, num_accelerators, env, arguments, entry, given)
    of_model = None if model is None else model_of(model)
    of_cluster = None if cluster is None else cluster_of(cluster)
    measured = (observed,) if isinstance(observed, str) else tuple(observed)
    if of_cluster is not None:
        ask = replace(ask, node=of_cluster.accelerators_per_node)
    step = read_rl_launch(ask)
    if step is not None:
        from shardplan.api.rl_audits import audited_rl  # not needed for an audit of training

        return audited_rl(step, ask, model=of_model, cluster=of_cluster, observed=measured, keep=tuple(keep))
    found = answer.audit_launch(
        ask,
        model=of_model,
        cluster=of_cluster,
        keep=tuple(keep),
        observed=measured,
        stop=stop,
    )
    return AuditAnswer(**field_values(answer.Audit, found))


def ask_of_file(  # noqa: PLR0917  # as the function above takes them
    files: Sequence[str | os.PathLike[str]],
    root: str | os.PathLike[str] | None,
    num_accelerators: int | None,
    env: Mapping[str, str] | None,
    arguments: Sequence[str],
    entry: str | None,
    given: Mapping[str, object] | None,
) -> Ask:
    """The request for a file and its companions. Raises InputError for missing files."""
    stated = {key: str(value) for key, value in (given or {}).items()}
    if num_accelerators is not None:
        stated["num_accelerators"] = str(num_accelerators)
    first, *others = map(Path, files)
    places = Places(root=None if root is None else Path(root), companions=tuple(others))
    env = dict(env or {})
    ask = Ask(path=first, env=env, arguments=tuple(arguments), entry=entry, given=stated, places=places)
    ask.check()
    return started(ask)
