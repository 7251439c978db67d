"""Measured runs as questions: decided, checked against the rules of validity, and shared if they ask the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from shardplan.base.errors import InputError, ShardplanError
from shardplan.base.fields import dataclass
from shardplan.calibrate.runs.choices import Choices
from shardplan.calibrate.runs.drafts import Draft, draft_of
from shardplan.calibrate.runs.rows import MeasuredRun
from shardplan.estimation.charge import step_flops
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import Setting
from shardplan.physics.validity import broken_rules


@dataclass(frozen=True, kw_only=True)
class AskedRun:
    """A measured run as shardplan understands it."""

    run: MeasuredRun
    question: Question
    plan: Plan
    assumed: tuple[str, ...]
    """Assumptions for what the run does not state, as text."""
    taken: tuple[str, ...]
    """Assumptions about names and words of the row that were understood as others."""
    ignored: tuple[str, ...]
    """Stated values without a place in the estimate."""
    unknown: tuple[str, ...]
    """Ignored columns, options and values that shardplan does not know, possibly misspelt."""
    metered_rank: int | None = None
    """Pipeline rank whose peak memory was measured (-1: the last); None for that of the fullest."""


def question_of(run: MeasuredRun) -> AskedRun:
    """The question of ``run``. Raises ``ShardplanError`` if it cannot be predicted."""
    (asked,) = questions_of((run,))
    if isinstance(asked, ShardplanError):
        raise asked
    return asked


def questions_of(runs: Iterable[MeasuredRun]) -> list[AskedRun | ShardplanError]:
    """The question of each run, or why it cannot be predicted. Runs with equal questions share the object."""
    asked: dict[int, AskedRun | ShardplanError] = {}
    groups: dict[tuple[object, ...], dict[int, Draft]] = {}
    for place, run in enumerate(runs):
        try:
            one = draft_of(run)
        except ShardplanError as error:
            asked[place] = error
        else:  # models and clusters are objects that rows share
            key = (id(one.model), id(one.cluster), one.run.num_accelerators, one.job)
            groups.setdefault(key, {})[place] = one
    for alike in groups.values():
        asked.update(zip(alike, _asked_runs([*alike.values()]), strict=True))
    return [asked[place] for place in range(len(asked))]


def _asked_runs(drafts: Sequence[Draft]) -> Iterator[AskedRun | ShardplanError]:
    """Runs of one question, which is made once."""
    first, n = drafts[0], drafts[0].run.num_accelerators
    setting = Setting.of(first.model, first.cluster, n, first.job)
    broken = broken_rules(setting, [each.plan for each in drafts])
    question: Question | None = None
    for draft, rule in zip(drafts, broken, strict=True):
        try:
            if rule is not None:
                raise rule.broken_by(draft.plan, setting)
            _check_dp(draft.run, draft.plan)
            question = question or Question(model=first.model, cluster=first.cluster, num_accelerators=n, job=first.job)
            choices, run = draft.choices, _with_step_time(draft.run, draft.choices, question)
            said = {name: tuple(getattr(choices, name)) for name in ("assumed", "taken", "ignored", "unknown")}
            yield AskedRun(run=run, question=question, plan=draft.plan, metered_rank=choices.metered_rank, **said)
        except ShardplanError as error:
            yield error


def _check_dp(run: MeasuredRun, plan: Plan) -> None:
    """Checks that a stated data-parallel degree follows from the others, with context-parallel ranks or without.

    Raises ``InputError``.
    """
    dp = plan.dp(run.num_accelerators)
    if run.dp not in (None, dp, dp * plan.cp):
        raise InputError(
            f"dp is {run.dp}; {run.num_accelerators} accelerators with tp {plan.tp}, cp {plan.cp} and pp {plan.pp} "
            f"leave dp {dp}",
            rule="dp x tp x cp x pp is the number of accelerators",
            hint="correct dp, num_accelerators, tp, cp or pp, or leave dp out",
        )


def _with_step_time(run: MeasuredRun, choices: Choices, question: Question) -> MeasuredRun:
    """The run with the step time that follows from its rate of model FLOP, without recomputation."""
    if run.step_time is not None or run.flop_rate is None:
        return run
    flops = step_flops(question)
    choices.assumed.append("step time from TFLOP/s, of the model's FLOP as counted here (docs/output.md)")
    return replace(run, step_time=flops / (run.num_accelerators * run.flop_rate))
