"""The answer of ``sensitivity``: a tornado in characters, and what the elasticities sum to."""

from __future__ import annotations

from collections.abc import Sequence

from shardplan.cli.layout import Column, Page
from shardplan.cli.show.answer import show_plan, show_question
from shardplan.cli.show.decisions.columns import NONE, centred_bar, show_written
from shardplan.decisions.searching import Answered
from shardplan.decisions.sensitivity import MATTERS, Parameter, Sensitivity, SensitivityPoint
from shardplan.units import format_bytes, format_rate, format_time


def show_sensitivity(page: Page, found: Sensitivity, given: Sequence[str], written: Sequence[str]) -> None:
    """The whole answer."""
    show_question(page, found.base.question, given)
    page.console.print()
    if found.base.fastest is None or found.base.estimate is None:
        page.labelled("Too big", f"{(found.base.reason or 'nothing fits').capitalize()}.", style="bold red")
        return
    page.labelled("Pays", _verdict(found), style="bold green")
    page.labelled("Step", f"{format_time(found.base.fastest.step_time)}: the fastest plan")
    show_plan(page, found.base.estimate, "Plan")
    factor = f"{found.factor:g}"
    page.heading("Elasticity of the best step time", "bar: % of step time per % of the parameter")
    page.table(_columns(page, found.points, factor))
    page.heading("How to read it")
    page.line(
        f"Every parameter is divided and multiplied by {factor}, and the fastest plan is searched again. An elasticity "
        "of -0.4 means: one per cent more makes the best step 0.4 % shorter."
    )
    page.line(f"Elasticities of the rates sum to {found.sum_of_rates:.2f}; -1 if nothing else took time.")
    show_written(page, written)


def _verdict(found: Sensitivity) -> str:
    """The parameter that matters most, and those that do not matter."""
    first = found.points[0]
    elasticity = "nothing fits with less" if first.elasticity is None else f"elasticity {first.elasticity:+.2f}"
    idle = [each.parameter.label for each in found.points if each.size < MATTERS]
    none = f" No difference: {', '.join(idle)}." if idle else ""
    return f"{first.parameter.label} ({elasticity}).{none}"


def _columns(page: Page, points: Sequence[SensitivityPoint], factor: str) -> list[Column]:
    return [
        Column(title="parameter", cells=[each.parameter.label for each in points], is_text=True),
        Column(title="now", cells=[_value(each.parameter) for each in points], rank=1),
        Column(title=f"/ {factor}", cells=[_time(each.lower) for each in points]),
        Column(title=f"x {factor}", cells=[_time(each.upper) for each in points]),
        Column(title="elasticity", cells=[_elasticity(each) for each in points]),
        Column(
            title="", cells=[centred_bar(page, each.elasticity or 0.0, 10) for each in points], is_text=True, rank=1
        ),
    ]


def _elasticity(point: SensitivityPoint) -> str:
    return NONE if point.elasticity is None else f"{point.elasticity:+.3f}"


def _time(answered: Answered) -> str:
    return "too big" if answered.fastest is None else format_time(answered.fastest.step_time)


def _value(parameter: Parameter) -> str:
    if parameter.unit == "s":
        return format_time(parameter.value)
    if parameter.unit == "bytes":
        return format_bytes(parameter.value)
    return format_rate(parameter.value, "FLOP" if parameter.unit == "FLOP/s" else "B")
