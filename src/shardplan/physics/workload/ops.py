"""What a block does under a plan: operators, collectives and saved activations. One list, read by everything else."""

from __future__ import annotations

from typing import Literal

from shardplan.base.arrays import Flags, Numbers
from shardplan.base.fields import dataclass, replace
from shardplan.inputs.job import Packed

OUTSIDE = ("outside",)
"""Modules of what stands before or behind the layers: no recomputation reaches it."""

CollectiveKind = Literal["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "broadcast", "p2p"]
Dimension = Literal["tp", "tp_rows", "cp", "ep", "etp", "dp", "edp", "pp"]
Direction = Literal["forward", "backward"]


@dataclass(frozen=True, kw_only=True)
class Matmul:
    """``count`` matrix products of (m, k) by (k, n). Backward are two more each: for the input and for the weight."""

    name: str
    modules: tuple[str, ...]
    """Recomputation modules that run the operator again (full recomputation always does)."""
    m: Numbers
    """Rows: tokens."""
    k: Numbers
    """Inner dimension."""
    n: Numbers
    """Columns."""
    count: Numbers = 1
    """Products of this shape: batched, or those of the experts of a rank where ``grouped``."""
    grouped: bool = False
    in_one: bool = False
    """Whether one kernel runs all grouped products, rather than one for each."""
    casts_input: bool = True
    """Whether a kernel of its own quantises the input in low precision, rather than the one that computes it."""
    casts_gradient: bool = True
    """The same of the output's gradient."""
    low_precision: bool = True
    """Whether the product runs in the recipe's number format (linear layers) or in its wider one (router, head)."""
    weight: bool = True
    """Whether the second matrix is a weight, whose gradient is accumulated."""
    wgrad: bool = True
    """Whether the gradient of the weight is computed; not where it is frozen."""
    packed: Packed | None = None
    """How the weight is kept, where a kernel writes it out before every use."""
    load: Numbers = 1.0
    """Rows of the most loaded rank, which are these and set the time, relative to those of the average one."""
    parts: tuple[Numbers, ...] = (1,)
    """Relative columns of the weights that PyTorch modules multiply one by one (query, key, value; gate, up)."""
    op_sac: Numbers = 1.0
    """Share of it that recomputation by operator runs again."""
    panels: Numbers = 1
    """Parts that its rows are cut into, forward and for the input's gradient, to overlap with an exchange of them."""

    @property
    def starts(self) -> Numbers:
        """Kernels of a pass."""
        return self.count if self.grouped and not self.in_one else 1

    @property
    def flops(self) -> Numbers:
        r"""Forward FLOP, :math:`2 m k n` each; of the average rank."""
        return 2.0 * self.m * self.k * self.n * self.count / self.load


@dataclass(frozen=True, kw_only=True)
class AttentionCore:
    """Scores, softmax and weighted values, without the projections."""

    name: str
    modules: tuple[str, ...]
    tokens: Numbers
    """Queries of this rank."""
    num_heads: Numbers
    qk_head_dim: Numbers
    v_head_dim: Numbers
    keys: float
    """Keys that a query meets on average (half the sequence under a causal mask)."""
    scored_keys: float
    """Keys for which unfused kernels compute scores: the whole sequence, masked or not."""
    rate_length: Numbers
    """Sequence length that sets the efficiency of the fused kernel (the window where there is one). [tokens]"""
    fused: bool = True
    steps: Numbers = 1
    """Kernels that it runs one after another: one for the keys of every rank of a ring."""
    merged_elements: Numbers = 0.0
    """Elements of partial outputs that ring attention adds up."""
    load: Numbers = 1.0
    """Products of the rank that attends most, which sets the time of fused kernels, relative to the average one."""
    op_sac: Numbers = 1.0
    """Share of it that recomputation by operator runs again."""

    @property
    def flops(self) -> Numbers:
        r"""Forward FLOP without masked keys, :math:`2 T H \bar{s} (d_{qk} + d_v)`; of the average rank."""
        return 2.0 * self.tokens * self.num_heads * self.keys * (self.qk_head_dim + self.v_head_dim)


@dataclass(frozen=True, kw_only=True)
class StreamPass:
    """A memory-bound kernel (norm, activation, rotation, permutation ...)."""

    name: str
    modules: tuple[str, ...]
    forward_bytes: Numbers
    """Bytes read and written by ideally fused kernels, forward. [bytes]"""
    backward_bytes: Numbers
    scan: bool = False
    """Whether it is a state-space scan: its bytes are then elements, and the profile gives the traffic of each."""
    flops: Numbers = 0.0
    """Model FLOP that hide in it (state-space scan), forward."""
    op_sac: Numbers = 1.0
    """Share of it that recomputation by operator runs again."""
    counted: bool = False
    """Whether its bytes are those of the kernels that run, counted one by one, rather than of an ideally fused one."""
    held: Numbers = 0.0
    """Bytes that exist while it runs alone, and no backward pass reads. [bytes]"""


Operator = Matmul | AttentionCore | StreamPass


@dataclass(frozen=True)
class Copies:
    """Copies of every token in an all-to-all; those for one domain of a network tier cross that tier once."""

    count: int = 1
    """Copies of a token: experts that it visits."""
    num_groups: int = 1
    """Groups into which the experts fall, in the order of the ranks that hold them."""
    groups_reached: int = 1
    """Groups in which all copies of a token lie (group-limited routing)."""


ONE_BY_ONE = Copies()
"""Every copy travels by itself."""


@dataclass(frozen=True, kw_only=True)
class Collective:
    """``count`` collectives per micro-batch over one parallel dimension."""

    name: str
    modules: tuple[str, ...]
    kind: CollectiveKind
    dimension: Dimension
    bytes: Numbers
    """The whole (gathered, unscattered) tensor; for all-to-all and p2p what one rank holds. [bytes]"""
    direction: Direction = "forward"
    count: Numbers = 1
    copies: Copies = ONE_BY_ONE
    """Copies of each token in an all-to-all."""
    asynchronous: Flags = False
    """Whether the linear layer runs it during its own backward products."""
    pipelined: bool = True
    """Whether overlap of tensor parallelism cuts it into panels next to those of its product."""
    op_sac: Numbers = 1.0
    """Share of it that recomputation by operator runs again."""


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A tensor kept from the forward to the backward pass."""

    name: str
    modules: tuple[str, ...]
    """Recomputation modules that free it."""
    bytes: Numbers
    layer_input: bool = False
    """Whether it is the input of the whole layer, which full recomputation keeps."""
    op_sac: Numbers = 1.0
    """Share of it that recomputation by operator frees."""
    gradients: float = 0.0
    """Gradients that live at once when the core's backward pass reads it, relative to its bytes."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """A layer or a part of one, an embedding or a head, under a plan: per micro-batch and rank."""

    operators: tuple[Operator, ...] = ()
    collectives: tuple[Collective, ...] = ()
    saved: tuple[Saved, ...] = ()
    forward_alone: bool = False
    """Whether there is no backward pass: nothing is trained here or before."""

    @property
    def training_flops(self) -> Numbers:
        """FLOP of forward and backward pass, without recomputation."""
        return sum((self._passes(each) * each.flops for each in self.operators), start=0.0)

    def _passes(self, operator: Operator) -> int:
        """Times that the forward FLOP of an operator are spent: once more for each gradient."""
        if self.forward_alone:
            return 1
        return 3 if not isinstance(operator, Matmul) or operator.wgrad else 2

    def __add__(self, other: Block) -> Block:
        return Block(
            operators=self.operators + other.operators,
            collectives=self.collectives + other.collectives,
            saved=self.saved + other.saved,
            forward_alone=self.forward_alone and other.forward_alone,
        )

    def outside_layers(self) -> Block:
        """The same block as part of no layer: recomputation, full included, leaves it alone."""
        return replace(
            self,
            operators=tuple(replace(operator, modules=OUTSIDE) for operator in self.operators),
            collectives=tuple(replace(collective, modules=OUTSIDE) for collective in self.collectives),
            saved=tuple(replace(tensor, modules=OUTSIDE) for tensor in self.saved),
        )
