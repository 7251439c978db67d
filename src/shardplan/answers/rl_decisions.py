"""The answers about an RL step of ``scale``, ``whatif``, ``sensitivity``, ``budget``, and of ``audit`` for its file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from shardplan.answers.decisions.scale import pays_line
from shardplan.answers.document import AnswerDocument, Bar, Block, Bullets, Column, Line, Part, RowTable
from shardplan.answers.plans import asked_record, rounded, taken_lines, whole_percent
from shardplan.answers.rl import phase_time, phases_chart, rl_document, rl_head, split, task_record, title
from shardplan.base.records import plain
from shardplan.base.units import format_bytes, format_time, short_count
from shardplan.decide.goodput import DAY
from shardplan.plotting.chart import PALETTE, Axis, Chart, Panel, Series
from shardplan.reports.texts.answer import money_text, signed_percent
from shardplan.rl.asked import AskedRl
from shardplan.rl.decisions import (
    RlBudget,
    RlChanges,
    RlDecision,
    RlElasticities,
    RlRun,
    RlSizes,
    RlVariant,
    StepParameter,
)
from shardplan.rl.launches.audit import RlAudit
from shardplan.rl.observed import MeasuredPart
from shardplan.rl.question import inputs_of
from shardplan.rl.search import RlPlan


def rl_decision_document(asked: AskedRl, decision: RlDecision, given: Sequence[str] = ()) -> AnswerDocument:
    """The whole answer. ``given``: what the user set in place of usual values."""
    shown = shown_decision(decision)
    return replace(
        shown,
        head=rl_head(asked.task, given),
        assumptions=asked.assumptions,
        record=lambda: {
            **asked_record(asked.task.question, asked.assumptions),
            "rl": task_record(asked.task),
            "inputs": inputs_of(asked.task),
            **shown.record(),
        },
    )


def shown_decision(decision: RlDecision) -> AnswerDocument:
    """What a decision says."""
    if isinstance(decision, RlSizes):
        return _sizes(decision)
    if isinstance(decision, RlChanges):
        return _changes(decision)
    return _elasticities(decision) if isinstance(decision, RlElasticities) else _budget(decision)


def of_best(value: Callable[[RlPlan], Any]) -> Callable[[RlVariant], Any]:
    """A value of the best plan of a variant; None where it has none."""
    return lambda variant: None if variant.best is None else value(variant.best)


STEP: Final = (
    Column("variant", "", lambda variant: variant.label, is_text=True),
    Column("placement", "placement", of_best(lambda plan: plan.placement), title, is_text=True),
    Column("num_train", None, of_best(lambda plan: plan.num_train)),
    Column("num_rollout", None, of_best(lambda plan: plan.num_rollout)),
    Column("", "accelerators", of_best(split), is_text=True),
    Column("step_time_s", "step", of_best(lambda plan: plan.step_time), format_time),
    Column("change", "change", lambda variant: variant.change, lambda change: signed_percent(change, 0)),
    Column("generation_s", "generation", of_best(phase_time("generation")), format_time, rank=2),
    Column("training_s", "training", of_best(phase_time("update")), format_time, rank=2),
    Column("tokens_per_s", "tokens/s", of_best(lambda plan: plan.tokens_per_second), short_count, rank=1),
)
"""Columns of steps that differ in one respect: the best plan of each."""
SIZES: Final = (
    *STEP,
    Column("efficiency", "efficiency", lambda variant: variant.efficiency, whole_percent),
    Column("marginal_efficiency", "marginal", lambda variant: variant.marginal, whole_percent),
)
RUNS: Final = (
    Column("num_accelerators", "size", lambda run: run.num_accelerators, "{:,}".format),
    Column("placement", "placement", lambda run: run.plan.placement, title, is_text=True),
    Column("", "accelerators", lambda run: split(run.plan), is_text=True),
    Column("step_time_s", "step", lambda run: run.plan.step_time, format_time),
    Column("days", "time", lambda run: run.days, lambda days: format_time(days * DAY)),
    Column("money_usd", "USD", lambda run: run.money, rounded),
)
PARAMETERS: Final = (
    Column("parameter", "parameter", lambda each: each.name, is_text=True),
    Column("elasticity", "elasticity", lambda each: each.elasticity, "{:+.2f}".format),
    Column("", "", lambda each: each.elasticity, bar=Bar(12, is_centred=True)),
)


def _sizes(found: RlSizes) -> AnswerDocument:
    table, best = RowTable(found.variants, SIZES), found.pays_up_to
    smallest = found.gains[0][0] if found.gains else 0
    stops = any(gain is not None and gain < found.least_gain for _, gain in found.gains)
    note = "efficiency: tokens a second of an accelerator, against the smallest; marginal: of each added one"
    return AnswerDocument(
        name="rl-scale",
        verdict=[pays_line(best, smallest, found.least_gain, stops=stops)],
        parts=[Part("Sizes", [table], note)],
        record=lambda: {"least_gain": found.least_gain, "pays_up_to": best, "sizes": table},
        table=table,
        chart=_phases(found.variants, "sizes"),
        is_yes=best is not None,
    )


def _changes(found: RlChanges) -> AnswerDocument:
    first, last = found.variants[0].best, found.variants[-1]
    if last.best is None:
        line = Line("After the changes no placement has a plan that fits.", "Too big", "bad")
    elif first is None or last.change is None:
        line = Line(
            f"Nothing fits as it was; after the changes a step takes {format_time(last.best.step_time)}.", "Step"
        )
    else:
        before, after = format_time(first.step_time), format_time(last.best.step_time)
        more = f"{100 * abs(last.change):.0f} % {'longer' if last.change > 0 else 'shorter'}"
        line = Line(f"{before} a step becomes {after}, {more}.", "Change", "good")
    table = RowTable(found.variants, STEP)
    return AnswerDocument(
        name="rl-whatif",
        verdict=[line],
        parts=[Part("After each change", [table], "one after the other; change: of the step, against as it was")],
        record=lambda: {"changes": table},
        table=table,
        chart=_phases(found.variants, "changes"),
        is_yes=last.best is not None,
    )


def _phases(variants: Sequence[RlVariant], what: str) -> Callable[[], Chart] | None:
    plans = [(each.label, each.best) for each in variants if each.best is not None]
    if not plans:
        return None
    name = variants[0].result.task.question.model.name
    return lambda: phases_chart(plans, f"{name}: an RL step by {what}")


def _elasticities(found: RlElasticities) -> AnswerDocument:
    table = RowTable(found.parameters, PARAMETERS)
    known = [(each.elasticity, each.name) for each in found.parameters if each.elasticity is not None]
    least, name = min(known, default=(0.0, ""))
    if least < 0:
        text = f"{name.capitalize()} most: one per cent more makes the step {abs(least):.2f} % shorter."
        line = Line(text, "Pays", "good")
    else:
        line = Line("More of nothing here makes the step shorter.", "Pays")
    return AnswerDocument(
        name="rl-sensitivity",
        verdict=[line],
        parts=[Part("What the step follows", [table], "-0.4: one per cent more makes the step 0.4 % shorter")],
        record=lambda: {"factor": found.factor, "sensitivity": table},
        table=table,
        chart=lambda: _elasticity_chart(found.parameters),
    )


def _elasticity_chart(parameters: Sequence[StepParameter]) -> Chart:
    """A bar for each parameter."""
    known = [each for each in parameters if each.elasticity is not None]
    bars = Series(
        name="elasticity",
        x=[each.name for each in known],
        y=[each.elasticity or 0.0 for each in known],
        kind="bars",
        colour=PALETTE[0],
    )
    panel = Panel(
        title="what the step follows",
        x=Axis(title="", scale="names"),
        y=Axis(title="per cent of the step for one per cent more"),
        series=(bars,),
        is_horizontal=True,
    )
    return Chart(
        name="rl-sensitivity",
        title="How an RL step follows hardware and answers",
        panels=(panel,),
        num_columns=1,
        note="Each parameter is made worse and better, and both pools are planned again. Predicted by shardplan.",
        panel_size=(820, 420),
    )


def _budget(found: RlBudget) -> AnswerDocument:
    table, run = RowTable(found.runs, RUNS), found.nearest
    limits = {"steps": found.limits.steps, "days": found.limits.days, "money_usd": found.limits.money}
    return AnswerDocument(
        name="rl-budget",
        verdict=_run_lines(found, run),
        parts=[Part("Sizes that were looked at", [table], f"{found.limits.steps or 0:,} steps each")],
        record=lambda: {
            "run": {"limits": limits, "best": run_record(found.best), "nearest": run_record(run)},
            "runs": table,
        },
        table=table,
        chart=_phases([each.variant for each in found.runs], "sizes"),
        is_yes=found.best is not None,
    )


def run_record(run: RlRun | None) -> dict[str, Any] | None:
    """A run as an entry of a record."""
    return None if run is None else {each.key: each.value(run) for each in RUNS if each.key}


def _run_lines(found: RlBudget, run: RlRun | None) -> list[Block]:
    """The run that meets the limits, or what comes nearest."""
    if run is None:
        return [Line("No size has a plan that fits.", "Too big", "bad")]
    cost = "" if run.money is None else f" for {money_text(run.money)}"
    text = f"{run.steps:,} steps on {run.num_accelerators:,} accelerators: {format_time(run.wall_time)}{cost}"
    if found.best is None:
        return [Line(f"No size that was looked at is within the limits. Nearest: {text}.", "Run", "bad")]
    several = len(found.runs) + len(found.without_plan) > 1
    of_time = "These are the fewest that are done in time." if several and found.limits.days is not None else ""
    of_money = "No other size is done sooner for the money." if several and found.limits.days is None else ""
    return [Line(" ".join(filter(None, (f"{text}.", of_time, of_money))), "Run", "good")]


FACTS: Final = (
    Column("key", "key", lambda row: row[0], is_text=True),
    Column("value", "value", lambda row: row[1].value, str, is_text=True),
    Column("origin", None, lambda row: row[1].origin),
    Column("why", "where", lambda row: row[1].why, is_text=True),
)


def rl_launch_document(
    found: RlAudit, observed: Sequence[MeasuredPart] = (), *, is_whole: bool = False
) -> AnswerDocument:
    """The step of ``shardplan rl`` with the file's own plans, and what the file says. ``is_whole``: defaults too."""
    step = rl_document(found.result, (), found.assumptions, observed=observed)
    facts, plan = found.launch.facts, found.plan
    rows = [row for row in facts.facts.items() if row[1].value is not None]
    said = [row for row in rows if is_whole or row[1].origin != "assumed"]
    parts = [*step.parts, Part("What the file says", [RowTable(said, FACTS)])]
    if facts.not_understood:
        parts.append(Part("Not priced", [Bullets(facts.not_understood)]))
    if found.notes:
        parts.append(Part("To know", [Bullets(found.notes)]))
    verdict = [*step.verdict, *_taken_lines(found)]
    if not found.fits:
        over = format_bytes(plan.trainer_memory - plan.usable_memory)
        verdict.append(Line(f"Trainer and engine need {over} more than an accelerator has.", "Memory", "bad"))
    return replace(
        step,
        name="rl-launch",
        head=[Line(f"{facts.file}: {found.launch.title}", tone="strong"), *step.head],
        verdict=verdict,
        parts=parts,
        record=lambda: {
            **step.record(),
            "framework": found.launch.title,
            "file": facts.file,
            "facts": RowTable(rows, FACTS),
            "not_understood": list(facts.not_understood),
            "notes": list(found.notes),
            "taken": plain(found.taken),
            "range_s": None if found.range is None else list(found.range),
            "fits": found.fits,
        },
        is_yes=found.fits,
    )


def _taken_lines(found: RlAudit) -> list[Line]:
    """What was taken for what the file leaves open, and the step with other answers."""
    if found.range is None:
        return taken_lines(found.taken)
    least, most = map(format_time, found.range)
    text = f"{least} to {most} a step with means of a fifth to four fifths of the longest answer."
    return [*taken_lines(found.taken), Line(text, "", "doubt")]
