"""The decisions of the page: each is a function of the question and of the fields of its form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from shardplan.decisions import budget as budgets
from shardplan.decisions import pareto as fronts
from shardplan.decisions import scale as scales
from shardplan.decisions import sensitivity as sensitivities
from shardplan.decisions.operations import Operations
from shardplan.decisions.searching import Answered, Progress, Searches
from shardplan.errors import InputError
from shardplan.estimation.estimate import Estimate
from shardplan.inputs.readers.typed import number, values_of, whole
from shardplan.planner.stopping import Stop
from shardplan.plotting.budget import budget_chart
from shardplan.plotting.decisions.pareto import pareto_chart
from shardplan.plotting.decisions.scale import scale_chart
from shardplan.plotting.decisions.sensitivity import sensitivity_chart
from shardplan.reports.decisions.budget import budget_record
from shardplan.reports.decisions.pareto import pareto_record
from shardplan.reports.decisions.scale import scale_record
from shardplan.reports.decisions.sensitivity import sensitivity_record
from shardplan.reports.texts.answer import percent
from shardplan.reports.texts.plan import plan_words
from shardplan.units import format_bytes, format_count, format_time
from shardplan.web.figures.decide import varied_figure
from shardplan.web.figures.panels import panel_figures
from shardplan.web.state import MOST_ACCELERATORS, FieldError, PageQuestion, about_field, plan_code

Values = Mapping[str, str]
DECISIONS: Final = {
    "scale": "How many accelerators pay",
    "vary": "Other sequences, batches or networks",
    "pareto": "Time, memory and robustness",
    "sensitivity": "Which hardware parameter pays",
    "budget": "Budget of a whole run",
}
VARIED: Final = {
    "sequence_length": "Sequence length",
    "global_batch_size": "Global batch size",
    "set.inter_node_bandwidth": "Bandwidth between nodes",
    "set.intra_node_bandwidth": "Bandwidth inside a node",
    "precision": "Precision",
}
OPERATIONS: Final = {
    "failure_rate": "Failures per 1,000 accelerators and day",
    "checkpoint_bandwidth": "Bandwidth of checkpoints",
    "spares": "Spare nodes",
    "pue": "Power usage effectiveness",
}
MOST_VALUES: Final = 16
ROWS: Final = 40
"""Of the table of a front."""


def _searches(question: PageQuestion, put: Any, stop: Stop) -> Searches:
    return Searches(stack=put.stack, limit=question.restrictions(), stop=stop)


def _link(question: PageQuestion, estimate: Estimate | None, **changed: Any) -> str:
    """The step of a plan as an address."""
    return "" if estimate is None else f"/step?{question.with_values(show=plan_code(estimate.plan), **changed).query()}"


def _plan(estimate: Estimate | None, reason: str | None = None) -> str:
    return f"no plan: {reason}" if estimate is None else ", ".join(plan_words(estimate))


def _row(cells: list[str], text: str, link: str) -> dict[str, Any]:
    return {"cells": cells, "text": text, "link": link}


def scale(question: PageQuestion, values: Values, stop: Stop, progress: Progress) -> dict[str, Any]:
    """The job on several sizes."""
    with about_field("sizes"):
        sizes = scales.checked_sizes(
            [whole(each, "sizes", most=MOST_ACCELERATORS) for each in _listed(values["sizes"])]
        )
    with about_field("least_gain"):
        least = number(values["least_gain"], "least gain", most=100.0) / 100
    put = question.with_values(gpus=str(sizes[-1])).put()
    found = scales.scaling(put.question, sizes, _searches(question, put, stop), least_gain=least, progress=progress)
    rows = [
        _row(
            [
                f"{point.num_accelerators:,}",
                *_times(point.answered.estimate),
                _rate(point.answered),
                _share(point.efficiency),
                _share(point.marginal_efficiency),
            ],
            _plan(point.answered.estimate, point.answered.reason),
            _link(question, point.answered.estimate, gpus=str(point.num_accelerators)),
        )
        for point in found.points
    ]
    return {
        "verdict": _pays(found),
        "note": f"One job at a global batch of {put.question.job.global_batch_size:,} sequences, planned anew at every "
        "size.",
        "figures": panel_figures(scale_chart(scale_record(found))) if found.pays_up_to is not None else [],
        "titles": ["accelerators", "step", "band", "tokens/s", "efficiency", "of an added one"],
        "rows": rows,
        "assumptions": put.assumptions,
    }


def _pays(found: Any) -> str:
    if found.pays_up_to is None:
        return "No size has a plan that fits"
    if found.stops:
        return f"More accelerators pay up to {found.pays_up_to:,}"
    return f"More accelerators pay at every size up to {found.pays_up_to:,}"


def _listed(text: str) -> list[str]:
    """Values between commas or spaces; a number with a comma for thousands is none. Raises InputError."""
    found = [each for each in text.replace(",", " ").replace(";", " ").split() if each]
    if not 1 <= len(found) <= MOST_VALUES:
        raise InputError(
            f"{len(found)} values are given", rule=f"1 to {MOST_VALUES} values are compared", hint="write 64,128,256"
        )
    return found


def _times(estimate: Estimate | None) -> list[str]:
    if estimate is None:
        return ["-", "-"]
    return [
        format_time(estimate.step_time),
        f"{format_time(estimate.step_time_p10)} to {format_time(estimate.step_time_p90)}",
    ]


def _rate(answered: Answered) -> str:
    rate = answered.tokens_per_second
    return "-" if rate is None else format_count(round(rate))


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def vary(question: PageQuestion, values: Values, stop: Stop, progress: Progress) -> dict[str, Any]:
    """The question with one field at several values."""
    name = values["over"] if values["over"] in VARIED else "sequence_length"
    with about_field("values"):
        given = values["values"].split(",") if name.startswith("set.") else _listed(values["values"])
    texts = [each.strip() for each in given if each.strip()][:MOST_VALUES]
    answers: list[tuple[str, PageQuestion, Answered]] = []
    for place, text in enumerate(texts):
        progress(place, len(texts))
        asked = _with(question, name, text)
        try:
            put = asked.put()
        except FieldError as error:
            raise FieldError(error, "values") from None
        answers.append((text, asked, _searches(question, put, stop).answer(put.question)))
    rows = [
        _row(
            [text, *_times(each.estimate), _rate(each), "-" if each.estimate is None else percent(each.estimate.mfu)],
            _plan(each.estimate, each.reason),
            _link(asked, each.estimate),
        )
        for text, asked, each in answers
    ]
    best = max((each.tokens_per_second or 0.0, text) for text, _, each in answers)
    word = VARIED[name].lower()
    return {
        "verdict": f"Most tokens per second at {word} {best[1]}" if best[0] else "Nothing fits at any of these values",
        "note": "Everything else stays as the question has it; the plan is sought anew at every value.",
        "figures": varied_figure(word, [(text, each) for text, _, each in answers]) if best[0] else [],
        "titles": [word, "step", "band", "tokens/s", "MFU"],
        "rows": rows,
        "assumptions": (),
    }


def _with(question: PageQuestion, name: str, text: str) -> PageQuestion:
    if name.startswith("set."):
        return question.with_values(sets={**question.sets, name.removeprefix("set."): text})
    return question.with_values(job={**question.job, name: text})


def pareto(question: PageQuestion, _values: Values, stop: Stop, _progress: Progress) -> dict[str, Any]:
    """Plans that no other is better than in every respect."""
    put = question.put()
    front = fronts.pareto_front(put.question, _searches(question, put, stop))
    record = pareto_record(front)
    figures = panel_figures(pareto_chart(record))
    for each in figures:
        each["figure"]["data"][0] |= {
            "text": [point["plan_text"] for point in record["points"]],
            "hovertemplate": "%{text}<extra></extra>",
        }
    rows = [
        _row(
            [
                format_time(point.estimate.step_time),
                format_bytes(point.headroom_bytes),
                f"+{100 * (point.pessimistic_time / point.estimate.step_time - 1):.0f} %",
            ],
            _plan(point.estimate),
            _link(question, point.estimate),
        )
        for point in _spread(front.points)
    ]
    return {
        "verdict": f"{len(front.points):,} of {front.num_plans_feasible:,} plans that fit are best in some respect",
        "note": "No plan is better than one of these in step time, free memory and step time where things are worse.",
        "figures": figures,
        "titles": ["step", "free memory", "longer where things are worse"],
        "plan_title": "plan",
        "rows": rows,
        "assumptions": put.assumptions,
    }


def _spread(points: Any) -> Iterator[Any]:
    """At most ``ROWS`` of the points, evenly chosen, the fastest among them."""
    step = max(1, -(-len(points) // ROWS))
    yield from points[::step]


def sensitivity(question: PageQuestion, values: Values, stop: Stop, progress: Progress) -> dict[str, Any]:
    """How the best step time follows the hardware."""
    with about_field("factor"):
        factor = number(values["factor"], "factor", least=1.001, most=100.0)
    put = question.put()
    found = sensitivities.sensitivity_of(put.question, _searches(question, put, stop), factor=factor, progress=progress)
    record = sensitivity_record(found)
    best = record["best_step_time_s"]
    rows = [
        _row(
            [
                each["label"],
                "-" if each["elasticity"] is None else f"{each['elasticity']:+.2f}",
                _changed(each["lower_best_step_time_s"], best),
                _changed(each["upper_best_step_time_s"], best),
            ],
            each["upper_plan"] or "no plan",
            "",
        )
        for each in record["parameters"]
    ]
    first = record["parameters"][0] if best and record["parameters"] else None
    return {
        "verdict": "Nothing fits" if first is None else f"{first['label'].capitalize()} matter most",
        "note": f"Every parameter divided and multiplied by {factor:g}, the plan sought anew at each point. "
        "Elasticity: per cent of step time for each per cent of the parameter.",
        "figures": panel_figures(sensitivity_chart(record)) if best else [],
        "plan_title": f"plan at {factor:g}",
        "titles": ["parameter", "elasticity", f"step at 1/{factor:g}", f"step at {factor:g}"],
        "rows": rows,
        "assumptions": put.assumptions,
    }


def _changed(time: float | None, best: float | None) -> str:
    return "-" if time is None or best is None else f"{format_time(time)} ({100 * (time / best - 1):+.1f} %)"


def budget(question: PageQuestion, values: Values, stop: Stop, progress: Progress) -> dict[str, Any]:
    """Accelerators, days, money, energy and failures of a whole run."""
    changes = {"job": {**question.job, "tokens": values["budget_tokens"]}, "price": values["budget_price"]}
    put = question.with_values(**changes).put()
    with about_field("ops"):
        given = {key.removeprefix("ops."): value for key, value in values.items() if key.startswith("ops.")}
        operations = Operations(**values_of(Operations, given))
    asked = budgets.RunQuestion(put.question, put.stack, put.assumptions, "global_batch_size" in question.job)
    restricted = budgets.Restricted(limit=question.restrictions())
    found = budgets.budget_of(
        asked, _limits(question, values), operations, restricted=restricted, progress=progress, stop=stop
    )
    record = budget_record((found,))
    if found.option is None:
        return _no_budget(found.reason or "", put.assumptions)
    option = record["options"][0]
    return {
        "verdict": f"{option['days']:.1f} days on {option['num_accelerators']:,} accelerators",
        "note": "; ".join(option["shortfalls"])
        or f"{option['days_p10']:.1f} to {option['days_p90']:.1f} days in 8 of 10 "
        f"comparable cases; {_share(option['goodput'])} of the time trains.",
        "figures": panel_figures(budget_chart(record)),
        "titles": ["quantity", "value"],
        "rows": [_row([name, text], "", "") for name, text in _account(option)],
        "plan": _row(
            [],
            _plan(found.option.estimate),
            _link(question, found.option.estimate, gpus=str(found.option.num_accelerators)),
        ),
        "assumptions": option["assumptions"],
    }


def _no_budget(reason: str, assumptions: tuple[str, ...]) -> dict[str, Any]:
    return {"verdict": "No plan", "note": reason, "figures": [], "titles": [], "rows": [], "assumptions": assumptions}


def _limits(question: PageQuestion, values: Values) -> budgets.Limits:
    """What limits the run: the accelerators of the question, or days, money or energy."""
    kind, text = values["budget_limit"], values["budget_value"]
    if kind == "gpus":
        with about_field("gpus"):
            return budgets.Limits(num_accelerators=whole(question.gpus, "gpus", most=MOST_ACCELERATORS))
    with about_field("budget_value"):
        value = number(text, kind)
    limits: dict[str, Any] = {kind: value}
    return budgets.Limits(**limits)


def _account(option: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "steps", f"{option['num_steps']:,}"
    yield "step", format_time(option["step_time_s"])
    yield "MFU", percent(option["mfu"])
    yield "accelerator-hours", format_count(round(option["accelerator_hours"]))
    if option["money"] is not None:
        yield "money", f"{option['money']:,.0f} {option['currency']}"
    if option["energy_kwh"] is not None:
        yield "energy", f"{option['energy_kwh'] / 1e6:,.3g} GWh"
    if option["carbon_t"] is not None:
        yield "carbon", f"{option['carbon_t']:,.0f} t"
    yield "failures", f"{option['num_failures']:,.0f}"
    if option["time_between_failures_s"] is not None:
        yield "time between failures", format_time(option["time_between_failures_s"])
    yield (
        "checkpoint",
        f"{format_bytes(option['checkpoint_bytes'])}, written in {format_time(option['checkpoint_write_time_s'])}",
    )
    if option["checkpoint_interval_s"] is not None:
        yield "time between checkpoints", format_time(option["checkpoint_interval_s"])
    yield "time of a restart", format_time(option["restart_time_s"])
    yield "spare accelerators needed", f"{option['spares_needed']:,}" if option["spares_needed"] is not None else "-"


ANSWERS: Final[dict[str, Callable[[PageQuestion, Values, Stop, Progress], dict[str, Any]]]] = {
    "scale": scale,
    "vary": vary,
    "pareto": pareto,
    "sensitivity": sensitivity,
    "budget": budget,
}
