"""A plan: one parallelism strategy with all its settings."""

from __future__ import annotations

import re
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from typing import Any, Literal

from shardplan.base.errors import InputError, UnknownNameError, shown
from shardplan.base.fields import asked, check, dataclass, described
from shardplan.base.words import folded, joined, switch_word
from shardplan.inputs.schedule_names import BUILT_IN
from shardplan.inputs.software import CudaGraphs, MoeDispatcher
from shardplan.inputs.words import (
    CP_COMMS,
    DISPATCHERS,
    GRAPHS,
    OFFLOADS,
    RECOMPUTE_WORDS,
    SCHEDULES,
    SHARDINGS,
    TP_KINDS,
)

Sharding = Literal["ddp", "zero1", "zero2", "zero3", "hsdp", "hpz"]
CpComm = Literal["p2p", "allgather", "a2a"]
TpKind = Literal["1d", "summa"]
Offload = Literal["none", "optimizer", "activations"]

DEFAULT_PLACEMENT = "tp-cp-ep-dp-pp"
"""Megatron's order of the parallel dimensions, innermost (fastest network) first."""

RECOMPUTE_MODULES = ("core_attn", "layernorm", "activation", "mla_up_proj", "mlp", "moe", "shared_experts", "mhc")
"""Parts of a layer whose saved activations can be dropped and recomputed.

Names as in Megatron, where ``activation`` is ``moe_act`` and for experts only.
"""

NAMED_POLICIES = {"minimal": "layernorm,activation,core_attn"}
"""MaxText's policy that saves the outputs of most matrix products."""

OP_SAC = "op_sac"
"""Selection by operator rather than by module, as in PyTorch's selective activation checkpointing."""

RECOMPUTE_PRESETS = {"none": (), "selective": ("core_attn",), OP_SAC: (OP_SAC,), "full": RECOMPUTE_MODULES}
"""``full`` saves only the input of each layer; ``op_sac`` saves every second matrix product's output, that of fused
attention and what was reduced or exchanged among ranks.
"""

MAX_DEGREE = 1_000_000

NAME = re.compile(r"[a-z0-9]+(?:[-_.][a-z0-9]+)*")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Degrees and switches of one strategy; data parallelism follows from the remaining accelerators."""

    tp: int = asked("Tensor-parallel degree.", default=1, least=1, most=MAX_DEGREE)
    """Tensor parallelism: ranks that share every matrix product."""
    cp: int = asked("Context-parallel degree.", default=1, least=1, most=MAX_DEGREE)
    """Context parallelism: ranks that share every sequence."""
    pp: int = asked("Pipeline stages.", default=1, least=1, most=MAX_DEGREE)
    """Pipeline parallelism: stages that share the layers."""
    vp: int = asked(
        "Virtual stages (model chunks) per pipeline rank; 1 is not interleaved. Default: the framework's.",
        default=1,
        least=1,
        most=MAX_DEGREE,
    )
    """Virtual stages (model chunks) per pipeline rank; above 1 the schedule is interleaved by default."""
    ep: int = asked("Expert-parallel degree.", default=1, least=1, most=MAX_DEGREE)
    """Expert parallelism: ranks that share the experts of a layer."""
    etp: int = asked("Expert-tensor-parallel degree.", default=1, least=1, most=MAX_DEGREE, is_rare=True)
    """Expert tensor parallelism: ranks that share every expert's matrices."""
    micro_batch_size: int = asked("Sequences of a micro-batch.", default=1, least=1, most=MAX_DEGREE)
    """Sequences of one micro-batch."""
    sequence_parallel: bool = asked(
        "Split norms and residuals over the tensor-parallel ranks.", default=True, is_rare=True
    )
    """Whether the passes between matrix products are split over the tensor-parallel ranks (no effect at tp 1)."""
    sharding: Sharding = asked("What data parallelism shards (zero3 is FSDP):", default="zero1", words=SHARDINGS)
    """What data parallelism shards: nothing, optimizer states (zero1), gradients too (zero2), weights too (zero3 =
    FSDP); hsdp shards as zero3 within ``sharding_degree`` ranks and replicates across (MiCS); hpz is zero3 with a
    second copy of the weights within ``sharding_degree`` ranks, which the backward pass gathers (ZeRO++)."""
    sharding_degree: int | None = asked(
        "Ranks over which sharding splits. Default: all replicas.", least=1, most=MAX_DEGREE, is_rare=True
    )
    """Ranks over which it shards; by default all data- and context-parallel ranks."""
    schedule: str | None = asked(
        f"Pipeline schedule, by default the one that vp implies: {joined(BUILT_IN, last='or')}.",
        metavar="NAME",
        is_rare=True,
    )
    """Pipeline schedule; by default it follows from ``vp``: 1f1b for one chunk, interleaved for several."""
    microbatch_group_size: int | None = asked(
        "Micro-batches a virtual stage runs in a row. Default: pp.", least=1, most=MAX_DEGREE, is_rare=True
    )
    """Micro-batches that one virtual stage runs before the next takes over; by default ``pp``."""
    recompute: str = asked(
        "none, selective, op_sac, full, or modules such as layernorm,activation.", default="none", metavar="POLICY"
    )
    """``none``, ``selective`` (the attention core), ``op_sac`` (PyTorch's choice by operator), ``full``, or a comma
    list of ``RECOMPUTE_MODULES``."""
    recompute_num_layers: int | None = asked(
        "Layers of a stage that recompute. Default: all.", least=0, most=MAX_DEGREE, is_rare=True
    )
    """Layers of each stage to which ``recompute`` applies; by default all."""
    offload: Offload = asked("What to keep in host memory:", default="none", words=OFFLOADS)
    """What is in host memory: optimizer states (updated there) or saved activations."""
    offload_num_layers: int | None = asked(
        "Layers of a stage whose activations are offloaded. Default: all.", least=0, most=MAX_DEGREE, is_rare=True
    )
    """Layers of each stage whose activations are offloaded; by default all."""
    tp_kind: TpKind = asked(
        "Tensor parallelism along one dimension or two:", default="1d", words=TP_KINDS, is_rare=True
    )
    """``1d``: matrices are split along one dimension; ``summa``: along both, on ``tp_rows`` x tp/``tp_rows`` ranks."""
    tp_rows: int = asked("Rows of the SUMMA grid.", default=1, least=1, most=MAX_DEGREE, is_rare=True)
    """Rows of the grid of two-dimensional tensor parallelism: ranks that share the sequence and the weights' rows."""
    cp_comm: CpComm = asked(
        "How context-parallel ranks exchange keys and values:", default="p2p", words=CP_COMMS, is_rare=True
    )
    """How context-parallel ranks exchange keys and values: ring, all-gather or all-to-all."""
    overlap_tp: bool = asked("Pipeline tensor-parallel collectives with their products.", default=False, is_rare=True)
    """Whether tensor-parallel collectives are pipelined with their matrix products."""
    overlap_dp: bool = asked("Reduce gradients and gather parameters while computing.", default=True, is_rare=True)
    """Whether gradient reduction and parameter gathering overlap with computation."""
    overlap_pp: bool | None = asked(
        "Overlap transfers between stages with computation. Default: on if ranks hold several chunks.", is_rare=True
    )
    """Whether transfers between stages overlap with computation; by default on if ranks hold several chunks."""
    overlap_ep: bool = asked(
        "Dispatch to experts during another micro-batch's computation.", default=False, is_rare=True
    )
    """Whether expert dispatch overlaps with another micro-batch's computation."""
    moe_dispatcher: MoeDispatcher | None = asked(
        "How tokens reach their experts. Default: the software's.", words=DISPATCHERS, is_rare=True
    )
    """How tokens reach their experts (``Software.moe_dispatcher``); by default as in the job's software."""
    cuda_graphs: CudaGraphs | None = asked(
        "Kernels replayed without the host. Default: the software's.", words=GRAPHS, is_rare=True
    )
    """Kernels replayed without the host (``Software.cuda_graphs``); by default as in the job's software."""
    fused_loss: bool | None = asked(
        "Compute the loss in pieces, without storing the logits. Default: the software's.", is_rare=True
    )
    """Whether the loss is computed in pieces without storing the logits (``Software.fused_loss``); by default as in the
    job's software.
    """
    placement: str = asked(
        "Order of the dimensions from the fastest network outward.",
        default=DEFAULT_PLACEMENT,
        metavar="ORDER",
        is_rare=True,
    )
    """Order of the dimensions from the fastest network outward; ``dim:n`` places n ranks of it there, and the rest go
    where the name stands alone: ``tp:4-dp:2-tp-cp-ep-dp-pp``.
    """
    stage_layers: tuple[int, ...] | None = asked(
        "Layers of every virtual stage: 3,4,4,3. Default: as even as possible.",
        least=0,
        most=MAX_DEGREE,
        metavar="N,N,...",
        example="3,4,4,3",
        is_rare=True,
    )
    """Layers of every virtual stage in model order (pp * vp numbers); by default as even as possible."""

    def __post_init__(self) -> None:
        """Checks types and ranges of each field by itself. Raises ``InputError``."""
        check(self)
        object.__setattr__(self, "schedule", schedule_meant(self.schedule))
        _check_name("schedule", self.schedule)
        object.__setattr__(self, "recompute", recompute_meant(self.recompute))
        object.__setattr__(self, "placement", self.placement.lower())
        placement_tokens(self.placement)
        if self.stage_layers is not None:
            object.__setattr__(self, "stage_layers", tuple(self.stage_layers))

    @property
    def model_parallel_degree(self) -> int:
        """Accelerators that hold one copy of the model."""
        return self.tp * self.cp * self.pp

    def dp(self, num_accelerators: int) -> int:
        """Data-parallel degree (0 if the degrees do not fit; ``validity`` says so)."""
        return num_accelerators // self.model_parallel_degree

    @property
    def effective_schedule(self) -> str:
        """The schedule, or if it was left open, the one that ``vp`` implies."""
        return self.schedule or ("interleaved" if self.vp > 1 else "1f1b")


def schedule_meant(name: object) -> object:
    """The schedule that a framework's name means; any other name unchanged, in lower case."""
    return SCHEDULES.get(folded(name), name.lower()) if isinstance(name, str) else name


@lru_cache(maxsize=1024)
def recompute_meant(policy: str) -> str:
    """A policy or a comma list of modules under our names. Raises ``UnknownNameError``.

    >>> recompute_meant("moe_act, norm")
    'activation,layernorm'
    """
    if policy in RECOMPUTE_PRESETS:
        return policy
    parts = [RECOMPUTE_WORDS.get(folded(part), part.strip()) for part in policy.split(",")]
    meant = NAMED_POLICIES.get(parts[0], parts[0]) if len(parts) == 1 else ",".join(dict.fromkeys(parts))
    recompute_modules(meant)
    return meant


def recompute_modules(policy: str) -> tuple[str, ...]:
    """Modules that a policy recomputes. Raises ``UnknownNameError``."""
    if policy in RECOMPUTE_PRESETS:
        return RECOMPUTE_PRESETS[policy]
    modules = tuple(part.strip() for part in policy.split(","))
    for module in modules:
        if module not in RECOMPUTE_MODULES:
            known = (*RECOMPUTE_PRESETS, *RECOMPUTE_MODULES)
            raise UnknownNameError("recompute module", module, known, hint=f"one of {', '.join(known)}")
    return modules


@lru_cache(maxsize=1024)
def placement_tokens(placement: str) -> tuple[tuple[str, int | None], ...]:
    """Dimensions of a placement from the inside out, with a number if only so many ranks are placed there."""
    tokens = tuple(_placement_token(part, placement) for part in placement.split("-"))
    whole = [name for name, number in tokens if number is None]
    if sorted(whole) != sorted(DEFAULT_PLACEMENT.split("-")):
        raise _wrong("placement", placement, "each of tp, cp, ep, dp, pp exactly once without a number")
    for position, (name, number) in enumerate(tokens):
        if number is not None and (name == "ep" or (name, None) in tokens[:position]):
            wanted = "numbered parts of tp, cp, dp, pp, each before that dimension's own place"
            raise _wrong("placement", placement, wanted)
    return tokens


def _placement_token(part: str, placement: str) -> tuple[str, int | None]:
    name, colon, number = part.partition(":")
    numbered = is_whole(number) and len(number) < 8 and 0 < int(number) <= MAX_DEGREE
    if name not in DEFAULT_PLACEMENT.split("-") or (colon and not numbered):
        wanted = f"dimensions among {DEFAULT_PLACEMENT} joined by '-', such as tp:4-dp:2-tp-cp-ep-dp-pp"
        raise _wrong("placement", placement, wanted)
    return name, int(number) if colon else None


def _check_name(field: str, value: object) -> None:
    """Checks the type only: which names are known is a rule of validity, since other packages add their own."""
    if value is not None and not (isinstance(value, str) and NAME.fullmatch(value)):
        raise _wrong(field, value, "a name of lower-case letters, digits and hyphens, such as 1f1b")


def _wrong(field: str, value: object, wanted: str) -> InputError:
    return InputError(
        f"{field} is {shown(value)}; it must be {wanted}",
        rule=f"{field} is well formed",
        hint=f"set --{field.replace('_', '-')} to {wanted}",
    )


class StatedPlan(Plan):
    """A plan from an answer: even fields at their default are stated, and are never filled with other defaults.

    ``estimate(..., answer.recommended.plan)`` prices that very plan. In a :class:`Plan` that a person writes, fields at
    their default take the framework's default. The two are equal if their fields are.
    """

    @classmethod
    def of(cls, plan: Plan) -> StatedPlan:
        """The same plan, with every field stated."""
        return plan if isinstance(plan, cls) else cls(**{each.name: getattr(plan, each.name) for each in fields(plan)})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and bool(_stated(self) == _stated(other))

    __hash__ = Plan.__hash__

    def __repr__(self) -> str:
        return f"Plan({super().__repr__().partition('(')[2]}"


_stated = attrgetter(*(each.name for each in fields(Plan)))


def chunk_layers(num_layers: int, num_chunks: int, num_mtp_layers: int = 0) -> tuple[int, ...]:
    """Layers of every model chunk in order, as even as possible.

    If they do not divide, the first and the last chunk, which hold embedding and head, get fewer: 126 layers on 16
    stages are 7, 8, ..., 8, 7 as in Llama 3 405B (arXiv 2407.21783, section 3.3.2); among the others later ones are
    filled first, since earlier stages save more micro-batches. A multi-token-prediction block and its head
    weigh about two layers, by which the last chunk is shorter: 61 layers and a block on 16 stages are 4, ..., 4, 1.
    """
    if num_mtp_layers and num_chunks > 1:
        weight = 2 * num_mtp_layers
        last = max((num_layers + weight) // num_chunks - weight, 0)
        return (*_spread(num_layers - last, num_chunks - 1, [*range(num_chunks - 2, 0, -1), 0]), last)
    return _spread(num_layers, num_chunks, [*range(num_chunks - 2, 0, -1), 0, num_chunks - 1])


def _spread(num_layers: int, num_chunks: int, order: list[int]) -> tuple[int, ...]:
    """Equal shares; the remainder goes to chunks in this order."""
    base, extra = divmod(num_layers, num_chunks)
    sizes = [base] * num_chunks
    for chunk in order[:extra]:
        sizes[chunk] += 1
    return tuple(sizes)


SWITCHES = {"on": True, "off": False}
DEGREES = ("tp", "cp", "pp", "vp", "ep", "etp")


def plan_cell(plan: Plan) -> str:
    """The fields of a plan that differ from their defaults: ``tp=4 pp=8 sharding=zero3``.

    ``plan_from_cell(plan_cell(plan)) == plan``.
    """
    values = {field.name: getattr(plan, field.name) for field in fields(plan)}
    changed = {field.name: values[field.name] for field in fields(plan) if values[field.name] != field.default}
    return " ".join(f"{name}={_text(value)}" for name, value in changed.items())


@lru_cache(maxsize=4096)
def plan_from_cell(text: str) -> Plan:
    """The plan of :func:`plan_cell`. Raises ``ValueError`` for other texts."""
    known = described(Plan)
    values: dict[str, Any] = {}
    for part in text.split():
        name, _, value = part.partition("=")
        if name not in known or name in values:
            raise ValueError(f"plan has {shown(part)}; it must be fields of a plan, each once, such as tp=4 pp=8")
        values[name] = _value(known[name].kind.base, value)
    try:
        return Plan(**values)
    except InputError as error:
        raise ValueError(f"plan: {error.message}") from None


def _text(value: object) -> str:
    """A field as text: flags as on and off, numbers and names as they are."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else switch_word(value)


def is_whole(text: str) -> bool:
    """Whether a text consists of ASCII digits; other digits are refused, as for numbers of every flag."""
    return text.isascii() and text.isdecimal()


def _value(base: type, text: str) -> object:
    """The value of a field of type ``base``; the plan itself refuses a text of another type."""
    if base is bool:
        return SWITCHES.get(text, text)
    if base is int:
        return int(text) if is_whole(text) else text
    if base is tuple:
        return tuple(int(part) if is_whole(part) else part for part in text.split(","))
    return text


def plan_summary(plan: Plan) -> str:
    """The most important fields of a plan in one line: ``tp 4, pp 8, micro-batch 1, zero1, recompute full``."""
    words = [f"{name} {getattr(plan, name)}" for name in DEGREES if getattr(plan, name) > 1]
    words += [f"micro-batch {plan.micro_batch_size}", plan.sharding]
    words += [f"recompute {plan.recompute}"] if plan.recompute != "none" else []
    words += [f"offload {plan.offload}"] if plan.offload != "none" else []
    return ", ".join(words)
