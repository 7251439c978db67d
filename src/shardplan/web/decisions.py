"""Decisions of the page: each is a function of the question and of the fields of its form that returns a document."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import gcd
from typing import Any, Final, cast, get_args

from shardplan.answers.decisions.fit import SOUGHT, fit_document
from shardplan.answers.decisions.pareto import pareto_document
from shardplan.answers.decisions.pareto_sizes import pareto_sizes_document
from shardplan.answers.decisions.scale import scale_document
from shardplan.answers.decisions.sensitivity import sensitivity_document
from shardplan.answers.decisions.whatif import whatif_document
from shardplan.answers.document import AnswerDocument, Bullets, Column, Line, Part, RowTable, lead, summary
from shardplan.answers.plans import of_plan, rounded, step_columns, whole_plan
from shardplan.base.errors import InputError, UnknownNameError
from shardplan.decide import pareto as fronts
from shardplan.decide import scale as scales
from shardplan.decide import sensitivity as sensitivities
from shardplan.decide.largest import SMALLEST, LargestFit, Sought, fitted, still_assumed
from shardplan.decide.searching import Answered, Progress, Searches
from shardplan.decide.whatif import CLUSTER, change_of, check_named_once, what_if
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.question import PosedQuestion
from shardplan.estimation.written import filled
from shardplan.inputs.plan import Plan
from shardplan.inputs.readers.catalog import load_cluster
from shardplan.inputs.readers.typed import RANGE, number
from shardplan.planner.stopping import Stop
from shardplan.plotting.chart import GREY, PALETTE, Axis, Chart, Panel, Series, Side
from shardplan.render.html import assumed_html
from shardplan.reports.texts.answer import percent
from shardplan.web.pages.rendering import html_of, shown_parts
from shardplan.web.panels import figures_of
from shardplan.web.state import MOST_ACCELERATORS, FieldError, PageQuestion, about_field, named, plan_code, plan_in

Values = Mapping[str, str]
Shown = dict[str, Any]
"""What the template shows."""
Decide = Callable[[PageQuestion, Values, Stop, Progress], Shown]
MOST_VALUES: Final = 16
MOST_PLANS: Final = 40
"""Plans of a front that are listed, about."""
MOST_TRIED: Final = 12
"""Values around the answer of ``fit``."""


def searches(question: PageQuestion, posed: PosedQuestion, stop: Stop) -> Searches:
    """Searches of a question of the page, with its framework and locks."""
    return Searches.of(stack=posed.stack, limit=question.restrictions(), stop=stop)


def link(question: PageQuestion, estimate: Estimate | None, **changed: Any) -> str:
    """The step of a plan as an address."""
    return "" if estimate is None else f"/step?{question.with_values(show=plan_code(estimate.plan), **changed).query()}"


def shown(document: AnswerDocument, address: Callable[[Any], str] | None = None) -> Shown:
    """What the template shows of a document. ``address``: where a row of its tables leads."""
    chart = None if document.chart is None else document.chart()
    panels = [] if chart is None else [each for each, _, _ in chart.placed if any(part.x for part in each.series)]
    return {
        "verdict": summary(document).removesuffix("."),
        "lines": html_of([each for each in document.verdict if each is not lead(document)]),
        "note": "" if chart is None else chart.note,
        "figures": figures_of(panels),
        "parts": shown_parts(document.parts, address),
        "assumed": assumed_html(document.assumptions),
        "tone": "",
        "title": "",
        "link": None,
    }


def asked_of(document: AnswerDocument) -> Shown:
    """What an answer whose form is not its whole question shows above the verdict."""
    return {"title": document.head[0].words, "subject": html_of(document.head[1:])}


def listed(text: str) -> list[str]:
    """Values between commas or spaces; a number with a comma for thousands is none. Raises InputError."""
    found = [each for each in text.replace(",", " ").replace(";", " ").split() if each]
    if not 1 <= len(found) <= MOST_VALUES:
        raise InputError(
            f"{len(found) or 'no'} values are given",
            rule=f"1 to {MOST_VALUES} values are compared",
            hint="write 64,128,256",
        )
    return found


VARIED: Final = {
    "sequence_length": "Sequence length",
    "global_batch_size": "Global batch size",
    "set.inter_node_bandwidth": "Bandwidth between nodes",
    "set.intra_node_bandwidth": "Bandwidth inside a node",
    "precision": "Precision",
}


def scale(question: PageQuestion, values: Values, stop: Stop, progress: Progress) -> Shown:
    """The job on several sizes."""
    sizes, posed = _on_sizes(question, values, stop)
    with about_field("least_gain"):
        least = number(values["least_gain"], "least gain", most=100.0) / 100
    found = scales.scaling(posed.question, sizes, searches(question, posed, stop), least_gain=least, progress=progress)

    def address(point: scales.ScalePoint) -> str:
        return link(question, point.answered.estimate, gpus=str(point.num_accelerators))

    return shown(scale_document(replace(found, assumptions=posed.assumptions)), address)


def pareto_sizes(question: PageQuestion, values: Values, stop: Stop, progress: Progress) -> Shown:
    """Sizes that no other beats in time, accelerators and money together."""
    sizes, posed = _on_sizes(question, values, stop)
    with about_field("price"):
        found = fronts.sizes_front(posed.question, sizes, searches(question, posed, stop), progress=progress)

    def address(size: fronts.PricedSize) -> str:
        return link(question, size.answered.estimate, gpus=str(size.num_accelerators))

    document = pareto_sizes_document(
        replace(found, assumptions=(*posed.assumptions, *found.assumptions)),
        price="Price on the Plan page",
        failures="Failures in Budget of a whole run",
    )
    return shown(document, address)


def _on_sizes(question: PageQuestion, values: Values, stop: Stop) -> tuple[list[int], PosedQuestion]:
    """The sizes asked for, or those around the question's, and the question at the largest. Raises FieldError."""
    text = values["sizes"] or ",".join(map(str, sizes_around(question.posed().question.num_accelerators)))
    with about_field("sizes"):
        sizes = scales.checked_sizes(text if RANGE.search(text) else ",".join(listed(text)))
    return sizes, question.with_values(gpus=str(sizes[-1])).posed_search(stop)


def sizes_around(num_accelerators: int) -> list[int]:
    """Five doublings, from an eighth of a number of accelerators where that is whole."""
    smallest = num_accelerators // gcd(num_accelerators, 8)
    return [size for size in (smallest * 2**doublings for doublings in range(5)) if size <= MOST_ACCELERATORS]


def vary(question: PageQuestion, values: Values, stop: Stop, progress: Progress) -> Shown:
    """The question with one field at several values."""
    name = values["over"]
    with about_field("over"):
        if name not in VARIED:
            raise UnknownNameError("field", name, VARIED, hint=f"one of {', '.join(VARIED)}")
    with about_field("values"):
        given = values["values"].split(",") if name.startswith("set.") else listed(values["values"])
    texts = [each.strip() for each in given if each.strip()][:MOST_VALUES]
    answers: list[tuple[str, PageQuestion, Answered]] = []
    assumed: list[tuple[str, ...]] = []
    for place, text in enumerate(texts):
        progress(place, len(texts))
        asked = _with_value(question, name, text)
        try:
            posed = asked.posed_search(stop)
        except FieldError as error:
            raise FieldError(error, "values") from None
        assumed.append(tuple(posed.assumptions))
        answers.append((text, asked, searches(question, posed, stop).answer(posed.question)))
    shared = tuple(each for each in assumed[0] if all(each in others for others in assumed))
    document = varied_document(VARIED[name].lower(), answers, shared)
    return shown(document, lambda row: link(row[1], row[2].estimate))


def _with_value(question: PageQuestion, name: str, text: str) -> PageQuestion:
    if name.startswith("set."):
        return question.with_values(sets={**question.sets, name.removeprefix("set."): text})
    return question.with_values(job={**question.job, name: text})


def varied_document(
    word: str, answers: list[tuple[str, PageQuestion, Answered]], assumptions: tuple[str, ...]
) -> AnswerDocument:
    """Step and plan at every value of a field, which ``word`` names."""

    def estimate(row: tuple[str, PageQuestion, Answered]) -> Estimate | None:
        return row[2].estimate

    columns = (
        Column("", word, lambda row: row[0], is_text=True),
        *step_columns(estimate),
        Column("", "tokens/s", lambda row: row[2].tokens_per_second, rounded),
        Column("", "MFU", of_plan(estimate, "mfu"), percent),
        whole_plan(estimate),
    )
    best = max((each.tokens_per_second or 0.0, text) for text, _, each in answers)
    reasons = [f"{text}: {each.reason}" for text, _, each in answers if each.reason is not None]
    found = f"Most tokens per second at {word} {best[1]}" if best[0] else "Nothing fits at any of these values"
    note = "everything else stays as the question has it; planned again at every value"
    return AnswerDocument(
        name="vary",
        verdict=[Line(found)],
        parts=[
            Part("Step and plan at every value", [RowTable(answers, columns)], note),
            *([Part("Values without a plan", [Bullets(reasons)])] if reasons else []),
        ],
        assumptions=assumptions,
        record=dict,
        chart=lambda: varied_chart(word, [(text, each) for text, _, each in answers if each.estimate is not None]),
    )


def varied_chart(word: str, answers: list[tuple[str, Answered]]) -> Chart:
    """Step time with its band, and tokens per second, at every value that has a plan."""
    axis, texts = Axis(title=word, scale="names"), [text for text, _ in answers]
    plans = [each.estimate for _, each in answers if each.estimate is not None]
    ends = [
        Series(name="80 % band", x=texts, y=[getattr(plan, end) for plan in plans], colour=GREY, is_dashed=True)
        for end in ("step_time_p10", "step_time_p90")
    ]
    degrees = [f"{each.plan.tp} x {each.plan.cp} x {each.plan.pp}" for each in plans]
    times = [each.step_time for each in plans]
    falls = [after < time for time, after in zip(times, [*times[1:], 0.0], strict=True)]
    sides: list[Side] = ["top right" if each else "bottom right" for each in falls]
    step = Series(name="step time", x=texts, y=times, marker="circle", labels=degrees, label_sides=sides)
    rates = [each.tokens_per_second or 0.0 for _, each in answers]
    rate = Series(name="tokens/s", x=texts, y=rates, kind="bars", colour=PALETTE[2])
    panels = (
        Panel(title="step time, with tp x cp x pp", x=axis, y=Axis(title="step time [s]"), series=(*ends, step)),
        Panel(title="tokens per second", x=axis, y=Axis(title="tokens/s"), series=(rate,)),
    )
    return Chart(name="vary", title=word, panels=panels, num_columns=2)


SOUGHT_NAMES: Final = {
    name: f"{'Smallest' if name in SMALLEST else 'Largest'} {SOUGHT[name][0]}" for name in get_args(Sought)
}


def fit(question: PageQuestion, values: Values, stop: Stop, _progress: Progress) -> Shown:
    """The largest or smallest value that fits, with its plan."""
    sought = cast("Sought", values["sought"])
    with about_field("sought"):
        if sought not in SOUGHT_NAMES:
            raise UnknownNameError("quantity", f"{sought:.40}", SOUGHT_NAMES, hint="choose one of the list")
    posed = _without_sought(question, sought).posed_search(stop)
    found = fitted(
        posed.question, sought, searches(question, posed, stop), keeps_batch="global_batch_size" in question.job
    )
    found = replace(found, assumptions=still_assumed(sought, posed.assumptions))
    document = shown(fit_document(found, listed=MOST_TRIED))
    document["note"] = f"{_surely_fitting(found)} {document['note']}".strip()
    return document | ({"link": _link_of_fit(question, found)} if found.value else {})


def _surely_fitting(found: LargestFit) -> str:
    """The value at which the upper end of the band of the memory fits too, of those that were tried."""
    estimate, (name, unit, _) = found.answered.estimate, SOUGHT[found.sought]
    if estimate is None or found.value is None:
        return ""
    if estimate.has_headroom:
        return "It fits at the upper end of its memory band too."
    most = estimate.usable_memory_bytes * estimate.peak_memory_bytes / estimate.peak_memory_p90_bytes
    sure = [each.value for each in found.tried if each.fits and (each.least_memory_bytes or most) < most]
    if not sure:
        return f"At the upper end of its memory band no {name} that was tried fits."
    value = max(sure) if found.is_largest else min(sure)
    return f"At the upper end of its memory band {value:,}{unit} still fits, of those that were tried."


def _without_sought(question: PageQuestion, sought: Sought) -> PageQuestion:
    """The question without what is sought."""
    if sought == "gpus":
        return question.with_values(gpus="1")
    return question.with_values(job={name: text for name, text in question.job.items() if name != sought})


def _link_of_fit(question: PageQuestion, found: LargestFit) -> tuple[str, str] | None:
    """The step at that value; a model with another number of layers has no address."""
    value = str(found.value)
    changed: dict[str, Any] = {"gpus": {"gpus": value}}.get(found.sought, {})
    if found.sought == "sequence_length":
        changed = {"job": {**question.job, found.sought: value}}
    address = "" if found.sought == "layers" else link(question, found.answered.estimate, **changed)
    return ("See its step", address) if address else None


CHANGES: Final = {
    "inter_node_bandwidth": "Bandwidth between nodes",
    "intra_node_bandwidth": "Bandwidth inside a node",
    "inter_node_latency": "Latency between nodes",
    "intra_node_latency": "Latency inside a node",
    "node_size": "Accelerators in a node",
    "memory": "Memory of an accelerator",
    "memory_bandwidth": "Memory bandwidth",
    "peak_flops.bf16": "Peak of bf16",
    "peak_flops.fp8": "Peak of fp8",
    "cluster": "Cluster",
    "gpus": "Accelerators",
    "sequence_length": "Sequence length",
    "global_batch_size": "Global batch size",
    "precision": "Precision",
    "optimizer": "Optimizer",
}
"""What can be changed, as on the command line."""
MOST_CHANGES: Final = 3


def whatif(question: PageQuestion, values: Values, stop: Stop, progress: Progress) -> Shown:
    """The recommended plan, or the one that is looked at, where the cluster or the job changes."""
    changes, posed = _changes(values), question.posed_search(stop)
    anew = searches(question, posed, stop)
    before = anew.answer(posed.question)
    plan = _plan_of(question, posed, before, anew)
    found = what_if(posed.question, plan, changes, anew, before=before, progress=progress)
    return shown(whatif_document(replace(found, assumptions=posed.assumptions)))


def _plan_of(question: PageQuestion, posed: PosedQuestion, before: Answered, anew: Searches) -> Plan:
    """The plan that is looked at, or the one to take. Raises InputError."""
    if question.show:
        with about_field("show"):
            plan, given = plan_in(question.show)
        return filled(posed.question, plan, posed.stack, given)[0]
    if before.estimate is None:
        anew.result(posed.question)  # raises, where what is asked for contradicts itself
        raise InputError(
            f"there is no plan to change: {before.reason}",
            rule="a plan is changed",
            hint="see on Plan what would fit",
        )
    return before.estimate.plan


def _changes(values: Values) -> dict[str, Any]:
    """The changes of the form by name. Raises FieldError."""
    given = [(place, values[f"change.{place}"], values[f"to.{place}"]) for place in range(1, MOST_CHANGES + 1)]
    made = [(place, name, text) for place, name, text in given if name and text]
    if not made:
        with about_field("to.1"):
            raise InputError(
                "no change is given", rule="at least one change is given", hint="choose what changes, and its value"
            )
    for place, name, _ in made:
        if name not in CHANGES:
            with about_field(f"change.{place}"):
                raise UnknownNameError("change", f"{name:.40}", CHANGES, hint="choose one of the list")
    with about_field(f"change.{made[-1][0]}"):
        check_named_once([name for _, name, _ in made])
    return dict(_read(place, name, text) for place, name, text in made)


def _read(place: int, name: str, text: str) -> tuple[str, Any]:
    """A change and its value; a cluster is one that is built in."""
    with about_field(f"to.{place}"):
        return (name, load_cluster(named("cluster", text))) if name == CLUSTER else change_of(name, text)


def pareto(question: PageQuestion, _values: Values, stop: Stop, _progress: Progress) -> Shown:
    """Plans that no other beats in every respect."""
    posed = question.posed_search(stop)
    front = fronts.pareto_front(posed.question, searches(question, posed, stop))

    def address(point: fronts.ParetoPoint) -> str:
        return link(question, point.estimate)

    return shown(pareto_document(replace(front, assumptions=posed.assumptions), listed=MOST_PLANS), address)


def sensitivity(question: PageQuestion, values: Values, stop: Stop, progress: Progress) -> Shown:
    """How the best step time follows the hardware."""
    with about_field("factor"):
        factor = number(values["factor"], "factor", least=1.001, most=100.0)
    posed = question.posed_search(stop)
    found = sensitivities.sensitivity_of(
        posed.question, searches(question, posed, stop), factor=factor, progress=progress
    )
    return shown(sensitivity_document(replace(found, assumptions=posed.assumptions)))
