"""What is in a plan file: the type of every value, and its constants. Unknown keys of later versions are ignored.

The constants are those of the accelerator's generation, or others that were given, with the errors of their runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

from shardplan.base.errors import shown
from shardplan.base.records import Record, keys, plain, schema_fields
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.evidence import NearRun
from shardplan.inputs.job import Job
from shardplan.inputs.profile import NOT_CONSTANTS, Profile, ProfileGeneration, load_profile
from shardplan.inputs.readers.residuals import residual_row, residuals_from_rows
from shardplan.planner.result import FewerCounts, WithoutLibraries
from shardplan.reports.model_record import WRITTEN

if TYPE_CHECKING:
    from pydantic import BaseModel


ADDED: Final = ("truth", "stages", "layout", "alive_at_peak", "observed", "page", "uses")
"""Parts of an answer that are written into its plan file, and not read."""
Extra = Literal["ignore", "forbid"]
"""What becomes of unknown keys."""


@cache
def schema_of_files(extra: Extra = "ignore") -> type[BaseModel]:
    """Pydantic model of a file, made on first use: importing pydantic is slow."""
    from pydantic import Field

    # A plan with what it takes
    near: Any = _made(extra, "NearRun", **schema_fields(NearRun))
    robustness = _made(
        extra, "RobustnessRecord", lost_time_s=(dict[str, float], ...), pessimistic_step_time_s=(float, ...)
    )
    others: dict[str, Any] = {
        "is_tie": (bool | None, None),
        "robustness": (robustness | None, None),
        "simulated_step_time_s": (float | None, None),
        "not_simulated": (str | None, None),
        "framework_options": (tuple[str, ...] | None, None),
        "framework_unsaid": (tuple[str, ...] | None, None),
        "evidence": (tuple[near, ...], ()),
    }
    estimate = _made(extra, "Estimate", **schema_fields(Estimate, **others))
    return _made(
        extra,
        "File",
        schema_=(str, Field(alias="schema")),
        **_question(),
        **_answers(extra, estimate),
        **_search(extra),
        **_rest(extra),
    )


@cache
def schema_of_constants() -> type[BaseModel]:
    """Pydantic model of what a file says of its constants."""
    made: type[BaseModel] = _made("ignore", "Constants", **_rest("ignore"))
    return made


def _made(extra: Extra, name: str, **fields: Any) -> Any:
    """A model of these fields, each with its type and default; ``...``: it must be there."""
    from pydantic import ConfigDict, create_model

    return create_model(name, __config__=ConfigDict(extra=extra, strict=True, allow_inf_nan=False), **fields)


def _question() -> dict[str, Any]:
    return {
        "shardplan_version": (str, ""),
        "model": (dict[str, Any], ...),
        "cluster": (dict[str, Any], ...),
        "num_accelerators": (int, ...),
        "num_idle": (int, 0),
        "job": (Job, ...),
        "companions": (dict[str, dict[str, Any]], {}),
    }


def _answers(extra: Extra, estimate: Any) -> dict[str, Any]:
    """Plans, the one to take, and changes that would help."""
    recommended = _made(extra, "RecommendedRecord", place=(int | None, ...), reason=(str, ...), plan=(estimate, ...))
    suggestion: Any = _made(
        extra, "SuggestionRecord", change=(str, ...), num_accelerators=(int, ...), plan=(estimate, ...)
    )
    offer: Any = _made(
        extra,
        "OfferRecord",
        num_accelerators=(int, ...),
        global_batch_size=(int, ...),
        gain=(float, ...),
        plan=(estimate, ...),
    )
    return {
        "plans": (list[estimate], ...),
        "recommended": (recommended | None, None),
        "suggestions": (list[suggestion], []),
        "causes": (tuple[str, ...], ()),
        "smallest": (estimate | None, None),
        "offers": (list[offer], []),
    }


def _search(extra: Extra) -> dict[str, Any]:
    """How the plans were found."""
    scalar = bool | int | float | str | tuple[int, ...] | None
    fewer = _made(extra, "FewerRecord", **schema_fields(FewerCounts))
    without: Any = _made(extra, "WithoutLibrariesRecord", **schema_fields(WithoutLibraries))
    simulated = _made(extra, "SimulatedRecord", num_plans=(int, ...), most=(int, ...))
    return {
        "num_plans_evaluated": (int | None, None),
        "num_plans_feasible": (int, 0),
        "num_plans_pruned": (int, 0),
        "rejected": (dict[str, int], {}),
        "search_time_s": (float, 0.0),
        "space": (dict[str, tuple[scalar, ...]], {}),
        "without_libraries": (list[without], []),
        "fewer": (fewer | None, None),
        "tie_factor": (float, 1.0),
        "num_plans_tied": (int, 0),
        "num_plans_tied_with_headroom": (int, 0),
        "simulated": (simulated | None, None),
    }


def _rest(extra: Extra) -> dict[str, Any]:
    """Constants, and what answers add that no reader needs."""
    origin = _made(
        extra, "ProfileOrigin", generation=(ProfileGeneration, ...), left_out_errors=(list[dict[str, str]], ...)
    )
    return {
        "explanation": (dict[str, Any] | None, None),
        **dict.fromkeys(ADDED, (Any, None)),
        "profile": (dict[str, str | float | dict[str, float]] | None, None),
        "profile_origin": (origin | None, None),
    }


def constants_record(profile: Profile, given: Profile | None) -> Record:
    """The constants that a question is answered with, and what is known of those that were given."""
    return {"profile": _profile_record(profile)} | _origin_record(given)


def _profile_record(profile: Profile) -> Record:
    left_out = set(NOT_CONSTANTS) - {"name"}
    return {name: plain(getattr(profile, name)) for name in keys(Profile) if name not in left_out}


def _origin_record(given: Profile | None) -> Record:
    """What the band of a given profile needs: its generation and the errors of its own runs."""
    if given is None:
        return {"profile_origin": None}
    rows = [residual_row(run) for run in given.left_out_errors]
    return {"profile_origin": {"generation": given.generation, "left_out_errors": rows}}


def _with_origin(profile: Profile | None, origin: Any, shipped: Profile) -> Profile | None:
    """The profile of a file as it was given: one that says no more than the shipped one stays the shipped one."""
    if origin is None or (profile is None and not origin.left_out_errors):
        return profile
    errors = residuals_from_rows(origin.left_out_errors, "profile_origin.left_out_errors", origin.generation)
    return replace(profile or shipped, generation=origin.generation, left_out_errors=errors)


def profile_in(checked: Any, generation: str) -> tuple[Profile | None, bool]:
    """The constants that were given, None for the generation's own; and whether they are of another version."""
    shipped = load_profile(generation)
    profile, is_older = _given_profile(checked.profile, shipped)
    return (None, True) if is_older else (_with_origin(profile, checked.profile_origin, shipped), False)


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
            raise WRITTEN.wrong(f"profile.{name}", f"is {shown(str(value))}")
    return Profile(**given, generation=shipped.generation), False


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
