"""The defaults of a stack in a job and a plan: for the command line, Python and measured runs alike.

A field that is given stays as it is; every other takes the stack's default, and the answer says so.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import MISSING, asdict, fields, replace
from typing import Any, Final

from shardplan.base.words import switch_word
from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan, StatedPlan
from shardplan.inputs.software import Software
from shardplan.physics.frameworks.stack import Stack
from shardplan.physics.frameworks.usual_stack import usual_chunks, usual_expert_tp, usual_stage_layers

SWITCHES: Final = ("cp_comm", "overlap_tp", "overlap_dp", "overlap_pp", "overlap_ep")
"""Defaults of a plan that another stack replaces in a plan file."""
SEARCHED_SWITCHES: Final = ("cp_comm", "overlap_dp", "overlap_pp", "sequence_parallel")
"""Defaults of a plan that a search does not vary by itself."""


def stated(record: Job | Plan | Software) -> dict[str, Any]:
    """Fields of a record that are not at their default: in Python these are the ones given; all of an answer's plan."""
    if isinstance(record, StatedPlan):
        return asdict(record)
    own = [field for field in fields(record) if field.default is not MISSING and field.name != "software"]
    return {each.name: value for each in own if (value := getattr(record, each.name)) != each.default}


def job_in_stack(
    job: Job,
    stack: Stack | None,
    given: Collection[str] | None = None,
    software_given: Mapping[str, Any] | None = None,
) -> tuple[Job, tuple[str, ...]]:
    """A job whose fields other than the ``given`` ones are the stack's, and what was taken as text.

    Without ``given`` or ``software_given`` these are the fields that are not at their default. Raises InputError.
    """
    given = stated(job) if given is None else given
    software_given = stated(job.software) if software_given is None else software_given
    if stack is None:
        return replace(job, software=replace(job.software, **software_given)), ()
    defaults = stack.job_fields(job.precision)
    of_stack: Software = defaults.pop("software")
    software = replace(of_stack, **software_given)
    taken = {name: value for name, value in defaults.items() if name not in given}
    switched = {
        name: getattr(software, name)
        for name, value in stack.software.items()
        if name not in software_given and not (isinstance(value, Mapping) and job.precision not in value)
    }
    words = in_words({**switched, **taken})
    assumed = f"stack {stack.name}: {words}" if words else f"stack {stack.name}"
    return replace(job, software=software, **taken), (assumed,)


def plan_in_stack(
    plan: Plan,
    stack: Stack | None,
    *,
    model: ModelConfig,
    job: Job,
    num_accelerators: int,
    given: Collection[str] | None = None,
) -> tuple[Plan, tuple[str, ...]]:
    """A plan whose fields other than the ``given`` ones are the stack's, and what was taken as text.

    Without ``given`` these are those that are :func:`stated`.
    """
    if stack is None:
        return plan, ()
    given = stated(plan) if given is None else given
    taken = usual_fields(stack, asdict(plan), given, model=model, job=job, num_accelerators=num_accelerators)
    words = in_words(taken)
    return replace(plan, **taken), (f"plan as usual in {stack.name}: {words}",) if words else ()


def usual_fields(
    stack: Stack,
    plan: Mapping[str, Any],
    given: Collection[str],
    *,
    model: ModelConfig,
    job: Job,
    num_accelerators: int,
) -> dict[str, Any]:
    """Fields of a plan that the stack fills where they are not ``given``; ``plan``: all fields, given or default."""
    taken: dict[str, Any] = {name: value for name, value in stack.plan_fields().items() if name not in given}
    if taken.get("sequence_parallel") and job.sequence_length % plan["tp"]:
        taken["sequence_parallel"] = False  # a default must not break a rule
    if not {"vp", "schedule", "stage_layers"} & {*given}:
        taken |= _chunks(stack, plan, model, job, num_accelerators)
    if "stage_layers" not in given:
        layers = usual_stage_layers(stack, model, plan["pp"], taken.get("vp", plan["vp"]))
        taken |= {} if layers is None else {"stage_layers": layers}
    if "etp" not in given:
        degrees = {"tp": plan["tp"], "ep": plan["ep"], "pp": plan["pp"]}
        etp = usual_expert_tp(stack, model, num_accelerators, **degrees)
        taken |= {"etp": etp} if etp > 1 else {}
    return taken


def _chunks(
    stack: Stack, plan: Mapping[str, Any], model: ModelConfig, job: Job, num_accelerators: int
) -> dict[str, Any]:
    """Chunks of the pipeline as the stack makes them."""
    pp = plan["pp"]
    replicas = num_accelerators // (plan["tp"] * plan["cp"] * pp)
    microbatches = job.global_batch_size // max(replicas * plan["micro_batch_size"], 1)
    chunks = usual_chunks(stack.layers_per_chunk, model.num_hidden_layers, pp, microbatches)
    return {"vp": chunks} if chunks > 1 else {}


def switches_in_stack(stack: Stack | None, restricted: Collection[str]) -> tuple[str, ...]:
    """What a search takes from the stack for its plans and what it leaves free as text.

    Fields that the search varies stay free: a stack says what is usual, not what is possible.
    """
    if stack is None:
        return ()
    defaults = stack.plan_fields()
    taken: dict[str, Any] = {
        name: defaults[name] for name in SEARCHED_SWITCHES if name in defaults and name not in restricted
    }
    left = [name.replace("_", " ") for name in defaults if name not in taken and name not in restricted]
    texts = [f"plans have {in_words(taken)} as usual in {stack.name}"] if taken else []
    if left:
        texts.append(f"searched instead of taken from {stack.name}: {', '.join(left)} (--fix takes one)")
    return tuple(texts)


def in_words(values: Mapping[str, Any]) -> str:
    """Fields with their values as a person reads them."""
    return ", ".join(f"{name.replace('_', ' ')} {switch_word(value)}" for name, value in values.items())
