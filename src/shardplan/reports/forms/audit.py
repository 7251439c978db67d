"""The audit of a launch file as a record."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Final

from shardplan.launch.dialects.models import KEYS as MODEL_KEYS
from shardplan.launch.dialects.reading import Break
from shardplan.records import Record, plain
from shardplan.reports.model_record import model_record

if TYPE_CHECKING:
    from shardplan.launch.audit.answer import Audit
    from shardplan.launch.audit.improve import Improvement
    from shardplan.launch.audit.observed import GapCause, GapExplanation

SCHEMA: Final = "shardplan/audit/1"


def audit_record(audit: Audit) -> Record:
    """What `shardplan audit --json` writes; docs/output.md has every key."""
    from shardplan.reports.plan_file import estimate_record  # takes time, and text needs none of it

    reading, put = audit.reading, audit.put
    return {
        "schema": SCHEMA,
        "file": reading.file,
        "framework": reading.framework,
        "framework_version": reading.version,
        "model": reading.of(MODEL_KEYS) if put.model is None else model_record(put.model),
        "job": put.job if put.question is None else plain(put.question.job),
        "plan": put.fields if put.plan is None else plain(put.plan),
        "num_accelerators": reading.value("num_accelerators"),
        "world": world_record(audit),
        "stated": list(reading.stated),
        "places": {key: fact.why for key, fact in reading.facts.items() if fact.origin != "assumed"},
        "assumed": {key: [_plain(value), why] for key, (value, why) in {**put.assumed, **reading.assumed}.items()},
        "missing": list(put.missing),
        "missing_because": put.missing,
        "not_understood": list(reading.not_understood),
        "notes": list(reading.notes),
        "runs": audit.runs,
        "violations": [violation_record(each) for each in audit.violations],
        "estimate": None if audit.estimate is None else estimate_record(audit.estimate),
        "improvements": [improvement_record(each) for each in audit.improvements],
        "observed": [_explanation(each) for each in audit.observed],
    }


def world_record(audit: Audit) -> Record:
    """Both factorisations of the world: tp cp dp pp, and etp ep edp pp; null where a degree is open."""
    fields = audit.put.fields if audit.put.plan is None else plain(audit.put.plan)
    total = audit.reading.value("num_accelerators")
    found = {name: fields.get(name) for name in ("tp", "cp", "pp", "etp", "ep")}
    if found["etp"] is None and found["ep"] == 1:
        found["etp"] = 1
    return {
        "dense": {
            "tp": found["tp"],
            "cp": found["cp"],
            "dp": _left(total, found["tp"], found["cp"], found["pp"]),
            "pp": found["pp"],
        },
        "experts": {
            "etp": found["etp"],
            "ep": found["ep"],
            "edp": _left(total, found["etp"], found["ep"], found["pp"]),
            "pp": found["pp"],
        },
    }


def _left(total: object, *degrees: object) -> int | None:
    """Accelerators over the product of degrees; None where that is not whole or not known."""
    product = 1
    for each in (total, *degrees):
        if not isinstance(each, int) or each < 1:
            return None
    for each in degrees:
        product *= int(str(each))
    whole = int(str(total))
    return whole // product if whole % product == 0 else None


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def violation_record(broken: Break) -> Record:
    """A rule that is broken."""
    return asdict(broken)


def improvement_record(better: Improvement) -> Record:
    """A change with what it gives."""
    return {
        "change": {key: [_plain(old), _plain(new)] for key, (old, new) in better.change.items()},
        "flags": [*(f"- {each}" for each in better.removed), *(f"+ {each}" for each in better.added)],
        "unsaid": list(better.unsaid),
        "untested": list(better.estimate.untested),
        "step_time_s": better.estimate.step_time,
        "peak_memory_bytes": better.estimate.peak_memory_bytes,
        "gain": better.gain,
    }


def _explanation(each: GapExplanation) -> Record:
    return {
        "text": each.observed.text,
        "kind": each.observed.kind,
        "meaning": each.meaning,
        "ratio": each.ratio,
        "in_band": each.is_in_band,
        "causes": [_cause(cause) for cause in each.causes],
    }


def _cause(cause: GapCause) -> Record:
    named = {"step_time": "step_time_s"}
    return {named.get(key, key): value for key, value in asdict(replace(cause)).items()}
