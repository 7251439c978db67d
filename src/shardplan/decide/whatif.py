"""What a change of the cluster or the job brings: the recommended plan is searched again after every change.

Changes are made one after the other. After each, the question is planned again, and the earlier plan is priced as it
is, which separates the effect of the change from that of planning again. The step times before and after all changes
are compared term by term; their differences add up to that of the step time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final, cast

from shardplan.ask.forms import Replaced
from shardplan.ask.names import companions_of_job
from shardplan.base.errors import InputError, ShardplanError, UnknownNameError, shown
from shardplan.base.fields import dataclass, described
from shardplan.base.units import with_unit
from shardplan.decide.searching import Answered, Progress, Searches
from shardplan.estimation.estimate import Estimate, estimate_plan
from shardplan.estimation.question import Question
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.counts import MAX_NUM_ACCELERATORS
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.readers.catalog import load_cluster
from shardplan.inputs.readers.overrides import Overrides, override, value_now
from shardplan.inputs.readers.typed import assigned, named_once, values_of, whole
from shardplan.inputs.software import Software
from shardplan.inputs.words import field_meant

CLUSTER: Final = "cluster"
SIZES: Final = ("num_accelerators", "gpus")
PEAK: Final = "peak_flops"
OF_CLUSTER: Final = tuple(Overrides.__annotations__)
OF_JOB: Final = tuple(field.name for field in fields(Job) if field.name != "software")
OF_SOFTWARE: Final = tuple(field.name for field in fields(Software))
OF_PLAN: Final = tuple(field.name for field in fields(Plan))
CHANGEABLE: Final = (*OF_CLUSTER, *OF_JOB, *OF_SOFTWARE, *SIZES, CLUSTER)
"""Everything that a change can name."""


@dataclass(frozen=True, kw_only=True)
class ChangeStep:
    """The question after one more change."""

    label: str
    """The change as text; empty for the original question."""
    answered: Answered
    """The recommended plan now."""
    same_plan: Estimate | None
    """The earlier plan, priced as it is; None if it breaks a rule now."""
    same_plan_reason: str | None
    """Why the earlier plan is no longer possible."""


@dataclass(frozen=True, kw_only=True)
class TermChange:
    """One term of the step time, before and after."""

    name: str
    before: float
    """Time before. [s]"""
    after: float
    """Time after. [s]"""

    @property
    def change(self) -> float:
        """Additional time. [s]"""
        return self.after - self.before


@dataclass(frozen=True, kw_only=True)
class WhatIf:
    """A plan, and the effect of changes on it."""

    plan: Estimate
    """The plan in question, with today's prices."""
    steps: tuple[ChangeStep, ...]
    """The original question, planned again, then after each change."""
    assumptions: tuple[str, ...] = ()
    """Assumptions made when the question was read."""

    @property
    def before(self) -> Answered:
        """The original question."""
        return self.steps[0].answered

    @property
    def after(self) -> Answered:
        """The question after all changes."""
        return self.steps[-1].answered

    @property
    def terms(self) -> tuple[TermChange, ...]:
        """Terms of the step before and after, the largest difference first; empty if a plan is missing."""
        if self.before.estimate is None or self.after.estimate is None:
            return ()
        first, last = self.before.estimate.breakdown, self.after.estimate.breakdown
        names = dict.fromkeys((*first, *last))
        found = [TermChange(name=name, before=first.get(name, 0.0), after=last.get(name, 0.0)) for name in names]
        return tuple(sorted((each for each in found if each.before or each.after), key=lambda each: -abs(each.change)))


def what_if(
    question: Question,
    plan: Plan,
    changes: Mapping[str, Any],
    searches: Searches,
    *,
    before: Answered | None = None,
    progress: Progress | None,
) -> WhatIf:
    """``plan`` and the recommended plan after each of ``changes``, in their order. Raises ``InputError``.

    Values are those of :func:`changed`. ``before`` is the answer to the original question, if there is one.
    """
    if not changes:
        raise InputError(
            "no change is given",
            rule="at least one change is given",
            hint="add --change inter_node_bandwidth=100",
        )
    asked = [("", question)]
    for name, value in changes.items():
        after = changed(asked[-1][1], name, value)
        now = _present_value(after, name) if isinstance(value, str) and factor_of(value) is not None else None
        asked.append((_label(name, value) + (f" ({now:,})" if isinstance(now, int) else ""), after))
    known = [] if before is None else [before]
    answers = [*known, *searches.answers([each for _, each in asked[len(known) :]], progress)]
    steps = [_step(label, each, plan, answer) for (label, each), answer in zip(asked, answers, strict=True)]
    if steps[0].answered.estimate is None and steps[-1].answered.estimate is None:
        searches.result(steps[-1].answered.question)  # raises if the restrictions contradict themselves
    return WhatIf(plan=estimate_plan(question, plan), steps=tuple(steps))


def planned_first(question: Question, searches: Searches) -> Planned:
    """The question with the plan that changes are compared with. Raises ``InputError`` if nothing fits."""
    found = searches.answer(question)
    if found.estimate is None:
        raise InputError(
            f"there is no plan to change: {found.reason}",
            rule="a plan is changed",
            hint="ask for one that fits: `shardplan plan` says what would",
        )
    return found, found.estimate.plan


Planned = tuple[Answered, Plan]
"""A question with its answer, and its plan."""


def _step(label: str, question: Question, plan: Plan, answered: Answered) -> ChangeStep:
    try:
        same, why = estimate_plan(question, plan), None
    except ShardplanError as error:
        same, why = None, error.message
    if same is not None and not same.feasible:
        why = same.reason
    return ChangeStep(label=label, answered=answered, same_plan=same, same_plan_reason=why)


def _label(name: str, value: object) -> str:
    text = ",".join(str(part) for part in value) if isinstance(value, tuple) else str(value)
    kind: Any = KINDS.get(name)
    return f"{name.replace('_', ' ')} {with_unit(text, kind) if kind and isinstance(value, str) else text}"


KINDS: Final = {name: each.about.quantity[0] for name, each in described(Replaced).items() if each.about.quantity}


def changed(question: Question, name: str, value: Any) -> Question:
    """``question`` with one value changed. Raises ``InputError`` if there is no such value, or nothing changes.

    ``name`` is a value of the cluster (:class:`Overrides`; ``peak_flops.bf16`` for one peak), a field of the job or of
    its software, ``num_accelerators``, or ``cluster`` with a name, a file or a cluster. Values of the cluster are texts
    with their unit, or numbers in SI units. A number may be changed by a factor: ``2x``, ``+50%``, ``-20%``.
    """
    after = _changed(question, name, value)
    if _what_matters(after) == _what_matters(question):
        raise InputError(
            f"{_label(name, value)} changes nothing: it is so already",
            rule="a change changes something",
            hint=f"leave {name} out, or give it another value",
        )
    return after


def _changed(question: Question, name: str, value: Any) -> Question:
    job, cluster = question.job, question.cluster
    group, _, entry = name.partition(".")
    factor = factor_of(value) if isinstance(value, str) else None
    if factor is not None:
        value = _multiplied_value(question, name, value, factor)
    if group == PEAK:
        peaks = {entry: value} if entry else value
        return replace(question, cluster=override(cluster, {PEAK: peaks}))
    if name in OF_CLUSTER:
        return replace(question, cluster=override(cluster, cast(Overrides, {name: value})))
    if name in OF_JOB:
        return _with_job_value(question, name, value)
    if name in OF_SOFTWARE:
        return replace(question, job=replace(job, software=replace(job.software, **{name: value})))
    if name in SIZES:
        return replace(question, num_accelerators=value)
    if name == CLUSTER:
        other = value if isinstance(value, Cluster) else load_cluster(value)
        is_alike = other.accelerator.generation == cluster.accelerator.generation  # constants hold for one generation
        return replace(question, cluster=other, given_profile=question.given_profile if is_alike else None)
    if name in OF_PLAN:
        raise InputError(
            f"{name} is a field of the plan, and plans are searched again",
            rule="a change is of the cluster, of the job or of the number of accelerators",
            hint=f"fix it in the search: --fix {name}=VALUE",
        )
    hint = f"such as {', '.join((*OF_CLUSTER, 'precision', *SIZES[:1]))}"
    raise UnknownNameError("change", name[:60], CHANGEABLE, hint=hint)


def _with_job_value(question: Question, name: str, value: Any) -> Question:
    """The question with another value of the job; the models of a companion may be files."""
    if name != "companion":
        return replace(question, job=replace(question.job, **{name: value}))
    text, models = companions_of_job(value)
    return replace(question, job=replace(question.job, companion=cast(str, text)), given_companions=models)


_FIGURE: Final = r"(\d+(?:\.\d+)?)"
FACTOR: Final = re.compile(rf"x\s*{_FIGURE}|{_FIGURE}\s*x|([+-])\s*{_FIGURE}\s*%", re.ASCII | re.IGNORECASE)


def factor_of(text: str) -> float | None:
    """The factor in a relative change: ``2x``, ``x0.5``, ``+50%``, ``-20%``; None for other texts."""
    found = FACTOR.fullmatch(text.strip())
    if found is None:
        return None
    return 1 + float(found[3] + found[4]) / 100 if found[3] else float(found[1] or found[2])


def _multiplied_value(question: Question, name: str, text: str, factor: float) -> Any:
    """The value of ``name`` times ``factor``. Raises ``InputError`` if it has none, or must be whole and is not."""
    before = question.cluster.name if name == CLUSTER else _present_value(question, name)
    if isinstance(before, Mapping):
        return {entry: peak * factor for entry, peak in before.items()}
    if before is None or isinstance(before, bool) or not isinstance(before, int | float):
        raise InputError(
            f"--change {name} is {shown(text)}, a multiple, and {name} is {shown(before)}",
            rule="what is multiplied is a number that is known",
            hint=f"write the new value: --change {name}=VALUE",
        )
    after = before * factor
    if isinstance(before, float):
        return after
    if after != int(after) or after < 1:
        raise InputError(
            f"--change {name} is {shown(text)}; {before:,} times {factor:g} is {after:,.6g}",
            rule=f"{name} is a whole number, 1 or more",
            hint=f"write the new value: --change {name}={max(round(after), 1)}",
        )
    return int(after)


def _present_value(question: Question, name: str) -> Any:
    """The present value of ``name``, in SI units; None if it has none."""
    group, _, entry = name.partition(".")
    if group == PEAK:
        peaks = question.cluster.accelerator.peak_flops
        return peaks.get(entry) if entry else peaks
    if name in OF_CLUSTER:
        return value_now(question.cluster, name)
    if name in SIZES:
        return question.num_given
    return getattr(question.job, name) if name in OF_JOB else None


def _what_matters(question: Question) -> tuple[object, ...]:
    """Everything in a question that affects plans."""
    cluster = question.cluster
    accelerator = replace(cluster.accelerator, sources={}, marks={})
    bare = replace(cluster, accelerator=accelerator, sources={}, marks={}, assumptions=())
    return bare, question.job, question.num_accelerators


def check_named_once(names: Sequence[str]) -> None:
    """Refuses a change that is named twice. Raises ``InputError``."""
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            f"--change names {shown(twice)} twice",
            rule="a change is named once",
            hint=f"give {twice} one value",
        )


def change_of(name: str, text: str) -> tuple[str, Any]:
    """A change from text, its value read like the flag of the same name. Raises ``InputError``.

    A relative change (:func:`factor_of`) stays a text.
    """
    name = name if name in CHANGEABLE else field_meant(name) or name
    if factor_of(text) is not None:
        return name, text.strip()
    if name in OF_JOB and described(Job)[name].kind.base is not bool:
        return name, values_of(Job, {name: text})[name]
    if name in (*OF_JOB, *OF_SOFTWARE):  # switches are on or off
        return assigned(Job if name in OF_JOB else Software, name, text)
    if name in SIZES:
        return name, whole(text, "--change gpus", most=MAX_NUM_ACCELERATORS)
    if name == PEAK:
        return name, named_once("--change peak_flops", text.split(","))
    return name, whole(text, "--change node_size", most=MAX_NUM_ACCELERATORS) if name == "node_size" else text
