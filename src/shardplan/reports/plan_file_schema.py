"""What is in a plan file: the type of every value. Keys of a later version are ignored."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from shardplan.estimation.estimate import Estimate
from shardplan.estimation.evidence import NearRun
from shardplan.inputs.job import Job
from shardplan.inputs.profile import ProfileGeneration
from shardplan.planner.result import FewerCounts, WithoutLibraries
from shardplan.records import schema_fields

if TYPE_CHECKING:
    from pydantic import BaseModel


@cache
def schema_of_files() -> type[BaseModel]:
    """Pydantic model of a file, made on first use: importing pydantic is slow."""
    from pydantic import Field

    estimate = _estimate()
    return _made(
        "File", schema_=(str, Field(alias="schema")), **_question(), **_answers(estimate), **_search(), **_rest()
    )


@cache
def schema_of_constants() -> type[BaseModel]:
    """Pydantic model of what a file says of its constants."""
    made: type[BaseModel] = _made("Constants", **_rest())
    return made


def _made(name: str, **fields: Any) -> Any:
    """A model of these fields, each with its type and default; ``...``: it must be there."""
    from pydantic import ConfigDict, create_model

    return create_model(name, __config__=ConfigDict(extra="ignore", strict=True, allow_inf_nan=False), **fields)


def _estimate() -> Any:
    """A plan with what it takes."""
    near: Any = _made("NearRun", **schema_fields(NearRun))
    robustness = _made("RobustnessRecord", lost_time_s=(dict[str, float], ...), pessimistic_step_time_s=(float, ...))
    others: dict[str, Any] = {
        "is_tie": (bool | None, None),
        "robustness": (robustness | None, None),
        "simulated_step_time_s": (float | None, None),
        "not_simulated": (str | None, None),
        "framework_options": (tuple[str, ...] | None, None),
        "framework_unsaid": (tuple[str, ...] | None, None),
        "evidence": (tuple[near, ...], ()),
    }
    return _made("Estimate", **schema_fields(Estimate, **others))


def _question() -> dict[str, Any]:
    return {
        "shardplan_version": (str, ""),
        "model": (dict[str, Any], ...),
        "cluster": (dict[str, Any], ...),
        "num_accelerators": (int, ...),
        "num_idle": (int, 0),
        "job": (Job, ...),
    }


def _answers(estimate: Any) -> dict[str, Any]:
    """Plans, the one to take, and changes that would help."""
    recommended = _made("RecommendedRecord", place=(int | None, ...), reason=(str, ...), plan=(estimate, ...))
    suggestion: Any = _made("SuggestionRecord", change=(str, ...), num_accelerators=(int, ...), plan=(estimate, ...))
    offer: Any = _made(
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


def _search() -> dict[str, Any]:
    """How the plans were found."""
    scalar = bool | int | float | str | tuple[int, ...] | None
    fewer = _made("FewerRecord", **schema_fields(FewerCounts))
    without: Any = _made("WithoutLibrariesRecord", **schema_fields(WithoutLibraries))
    simulated = _made("SimulatedRecord", num_plans=(int, ...), most=(int, ...))
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


def _rest() -> dict[str, Any]:
    origin = _made("ProfileOrigin", generation=(ProfileGeneration, ...), left_out_errors=(list[dict[str, str]], ...))
    return {
        "explanation": (dict[str, Any] | None, None),
        "profile": (dict[str, str | float | dict[str, float]] | None, None),
        "profile_origin": (origin | None, None),
    }
