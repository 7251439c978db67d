"""A training job: what one step computes, in which number formats, with which optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, Literal, NamedTuple

from shardplan.base.errors import InputError, UnknownNameError, shown
from shardplan.base.fields import about, asked, check, dataclass, described
from shardplan.inputs.companions import NONE, as_text, companions_of
from shardplan.inputs.documents import Documents, check_documents, documents_of
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.routing import Routing, routing_of
from shardplan.inputs.software import Software
from shardplan.inputs.trained import embedding_is_frozen, frozen_parts, head_is_frozen, lora_targets, targets_meant
from shardplan.inputs.words import ATTENTION_KERNELS, BASE_WEIGHTS, DTYPES, OPTIMIZERS, TRAINED
from shardplan.inputs.words import PRECISIONS as PRECISION_WORDS

Precision = Literal["bf16", "fp16", "fp8", "mxfp8", "nvfp4", "fp32"]
Optimizer = Literal["adam", "sgd", "muon"]
AttentionKernel = Literal["flash", "unfused"]
GradDtype = Literal["bf16", "fp16", "fp32"]
Train = Literal["full", "lora", "qlora"]
BaseWeights = Literal["same", "nf4", "nf4-dq"]

MOST_COUNT = 2**31
MOST_RANK = 65_536
DTYPE_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
MOMENTS = {"adam": 2, "sgd": 1, "muon": 1}
"""State tensors per parameter: Adam keeps two moments, SGD with momentum and Muon one."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a precision recipe implies for every tensor of a training step (bytes per element)."""

    matmul: str
    """Number format of the linear layers' matrix products, a key of ``Accelerator.peak_flops``."""
    dense_math: str
    """Number format of attention, router and head."""
    weight_bytes: float
    """Weights that the forward pass reads."""
    quantised_weight_bytes: float
    """Low-precision copies of the linear layers' weights next to them."""
    master_bytes: float
    """The fp32 master copy (zero if the weights themselves are fp32)."""
    activation_bytes: float
    """Activations between layers."""
    linear_input_bytes: float
    """Inputs of linear layers that are saved for the backward pass."""


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
        # One scale byte per 16 elements; linear inputs are saved in 4 bits.
        ("nvfp4", "nvfp4", "bf16", 2.0, 2 * (0.5 + 1 / 16), 4.0, 2.0, 0.5 + 1 / 16),
    )
}


class Packed(NamedTuple):
    """Weights stored in fewer bits than products read."""

    bytes: float
    """One weight with its share of the scales. [bytes]"""
    kernels: int
    """Kernels that dequantise a matrix to the format of the activations."""


PACKED: Final[Mapping[str, Packed]] = {
    "nf4": Packed((4 + 32 / 64) / 8, 1),
    "nf4-dq": Packed((4 + 8 / 64 + 32 / (64 * 256)) / 8, 3),
}
"""QLoRA (arXiv 2305.14314, section 3): 4 bits and an fp32 scale for every 64 weights; with double quantisation a scale
of 8 bits, with an fp32 one for every 256 of them, which two more kernels undo (bitsandbytes,
``functional.dequantize_4bit``)."""
BLOCK_SCALED: Final = ("mxfp8", "nvfp4")
"""Precisions in which every 16 or 32 elements share a scale."""


def recipe_of(precision: str) -> Recipe:
    """The recipe of that name. Raises ``UnknownNameError``."""
    try:
        return PRECISIONS[precision]
    except (KeyError, TypeError):
        hint = f"one of {', '.join(PRECISIONS)}"
        raise UnknownNameError("precision", str(precision), PRECISIONS, hint=hint) from None


def gathered_weight_bytes(recipe: Recipe, software: Software) -> float:
    """Bytes of one weight as ranks gather it: those of a low-precision copy if weights are stored or cast so."""
    copies = recipe.quantised_weight_bytes
    low = software.quantised_weights or (software.quantised_gathers and recipe.matmul == "fp8")
    return min(copies, recipe.weight_bytes) if low and copies > 0 else recipe.weight_bytes


def qlora_in_full(train: str, base_weights: str) -> dict[str, str]:
    """The fields that ``qlora`` stands for (arXiv 2305.14314): adapters on 4-bit weights; empty for other words."""
    if train != "qlora":
        return {}
    return {"train": "lora", "base_weights": "nf4" if base_weights == "same" else base_weights}


def in_full(fields: Mapping[str, Any], job: Job | None = None) -> dict[str, Any]:
    """Given fields on top of those of ``job``, with ``qlora`` replaced by what it stands for.

    Raises ``InputError`` if the given base weights contradict it.
    """
    known = described(Job)
    train, base = (known[name].meant(fields.get(name)) for name in ("train", "base_weights"))
    if train == "qlora" and base == "same":
        raise InputError(
            "train is qlora with base_weights same",
            rule="qlora trains adapters next to weights in 4 bits",
            hint="leave --base-weights out, set it to nf4 or nf4-dq, or set --train lora",
        )
    before = "same" if job is None else job.base_weights
    return {**fields, **qlora_in_full(str(train), before if base is None else str(base))}


@dataclass(frozen=True, kw_only=True)
class Job:
    """One training run as the optimizer sees it."""

    sequence_length: int = field(
        metadata=about(
            "Tokens per sequence: 8192, 8k. Default: at most 8192.",
            least=1,
            most=MOST_COUNT,
            is_length=True,
        )
    )
    """Tokens of one sequence."""
    global_batch_size: int = field(
        metadata=about(
            "Sequences per step. Default: the batch of the model's maker, else 4 M to 16 M tokens by the count.",
            least=1,
            most=MOST_COUNT,
        )
    )
    """Sequences of one optimizer step, over all accelerators."""
    precision: Precision = asked("Format of matrix products:", default="bf16", words=PRECISION_WORDS)
    """Precision recipe: the number format of the matrix products, and what follows from it for every other tensor."""
    optimizer: Optimizer = asked("Optimizer:", default="adam", words=OPTIMIZERS)
    """Which states the optimizer keeps: adam two moments, sgd and muon one. Muon orthogonalises the updates of matrices
    and leaves tables and norms to Adam."""
    attention: AttentionKernel = asked("Attention kernel:", default="flash", words=ATTENTION_KERNELS, is_rare=True)
    """``flash``: fused, scores never reach memory; ``unfused``: scores are written, read and saved."""
    grad_dtype: GradDtype = asked("Format in which gradients accumulate:", default="fp32", words=DTYPES, is_rare=True)
    """Number format in which gradients are accumulated and reduced."""
    moment_dtype: GradDtype = asked("Format of the optimizer's moments:", default="fp32", words=DTYPES, is_rare=True)
    """Number format of the optimizer's moments."""
    dropout: bool = asked("Run dropout.", default=False, is_rare=True)
    """Whether hidden and attention dropout run (their masks are saved for the backward pass)."""
    routing: str = asked(
        "How tokens are shared among experts: balanced, early, learned, a ratio (1.25), or shares of all experts.",
        default="learned",
        metavar="STATE",
        is_rare=True,
    )
    """How the router shares tokens among experts: ``balanced``, as benchmarks force it; a router in training, ``early``
    or ``learned``; tokens of the most loaded expert-parallel rank relative to the mean; or the shares of all experts of
    a layer (``0.3,0.2,0.3,0.2``, or ``0:0.6,3:0.4``; layers separated by semicolons).
    """
    tokens: float | None = asked("Tokens to train on, for days and money: 15.6T.", least=0, most=1e18, is_count=True)
    """Tokens of the whole training run, from which the training time follows."""
    documents: tuple[int, ...] | None = asked(
        "Tokens of the documents in a sequence, or their mean and 90th percentile. Default: one document.",
        least=1,
        most=MOST_COUNT,
        metavar="MEAN[,P90]",
        example="1024 or 1024,2048",
        is_length=True,
        is_rare=True,
    )
    """Length of the documents that are packed into a sequence, whose tokens attend only within their own document: one
    length for all, or mean and 90th percentile. By default one document fills the sequence.
    """
    train: Train = asked(
        "What to train: all weights, adapters, or adapters on 4-bit weights:", default="full", words=TRAINED
    )
    """What is trained: the weights, or low-rank adapters on weights that are all frozen (LoRA, arXiv
    2106.09685). ``qlora`` becomes ``lora`` with ``base_weights`` nf4.
    """
    lora_rank: int = asked("Rank of the adapters.", default=16, least=1, most=MOST_RANK, is_rare=True)
    """Rank r of the adapters: a matrix of k x n gets one of k x r and one of r x n."""
    lora_targets: str = asked(
        "Matrices with adapters: q, k, v, o, gate, up, down; qkv and gate_up with one for all; or all.",
        default="q,v",
        metavar="NAMES",
        is_rare=True,
    )
    """Matrices that get adapters, a comma list: projections of attention (``q``, ``k``, ``v``, ``o``) and of MLPs
    (``gate``, ``up``, ``down``); ``qkv`` and ``gate_up`` are fused matrices with one adapter; ``all`` names all."""
    base_weights: BaseWeights = asked(
        "Format of the weights under adapters:", default="same", words=BASE_WEIGHTS, is_rare=True
    )
    """Format in which the matrices of layers are stored under adapters: the ``same`` as in full training; ``nf4``, in 4
    bits with an fp32 scale for every 64 weights; or ``nf4-dq``, with scales of 8 bits (QLoRA, arXiv 2305.14314). Before
    every use a matrix is dequantised to the format of the activations.
    """
    freeze: str = asked("Parts to freeze: embedding, head, layers:0-15.", default="none", metavar="PARTS", is_rare=True)
    """Frozen parts in full training: a comma list of ``embedding``, ``head`` and ``layers:0-15``."""
    companion: str = asked(
        "Frozen models that run forward during training: reference=self, teacher=llama-3.1-70b:top-k=64, reward=MODEL.",
        default=NONE,
        metavar="ROLE=MODEL",
        is_rare=True,
    )
    """Frozen models that read every sequence, a comma list of roles with models: a name, the path of a ``config.json``,
    or ``self``. Roles are ``reference`` (DPO); ``teacher``, whose logits are kept, all or the ``top-k`` of each
    token; and ``reward``, whose vocabulary may differ. They are split as the plan splits the model; only their
    weights are kept. In Python also a mapping of roles to models.
    """
    software: Software = field(default_factory=Software)
    """How the training framework runs the job; a stack names the settings of one."""

    def __post_init__(self) -> None:
        """Checks types and ranges. Raises ``InputError``."""
        object.__setattr__(self, "companion", as_text(self.companion))
        check(self)
        companions_of(self.companion)
        for name, value in qlora_in_full(self.train, self.base_weights).items():
            object.__setattr__(self, name, value)
        if self.documents is not None:
            object.__setattr__(self, "documents", tuple(self.documents))
            check_documents(self.documents, self.sequence_length)
        object.__setattr__(self, "routing", self.routing.strip().lower())
        routing_of(self.routing)
        object.__setattr__(self, "lora_targets", targets_meant(self.lora_targets))
        lora_targets(self.lora_targets)
        object.__setattr__(self, "freeze", self.freeze.lower())
        frozen_parts(self.freeze)
        if self.train == "lora" and self.freeze != "none":
            raise InputError(
                f"freeze is {self.freeze} with train lora",
                rule="adapters train while all weights are frozen",
                hint="leave freeze out, or set --train full",
            )
        self._check_base_weights()
        if not isinstance(self.software, Software):
            raise InputError(
                f"software is {shown(self.software)}", rule="software is a Software record", hint="Software(...)"
            )

    def _check_base_weights(self) -> None:
        """Raises ``InputError`` if weights in few bits would have to be trained or multiplied."""
        if self.packed_weights is None:
            return
        if self.train != "lora":
            raise InputError(
                f"base_weights is {self.base_weights} with train {self.train}",
                rule="weights in 4 bits stay as they are, next to adapters",
                hint="set --train lora, or leave --base-weights out",
            )
        if self.recipe.quantised_weight_bytes:
            raise InputError(
                f"base_weights is {self.base_weights} with precision {self.precision}",
                rule="weights in 4 bits are multiplied in 16 or 32 bits",
                hint="set --precision to bf16, fp16 or fp32",
            )

    @property
    def packed_weights(self) -> Packed | None:
        """How matrices of layers are stored under adapters, if in fewer bits."""
        return PACKED.get(self.base_weights)

    @property
    def trained(self) -> str:
        """What is trained: ``all`` weights, ``adapters`` on frozen ones, or ``part`` of the weights."""
        return "adapters" if self.train == "lora" else "all" if self.freeze == "none" else "part"

    @property
    def trains_all(self) -> bool:
        """Whether every weight is trained, and nothing else."""
        return self.trained == "all"

    def freezes_embedding(self, model: ModelConfig) -> bool:
        """Whether the input embedding is frozen."""
        return embedding_is_frozen(model, lora=self.train == "lora", freeze=self.freeze)

    def freezes_head(self, model: ModelConfig) -> bool:
        """Whether the output head is frozen."""
        return head_is_frozen(model, lora=self.train == "lora", freeze=self.freeze)

    @property
    def packed(self) -> Documents | None:
        """The documents of a sequence; None if one fills it."""
        documents = None if self.documents is None else documents_of(self.documents)
        return None if documents is None or documents.fill(self.sequence_length) else documents

    @property
    def routed(self) -> Routing:
        """How the router shares tokens among experts."""
        return routing_of(self.routing)

    @property
    def recipe(self) -> Recipe:
        """Bytes and number formats that the precision implies."""
        return recipe_of(self.precision)

    @property
    def scales_rows(self) -> bool:
        """Whether rows and columns of 8-bit products have their own scales (``fp8_scaling``)."""
        return self.precision == "fp8" and self.software.fp8_scaling == "row"

    @property
    def whole_experts(self) -> bool:
        """Whether one kernel runs the products of all experts of a rank, reading their sizes on the device.

        A graph of the whole iteration needs that, unless experts take a fixed number of tokens, since the host does not
        know the sizes (Megatron Core, ``moe_expert_rank_capacity_factor``; compilers). Otherwise the host calls a
        kernel for each expert.
        """
        return self.software.cuda_graphs == "full" and not self.software.moe_capacity

    @property
    def fused_experts(self) -> bool:
        """Whether these kernels apply activation functions and quantise their outputs, forward and backward.

        Those of block-scaled formats do (cuDNN's grouped products in Transformer Engine, ``ops/fused/grouped_mlp.py``).
        """
        return self.whole_experts and self.precision in BLOCK_SCALED

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one optimizer step."""
        return self.sequence_length * self.global_batch_size

    @property
    def grad_bytes(self) -> float:
        """Bytes of one accumulated gradient element."""
        return DTYPE_BYTES[self.grad_dtype]

    @property
    def reduced_gradient_bytes(self) -> float:
        """Bytes of one gradient element as data-parallel ranks reduce it."""
        return max(self.grad_bytes, DTYPE_BYTES["fp32"]) if self.software.reduces_fp32 else self.grad_bytes

    @property
    def gathered_weight_bytes(self) -> float:
        """Bytes of one weight as ranks gather it."""
        return gathered_weight_bytes(self.recipe, self.software)

    @property
    def optimizer_bytes(self) -> float:
        """Optimizer states and master copy, bytes per parameter (12 for Adam in mixed precision: arXiv 1910.02054)."""
        return self.recipe.master_bytes + MOMENTS[self.optimizer] * self.moment_bytes

    @property
    def moment_bytes(self) -> float:
        """Bytes of one element of a moment."""
        return DTYPE_BYTES[self.moment_dtype]
