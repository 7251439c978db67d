"""Whether a checkpoint can be loaded as a record, with the bytes that are read and how long that takes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from shardplan.decisions.duration import checkpoint_bytes, num_parameters
from shardplan.decisions.operations import Operations
from shardplan.estimation.pricing import num_trained_parameters
from shardplan.fields import dataclass
from shardplan.launch.resume.answer import Resume, ResumeSide
from shardplan.records import Record

SCHEMA: Final = "shardplan/resume/1"


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


def resume_record(found: Resume, load: Load | None) -> Record:
    """What `shardplan resume --json` writes; docs/output.md has every key."""
    record = found.record
    return {
        "schema": SCHEMA,
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
