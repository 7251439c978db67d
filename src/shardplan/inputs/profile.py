"""Calibration profile: every constant of the estimate, per accelerator generation, with unit and origin.

``data/profiles/default.yaml`` holds all constants; a file named after a generation replaces those that differ there.
``accelerator_rate`` sets parts of a generation apart. Measured components of a part (``Accelerator.gemm_efficiency``)
are shown with it and are no constants: sustained training does not reach them. Constants are numbers, or arrays with
one element per set of constants: a fit prices many sets at once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args

from shardplan.base.arrays import Numbers
from shardplan.base.errors import InputError, UnknownNameError, shown
from shardplan.base.fields import dataclass
from shardplan.base.files import DATA, looks_like_path, read_document, shipped_document
from shardplan.inputs.cluster import Generation
from shardplan.inputs.readers.residuals import Residual, residuals_from_rows

NOT_CONSTANTS = ("name", "constants", "generation", "left_out_errors")
"""Fields of a profile that are no numbers."""
MEMORY_CONSTANTS = (
    "activation_factor",
    "backward_gradients",
    "logits_bytes",
    "framework_bytes",
    "context_bytes",
    "process_bytes",
    "fragmentation",
    "fragmentation_of_process",
    "fragmentation_when_full",
)
"""The constants of memory; all others are for times."""
ProfileGeneration = Literal["default", Generation]
"""Generation of a profile, or none."""
PROFILES = DATA / "profiles"
Table = Mapping[str, Numbers]


@dataclass(frozen=True, kw_only=True)
class Constant:
    """Where one constant of a profile comes from."""

    value: Numbers | dict[str, Numbers]
    unit: str
    source: str
    prior: float | dict[str, float] | None = None
    """Value before the fit to training runs, from a component measurement or judgement; None: it is not fitted."""
    prior_sd: float | dict[str, float] | None = None
    """Uncertainty of the prior: standard deviation of its logarithm (of its log-odds for a share)."""
    sd: float | dict[str, float] | None = None
    """Uncertainty after the fit."""
    fitted_on: str | None = None
    """Runs that moved the value from its prior, as ``source`` says; None: the value is that of the source."""
    assumed_sd: float | dict[str, float] | None = None
    """Uncertainty of a value that no run has moved: like ``sd``, in the constant's unit if the value
    is zero. Shown only: estimates, bands and fits take such constants as known.
    """
    sd_basis: str | None = None
    """Basis of ``assumed_sd``."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Constants of one accelerator generation."""

    name: str
    """Generation of the profile."""
    matmul_efficiency: Table
    """Fraction of the dense peak that large matrix products reach in training, by number format."""
    accelerator_rate: Table
    """Sustained rate of single parts relative to their generation's (power and clocks); one where not listed."""
    matmul_launch_time: Numbers
    """Fixed time of a matrix product. [s]"""
    matmul_half_depth: Numbers
    """Inner dimension at which a matrix product reaches half its rate."""
    matmul_wave_weight: Numbers
    """Share of tile and wave quantisation that shows in the time (1: all of it)."""
    grouped_matmul_efficiency: Numbers
    """Rate of grouped (expert) products relative to one dense product of the same shape."""
    misaligned_matmul_efficiency: Numbers
    """Relative rate of products whose inner dimension is not a multiple of 8 elements."""
    attention_efficiency: Numbers
    """Fraction of the dense peak of fused attention, forward, head dimension 128, long sequences."""
    attention_generation: Table
    """Rate of older fused attention kernels relative to the best for the accelerator."""
    attention_backward_ratio: Numbers
    """Rate of the backward attention kernel relative to the forward one."""
    attention_half_sequence: Numbers
    """Sequence length at which fused attention reaches half its rate."""
    attention_head_dim_exponent: Numbers
    """Exponent of (head dimension / 128) in the rate of fused attention."""
    unfused_attention_efficiency: Numbers
    """Relative rate of the batched products of unfused attention."""
    memory_efficiency: Numbers
    """Fraction of the memory bandwidth that large streaming kernels reach."""
    memory_pass_factor: Table
    """Passes over memory that real blocks make relative to fully fused ones, with fused and with eager kernels."""
    memory_pass_latency: Numbers
    """Fixed time of a memory-bound kernel. [s]"""
    cast_bytes: Numbers
    """Traffic of quantising one element to 8 bits or fewer. [bytes]"""
    column_cast_bytes: Table
    """Traffic of scaling one element by column once more if rows and columns have their own scales: of inputs,
    output gradients and weights. [bytes]
    """
    accumulation_passes: Numbers
    """Passes over the gradients per micro-batch if they are accumulated inside the weight-gradient product."""
    unfused_accumulation_factor: Numbers
    """Traffic of accumulating gradients in a separate pass, relative to reading the new ones, and reading and writing
    their sum, once.
    """
    state_space_scan_bytes: Numbers
    """Forward traffic of the state-space scan per token and inner channel; backward twice that. [bytes]"""
    network_efficiency: Table
    """Fraction of the nominal bandwidth that collectives reach, by kind of link."""
    all_to_all_efficiency: Numbers
    """Fraction of the nominal bandwidth that all-to-all reaches beyond the innermost domain."""
    p2p_efficiency: Numbers
    """Fraction of the nominal bandwidth that sends between two ranks reach beyond the innermost domain."""
    collective_launch_time: Numbers
    """Fixed time of a collective. [s]"""
    ring_step_factor: Numbers
    """Time of a step of a ring across domains that carries large messages, relative to the latency of its hop."""
    low_latency_share: Numbers
    """Share of the achieved bandwidth that such rings reach with protocols that do not wait for each step."""
    own_chunk_time: Table
    """Time in which a rank copies its own chunk of a collective, relative to that of a chunk on the innermost links, by
    kind of these links."""
    tp_fill: Numbers
    """Share of a tensor-parallel exchange in panels that comes before or after all products and cannot be hidden."""
    tp_window: Numbers
    """Share of a block's matrix products with which tensor-parallel exchanges can overlap."""
    tp_panel_loss: Numbers
    """Exposed share of the time that products lose when tensor-parallel exchanges cut them into panels."""
    cp_window: Numbers
    """Share of the attention core's time behind which the transfers of a ring can hide."""
    ep_window: Numbers
    """Share of the remaining work of a layer behind which expert dispatch hides if another micro-batch computes
    meanwhile (``overlap_ep``).
    """
    pp_window: Numbers
    """Share of the free computation behind which overlapped transfers between stages hide."""
    offload_window: Numbers
    """Share of the time of a micro-batch behind which activations move to the host and back."""
    hidden_slowdown: Numbers
    """Exposed cost of hidden communication, as a share of it (it takes cores and bandwidth)."""
    summa_panels: Numbers
    """Panels into which two-dimensional products are cut, each broadcast during the previous product."""
    dp_window: Numbers
    """Share of the first forward and last backward pass behind which parameters and gradients are exchanged."""
    fsdp_window: Numbers
    """Share of the computation behind which fully sharded parameters are gathered."""
    kernel_launch_time: Table
    """Host time of one call for an operator or a collective, with fused and with eager kernels. [s]"""
    graph_host_share: Table
    """Share of the host's time that remains with CUDA graphs: for what they captured (``full``), and for a dispatcher
    whose preparations they captured (``partial``).
    """
    dispatcher_host_share: Table
    """Host time of a dispatcher of experts relative to all-to-all by the framework."""
    capacity_host_share: Numbers
    """Share of it that remains if experts take a fixed number of tokens."""
    moe_wait_time: Numbers
    """Time that a device is idle until the host knows how many tokens each expert gets, forward. [s]"""
    moe_host_time: Numbers
    """Host time of one mixture-of-experts layer beyond those calls, forward. [s]"""
    moe_host_backward_ratio: Numbers
    """Host time of its backward pass relative to forward."""
    microbatch_time: Numbers
    """Fixed time of a micro-batch in a model chunk. [s]"""
    optimizer_bytes_per_parameter: Numbers
    """Traffic of an Adam step in mixed precision. [bytes per parameter]"""
    optimizer_pass_factor: Numbers
    """Passes the optimizer makes relative to that."""
    step_time: Numbers
    """Fixed time of a step: data, logging, synchronisation, gradient norm. [s]"""
    step_time_alone: Numbers
    """The same on one accelerator, which waits for no other. [s]"""
    straggler_growth: Numbers
    """Slowdown per doubling of the accelerators beyond 8."""
    activation_factor: Table
    """Saved activations relative to the listed tensors (alignment, small tensors; eager kernels save more)."""
    backward_gradients: Numbers
    """Gradients that exist at once in the backward pass of a layer, relative to the activations that it saves."""
    logits_bytes: Table
    """Memory of the loss per logit (the logits, their fp32 copy, their gradient), whole and fused. [bytes]"""
    framework_bytes: Numbers
    """Workspaces, buffers and small tensors of the framework. [bytes]"""
    context_bytes: Numbers
    """Device context and communicator buffers outside the framework's allocator. [bytes]"""
    process_bytes: Numbers
    """Memory of a whole process beyond the allocator's reservation on the fullest node: context, communicators of all
    groups, libraries' workspaces. Used only to compare with such measurements. [bytes]
    """
    fragmentation: Numbers
    """Memory that the allocator reserves beyond what is in use, as a share of it."""
    fragmentation_of_process: Numbers
    """The same on the fullest of many nodes, as ``nvidia-smi`` reports it; only to compare with such measurements."""
    fragmentation_when_full: Numbers
    """The same if memory is nearly full and the allocator frees what it does not use."""
    host_link_efficiency: Numbers
    """Fraction of the nominal host link that transfers reach."""
    host_memory_bandwidth: Numbers
    """Host memory bandwidth of one accelerator's share of its node. [bytes/s]"""
    constants: Mapping[str, Constant] = field(repr=False, default_factory=dict)
    """Unit and source of every constant."""
    generation: str = ""
    """Generation of accelerators of these constants; ``default`` if they are of none."""
    left_out_errors: tuple[Residual, ...] = field(repr=False, default=())
    """Errors of the runs that a user fitted it to, each predicted without itself, from which its bands are made."""


Constants = Mapping[str, Constant]


def load_profile(generation_or_path: str | os.PathLike[str]) -> Profile:
    """The profile of a generation: the defaults, with replacements from its own file. Raises ``InputError``.

    A path (an object that is one, or a text with a separator or a suffix) is that of a user's file: see
    :func:`read_profile`.
    """
    given = generation_or_path
    known = get_args(ProfileGeneration)  # those without their own constants have the defaults
    if isinstance(given, str) and given in known:
        return _shipped_profile(given)
    if isinstance(given, os.PathLike) or (isinstance(given, str) and looks_like_path(given)):
        return read_profile(given)
    if not isinstance(given, str):
        raise InputError(f"the profile is {shown(given)}", rule="a profile has a name or a path", hint=KNOWN)
    raise UnknownNameError("profile", given, known, hint=KNOWN)


GENERATIONS = f"generation: one of {', '.join(get_args(ProfileGeneration))}"
KNOWN = f"one of {', '.join(get_args(ProfileGeneration))}, or the path of a file"


@lru_cache(maxsize=32)
def _shipped_profile(generation: str) -> Profile:
    return assemble(generation, constants_of("default"), constants_of(generation))


def read_profile(path: str | os.PathLike[str]) -> Profile:
    """A profile from a user's file: constants that replace those of the ``generation`` it names. Raises ``InputError``.

    The format is that of the shipped files: for each constant ``value``, ``unit``, ``source``. ``left_out_errors`` are
    those of the runs that ``shardplan calibrate`` fitted it to.
    """
    file = Path(path)
    document = dict(read_document(file))
    generation = document.pop("generation", None)
    known = get_args(ProfileGeneration)
    if generation is None:
        raise InputError(f"{file.name}: generation is missing", rule="a profile is of a generation", hint=GENERATIONS)
    if not isinstance(generation, str) or generation not in known:
        name = generation if isinstance(generation, str) else shown(generation)
        raise UnknownNameError("accelerator generation", name, known, hint=GENERATIONS)
    errors = _left_out_errors(document.pop("left_out_errors", ()), generation, file.name)
    base = _shipped_profile(generation)
    own = {name: _constant(name, entry, base.constants, file.name) for name, entry in document.items()}
    profile = assemble(generation, base.constants, own)
    return replace(profile, name=file.stem, left_out_errors=errors)


def _left_out_errors(rows: object, generation: str, label: str) -> tuple[Residual, ...]:
    if not isinstance(rows, (list, tuple)):
        raise InputError(
            f"{label}: left_out_errors is {shown(rows)}; it must be a list of runs",
            rule="errors of runs have the cells that `shardplan calibrate` writes",
            hint="make the profile again, or leave left_out_errors out",
        )
    return residuals_from_rows(rows, f"{label}: left_out_errors", generation)


def _constant(name: str, entry: object, shipped: Constants, label: str) -> Constant:
    """One constant of a user's file, checked against the kind of its generation's built-in value."""
    known = shipped.get(name)
    if known is None:
        raise UnknownNameError("constant", name, shipped, hint=f"{label}: see shardplan profiles")
    if not isinstance(entry, Mapping) or set(entry) - CONSTANT_FIELDS or not {"value", "unit", "source"} <= set(entry):
        raise InputError(
            f"{label}: {name} is {shown(entry)}", rule=STATED, hint=f"{name}: {{value: ..., unit: ..., source: ...}}"
        )
    value, table = entry["value"], isinstance(known.value, Mapping)
    if table != isinstance(value, Mapping):
        wanted = "a table" if table else "a number"
        raise InputError(
            f"{label}: {name} is {shown(value)}; it must be {wanted}", rule=STATED, hint=f"as {known.value}"
        )
    keys = set(value) - set(known.value) if isinstance(value, Mapping) and isinstance(known.value, Mapping) else set()
    if keys and name not in OPEN_TABLES:
        raise UnknownNameError(f"key of {name}", str(min(keys, key=str)), map(str, known.value), hint=label)  # type: ignore[arg-type]  # a table
    if isinstance(value, Mapping) and not all(isinstance(key, str) for key in value):
        raise InputError(f"{label}: {name} is {shown(value)}; its keys must be text", rule=STATED, hint=name)
    for key, number in value.items() if isinstance(value, Mapping) else [("", value)]:
        _check_number(f"{name}[{key}]" if key else name, number, known, label)
    _check_origin(name, entry, known, label)
    return Constant(**entry)


def _check_origin(name: str, entry: Mapping[str, Any], known: Constant, label: str) -> None:
    """Unit, source and uncertainty of a constant of a user's file. Raises ``InputError``."""
    if entry["unit"] != known.unit:
        raise InputError(
            f"{label}: {name} is in {shown(entry['unit'])}; it must be in {known.unit}",
            rule="a constant has the unit of the shipped one",
            hint=f"{name}: convert the value, and write unit: {known.unit}",
        )
    for field_name, value in entry.items():
        if field_name in TEXTS and not (isinstance(value, str) and value.strip()):
            _refuse_field(label, f"{name}.{field_name}", value, "text")
        numbers = [*value.values()] if isinstance(value, Mapping) else [value]
        is_table = isinstance(value, Mapping)
        is_sound = all(_is_sound(number, MOST) for number in numbers) and is_table <= isinstance(known.value, Mapping)
        if (
            field_name in SPREADS
            and value is not None
            and not (is_sound and all(isinstance(key, str) for key in (value if is_table else ())))
        ):
            _refuse_field(
                label,
                f"{name}.{field_name}",
                value,
                f"a number from 0 to {MOST:g}, or a table of them where the value is one",
            )


def _refuse_field(label: str, place: str, value: object, wanted: str) -> NoReturn:
    raise InputError(f"{label}: {place} is {shown(value)}; it must be {wanted}", rule=STATED, hint=f"correct {place}")


TEXTS = ("source", "fitted_on", "sd_basis")
SPREADS = ("prior", "prior_sd", "sd", "assumed_sd")


def _check_number(place: str, number: object, known: Constant, label: str) -> None:
    """Refuses zero unless a built-in value is zero, and more than the unit allows. Raises ``InputError``."""
    usual = list(known.value.values()) if isinstance(known.value, Mapping) else [known.value]
    is_positive = all(float(each) > 0 for each in usual)
    most = 1.0 if known.unit == SHARE else MOST_OF_NOMINAL if known.unit.startswith(FRACTION) else MOST
    if not _is_sound(number, most) or (is_positive and number == 0):
        least = "above zero" if is_positive else "zero or more"
        unit = f" ({known.unit})" if most == MOST_OF_NOMINAL else ""
        raise InputError(
            f"{label}: {place} is {shown(number)}; it must be {least} and at most {most:g}{unit}",
            rule=STATED,
            hint=f"correct {place}",
        )


STATED = "a profile states known constants with value, unit and source"
CONSTANT_FIELDS = frozenset(each.name for each in fields(Constant))
OPEN_TABLES = {"accelerator_rate", "matmul_efficiency"}
"""Tables whose keys are names of accelerators or number formats."""

MOST = 1e15
SHARE = "share"
FRACTION = "fraction"
MOST_OF_NOMINAL = 1.25
"""Largest fraction of a nominal rate: a fit may find slightly more than nominal, but never a multiple."""


def _is_sound(number: object, most: float) -> bool:
    return isinstance(number, (int, float)) and not isinstance(number, bool) and 0 <= number <= most


def generations() -> tuple[str, ...]:
    """Generations with their own constants."""
    return tuple(sorted(path.stem for path in PROFILES.glob("*.yaml") if path.stem != "default"))


def constants_of(generation: str) -> dict[str, Constant]:
    """Constants in a generation's own file (``default``: those for all); empty if it has no file."""
    path = PROFILES / f"{generation}.yaml"
    if generation not in get_args(ProfileGeneration) or not path.exists():
        return {}
    entries = shipped_document(path)
    return {name: Constant(**entry) for name, entry in entries.items()}


def assemble(generation: str, defaults: Constants, own: Constants) -> Profile:
    """A profile of ``defaults`` with ``own`` constants replacing them, tables key by key. Raises ``InputError``."""
    constants = dict(defaults)
    for name, constant in own.items():
        known = constants.get(name)
        if known is None:
            raise InputError(f"{generation}: unknown constant '{name}'", rule="constants of a profile are known")
        both = isinstance(constant.value, dict) and isinstance(known.value, dict)
        constants[name] = replace(constant, value={**known.value, **constant.value}) if both else constant  # type: ignore[dict-item]  # both are
    missing = [f.name for f in fields(Profile) if f.name not in NOT_CONSTANTS and f.name not in constants]
    if missing:
        raise InputError(f"profile '{generation}' lacks {', '.join(missing)}", rule="a profile names every constant")
    values: dict[str, Any] = {name: constant.value for name, constant in constants.items()}
    return Profile(name=generation, constants=constants, generation=generation, **values)
