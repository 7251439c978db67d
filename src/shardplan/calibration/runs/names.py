"""Names in measured runs that are not those of the catalogue but can mean one thing there only."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from shardplan.calibration.runs.rows import MeasuredRun
from shardplan.inputs.readers.names import name_meant, taken_as


def with_own_names(run: MeasuredRun) -> tuple[MeasuredRun, tuple[str, ...]]:
    """The run with the catalogue's names of its accelerator and model, and what was taken as what."""
    found = {
        "model": None if _is_file(run.folder, run.model) else name_meant("model", run.model),
        "accelerator": None if _is_file(Path(), run.accelerator) else name_meant("accelerator", run.accelerator),
    }
    changed = {column: name for column, name in found.items() if name is not None}
    taken = tuple(f"{column} {taken_as(column, getattr(run, column))}" for column in changed)
    return (replace(run, **changed) if changed else run), taken  # type: ignore[arg-type] # names of both are text


def _is_file(folder: Path, name: str) -> bool:
    """Whether the name is the path of something there."""
    try:
        return "/" in name and (folder / name).exists()
    except (OSError, ValueError):  # too long, or with a null character
        return False
