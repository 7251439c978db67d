"""What ``audit`` prints: what runs, broken rules, memory and time, better plans, what explains a measurement."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from rich.text import Text

from shardplan.cli.flags.plan import DetailFlags
from shardplan.cli.layout import Page
from shardplan.cli.show import answer as show_answer
from shardplan.cli.show import details as show_details
from shardplan.inputs.plan import Plan
from shardplan.reports.forms.audit import world_record
from shardplan.reports.texts.plan import field_name, field_text
from shardplan.units import format_bytes, format_time

if TYPE_CHECKING:
    from shardplan.launch.audit.answer import Audit
    from shardplan.launch.audit.improve import Improvement
    from shardplan.launch.audit.observed import GapExplanation
    from shardplan.launch.dialects.reading import Break

STYLES = {"stops": ("Broken", "bold red"), "changes": ("Changed", "bold yellow"), "notice": ("Notice", "dim")}
MOST_NOTES = 6
ORDER = tuple(each.name for each in fields(Plan))
"""Fields of a plan as it declares them: degrees first."""


def show_audit(page: Page, audit: Audit, details: DetailFlags) -> None:
    """The whole answer."""
    _what_runs(page, audit)
    _violations(page, audit.violations)
    _missing(page, audit)
    if audit.estimate is not None and audit.put.question is not None:
        show_answer.show_verdict(page, audit.put.question, audit.estimate, runs_on=_runs_on(audit))
        show_answer.show_memory(page, audit.estimate)
        show_answer.show_step(page, audit.estimate)
        show_details.show_evidence(page, audit.estimate)
    _improvements(page, audit.improvements)
    for each in audit.observed:
        _observed(page, each)
    _notes(page, audit, is_whole=details.all)
    if details.states_assumptions:
        _assumed(page, audit)


def _runs_on(audit: Audit) -> str:
    """The file's framework where it is priced by the record of another one, or by none."""
    from shardplan.launch.audit.improve import OWN_NAMES

    name = (audit.reading.framework, audit.reading.version)
    if audit.put.stack is None:
        return f"{' '.join(name)}, of whose behaviour there is no record: priced with the usual defaults"
    priced_as = audit.put.stack.name if audit.estimate is None else audit.estimate.framework
    return f"{' '.join(name)}, priced as {priced_as}" if name in OWN_NAMES else ""


def _what_runs(page: Page, audit: Audit) -> None:
    """Framework, model, job, plan, world."""
    reading, put = audit.reading, audit.put
    page.line(f"{reading.file}: {reading.framework} {reading.version}", style="bold", indent=0)
    if put.question is not None:
        show_answer.show_question(page, put.question)
    else:
        name = reading.value("model") or reading.value("model_name")
        dims = [
            f"{key.replace('_', ' ')} {reading.value(key)}"
            for key in ("num_hidden_layers", "hidden_size", "num_experts")
        ]
        known = [each for each in dims if not each.endswith(" None")]
        named = str(name or "") if put.model is None else put.model.name
        model = ": ".join(filter(None, [named, ", ".join(known)]))
        page.labelled("Model", model or "not stated")
        page.labelled(
            "Job",
            ", ".join(f"{key.replace('_', ' ')} {field_text(value)}" for key, value in put.job.items()) or "not stated",
        )
    fields = {key: put.fields[key] for key in ORDER if put.fields.get(key) not in (None, False)}
    page.labelled(
        "Plan",
        ", ".join(f"{key.replace('_', ' ')} {field_text(value)}" for key, value in fields.items()) or "not stated",
    )
    world = world_record(audit)
    total = reading.value("num_accelerators")
    text = f"{total} accelerators" if total is not None else "number of accelerators not stated"
    for part in ("dense", "experts") if fields.get("ep", 1) != 1 else ("dense",):
        text += "; " + " x ".join(f"{key} {'?' if value is None else value}" for key, value in world[part].items())
    page.labelled("World", text)


def _violations(page: Page, found: tuple[Break, ...]) -> None:
    """Rules that are broken, what stops the run first."""
    if not found:
        page.labelled("Rules", "nothing broken is found", style="bold green")
    for each in found:
        label, style = STYLES[each.severity]
        text = Text(f"{each.rule}: ", style="bold")
        page.labelled(label, text.append(f"{each.values}; {each.knob}.", style="not bold"), style=style)


def _missing(page: Page, audit: Audit) -> None:
    """What must be given."""
    if not audit.put.missing:
        return
    missing = audit.put.missing
    after = ", as arguments after --" if any("arg:" in why for why in missing.values()) else ""
    page.heading(
        "Needed",
        f"for an estimate; give it by --model, --cluster, --gpus, --env{after} or --given KEY=VALUE",
    )
    together: dict[str, list[str]] = {}
    for key, why in missing.items():
        together.setdefault(why, []).append(key.replace("_", " "))
    page.bullets(f"{', '.join(keys)}: {why}" for why, keys in together.items())


def _improvements(page: Page, found: tuple[Improvement, ...]) -> None:
    """Changes as a diff of options."""
    if not found:
        return
    page.heading("Better", "predicted, the most valuable first")
    for each in found:
        change = ", ".join(
            f"{field_name(key)} {field_text(old)} -> {field_text(new)}" for key, (old, new) in each.change.items()
        )
        gain = "runs and fits" if each.gain is None else f"{100 * each.gain:.0f} % less time"
        time, memory = format_time(each.estimate.step_time), format_bytes(each.estimate.peak_memory_bytes)
        page.line(f"{gain}: {time} a step, {memory}: {change}", style="bold")
        for sign, options in (("-", each.removed), ("+", each.added)):
            for option in options:
                page.line(f"{sign} {option}", indent=4, style="red" if sign == "-" else "green")
        if each.unsaid:
            names = ", ".join(name.replace("_", " ") for name in each.unsaid)
            page.line(f"no option states {names}: set it in the code of the configuration", indent=4)
        for text in each.estimate.untested:
            page.line(f"untested: {text.partition(': ')[2]}", indent=4, style="yellow")


def _observed(page: Page, each: GapExplanation) -> None:
    """A measurement, and what explains it."""
    page.heading("Observed", f"{each.observed.text}: {each.meaning}")
    if each.ratio is not None:
        place = "within" if each.is_in_band else "outside"
        page.line(f"{each.ratio:.2f} times the predicted step time, {place} its band.")
    if not each.causes:
        page.line("No known cause is needed, or none bridges the gap.")
    for cause in each.causes:
        share = f"explains {100 * cause.explains:.0f} % of the gap" if cause.explains else "nearby"
        page.bullets([f"{cause.cause}: {share}. Check: {cause.check}."])


def _notes(page: Page, audit: Audit, *, is_whole: bool) -> None:
    """What was not understood, and what a reader should know."""
    texts = [f"not understood: {each}" for each in audit.reading.not_understood] + list(audit.reading.notes)
    if not texts:
        return
    page.heading("Notes")
    shown = texts if is_whole else texts[:MOST_NOTES]
    page.bullets(shown, style="dim")
    if len(shown) < len(texts):
        page.line(f"{len(texts) - len(shown)} more with --all.", style="dim")


def _assumed(page: Page, audit: Audit) -> None:
    """Defaults that were taken."""
    page.heading("Assumed")
    assumed = {**audit.put.assumed, **audit.reading.assumed}
    page.bullets(
        (f"{key.replace('_', ' ')} {field_text(value)}: {why}" for key, (value, why) in assumed.items()), style="dim"
    )
    page.bullets(audit.put.assumptions, style="dim")
