"""A training job: what is computed in one step, in which number formats, with which optimizer."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

from shardplan.errors import InputError, UnknownNameError, shown
from shardplan.inputs.software import Software

Precision = Literal["bf16", "fp16", "fp8", "mxfp8", "nvfp4", "fp32"]
Optimizer = Literal["adam", "sgd", "muon"]
AttentionKernel = Literal["flash", "unfused"]
GradDtype = Literal["bf16", "fp16", "fp32"]

DTYPE_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
MOST_IMBALANCE = 1000.0
"""Largest load of a rank of experts relative to the mean that is accepted; none is above experts / top_k."""
MOMENTS = {"adam": 2, "sgd": 1, "muon": 1}
"""State tensors per parameter: Adam keeps two moments, SGD with momentum and Muon one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """What a precision recipe implies for every tensor of a training step (bytes per element)."""

    matmul: str
    """Number format of the linear layers' matrix products, a key of ``Accelerator.peak_flops``."""
    dense_math: str
    """Number format of attention, router and head."""
    weight_bytes: float
    """The weights that the forward pass reads."""
    quantised_weight_bytes: float
    """Low-precision copies of the linear layers' weights kept beside them."""
    master_bytes: float
    """The fp32 master copy (zero where the weights themselves are fp32)."""
    activation_bytes: float
    """Activations as they travel between layers."""
    linear_input_bytes: float
    """Inputs of linear layers as they are kept for the backward pass."""


PRECISIONS: dict[str, Recipe] = {
    name: Recipe(
        matmul=matmul,
        dense_math=dense,
        weight_bytes=weight,
        quantised_weight_bytes=copies,
        master_bytes=master,
        activation_bytes=activation,
        linear_input_bytes=kept,
    )
    for name, matmul, dense, weight, copies, master, activation, kept in (
        ("fp32", "fp32", "fp32", 4.0, 0.0, 0.0, 4.0, 4.0),
        ("fp16", "fp16", "fp16", 2.0, 0.0, 4.0, 2.0, 2.0),
        ("bf16", "bf16", "bf16", 2.0, 0.0, 4.0, 2.0, 2.0),
        # Transformer Engine keeps bf16 weights and one fp8 copy (the transposed one is made when needed on Hopper).
        ("fp8", "fp8", "bf16", 2.0, 1.0, 4.0, 2.0, 1.0),
        # Block scaling: one scale byte per 32 elements; row-wise and column-wise copies, as scales do not transpose.
        ("mxfp8", "mxfp8", "bf16", 2.0, 2 * (1 + 1 / 32), 4.0, 2.0, 1 + 1 / 32),
        # One scale byte per 16 elements; linear inputs are kept in 4 bits.
        ("nvfp4", "nvfp4", "bf16", 2.0, 2 * (0.5 + 1 / 16), 4.0, 2.0, 0.5 + 1 / 16),
    )
}


def recipe_of(precision: str) -> Recipe:
    """The recipe of that name. Raises ``UnknownNameError``."""
    try:
        return PRECISIONS[precision]
    except (KeyError, TypeError):
        hint = f"one of {', '.join(PRECISIONS)}"
        raise UnknownNameError("precision", str(precision), PRECISIONS, hint=hint) from None


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One training run as the optimizer sees it."""

    sequence_length: int
    """Tokens of one sequence."""
    global_batch_size: int
    """Sequences of one optimizer step, over all accelerators."""
    precision: Precision = "bf16"
    """Precision recipe: the number format of the matrix products, and what follows from it for every other tensor."""
    optimizer: Optimizer = "adam"
    """Which states the optimizer keeps: adam two moments, sgd and muon one."""
    attention: AttentionKernel = "flash"
    """``flash``: fused, scores never reach memory; ``unfused``: scores are written, read and kept."""
    grad_dtype: GradDtype = "fp32"
    """Number format in which gradients are accumulated and reduced."""
    moment_dtype: GradDtype = "fp32"
    """Number format of the optimizer's moments."""
    dropout: bool = False
    """Whether hidden and attention dropout run (their masks are kept for the backward pass)."""
    moe_imbalance: float = 1.0
    """Tokens of the most loaded expert-parallel rank relative to the mean. 1: balanced routing, as benchmarks force it.
    No rank gets more than all copies that its experts can take."""
    tokens: float | None = None
    """Tokens to train on in all; gives the time to train."""
    software: Software = field(default_factory=Software)
    """How the training framework runs it; a stack names the behaviour of one."""

    def __post_init__(self) -> None:
        """Checks types and ranges. Raises ``InputError``."""
        _check_count("sequence_length", self.sequence_length, 2**31)
        _check_count("global_batch_size", self.global_batch_size, 2**31)
        for name, choices in (
            ("precision", get_args(Precision)),
            ("optimizer", get_args(Optimizer)),
            ("attention", get_args(AttentionKernel)),
            ("grad_dtype", get_args(GradDtype)),
            ("moment_dtype", get_args(GradDtype)),
        ):
            if getattr(self, name) not in choices:
                raise UnknownNameError(name, str(getattr(self, name)), choices, hint=f"one of {', '.join(choices)}")
        if not isinstance(self.software, Software):
            raise InputError(
                f"software is {shown(self.software)}", rule="software is a Software record", hint="Software(...)"
            )
        if not isinstance(self.dropout, bool):
            raise InputError(
                f"dropout is {shown(self.dropout)}; it must be true or false",
                rule="dropout is a switch",
                hint="set --dropout",
            )
        if not (_is_number(self.moe_imbalance) and 1 <= self.moe_imbalance <= MOST_IMBALANCE):
            raise InputError(
                f"moe_imbalance is {shown(self.moe_imbalance)}; it must be a number from 1 to {MOST_IMBALANCE:g}",
                rule="the most loaded rank has at least the mean",
                hint="--moe-imbalance 1.2, or leave it out where routing is balanced",
            )
        if self.tokens is not None and not (_is_number(self.tokens) and 0 < self.tokens < 1e18):
            raise InputError(
                f"tokens is {shown(self.tokens)}; it must be a number above 0 and below 1e18",
                rule="tokens to train is a positive number",
                hint="--tokens 15.6e12",
            )

    @property
    def recipe(self) -> Recipe:
        """Bytes and number formats that the precision implies."""
        return recipe_of(self.precision)

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one optimizer step."""
        return self.sequence_length * self.global_batch_size

    @property
    def grad_bytes(self) -> float:
        """Bytes of one accumulated gradient element."""
        return DTYPE_BYTES[self.grad_dtype]

    @property
    def gathered_weight_bytes(self) -> float:
        """Bytes of one weight as ranks gather it: of the low-precision copies where weights live in these alone."""
        copies = self.recipe.quantised_weight_bytes
        alone = self.software.quantised_weights and copies > 0
        return min(copies, self.recipe.weight_bytes) if alone else self.recipe.weight_bytes

    @property
    def optimizer_bytes(self) -> float:
        """Optimizer states and master copy, bytes per parameter (12 for Adam in mixed precision: arXiv 1910.02054)."""
        return self.recipe.master_bytes + MOMENTS[self.optimizer] * DTYPE_BYTES[self.moment_dtype]


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < math.inf


def _check_count(field: str, value: object, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        flag = field.replace("_", "-")
        raise InputError(
            f"{field} is {shown(value)}; it must be a whole number from 1 to {most:,}",
            rule=f"{field} is a positive whole number",
            hint=f"set --{flag}",
        )
