"""From a reading to a question and a plan: what is known, what defaults fill, what is asked for, which rules break."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any, Final, Literal

import numpy as np

from shardplan.base.errors import ShardplanError
from shardplan.base.fields import dataclass
from shardplan.base.files import DATA
from shardplan.estimation.question import Question, filled_job
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan, chunk_layers
from shardplan.inputs.plan_numbers import Degrees
from shardplan.inputs.readers.names import names_meant
from shardplan.launch.audit.hardware import hardware_of
from shardplan.launch.dialects.frameworks import torchtitan
from shardplan.launch.dialects.megatron_core import swift
from shardplan.launch.dialects.models import missing_dimensions, model_of
from shardplan.launch.dialects.reading import JOB_KEYS, PLAN_KEYS, WEIGHTS, Break, Reading
from shardplan.launch.dialects.records import Dialect
from shardplan.physics.frameworks.defaults import job_in_stack, plan_in_stack
from shardplan.physics.frameworks.runnable import refusals
from shardplan.physics.frameworks.stack import Stack, load_stack
from shardplan.physics.frameworks.stage_layers import torchtitan_can_share, torchtitan_layers
from shardplan.physics.validity import RULES

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
MOST_PARTS: Final = 2
"""Dimensions of a model that are asked for one by one."""
NEEDED: Final = ("tp", "pp", "cp", "ep", "vp", "micro_batch_size", "sharding", "recompute")
"""Fields of a plan that a file must decide, by what it says or by its framework's defaults."""


@dataclass(frozen=True, kw_only=True)
class Posed:
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
    assumed: dict[str, tuple[object, str]] = field(default_factory=dict)
    """Further defaults, by key."""
    breaks: tuple[Break, ...] = ()
    """Why there is no question though nothing is missing."""
    assumptions: tuple[str, ...] = ()
    """The behaviour of the framework, as text."""


def posed(
    reading: Reading, model: ModelConfig | None, cluster: Cluster | None, others: tuple[Break, ...] = ()
) -> Posed:
    """The question of ``reading``, on ``cluster``; ``model`` replaces what the file says of it."""
    found, broken = _model(reading, model)
    if cluster is not None:
        cluster, of_hardware = hardware_of(reading, cluster)
        others = (*others, *of_hardware)
    job, plan = reading.of(JOB_KEYS), reading.of(PLAN_KEYS)
    missing = _missing(reading, found, cluster)
    stack = _stack(reading)
    known = Posed(model=found, job=job, fields=plan, stack=stack, missing=missing, breaks=(*others, *broken))
    if missing or broken or found is None or cluster is None:
        return known
    try:
        return _complete(known, reading, found, cluster)
    except ShardplanError as error:
        return replace(known, breaks=(*known.breaks, _break_of(error)))


def _stack(reading: Reading) -> Stack | None:
    """The record that holds for the file's framework; that of accelerate is of its sharding by PyTorch (FSDP)."""
    if reading.framework == "accelerate" and reading.options.get("sharding", "").startswith(OF_FSDP):
        return load_stack(DATA / "launch" / "accelerate.yaml")
    if reading.framework in FORKS and reading.value("train") == "lora":
        return None
    own = Dialect(name=reading.framework).record.get("priced_by")
    name = OLDER.get((reading.framework, reading.version), own or reading.priced_by)
    return None if name is None else load_stack(name)


def _break_of(error: ShardplanError) -> Break:
    return Break(rule=error.rule, values=str(error), knob=error.hint)


def _model(reading: Reading, given: ModelConfig | None) -> tuple[ModelConfig | None, tuple[Break, ...]]:
    """The model, and where the script's dimensions differ from the one that the user names."""
    if given is not None:
        return given, _differences(reading, given)
    try:
        return model_of(reading), ()
    except ShardplanError as error:
        return None, (_break_of(error),)


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
        what = f"{name} is not in the catalogue" if name else ", ".join(dict.fromkeys(open_parts)) or "its dimensions"
        given = " ".join(f"--given {part}=VALUE" for part in parts) if len(parts) <= MOST_PARTS else ""
        how = f"{given}, or --model" if given else "--model"
        alike = names_meant("model", str(reading.value("model_name") or "").replace(" ", "-"))
        same = f"; {' or '.join(alike)} may be the same" if alike else ""  # its dimensions may differ all the same
        found["model"] = f"{what} ({how}{same})"
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


def _text(reading: Reading, key: str, otherwise: str) -> str:
    return ", ".join(reading.missing.get(key, ())) or otherwise


def _complete(known: Posed, reading: Reading, model: ModelConfig, cluster: Cluster) -> Posed:
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
    assumed = _assumed(reading, plan, job, known.stack)
    return replace(known, plan=plan, question=question, assumed=assumed, assumptions=(*of_job, *of_stack, *of_plan))


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


_FLAG: Final = re.compile(r"--(no-)?([a-z][a-z0-9-]*[a-z0-9])")


def in_words_of(found: Break, reading: Reading) -> Break:
    """The broken rule with what to change as the file calls it; fields that no option of it states by their name."""
    return replace(found, knob=_FLAG.sub(lambda flag: _called(flag, reading), found.knob))


def _called(flag: re.Match[str], reading: Reading) -> str:
    """The option of the file for a flag of this program; flags of the audit itself stay."""
    field = flag[2].replace("-", "_")
    if field not in PLAN_KEYS | JOB_KEYS:
        return flag[0]
    own = _option(reading, field)
    if own is None:
        return f"{field.replace('_', ' ')} off" if flag[1] else field.replace("_", " ")
    return f"leave out {own}" if flag[1] else own


def _option(reading: Reading, field: str) -> str | None:
    """The option that states a field, as it is written."""
    fact, name = reading.facts.get(field), reading.options.get(field)
    if fact is None or name is None or fact.origin == "assumed":
        return None
    written = fact.why.partition(": ")[0].rpartition(" ")[2]
    return written if written.lstrip("-").replace("_", "-") == name.lstrip("-").replace("_", "-") else name


DENSE = "tp x cp x pp divides the accelerators"
EXPERT = "ep x etp x pp divides the accelerators"
BATCH = "micro-batches divide the global batch"
EXPERTS = "expert-parallel ranks share experts evenly"
HEADS = "tensor-parallel ranks share heads evenly"
LAYERS = "layers divide into equal stages"


def violations(reading: Reading, posed: Posed) -> tuple[Break, ...]:
    """Every rule that is broken, what stops a run first; each rule once."""
    ours = (*posed.breaks, *_arithmetic(reading), *_broken_rules(posed), *_of_framework(posed))
    found = [*reading.breaks, *(in_words_of(each, reading) for each in ours)]
    unique = list(
        {
            (each.rule, each.severity, each.values if each.severity == "notice" else ""): each
            for each in reversed(found)
        }.values()
    )
    order = {"stops": 0, "changes": 1, "notice": 2}
    return tuple(sorted(unique, key=lambda each: order[each.severity]))


def stops(found: Iterable[Break]) -> bool:
    """Whether one of them stops the run."""
    return any(each.severity == "stops" for each in found)


def _positive(reading: Reading, key: str) -> int | None:
    value = reading.value(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _arithmetic(reading: Reading) -> Iterator[Break]:
    """What needs no model and no cluster: the two factorisations of the world, the batch, experts, heads."""
    total = _positive(reading, "num_accelerators")
    tp, cp, pp, ep, etp = (_positive(reading, key) for key in ("tp", "cp", "pp", "ep", "etp"))
    if total and tp and cp and pp and total % (tp * cp * pp):
        yield Break(
            rule=DENSE,
            values=f"tp {tp} x cp {cp} x pp {pp} = {tp * cp * pp} for {total:,} accelerators",
            knob="choose degrees whose product divides the accelerators, or start more nodes",
        )
    elif total and tp and cp and pp:
        yield from _batch(reading, total // (tp * cp * pp))
    if total and pp and ep and ep > 1 and total % (ep * (etp or 1) * pp):
        yield Break(
            rule=EXPERT,
            values=f"ep {ep} x etp {etp or 1} x pp {pp} = {ep * (etp or 1) * pp} for {total:,} accelerators",
            knob="choose ep and etp whose product with pp divides the accelerators, or start more nodes",
        )
    experts, heads = _positive(reading, "num_experts"), _positive(reading, "num_attention_heads")
    if experts and ep and experts % ep:
        yield Break(
            rule=EXPERTS, values=f"ep {ep} with {experts} experts", knob=f"choose ep among the divisors of {experts}"
        )
    if heads and tp and heads % tp:
        yield Break(
            rule=HEADS, values=f"tp {tp} with {heads} attention heads", knob=f"choose tp among the divisors of {heads}"
        )


def _batch(reading: Reading, dp: int) -> Iterator[Break]:
    size, batch = _positive(reading, "micro_batch_size"), _positive(reading, "global_batch_size")
    if size and batch and batch % (size * dp):
        yield Break(
            rule=BATCH,
            values=f"dp {dp} x micro-batch {size} = {dp * size} for a global batch of {batch} sequences",
            knob="change the global batch, the micro-batch or the degrees",
        )


def _broken_rules(posed: Posed) -> Iterator[Break]:
    """Every rule of shardplan that the plan breaks."""
    if posed.question is None or posed.plan is None:
        return
    setting = posed.question.setting
    degrees = Degrees.of(posed.plan)
    for rule in RULES:
        if not bool(np.all(rule.holds(setting, degrees))):
            yield Break(rule=rule.name, values=rule.message(setting, posed.plan), knob=rule.hint(setting, posed.plan))


def _of_framework(posed: Posed) -> Iterator[Break]:
    """What the framework refuses to run; what a script of one's own can run is noted, since the file has one."""
    if posed.question is None or posed.plan is None or posed.stack is None:
        return
    for each in refusals(posed.stack, posed.plan, posed.question.setting):
        severity: Literal["stops", "notice"] = "notice" if each.own_script else "stops"
        yield Break(rule=each.rule, values=each.message, knob=each.hint, severity=severity)
