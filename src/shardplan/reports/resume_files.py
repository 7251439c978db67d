"""The two runs of ``resume``: each a plan file, or a launch file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from shardplan.base.files import parse_json, read_text
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.model import ModelConfig
from shardplan.launch.audit.question import put
from shardplan.launch.dialects.ask import Ask
from shardplan.launch.dialects.read import read_launch
from shardplan.launch.resume.answer import ResumeSide, side_of_plan, side_of_reading
from shardplan.reports.plan_file import PLAN_FILE, read_plan_file

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
    return side_of_reading(reading, put(reading, model, cluster))


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
