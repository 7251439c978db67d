"""Every rule that a plan must keep, written once: for one plan or for all candidates of a search.

A rule says whether it holds, for numbers or arrays; for one plan it also says which values break it and which
knob to turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from shardplan.base.arrays import Flags, Numbers, all_hold
from shardplan.base.errors import PlanError, nearest_names
from shardplan.base.fields import dataclass
from shardplan.inputs.compressed import CompressedAttention
from shardplan.inputs.layers import MLP, LatentAttention, MixtureOfExperts
from shardplan.inputs.plan import RECOMPUTE_PRESETS, Plan, recompute_modules
from shardplan.inputs.plan_numbers import (
    Degrees,
    Setting,
    columns,
    data_parallel_degree,
    differing_in_numbers,
    num_microbatches,
    replicas,
)
from shardplan.physics.schedules.base import SUITS, Pipeline
from shardplan.physics.schedules.registry import INTERLEAVED, ONE_F_ONE_B, is_known, list_schedules, load_schedule


@dataclass(frozen=True)
class Rule:
    """One rule of validity."""

    name: str
    holds: Callable[[Setting, Degrees], Flags]
    message: Callable[[Setting, Plan], str]
    hint: Callable[[Setting, Plan], str]

    def broken_by(self, plan: Plan, setting: Setting) -> PlanError:
        """What to say of a plan that breaks the rule."""
        return PlanError(self.message(setting, plan), rule=self.name, hint=self.hint(setting, plan))


def check_plans(plans: Sequence[Plan], setting: Setting) -> None:
    """Raises ``PlanError`` for the first plan that breaks a rule."""
    for plan, rule in zip(plans, broken_rules(setting, plans), strict=True):
        if rule is not None:
            raise rule.broken_by(plan, setting)


def broken_rule(setting: Setting, plan: Plan) -> Rule | None:
    """The first rule that ``plan`` breaks, if any."""
    return broken_rules(setting, (plan,))[0]


def broken_rules(setting: Setting, plans: Sequence[Plan]) -> list[Rule | None]:
    """The first rule that each of several plans breaks, if any; plans that differ in numbers alone are asked once."""
    found: list[Rule | None] = [None] * len(plans)
    for alike in differing_in_numbers(plans, besides=("sharding",)):  # of which a number is read
        degrees, left = Degrees.of_all([plans[place] for place in alike]), np.ones(len(alike), dtype=bool)
        for rule in RULES:
            holds = np.broadcast_to(rule.holds(setting, degrees), left.shape)
            for place in np.flatnonzero(left & ~holds).tolist():
                found[alike[place]] = rule
            left &= holds
            if not left.any():
                break
    return found


def _divides(part: Numbers, whole: Numbers) -> Flags:
    """Whether ``part`` divides ``whole`` (0 where ``whole`` is not a whole number)."""
    return np.equal(np.mod(whole, part), 0)


def _all_divided(part: Numbers, wholes: tuple[int, ...]) -> Flags:
    return all_hold(_divides(part, whole) for whole in wholes)


def _shared_cp(s: Setting, p: Plan) -> int:
    """The largest degree up to that of ``p`` by which all heads divide."""
    return next(
        cp
        for cp in range(p.cp, 0, -1)
        if cp == 1 or _all_divided(max(p.tp // p.tp_rows, 1) * cp, (*s.heads, *s.kv_heads))
    )


def _pipeline(s: Setting, d: Degrees) -> Pipeline:
    """What the rules of schedules read."""
    group_size = np.where(np.asarray(d.microbatch_group_size) > 0, d.microbatch_group_size, d.pp)
    return Pipeline(pp=d.pp, vp=d.vp, num_microbatches=num_microbatches(s, d), group_size=group_size)


def _schedule_holds(s: Setting, d: Degrees, rule: str) -> Flags:
    """Whether the schedule can run, where ``rule`` is its rule."""
    if d.plan.schedule in (None, INTERLEAVED.name):  # as vp has it
        at = _pipeline(s, d)
        holds = np.where(d.interleaved, INTERLEAVED.can_run(at), ONE_F_ONE_B.can_run(at))
        return holds if rule == INTERLEAVED.rule else True
    if not is_known(d.plan.effective_schedule):
        return True  # another rule says so
    schedule = load_schedule(d.plan.effective_schedule)
    return schedule.can_run(_pipeline(s, d)) if schedule.rule == rule else True


def _schedule_message(s: Setting, p: Plan) -> str:
    return load_schedule(p.effective_schedule).message(_pipeline(s, Degrees.of(p)))


def _schedule_hint(s: Setting, p: Plan) -> str:
    sequences = p.dp(s.num_accelerators) * p.micro_batch_size
    return load_schedule(p.effective_schedule).hint(_pipeline(s, Degrees.of(p)), sequences)


def _schedule_rule(rule: str) -> Rule:
    return Rule(rule, lambda s, d: _schedule_holds(s, d, rule), _schedule_message, _schedule_hint)


def _known_hint(_s: Setting, p: Plan) -> str:
    nearest = nearest_names(p.effective_schedule, list_schedules())
    guess = f"did you mean {' or '.join(nearest)}? " if nearest else ""
    return f"{guess}one of {', '.join(list_schedules())}"


def _batch_hint(s: Setting, p: Plan) -> str:
    unit = max(p.dp(s.num_accelerators), 1) * p.micro_batch_size
    below = s.job.global_batch_size // unit * unit
    near = [str(size) for size in (below, below + unit) if size > 0]
    return (
        f"set the global batch size to {' or '.join(near)}, "
        "or change dp (= accelerators / (tp cp pp)) or the micro-batch size"
    )


def _layout_holds(s: Setting, d: Degrees) -> Flags:
    layers = d.plan.stage_layers
    if layers is None:
        return d.pp * d.vp <= s.model.num_hidden_layers + np.where(np.asarray(d.vp) > 1, 2, 0)
    if len(layers) != d.plan.pp * d.plan.vp or sum(layers) != s.model.num_hidden_layers:
        return False
    schedule = load_schedule(d.plan.effective_schedule) if is_known(d.plan.effective_schedule) else INTERLEAVED
    if not schedule.takes_chunks(d.plan.vp):
        return True  # another rule says so
    ends = {0, len(layers) - 1}  # embedding and head are work of their own
    held = schedule.placement(d.plan.pp, d.plan.vp)
    return all(any(layers[chunk] or chunk in ends for chunk in rank) for rank in held)


def _layout_message(s: Setting, p: Plan) -> str:
    if p.stage_layers is None:
        return f"pp {p.pp} x vp {p.vp} = {p.pp * p.vp} model chunks for {s.model.num_hidden_layers} layers"
    return (
        f"stage_layers has {len(p.stage_layers)} numbers that sum to {sum(p.stage_layers)}; wanted are pp x vp = "
        f"{p.pp * p.vp} that sum to {s.model.num_hidden_layers}, none empty but a stage with the embedding or the head"
    )


def _placement_holds(s: Setting, d: Degrees) -> Flags:
    """Experts and dense layers must agree on the ranks of each stage: where pp is not outermost, dp must equal edp."""
    if not s.num_experts or d.plan.placement.endswith("-pp"):
        return True
    return np.logical_or(np.equal(d.pp, 1), np.equal(d.tp * d.cp, d.ep * d.etp))


def _sequence_holds(s: Setting, d: Degrees) -> Flags:
    """Under a causal mask each rank takes two slices, one early and one late, so that all have equal work."""
    pieces = d.cp * d.tp_rows
    slices = np.where((np.asarray(pieces) > 1) & s.model.causal, 2 * pieces, pieces)
    whole = _divides(slices, s.job.sequence_length)
    split = np.where(d.plan.sequence_parallel, columns(d), 1) * pieces
    return whole & _divides(split, d.micro_batch_size * s.job.sequence_length)


RULES: tuple[Rule, ...] = (
    Rule(
        "tp x cp x pp divides the accelerators",
        lambda s, d: _divides(d.tp * d.cp * d.pp, s.num_accelerators),
        lambda s, p: (
            f"tp {p.tp} x cp {p.cp} x pp {p.pp} = {p.model_parallel_degree} for {s.num_accelerators:,} accelerators"
        ),
        lambda _s, _p: "choose degrees whose product divides the accelerators",
    ),
    Rule(
        "every stage has layers",
        _layout_holds,
        _layout_message,
        lambda s, _p: f"lower pp or vp (pp x vp at most {s.model.num_hidden_layers}), or correct stage_layers",
    ),
    Rule(
        "tensor-parallel ranks share heads evenly",
        lambda s, d: _all_divided(columns(d), s.heads),
        lambda s, p: f"tp {p.tp} (over heads: {p.tp // p.tp_rows}) with {_list(s.heads)} attention heads or groups",
        lambda s, _p: f"choose tp among the divisors of {_list(s.heads)}",
    ),
    Rule(
        "key-value heads divide tp, or tp divides them",
        lambda s, d: all_hold(_divides(columns(d), kv) | _divides(kv, columns(d)) for kv in s.kv_heads),
        lambda s, p: f"tp {p.tp} with {_list(s.kv_heads)} key-value heads",
        lambda s, _p: f"choose tp as a divisor or a multiple of {_list(s.kv_heads)}",
    ),
    Rule(
        "tensor-parallel ranks share the MLP width evenly",
        lambda s, d: _all_divided(columns(d), s.widths),
        lambda s, p: f"tp {p.tp} with intermediate widths {_list(s.widths)}",
        lambda s, _p: f"choose tp among the common divisors of {_list(s.widths)}",
    ),
    Rule(
        "companions are split as the model is",
        lambda s, d: all_hold(rule.holds(each, d) for each in s.companions for rule in OF_COMPANIONS),
        lambda s, p: _of_companion(s, p, lambda each, rule: f"companion {each.model.name}: {rule.message(each, p)}"),
        lambda s, p: _of_companion(s, p, lambda each, rule: rule.hint(each, p)),
    ),
    Rule(
        "two-dimensional tensor parallelism has a grid",
        lambda s, d: (
            (_divides(d.tp_rows, d.tp) & (np.asarray(d.tp_rows) > 1) & s.plain & _divides(d.tp, s.model.hidden_size))
            if d.plan.tp_kind == "summa"
            else np.asarray(d.tp_rows) == 1
        ),
        lambda _s, p: f"tp_kind {p.tp_kind} with tp {p.tp} and tp_rows {p.tp_rows}",
        lambda s, _p: (
            "summa needs tp_rows of 2 or more that divides tp, and tp that divides the hidden size; 1d needs tp_rows 1"
            if s.plain
            else "summa is for models of grouped-query attention and dense MLPs: set tp_kind to 1d and tp_rows to 1"
        ),
    ),
    Rule(
        "ranks share the sequence evenly",
        _sequence_holds,
        lambda s, p: (
            f"a sequence of {s.job.sequence_length} tokens (micro-batch {p.micro_batch_size}) over cp {p.cp}, tp {p.tp}"
            + (f" and {p.tp_rows} rows" if p.tp_rows > 1 else "")
        ),
        lambda _s, _p: (
            "the sequence must divide by 2 cp under a causal mask, and the micro-batch's tokens by cp tp with sequence "
            "parallelism: another micro-batch size, or --no-sequence-parallel"
        ),
    ),
    Rule(
        "all-to-all context parallelism shares heads",
        # Transformer Engine shares key-value heads like heads: none are copied where they are fewer than the ranks.
        lambda s, d: (
            np.equal(d.cp, 1) | _all_divided(columns(d) * d.cp, (*s.heads, *s.kv_heads))
            if d.plan.cp_comm == "a2a"
            else True
        ),
        lambda s, p: f"tp {p.tp} x cp {p.cp} with {_list(s.heads)} heads and {_list(s.kv_heads or s.heads)} for keys",
        lambda s, p: f"set cp to {_shared_cp(s, p)}, or cp_comm to p2p or allgather where the framework has it",
    ),
    Rule(
        "experts are shared only where there are experts",
        lambda s, d: True if s.num_experts else (np.asarray(d.ep) == 1) & (np.asarray(d.etp) == 1),
        lambda s, p: f"ep {p.ep} and etp {p.etp} for {s.model.name}, which has no experts",
        lambda _s, _p: "set ep and etp to 1",
    ),
    Rule(
        "expert-parallel ranks share experts evenly",
        lambda s, d: _all_divided(d.ep, s.num_experts),
        lambda s, p: f"ep {p.ep} with {_list(s.num_experts)} experts",
        lambda s, _p: f"choose ep among the divisors of {_list(s.num_experts)}",
    ),
    Rule(
        "expert-tensor-parallel ranks share the expert width evenly",
        lambda s, d: _all_divided(d.etp, s.expert_widths),
        lambda s, p: f"etp {p.etp} with expert widths {_list(s.expert_widths)}",
        lambda s, _p: f"choose etp among the divisors of {_list(s.expert_widths)}",
    ),
    Rule(
        "mixtures of experts split their tokens over tensor-parallel ranks",
        lambda s, d: True if not s.num_experts else (np.asarray(d.tp) == 1) | d.plan.sequence_parallel,
        lambda _s, p: f"tp {p.tp} without sequence parallelism: every one of its ranks would send the same tokens",
        lambda _s, _p: "turn sequence_parallel on, or set tp to 1",
    ),
    Rule(
        "ep x etp x pp divides the accelerators",
        lambda s, d: _divides(d.ep * d.etp * d.pp, s.num_accelerators),
        lambda s, p: (
            f"ep {p.ep} x etp {p.etp} x pp {p.pp} = {p.ep * p.etp * p.pp} for {s.num_accelerators:,} accelerators"
        ),
        lambda _s, _p: "choose ep and etp whose product with pp divides the accelerators",
    ),
    Rule(
        "placement keeps pipeline stages together",
        _placement_holds,
        lambda _s, p: f"placement {p.placement} with tp cp = {p.tp * p.cp} and ep etp = {p.ep * p.etp}",
        lambda _s, _p: "with experts put pp outermost, or choose ep etp = tp cp",
    ),
    Rule(
        "micro-batches divide the global batch",
        lambda s, d: _divides(data_parallel_degree(s, d) * d.micro_batch_size, s.job.global_batch_size),
        lambda s, p: (
            f"dp {p.dp(s.num_accelerators)} x micro-batch {p.micro_batch_size} = "
            f"{p.dp(s.num_accelerators) * p.micro_batch_size} for a global batch of {s.job.global_batch_size} sequences"
        ),
        _batch_hint,
    ),
    Rule(
        "the schedule is known",
        lambda _s, d: is_known(d.plan.effective_schedule),
        lambda _s, p: f"unknown schedule '{p.schedule}'",
        _known_hint,
    ),
    _schedule_rule(INTERLEAVED.rule),
    _schedule_rule(SUITS),
    Rule(
        "sharding groups divide the replicas",
        lambda s, d: np.where(
            np.asarray(d.sharding_degree) > 0,
            _divides(np.maximum(d.sharding_degree, 1), replicas(s, d))
            & (np.logical_not(d.hybrid) | (d.sharding_degree < replicas(s, d))),
            np.logical_not(d.hybrid),
        ),
        lambda s, p: (
            f"sharding {p.sharding} over {p.sharding_degree or 'an unstated number of'} ranks with "
            f"{p.dp(s.num_accelerators) * p.cp} that hold the same weights (dp cp)"
        ),
        lambda _s, _p: "choose a sharding_degree that divides dp cp; hsdp and hpz need one, and smaller",
    ),
    Rule(
        "offloaded layers are layers of activations",
        lambda _s, d: d.plan.offload_num_layers is None or d.plan.offload == "activations",
        lambda _s, p: f"offload_num_layers {p.offload_num_layers} with offload {p.offload}",
        lambda _s, _p: "set offload to activations, or leave offload_num_layers out",
    ),
    Rule(
        "recomputed modules exist in the model",
        lambda s, d: _modules_exist(s, d.plan),
        lambda s, p: f"recompute {p.recompute} for {s.model.name}",
        lambda _s, _p: (
            "moe and shared_experts are for mixtures of experts, mla_up_proj for latent attention, mlp for dense "
            "layers, mhc for hyper-connections"
        ),
    ),
)
"""Every rule, in the order in which they are checked."""

OF_COMPANIONS: tuple[Rule, ...] = (
    Rule(
        "every stage has layers",
        lambda s, d: np.less_equal(d.pp, s.model.num_hidden_layers),
        lambda s, p: f"pp {p.pp} for {s.model.num_hidden_layers} layers",
        lambda s, _p: f"set pp to at most {s.model.num_hidden_layers}, or choose another companion",
    ),
    *(
        rule
        for rule in RULES
        if rule.name
        in (
            "tensor-parallel ranks share heads evenly",
            "key-value heads divide tp, or tp divides them",
            "tensor-parallel ranks share the MLP width evenly",
            "two-dimensional tensor parallelism has a grid",
            "all-to-all context parallelism shares heads",
            "expert-parallel ranks share experts evenly",
            "expert-tensor-parallel ranks share the expert width evenly",
            "mixtures of experts split their tokens over tensor-parallel ranks",
        )
    ),
)
"""Rules that a frozen companion keeps as well."""


def _of_companion(s: Setting, plan: Plan, said: Callable[[Setting, Rule], str]) -> str:
    """What is said of the first companion that a plan does not split."""
    degrees = Degrees.of(plan)
    pairs = ((each, rule) for each in s.companions for rule in OF_COMPANIONS)
    return next(said(each, rule) for each, rule in pairs if not np.all(rule.holds(each, degrees)))


def _modules_exist(s: Setting, plan: Plan) -> bool:
    if plan.recompute in RECOMPUTE_PRESETS:
        return True
    kinds = s.model.layer_kinds
    exists = {
        "moe": bool(s.num_experts),
        "shared_experts": any(isinstance(k.mlp, MixtureOfExperts) and k.mlp.shared_intermediate_size for k in kinds),
        "mla_up_proj": any(isinstance(each, LatentAttention | CompressedAttention) for k in kinds for each in k.mixers),
        "mhc": any(k.streams > 1 for k in kinds),
        "mlp": any(isinstance(k.mlp, MLP) for k in kinds),
    }
    return all(exists.get(module, True) for module in recompute_modules(plan.recompute))


def _list(values: tuple[int, ...]) -> str:
    return " and ".join(str(value) for value in values)
