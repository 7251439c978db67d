"""What ``shardplan rl`` was asked: with another size, after a change, and as a file that others read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from shardplan.ask.forms import Replaced
from shardplan.ask.rl_forms import RlForm
from shardplan.base.errors import InputError, UnknownNameError, shown
from shardplan.base.fields import check, dataclass, described
from shardplan.base.files import parse_document, read_text
from shardplan.base.records import Record, plain
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.job import Job
from shardplan.inputs.profile import generations
from shardplan.inputs.readers.cluster_record import cluster_from_record
from shardplan.inputs.readers.typed import values_of
from shardplan.planner.stopping import Stop
from shardplan.reports.model_record import model_from_record, model_record
from shardplan.reports.plan_file import PLAN_FILE, inputs_from_record, inputs_record
from shardplan.rl.asked import AskedRl, ask_rl
from shardplan.rl.lengths import Lengths
from shardplan.rl.programs import framework_of
from shardplan.rl.search import RlResult, search_rl
from shardplan.rl.task import RlTask

SCHEMA: Final = "shardplan/rl/1"
OF_RECORD: Final = ("gpus", "cluster", "accelerator", "stack", "profile")
"""What a change can name besides fields of the step, of the job and values of the cluster."""
DERIVED: Final = ("sequence_length", "global_batch_size")
"""Fields of the job that follow from the answers."""
IN_FULL: Final = ("model", "cluster", "accelerator", "overrides", "profile")
"""Entries of a question in whose place a file has the model, the cluster and the constants in full."""
OBJECTS: Final = ("critic", "rollout_cluster", "response_tokens")
"""Fields that are texts of a form and may be objects in Python."""
TEXTS: Final = ("observed",)
"""Fields that are lists of texts, of which one may stand alone."""


@dataclass(frozen=True, kw_only=True)
class RlQuestion:
    """The question of a trainer and the fields of an RL step."""

    record: Mapping[str, Any]
    """As :func:`shardplan.ask.questions.ask` takes it."""
    step: Mapping[str, Any]
    """Fields of ``RlForm``."""
    reads_files: bool = True
    stop: Stop | None = None

    def posed(self) -> AskedRl:
        """The task. Raises InputError, which names the field."""
        fixed = {name: ",".join(map(str, value)) if isinstance(value, list | tuple) else value
                 for name, value in (self.record.get("fix") or {}).items()}  # fmt: skip
        framework_of(self.step.get("framework")).check_step({**self.step, **fixed})
        return ask_rl(self.record, self.step, reads_files=self.reads_files, stop=self.stop)

    def result(self) -> RlResult:
        """The best plan of every placement. Raises InputError."""
        asked = self.posed()
        return search_rl(asked.task, asked.searches)

    def on(self, num_accelerators: int) -> RlQuestion:
        """The same on another number of accelerators."""
        record = {name: value for name, value in self.record.items() if name != "nodes"}
        return replace(self, record={**record, "num_accelerators": num_accelerators})

    def with_values(self, overrides: Mapping[str, Any], fields: Mapping[str, Any]) -> RlQuestion:
        """The same with other values of the cluster and other fields of the step."""
        replaced = {**(self.record.get("overrides") or {}), **overrides}
        return replace(self, record={**self.record, "overrides": replaced}, step={**self.step, **fields})

    def changed(self, name: str, value: Any) -> RlQuestion:
        """The same after a change, a text read as the flag of that name reads it. Raises InputError."""
        field = name.strip("-").replace("-", "_")
        if field in described(RlForm) and field != "observed":
            return self.with_values({}, {field: _typed(RlForm, field, value)})
        if field in ("gpus", "num_accelerators"):
            return replace(self, record={**self.on(1).record, "num_accelerators": value})
        if field == "accelerator" and isinstance(self.record.get("cluster"), Cluster):
            cluster = self.record["cluster"].name
            return replace(self, record={**self.record, "cluster": cluster, field: value})
        if field in OF_RECORD:
            return replace(self, record={**self.record, field: value})
        if field in described(Replaced):
            return self.with_values({field: value}, {})
        if field in described(Job) and field not in DERIVED:
            return replace(self, record={**self.record, field: _typed(Job, field, value)})
        known = (*described(RlForm), *OF_RECORD, *described(Replaced))
        raise UnknownNameError("change", name[:60], known, hint="write --change samples=16 or --change memory=141GB")

    def as_record(self, task: RlTask) -> Record:
        """The same as JSON can hold it; the model, the cluster and the constants stand beside it, in full."""
        record = {name: value for name, value in self.record.items() if name not in IN_FULL and _is_given(value)}
        if self.record.get("profile") in generations():
            record["profile"] = self.record["profile"]
        if isinstance(record.get("job"), Job | Mapping):
            job = plain(record["job"])
            record["job"] = {name: value for name, value in job.items() if name not in DERIVED}
        step = {name: value for name, value in self.step.items() if _is_given(value)}
        if "critic" in step and task.critic is not None:
            step["critic"] = model_record(task.critic)
        if "rollout_cluster" in step:
            step["rollout_cluster"] = plain(task.generating)
        if task.answers.lengths.measured or isinstance(step["response_tokens"], Lengths):
            step["response_tokens"] = plain(task.answers.lengths)
        return {"question": plain(record), "step": plain(step)}


def _is_given(value: Any) -> bool:
    return value is not None and value is not False and value not in ({}, [])


def _typed(record: type[Any], field: str, value: Any) -> Any:
    return values_of(record, {field: value})[field] if isinstance(value, str) else value


def inputs_of(task: RlTask) -> Record:
    """Model, cluster and constants in full, for whoever asks again or writes launch files of the plans."""
    question = task.question
    return inputs_record(model=question.model, cluster=question.cluster, profile=question.given_profile)


def is_rl_file(path: str | Path | None) -> bool:
    """Whether a path is that of an answer of ``shardplan rl``."""
    where = None if path is None else Path(path)
    if where is None or where.suffix != ".json" or not where.is_file():
        return False
    return parse_document(read_text(where, PLAN_FILE), label=str(path), is_json=True).get("schema") == SCHEMA


def read_rl_question(path: str | Path) -> RlQuestion:
    """The question of a file that ``shardplan rl ... --json`` wrote. Raises InputError."""
    record = parse_document(read_text(Path(path), PLAN_FILE), label=str(path), is_json=True)
    asked = record.get("asked")
    parts = [asked.get(name) if isinstance(asked, Mapping) else None for name in ("question", "step")]
    if record.get("schema") != SCHEMA or not isinstance(record.get("inputs"), Mapping):
        raise _no_question(path, f"has the schema {shown(str(record.get('schema')))}")
    if not all(isinstance(part, Mapping) for part in parts):
        raise _no_question(path, "does not say what was asked")
    question, step = (dict(part or {}) for part in parts)
    model, cluster, profile = inputs_from_record(record["inputs"])
    given = {name: value for name, value in question.items() if name not in IN_FULL}
    read = {"critic": model_from_record, "rollout_cluster": cluster_from_record, "response_tokens": _lengths}
    step |= {name: of(step[name]) for name, of in read.items() if isinstance(step.get(name), Mapping)}
    return RlQuestion(
        record={**given, "model": model, "cluster": cluster, "profile": question.get("profile", profile)},
        step=checked_step(step),
    )


def _lengths(record: Mapping[str, Any]) -> Lengths:
    known: dict[str, Any] = {name: record.get(name) for name in ("mean", "cap", "spread", "endless")}
    measured = record.get("measured")
    if not all(isinstance(each, int | float) for each in (*known.values(), *(measured or ()))):
        raise InputError(
            f"response_tokens is {shown(dict(record))}",
            rule="lengths in full have a mean, a cap, a spread, a share that is endless, and those measured",
            hint="make the file again with `shardplan rl ... --json rl.json`",
        )
    return Lengths.of_file(measured, known["cap"]) if measured else Lengths(**known)


def _no_question(path: str | Path, what: str) -> InputError:
    return InputError(
        f"{path} {what}",
        rule="a question of RL is asked again from the answer of `shardplan rl`",
        hint="make it with `shardplan rl ... --json rl.json`",
    )


def checked_step(step: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an RL step, each of its type and within its bounds. Raises InputError."""
    found = {name: value for name, value in step.items() if value is not None}
    for name in ("reference", "old_pass"):
        if isinstance(found.get(name), bool):
            found[name] = "yes" if found[name] else "no"
    for name in TEXTS:
        if name in found:
            found[name] = [found[name]] if isinstance(found[name], str) else [*found[name]]
    unknown = next((name for name in found if name not in described(RlForm)), None)
    if unknown is not None:
        raise UnknownNameError("field of an RL step", str(unknown)[:60], described(RlForm), hint="see shardplan.rl")
    objects: dict[str, Any] = {
        name: found.pop(name) for name in OBJECTS if not isinstance(found.get(name), str) and name in found
    }
    form = RlForm(**found)
    check(form)
    return {**{name: getattr(form, name) for name in found}, **objects}
