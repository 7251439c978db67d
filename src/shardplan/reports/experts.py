"""Plans that experts ran, against the best of a search for the framework that ran each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final

from shardplan.calibration.predict import ask_all
from shardplan.calibration.runs.questions import AskedRun
from shardplan.calibration.runs.rows import shipped_runs
from shardplan.errors import NotRunnableError
from shardplan.estimation.estimate import Estimate, estimate_plan, in_framework
from shardplan.estimation.question import Question
from shardplan.estimation.ties import tie_factor
from shardplan.fields import dataclass
from shardplan.files import DATA, read_document
from shardplan.frameworks.defaults import SEARCHED_SWITCHES
from shardplan.frameworks.stack import Stack, load_stack
from shardplan.inputs.degrees import Setting
from shardplan.inputs.plan import Plan
from shardplan.planner.result import SearchResult
from shardplan.planner.search import search_question
from shardplan.reports.texts.plan import plan_words
from shardplan.units import format_bytes, format_time
from shardplan.validity.rules import broken_rule

EXPERTS: Final = DATA / "experts.yaml"
CLOSE: Final = 0.12
"""Error within which a prediction is taken to describe a plan."""


@dataclass(frozen=True, kw_only=True)
class ExpertPlan:
    """A plan that experts ran, as the estimate sees it, and the best plan of the same framework."""

    name: str
    stack: Stack
    question: Question
    plan: Plan
    source: str
    estimate: Estimate | None
    """None where a rule of validity forbids the plan."""
    broken_rule: str | None
    measured: tuple[float, float] | None
    """Least and most of what was measured; None where nothing was published. [s]"""
    result: SearchResult | None
    """What a search for the framework finds, with the expert's switches; None where the framework refuses these."""

    @property
    def best(self) -> Estimate | None:
        """The fastest plan of the search."""
        return self.result.estimates[0] if self.result is not None and self.result.estimates else None

    @property
    def error(self) -> float | None:
        """Predicted over measured, less one; zero inside a range."""
        if self.measured is None or self.estimate is None:
            return None
        low, high = self.measured
        return self.estimate.step_time / min(max(self.estimate.step_time, low), high) - 1

    @property
    def gain(self) -> float | None:
        """Share of the expert's step that the best plan saves."""
        if self.best is None or self.estimate is None:
            return None
        return 1 - self.best.step_time / self.estimate.step_time

    @property
    def is_tie(self) -> bool:
        """Whether the two are too close to call."""
        known = self.best is not None and self.estimate is not None
        return known and self.estimate.step_time <= tie_factor() * self.best.step_time  # type: ignore[union-attr]


def expert_plans() -> tuple[ExpertPlan, ...]:
    """All of them, each estimated and searched for."""
    rows = read_document(EXPERTS)["experts"]
    return tuple(_expert(row) for row in rows)


def _expert(row: Mapping[str, Any]) -> ExpertPlan:
    asked = _runs()[row.get("run") or row["like"]]
    question = replace(
        asked.question,
        num_accelerators=row.get("num_accelerators", asked.question.num_accelerators),
        job=replace(asked.question.job, **row.get("job", {})),
    )
    plan, stack = replace(asked.plan, **row.get("plan", {})), load_stack(row["stack"])
    setting = Setting.of(question.model, question.cluster, question.num_accelerators, question.job)
    rule = broken_rule(setting, plan)
    time = asked.run.step_time if "run" in row else None
    return ExpertPlan(
        name=row["name"],
        stack=stack,
        question=question,
        plan=plan,
        source=row.get("source") or asked.run.source,
        estimate=None if rule is not None else in_framework(estimate_plan(question, plan), stack, question),
        broken_rule=None if rule is None else rule.name,
        measured=None if time is None else (row.get("least", time), row.get("most", time)),
        result=_searched(question, stack, plan),
    )


@cache
def _runs() -> Mapping[str, AskedRun]:
    names = {row.get("run") or row["like"] for row in read_document(EXPERTS)["experts"]}
    return {each.run.id: each for each in ask_all([run for run in shipped_runs() if run.id in names])[0]}


def _searched(question: Question, stack: Stack, plan: Plan) -> SearchResult | None:
    """The search for the framework with the switches and the schedule of the plan, as far as it can run them."""
    fix = {name: getattr(plan, name) for name in SEARCHED_SWITCHES}
    fix |= {} if plan.schedule is None else {"schedule": plan.schedule}
    for chosen in (fix, {}):
        try:
            return search_question(question, fix=chosen, stack=stack, top=1, suggestions=False)
        except NotRunnableError:
            continue
    return None


def verdict(expert: ExpertPlan) -> str:
    """One sentence: whether the expert's plan ties with the best, or what speaks for the better one."""
    if expert.estimate is None:
        return f"not valid here: {expert.broken_rule}"
    if not expert.estimate.feasible:
        return _too_large(expert, expert.estimate)
    if expert.best is None:
        return "the search finds no plan that fits"
    if expert.is_tie:
        return "a tie with the best" if (expert.gain or 0) > 0 else "the best found is no faster"
    saved = f"{100 * (expert.gain or 0):.0f} % of the step"
    return f"the best plan would save {saved} by the estimate; {_evidence(expert.best)}"


def _too_large(expert: ExpertPlan, estimate: Estimate) -> str:
    """How sure it is that the plan does not fit, whether it ran all the same, and how its time compares."""
    said = f"does not fit: {str(estimate.reason).partition(';')[0]}"
    lower = estimate.peak_memory_p10_bytes
    if lower > estimate.usable_memory_bytes:
        return said
    ran = "it ran, and " if expert.measured is not None else ""
    time = "; in time a tie with the best that fits" if expert.is_tie else ""
    return f"{said}, but {ran}the lower end of the band of its memory, {format_bytes(lower)}, fits{time}"


def _evidence(best: Estimate) -> str:
    """What was measured near the better plan."""
    if not best.evidence:
        return "no measured run is comparable"
    near = best.evidence[0]
    said = (
        f"the nearest measured run, {near.id} at distance {near.distance:.1f}, is predicted {100 * near.error:+.0f} %"
    )
    return f"{best.step_time_note}, and {said}" if best.step_time_note else said


def experts_markdown(experts: Iterable[ExpertPlan]) -> str:
    """The table of the page."""
    lines = [
        "| run, framework | expert's plan | measured | predicted | best plan of the search | |",
        "|---|---|--:|--:|---|---|",
    ]
    lines += [
        f"| {each.name}, `{each.stack.label}` | {_plan_text(each.estimate)} | {_measured(each)} | {_predicted(each)} "
        f"| {_best_text(each)} | {verdict(each)} |"
        for each in experts
    ]
    return "\n".join(lines)


def _plan_text(estimate: Estimate | None) -> str:
    return "" if estimate is None else ", ".join(plan_words(estimate))


def _measured(expert: ExpertPlan) -> str:
    if expert.measured is None:
        return ""
    low, high = expert.measured
    return format_time(low) if low == high else f"{format_time(low)} to {format_time(high)}"


def _predicted(expert: ExpertPlan) -> str:
    if expert.estimate is None:
        return ""
    error = "" if expert.error is None else f" ({100 * expert.error:+.0f} %)"
    return f"{format_time(expert.estimate.step_time)}{error}"


def _best_text(expert: ExpertPlan) -> str:
    return "" if expert.best is None else f"{format_time(expert.best.step_time)}: {_plan_text(expert.best)}"
