"""From a reading to a question and a plan: what is known, what defaults fill, what must be asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from shardplan.errors import ShardplanError
from shardplan.estimation.question import Question, filled_job
from shardplan.fields import dataclass
from shardplan.files import DATA
from shardplan.frameworks.defaults import job_in_stack, plan_in_stack
from shardplan.frameworks.stack import Stack, load_stack
from shardplan.frameworks.stage_layers import torchtitan_can_share, torchtitan_layers
from shardplan.inputs.chunks import chunk_layers
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.inputs.readers.names import names_meant
from shardplan.launch.dialects.megatron_core import swift
from shardplan.launch.dialects.models import missing_dimensions, model_of
from shardplan.launch.dialects.reading import JOB_KEYS, PLAN_KEYS, WEIGHTS, Break, Reading
from shardplan.launch.dialects.torchtitan import settings as torchtitan

STACKS: Final = {
    "megatron-lm": "megatron-lm",
    "ms-swift": "megatron-lm",
    "megatron-deepspeed": "megatron-deepspeed",
    "megatron-bridge": "megatron-bridge",
    "nemo": "nemo",
    "torchtitan": "torchtitan",
    "deepspeed": "deepspeed",
    "nanotron": "nanotron",
    "maxtext": "maxtext",
    "llm-foundry": "llm-foundry",
    "gpt-neox": "megatron-deepspeed",
    "flagscale": "megatron-lm",
}
"""The stack whose rules and behaviour hold for a dialect; those without one are priced with the library's defaults."""
OLDER: Final[Mapping[tuple[str, str], str | None]] = {
    (swift.NAME, swift.TRAINER): None,
    ("torchtitan", torchtitan.TOML): "torchtitan@0.2",
    ("torchtitan", torchtitan.RELEASE): "torchtitan@0.3",
}
"""The record that is nearest to a version of a dialect, where the newest one has other options, or none."""
FORKS: Final = ("megatron-lm", "ms-swift")
"""Dialects whose forks train adapters, which the record of Megatron-LM itself does not know."""
OF_FSDP: Final = ("fsdp_", "parallelism_config", "distributed_type")
"""Options of accelerate that state a sharding by PyTorch."""
IDLE: Final = {"sequence_parallel": "tp", "overlap_tp": "tp", "cp_comm": "cp", "overlap_ep": "ep"}
"""Switches that do nothing where a degree is one: a plan is named by their defaults."""
NEEDED: Final = ("tp", "pp", "cp", "ep", "vp", "micro_batch_size", "sharding", "recompute")
"""Fields of a plan that a file must decide, by what it says or by its framework's defaults."""


@dataclass(frozen=True, kw_only=True)
class Put:
    """What a reading puts to the estimate."""

    model: ModelConfig | None
    job: dict[str, Any]
    """Known fields of the job."""
    fields: dict[str, Any]
    """Known fields of the plan."""
    stack: Stack | None
    missing: dict[str, str]
    """What must be given before the plan can be priced, and what decides it."""
    plan: Plan | None = None
    """The plan, complete; None where something is missing."""
    question: Question | None = None
    """None where something is missing, or where the question itself is not valid."""
    assumed: dict[str, tuple[object, str]]
    """Further defaults, by key."""
    breaks: tuple[Break, ...] = ()
    """Why there is no question though nothing is missing."""
    assumptions: tuple[str, ...] = ()
    """The behaviour of the framework, as text."""


def put(reading: Reading, model: ModelConfig | None, cluster: Cluster | None, others: tuple[Break, ...] = ()) -> Put:
    """The question that ``reading`` puts, on ``cluster``; ``model`` replaces what the file says of it."""
    found, broken = _model(reading, model)
    job, plan = reading.of(JOB_KEYS), reading.of(PLAN_KEYS)
    missing = _missing(reading, found, cluster)
    stack = _stack(reading)
    known = Put(model=found, job=job, fields=plan, stack=stack, missing=missing, assumed={}, breaks=(*others, *broken))
    if missing or broken or found is None or cluster is None:
        return known
    try:
        return _complete(known, reading, found, cluster)
    except ShardplanError as error:
        return _with_break(known, error)


def _stack(reading: Reading) -> Stack | None:
    """The record that holds for the file's framework; that of accelerate is of its sharding by PyTorch (FSDP)."""
    if reading.framework == "accelerate" and reading.options.get("sharding", "").startswith(OF_FSDP):
        return load_stack(DATA / "launch" / "accelerate.yaml")
    if reading.framework in FORKS and reading.value("train") == "lora":
        return None
    name = OLDER.get((reading.framework, reading.version), STACKS.get(reading.framework))
    return None if name is None else load_stack(name)


def _with_break(known: Put, error: ShardplanError) -> Put:
    wrong = Break(rule=error.rule, values=str(error), knob=error.hint)
    return Put(**{each.name: getattr(known, each.name) for each in fields(Put)} | {"breaks": (*known.breaks, wrong)})


def _model(reading: Reading, given: ModelConfig | None) -> tuple[ModelConfig | None, tuple[Break, ...]]:
    """The model, and where the script's dimensions differ from the one that the user names."""
    if given is not None:
        return given, _differences(reading, given)
    try:
        return model_of(reading), ()
    except ShardplanError as error:
        return None, (Break(rule=error.rule, values=str(error), knob=error.hint),)


def _differences(reading: Reading, model: ModelConfig) -> tuple[Break, ...]:
    pairs = (("num_hidden_layers", model.num_hidden_layers), ("hidden_size", model.hidden_size))
    return tuple(
        Break(
            rule="the model is the one of the file",
            values=f"{key} is {reading.value(key)} in the file and {own} in {model.name}",
            knob="leave --model out, or name the model of the file",
            severity="notice",
        )
        for key, own in pairs
        if isinstance(reading.value(key), int) and reading.value(key) != own
    )


def _missing(reading: Reading, model: ModelConfig | None, cluster: Cluster | None) -> dict[str, str]:
    """What is open, each with what decides it and how to give it."""
    found: dict[str, str] = {}
    if model is None:
        parts = [] if "model" in reading.missing or "model" in reading.facts else missing_dimensions(reading)
        needs = reading.missing.get("model", ()) or tuple(
            need for part in parts for need in reading.missing.get(part, (part,))
        )
        name = reading.value("model")
        open_parts = (*parts, *(need.removesuffix(": --model") for need in needs))
        what = f"{name} is not in the catalogue" if name else ", ".join(open_parts) or "its dimensions"
        found["model"] = f"{what} ({_how_given(parts)}{_namesake(reading)})"
    if reading.value("num_accelerators") is None:
        found["num_accelerators"] = f"{_text(reading, 'num_accelerators', 'the launch line')} (--gpus)"
    if cluster is None:
        found["cluster"] = "the accelerators and their network (--cluster)"
    for key in (*NEEDED, "sequence_length", "global_batch_size"):
        if reading.value(key) is None:
            found[key] = _text(reading, key, f"not in the file (--given {key}=VALUE)")
    for key, needs in reading.missing.items():
        if key in JOB_KEYS | PLAN_KEYS:
            found.setdefault(key, ", ".join(needs))
    return found


def _namesake(reading: Reading) -> str:
    """The model of the catalogue that is called like the one of the file, whose dimensions may differ."""
    named = names_meant("model", str(reading.value("model_name") or "").replace(" ", "-"))
    return f"; {' or '.join(named)} may be the same" if named else ""


def _how_given(parts: Sequence[str]) -> str:
    """How the model is given: one dimension by itself too."""
    return f"--given {parts[0]}=VALUE, or --model" if len(parts) == 1 else "--model"


def _text(reading: Reading, key: str, otherwise: str) -> str:
    return ", ".join(reading.missing.get(key, ())) or otherwise


def _complete(known: Put, reading: Reading, model: ModelConfig, cluster: Cluster) -> Put:
    """Job and plan with the framework's behaviour where the file is silent. Raises InputError."""
    total = reading.value("num_accelerators")
    assert isinstance(total, int)
    job, of_job = filled_job(model, cluster, total, known.job, known.stack)
    software = {
        key.removeprefix("software."): fact.value for key, fact in reading.facts.items() if key.startswith("software.")
    }
    job, of_stack = job_in_stack(job, known.stack, known.job, software)
    question = Question(model=model, cluster=cluster, num_accelerators=total, job=job)
    plan = Plan(**_effective({**_cut_stages(reading, model), **known.fields}, model))
    plan, of_plan = plan_in_stack(
        plan, known.stack, model=model, job=job, num_accelerators=total, given={*known.fields, "vp"}
    )
    return Put(
        model=model,
        job=known.job,
        fields=known.fields,
        stack=known.stack,
        missing={},
        plan=plan,
        question=question,
        assumed=_assumed(reading, plan, job, known.stack),
        breaks=known.breaks,
        assumptions=(*of_job, *of_stack, *of_plan),
    )


def _cut_stages(reading: Reading, model: ModelConfig) -> dict[str, Any]:
    """Layers of every stage where torchtitan cuts them for a model that comes with the question."""
    ends, stages = reading.value(WEIGHTS), [reading.value(name) for name in ("pp", "vp")]
    if not isinstance(ends, tuple) or "stage_layers" in reading.facts:
        return {}
    number = int(stages[0]) * int(stages[1])  # type: ignore[call-overload]  # both are known where the ends are
    if not torchtitan_can_share(model.num_hidden_layers, number, *ends):
        return {}
    layers = torchtitan_layers(model.num_hidden_layers, number, *ends)
    return {"stage_layers": layers} if len({*layers}) > 1 else {}


def _effective(values: dict[str, Any], model: ModelConfig) -> dict[str, Any]:
    """Fields without those that are open, switches that do nothing, and stages as they are where nobody states them."""
    chunks = values.get("pp", 1) * values.get("vp", 1)
    even = chunk_layers(model.num_hidden_layers, chunks, model.num_mtp_layers)
    left = {"stage_layers"} if values.get("stage_layers") == even else set()
    left |= {name for name, degree in IDLE.items() if values.get(degree, 1) == 1}
    return {key: value for key, value in values.items() if value is not None and key not in left}


def _assumed(reading: Reading, plan: Plan, job: Job, stack: Stack | None) -> dict[str, tuple[object, str]]:
    """Fields that neither the file nor its dialect decides."""
    why = "default of shardplan" if stack is None else f"as usual in {stack.name}"
    own: dict[str, tuple[object, str]] = {}
    for record, keys in ((plan, PLAN_KEYS), (job, JOB_KEYS)):
        for key in sorted(keys):
            if key not in reading.facts and getattr(record, key) is not None:
                own[key] = (getattr(record, key), why)
    return own
