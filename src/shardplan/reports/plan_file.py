"""Plan files: a question with its answers, complete enough to be asked again. docs/output.md describes every key.

``plan_file_from_record(plan_file_record(file)) == file``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Final, Literal

from shardplan.base.errors import InputError, ShardplanError, shown
from shardplan.base.fields import dataclass, in_files, in_our_words
from shardplan.base.files import FileKind, parse_document, read_text
from shardplan.base.records import Record, field_values, keys, plain
from shardplan.base.version import VERSION
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.evidence import NearRun
from shardplan.estimation.question import Question
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.inputs.profile import Profile
from shardplan.inputs.readers.cluster_record import cluster_from_record
from shardplan.inputs.software import Software
from shardplan.planner.result import FewerCounts, Offer, SearchResult, Suggestion, WithoutLibraries
from shardplan.planner.retiming import Retimed
from shardplan.planner.robustness import Ties
from shardplan.reports.forms import framework_options_record
from shardplan.reports.model_record import WRITTEN, model_from_record, model_record
from shardplan.reports.plan_file_schema import constants_record, profile_in, schema_of_constants, schema_of_files
from shardplan.reports.recommendation import (
    reason,
    recommendation,
    robustness_from_record,
    robustness_record,
    simulated_record,
)

SCHEMA: Final = "shardplan/plan-file/2"
SCHEMAS: Final = "shardplan/plan-file/"
RECOMMENDED: Final = "recommended"
ALIKE: Final = (
    "num_plans_evaluated", "num_plans_feasible", "num_plans_pruned", "rejected", "space", "causes",
)  # fmt: skip
"""Fields of the account of a search that are read as they are written."""
OFFERED: Final = ("num_accelerators", "global_batch_size", "gain")
"""Fields of an offer, but for its plan."""
Pick = int | Literal["recommended"]
"""A plan of a file: its place, from 1, or the recommended one."""

PLAN_FILE: Final = FileKind(
    "the plan file",
    64_000_000,
    "the plan file exists and can be read",
    "check the path, or make one with `shardplan plan ... --json FILE`",
)
"""A hundred plans of 64 stages stay under two million bytes."""


@dataclass(frozen=True, kw_only=True)
class SearchAccount:
    """What a search looked at."""

    num_plans_evaluated: int
    """Valid plans."""
    num_plans_feasible: int
    """Those that fit in memory."""
    num_plans_pruned: int = 0
    """Valid plans that a pruned search left out."""
    rejected: dict[str, int]
    """Combinations that break a rule, by rule."""
    search_time: float = field(metadata=in_files("search_time_s"))
    """Wall time. [s]"""
    space: dict[str, tuple[object, ...]]
    """Declared candidates of every axis."""
    without_libraries: tuple[WithoutLibraries, ...] = ()
    """Without the libraries that the recommended plan needs."""
    fewer: FewerCounts | None = None
    """Smaller numbers of accelerators that were searched too."""
    ties: Ties | None = None
    """Plans that tie with the fastest; None where nothing fits."""
    suggestions: tuple[Suggestion, ...] = ()
    """Where nothing fits: changes that would."""
    causes: tuple[str, ...] = ()
    """Where nothing fits: numbers of the question that divide badly."""
    lightest: Sequence[Estimate] = field(default=(), metadata=in_files("smallest"))
    """Where nothing fits: the valid plan that needs least memory."""
    offers: tuple[Offer, ...] = ()
    """Neighbouring counts and batches that train more tokens a second."""

    @classmethod
    def of(cls, result: SearchResult) -> SearchAccount:
        """The account of ``result``."""
        return cls(**field_values(cls, result) | {"without_libraries": result.without_libraries()})


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
        return cls(question=result.question, estimates=tuple(result.estimates), search=SearchAccount.of(result))

    @property
    def best_pick(self) -> Pick:
        """The recommended plan, or the first where none is recommended."""
        return 1 if self.search is None or self.search.ties is None else RECOMMENDED

    def pick(self, number: Pick) -> Estimate:
        """The plan in place ``number``, from 1, or the recommended one. Raises InputError."""
        if number == RECOMMENDED:
            return self._recommended()
        if not 1 <= number <= len(self.estimates):
            have = f"1 to {len(self.estimates)}" if self.estimates else "none: nothing fitted"
            raise InputError(
                f"plan {number} is asked for; the file holds {have}",
                rule="the picked plan is in the file",
                hint="set --pick to a number of its plans, from 1",
            )
        return self.estimates[number - 1]

    def _recommended(self) -> Estimate:
        if self.search is None or self.search.ties is None:
            raise InputError(
                "the recommended plan is asked for; the file recommends none",
                rule="the picked plan is in the file",
                hint="make the file with `shardplan plan ... --json FILE`, or set --pick to a number",
            )
        return self.search.ties.recommended


def plan_file_record(file: PlanFile) -> Record:
    """``file`` as a mapping that JSON can hold; units are in the keys."""
    question = file.question
    record: Record = {
        "schema": SCHEMA,
        "shardplan_version": VERSION,
        "model": model_record(question.model),
        "cluster": plain(question.cluster),
        "num_accelerators": question.num_accelerators,
        "num_idle": question.num_idle,
        "job": plain(question.job),
        "plans": [_listed_record(file, estimate) for estimate in file.estimates],
    }
    record |= {"uses": question.uses} if question.num_idle else {}
    given = {name: model_record(model) for name, model in question.given_companions}
    record |= {"companions": given} if given else {}
    return record | _account_record(file) | constants_record(question.profile, question.given_profile)


def estimate_record(estimate: Estimate) -> Record:
    """One element of ``plans``."""
    return _in_keys(Estimate, estimate)


def _in_keys(kind: type, value: object) -> Record:
    """The fields that a dataclass has, under their keys in a file."""
    return {key: plain(getattr(value, name)) for name, key in keys(kind).items()}


def _listed_record(file: PlanFile, estimate: Estimate) -> Record:
    ties, tied = None if file.search is None else file.search.ties, {}
    if ties is not None:
        tied = robustness_record(ties, estimate, file.estimates[0]) | simulated_record(ties, estimate)
    return estimate_record(estimate) | tied | framework_options_record(file.question, estimate)


def _ties_record(file: PlanFile, ties: Ties) -> Record:
    found = recommendation(ties, file.estimates)
    plan, retimed = _listed_record(file, ties.recommended), ties.retimed
    simulated = {} if retimed is None else {"simulated": {"num_plans": retimed.num_plans, "most": retimed.most}}
    return {
        "tie_factor": ties.factor,
        "num_plans_tied": ties.num_plans,
        "num_plans_tied_with_headroom": ties.num_with_headroom,
        "recommended": {"place": found.place, "reason": reason(found), "plan": plan},
    } | simulated


def _account_record(file: PlanFile) -> Record:
    account = file.search
    if account is None:
        return {}
    ties = {"recommended": None} if account.ties is None else _ties_record(file, account.ties)
    suggestions = [
        {"change": each.change, "num_accelerators": each.num_accelerators, "plan": estimate_record(each.estimate)}
        for each in account.suggestions
    ]
    offers = [
        {**{name: getattr(each, name) for name in OFFERED}, "plan": estimate_record(each.estimate)}
        for each in account.offers
    ]
    smallest = estimate_record(account.lightest[0]) if account.lightest else None
    own = {"suggestions": suggestions, "smallest": smallest, "offers": offers}
    kept = {key: name for name, key in keys(SearchAccount).items() if name != "ties"}
    return ties | {key: own[key] if key in own else plain(getattr(account, name)) for key, name in kept.items()}


def read_plan_file(path: Path | str) -> PlanFile:
    """The plan file at ``path``. Raises InputError on anything that is none."""
    label = str(path)[:200]
    record = parse_document(read_text(Path(path), PLAN_FILE), label=label, is_json=True)
    try:
        return plan_file_from_record(record)
    except ShardplanError as error:
        raise InputError(f"{label}: {error.message}", rule=error.rule, hint=error.hint) from None


def is_plan_file(name: str) -> bool:
    """Whether what may be a model or a plan file is the latter: a JSON file that has a schema, or cannot be read."""
    path = Path(name)
    if not name.lower().endswith(".json"):
        return False
    try:
        return "schema" in parse_document(read_text(path, PLAN_FILE), label=name[:200], is_json=True)
    except InputError:
        return True  # the reader of plan files says why


def plan_file_from_record(record: Mapping[str, Any]) -> PlanFile:
    """The plan file that :func:`plan_file_record` wrote. Raises InputError on a record that is none."""
    _check_schema(record)
    checked: Any = WRITTEN.read(
        schema_of_files("ignore" if _is_later(record) else "forbid"), _in_our_words(record), as_json=True
    )
    cluster = cluster_from_record(checked.cluster)
    profile, is_older = profile_in(checked, cluster.accelerator.generation)
    question = Question(
        model=model_from_record(checked.model),
        cluster=cluster,
        num_accelerators=checked.num_accelerators,
        num_idle=checked.num_idle,
        job=checked.job,
        given_profile=profile,
        given_companions=tuple((name, model_from_record(model)) for name, model in checked.companions.items()),
    )
    return PlanFile(
        question=question,
        estimates=tuple(_estimate(plan) for plan in checked.plans),
        search=_account(checked),
        has_other_constants=is_older,
    )


def _is_later(record: Mapping[str, Any]) -> bool:
    """Whether a later version wrote it, which may have added keys."""
    return _numbers(str(record.get("shardplan_version", ""))) > _numbers(VERSION)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d{1,9}", version)]


def inputs_record(*, model: ModelConfig | None, cluster: Cluster | None, profile: Profile | None) -> Record:
    """The part of a plan file that says what a question is about; what is None is left out."""
    found: Record = {"schema": SCHEMA}
    found |= {} if model is None else {"model": model_record(model)}
    found |= {} if cluster is None else {"cluster": plain(cluster)}
    return found | ({} if profile is None else constants_record(profile, profile))


def inputs_from_record(record: Mapping[str, Any]) -> tuple[ModelConfig | None, Cluster | None, Profile | None]:
    """What a plan file, or the part that :func:`inputs_record` wrote, is about. Raises InputError."""
    _check_schema(record)
    model = model_from_record(record["model"]) if "model" in record else None
    cluster = cluster_from_record(record["cluster"]) if "cluster" in record else None
    checked: Any = WRITTEN.read(schema_of_constants(), record, as_json=True)
    origin = checked.profile_origin
    return model, cluster, None if origin is None else profile_in(checked, origin.generation)[0]


def _in_our_words(record: Mapping[str, Any]) -> Record:
    """A record whose job and plans may be written in the words of frameworks, as people edit them, in ours."""
    made = dict(record)
    if isinstance(made.get("job"), Mapping):
        job = in_our_words(Job, made["job"])
        software = job.get("software")
        made["job"] = job | ({"software": _software_in_our_words(software)} if isinstance(software, Mapping) else {})
    if isinstance(made.get("plans"), list):
        made["plans"] = [_plan_in_our_words(each) for each in made["plans"]]
    return made


def _software_in_our_words(software: Mapping[str, Any]) -> Record:
    """The same, where flat parameters had a switch of their own too, as in earlier files."""
    left = {key: value for key, value in software.items() if key != "flat_gradients"}
    is_flat = software.get("flat_gradients") is True
    return in_our_words(Software, left | ({"sharded_accumulation": "flat"} if is_flat else {}))


def _plan_in_our_words(answer: object) -> object:
    if isinstance(answer, Mapping) and isinstance(answer.get("plan"), Mapping):
        return {**answer, "plan": in_our_words(Plan, answer["plan"])}
    return answer


def _check_schema(record: Mapping[str, Any]) -> None:
    if record.get("schema") == SCHEMA:
        return
    found = record.get("schema")
    if str(found).startswith(SCHEMAS):
        raise InputError(
            f"the plan file has the schema {shown(str(found))}; this version reads {SCHEMA!r}",
            rule="a plan file is of the version that reads it",
            hint="make it again with `shardplan plan ... --json FILE` or `shardplan estimate ... --json FILE`",
        )
    what = f"its schema is {shown(str(found))}, not {SCHEMA!r}" if found is not None else f"it has no schema {SCHEMA!r}"
    if isinstance(record.get("error"), Mapping):
        what = f"it holds the error of a command: {str(record['error'].get('message'))[:200]}"
    raise InputError(
        f"this is not a plan file: {what}",
        rule="a plan file is one that `shardplan plan` or `shardplan estimate` wrote",
        hint="make one with `shardplan plan ... --json FILE`",
    )


def _estimate(checked: Any) -> Estimate:
    """A plan of a file, with the numbers that others divide by and count to in range."""
    for name in ("step_time", "peak_flops", "usable_memory_bytes", "peak_memory_bytes"):
        if not getattr(checked, name) > 0:
            why = f"is {getattr(checked, name)}; it must be above zero"
            raise WRITTEN.wrong(f"{keys(Estimate)[name]} of a plan", why)
    for name in ("slowest_stage", "fullest_stage"):
        if not 0 <= getattr(checked, name) < len(checked.memory):
            raise WRITTEN.wrong(f"{name} of a plan", f"is {getattr(checked, name)}, with {len(checked.memory)} stages")
    near = tuple(NearRun(**field_values(NearRun, run)) for run in checked.evidence)
    return Estimate(**field_values(Estimate, checked) | {"evidence": near})


def _account(checked: Any) -> SearchAccount | None:
    if checked.num_plans_evaluated is None:
        return None
    return SearchAccount(
        **{name: getattr(checked, name) for name in ALIKE},
        search_time=checked.search_time_s,
        without_libraries=tuple(
            WithoutLibraries(**field_values(WithoutLibraries, each)) for each in checked.without_libraries
        ),
        fewer=None if checked.fewer is None else FewerCounts(**field_values(FewerCounts, checked.fewer)),
        ties=_ties(checked),
        suggestions=tuple(
            Suggestion(change=each.change, num_accelerators=each.num_accelerators, taken=(_estimate(each.plan),))
            for each in checked.suggestions
        ),
        lightest=() if checked.smallest is None else (_estimate(checked.smallest),),
        offers=tuple(
            Offer(**{name: getattr(each, name) for name in OFFERED}, estimate=_estimate(each.plan))
            for each in checked.offers
        ),
    )


def _ties(checked: Any) -> Ties | None:
    """The ties of a file; None where there are none, or where they were judged by other constants."""
    if checked.recommended is None or not checked.plans:
        return None
    told = {each.plan: each.robustness for each in (*checked.plans, checked.recommended.plan) if each.robustness}
    found = {
        plan: robustness_from_record(each.lost_time_s, each.pessimistic_step_time_s) for plan, each in told.items()
    }
    known = {plan: each for plan, each in found.items() if each is not None}
    if not {checked.plans[0].plan, checked.recommended.plan.plan} <= known.keys():
        return None
    return Ties(
        factor=checked.tie_factor,
        num_plans=checked.num_plans_tied,
        num_with_headroom=checked.num_plans_tied_with_headroom,
        taken=(_estimate(checked.recommended.plan),),
        robustness=known,
        retimed=_retimed(checked),
    )


def _retimed(checked: Any) -> Retimed | None:
    """What the simulation said of the plans of a file."""
    if checked.simulated is None:
        return None
    plans = (*checked.plans, checked.recommended.plan)
    return Retimed(
        most=checked.simulated.most,
        num_plans=checked.simulated.num_plans,
        step_time={each.plan: each.simulated_step_time_s for each in plans if each.simulated_step_time_s is not None},
        not_simulated={each.plan: each.not_simulated for each in plans if each.not_simulated is not None},
    )
