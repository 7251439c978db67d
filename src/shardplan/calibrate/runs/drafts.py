"""The plan and job of a measured run: its own values, and for the rest the defaults of its framework's stack."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from shardplan.base.errors import UnknownNameError, nearest_names
from shardplan.base.fields import dataclass
from shardplan.base.files import note_read
from shardplan.base.words import folded, guess
from shardplan.calibrate.runs.choices import MOST_SHOWN, Choices
from shardplan.calibrate.runs.cluster import cluster_of_run
from shardplan.calibrate.runs.options import apply_options
from shardplan.calibrate.runs.rows import MeasuredRun
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.job import Job
from shardplan.inputs.layers import MLP, MixtureOfExperts
from shardplan.inputs.model import ModelConfig, with_positions
from shardplan.inputs.plan import NAMED_POLICIES, RECOMPUTE_PRESETS, Plan, recompute_modules
from shardplan.inputs.readers.catalog import load_model
from shardplan.inputs.readers.hf.file import config_path
from shardplan.inputs.readers.hub import cached_model
from shardplan.inputs.readers.names import name_meant, taken_as
from shardplan.inputs.sharding import kinds_that
from shardplan.inputs.software import Software
from shardplan.inputs.words import ATTENTION_GENERATIONS
from shardplan.physics.frameworks.releases import PARTS, in_month
from shardplan.physics.frameworks.stack import Stack, list_stacks, load_stack
from shardplan.physics.frameworks.usual_stack import usual_chunks, usual_expert_tp, usual_stage_layers
from shardplan.physics.schedules.registry import SCHEDULES


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A measured run with all its values decided, before rules are checked."""

    choices: Choices
    model: ModelConfig
    cluster: Cluster
    job: Job
    plan: Plan

    @property
    def run(self) -> MeasuredRun:
        """The measured run, by our names."""
        return self.choices.run


def draft_of(run: MeasuredRun) -> Draft:
    """The draft of ``run``. Raises ``ShardplanError`` if it cannot be determined."""
    run, named = _with_own_names(run)
    choices = Choices(run=run)
    read = _model(run)
    model = with_positions(read, run.sequence_length)
    if model is not read:
        length = f"{run.sequence_length:,} tokens"
        choices.assumed.append(f"{read.name} reads sequences of {length}, beyond its learned positions")
    _take_words(choices, named)
    stack = stack_of(run, choices)
    _take_job(choices, stack)
    _take_plan(choices, stack)
    apply_options(choices)
    cluster = cluster_of_run(run, choices.network)
    _settle_sharding(choices)
    _settle_recompute(choices, model)
    _settle_experts(choices, stack, model)
    size: dict[str, Any] = {"sequence_length": run.sequence_length, "global_batch_size": run.global_batch_size}
    job = Job(**size, software=Software(**choices.software), **choices.job)
    _settle_stages(choices, stack, model)
    return Draft(choices=choices, model=model, cluster=cluster, job=job, plan=Plan(**choices.plan))


def _with_own_names(run: MeasuredRun) -> tuple[MeasuredRun, tuple[str, ...]]:
    """The run with the catalogue's names of its accelerator and model, and notes on how names were understood."""
    found = {
        "model": None if _is_file(run.folder, run.model) else name_meant("model", run.model),
        "accelerator": None if _is_file(Path(), run.accelerator) else name_meant("accelerator", run.accelerator),
    }
    changed = {column: name for column, name in found.items() if name is not None}
    taken = tuple(f"{column} {taken_as(column, getattr(run, column))}" for column in changed)
    return (replace(run, **changed) if changed else run), taken  # type: ignore[arg-type] # names of both are text


def _is_file(folder: Path, name: str) -> bool:
    """Whether the name is the path of an existing file or folder."""
    try:
        return "/" in name and (folder / name).exists()
    except (OSError, ValueError):  # too long, or with a null character
        return False


def _take_words(choices: Choices, named: tuple[str, ...]) -> None:
    """Notes which columns are unknown, and how names and cells were understood."""
    for text in named:
        choices.say_taken(text)
    for name in choices.run.unknown:
        choices.say_unknown(f"column {name}")
    for column, taken in choices.run.taken.items():
        choices.say_taken(f"{column} {taken.text[:MOST_SHOWN]} is taken as {taken.meaning or taken.value}")


def stack_of(run: MeasuredRun, choices: Choices | None = None) -> Stack | None:
    """The stack of a run: the one that ``options`` names, or that of its framework whose conditions it meets."""
    choices = choices or Choices(run=run)
    named = _stack_named(run.options["stack"], choices) if "stack" in run.options else None
    found = named or _stack_of_framework(choices)
    return found if found is None or not run.software_date else _stack_of_month(choices, found)


def _stack_of_month(choices: Choices, stack: Stack) -> Stack:
    """The stack as it was in the month of the run's software, if that differs from today's."""
    found = in_month(stack, choices.run.software_date)
    values = ((name, value, getattr(stack, part)) for part in PARTS for name, value in getattr(found, part).items())
    changed = [name for name, value, today in values if today.get(name) != value]
    if changed:
        choices.assumed.append(f"{stack.name} of {choices.run.software_date}: {', '.join(changed)} as then")
    return found


def _stack_named(name: str, choices: Choices) -> Stack | None:
    """The stack that ``options`` names; if the name is unknown, reports that and returns None."""
    try:
        return load_stack(_relative_to_run(choices.run, name, (".yaml", ".yml", ".json")))
    except UnknownNameError:
        known = {folded(stack): stack for stack in list_stacks()}
        choices.not_known("stack", name, "one of the stacks", guess(name, known))
        return None


def _stack_of_framework(choices: Choices) -> Stack | None:
    run = choices.run
    framework, stacks = _framework(run.framework)
    stated: dict[str, Any] = vars(run) | {"model": Path(run.model).stem}
    fitting = [stack for stack in stacks if all(stated.get(name) in known for name, known in stack.where.items())]
    if not fitting:
        choices.assumed.append(f"{_without_stack(run)}: the defaults of a job and a plan")
        return None
    if framework != folded(run.framework):
        choices.say_taken(f"framework {run.framework} is taken as {fitting[0].frameworks[0]}")
    return max(fitting, key=lambda stack: len(stack.where))


@lru_cache(maxsize=256)
def _framework(name: str) -> tuple[str, tuple[Stack, ...]]:
    """The folded name of a framework or of the one whose alias it is; and its stacks."""
    known = [load_stack(each) for each in list_stacks()]
    aliases = {folded(alias): folded(stack.frameworks[0]) for stack in known for alias in stack.aliases}
    own = aliases.get(folded(name), folded(name))
    return own, tuple(stack for stack in known if own in map(folded, stack.frameworks))


def _without_stack(run: MeasuredRun) -> str:
    """Why a run has no stack, with the frameworks that it may have meant."""
    if not run.framework:
        return "no framework is stated"
    nearest = nearest_names(run.framework, (name for each in list_stacks() for name in load_stack(each).frameworks))
    meant = f" (did you mean {' or '.join(nearest)}?)" if nearest else ""
    return f"framework '{run.framework}' has no stack{meant}"


def _relative_to_run(run: MeasuredRun, given: str, suffixes: tuple[str, ...]) -> str | Path:
    """A name, or the path of a file relative to the file of the run."""
    return run.folder / given if "/" in given or given.lower().endswith(suffixes) else given


def _take_job(choices: Choices, stack: Stack | None) -> None:
    """Chooses fields of ``Job`` and ``Software``: stated ones, or the stack's."""
    run = choices.run
    precision = run.precision or "bf16"
    defaults: dict[str, Any] = stack.job_fields(precision) if stack else {}
    software: Software = defaults.pop("software", Software())
    choices.software |= {name: getattr(software, name) for name in (stack.software if stack else ())}
    choices.job |= defaults | {"precision": precision}
    if run.precision is None:
        choices.assumed.append("precision bf16")
    for name in ("grad_dtype", "attention"):
        stated = getattr(run, name)
        if stated is not None:
            choices.job[name] = stated
        else:
            _note_default(choices, stack, name, choices.job.get(name))
    if "attention" in run.taken:
        generation = ATTENTION_GENERATIONS.get(folded(run.taken["attention"].text))
        choices.software |= {"attention_generation": generation} if generation else {}


def _take_plan(choices: Choices, stack: Stack | None) -> None:
    """Chooses fields of ``Plan``: stated ones, or the stack's."""
    run = choices.run
    choices.plan |= stack.plan_fields() if stack else {}
    for name in ("sharding", "sequence_parallel"):
        stated = getattr(run, name)
        if stated is not None:
            choices.plan[name] = stated
        elif name == "sharding" or (run.tp or 1) > 1:
            _note_default(choices, stack, name, choices.plan.get(name))
    if run.sequence_parallel is None and run.sequence_length % (run.tp or 1):
        choices.plan["sequence_parallel"] = False  # a default must not break a rule
    if run.recompute:
        choices.plan["recompute"] = NAMED_POLICIES.get(run.recompute, run.recompute)
    else:
        _note_default(choices, stack, "recompute", choices.plan.get("recompute", "none"))
    for name in ("tp", "pp", "cp", "ep", "etp", "micro_batch_size"):
        degree = getattr(run, name)
        choices.plan[name] = degree or 1
        if degree is None and name in ("tp", "pp", "micro_batch_size"):
            choices.assumed.append(f"{name} 1")
    choices.plan["offload"] = run.offload or choices.plan.get("offload", "none")
    choices.plan["sharding_degree"] = run.sharding_degree


LAYERS_PER_CHUNK = 2
"""Layers of a chunk in a pipeline that is only known to be interleaved, as in most published recipes."""


def _note_default(choices: Choices, stack: Stack | None, name: str, value: object) -> None:
    origin = f"default of {stack.name}" if stack else "default"
    choices.assumed.append(f"{name} {value if value is not None else 'as usual'} ({origin})")


def _settle_sharding(choices: Choices) -> None:
    """Corrects sharding: zero3 over fewer ranks than hold the same weights is hsdp; hsdp and hpz over all are zero3."""
    plan, run = choices.plan, choices.run
    replicas = run.num_accelerators // (plan["tp"] * plan["pp"])
    degree = plan["sharding_degree"]
    if degree is not None and degree >= replicas:
        degree = None
    if plan.get("sharding") == "zero3" and degree is not None:
        plan["sharding"] = "hsdp"
    elif plan.get("sharding") in kinds_that("in_groups") and degree is None:
        plan["sharding"] = "zero3"
    plan["sharding_degree"] = degree


def _settle_recompute(choices: Choices, model: ModelConfig) -> None:
    """Leaves out modules that the model lacks: Megatron's ``mlp`` means dense layers only."""
    policy = choices.plan.get("recompute", "none")
    if policy in RECOMPUTE_PRESETS:
        return
    lacking = set() if any(isinstance(kind.mlp, MLP) for kind in model.layer_kinds) else {"mlp"}
    if not any(isinstance(kind.mlp, MixtureOfExperts) for kind in model.layer_kinds):
        lacking |= {"moe", "shared_experts"}
    modules = recompute_modules(policy)
    dropped = [module for module in modules if module in lacking]
    if dropped:
        choices.plan["recompute"] = ",".join(module for module in modules if module not in lacking) or "none"
        choices.ignored.append(f"recompute of {', '.join(dropped)}: {model.name} has none")


def _settle_experts(choices: Choices, stack: Stack | None, model: ModelConfig) -> None:
    """Chooses expert-tensor parallelism that is not stated: the framework's, if there are enough ranks."""
    plan, run = choices.plan, choices.run
    if stack is None or run.etp is not None:
        return
    plan["etp"] = usual_expert_tp(stack, model, run.num_accelerators, tp=plan["tp"], ep=plan["ep"], pp=plan["pp"])
    if plan["etp"] > 1:
        choices.assumed.append(f"etp {plan['tp']}, as tp (default of {stack.name})")


def _settle_stages(choices: Choices, stack: Stack | None, model: ModelConfig) -> None:
    """Chooses the model chunks of a pipeline rank: stated ones, or the stack's usual number of layers in each."""
    plan, run, sizes = choices.plan, choices.run, choices.plan.get("stage_layers")
    implied = len(sizes) // plan["pp"] if sizes is not None and len(sizes) % plan["pp"] == 0 else _chunks_of(plan)
    plan["vp"] = plan.get("vp") or run.vp or implied or _usual_vp(choices, stack, model)
    if plan["pp"] == 1 and plan["vp"] > 1:
        choices.ignored.append(f"vp {plan['vp']}: there is no pipeline")
        plan["vp"] = 1
    _settle_schedule(choices)
    if sizes is not None and (len(sizes) != plan["pp"] * plan["vp"] or sum(sizes) != model.num_hidden_layers):
        del plan["stage_layers"]
        choices.ignored.append(f"pp_layout of {len(sizes)} chunks and {sum(sizes)} layers: it does not fit the plan")
    by_cost = usual_stage_layers(stack, model, plan["pp"], plan["vp"]) if "stage_layers" not in plan else None
    if stack is not None and by_cost is not None:
        plan["stage_layers"] = by_cost
        choices.assumed.append(f"stages closed by cost (as in {stack.name})")


def _settle_schedule(choices: Choices) -> None:
    """Makes schedule and chunks consistent: 1F1B of several chunks interleaves, other schedules set the chunks."""
    plan = choices.plan
    name, chunks = plan.get("schedule"), _chunks_of(plan)
    if plan["pp"] == 1 or (_takes_several_chunks(plan) and plan["vp"] == 1):
        plan.pop("schedule", None)
    elif name in ("1f1b", "gpipe") and plan["vp"] > 1:
        choices.ignored.append(f"schedule {plan.pop('schedule')}: vp {plan['vp']} interleaves")
    elif chunks is not None and plan["vp"] != chunks:
        choices.ignored.append(f"vp {plan['vp']}: schedule {name} has {chunks} model chunks on each rank")
        plan["vp"] = chunks
    if name == "zb-h2" and _num_microbatches(choices) < SCHEDULES[name].least_microbatches(plan["pp"]):
        plan["schedule"] = "zb-h1"  # so few are all in flight at once under either
        choices.say_taken(f"schedule {choices.run.options['schedule']} of few micro-batches is taken as zb-h1")


def _chunks_of(plan: dict[str, Any]) -> int | None:
    """Model chunks of a rank that the plan's schedule requires, if there is no choice."""
    schedule = SCHEDULES.get(plan.get("schedule", ""))
    return schedule.least_vp if schedule is not None and schedule.least_vp == schedule.most_vp else None


def _takes_several_chunks(plan: dict[str, Any]) -> bool:
    """Whether the plan's schedule takes any number of chunks on each rank."""
    schedule = SCHEDULES.get(plan.get("schedule", ""))
    return schedule is not None and schedule.least_vp > 1 and schedule.most_vp is None


def _num_microbatches(choices: Choices) -> int:
    """Micro-batches of a replica in a step."""
    plan, run = choices.plan, choices.run
    dp = max(run.num_accelerators // (plan["tp"] * plan["cp"] * plan["pp"]), 1)
    return int(run.global_batch_size // max(dp * plan["micro_batch_size"], 1))


def _usual_vp(choices: Choices, stack: Stack | None, model: ModelConfig) -> int:
    """Model chunks of the stack's usual size, or of the general one if a pipeline is known to be interleaved."""
    plan = choices.plan
    pp, wanted = plan["pp"], stack.layers_per_chunk if stack else None
    if wanted is None and _takes_several_chunks(plan):
        wanted = LAYERS_PER_CHUNK
    vp = usual_chunks(wanted, model.num_hidden_layers, pp, _num_microbatches(choices))
    if pp > 1 and wanted is not None:
        size = f"about {wanted} layers in each model chunk" if vp > 1 else "not interleaved"
        choices.assumed.append(f"vp {vp}: {size}")
    return vp


def _model(run: MeasuredRun) -> ModelConfig:
    path = _relative_to_run(run, run.model, (".json",))
    if isinstance(path, str):
        return _model_at(path, 0)
    try:
        changed = path.stat().st_mtime_ns
        note_read(config_path(path))
    except (OSError, ValueError):
        is_cached = cached_model(run.model) is not None
        return load_model(run.model) if is_cached else _model_at(str(path), 0)
    return _model_at(str(path), changed)


@lru_cache(maxsize=1024)
def _model_at(name_or_path: str, _changed: int) -> ModelConfig:
    return load_model(Path(name_or_path) if "/" in name_or_path else name_or_path)
