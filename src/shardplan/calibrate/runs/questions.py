"""Measured runs posed as questions: settled, held against the rules of validity, and joined where they ask the same."""

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
    """A measured run as shardplan sees it."""

    run: MeasuredRun
    question: Question
    plan: Plan
    assumed: tuple[str, ...]
    """What the run does not state and was taken for granted as text."""
    taken: tuple[str, ...]
    """Of this, names and words of the row that are taken as others."""
    ignored: tuple[str, ...]
    """What it states and the estimate has no place for."""
    unknown: tuple[str, ...]
    """Of these what shardplan does not know: columns, options and values, a misspelt one among them."""
    metered_rank: int | None = None
    """Pipeline rank whose peak memory was measured (-1: the last); None: that of the fullest."""


def question_of(run: MeasuredRun) -> AskedRun:
    """The question that ``run`` answers. Raises ``ShardplanError`` where it cannot be predicted."""
    (asked,) = questions_of((run,))
    if isinstance(asked, ShardplanError):
        raise asked
    return asked


def questions_of(runs: Iterable[MeasuredRun]) -> list[AskedRun | ShardplanError]:
    """The question that each run answers, or why it cannot be predicted. Runs of one question share the object."""
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
        asked.update(zip(alike, _posed([*alike.values()]), strict=True))
    return [asked[place] for place in range(len(asked))]


def _posed(drafts: Sequence[Draft]) -> Iterator[AskedRun | ShardplanError]:
    """Runs of one question, which is put once."""
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
            choices, run = draft.choices, _timed(draft.run, draft.choices, question)
            said = {name: tuple(getattr(choices, name)) for name in ("assumed", "taken", "ignored", "unknown")}
            yield AskedRun(run=run, question=question, plan=draft.plan, metered_rank=choices.metered_rank, **said)
        except ShardplanError as error:
            yield error


def _check_dp(run: MeasuredRun, plan: Plan) -> None:
    """The data-parallel degree that is stated is what the others leave, with context-parallel ranks or without.

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


def _timed(run: MeasuredRun, choices: Choices, question: Question) -> MeasuredRun:
    """The run with the step time that follows from its rate of FLOP: the model's, without recomputation."""
    if run.step_time is not None or run.flop_rate is None:
        return run
    flops = step_flops(question)
    choices.assumed.append("step time from TFLOP/s, of the model's FLOP as counted here (docs/output.md)")
    return replace(run, step_time=flops / (run.num_accelerators * run.flop_rate))
