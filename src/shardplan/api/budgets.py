"""``shardplan.budget``: how many accelerators, for how long, for how much."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from shardplan.api.answers import frame_of
from shardplan.api.questions import ClusterLike, JobFields, ModelLike, ProfileLike, StackLike, ask, choices_of
from shardplan.api.saving import save_record
from shardplan.decisions.budget import BudgetOption, ClusterBudget, Limits, RunQuestion, budget_of
from shardplan.decisions.operations import Operations
from shardplan.decisions.searching import Searches
from shardplan.errors import InputError, UnknownNameError, check_kind
from shardplan.fields import dataclass, described
from shardplan.frameworks.usual_stack import USUAL
from shardplan.inputs.job import Job
from shardplan.planner.restrictions import Given
from shardplan.planner.stopping import Stop
from shardplan.planner.survey import Progress
from shardplan.reports.decisions.budget import budget_line, budget_record, budget_rows


@dataclass(frozen=True, kw_only=True)
class BudgetAnswer:
    """The run on every cluster that was asked for."""

    budgets: tuple[ClusterBudget, ...]
    """One for each cluster, in their order."""

    @property
    def options(self) -> tuple[BudgetOption, ...]:
        """The runs, in the order of the clusters; clusters on which no plan fits have none."""
        return tuple(each.option for each in self.budgets if each.option is not None)

    def to_dict(self) -> dict[str, Any]:
        """The answer as a mapping, as ``shardplan budget --json`` writes it; units are in the keys."""
        return budget_record(self.budgets)

    def to_rows(self) -> list[dict[str, Any]]:
        """A row for each run as mappings."""
        return budget_rows(self.budgets)

    def to_frame(self, library: str | None = None) -> Any:
        """A row for each run. ``library``: ``polars`` or ``pandas``. Raises InputError."""
        return frame_of(self.to_rows(), library)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Writes the answer as JSON. Raises InputError."""
        return save_record(self.to_dict(), path, overwrite=overwrite)

    def __repr__(self) -> str:
        return f"<BudgetAnswer: {'; '.join(budget_line(each) for each in self.budgets)}>"


def budget(
    model: ModelLike,
    cluster: ClusterLike | Sequence[ClusterLike],
    *,
    days: float | None = None,
    num_accelerators: int | None = None,
    money: float | None = None,
    energy: float | None = None,
    operations: Operations | Mapping[str, Any] | None = None,
    batch_ramp: str | None = None,
    job: Job | Mapping[str, Any] | None = None,
    fix: Given | None = None,
    limit: Given | None = None,
    exclude: Given | None = None,
    stack: StackLike = USUAL,
    profile: ProfileLike | None = None,
    progress: Progress | None = None,
    stop: Stop | None = None,
    **fields: Unpack[JobFields],
) -> BudgetAnswer:
    """Accelerators, days, money and energy of a run: ``budget("llama-3.1-405b", "dgx-h100", tokens=15.6e12, days=60)``.

    Given are the ``tokens`` and some of ``days``, ``num_accelerators``, ``money`` and ``energy`` (kWh). The others are
    worked out: the fewest accelerators that are done within the days, or the run that is done soonest for the money or
    the energy. Without any of them the run may take 90 days. ``cluster``: one, or a list to set side by side.
    ``operations`` says how the cluster is run: failures, checkpoints and energy; its defaults are data and among
    the assumptions. ``batch_ramp``: a batch that grows, ``"512x4096:252M,1024:2.87T"``. Other arguments are those of
    :func:`search`. A limit that nothing meets is an answer: the option that comes nearest says what it misses.

    Raises ``InputError`` for what is unknown or malformed, and for money where no price is known.
    """
    clusters = [*cluster] if isinstance(cluster, Sequence) and not isinstance(cluster, str) else [cluster]
    check_kind("batch_ramp", batch_ramp, str, type(None), hint='such as "512:252M,1024:2.87T"')
    limits = Limits(days=days, num_accelerators=num_accelerators, money=money, energy=energy)
    choices = choices_of(fix=fix, limit=limit, exclude=exclude)
    known = _operations(operations)
    in_job = isinstance(job, Job) or (isinstance(job, Mapping) and "global_batch_size" in job)
    has_batch = in_job or "global_batch_size" in fields
    if not has_batch:  # that of each size takes its place
        fields["global_batch_size"] = 1
    if not clusters:
        raise InputError("no cluster is given", rule="a budget is for one cluster or more", hint='write "dgx-h100"')

    def asked_of(each: ClusterLike) -> RunQuestion:
        put = ask(model, each, num_accelerators or 1, job=job, profile=profile, stack=stack, **fields)
        return RunQuestion(put.question, Searches(stack=put.stack, stop=stop, **choices), put.assumptions, has_batch)

    asked = [asked_of(each) for each in clusters]
    found = (budget_of(each, limits, known, batch_ramp=batch_ramp, progress=progress) for each in asked)
    return BudgetAnswer(budgets=tuple(found))


def _operations(given: Operations | Mapping[str, Any] | None) -> Operations:
    """How the cluster is run. Raises InputError."""
    check_kind("operations", given, Operations, Mapping, type(None), hint='a mapping such as {"repair_time": 86400.0}')
    if isinstance(given, Operations):
        return given
    for name in given or {}:
        if name not in described(Operations):
            raise UnknownNameError("field of operations", str(name)[:60], described(Operations), hint="see Operations")
    return Operations(**(given or {}))
