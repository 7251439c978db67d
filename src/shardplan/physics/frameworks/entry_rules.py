"""The rules that follow from the entries of a capability record, for one plan or for arrays of candidates alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import Any, Final, NamedTuple

import numpy as np

from shardplan.base.arrays import Flags, all_hold
from shardplan.base.words import switch_word
from shardplan.inputs.plan import DEFAULT_PLACEMENT, Plan, placement_tokens
from shardplan.inputs.plan_numbers import Degrees, Setting, data_parallel_degree, replicas
from shardplan.inputs.schedule_names import BUILT_IN
from shardplan.inputs.software import CHOSEN, OF_EXPERTS
from shardplan.physics.frameworks.capabilities import ANY_PLACEMENT
from shardplan.physics.frameworks.conditions import FACTS, recompute_words
from shardplan.physics.frameworks.stage_layers import layer_kinds, layers_by_cost


class Template(NamedTuple):
    """A rule that every record with a certain entry has."""

    entry: str
    """The entry of the record."""
    field: str
    reads: tuple[str, ...]
    """Facts that decide it, as conditions name them."""
    rule: Callable[[str, Any], str]
    """The sentence, from the framework's name and the entry."""
    holds: Callable[[Any, Setting, Degrees], Flags]
    """From the entry."""
    hint: Callable[[Any, Setting, Plan], str]


MODEL: Final = "model"
"""Stands for the model where a field of the plan or the job is named."""


def _missing_kinds(known: Iterable[str], s: Setting) -> list[str]:
    """Kinds of the model's layers that are not among the known ones."""
    return [kind for kind in layer_kinds(s.model) if kind not in known]


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)


def _or(names: Iterable[str]) -> str:
    """Names as alternatives: 1f1b, gpipe or interleaved."""
    *others, last = list(names) or ["nothing"]
    return f"{', '.join(others)} or {last}" if others else last


def _one_of(names: Iterable[str], nothing: str) -> str:
    return _list(names) or nothing


def _alone(degree: Any) -> Flags:
    """Whether a dimension has one rank."""
    return np.equal(degree, 1)


# Pipelines


def _runs_chunks(schedules: Any, _s: Setting, d: Degrees) -> Flags:
    """Whether a schedule exists for several chunks per rank where the plan names none."""
    return _alone(d.vp) | (d.plan.schedule is not None or "interleaved" in schedules)


def _runs_schedule(schedules: Any, _s: Setting, d: Degrees) -> Flags:
    if d.plan.schedule is not None:
        return _alone(d.pp) | (d.plan.schedule in schedules or not schedules)
    return _alone(d.pp) | d.interleaved | ("1f1b" in schedules or not schedules)


def _chunks_hint(schedules: Any, _s: Setting, _p: Plan) -> str:
    several = [name for name in schedules if name not in BUILT_IN or not BUILT_IN[name].has_one_chunk]
    return f"set vp to 1, or the schedule to {_or(several)}" if several else "set vp to 1"


def _groups_hold(sizes: Any, _s: Setting, d: Degrees) -> Flags:
    size = np.asarray(d.microbatch_group_size)
    return np.logical_or(sizes == "any", (size == 0) | (size == d.pp)) | _alone(d.vp)


def _layers_shared(ways: Any, s: Setting, d: Degrees) -> Flags:
    """Whether the layers can be shared among chunks as the plan has it."""
    if "counts" in ways:
        return True
    stated, num_layers = d.plan.stage_layers, s.model.num_hidden_layers
    if stated is None:
        return np.logical_or(bool({"remainder", "by_cost"} & {*ways}), np.equal(np.mod(num_layers, d.pp * d.vp), 0))
    alike = "equal" in ways and len(set(stated)) == 1
    return alike or ("by_cost" in ways and stated == layers_by_cost(s.model, d.plan.pp))


def _layers_rule(framework: str, ways: Any) -> str:
    words = {
        "equal": "equally",
        "counts": "by stated numbers",
        "remainder": "with a remainder that it spreads itself",
        "by_cost": "by its own count of their cost",
    }
    return f"{framework} shares layers among model chunks {' or '.join(words[way] for way in ways)}"


def _layers_hint(ways: Any, s: Setting, _p: Plan) -> str:
    if "remainder" in ways or "by_cost" in ways:
        return "leave stage_layers out"
    return f"choose pp and vp whose product divides {s.model.num_hidden_layers}, and leave stage_layers out"


def _chunks_filled(may_be_empty: Any, s: Setting, d: Degrees) -> Flags:
    if may_be_empty:
        return True
    if d.plan.stage_layers is not None:
        return all(d.plan.stage_layers)
    return np.less_equal(np.asarray(d.pp) * d.vp, s.model.num_hidden_layers)


# Sharding, recomputation, offload


def _partial_holds(kinds: Any, s: Setting, d: Degrees) -> Flags:
    whole = (np.asarray(d.sharding_degree) == 0) | np.greater_equal(d.sharding_degree, replicas(s, d))
    return whole | (d.plan.sharding in kinds)


def _recomputes_layers(counted: Any, _s: Setting, d: Degrees) -> Flags:
    """Whether a policy can be limited to the plan's number of layers of a stage."""
    number, words = d.plan.recompute_num_layers, recompute_words(d.plan.recompute)
    if number is None or not words:
        return True
    if not all(word in counted for word in words):
        return False
    per_chunk = any(counted[word] == "chunk" for word in words)
    return np.equal(np.mod(number, d.vp), 0) if per_chunk else True


def _recompute_layers_rule(framework: str, counted: Any) -> str:
    words = _list(f"{name} by layers of a {unit}" for name, unit in counted.items())
    return f"{framework} limits recomputation to a number of layers: {words or 'no policy'}"


def _recompute_layers_hint(counted: Any, _s: Setting, p: Plan) -> str:
    if all(word in counted for word in recompute_words(p.recompute)):
        return f"set recompute_num_layers to a multiple of vp {p.vp}: every chunk of a stage recomputes equally many"
    number = p.recompute_num_layers or 0
    limited = [word for word, unit in counted.items() if unit != "chunk" or number % p.vp == 0]
    return "leave recompute_num_layers out" + (f", or recompute {_or(limited)}" if limited else "")


# Ranks


def _etp_holds(degree: Any, s: Setting, d: Degrees) -> Flags:
    wanted = {"any": d.etp, "one": 1, "tp": d.tp}[degree]
    return np.equal(d.etp, wanted) | (not s.model.is_moe)


def _placed(orders: Any, s: Setting, d: Degrees) -> Flags:
    """Whether the ranks lie as in one of the orders; dimensions of one rank lie anywhere."""
    if ANY_PLACEMENT in orders:
        return True
    tokens = placement_tokens(d.plan.placement)
    if any(number is not None for _, number in tokens):
        return False
    degrees = {"tp": d.tp, "cp": d.cp, "ep": d.ep, "pp": d.pp, "dp": data_parallel_degree(s, d)}
    found: Flags = False
    for order in orders:
        found = np.logical_or(found, _same_order([name for name, _ in tokens], order.split("-"), degrees))
    return found


def _same_order(one: list[str], other: list[str], degrees: dict[str, Any]) -> Flags:
    swapped = [(a, b) for a, b in combinations(one, 2) if other.index(a) > other.index(b)]
    return all_hold(_alone(degrees[a]) | _alone(degrees[b]) for a, b in swapped)


def _switch(name: str, words: str, dimension: str) -> Template:
    """The rule of a switch that may be fixed; it has no effect where ``dimension`` has one rank."""
    states = {"either": "can be turned on and off", "on": "is always on", "off": "is always off"}

    def holds(fixed: Any, s: Setting, d: Degrees) -> Flags:
        value = getattr(d.plan, name)
        degree = replicas(s, d) if dimension == "replicas" else getattr(d, dimension)
        return _alone(degree) | (fixed == "either" or value is None or value == (fixed == "on"))

    def rule(framework: str, fixed: Any) -> str:
        return f"in {framework} {words} {states[fixed]}"

    return Template(name, name, (name, dimension), rule, holds, lambda fixed, _s, _p: f"turn {name} {fixed}")


def _dimension(entry: str, degree: str, kind: str, words: tuple[str, str], nothing: str) -> tuple[Template, Template]:
    """The rules of a dimension that a framework has in some kinds, or not at all; ``words``: its name, and its way."""
    name, way = words
    return (
        Template(
            entry, degree, (degree,),
            lambda framework, kinds: f"{framework} has {'' if kinds else 'no '}{name}",
            lambda kinds, _s, d: _alone(getattr(d, degree)) | bool(kinds),
            lambda _e, _s, _p: f"set {degree} to 1",
        ),
        Template(
            entry, kind, (degree, kind),
            lambda framework, kinds: f"{framework} {way} {_one_of(kinds, nothing)}",
            lambda kinds, _s, d: _alone(getattr(d, degree)) | (not kinds or getattr(d.plan, kind) in kinds),
            lambda kinds, _s, _p: f"set {kind} to {_or(kinds)}",
        ),
    )  # fmt: skip


# Software


def _choices(choices: Any) -> str:
    return ", ".join(f"{name} {_values(choices, name)}" for name in choices)


def _of_jobs(choices: Any) -> dict[str, Any]:
    """What the framework has of fields that only a job states."""
    return {name: values for name, values in choices.items() if name not in CHOSEN}


def _other_choices(choices: Any, s: Setting) -> list[str]:
    """Those of these fields of which the job has something else."""
    read = [name for name in _of_jobs(choices) if s.model.is_moe or name not in OF_EXPERTS]
    return [name for name in read if getattr(s.job.software, name) not in choices[name]]


def _software(name: str) -> Template:
    """The rule of a field that a plan may state, and that is as the job says where it does not."""
    return Template(
        "software", "software", (name,),
        lambda framework, choices: f"in {framework} a run can have {name} {_values(choices, name)}",
        lambda choices, s, d: (
            name not in choices or (name in OF_EXPERTS and not s.model.is_moe) or FACTS[name](s, d) in choices[name]
        ),
        lambda choices, _s, _p: f"set {_set(choices, name)}",
    )  # fmt: skip


def _values(choices: Any, name: str) -> str:
    return _or(map(switch_word, choices.get(name, ())))


def _set(choices: Any, name: str) -> str:
    """A field with what it can be set to: a word, or on and off."""
    is_switch = all(isinstance(each, bool) for each in choices.get(name, ()))
    return f"{name} {'' if is_switch else 'to '}{_values(choices, name)}"


def _few_bits(known: Sequence[str]) -> str:
    return f"as they are, or in {_list(known)}" if known else "as they are"


TEMPLATES: Final = (
    Template(
        "vendors", "accelerator", ("vendor",),
        lambda framework, makers: f"{framework} runs on accelerators of {_list(makers)}",
        lambda makers, s, _d: s.cluster.accelerator.vendor in ("", *makers),
        lambda makers, _s, _p: f"choose an accelerator of {_or(makers)}, or a framework that runs on this one",
    ),
    Template(
        "layer_kinds", MODEL, (),
        lambda framework, known: f"{framework} supports these kinds of layers: {_list(known)}",
        lambda known, s, _d: not _missing_kinds(known, s),
        lambda known, s, _p: f"choose a framework that has {_list(_missing_kinds(known, s))} (--stack all compares)",
    ),
    Template(
        "lora", "train", (),
        lambda framework, has: f"{framework} has {'' if has else 'no '}low-rank adapters",
        lambda has, s, _d: has or s.job.train != "lora",
        lambda _e, _s, _p: "set train to full, or choose a framework with adapters (--stack all compares)",
    ),
    Template(
        "base_weights", "base_weights", (),
        lambda framework, known: f"{framework} keeps weights next to adapters {_few_bits(known)}",
        lambda known, s, _d: s.job.packed_weights is None or s.job.base_weights in known,
        lambda known, _s, _p: f"set base_weights to {_or(('same', *known))}, or choose another framework (--stack all)",
    ),
    Template(
        "packed_documents", "documents", (),
        lambda framework, has: f"{framework} {'masks' if has else 'does not mask'} attention between documents",
        lambda has, s, _d: has or s.job.documents is None,
        lambda _e, _s, _p: "leave documents out",
    ),
    Template(
        "schedules", "pp", ("pp",),
        lambda framework, schedules: f"{framework} has {'pipelines' if schedules else 'no pipelines'}",
        lambda schedules, _s, d: _alone(d.pp) | bool(schedules),
        lambda _e, _s, _p: "set pp to 1",
    ),
    Template(
        "schedules", "vp", ("vp", "schedule"),
        lambda framework, schedules: f"{framework} runs pipelines by {_one_of(schedules, 'no schedule')}",
        _runs_chunks, _chunks_hint,
    ),
    Template(
        "schedules", "schedule", ("pp", "vp", "schedule"),
        lambda framework, schedules: f"{framework} runs pipelines by {_one_of(schedules, 'no schedule')}",
        _runs_schedule,
        lambda schedules, _s, _p: f"set the schedule to {_or(schedules)}",
    ),
    Template(
        "group_sizes", "microbatch_group_size", ("pp", "vp", "microbatch_group_size"),
        lambda framework, sizes: f"in {framework} a virtual stage runs {sizes} micro-batches in a row",
        _groups_hold,
        lambda _e, _s, p: f"leave microbatch_group_size out, or set it to pp {p.pp}",
    ),
    Template(
        "layers", "stage_layers", ("pp", "vp", "stage_layers"),
        _layers_rule, _layers_shared, _layers_hint,
    ),
    Template(
        "empty_chunks", "vp", ("pp", "vp", "stage_layers"),
        lambda framework, _e: f"in {framework} every model chunk has layers",
        _chunks_filled,
        lambda _e, s, _p: f"lower pp or vp until their product is at most {s.model.num_hidden_layers}",
    ),
    Template(
        "shardings", "sharding", ("pp", "sharding"),
        lambda framework, kinds: f"{framework} shards without a pipeline by {_list(kinds)}",
        lambda kinds, _s, d: np.not_equal(d.pp, 1) | (d.plan.sharding in kinds),
        lambda kinds, _s, _p: f"set sharding to {_or(kinds)}",
    ),
    Template(
        "pipelined_shardings", "sharding", ("pp", "sharding"),
        lambda framework, kinds: f"{framework} with a pipeline supports sharding {_one_of(kinds, 'of no kind')}",
        lambda kinds, _s, d: _alone(d.pp) | (d.plan.sharding in kinds or not kinds),
        lambda kinds, _s, _p: f"set sharding to {_or(kinds)}, or pp to 1",
    ),
    Template(
        "partial_shardings", "sharding_degree", ("tp", "pp", "sharding", "sharding_degree"),
        lambda framework, kinds: f"{framework} over some replicas supports sharding {_one_of(kinds, 'of no kind')}",
        _partial_holds,
        lambda kinds, _s, _p: "leave sharding_degree out" + (f", or shard by {_or(kinds)}" if kinds else ""),
    ),
    Template(
        "recompute", "recompute", ("recompute",),
        lambda framework, words: f"{framework} supports recompute {_one_of(words, 'none')}",
        lambda words, _s, d: all(word in words for word in recompute_words(d.plan.recompute)),
        lambda words, _s, _p: f"set recompute to {_or(('none', *words))}",
    ),
    Template(
        "recompute_layers", "recompute_num_layers", ("vp", "recompute", "recompute_num_layers"),
        _recompute_layers_rule, _recomputes_layers, _recompute_layers_hint,
    ),
    *_dimension("cp_comm", "cp", "cp_comm", ("context parallelism", "exchanges keys and values by"), "nothing"),
    *_dimension("tp_kinds", "tp", "tp_kind", ("tensor parallelism", "has tensor parallelism of kind"), "none"),
    _switch("sequence_parallel", "sequence parallelism", "tp"),
    Template(
        "expert_parallel", "ep", ("ep",),
        lambda framework, has: f"{framework} has {'' if has else 'no '}expert parallelism",
        lambda has, _s, d: _alone(d.ep) | has,
        lambda _e, _s, _p: "set ep to 1",
    ),
    Template(
        "expert_tensor_parallel", "etp", ("tp", "ep", "etp"),
        lambda framework, degree: f"{framework} has expert-tensor parallelism of degree {degree}",
        _etp_holds,
        lambda degree, _s, p: f"set etp to {p.tp if degree == 'tp' else 1}",
    ),
    _switch("overlap_tp", "overlap of tensor-parallel collectives with their products", "tp"),
    _switch("overlap_dp", "overlap of gradient reduction and parameter gathering with computation", "replicas"),
    _switch("overlap_pp", "overlap of transfers between stages with computation", "pp"),
    _switch("overlap_ep", "overlap of expert dispatch with another micro-batch", "ep"),
    Template(
        "precisions", "precision", ("precision",),
        lambda framework, known: f"{framework} trains in {_list(known)}",
        lambda known, s, _d: s.job.precision in known,
        lambda known, _s, _p: f"set precision to {_or(known)}",
    ),
    Template(
        "optimizers", "optimizer", ("optimizer",),
        lambda framework, known: f"{framework} has the optimizers {_list(known)}",
        lambda known, s, _d: s.job.optimizer in known,
        lambda known, _s, _p: f"set optimizer to {_or(known)}",
    ),
    Template(
        "software", "software", (),
        lambda framework, choices: f"in {framework} a run can have {_choices(_of_jobs(choices))}",
        lambda choices, s, _d: not _other_choices(choices, s),
        lambda choices, s, _p: f"set {' and '.join(_set(choices, name) for name in _other_choices(choices, s))}",
    ),
    *map(_software, CHOSEN),
    Template(
        "offload", "offload", ("offload",),
        lambda framework, known: f"{framework} can keep in host memory: {_one_of(known, 'nothing')}",
        lambda known, _s, d: d.plan.offload in ("none", *known),
        lambda known, _s, _p: f"set offload to {_or(('none', *known))}",
    ),
    Template(
        "offload_layers", "offload_num_layers", ("offload_num_layers",),
        lambda framework, _e: f"{framework} offloads activations of all layers or of none",
        lambda some, _s, d: some or d.plan.offload_num_layers is None,
        lambda _e, _s, _p: "leave offload_num_layers out",
    ),
    Template(
        "placements", "placement", ("placement", "tp", "cp", "ep", "dp", "pp"),
        lambda framework, orders: f"{framework} places ranks in the order {' or '.join(orders)}",
        _placed,
        lambda orders, _s, _p: f"set placement to {_or(orders or (DEFAULT_PLACEMENT,))}",
    ),
)  # fmt: skip
"""Rules of the entries, in the order in which they are named."""
