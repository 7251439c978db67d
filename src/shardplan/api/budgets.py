"""``shardplan.budget``: how many accelerators, for how long, for how much."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from shardplan.answers.decisions.budget import budget_document, budget_line
from shardplan.answers.document import AnswerDocument
from shardplan.api.questions import SearchFields, is_given, put_search
from shardplan.api.saving import AsDocument
from shardplan.ask.names import ClusterLike, ModelLike
from shardplan.base.errors import InputError, UnknownNameError, check_kind
from shardplan.base.fields import dataclass, described, replace
from shardplan.decide.batches import BatchLimits, parse_batch_limits, wrong_limits
from shardplan.decide.budget import BudgetOption, ClusterBudget, Limits, RunQuestion, budget_of
from shardplan.decide.operations import Operations
from shardplan.planner.survey import Progress


@dataclass(frozen=True, kw_only=True)
class BudgetAnswer(AsDocument):
    """The run on every cluster that was asked for."""

    budgets: tuple[ClusterBudget, ...]
    """One for each cluster, in their order."""

    @property
    def options(self) -> tuple[BudgetOption, ...]:
        """The runs, in the order of the clusters; clusters on which no plan fits have none."""
        return tuple(each.option for each in self.budgets if each.option is not None)

    def document(self) -> AnswerDocument:
        """What ``shardplan budget`` prints. Rows: the runs."""
        return budget_document(self.budgets)

    def __repr__(self) -> str:
        return f"<BudgetAnswer: {'; '.join(budget_line(each) for each in self.budgets)}>"


def budget(
    model: ModelLike,
    cluster: ClusterLike | Sequence[ClusterLike],
    *,
    days: float | None = None,
    num_accelerators: int | str | None = None,
    money: float | None = None,
    energy: float | None = None,
    operations: Operations | Mapping[str, Any] | None = None,
    batch_ramp: str | None = None,
    batch_limits: tuple[int, int] | str | None = None,
    progress: Progress | None = None,
    **asked: Unpack[SearchFields],
) -> BudgetAnswer:
    """Accelerators, days, money and energy of a run: ``budget("llama-3.1-405b", "dgx-h100", tokens=15.6e12, days=60)``.

    Given are the ``tokens`` and some of ``days``, ``num_accelerators``, ``money`` and ``energy`` (kWh). The others are
    worked out: the fewest accelerators that are done within the days, or the run that is done soonest for the money or
    the energy. Without any of them the run may take 90 days. ``cluster``: one, or a list to set side by side.
    ``operations`` says how the cluster is run: failures, checkpoints and energy; its defaults are data and among
    the assumptions. ``batch_ramp``: a batch that grows, ``"512x4096:252M,1024:2.87T"``. ``batch_limits``: the batch of
    every size is chosen within them, ``(1024, 4096)`` or ``"1024..4096"``. Other arguments are those of
    :func:`search`. A limit that nothing meets is an answer: the option that comes nearest says what it misses.

    Raises ``InputError`` for what is unknown or malformed, and for money where no price is known.
    """
    clusters = [*cluster] if isinstance(cluster, Sequence) and not isinstance(cluster, str) else [cluster]
    check_kind("batch_ramp", batch_ramp, str, type(None), hint='such as "512:252M,1024:2.87T"')
    limits = Limits(days=days, money=money, energy=energy)
    known = _operations(operations)
    has_batch = is_given("global_batch_size", asked)
    if not has_batch:  # that of each size takes its place
        asked["global_batch_size"] = 1
    batches = _batch_limits(batch_limits)
    if not clusters:
        raise InputError("no cluster is given", rule="a budget is for one cluster or more", hint='write "dgx-h100"')

    def asked_of(each: ClusterLike) -> RunQuestion:
        put, searches = put_search(model, each, 1 if num_accelerators is None else num_accelerators, asked)
        return RunQuestion(put.question, searches, put.assumptions, has_batch, batches)

    questions = [asked_of(each) for each in clusters]
    sizes = (None if num_accelerators is None else each.question.num_accelerators for each in questions)
    limited = zip(questions, (replace(limits, num_accelerators=size) for size in sizes), strict=True)
    found = (budget_of(each, its, known, batch_ramp=batch_ramp, progress=progress) for each, its in limited)
    return BudgetAnswer(budgets=tuple(found))


def _batch_limits(given: tuple[int, int] | str | None) -> BatchLimits | None:
    """Least and most sequences per step. Raises InputError."""
    if given is None:
        return None
    if isinstance(given, str):
        return parse_batch_limits(given)
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise wrong_limits(given)
    low, high = given
    return BatchLimits(low=low, high=high)


def _operations(given: Operations | Mapping[str, Any] | None) -> Operations:
    """How the cluster is run. Raises InputError."""
    check_kind("operations", given, Operations, Mapping, type(None), hint='a mapping such as {"repair_time": 86400.0}')
    if isinstance(given, Operations):
        return given
    for name in given or {}:
        if name not in described(Operations):
            raise UnknownNameError("field of operations", str(name)[:60], described(Operations), hint="see Operations")
    return Operations(**(given or {}))
