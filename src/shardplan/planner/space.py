"""The declared space of a search: which values each field of a plan may take."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from shardplan.base.arrays import Numbers, different, divisors
from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass, replace
from shardplan.estimation.question import Question
from shardplan.inputs.compressed import CompressedAttention
from shardplan.inputs.layers import MLP, LatentAttention, MixtureOfExperts
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import DEFAULT_PLACEMENT
from shardplan.inputs.plan_numbers import heads_of
from shardplan.inputs.sharding import kinds_that
from shardplan.physics.costs.network import domain_size
from shardplan.physics.frameworks.libraries import Without
from shardplan.physics.frameworks.runnable import FrameworkRule
from shardplan.physics.frameworks.stack import Stack
from shardplan.physics.schedules.registry import load_schedule
from shardplan.planner.framework_axes import (
    CHOICES,
    Axes,
    binding_rules,
    check_software,
    closes_by_cost,
    framework_axes,
    runnable_axes,
)
from shardplan.planner.restrictions import Restrictions, values_excluded, values_given

PLACEMENTS = (DEFAULT_PLACEMENT, "tp-cp-ep-pp-dp")
"""Orders of Megatron-LM: data parallelism inside the pipeline, or the pipeline inside data parallelism."""
SHARDED = ("sharding", "sharding_degree")
RECOMPUTED = ("recompute", "recompute_num_layers")
GRID = ("pp", "tp", "tp_rows", "cp", "ep", "etp", "micro_batch_size")
"""Degrees of a plan that the search combines freely; all others follow from them or are choices at each."""
FEWEST_LOCAL_TOKENS = 512
"""Context parallelism leaves each rank at least this number of tokens of a sequence."""
MOST_MICROBATCH_TOKENS = 131_072
FEW_TOKENS = 8192
"""Tokens of a micro-batch that is small: sequences that are shorter than half of that are taken several at a time."""
MOST_EXPERT_TENSOR_RANKS = 8
MOST_GRID_ROWS = 64
MOST_CHUNKS = 128
"""Model chunks of a rank that a search tries; models of up to 254 layers have no more of them that hold a layer."""
MOST_CHANNEL_RANKS = 64
"""Tensor parallelism of mixers that have channels and no heads (Mamba-1, short convolutions)."""
FULL_RECOMPUTE_SHARES = (0.25, 0.5, 0.75)
"""Shares of a stage's layers that may be recomputed in full, besides all of them."""


@dataclass(frozen=True, kw_only=True)
class Filling:
    """A sharding degree that depends on the plan: groups of ranks that fill a number of neighbouring accelerators."""

    accelerators: int

    def degree(self, tp: Numbers, cp: Numbers) -> Numbers:
        """Data- and context-parallel ranks of such a group, 0 where there is none: accelerators / tp, cp divides it."""
        ranks = np.floor_divide(self.accelerators, tp)
        exact = (np.mod(self.accelerators, tp) == 0) & (np.mod(ranks, cp) == 0) & (np.asarray(ranks) > 1)
        return np.where(exact, ranks, 0)


Degree = int | Filling | None
"""Ranks over which states are sharded; None: all replicas."""


@dataclass(frozen=True, kw_only=True)
class Space:
    """Candidates of every field. Fields that are not listed take ``Plan``'s default."""

    axes: dict[str, tuple[Any, ...]]
    """Candidates by field."""
    excluded: dict[str, tuple[Any, ...]]
    """Values that the user excluded; they apply to candidates that depend on others too."""
    domains: tuple[Filling, ...]
    """Degrees of hybrid sharding where the user names none."""
    num_layers: int
    dp: tuple[int, ...] | None = None
    """Data-parallel degrees that the user allows; all where None."""
    framework: Stack | None = None
    """The framework that plans are for, if one is named."""
    rules: tuple[FrameworkRule, ...] = ()
    """Rules of the framework but those that hold for all candidates."""
    closes_by_cost: bool = False
    """Whether stages have the candidates of ``stage_layers`` that are made for their depth."""

    def virtual_stages(
        self, pp: int, schedule: str | None, stage_layers: tuple[int, ...] | None = None
    ) -> tuple[int, ...]:
        """Chunks per rank: as many as leave all but the first and the last a layer; one without a pipeline.

        The smallest number is always declared, so that a pipeline too deep for the model is seen to break a rule. None
        where the plan is declared in other words: with the schedule left open, or with other stages.
        """
        if pp == 1 and schedule is not None and None in self.axes["schedule"]:
            return ()
        closed = (each for each in self.axes.get("stage_layers", ()) if each is not None and len(each) == pp)
        if self.closes_by_cost and stage_layers != next(closed, None):
            return ()
        known = None if schedule is None else load_schedule(schedule)
        least, most = (1, None) if known is None else (known.least_vp, known.most_vp)
        if most is None:
            most = min(self._most_chunks(pp), MOST_CHUNKS) if pp > 1 else least
        return tuple(vp for vp in self.axes.get("vp", range(least, max(least, most) + 1)) if self._admits("vp", vp))

    @property
    def not_searched(self) -> tuple[str, ...]:
        """Candidates that are left out because there are too many."""
        deep = [pp for pp in self.axes["pp"] if pp > 1 and self._most_chunks(pp) > MOST_CHUNKS]
        if "vp" in self.axes or not deep:
            return ()
        layers = f"{self._most_chunks(min(deep)):,} layers"
        return (f"not searched: vp above {MOST_CHUNKS}, though stages of this model have up to {layers}",)

    def _most_chunks(self, pp: int) -> int:
        """Model chunks of a rank that leave all but the first and the last chunk a layer."""
        return (self.num_layers + 2) // pp

    def declared(self) -> dict[str, tuple[Any, ...]]:
        """Candidates of every searched field; those that depend on the pipeline depth for all depths together."""
        depths = self.axes["pp"]
        pipelines = itertools.product(
            depths, self.axes.get("schedule", (None,)), self.axes.get("stage_layers", (None,))
        )
        chunks = {vp for pipeline in pipelines for vp in self.virtual_stages(*pipeline)}
        layers = {count for pp in depths for _, count in self.recomputations(pp)}
        dp = {} if self.dp is None else {"dp": self.dp}
        return {
            **self.axes,
            **dp,
            "vp": tuple(sorted(chunks)),
            "sharding_degree": tuple(dict.fromkeys(n for _, degree in self.shardings() for n in self._all(degree))),
            "recompute_num_layers": (
                *sorted(count for count in layers if count is not None),
                *(None,) * (None in layers),
            ),
        }

    def recomputations(self, pp: int) -> tuple[tuple[str, int | None], ...]:
        """Policies, each with the layers of a stage that it applies to (None: all)."""
        counts: tuple[Any, ...] | None = self.axes.get("recompute_num_layers")
        pairs: list[tuple[str, int | None]] = []
        for policy in self.axes["recompute"]:
            pairs += [(policy, count) for count in (self._layers(policy, pp) if counts is None else counts)]
        return tuple(dict.fromkeys(pair for pair in pairs if self._admits("recompute_num_layers", pair[1])))

    def shardings(self) -> tuple[tuple[str, Degree], ...]:
        """Kinds of sharding, each with its degree (None: all data- and context-parallel ranks)."""
        given = self.axes["sharding_degree"]

        def degrees(kind: str) -> tuple[Degree, ...]:
            if given != (None,) and kind != "ddp":
                return given
            return self.domains if kind in kinds_that("in_groups") else (None,)

        pairs = [(kind, degree) for kind in self.axes["sharding"] for degree in degrees(kind)]
        return tuple(dict.fromkeys(pair for pair in pairs if self._admits("sharding_degree", pair[1])))

    def _all(self, degree: Degree) -> tuple[int | None, ...]:
        """Values of a degree over the candidates of ``tp`` and ``cp``."""
        if not isinstance(degree, Filling):
            return (degree,)
        found = different(np.asarray(degree.degree(*np.ix_(self.axes["tp"], self.axes["cp"])))).tolist()
        return tuple(each for each in found if each and self._admits("sharding_degree", each))

    def switches(self) -> Iterator[dict[str, Any]]:
        """Every combination of the fields that select a formula rather than scale it, but for those of ``chosen``."""
        yield from _combined({name: values for name, values in self.axes.items() if name not in (*INNER, *CHOICES)})

    def chosen(self) -> list[dict[str, Any]]:
        """Every combination of the fields that change the prices of blocks alone."""
        return [*_combined({name: self.axes[name] for name in CHOICES if name in self.axes})]

    def _layers(self, policy: str, pp: int) -> tuple[int | None, ...]:
        """Numbers of layers of a stage to which a policy may be limited; None is all of them."""
        can = None if self.framework is None else self.framework.can_run
        counted = {"full": "stage"} if can is None or can.recompute_layers is None else can.recompute_layers
        if policy != "full" or policy not in counted:
            return (None,)
        longest = -(-self.num_layers // pp)
        chunks = [vp for vp in divisors(longest) if vp == 1 or (counted[policy] == "chunk" and pp > 1)]
        counts = [max(round(part * longest / vp), 1) * vp for vp in chunks for part in FULL_RECOMPUTE_SHARES]
        return (*dict.fromkeys(count for count in counts if count < longest), None)

    def _admits(self, name: str, value: object) -> bool:
        return value not in self.excluded.get(name, ())


def _combined(axes: dict[str, tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    """Every combination of the candidates of some fields."""
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


INNER = ("vp", "placement", *GRID, *SHARDED, *RECOMPUTED)
"""Fields that differ among the plans of one family."""


def declare(question: Question, restrictions: Restrictions, stack: Stack | None = None) -> Space:
    """The default space of ``question`` as the user restricts it, of plans that ``stack`` can run where it is named.

    Raises InputError for unknown fields or values, and where the framework runs nothing of what is asked for.
    """
    given = values_given(restrictions, question)
    excluded = values_excluded(restrictions, question)
    check_software(stack, question, given)
    missing = Without.of(restrictions.missing_libraries, stack).names if restrictions.missing_libraries else ()
    axes = _defaults(question, given.get("tp_kind", ("1d",)))
    if stack is not None:
        axes |= framework_axes(stack, question, axes, restrictions.fields)
    axes |= given
    freed = _without_sequence_parallelism(question, axes, restrictions)
    axes |= freed
    dp = axes.pop("dp", None)
    for name, values in excluded.items():
        if name in axes:
            axes[name] = _without(name, axes[name], values)
    if "dp" in excluded:
        allowed = dp or divisors(question.num_accelerators)
        dp = _without("dp", allowed, excluded["dp"])
    space = Space(
        axes=axes,
        excluded=excluded,
        domains=_domains(question),
        num_layers=question.model.num_hidden_layers,
        dp=dp,
        framework=stack,
        closes_by_cost=stack is not None and closes_by_cost(stack, restrictions.fields),
    )
    if stack is None:
        return space
    setting, declared = question.setting, space.declared()
    rules = binding_rules(stack, setting, declared, missing)
    return replace(space, axes=runnable_axes(stack, setting, axes, declared, given | freed, binding=rules), rules=rules)


def _defaults(question: Question, tp_kinds: tuple[Any, ...]) -> dict[str, tuple[Any, ...]]:
    model, job = question.model, question.job
    degrees = divisors(question.num_accelerators)
    experts = [kind.mlp for kind in model.layer_kinds if isinstance(kind.mlp, MixtureOfExperts)]
    most_sequences = max(8, MOST_MICROBATCH_TOKENS // job.sequence_length)
    return {
        "tp": tuple(n for n in degrees if n <= _most_heads(model)),
        "tp_rows": (1,) if tp_kinds == ("1d",) else tuple(n for n in degrees if n <= MOST_GRID_ROWS),
        "cp": tuple(n for n in degrees if n == 1 or job.sequence_length / n >= FEWEST_LOCAL_TOKENS),
        "pp": tuple(n for n in degrees if n <= model.num_hidden_layers),
        "ep": tuple(n for n in degrees if all(moe.num_experts % n == 0 for moe in experts)) if experts else (1,),
        "etp": tuple(n for n in degrees if n <= MOST_EXPERT_TENSOR_RANKS) if experts else (1,),
        "micro_batch_size": tuple(n for n in divisors(job.global_batch_size) if n <= most_sequences),
        "sharding": ("ddp", "zero1", "zero2", "zero3", "hsdp"),
        "sharding_degree": (None,),
        "recompute": _policies(model, fused=job.attention == "flash"),
        "placement": PLACEMENTS,
    }


def _without_sequence_parallelism(question: Question, axes: Axes, restrictions: Restrictions) -> Axes:
    """Plans without sequence parallelism too, where tensor-parallel ranks that share the heads cannot share a sequence.

    Elsewhere it is on where a framework has it: plans with it need less memory and time. Of short sequences a
    micro-batch holds several, whose tokens are shared together.
    """
    setting, length = question.setting, question.job.sequence_length
    usual = axes.get("sequence_parallel", (True,))[0]
    length *= max(n for n in axes["micro_batch_size"] if n == min(axes["micro_batch_size"]) or n * length <= FEW_TOKENS)
    able = [tp for tp in axes["tp"] if all(heads % tp == 0 for heads in setting.heads)]
    if not usual or setting.num_experts or "sequence_parallel" in restrictions.fields:
        return {}
    return {"sequence_parallel": (True, False)} if any(length % tp for tp in able) else {}


def _domains(question: Question) -> tuple[Filling, ...]:
    """Groups of hybrid sharding: the ranks of one scale-up domain, or of eight."""
    inner = domain_size(question.network.tiers[0], question.num_accelerators)
    return tuple(Filling(accelerators=n) for n in (inner, 8 * inner) if 1 < n < question.num_accelerators)


def _most_heads(model: ModelConfig) -> int:
    mixers = [mixer for kind in model.layer_kinds for mixer in kind.mixers]
    counts = (max(heads_of(mixer)) if mixer.has_heads else MOST_CHANNEL_RANKS for mixer in mixers)
    return max(counts, default=1)


def _policies(model: ModelConfig, *, fused: bool) -> tuple[str, ...]:
    """Recomputation in the order of what it costs: cheap passes, latent projections, whole MLPs, whole layers."""
    kinds = model.layer_kinds
    cheap = "layernorm,activation" + (",mhc" if any(kind.streams > 1 for kind in kinds) else "")
    policies = ["none", cheap] if fused else ["none", "selective", f"core_attn,{cheap}"]
    if any(isinstance(mixer, LatentAttention | CompressedAttention) for kind in kinds for mixer in kind.mixers):
        policies.append(f"{policies[-1]},mla_up_proj")
    experts = any(isinstance(kind.mlp, MixtureOfExperts) for kind in kinds)
    dense = any(isinstance(kind.mlp, MLP) for kind in kinds)
    policies.append(",".join([policies[-1], *(["moe"] if experts else []), *(["mlp"] if dense else [])]))
    return (*dict.fromkeys(policies), "full")


def _without(name: str, candidates: tuple[Any, ...], excluded: tuple[Any, ...]) -> tuple[Any, ...]:
    left = tuple(value for value in candidates if value not in excluded)
    if not left:
        raise InputError(
            f"no candidate of {name} is left: {', '.join(map(str, candidates))}",
            rule="every field keeps a candidate",
            hint=f"exclude fewer values of {name}",
        )
    return left
