"""What is in a plan file: the type of every value. Keys of a later version are ignored."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from shardplan.estimation.estimate import Estimate
from shardplan.estimation.evidence import NearRun
from shardplan.inputs.job import Job
from shardplan.inputs.profile import ProfileGeneration
from shardplan.records import schema_fields

if TYPE_CHECKING:
    from pydantic import BaseModel


@cache
def schema_of_files() -> type[BaseModel]:
    """Pydantic model of a file, made on first use: importing pydantic is slow."""
    from pydantic import BaseModel, ConfigDict, Field, create_model

    config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)

    class RobustnessRecord(BaseModel):
        model_config = config
        lost_time_s: dict[str, float]
        pessimistic_step_time_s: float

    near: Any = create_model("NearRun", __config__=config, **schema_fields(NearRun))
    others: dict[str, Any] = {
        "is_tie": (bool | None, None),
        "robustness": (RobustnessRecord | None, None),
        "simulated_step_time_s": (float | None, None),
        "not_simulated": (str | None, None),
        "framework_options": (tuple[str, ...] | None, None),
        "framework_unsaid": (tuple[str, ...] | None, None),
        "evidence": (tuple[near, ...], ()),
    }
    estimate: Any = create_model("Estimate", __config__=config, **schema_fields(Estimate, **others))
    scalar = bool | int | float | str | tuple[int, ...] | None

    class SuggestionRecord(BaseModel):
        model_config = config
        change: str
        num_accelerators: int
        plan: estimate

    class OfferRecord(BaseModel):
        model_config = config
        num_accelerators: int
        global_batch_size: int
        gain: float
        plan: estimate

    class RecommendedRecord(BaseModel):
        model_config = config
        place: int | None
        reason: str
        plan: estimate

    class SimulatedRecord(BaseModel):
        model_config = config
        num_plans: int
        most: int

    class ProfileOrigin(BaseModel):
        model_config = config
        generation: ProfileGeneration
        left_out_errors: list[dict[str, str]]

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
        num_plans_pruned: int = 0
        rejected: dict[str, int] = {}
        search_time_s: float = 0.0
        space: dict[str, tuple[scalar, ...]] = {}
        tie_factor: float = 1.0
        num_plans_tied: int = 0
        num_plans_tied_with_headroom: int = 0
        simulated: SimulatedRecord | None = None
        recommended: RecommendedRecord | None = None
        suggestions: list[SuggestionRecord] = []
        smallest: estimate | None = None
        offers: list[OfferRecord] = []
        explanation: dict[str, Any] | None = None
        profile: dict[str, str | float | dict[str, float]] | None = None
        profile_origin: ProfileOrigin | None = None

    return File
