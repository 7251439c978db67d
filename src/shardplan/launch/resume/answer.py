"""Whether a checkpoint is loaded under another plan: by the record of its framework, and by nothing else.

Every state that a checkpoint holds depends on some fields of the run. A state of which no such field has changed is
kept. For each field that has changed the record is asked; the worst outcome of a state counts. What the record does not
say is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from shardplan.fields import dataclass
from shardplan.launch.resume.record import ALWAYS, CheckpointRecord, Outcome, record_for
from shardplan.launch.resume.side import FIELDS, ResumeSide

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
    changed, missing = _differences(old.fields, new.fields), _open(old, new)
    model = _differences(old.model, new.model)
    values = {name: value for name, (value, _) in settings.items()} | {"sharding": old.fields.get("sharding")}
    states = () if record is None or not same else _states(record, old, new, values)
    frameworks = " loaded by ".join(dict.fromkeys(each.framework or "a plan without framework" for each in (old, new)))
    verdict, why = _verdict(frameworks, record if same else None, model, missing, states)
    return Resume(
        old=old,
        new=new,
        record=record if same else None,
        changed=changed,
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


def _open(old: ResumeSide, new: ResumeSide) -> tuple[str, ...]:
    """Fields that weights and optimizer depend on, and that one of the two leaves open."""
    needed = [each for each in FIELDS if each in _LAYOUT and each not in {"stage_layers", "etp"}]
    return tuple(f"{key} of {side.name}" for key in needed for side in (old, new) if side.fields.get(key) is None)


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
    rule = record.rule(state, ALWAYS, settings)
    if rule is not None:
        only = Reason(field=ALWAYS, outcome=rule.outcome, why=rule.why, fix=rule.fix, source=rule.source)
        return Carried(state=state, outcome=rule.outcome, reasons=(only,))
    reasons = tuple(_reason(record, state, key, settings) for key in changed)
    if not changed:
        known = state in LAID_OUT or record.knows(state)
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
