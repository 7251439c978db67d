"""Plan files: a question with its answers, complete enough to be asked again. docs/output.md describes every key.

``plan_file_from_record(plan_file_record(file)) == file``.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_type_hints

import shardplan
from shardplan.errors import InputError, ShardplanError
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.question import Question
from shardplan.inputs.catalog import cluster_from_record, cluster_record
from shardplan.inputs.documents import parse_document
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.profile import Profile, load_profile
from shardplan.planner.result import SearchResult, Suggestion
from shardplan.reports.model_record import model_from_record, model_record
from shardplan.reports.refusal import first_problem

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = [
    "SCHEMA",
    "PlanFile",
    "SearchAccount",
    "estimate_record",
    "plan_file_from_record",
    "plan_file_record",
    "read_plan_file",
]

SCHEMA: Final = "shardplan/plan-file/1"
Record = dict[str, Any]

KEYS: Final = {
    "step_time": "step_time_s",
    "step_time_p10": "step_time_p10_s",
    "step_time_p90": "step_time_p90_s",
    "breakdown": "breakdown_s",
    "tokens_per_second_per_accelerator": "tokens_per_s_per_accelerator",
    "peak_flops": "peak_flops_per_s",
    "memory": "memory_bytes",
    "communication": "communication_bytes",
    "time_to_train": "time_to_train_s",
}
"""Fields of an estimate that carry their unit in a file."""

LATER: Final = ("peak_memory_p10_bytes", "peak_memory_p90_bytes")
"""Fields that the first files lack: read as a band without width."""

MAX_FILE_BYTES: Final = 64_000_000
"""Largest plan file that is read; a hundred plans of 64 stages stay under two million."""


@dataclass(frozen=True, kw_only=True)
class SearchAccount:
    """What a search looked at."""

    num_plans_evaluated: int
    """Valid plans."""
    num_plans_feasible: int
    """Those that fit in memory."""
    rejected: dict[str, int]
    """Combinations that break a rule, by rule."""
    search_time: float
    """Wall time. [s]"""
    space: dict[str, tuple[object, ...]]
    """Declared candidates of every axis."""
    suggestions: tuple[Suggestion, ...] = ()
    """Where nothing fits: changes that would."""
    smallest: Estimate | None = None
    """Where nothing fits: the valid plan that needs least memory."""

    @classmethod
    def of(cls, result: SearchResult) -> SearchAccount:
        """The account of ``result``."""
        return cls(**{field.name: getattr(result, field.name) for field in fields(cls)})


@dataclass(frozen=True, kw_only=True)
class PlanFile:
    """A question, its plans (best first), and the account of the search where there was one."""

    question: Question
    estimates: tuple[Estimate, ...]
    search: SearchAccount | None = None
    has_other_constants: bool = False
    """Whether the file's constants are of another version: to ask again gives other numbers."""

    @classmethod
    def of(cls, result: SearchResult) -> PlanFile:
        """The plan file of a search."""
        return cls(question=result.question, estimates=result.estimates, search=SearchAccount.of(result))

    def pick(self, number: int) -> Estimate:
        """The plan that stands in place ``number``, from 1. Raises InputError."""
        if not 1 <= number <= len(self.estimates):
            have = f"1 to {len(self.estimates)}" if self.estimates else "none: nothing fitted"
            raise InputError(
                f"plan {number} is asked for; the file holds {have}",
                rule="the picked plan is in the file",
                hint="set --pick to a number of its plans, from 1",
            )
        return self.estimates[number - 1]


def plan_file_record(file: PlanFile) -> Record:
    """``file`` as a mapping that JSON can hold; units stand in the keys."""
    question = file.question
    record: Record = {
        "schema": SCHEMA,
        "shardplan_version": shardplan.__version__,
        "model": model_record(question.model),
        "cluster": cluster_record(question.cluster),
        "num_accelerators": question.num_accelerators,
        "job": asdict(question.job),
        "plans": [estimate_record(estimate) for estimate in file.estimates],
    }
    return record | _account_record(file.search) | {"profile": _profile_record(question.profile)}


def estimate_record(estimate: Estimate) -> Record:
    """One element of ``plans``."""
    return {KEYS.get(name, name): _plain(value) for name, value in _shallow(estimate).items()}


def _account_record(account: SearchAccount | None) -> Record:
    if account is None:
        return {}
    return {
        "num_plans_evaluated": account.num_plans_evaluated,
        "num_plans_feasible": account.num_plans_feasible,
        "rejected": dict(account.rejected),
        "search_time_s": account.search_time,
        "space": {axis: list(values) for axis, values in account.space.items()},
        "suggestions": [
            {"change": each.change, "num_accelerators": each.num_accelerators, "plan": estimate_record(each.estimate)}
            for each in account.suggestions
        ],
        "smallest": None if account.smallest is None else estimate_record(account.smallest),
    }


def _profile_record(profile: Profile) -> Record:
    return {name: _plain(value) for name, value in _shallow(profile).items() if name != "constants"}


def _shallow(given: Any) -> Record:
    return {field.name: getattr(given, field.name) for field in fields(given)}


def _plain(value: object) -> object:
    """Tuples as lists, records as mappings."""
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(part) for name, part in _shallow(value).items()}
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return {key: _plain(part) for key, part in value.items()} if isinstance(value, Mapping) else value


def read_plan_file(path: Path | str) -> PlanFile:
    """The plan file at ``path``. Raises InputError on anything that is none."""
    label = str(path)[:200]
    record = parse_document(_text(Path(path), label), label=label, is_json=True)
    try:
        return plan_file_from_record(record)
    except ShardplanError as error:
        raise InputError(f"{label}: {error.message}", rule=error.rule, hint=error.hint) from None


def _text(path: Path, label: str) -> str:
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise _unreadable(label, "it is a directory" if stat.S_ISDIR(found.st_mode) else "it is no regular file")
        if found.st_size > MAX_FILE_BYTES:
            raise _unreadable(label, f"it has {found.st_size:,} bytes, more than {MAX_FILE_BYTES:,}")
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise _unreadable(label, "it is not text in UTF-8") from None
    except OSError as error:
        raise _unreadable(label, error.strerror or str(error)) from None
    except ShardplanError:
        raise
    except ValueError as error:  # a path with a null character
        raise _unreadable(repr(label), str(error)) from None


def plan_file_from_record(record: Mapping[str, Any]) -> PlanFile:
    """The plan file that :func:`plan_file_record` wrote. Raises InputError on a record that is none."""
    _check_schema(record)
    checked = _checked(record)
    cluster = cluster_from_record(checked.cluster)
    profile, is_older = _given_profile(checked.profile, load_profile(cluster.accelerator.generation))
    question = Question(
        model=model_from_record(checked.model),
        cluster=cluster,
        num_accelerators=checked.num_accelerators,
        job=checked.job,
        given_profile=profile,
    )
    return PlanFile(
        question=question,
        estimates=tuple(_estimate(plan) for plan in checked.plans),
        search=_account(checked),
        has_other_constants=is_older,
    )


def _check_schema(record: Mapping[str, Any]) -> None:
    if record.get("schema") == SCHEMA:
        return
    found = record.get("schema")
    what = f"its schema is {str(found)[:60]!r}, not {SCHEMA!r}" if found is not None else f"it has no schema {SCHEMA!r}"
    if isinstance(record.get("error"), Mapping):
        what = f"it holds the error of a command: {str(record['error'].get('message'))[:200]}"
    raise InputError(
        f"this is no plan file: {what}",
        rule="a plan file is one that `shardplan plan` or `shardplan estimate` wrote",
        hint="make one with `shardplan plan ... --json FILE`",
    )


def _checked(record: Mapping[str, Any]) -> Any:
    """The record with every value of its type. As JSON, because strict validation takes lists for tuples there."""
    from pydantic import ValidationError

    try:
        return _schema().model_validate_json(json.dumps(dict(record)))
    except ValidationError as error:
        cause = error.errors()[0].get("ctx", {}).get("error")
        place, why = first_problem(error, "", known=[f.name for kind in (Plan, Job) for f in fields(kind)])
        if isinstance(cause, ShardplanError):
            raise InputError(f"{place}: {cause.message}", rule=cause.rule, hint=cause.hint) from None
        raise _wrong(place, why) from None
    except (ValueError, RecursionError) as error:
        raise _wrong("the file", f"cannot be read: {error}") from None


def _estimate(checked: Any) -> Estimate:
    """A plan of a file, with the numbers that others divide by and count to in range."""
    for name in ("step_time", "peak_flops", "usable_memory_bytes", "peak_memory_bytes"):
        if not getattr(checked, name) > 0:
            raise _wrong(f"{KEYS.get(name, name)} of a plan", f"is {getattr(checked, name)}; it must be above zero")
    for name in ("slowest_stage", "fullest_stage"):
        if not 0 <= getattr(checked, name) < len(checked.memory):
            raise _wrong(f"{name} of a plan", f"is {getattr(checked, name)}, with {len(checked.memory)} stages")
    values = {field.name: getattr(checked, field.name) for field in fields(Estimate)}
    for name in LATER:
        values[name] = checked.peak_memory_bytes if values[name] is None else values[name]
    return Estimate(**values)


def _account(checked: Any) -> SearchAccount | None:
    if checked.num_plans_evaluated is None:
        return None
    return SearchAccount(
        num_plans_evaluated=checked.num_plans_evaluated,
        num_plans_feasible=checked.num_plans_feasible,
        rejected=checked.rejected,
        search_time=checked.search_time_s,
        space=checked.space,
        suggestions=tuple(
            Suggestion(change=each.change, estimate=_estimate(each.plan), num_accelerators=each.num_accelerators)
            for each in checked.suggestions
        ),
        smallest=None if checked.smallest is None else _estimate(checked.smallest),
    )


def _given_profile(given: Mapping[str, Any] | None, shipped: Profile) -> tuple[Profile | None, bool]:
    """The constants of the file, None where they are the generation's own; and whether they are of another version.

    Those of another version of shardplan cannot be used: this version's are taken instead.
    """
    usual = _profile_record(shipped)
    if given is None or given == usual:
        return None, False
    if given.keys() != usual.keys() or not all(_is_like(value, usual[name]) for name, value in given.items()):
        return None, True
    for name, value in given.items():
        if not _is_plausible(value):
            raise _wrong(f"profile.{name}", f"is {str(value)[:60]!r}")
    return Profile(**given), False


def _is_like(value: object, usual: object) -> bool:
    """Whether ``value`` is of the kind of the ``usual`` one: a text, a number, or a table with its keys."""
    if isinstance(usual, Mapping):
        return isinstance(value, Mapping) and value.keys() >= usual.keys()
    return isinstance(value, str) == isinstance(usual, str) and not isinstance(value, Mapping)


def _is_plausible(value: Any) -> bool:
    """Whether no number is below zero. Zero is a limit case: nothing hidden, no launch time."""
    if isinstance(value, Mapping):
        return all(_is_plausible(part) for part in value.values())
    return isinstance(value, str) or value >= 0


def _estimate_fields() -> dict[str, Any]:
    """Type and key of every field of an estimate."""
    from pydantic import Field

    hints = get_type_hints(Estimate)
    required = {
        field.name: (hints[field.name], Field(alias=KEYS.get(field.name, field.name)))
        for field in fields(Estimate)
        if field.name not in LATER
    }
    return required | {name: (hints[name] | None, None) for name in LATER}


@cache
def _schema() -> type[BaseModel]:
    """Pydantic model of a file, made on first use: importing pydantic is slow."""
    from pydantic import BaseModel, ConfigDict, Field, create_model

    config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    estimate: Any = create_model("Estimate", __config__=config, **_estimate_fields())
    scalar = bool | int | float | str | None

    class SuggestionRecord(BaseModel):
        model_config = config
        change: str
        num_accelerators: int
        plan: estimate

    class File(BaseModel):
        model_config = config
        schema_: str = Field(alias="schema")
        shardplan_version: str = ""
        model: dict[str, Any]
        cluster: dict[str, Any]
        num_accelerators: int
        job: Job
        plans: list[estimate]
        num_plans_evaluated: int | None = None
        num_plans_feasible: int = 0
        rejected: dict[str, int] = {}
        search_time_s: float = 0.0
        space: dict[str, tuple[scalar, ...]] = {}
        suggestions: list[SuggestionRecord] = []
        smallest: estimate | None = None
        explanation: dict[str, Any] | None = None
        profile: dict[str, str | float | dict[str, float]] | None = None

    return File


def _unreadable(label: str, why: str) -> InputError:
    return InputError(
        f"cannot read the plan file {label}: {why}",
        rule="the plan file exists and can be read",
        hint="check the path, or make one with `shardplan plan ... --json FILE`",
    )


def _wrong(place: str, why: str) -> InputError:
    return InputError(
        f"{place} {why}",
        rule="a plan file is as shardplan writes it",
        hint=f"correct {place}, or make the file again with `shardplan plan ... --json FILE`",
    )
