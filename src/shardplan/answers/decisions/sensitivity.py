"""The answer of ``sensitivity``: how the best step time follows each hardware parameter, and which of them pays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shardplan.answers.document import AnswerDocument, Bar, Column, Line, Part, RowTable
from shardplan.answers.plans import asked_record, plan_line, plan_text, question_lines
from shardplan.base.units import format_bytes, format_rate, format_time
from shardplan.decide.searching import Answered
from shardplan.decide.sensitivity import MATTERS, Parameter, Sensitivity, SensitivityPoint
from shardplan.estimation.estimate import Estimate
from shardplan.plotting.chart import PALETTE, Axis, Chart, Panel, Series
from shardplan.reports.plan_file import estimate_record
from shardplan.reports.texts.answer import signed_percent


def columns(found: Sensitivity) -> list[Column]:
    """Columns of the parameters; those that are shown name the factor."""
    factor, base = f"{found.factor:g}", found.base
    return [
        Column("name", None, lambda point: point.parameter.name),
        Column("label", "parameter", lambda point: point.parameter.label, is_text=True),
        Column("unit", None, lambda point: point.parameter.unit),
        Column("value", None, lambda point: point.parameter.value),
        Column("", "now", lambda point: point.parameter, value_text, rank=1),
        Column("", f"/ {factor}", lambda point: point.lower, best_text),
        Column("", f"x {factor}", lambda point: point.upper, best_text),
        Column("elasticity", "elasticity", lambda point: point.elasticity, "{:+.3f}".format),
        Column("", "", lambda point: point.elasticity, bar=Bar(10, is_centred=True), rank=1),
        Column("best_step_time_s", None, lambda _: best(base)),
        Column("lower_best_step_time_s", None, lambda point: best(point.lower)),
        Column("upper_best_step_time_s", None, lambda point: best(point.upper)),
        Column("lower_reason", None, lambda point: point.lower.reason),
        Column("lower_plan", None, lambda point: taken(point.lower)),
        Column("plan", None, lambda _: taken(base)),
        Column("", f"change at / {factor}", lambda point: change(point.lower, base), signed_percent, is_wide=True),
        Column("", f"change at x {factor}", lambda point: change(point.upper, base), signed_percent, is_wide=True),
        Column("upper_plan", f"plan at x {factor}", lambda point: taken(point.upper), is_text=True, is_wide=True),
    ]


def best(answered: Answered) -> float | None:
    """The best step time. [s]"""
    return None if answered.fastest is None else answered.fastest.step_time


def best_text(answered: Answered) -> str:
    """The best step time as text."""
    return "too big" if answered.fastest is None else format_time(answered.fastest.step_time)


def change(answered: Answered, base: Answered) -> float | None:
    """By what share the best step is longer than that of ``base``; None where there is none."""
    time, before = best(answered), best(base)
    return None if time is None or before is None else time / before - 1


def taken(answered: Answered) -> str | None:
    """The plan whose step time is the best one, as text."""
    return None if answered.fastest is None else plan_text(answered.fastest)


def value_text(parameter: Parameter) -> str:
    """The value of a parameter with its unit."""
    if parameter.unit == "s":
        return format_time(parameter.value)
    if parameter.unit == "bytes":
        return format_bytes(parameter.value)
    return format_rate(parameter.value, "FLOP" if parameter.unit == "FLOP/s" else "B")


def sensitivity_document(found: Sensitivity, given: Sequence[str] = ()) -> AnswerDocument:
    """The whole answer. ``given``: what the user set in place of usual values."""
    table, plan = RowTable(found.points, columns(found)), found.base.fastest
    answer = AnswerDocument(
        name="sensitivity",
        head=question_lines(found.base.question, given),
        verdict=[Line(f"{(found.base.reason or 'nothing fits').capitalize()}.", "Too big", "bad")],
        assumptions=found.assumptions,
        table=table,
        record=lambda: {
            **asked_record(found.base.question, found.assumptions),
            "factor": found.factor,
            "best_step_time_s": best(found.base),
            "sum_of_rates": found.sum_of_rates,
            "reason": found.base.reason,
            "parameters": table,
            "plan": None if plan is None else estimate_record(plan),
        },
        chart=lambda: sensitivity_chart(found),
        is_yes=plan is not None,
    )
    if plan is None:
        return answer
    step = f"{format_time(plan.step_time)}: the fastest plan{_other(found.base.estimate, plan)}"
    verdict = [Line(most_important(found), "Pays", "good"), Line(step, "Step", "strong"), plan_line(plan)]
    how = (
        f"Every parameter is divided and multiplied by {found.factor:g}, and the fastest plan is searched again. An "
        "elasticity of -0.4 means: one per cent more makes the best step 0.4 % shorter."
    )
    total = f"Elasticities of the rates sum to {found.sum_of_rates:.2f}; it would be -1 if only these rates took time."
    parts = [
        Part("Elasticity of the best step time", [table], "bar: % of step time per % of the parameter"),
        Part("How to read it", [Line(how), Line(total)]),
    ]
    return replace(answer, verdict=verdict, parts=parts)


def _other(taken: Estimate | None, fastest: Estimate) -> str:
    """The step time of the plan to take, where that is another."""
    if taken is None or taken.plan == fastest.plan:
        return ""
    return f"; the recommended plan has {format_time(taken.step_time)}"


def most_important(found: Sensitivity) -> str:
    """The parameter that matters most, and those that do not matter."""
    first = found.points[0]
    elasticity = "nothing fits with less" if first.elasticity is None else f"elasticity {first.elasticity:+.2f}"
    idle = [each.parameter.label for each in found.points if each.size < MATTERS]
    none = f" No difference: {', '.join(idle)}." if idle else ""
    return f"{first.parameter.label} ({elasticity}).{none}"


def sensitivity_chart(found: Sensitivity) -> Chart:
    """The tornado: the best step time with every parameter worse and better; and the elasticities."""
    question, points = found.base.question, found.points
    lower = [100 * (change(each.lower, found.base) or 0.0) for each in points]  # none is drawn where nothing fits
    upper = [100 * (change(each.upper, found.base) or 0.0) for each in points]
    tornado = (
        _bars(points, f"divided by {found.factor:g}", lower, PALETTE[3]),
        _bars(points, f"multiplied by {found.factor:g}", upper, PALETTE[2]),
    )
    elastic = _bars(points, "elasticity", [each.elasticity or 0.0 for each in points], PALETTE[0])
    return Chart(
        name="sensitivity",
        title=f"{question.model.name} on {question.num_accelerators:,} accelerators ({question.cluster.name}): "
        "which hardware parameter pays",
        panels=(
            _panel("change of the best step time", "step time [%]", *tornado),
            _panel("elasticity", "% of step time per %", elastic),
        ),
        num_columns=2,
        note="The fastest plan is searched again at every point. A bar is missing where nothing fits. Predicted by "
        "shardplan.",
        panel_size=(600, 380),
    )


def _bars(points: Sequence[SensitivityPoint], name: str, values: Sequence[float], colour: str) -> Series:
    labels = [each.parameter.label for each in points]
    return Series(name=name, x=labels, y=values, starts=[0.0] * len(labels), kind="bars", colour=colour)


def _panel(title: str, axis: str, *series: Series) -> Panel:
    names = Axis(title="", scale="names")
    return Panel(title=title, x=names, y=Axis(title=axis), series=series, is_horizontal=True)
