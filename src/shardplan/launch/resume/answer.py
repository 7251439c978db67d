"""Whether one run can load the checkpoints of another: what is kept of them, what is not, and why.

Every state that a checkpoint holds depends on some fields of the run. A state of which no such field has changed is
kept. For each field that has changed the record is asked; the worst outcome of a state counts. What the record does not
say is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Final, Literal

from shardplan.base.fields import dataclass
from shardplan.estimation.question import Question
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan, chunk_layers
from shardplan.launch.audit.question import Posed
from shardplan.launch.dialects.reading import Reading
from shardplan.launch.resume.record import ALWAYS, CheckpointRecord, Outcome, record_for

PLAN_FIELDS: Final = ("tp", "cp", "pp", "vp", "ep", "etp", "sharding", "micro_batch_size")
JOB_FIELDS: Final = ("precision", "optimizer", "global_batch_size", "sequence_length")
FIELDS: Final = (*PLAN_FIELDS, "dp", "stage_layers", *JOB_FIELDS, "num_accelerators")
"""Fields of a run on which it may depend whether a checkpoint is loaded."""
MODEL_FIELDS: Final = (
    "num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads",
    "vocab_size", "num_experts", "moe_intermediate_size",
)  # fmt: skip
"""Dimensions on which shapes of weights depend."""
CHECKPOINT: Final = "checkpoint."
"""What keys of settings begin with in a reading."""


@dataclass(frozen=True, kw_only=True)
class ResumeSide:
    """One run."""

    name: str
    """The file, or ``plan``."""
    framework: str | None
    """Whose checkpoints they are; None where a plan names none."""
    fields: Mapping[str, object]
    """Values of :data:`FIELDS` that are known."""
    model: Mapping[str, object]
    """Values of :data:`MODEL_FIELDS` that are known."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Options of checkpoints that it states."""
    question: Question | None = None
    """The whole question; None where a file leaves something open."""


def side_of_plan(name: str, question: Question, plan: Plan, framework: str | None) -> ResumeSide:
    """A plan of a plan file or of a search. ``framework``: its name, with a version behind it or not."""
    job, model = question.job, question.model
    values: dict[str, object] = {key: getattr(plan, key) for key in PLAN_FIELDS}
    values |= {key: getattr(job, key) for key in JOB_FIELDS}
    values |= {"num_accelerators": question.num_accelerators, "dp": plan.dp(question.num_accelerators)}
    return ResumeSide(
        name=name,
        framework=framework.partition(" ")[0].partition("@")[0] if framework else None,
        fields=values | _layers(plan.stage_layers, values, model),
        model=_dimensions(model),
        question=question,
    )


def side_of_reading(reading: Reading, posed: Posed) -> ResumeSide:
    """A launch file, as it is read."""
    values = {key: value for key in FIELDS if (value := reading.value(key)) is not None}
    if posed.plan is not None and posed.question is not None:
        whole = side_of_plan(reading.file, posed.question, posed.plan, reading.framework)
        values = {**whole.fields, **values}
    dp = _dp(values)
    values |= {} if dp is None else {"dp": dp}
    model = {key: value for key in MODEL_FIELDS if (value := reading.value(key)) is not None}
    known = {} if posed.model is None else _dimensions(posed.model)
    return ResumeSide(
        name=reading.file,
        framework=reading.framework,
        fields=values | _layers(values.get("stage_layers"), values, posed.model),
        model=known | model,
        settings={
            key.removeprefix(CHECKPOINT): fact.value
            for key, fact in reading.facts.items()
            if key.startswith(CHECKPOINT)
        },
        question=posed.question,
    )


def _dimensions(model: ModelConfig) -> dict[str, object]:
    return {key: value for key in MODEL_FIELDS if (value := getattr(model, key, None)) is not None}


def _dp(values: Mapping[str, object]) -> int | None:
    """Replicas, where the degrees divide the accelerators."""
    total, degrees = values.get("num_accelerators"), [values.get(key) for key in ("tp", "cp", "pp")]
    if not isinstance(total, int) or not all(isinstance(each, int) and each > 0 for each in degrees):
        return None
    product = math.prod(each for each in degrees if isinstance(each, int))
    return None if total % product else total // product


def _layers(stated: object, values: Mapping[str, object], model: ModelConfig | None) -> dict[str, object]:
    """Layers of every chunk, as stated or as even as can be."""
    pp, vp = values.get("pp"), values.get("vp")
    if isinstance(stated, list | tuple):
        return {"stage_layers": tuple(stated)}
    if model is None or not isinstance(pp, int) or not isinstance(vp, int):
        return {}
    return {"stage_layers": tuple(chunk_layers(model.num_hidden_layers, pp * vp, model.num_mtp_layers))}


_LAYOUT: Final = ("tp", "cp", "pp", "vp", "ep", "etp", "dp", "sharding", "stage_layers", "precision")
STATES: Final[Mapping[str, tuple[str, ...]]] = {
    "weights": _LAYOUT,
    "optimizer": (*_LAYOUT, "optimizer"),
    "data order": ("dp", "micro_batch_size", "global_batch_size", "sequence_length", "num_accelerators"),
    "random numbers": ("tp", "cp", "pp", "dp"),
    "fp8 scales": ("tp", "pp", "precision"),
}
"""What a checkpoint holds, and the fields on which it depends whether it can be loaded."""
LAID_OUT: Final = ("weights", "optimizer")
"""States that every framework saves, and reads where nothing has changed."""
SCALED: Final = "fp8"
"""The number format whose scales are kept from step to step."""
ORDER: Final[tuple[Outcome, ...]] = ("kept", "converted", "reset", "unknown", "unsupported")

Verdict = Literal["yes", "partly", "after conversion", "no", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Reason:
    """What one changed field does to a state."""

    field: str
    """The field; ``always`` where it is so whatever has changed."""
    outcome: Outcome
    """What happens."""
    why: str
    """The reason, as a sentence."""
    fix: str = ""
    """What to do about it."""
    source: str = ""
    """Where it was read; empty where the record does not say."""


@dataclass(frozen=True, kw_only=True)
class Carried:
    """What becomes of one state."""

    state: str
    """One of :data:`STATES`."""
    outcome: Outcome
    """The worst of its reasons."""
    reasons: tuple[Reason, ...]
    """One for each changed field that it depends on."""


@dataclass(frozen=True, kw_only=True)
class Resume:
    """Whether a run can go on from the checkpoint of another."""

    old: ResumeSide
    """The run that saved."""
    new: ResumeSide
    """The run that loads."""
    record: CheckpointRecord | None
    """What the answer is made from; None where there is no record for the two."""
    changed: Mapping[str, tuple[object, object]]
    """Old and new value of every field that differs."""
    model_changed: Mapping[str, tuple[object, object]]
    """Dimensions of the model that differ."""
    missing: tuple[str, ...]
    """Fields that one of the runs leaves open."""
    settings: Mapping[str, tuple[object, str]]
    """Options of checkpoints that count, with their values and where they come from."""
    states: tuple[Carried, ...]
    """What becomes of every state."""
    why: str
    """What decides the verdict, in a sentence."""
    verdict: Verdict
    """``yes``: all that is known is kept; ``partly``: it loads, and something starts over; ``after conversion``;
    ``no``; ``unknown``: the record does not say, or a file leaves something open."""

    @property
    def loads(self) -> bool:
        """Whether the framework loads it, be it without some state or after a conversion."""
        return self.verdict in {"yes", "partly", "after conversion"}

    def outcome(self, state: str) -> Outcome:
        """What becomes of one state."""
        return next((each.outcome for each in self.states if each.state == state), "unknown")


def resume(old: ResumeSide, new: ResumeSide) -> Resume:
    """Whether the framework of ``new`` loads what ``old`` saved."""
    record = record_for(old.framework or "")
    same = record is not None and record is record_for(new.framework or "")
    settings = _settings(record, old, new) if record is not None and same else {}
    needed = [each for each in FIELDS if each in _LAYOUT and each not in {"stage_layers", "etp"}]
    sides = ((key, side) for key in needed for side in (old, new))
    missing = tuple(f"{key} of {side.name}" for key, side in sides if side.fields.get(key) is None)
    model = _differences(old.model, new.model)
    values = {name: value for name, (value, _) in settings.items()} | {"sharding": old.fields.get("sharding")}
    states = () if record is None or not same else _states(record, old, new, values)
    frameworks = " loaded by ".join(dict.fromkeys(each.framework or "a plan without framework" for each in (old, new)))
    verdict, why = _verdict(frameworks, record if same else None, model, missing, states)
    return Resume(
        old=old,
        new=new,
        record=record if same else None,
        changed=_differences(old.fields, new.fields),
        model_changed=model,
        missing=missing,
        settings=settings,
        states=states,
        verdict=verdict,
        why=why,
    )


def _differences(old: Mapping[str, object], new: Mapping[str, object]) -> dict[str, tuple[object, object]]:
    """What both know, and differs."""
    return {key: (old[key], new[key]) for key in old if key in new and old[key] != new[key]}


def _settings(record: CheckpointRecord, old: ResumeSide, new: ResumeSide) -> dict[str, tuple[object, str]]:
    """Options that count, by name: as the run states them, or by their defaults."""
    found: dict[str, tuple[object, str]] = {}
    for name, setting in record.settings.items():
        side = old if setting.side == "old" else new
        stated = side.settings.get(name)
        default = (setting.default, f"default of {setting.option}: {setting.source}")
        found[name] = default if stated is None else (stated, f"{setting.option} of {side.name}")
    return found


def _states(
    record: CheckpointRecord, old: ResumeSide, new: ResumeSide, settings: Mapping[str, object]
) -> tuple[Carried, ...]:
    formats = {old.fields.get("precision"), new.fields.get("precision")}
    names = [name for name in STATES if name != "fp8 scales" or SCALED in formats]
    return tuple(_carried(record, name, _changed(record, name, old, new), settings) for name in names)


def _changed(record: CheckpointRecord, state: str, old: ResumeSide, new: ResumeSide) -> list[str]:
    """Fields of a state that have changed.

    Where the pipeline has changed, its layers have too and say nothing more. The number of accelerators counts by
    itself only where the record says so: what else depends on it is dp.
    """
    changed = _differences(old.fields, new.fields)
    found = [key for key in STATES[state] if key in changed]
    silent = {"stage_layers"} if {"pp", "vp"} & set(found) else set()
    silent |= set() if record.names(state, "num_accelerators") else {"num_accelerators"}
    return [key for key in found if key not in silent]


def _carried(record: CheckpointRecord, state: str, changed: list[str], settings: Mapping[str, object]) -> Carried:
    keys = changed if record.rule(state, ALWAYS, settings) is None else [ALWAYS]
    reasons = tuple(_reason(record, state, key, settings) for key in keys)
    if not reasons:
        known = state in LAID_OUT or record.names(state)
        return Carried(state=state, outcome="kept" if known else "unknown", reasons=())
    return Carried(state=state, outcome=max((each.outcome for each in reasons), key=ORDER.index), reasons=reasons)


def _reason(record: CheckpointRecord, state: str, key: str, settings: Mapping[str, object]) -> Reason:
    rule = record.rule(state, key, settings)
    if rule is None:
        return Reason(field=key, outcome="unknown", why=f"the record of {record.name} does not say")
    return Reason(field=key, outcome=rule.outcome, why=rule.why, fix=rule.fix, source=rule.source)


def _verdict(  # noqa: PLR0911  # one line for every answer
    frameworks: str,
    record: CheckpointRecord | None,
    model: Mapping[str, tuple[object, object]],
    missing: tuple[str, ...],
    states: tuple[Carried, ...],
) -> tuple[Verdict, str]:
    if model:
        texts = ", ".join(f"{key} {before} -> {after}" for key, (before, after) in model.items())
        return "no", f"it is another model: {texts}"
    if record is None:
        return "unknown", f"there is no record of checkpoints of {frameworks}"
    if missing:
        return "unknown", f"left open: {', '.join(missing)}"
    by = {each.outcome: each for each in reversed(states)}
    if "unsupported" in by:
        return "no", f"{by['unsupported'].state}: {_worst(by['unsupported']).why}"
    laid_out = next((each for each in states if each.state in LAID_OUT and each.outcome == "unknown"), None)
    if laid_out is not None:
        return "unknown", f"{laid_out.state}, {_worst(laid_out).field} changed: {_worst(laid_out).why}"
    if "converted" in by:
        return "after conversion", _worst(by["converted"]).fix
    begun_anew = [each.state for each in states if each.outcome in {"reset", "unknown"}]
    return ("partly", f"not kept, or not known: {', '.join(begun_anew)}") if begun_anew else ("yes", "all is kept")


def _worst(carried: Carried) -> Reason:
    return max(carried.reasons, key=lambda each: ORDER.index(each.outcome))
