"""``--stack``: the defaults of a training framework in place of what flags leave open, each of them said."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from shardplan.frameworks.usual_plan import usual_chunks, usual_expert_tp, usual_sharding, usual_stage_layers

if TYPE_CHECKING:
    from shardplan.estimation.question import Question
    from shardplan.frameworks.stack import Stack
    from shardplan.inputs.job import Job
    from shardplan.inputs.plan import Plan
    from shardplan.inputs.software import Software


SWITCHES: Final = ("cp_comm", "overlap_tp", "overlap_dp", "overlap_pp", "overlap_ep")
"""Defaults of a plan that a search does not vary by itself."""


def job_of_stack(
    job: Job, stack: Stack | None, job_given: Collection[str], software_given: Mapping[str, Any]
) -> tuple[Job, tuple[str, ...]]:
    """The job with the stack's defaults where no flag was given, and what was taken, in words. Raises InputError."""
    if stack is None:
        return replace(job, software=replace(job.software, **software_given)), ()
    defaults = stack.job_fields(job.precision)
    of_stack: Software = defaults.pop("software")
    software = replace(of_stack, **software_given)
    taken = {name: value for name, value in defaults.items() if name not in job_given}
    stated = {
        name: getattr(software, name)
        for name, value in stack.software.items()
        if name not in software_given and not (isinstance(value, Mapping) and job.precision not in value)
    }
    words = _words({**stated, **taken})
    assumed = (f"stack {stack.name}: {words}",) if words else (f"stack {stack.name}",)
    return replace(job, software=software, **taken), assumed


def plan_of_stack(
    stack: Stack | None, plan: Plan, question: Question, given: Collection[str]
) -> tuple[Plan, tuple[str, ...]]:
    """A plan whose fields beside the ``given`` ones are the stack's, and what was taken, in words."""
    if stack is None:
        return plan, ()
    taken: dict[str, Any] = {name: value for name, value in stack.plan_fields().items() if name not in given}
    if "sequence_parallel" in taken and question.job.sequence_length % plan.tp:
        del taken["sequence_parallel"]  # a default must not break a rule
    sharding = taken.get("sharding", plan.sharding)
    pipelined = usual_sharding(stack, sharding, plan.pp)
    notes: list[str] = []
    if pipelined != sharding:
        if "sharding" in taken:
            taken["sharding"] = pipelined
        else:
            notes.append(
                f"{stack.name} with a pipeline: {sharding} costs what {pipelined} does (--sharding {pipelined})"
            )
    taken |= _stages(stack, plan, question, given) | _experts(stack, plan, question, given)
    words = _words(taken)
    return replace(plan, **taken), (*([f"plan as usual in {stack.name}: {words}"] if words else []), *notes)


def _stages(stack: Stack, plan: Plan, question: Question, given: Collection[str]) -> dict[str, Any]:
    """Chunks or stages of the pipeline as the stack makes them, where nothing is said of them."""
    if {"vp", "schedule", "stage_layers"} & {*given}:
        return {}
    model, dp = question.model, plan.dp(question.num_accelerators)
    microbatches = question.job.global_batch_size // max(dp * plan.micro_batch_size, 1)
    chunks = usual_chunks(stack.layers_per_chunk, model.num_hidden_layers, plan.pp, microbatches)
    layers = usual_stage_layers(stack, model, plan.pp, chunks)
    return ({"vp": chunks} if chunks > 1 else {}) | ({} if layers is None else {"stage_layers": layers})


def _experts(stack: Stack, plan: Plan, question: Question, given: Collection[str]) -> dict[str, Any]:
    """Expert-tensor parallelism as the stack has it, where nothing is said of it."""
    degrees = {"tp": plan.tp, "ep": plan.ep, "pp": plan.pp}
    etp = 1 if "etp" in given else usual_expert_tp(stack, question.model, question.num_accelerators, **degrees)
    return {"etp": etp} if etp > 1 else {}


def switches_of_stack(
    stack: Stack | None, restricted: Collection[str]
) -> tuple[dict[str, tuple[object, ...]], tuple[str, ...]]:
    """Fields of the plan that a search takes from the stack, as ``--fix`` has them, and what is said about it.

    Fields that the search varies stay free: a stack says what is usual, not what is possible.
    """
    if stack is None:
        return {}, ()
    defaults = stack.plan_fields()
    taken: dict[str, Any] = {name: defaults[name] for name in SWITCHES if name in defaults and name not in restricted}
    left = [name.replace("_", " ") for name in defaults if name not in taken and name not in restricted]
    texts = [f"plans have {_words(taken)} as usual in {stack.name}"] if taken else []
    if left:
        texts.append(f"not taken from {stack.name}, so that the search is free: {', '.join(left)} (--fix takes one)")
    return {name: (value,) for name, value in taken.items()}, tuple(texts)


def _words(values: Mapping[str, Any]) -> str:
    """Fields with their values as a person reads them."""
    return ", ".join(f"{name.replace('_', ' ')} {_word(value)}" for name, value in values.items())


def _word(value: object) -> str:
    return ("off", "on")[value] if isinstance(value, bool) else str(value)
