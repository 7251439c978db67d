"""The answer of ``resume``: its two files, the verdict, what changes, what becomes of every state, and the load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from shardplan.answers.document import AnswerDocument, Block, Bullets, Line, Tone
from shardplan.base.fields import dataclass
from shardplan.base.files import parse_json, read_text
from shardplan.base.records import Record
from shardplan.base.units import format_bytes, format_time
from shardplan.decide.goodput import checkpoint_bytes, num_parameters
from shardplan.decide.operations import Operations
from shardplan.estimation.pricing import num_trained_parameters
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.model import ModelConfig
from shardplan.launch.audit.question import posed
from shardplan.launch.dialects.ask import Ask
from shardplan.launch.dialects.read import read_launch
from shardplan.launch.resume.answer import Reason, Resume, ResumeSide, side_of_plan, side_of_reading
from shardplan.reports.plan_file import PLAN_FILE, read_plan_file
from shardplan.reports.texts.plan import field_text

SIDES: Final = ("old", "new")


def side_of_file(
    path: Path,
    *,
    framework: str | None = None,
    model: ModelConfig | None = None,
    cluster: Cluster | None = None,
    env: Mapping[str, str] | None = None,
    given: Mapping[str, str] | None = None,
) -> ResumeSide:
    """One run by its file; ``framework`` is that of a plan that names none. Raises InputError."""
    if _is_plan_file(path):
        found = read_plan_file(path)
        answer = found.pick(found.best_pick)
        return side_of_plan(str(path), found.question, answer.plan, answer.framework or framework)
    reading = read_launch(Ask(path=path, env=dict(env or {}), given=dict(given or {})))
    return side_of_reading(reading, posed(reading, model, cluster))


def _is_plan_file(path: Path) -> bool:
    """Whether a file is one that shardplan wrote. Raises InputError for one that cannot be read."""
    if path.suffix.lower() != ".json":
        return False
    record = parse_json(read_text(path, PLAN_FILE), str(path)[:200])
    return isinstance(record, dict) and str(record.get("schema", "")).startswith("shardplan/")


def of_side(values: Mapping[str, str], side: str) -> dict[str, str]:
    """Values for one of :data:`SIDES`: those that begin with its name (``new.NODES``), and those that name none."""
    both = {key: value for key, value in values.items() if key.partition(".")[0] not in SIDES}
    own = {key.removeprefix(f"{side}."): value for key, value in values.items() if key.startswith(f"{side}.")}
    return both | own


def named(side: ResumeSide, framework: str | None) -> ResumeSide:
    """The same with a framework where it has none."""
    return side if side.framework or framework is None else replace(side, framework=framework)


VERDICTS: Final[dict[str, tuple[str, Tone]]] = {
    "yes": ("Yes: it resumes", "good"),
    "partly": ("It resumes in part", "warning"),
    "after conversion": ("It resumes after a conversion", "warning"),
    "no": ("No: it does not resume", "bad"),
    "unknown": ("Not known", "warning"),
}
OUTCOMES: Final = {
    "kept": "kept",
    "converted": "kept, after a conversion",
    "reset": "not kept",
    "unsupported": "not loaded",
    "unknown": "not known",
}


@dataclass(frozen=True, kw_only=True)
class Load:
    """What is read of a checkpoint."""

    saved_bytes: float
    """Of the whole checkpoint. [bytes]"""
    loaded_bytes: float
    """Of the states that are loaded, each once. [bytes]"""
    time: float
    """At the bandwidth of checkpoints; ranks that read the same bytes add to it. [s]"""
    assumptions: tuple[str, ...]
    """Where the bandwidth comes from."""


def load_of(found: Resume, operations: Operations) -> Load | None:
    """What is read; None where nothing is, or where a run leaves open how large its checkpoint is."""
    saved, reads = found.old.question, found.new.question or found.old.question
    if not found.loads or saved is None or reads is None:
        return None
    whole = checkpoint_bytes(saved)
    weights = saved.job.recipe.weight_bytes * num_parameters(saved.model, num_trained_parameters(saved))
    loaded = weights if found.outcome("optimizer") == "reset" else whole
    number = found.new.fields.get("num_accelerators", reads.num_accelerators)
    assert isinstance(number, int)
    return Load(
        saved_bytes=whole,
        loaded_bytes=loaded,
        time=loaded / (number * operations.value("checkpoint_bandwidth")),
        assumptions=tuple(each for each in operations.assumptions() if each.startswith("checkpoint bandwidth")),
    )


def resume_document(found: Resume, load: Load | None) -> AnswerDocument:
    """The whole answer. ``load``: what is read of the checkpoint, where that is known."""
    return AnswerDocument(
        name="resume", verdict=[*_lines(found, load)], record=lambda: _record(found, load), is_yes=found.loads
    )


def _lines(found: Resume, load: Load | None) -> Iterator[Block]:
    text, tone = VERDICTS[found.verdict]
    yield Line(f"{text}; {found.why}", tone=tone)
    if found.record is not None:
        yield Line(f"{found.record.label}, {found.record.repository}", "Record", "strong")
    yield Line(_changes(found), "Changes", "strong")
    if found.missing:
        yield Line(", ".join(found.missing), "Missing", "strong")
    if found.record is not None:
        # Options that a file states
        stated = (
            f"{name.replace('_', ' ')} {field_text(value)} ({why})"
            for name, (value, why) in found.settings.items()
            if not why.startswith("default of ")
        )
        yield Line(", ".join(stated) or "defaults", "Options", "strong")
    for each in found.states:
        yield Line(f"{each.state.capitalize()}: {OUTCOMES[each.outcome]}")
        yield Bullets(tuple(dict.fromkeys(_reason(reason, each.reasons) for reason in each.reasons)))
    if load is not None:
        yield Line(f"{format_bytes(load.loaded_bytes)}, at least {format_time(load.time)}", "Load", "strong")
        yield Bullets(load.assumptions, "quiet")
    if found.record is not None:
        yield Line(found.record.confirm, "Check", "strong")


def _changes(found: Resume) -> str:
    """Fields of model and plan that differ."""
    differs = {**found.model_changed, **found.changed}
    if {"pp", "vp"} & set(differs):
        differs = {key: pair for key, pair in differs.items() if key != "stage_layers"}
    return ", ".join(f"{key} {_text(old)} -> {_text(new)}" for key, (old, new) in differs.items()) or "nothing"


def _text(value: object) -> str:
    return ",".join(str(each) for each in value) if isinstance(value, tuple) else field_text(value)


def _reason(reason: Reason, all_reasons: Sequence[Reason]) -> str:
    """One reason, with all the fields that it is the reason of."""
    alike = [each.field for each in all_reasons if each.why == reason.why and each.field != "always"]
    source = f" [{reason.source}]" if reason.source else ""
    fix = f" To do: {reason.fix}." if reason.fix else ""
    return f"{', '.join(alike)}{': ' if alike else ''}{reason.why}.{fix}{source}"


def _record(found: Resume, load: Load | None) -> Record:
    """What `shardplan resume --json` writes; docs/output.md has every key."""
    record = found.record
    return {
        "verdict": found.verdict,
        "why": found.why,
        "loads": found.loads,
        "old": _side(found.old),
        "new": _side(found.new),
        "changed": {key: list(pair) for key, pair in {**found.model_changed, **found.changed}.items()},
        "missing": list(found.missing),
        "settings": {name: list(pair) for name, pair in found.settings.items()},
        "states": [asdict(each) for each in found.states],
        "record": None
        if record is None
        else {key: getattr(record, key) for key in ("name", "version", "date", "repository", "commit")},
        "confirm": None if record is None else record.confirm,
        "saved_bytes": None if load is None else load.saved_bytes,
        "loaded_bytes": None if load is None else load.loaded_bytes,
        "load_time_s": None if load is None else load.time,
        "assumptions": [] if load is None else list(load.assumptions),
    }


def _side(side: ResumeSide) -> Record:
    return {
        "name": side.name,
        "framework": side.framework,
        "fields": {key: list(value) if isinstance(value, tuple) else value for key, value in side.fields.items()},
        "model": dict(side.model),
    }
