"""An audit as texts: what the page of an audit shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from shardplan.answers.audit import world_products
from shardplan.launch.audit.answer import Audit
from shardplan.launch.audit.improve import Improvement
from shardplan.launch.audit.observed import GapExplanation
from shardplan.reports.texts.plan import field_name, field_text, plan_words
from shardplan.units import format_bytes, format_count, format_time
from shardplan.web.figures.estimates import estimate_texts
from shardplan.web.pages.pasted_script import ENV, GIVEN, PastedScript

FLAG: Final = re.compile(r"\s*\(--[^)]*\)|: --\S+")
"""Flags of the command line in what is missing; a page has fields."""
VARIABLE: Final = re.compile(r"env:([A-Za-z_]\w*)")
SEVERITIES: Final = {"stops": "Stops the run", "changes": "Changed silently", "notice": "Has no effect"}
FIELDS: Final = {"model": "audit_model", "num_accelerators": "audit_gpus", "cluster": "audit_cluster"}


def audit_texts(audit: Audit, script: PastedScript, folder: str) -> dict[str, Any]:
    """All of it. ``folder``: where the script was read, which no text names."""
    reading, put = audit.reading, audit.put
    assumed = {**put.assumed, **reading.assumed}
    return {
        "framework": f"{reading.framework} {reading.version}".strip(),
        "runs": audit.runs,
        "is_complete": not put.missing,
        "facts": _facts(audit),
        "needs": [*_needs(put.missing)],
        "told": [*_told(script)],
        "violations": [
            {
                "severity": each.severity,
                "label": SEVERITIES[each.severity],
                "rule": each.rule,
                "values": each.values,
                "knob": each.knob,
            }
            for each in audit.violations
        ],
        "estimate": None if audit.estimate is None else estimate_texts(audit.estimate),
        "improvements": [_improvement(each, number) for number, each in enumerate(audit.improvements)],
        "observed": [_observed(each) for each in audit.observed],
        "places": [
            (_words(key), field_text(fact.value), fact.why)
            for key, fact in reading.facts.items()
            if fact.origin != "assumed"
        ],
        "assumed": [(_words(key), field_text(value), why) for key, (value, why) in assumed.items()],
        "assumptions": put.assumptions,
        "notes": [text.replace(f"{folder}/", "") for text in reading.notes],
        "not_understood": reading.not_understood,
    }


def _words(key: str) -> str:
    return key.replace("_", " ")


def _facts(audit: Audit) -> list[tuple[str, str]]:
    """Model, job, plan and world, as far as they are known."""
    put = audit.put
    model = put.model
    known = audit.reading.value("model") or audit.reading.value("model_name")
    name = (
        f"{model.name}, {format_count(model.num_parameters)} parameters"
        if model is not None
        else str(known or "not stated")
    )
    fields = {key: value for key, value in put.fields.items() if value not in (None, False)}
    stated = ", ".join(f"{_words(key)} {field_text(value)}" for key, value in fields.items()) or "not stated"
    plan = stated if audit.estimate is None else ", ".join(plan_words(audit.estimate))
    return [
        ("Model", name),
        ("Job", ", ".join(f"{_words(key)} {field_text(value)}" for key, value in put.job.items()) or "not stated"),
        ("Plan", plan),
        ("World", _world(audit)),
    ]


def _world(audit: Audit) -> str:
    total = audit.reading.value("num_accelerators")
    count = f"{total:,} accelerators" if isinstance(total, int) else "number of accelerators not stated"
    return "; ".join([count, *world_products(audit)])


def _needs(missing: dict[str, str]) -> Iterator[dict[str, str]]:
    """A field for everything that must be given; what follows from other missing values needs none."""
    asked: set[str] = set()
    for key, why in missing.items():
        variables = VARIABLE.findall(why)
        text = FLAG.sub("", why)
        if key in FIELDS and not variables:
            yield {"name": FIELDS[key], "label": _words(key).capitalize(), "why": text, "kind": key}
        for name in variables:
            if name not in asked:
                asked.add(name)
                yield {
                    "name": f"{ENV}{name}",
                    "label": f"Environment variable {name}",
                    "why": f"decides {_words(key)}",
                    "kind": "env",
                }
        if key not in FIELDS and not variables and why not in missing:
            yield {"name": f"{GIVEN}{key}", "label": _words(key).capitalize(), "why": text, "kind": "given"}


def _told(script: PastedScript) -> Iterator[dict[str, str]]:
    """Fields that the visitor has filled, which stay."""
    for name, value, label in (
        ("audit_model", script.model, "Model"),
        ("audit_gpus", script.num_accelerators, "Num accelerators"),
    ):
        if value:
            yield {"name": name, "value": value, "label": label}
    for name, value in script.env.items():
        yield {"name": f"{ENV}{name}", "value": value, "label": f"Environment variable {name}"}
    for name, value in script.given.items():
        yield {"name": f"{GIVEN}{name}", "value": value, "label": _words(name).capitalize()}


def _improvement(each: Improvement, number: int) -> dict[str, Any]:
    change = [f"{field_name(key)} {field_text(old)} → {field_text(new)}" for key, (old, new) in each.change.items()]
    return {
        "number": number,
        "gain": "Runs and fits" if each.gain is None else f"{100 * each.gain:.0f} % less time",
        "step": format_time(each.estimate.step_time),
        "memory": format_bytes(each.estimate.peak_memory_bytes),
        "change": change,
        "removed": each.removed,
        "added": each.added,
    }


def _observed(each: GapExplanation) -> dict[str, Any]:
    place = "" if each.ratio is None else ("within" if each.is_in_band else "outside")
    return {
        "title": f"{each.observed.text}: {each.meaning}",
        "verdict": "" if each.ratio is None else f"{each.ratio:.2f} times the predicted step time, {place} its band.",
        "causes": [
            (
                cause.cause,
                f"explains {100 * cause.explains:.0f} % of the gap" if cause.explains else "may play a role",
                cause.check,
            )
            for cause in each.causes
        ],
    }
