"""One of the two runs: what it saves, or what it would load, by its launch file or its plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from shardplan.estimation.question import Question
from shardplan.fields import dataclass
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan, chunk_layers
from shardplan.launch.audit.question import Put
from shardplan.launch.dialects.reading import Reading

PLAN_FIELDS: Final = ("tp", "cp", "pp", "vp", "ep", "etp", "sharding", "micro_batch_size")
JOB_FIELDS: Final = ("precision", "optimizer", "global_batch_size", "sequence_length")
FIELDS: Final = (*PLAN_FIELDS, "dp", "stage_layers", *JOB_FIELDS, "num_accelerators")
"""Fields of a run on which it may depend whether a checkpoint is loaded."""
MODEL_FIELDS: Final = (
    "num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads",
    "vocab_size", "num_experts", "moe_intermediate_size",
)  # fmt: skip
"""Dimensions on which shapes of weights depend."""
CHECKPOINT: Final = "checkpoint."
"""What keys of settings begin with in a reading."""


@dataclass(frozen=True, kw_only=True)
class ResumeSide:
    """One run."""

    name: str
    """The file, or ``plan``."""
    framework: str | None
    """Whose checkpoints they are; None where a plan names none."""
    fields: Mapping[str, object]
    """Values of :data:`FIELDS` that are known."""
    model: Mapping[str, object]
    """Values of :data:`MODEL_FIELDS` that are known."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Options of checkpoints that it states."""
    question: Question | None = None
    """The whole question; None where a file leaves something open."""


def side_of_plan(name: str, question: Question, plan: Plan, framework: str | None) -> ResumeSide:
    """A plan of a plan file or of a search. ``framework``: its name, with a version behind it or not."""
    job, model = question.job, question.model
    values: dict[str, object] = {key: getattr(plan, key) for key in PLAN_FIELDS}
    values |= {key: getattr(job, key) for key in JOB_FIELDS}
    values |= {"num_accelerators": question.num_accelerators, "dp": plan.dp(question.num_accelerators)}
    return ResumeSide(
        name=name,
        framework=framework.partition(" ")[0].partition("@")[0] if framework else None,
        fields=values | _layers(plan.stage_layers, values, model),
        model=_dimensions(model),
        question=question,
    )


def side_of_reading(reading: Reading, put: Put) -> ResumeSide:
    """A launch file, as it is read."""
    values = {key: value for key in FIELDS if (value := reading.value(key)) is not None}
    if put.plan is not None and put.question is not None:
        whole = side_of_plan(reading.file, put.question, put.plan, reading.framework)
        values = {**whole.fields, **values}
    dp = _dp(values)
    values |= {} if dp is None else {"dp": dp}
    model = {key: value for key in MODEL_FIELDS if (value := reading.value(key)) is not None}
    known = {} if put.model is None else _dimensions(put.model)
    return ResumeSide(
        name=reading.file,
        framework=reading.framework,
        fields=values | _layers(values.get("stage_layers"), values, put.model),
        model=known | model,
        settings={
            key.removeprefix(CHECKPOINT): fact.value
            for key, fact in reading.facts.items()
            if key.startswith(CHECKPOINT)
        },
        question=put.question,
    )


def _dimensions(model: ModelConfig) -> dict[str, object]:
    return {key: value for key in MODEL_FIELDS if (value := getattr(model, key, None)) is not None}


def _dp(values: Mapping[str, object]) -> int | None:
    """Replicas, where the degrees divide the accelerators."""
    total, degrees = values.get("num_accelerators"), [values.get(key) for key in ("tp", "cp", "pp")]
    if not isinstance(total, int) or not all(isinstance(each, int) and each > 0 for each in degrees):
        return None
    product = 1
    for each in degrees:
        product *= each  # type: ignore[operator]  # whole numbers, as was just seen
    return None if total % product else total // product


def _layers(stated: object, values: Mapping[str, object], model: ModelConfig | None) -> dict[str, object]:
    """Layers of every chunk, as stated or as even as can be."""
    pp, vp = values.get("pp"), values.get("vp")
    if isinstance(stated, list | tuple):
        return {"stage_layers": tuple(stated)}
    if model is None or not isinstance(pp, int) or not isinstance(vp, int):
        return {}
    return {"stage_layers": tuple(chunk_layers(model.num_hidden_layers, pp * vp, model.num_mtp_layers))}
