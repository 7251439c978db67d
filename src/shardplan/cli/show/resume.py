"""What ``resume`` prints: the verdict, what changes, what becomes of every state, the load, and the check."""

from __future__ import annotations

from shardplan.cli.layout import Page
from shardplan.launch.resume.answer import Carried, Reason, Resume
from shardplan.reports.forms.resume import Load
from shardplan.reports.texts.plan import field_text
from shardplan.units import format_bytes, format_time

STYLES = {
    "yes": "bold green",
    "partly": "bold yellow",
    "after conversion": "bold yellow",
    "no": "bold red",
    "unknown": "bold yellow",
}
TEXTS = {
    "yes": "Yes: it resumes",
    "partly": "It resumes in part",
    "after conversion": "It resumes after a conversion",
    "no": "No: it does not resume",
    "unknown": "Not known",
}
OUTCOMES = {
    "kept": "kept",
    "converted": "kept, after a conversion",
    "reset": "not kept",
    "unsupported": "not loaded",
    "unknown": "not known",
}


def show_resume(page: Page, found: Resume, load: Load | None) -> None:
    """The whole answer."""
    page.line(f"{TEXTS[found.verdict]}; {found.why}", style=STYLES[found.verdict], indent=0)
    if found.record is not None:
        page.labelled("Record", f"{found.record.label}, {found.record.repository}")
    differs = {**found.model_changed, **found.changed}
    if {"pp", "vp"} & set(differs):
        differs = {key: pair for key, pair in differs.items() if key != "stage_layers"}
    page.labelled(
        "Changes", ", ".join(f"{key} {_text(old)} -> {_text(new)}" for key, (old, new) in differs.items()) or "nothing"
    )
    if found.missing:
        page.labelled("Missing", ", ".join(found.missing))
    if found.record is not None:
        stated = (f"{name.replace('_', ' ')} {field_text(value)} ({why})" for name, (value, why) in _stated(found))
        page.labelled("Options", ", ".join(stated) or "defaults")
    for each in found.states:
        _state(page, each)
    if load is not None:
        page.labelled("Load", f"{format_bytes(load.loaded_bytes)}, at least {format_time(load.time)}")
        page.bullets(load.assumptions, style="dim")
    if found.record is not None:
        page.labelled("Check", found.record.confirm)


def _stated(found: Resume) -> list[tuple[str, tuple[object, str]]]:
    """Options that a file states."""
    return [(name, pair) for name, pair in found.settings.items() if not pair[1].startswith("default of ")]


def _text(value: object) -> str:
    return ",".join(str(each) for each in value) if isinstance(value, tuple) else field_text(value)


def _state(page: Page, carried: Carried) -> None:
    page.line(f"{carried.state.capitalize()}: {OUTCOMES[carried.outcome]}", indent=0)
    page.bullets(tuple(dict.fromkeys(_reason(each, carried.reasons) for each in carried.reasons)))


def _reason(reason: Reason, all_reasons: tuple[Reason, ...]) -> str:
    """One reason, with all the fields that it is the reason of."""
    alike = [each.field for each in all_reasons if each.why == reason.why and each.field != "always"]
    source = f" [{reason.source}]" if reason.source else ""
    fix = f" To do: {reason.fix}." if reason.fix else ""
    return f"{', '.join(alike)}{': ' if alike else ''}{reason.why}.{fix}{source}"
