"""``shardplan.scale``, ``fit``, ``whatif``, ``sensitivity``, ``pareto`` and ``budget``: many searches each."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from shardplan.answers.decisions.budget import budget_document, budget_line
from shardplan.answers.decisions.fit import fit_document
from shardplan.answers.decisions.pareto import pareto_document
from shardplan.answers.decisions.pareto_sizes import pareto_sizes_document
from shardplan.answers.decisions.scale import scale_document
from shardplan.answers.decisions.sensitivity import sensitivity_document
from shardplan.answers.decisions.whatif import whatif_document
from shardplan.answers.document import AnswerDocument
from shardplan.api.answers import PlanAnswer, SearchAnswer, load
from shardplan.api.questions import SearchFields, is_given, posed_search
from shardplan.api.saving import AsDocument
from shardplan.ask.names import ClusterLike, ModelLike, StackLike
from shardplan.ask.questions import choices_in
from shardplan.base.errors import InputError, UnknownNameError, check_kind, shown
from shardplan.base.fields import dataclass, described, replace
from shardplan.base.records import field_values
from shardplan.decide import largest as fits
from shardplan.decide import pareto as fronts
from shardplan.decide import scale as scales
from shardplan.decide import sensitivity as sensitivities
from shardplan.decide import whatif as what_ifs
from shardplan.decide.batches import BatchLimits, parse_batch_limits, wrong_limits
from shardplan.decide.budget import BudgetOption, ClusterBudget, Limits, RunQuestion, budget_of
from shardplan.decide.operations import Operations
from shardplan.decide.searching import Progress, Searches
from shardplan.physics.frameworks.usual_stack import USUAL, stack_for, stack_of_label
from shardplan.planner.restrictions import Given
from shardplan.planner.stopping import Stop


@dataclass(frozen=True, kw_only=True)
class ScaleAnswer(scales.Scaling, AsDocument):
    """One job on several sizes: :class:`shardplan.decide.scale.Scaling`. Rows: the sizes."""

    document = scale_document


def scale(
    model: ModelLike,
    cluster: ClusterLike,
    sizes: Sequence[int] | str,
    *,
    least_gain: float = scales.LEAST_GAIN,
    progress: Progress | None = None,
    **asked: Unpack[SearchFields],
) -> ScaleAnswer:
    """Plans one job on clusters of several sizes: ``scale("llama-3.1-70b", "dgx-h100", [64, 128, 256])``.

    ``sizes`` may be a range as text, whose sizes double: ``"64..4096"``, ``"64-4096"``.
    The batch is the same at every size, by default that of :func:`search` at the largest. More accelerators
    pay while each added one brings ``least_gain`` of what one brings at the smallest size (``pays_up_to``). Other
    arguments are those of :func:`search`, and so are the errors.
    """
    ordered = scales.checked_sizes(sizes)
    posed, searches = posed_search(model, cluster, ordered[-1], asked)
    found = scales.scaling(posed.question, ordered, searches, least_gain=least_gain, progress=progress)
    return ScaleAnswer(**field_values(scales.Scaling, replace(found, assumptions=posed.assumptions)))


@dataclass(frozen=True, kw_only=True)
class FitAnswer(fits.LargestFit, AsDocument):
    """The largest or smallest value that fits: :class:`shardplan.decide.largest.LargestFit`.

    Rows: the values that were tried.
    """

    document = fit_document


def fit(
    model: ModelLike,
    cluster: ClusterLike,
    num_accelerators: int | None = None,
    *,
    largest: str | None = None,
    smallest: str | None = None,
    **asked: Unpack[SearchFields],
) -> FitAnswer:
    """The largest that fits: ``fit("llama-3.1-8b", "dgx-h100", 8, largest="sequence_length")``, with its plan.

    ``largest`` is ``sequence_length``, ``micro_batch_size`` or ``layers``; ``smallest`` is ``gpus``, without a
    number of accelerators. The default batch is the usual one of each length and size. Other
    arguments and errors are those of :func:`search`; giving the value that is sought is an error too.
    """
    sought = _sought(largest, smallest)
    given = {
        "gpus": num_accelerators is not None,
        "sequence_length": is_given("sequence_length", asked),
    }
    if given.get(sought, False) or (sought != "gpus" and num_accelerators is None):
        raise InputError(
            f"{sought} is sought; num_accelerators is {num_accelerators}, given: {', '.join(asked) or 'nothing'}",
            rule="what is sought is not given, and the number of accelerators is given unless it is sought",
            hint='write fit("llama-3.1-8b", "dgx-h100", 8, largest="sequence_length")',
        )
    posed, searches = posed_search(model, cluster, num_accelerators or 1, asked)
    found = fits.fitted(posed.question, sought, searches, keeps_batch=is_given("global_batch_size", asked))
    assumed = fits.still_assumed(sought, posed.assumptions)
    return FitAnswer(**field_values(fits.LargestFit, replace(found, assumptions=assumed)))


def _sought(largest: str | None, smallest: str | None) -> fits.Sought:
    """What is maximised or minimised. Raises InputError."""
    if (largest is None) == (smallest is None):
        raise InputError(
            f"largest is {shown(largest)} and smallest is {shown(smallest)}",
            rule="one of largest and smallest is given",
            hint=f"give largest={fits.LARGEST[0]!r}, or smallest={fits.SMALLEST[0]!r}",
        )
    is_largest = largest is not None
    name, sought, known = ("largest", largest, fits.LARGEST) if is_largest else ("smallest", smallest, fits.SMALLEST)
    check_kind(name, sought, str, hint=f"write {name}={known[0]!r}")
    return fits.sought_of(str(sought), is_largest=is_largest)


@dataclass(frozen=True, kw_only=True)
class WhatIfAnswer(what_ifs.WhatIf, AsDocument):
    """A plan before and after changes: :class:`shardplan.decide.whatif.WhatIf`.

    Rows: the original question, and one after each change.
    """

    document = whatif_document


def whatif(
    plan: SearchAnswer | PlanAnswer | str | os.PathLike[str],
    changes: Mapping[str, Any],
    *,
    fix: Given | None = None,
    limit: Given | None = None,
    exclude: Given | None = None,
    stack: StackLike = USUAL,
    progress: Progress | None = None,
    stop: Stop | None = None,
) -> WhatIfAnswer:
    """Plans again after changes: ``whatif("plans.json", {"inter_node_bandwidth": "100", "precision": "fp8"})``.

    ``plan`` is an answer of :func:`search` or :func:`estimate`, or a plan file. ``changes`` are made one after the
    other; their names are those of ``shardplan whatif --change``. A bandwidth as text is in GB/s per accelerator and
    direction, as a number in bytes/s. ``stack`` is by default the framework that the plan is for. Raises ``InputError``
    for unknown names and for a change without effect.
    """
    check_kind("changes", changes, Mapping, hint='write {"inter_node_bandwidth": "100"}')
    answer = load(plan) if isinstance(plan, str | os.PathLike) else plan
    if not isinstance(answer, SearchAnswer | PlanAnswer):
        raise InputError(
            f"plan is {shown(plan)}",
            rule="plan is an answer of search or estimate, or the path of a plan file",
            hint='write plan="plans.json"',
        )
    before = answer if isinstance(answer, PlanAnswer) else answer.recommended
    if before is None:
        raise InputError(
            "the answer has no plan: nothing fits", rule="a plan is changed", hint="give an answer with a plan"
        )
    vendor = answer.question.cluster.accelerator.vendor
    framework = stack_of_label(before.framework) if stack == USUAL else stack_for(stack, vendor)
    searches = Searches.of(stack=framework, stop=stop, **choices_in({"fix": fix, "limit": limit, "exclude": exclude}))
    found = what_ifs.what_if(answer.question, before.plan, changes, searches, progress=progress)
    return WhatIfAnswer(**field_values(what_ifs.WhatIf, found))


@dataclass(frozen=True, kw_only=True)
class SensitivityAnswer(sensitivities.Sensitivity, AsDocument):
    """How the best step time depends on the hardware: :class:`shardplan.decide.sensitivity.Sensitivity`.

    Rows: the parameters, the most important first.
    """

    document = sensitivity_document


def sensitivity(
    model: ModelLike,
    cluster: ClusterLike,
    num_accelerators: int,
    *,
    factor: float = sensitivities.FACTOR,
    progress: Progress | None = None,
    **asked: Unpack[SearchFields],
) -> SensitivityAnswer:
    """The elasticity of the best step time to every hardware parameter, planned again at each point.

    Every parameter is divided and multiplied by ``factor``. Other arguments and errors are those of :func:`search`.
    """
    posed, searches = posed_search(model, cluster, num_accelerators, asked)
    found = sensitivities.sensitivity_of(posed.question, searches, factor=factor, progress=progress)
    return SensitivityAnswer(**field_values(sensitivities.Sensitivity, replace(found, assumptions=posed.assumptions)))


@dataclass(frozen=True, kw_only=True)
class ParetoAnswer(fronts.ParetoFront, AsDocument):
    """Plans that no other dominates: :class:`shardplan.decide.pareto.ParetoFront`.

    Rows: the plans of the front, the fastest first.
    """

    document = pareto_document


def pareto(
    model: ModelLike,
    cluster: ClusterLike,
    num_accelerators: int,
    **asked: Unpack[SearchFields],
) -> ParetoAnswer:
    """The plans that fit and that no other dominates in step time, memory headroom and robustness.

    Arguments and errors are those of :func:`search`.
    """
    posed, searches = posed_search(model, cluster, num_accelerators, asked)
    front = fronts.pareto_front(posed.question, searches)
    return ParetoAnswer(**field_values(fronts.ParetoFront, replace(front, assumptions=posed.assumptions)))


@dataclass(frozen=True, kw_only=True)
class ParetoSizesAnswer(fronts.SizesFront, AsDocument):
    """Sizes by time, accelerators and cost: :class:`shardplan.decide.pareto.SizesFront`.

    Rows: the sizes, the smallest first.
    """

    document = pareto_sizes_document


def pareto_sizes(
    model: ModelLike,
    cluster: ClusterLike,
    sizes: Sequence[int],
    *,
    progress: Progress | None = None,
    **asked: Unpack[SearchFields],
) -> ParetoSizesAnswer:
    """The sizes that no other dominates in time, accelerators and cost, each with its recommended plan.

    ``pareto_sizes("llama-3.1-70b", "dgx-h100", [64, 128, 256], tokens=15e12)``. The time is that of the whole run,
    including failures; without tokens it is that of a step, and the cost that of a billion tokens. The default batch is
    that of :func:`search` at the largest size. ``load_cluster("dgx-h100", price=2.5)`` sets the price of an
    accelerator-hour. Other arguments and errors are those of :func:`search`; an unknown price is an error too.
    """
    ordered = scales.checked_sizes(sizes)
    posed, searches = posed_search(model, cluster, ordered[-1], asked)
    found = fronts.sizes_front(posed.question, ordered, searches, progress=progress)
    found = replace(found, assumptions=(*posed.assumptions, *found.assumptions))
    return ParetoSizesAnswer(**field_values(fronts.SizesFront, found))


@dataclass(frozen=True, kw_only=True)
class BudgetAnswer(AsDocument):
    """The run on every given cluster."""

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
    """Accelerators, days, cost and energy of a run: ``budget("llama-3.1-405b", "dgx-h100", tokens=15.6e12, days=60)``.

    Give the ``tokens`` and some of ``days``, ``num_accelerators``, ``money`` and ``energy`` (kWh). The others are
    worked out: the fewest accelerators that finish within the days, or the run that finishes first for the money or the
    energy. Without any of them the run may take 90 days. ``cluster`` is one, or a list to show side by side.
    ``operations`` says how the cluster is run: failures, checkpoints and energy; its defaults are data and among the
    assumptions. ``batch_ramp`` is a batch that grows, ``"512x4096:252M,1024:2.87T"``. With ``batch_limits``, the batch
    of every size is chosen within them, ``(1024, 4096)`` or ``"1024..4096"``. Other arguments are those of
    :func:`search`. If nothing meets a limit, the answer is the nearest run, which says what it misses.

    Raises ``InputError`` for unknown or malformed arguments, and for money if no price is known.
    """
    clusters = [*cluster] if isinstance(cluster, Sequence) and not isinstance(cluster, str) else [cluster]
    check_kind("batch_ramp", batch_ramp, str, type(None), hint='such as "512:252M,1024:2.87T"')
    limits = Limits(days=days, money=money, energy=energy)
    known = _operations(operations)
    has_batch = is_given("global_batch_size", asked)
    if not has_batch:  # each size has its own
        asked["global_batch_size"] = 1
    batches = _batch_limits(batch_limits)
    if not clusters:
        raise InputError("no cluster is given", rule="a budget is for one cluster or more", hint='write "dgx-h100"')

    def asked_of(each: ClusterLike) -> RunQuestion:
        posed, searches = posed_search(model, each, 1 if num_accelerators is None else num_accelerators, asked)
        return RunQuestion(posed.question, searches, posed.assumptions, has_batch, batches)

    questions = [asked_of(each) for each in clusters]
    sizes = (None if num_accelerators is None else each.question.num_accelerators for each in questions)
    limited = zip(questions, (replace(limits, num_accelerators=size) for size in sizes), strict=True)
    found = (budget_of(each, its, known, batch_ramp=batch_ramp, progress=progress) for each, its in limited)
    return BudgetAnswer(budgets=tuple(found))


def _batch_limits(given: tuple[int, int] | str | None) -> BatchLimits | None:
    """Fewest and most sequences per step. Raises InputError."""
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
