"""The answer of ``audit``: what a launch file runs, broken rules, memory and time, better plans, measurements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from math import prod
from typing import TYPE_CHECKING, Any, Final

from shardplan.answers.document import (
    AnswerDocument,
    Block,
    Bullets,
    Column,
    Line,
    Part,
    RowTable,
    Span,
    Tone,
    assumptions_part,
)
from shardplan.answers.estimate import MOST_TERMS, evidence_parts, memory_part, step_part, verdict
from shardplan.answers.plans import question_lines, taken_lines
from shardplan.answers.sections import observed_part, observed_record
from shardplan.base.records import plain
from shardplan.base.units import format_bytes, format_count, format_time
from shardplan.inputs.plan import Plan
from shardplan.launch.dialects.models import KEYS as MODEL_KEYS
from shardplan.reports.model_record import model_record
from shardplan.reports.texts.plan import field_name, field_text

if TYPE_CHECKING:
    from shardplan.launch.audit.answer import Audit
    from shardplan.launch.audit.improve import Improvement
    from shardplan.launch.dialects.reading import Break

LABELS: Final[dict[str, tuple[str, Tone]]] = {
    "stops": ("Broken", "bad"),
    "changes": ("Changed", "warning"),
    "notice": ("Notice", "quiet"),
}
SIZES: Final = ("num_hidden_layers", "hidden_size", "num_experts")
"""What is said of a model that is not known."""
MOST_NOTES: Final = 6
ORDER: Final = tuple(each.name for each in fields(Plan))
"""Fields of a plan as it declares them: degrees first."""


def audit_document(audit: Audit, *, states_assumptions: bool = False, is_whole: bool = True) -> AnswerDocument:
    """The whole answer. ``is_whole``: with every note, and what the file states."""
    estimate, question = audit.estimate, audit.posed.question
    blocks = [*what_runs(audit), *taken_lines(audit.taken), *_violations(audit.violations)]
    parts = _missing(audit)
    if estimate is not None and question is not None:
        parts += [
            Part("", verdict(question, estimate, runs_on=_runs_on(audit))),
            memory_part(estimate),
            step_part(estimate, MOST_TERMS),
            *evidence_parts(estimate),
        ]
    # Changes as a diff of options
    lines = [line for each in audit.improvements for line in _improvement(each)]
    parts += (
        [Part("Better", lines, "predicted, the most valuable first (range: 8 in 10 measured pairs)")] if lines else []
    )
    parts += [observed_part(each) for each in audit.observed]
    parts += read_parts(audit, is_whole=is_whole)
    return AnswerDocument(
        name="audit",
        verdict=blocks,
        parts=[*parts, *([assumptions_part(assumed_texts(audit))] if states_assumptions else [])],
        assumptions=assumed_texts(audit),
        record=lambda: _record(audit),
        is_yes=audit.runs,
    )


def _runs_on(audit: Audit) -> str:
    """The file's framework where it is priced by the record of another one, or by none."""
    from shardplan.launch.audit.wording import OWN_NAMES

    name = (audit.reading.framework, audit.reading.version)
    if audit.posed.stack is None:
        return f"{' '.join(name)}, of whose behaviour there is no record: priced with the usual defaults"
    priced_as = audit.posed.stack.name if audit.estimate is None else audit.estimate.framework
    return f"{' '.join(name)}, priced as {priced_as}" if name in OWN_NAMES else ""


def what_runs(audit: Audit) -> list[Block]:
    """Framework, model, job, plan, world."""
    reading, posed = audit.reading, audit.posed
    lines = [Line(f"{reading.file}: {reading.framework} {reading.version}", tone="strong")]
    if posed.question is not None:
        lines += question_lines(posed.question)
    else:
        for label, text in (("Model", _model(audit)), ("Job", _listed(posed.job))):
            lines.append(Line(text or "not stated", label, "strong"))
    plan = {key: posed.fields[key] for key in ORDER if posed.fields.get(key) not in (None, False)}
    total = reading.value("num_accelerators")
    text = f"{total} accelerators" if total is not None else "number of accelerators not stated"
    world = Line("; ".join([text, *world_products(audit)]), "World", "strong")
    if audit.estimate is not None:  # whose verdict has the plan
        return [*lines, world]
    return [*lines, Line(_listed(plan) or "not stated", "Plan", "strong"), world]


def _model(audit: Audit) -> str:
    """What is known of the model of a file that leaves something open."""
    reading, model = audit.reading, audit.posed.model
    if model is not None:
        return f"{model.name}, {format_count(model.num_parameters)} parameters"
    sizes = {key: size for key in SIZES if (size := reading.value(key)) is not None}
    return ": ".join(filter(None, [str(reading.value("model") or reading.value("model_name") or ""), _listed(sizes)]))


def _listed(values: dict[str, Any]) -> str:
    """Fields with their values."""
    return ", ".join(f"{key.replace('_', ' ')} {field_text(value)}" for key, value in values.items())


def _violations(found: Sequence[Break]) -> list[Line]:
    """Rules that are broken, what stops the run first."""
    if not found:
        return [Line("no rule is broken", "Rules", "good")]
    return [
        Line((Span(f"{each.rule}: ", "strong"), Span(f"{each.values}; {each.knob}.")), *LABELS[each.severity])
        for each in found
    ]


def _missing(audit: Audit) -> list[Part]:
    """What must be given."""
    missing = audit.posed.missing
    if not missing:
        return []
    after = ", as arguments after --" if any("arg:" in why for why in missing.values()) else ""
    together: dict[str, list[str]] = {}
    for key, why in missing.items():
        together.setdefault(why, []).append(key.replace("_", " "))
    note = f"for an estimate; give it by --model, --cluster, --gpus, --env{after} or --given KEY=VALUE"
    return [Part("Needed", [Bullets([f"{', '.join(keys)}: {why}" for why, keys in together.items()])], note)]


def change_texts(each: Improvement) -> list[str]:
    """Every field that changes, before and after."""
    return [f"{field_name(key)} {field_text(old)} -> {field_text(new)}" for key, (old, new) in each.change.items()]


def _improvement(each: Improvement) -> Iterable[Line]:
    change = ", ".join(change_texts(each))
    time, memory = format_time(each.estimate.step_time), format_bytes(each.estimate.peak_memory_bytes)
    yield Line(f"{each.gain_text}: {time} a step, {memory}: {change}", tone="strong")
    options: list[tuple[str, Tone]] = [(f"- {option}", "wrong") for option in each.removed]
    options += [(f"+ {option}", "useful") for option in each.added]
    options += [(f"untested: {text.partition(': ')[2]}", "doubt") for text in each.estimate.untested]
    for text, tone in options:
        yield Line(text, tone=tone, indent=4)


def read_parts(audit: Audit, *, is_whole: bool = True) -> list[Part]:
    """What was not understood, and what a reader should know; of the whole also what the file states."""
    texts = [f"not understood: {each}" for each in audit.reading.not_understood] + list(audit.reading.notes)
    shown = texts if is_whole else texts[:MOST_NOTES]
    left = len(texts) - len(shown)
    more = [Line(f"{left} more with --all.", tone="quiet", only="terminal")] if left else []
    notes = [Part("Notes", [Bullets(shown, "quiet"), *more])] if texts else []
    return [*notes, _stated(audit)] if is_whole else notes


def assumed_texts(audit: Audit) -> tuple[str, ...]:
    """Defaults that were taken."""
    assumed = {**audit.posed.assumed, **audit.reading.assumed}
    texts = (f"{key.replace('_', ' ')} {field_text(value)}: {why}" for key, (value, why) in assumed.items())
    return (*texts, *audit.posed.assumptions)


STATED: Final = (
    Column("", "field", lambda each: each[0].replace("_", " "), is_text=True),
    Column("", "value", lambda each: each[1].value, field_text, is_text=True),
    Column("", "where", lambda each: each[1].why, is_text=True),
)


def _stated(audit: Audit) -> Part:
    """What the file states, with the place of each."""
    facts = [(key, each) for key, each in audit.reading.facts.items() if each.origin != "assumed"]
    return Part("Stated", [RowTable(facts, STATED)], "by the file, and where")


def _record(audit: Audit) -> dict[str, Any]:
    """What ``audit --json`` writes; docs/output.md has every key."""
    from shardplan.reports.plan_file import estimate_record  # takes time to import

    reading, posed = audit.reading, audit.posed
    return {
        "file": reading.file,
        "framework": reading.framework,
        "framework_version": reading.version,
        "model": reading.of(MODEL_KEYS) if posed.model is None else model_record(posed.model),
        "job": posed.job if posed.question is None else plain(posed.question.job),
        "plan": posed.fields if posed.plan is None else plain(posed.plan),
        "num_accelerators": reading.value("num_accelerators"),
        "world": _world(audit),
        "stated": list(reading.stated),
        "places": {key: fact.why for key, fact in reading.facts.items() if fact.origin != "assumed"},
        "assumed": plain({**posed.assumed, **reading.assumed}),
        "taken": plain(audit.taken),
        "missing": list(posed.missing),
        "missing_because": posed.missing,
        "not_understood": list(reading.not_understood),
        "notes": list(reading.notes),
        "runs": audit.runs,
        "violations": plain(audit.violations),
        "estimate": None if audit.estimate is None else estimate_record(audit.estimate),
        "improvements": [_improvement_record(each) for each in audit.improvements],
        "observed": [observed_record(each) for each in audit.observed],
    }


def _improvement_record(better: Improvement) -> dict[str, Any]:
    return {
        "change": plain(better.change),
        "flags": [*(f"- {each}" for each in better.removed), *(f"+ {each}" for each in better.added)],
        "untested": list(better.estimate.untested),
        "step_time_s": better.estimate.step_time,
        "peak_memory_bytes": better.estimate.peak_memory_bytes,
        "gain": better.gain,
        "gain_band": None if better.gain_band is None else list(better.gain_band),
    }


def world_products(audit: Audit) -> list[str]:
    """The degrees whose product is the world: of dense layers, and of experts where they are spread otherwise."""
    parts = _world(audit) if audit.posed.fields.get("ep") not in {None, False, 1} else {"dense": _world(audit)["dense"]}
    return [
        " x ".join(f"{key} {'?' if value is None else value}" for key, value in degrees.items())
        for degrees in parts.values()
    ]


def _world(audit: Audit) -> dict[str, dict[str, int | None]]:
    """Both factorisations of the world: tp cp dp pp, and etp ep edp pp; null where a degree is open."""
    fields = audit.posed.fields if audit.posed.plan is None else plain(audit.posed.plan)
    total = audit.reading.value("num_accelerators")
    tp, cp, pp, etp, ep = (fields.get(name) for name in ("tp", "cp", "pp", "etp", "ep"))
    if etp is None and ep == 1:
        etp = 1
    return {
        "dense": {"tp": tp, "cp": cp, "dp": _left(total, tp, cp, pp), "pp": pp},
        "experts": {"etp": etp, "ep": ep, "edp": _left(total, etp, ep, pp), "pp": pp},
    }


def _left(total: object, *degrees: object) -> int | None:
    """Accelerators over the product of degrees; None where that is not whole or not known."""
    known = [each for each in (total, *degrees) if isinstance(each, int) and each >= 1]
    if len(known) <= len(degrees):
        return None
    whole, product = known[0], prod(known[1:])
    return whole // product if whole % product == 0 else None
