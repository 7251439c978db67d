"""A whole layer under a plan, and the parameters that one rank holds of it.

Muon: what it takes to orthogonalise the update of every matrix.

Five Newton-Schulz iterations run on each whole matrix (K. Jordan et al., "Muon", 2024; Moonlight, arXiv 2502.16982).
Ranks that share optimizer states own whole matrices, as Megatron Core's layer-wise optimizer and torchtitan's DistMuon
share them out, so that no rank is done before the largest matrix is. Tensor-parallel ranks share the products of their
matrix. Tables and norms are updated by Adam, adapters too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from operator import add
from typing import Any, Final, TypeVar

import numpy as np

from shardplan.base.arrays import Flags, Numbers, is_zero, where
from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass, replace
from shardplan.inputs.compressed import CompressedAttention
from shardplan.inputs.job import Job
from shardplan.inputs.layers import MLP, Attention, LatentAttention, Layer, Mixer, MixtureOfExperts
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import OP_SAC, Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.recurrent import DeltaAttention
from shardplan.inputs.trained import lora_targets
from shardplan.physics.workload.attention import attention, latent_attention
from shardplan.physics.workload.communication import Shard
from shardplan.physics.workload.compressed import compressed_attention, hyper_connected
from shardplan.physics.workload.mlp import addition, channel_scale, mixture_of_experts, mlp, norm
from shardplan.physics.workload.ops import OUTSIDE, Block, Collective, Matmul, Operator
from shardplan.physics.workload.recurrent import RECURRENT_BLOCKS
from shardplan.physics.workload.training import adapters, selected, trained

Item = TypeVar("Item", Operator, Collective)


def layer_block(layer: Layer, shard: Shard) -> Block:
    """Norm and mixer, norm and MLP, as the layer has them."""
    blocks = []
    if layer.mixer is not None:
        mixers = (BLOCKS[type(mixer)](mixer, shard) for mixer in layer.mixers)
        blocks.append(reduce(add, mixers, norm(shard, layer_input=layer.streams == 1)))
    if layer.mlp is not None:
        blocks.append(_before_mlp(layer, shard) + _mlp(layer.mlp, shard))
    if layer.streams > 1:
        blocks = [hyper_connected(each, shard, layer.streams, layer_input=not i) for i, each in enumerate(blocks)]
    if layer.layer_scale:
        blocks = [block + channel_scale(shard) for block in blocks]
    if layer.shares_norm:
        blocks = [reduce(add, blocks)]  # products of either read the output of the norm
    extra = layer.num_norms - (layer.mixer is not None) - (layer.mlp is not None)
    if extra > 0:
        blocks += [norm(shard, linear_input=False)] * extra
    elif shard.job.software.pruned_recompute:
        blocks = _pruned(blocks, parallel_residual=layer.parallel_residual)
    block = reduce(add, (trained(each, layer.gradients, shard) for each in blocks))
    return selected(block, shard) if np.any(shard.numbers.recompute.get(OP_SAC, False)) else block


def _before_mlp(layer: Layer, shard: Shard) -> Block:
    """The norm of an MLP; that of its mixer where the two are in parallel behind one (GPT-J, Phi, Cohere)."""
    if layer.shares_norm:
        return addition(shard)
    routed = isinstance(layer.mlp, MixtureOfExperts)
    return norm(
        shard,
        linear_input=not routed,
        layer_input=layer.mixer is None,
        own_input=layer.mixer is None or not layer.parallel_residual,
    )


OUTPUTS = ("proj", "out_proj", "mlp_fc2", "attention_scatter", "mlp_scatter", "mixer_scatter")
"""Products that make the output of a mixer or of a dense MLP, and the exchanges behind them."""


def _pruned(blocks: list[Block], *, parallel_residual: bool) -> list[Block]:
    """The blocks of which recomputation leaves out what makes the layer's output, which no backward pass reads.

    The output of a mixer is read by the norm behind it, but for one next to the MLP. The gradient of a router's weights
    reads the outputs of its experts.
    """
    whole = [] if parallel_residual else blocks[:-1]
    return [*whole, *(_without_output(block) for block in blocks[len(whole) :])]


def _without_output(block: Block) -> Block:
    def pruned(item: Item) -> Item:
        return replace(item, modules=OUTSIDE) if item.name in OUTPUTS else item

    operators, collectives = map(pruned, block.operators), map(pruned, block.collectives)
    return replace(block, operators=tuple(operators), collectives=tuple(collectives))


BLOCKS: Final[Mapping[type, Callable[[Any, Shard], Block]]] = {
    Attention: attention,
    LatentAttention: latent_attention,
    CompressedAttention: compressed_attention,
    **RECURRENT_BLOCKS,
}
"""What each kind of mixer does under a plan."""


def _mlp(config: MLP | MixtureOfExperts, shard: Shard) -> Block:
    return mlp(config, shard) if isinstance(config, MLP) else mixture_of_experts(config, shard)


@dataclass(frozen=True)
class Parameters:
    """Parameters of one rank."""

    dense: Numbers = 0.0
    """Replicated over data- and context-parallel ranks."""
    experts: Numbers = 0.0
    """Replicated over ``edp`` ranks."""
    frozen_dense: Numbers = 0.0
    """Those of the dense ones that are not trained."""
    frozen_experts: Numbers = 0.0
    by_adam: Numbers = 0.0
    """Those of the dense ones that keep Adam's second moment where the optimizer keeps one moment (Muon)."""
    flat: Numbers = 0.0
    """Frozen ones that make one flat parameter with trained ones (``sharded_accumulation``)."""
    packed_dense: Numbers = 0.0
    """Frozen dense ones that are kept in few bits."""
    packed_experts: Numbers = 0.0
    companion_dense: Numbers = 0.0
    """Those of frozen companions, which no other number counts."""
    companion_experts: Numbers = 0.0

    @property
    def trained(self) -> Parameters:
        """Those that have gradients and optimizer states."""
        if is_zero(self.frozen_dense) and is_zero(self.frozen_experts):
            return self
        return Parameters(self.dense - self.frozen_dense, self.experts - self.frozen_experts, by_adam=self.by_adam)

    @property
    def frozen(self) -> Parameters:
        """Those that have weights alone."""
        return Parameters(self.frozen_dense, self.frozen_experts)

    @property
    def unpacked(self) -> Parameters:
        """Those that are not kept in few bits."""
        return Parameters(self.dense - self.packed_dense, self.experts - self.packed_experts)

    def as_frozen(self) -> Parameters:
        """The same, none of them trained."""
        return Parameters(self.dense, self.experts, self.dense, self.experts)

    def as_kept(self, job: Job) -> Parameters:
        """The same counted in weights of the job's precision: those that are kept in few bits are as many as fill them.

        What is trained is as it was.
        """
        if job.packed_weights is None:
            return self
        away = 1 - job.packed_weights.bytes / job.recipe.weight_bytes
        dense, experts = away * self.packed_dense, away * self.packed_experts
        return replace(
            self,
            dense=self.dense - dense,
            experts=self.experts - experts,
            frozen_dense=self.frozen_dense - dense,
            frozen_experts=self.frozen_experts - experts,
        )

    def __add__(self, other: Parameters) -> Parameters:
        return Parameters(**{name: number + getattr(other, name) for name, number in vars(self).items()})

    def with_adam(self, dense: Numbers, job: Job) -> Parameters:
        """The same, this number of them updated by Adam where the job's optimizer is Muon."""
        return replace(self, by_adam=dense) if job.optimizer == "muon" else self


def layer_parameters(model: ModelConfig, layer: Layer, numbers: PlanNumbers) -> Parameters:
    """One rank's parameters of a layer: matrices over tp ranks, norms and routers on each, experts over ep and etp."""
    norms = _unshared(model, layer)
    mixer = sum((_mixer_parameters(each, model.hidden_size, numbers) for each in layer.mixers), start=0.0)
    if not isinstance(layer.mlp, MixtureOfExperts):
        dense = layer.mlp.num_parameters(model.hidden_size) if layer.mlp else 0
        return Parameters(norms + mixer + dense / numbers.tp)
    h, moe = model.hidden_size, layer.mlp
    replicated = moe.router_parameters(h) + moe.latent_parameters(h)
    experts = moe.expert_parameters(h) / (numbers.ep * numbers.etp)
    return Parameters(norms + mixer + replicated + moe.shared_parameters(h) / numbers.tp, experts)


def _unshared(model: ModelConfig, layer: Layer) -> int:
    """Norms, scales and hyper-connections of a layer, which every rank holds."""
    connections = layer.connection_parameters(model.hidden_size)
    return layer.num_norms * model.norm_parameters + layer.num_scales * model.hidden_size + connections


def held_parameters(model: ModelConfig, layer: Layer, job: Job, numbers: PlanNumbers) -> Parameters:
    """Parameters of a layer on one rank, adapters included, and those of them that are frozen."""
    held = layer_parameters(model, layer, numbers)
    norms = _unshared(model, layer)
    if job.train != "lora":
        return held.with_adam(norms, job) if layer.gradients == "all" else held.as_frozen()
    block = layer_block(layer, Shard.of(model.hidden_size, job, numbers))
    pairs = [pair for each in block.operators for pair in adapters(each, job, numbers)]
    sizes = [(down.grouped, down.count * (down.k * down.n + up.k * up.n)) for down, up in pairs]
    added = Parameters(
        sum((size for grouped, size in sizes if not grouped), start=0.0) / numbers.tp_rows,
        sum((size for grouped, size in sizes if grouped), start=0.0),
    )
    flat = held.dense + held.experts if job.software.sharded_accumulation == "flat" else 0.0
    kept = replace(held.as_frozen(), flat=flat)
    if job.packed_weights is not None:
        kept = replace(kept, packed_dense=held.dense - norms, packed_experts=held.experts)
    return kept + added.with_adam(added.dense, job)


def check_adapters(model: ModelConfig, job: Job) -> None:
    """Refuse adapters that the model has no matrices for, or whose rank is that of the matrices. Raises InputError."""
    if job.train != "lora":
        return
    shard = Shard.of(model.hidden_size, job, PlanNumbers.of(Plan(), 1, job))
    found = [
        pair
        for kind in model.layer_kinds
        for each in layer_block(kind, shard).operators
        for pair in adapters(each, job, shard.numbers)
    ]
    there = {down.name.partition(".")[2].removesuffix("_a") for down, _ in found}
    missing = [target for target in lora_targets(job.lora_targets) if target not in there]
    if missing and job.lora_targets != "all":
        raise InputError(
            f"lora_targets is {job.lora_targets}, and {model.name} has no {', '.join(missing)}",
            rule="adapters are for matrices of the model",
            hint="name matrices that it has, or all",
        )
    largest = min((float(min(down.k, up.n)) for down, up in found), default=0.0)
    if job.lora_rank > largest:
        raise InputError(
            f"lora_rank is {job.lora_rank:,}; the smallest matrix with an adapter has rank {largest:,.0f}",
            rule="adapters have a lower rank than their matrices",
            hint=f"set --lora-rank below {largest:,.0f}",
        )


def _mixer_parameters(mixer: Mixer, hidden_size: int, numbers: PlanNumbers) -> Numbers:
    """Projections over tensor-parallel ranks; key-value heads, latents and low-rank gates repeated where needed."""
    whole = mixer.num_parameters(hidden_size)
    copies: Numbers
    if isinstance(mixer, Attention):
        repeated = (1.0 if mixer.tied_kv else 2.0) * hidden_size * mixer.num_kv_heads * mixer.head_dim
        copies = np.maximum(numbers.tp_columns / mixer.num_kv_heads, 1)
    elif isinstance(mixer, LatentAttention) and numbers.tp_kind == "1d":
        repeated = float(hidden_size * ((mixer.q_lora_rank or 0) + mixer.kv_lora_rank + mixer.qk_rope_head_dim))
        copies = numbers.tp
    elif isinstance(mixer, CompressedAttention) and numbers.tp_kind == "1d":
        pooled = 2 * (mixer.compressed_channels + (mixer.index_channels if mixer.index_topk else 0))
        repeated = float(hidden_size * (mixer.q_lora_rank + mixer.head_dim + pooled))
        copies = numbers.tp
    elif isinstance(mixer, DeltaAttention) and numbers.tp_kind == "1d":
        repeated = 2.0 * hidden_size * mixer.head_dim
        copies = numbers.tp
    else:
        return whole / numbers.tp
    return (whole + repeated * (copies - 1)) / numbers.tp


def embedding_parameters(model: ModelConfig, numbers: PlanNumbers) -> Parameters:
    """The input table over tensor-parallel ranks; positions, patches and their norm on each."""
    table = model.num_embedding_parameters
    return Parameters(table / numbers.tp + (model.num_input_parameters - table))


def reads_table_last(model: ModelConfig) -> bool:
    """Whether the last stage reads the input table: as its head, or to embed the tokens of multi-token prediction.

    Where the first stage is elsewhere, both hold it (Megatron Core, GPTModel: ``pre_process or mtp_process``) and add
    its gradients (finalize_model_grads.py, _allreduce_word_embedding_grads). DeepSeek-V3's own pipeline puts first and
    last layers on one rank, which holds it once (arXiv 2412.19437, section 3.2.3).
    """
    return model.tie_word_embeddings or model.num_mtp_layers > 0


def head_parameters(model: ModelConfig, numbers: PlanNumbers, *, holds_table: Flags) -> Parameters:
    """Final norm, head, and the input table where this rank reads it too (:func:`reads_table_last`) as one more copy.

    ``holds_table``: whether the rank has the first stage as well, and with it the table.
    """
    again = where(holds_table, 0.0, float(model.num_embedding_parameters)) if reads_table_last(model) else 0.0
    return Parameters((model.num_head_parameters + again) / numbers.tp + model.final_parameters)


def mtp_parameters(model: ModelConfig, job: Job, numbers: PlanNumbers) -> Parameters:
    """One multi-token-prediction block: a layer, a joining projection and three norms."""
    joined = Parameters(model.joining_parameters)
    layer = held_parameters(model, model.mtp_layer, job, numbers)
    return layer + (joined.as_frozen() if job.train == "lora" else joined)


ITERATIONS = 5


@dataclass(frozen=True)
class Orthogonal:
    """FLOP of Newton-Schulz iterations on the matrices of one rank, before ranks share them."""

    dense: Numbers = 0.0
    experts: Numbers = 0.0
    largest: Numbers = 0.0
    """Of one matrix, at most."""


def newton_schulz_flops(rows: float, columns: float) -> float:
    r"""FLOP of five iterations on a matrix of m x n, m the smaller side.

    .. math:: 5 (4 m^2 n + 2 m^3)

    Each iteration forms :math:`A = X X^T`, :math:`B = b A + c A^2` and :math:`a X + B X`.
    """
    m, n = sorted((rows, columns))
    return ITERATIONS * (4 * m * m * n + 2 * m**3)


def orthogonalised(model: ModelConfig, layer: Layer, job: Job, numbers: PlanNumbers) -> Orthogonal:
    """What a layer takes on one rank; nothing under another optimizer, or where the layer is frozen."""
    if job.optimizer != "muon" or job.train == "lora" or layer.gradients != "all":
        return Orthogonal()
    one = Shard.of(model.hidden_size, job, PlanNumbers.of(Plan(), 1, job))
    products = [each for each in layer_block(layer, one).operators if isinstance(each, Matmul) and each.weight]
    dense = sum(size for each in products if not each.grouped for size in _sizes(each))
    experts = sum(size for each in products if each.grouped for size in _sizes(each))
    largest = max((size / float(each.count) for each in products for size in _sizes(each)), default=0.0)
    return Orthogonal(dense / numbers.tp, experts / (numbers.ep * numbers.etp), largest / np.asarray(numbers.tp))


def _sizes(product: Matmul) -> Iterator[float]:
    """FLOP of each matrix of a product: queries, keys and values apart, gate and up apart."""
    whole = float(sum(product.parts))
    for part in product.parts:
        yield float(product.count) * newton_schulz_flops(float(product.k), float(product.n) * float(part) / whole)
