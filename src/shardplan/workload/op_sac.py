"""Recomputation by operator: what PyTorch's selective activation checkpointing keeps of a layer.

torchtitan's policy ``op`` wraps every transformer block in ``torch.utils.checkpoint`` with a list of operators whose
outputs are kept: fused attention, reduce-scatter and all-to-all, and every second ``aten.mm`` of the block in the order
in which the block runs them (wq, wk, wv, wo, w1, w3, w2: wk, wo and w3 are run again). All else is run again, all
kernels between products and grouped products of experts included (torchtitan/distributed/activation_checkpoint.py; the
router's product is run again whatever its place, ``per_op_sac_force_recompute_mm_shapes_by_fqns``). The last product of
a block is never run again: nothing in its backward pass needs its output.

The share holds for every precision: torchtitan's published peak memory with and without fp8 is the same (arXiv
2410.06511, table of eight accelerators), though ``aten._scaled_mm`` was not in the list of 2024 and 2025.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shardplan.arrays import Numbers
from shardplan.fields import replace
from shardplan.workload.ops import AttentionCore, Block, Collective, Matmul, Operator, Saved
from shardplan.workload.shard import Shard

Shares = dict[str, Numbers]

OUTPUTS = {
    "qkv": ("qkv", "q", "q_up", "kv_up"),
    "latents": ("q_down", "kv_down"),
    "norm_input": ("proj", "out_proj"),
}
"""Saved activations and the products that make them; ``..._output`` is that of the product of this name."""


def selected(block: Block, shard: Shard) -> Block:
    """A whole layer's block with the share of every part that ``op_sac`` repeats or frees."""
    products = [operator for operator in block.operators if isinstance(operator, Matmul)]
    repeated = _alternating(products)
    columns = {product.name: product.n for product in products}
    return replace(
        block,
        operators=tuple(replace(operator, op_sac=_of_operator(operator, repeated)) for operator in block.operators),
        collectives=tuple(replace(item, op_sac=_of_collective(item, shard)) for item in block.collectives),
        saved=tuple(replace(tensor, op_sac=_of_saved(tensor, repeated, columns, shard)) for tensor in block.saved),
    )


def _alternating(products: list[Matmul]) -> Shares:
    """Share of every product that is run again: every second of its parts, counted through the layer."""
    shares: Shares = {}
    count = 0
    for product in products:
        if product.grouped or not product.low_precision:
            shares[product.name] = 1.0
            continue
        again: Numbers = 0.0
        whole: Numbers = 0.0
        for part in product.parts:
            count += 1
            whole = whole + part
            again = again + (part if count % 2 == 0 else 0.0)
        shares[product.name] = again / whole
    if products and not products[-1].grouped:
        shares[products[-1].name] = 0.0
    return shares


def _of_operator(operator: Operator, repeated: Shares) -> Numbers:
    if isinstance(operator, Matmul):
        return repeated[operator.name]
    return 0.0 if isinstance(operator, AttentionCore) and operator.fused else 1.0


def _of_collective(item: Collective, shard: Shard) -> Numbers:
    """What a reduce-scatter or an all-to-all brought is kept, and attention's own exchange with its output."""
    if item.dimension == "cp" or item.kind == "all_to_all":
        return 0.0
    if item.kind == "reduce_scatter":  # without sequence parallelism it stands for half an all-reduce
        return np.where(_scatters(shard), 0.0, 1.0) if item.dimension == "tp" else 0.0
    return 1.0


def _of_saved(tensor: Saved, repeated: Shares, columns: Shares, shard: Shard) -> Numbers:
    """Share of a kept tensor that is freed: that of the products whose output it is, all of what follows them."""
    if tensor.name in {"core_output", "softmax_statistics"} and shard.job.attention == "flash":
        return 0.0
    if tensor.name == "dispatched":
        return np.where(np.asarray(shard.numbers.ep) > 1, 0.0, 1.0)
    names = [name for name in OUTPUTS.get(tensor.name, (tensor.name.removesuffix("_output"),)) if name in repeated]
    if not names:
        return 1.0
    freed: Numbers = 0.0
    whole: Numbers = 0.0
    for name in names:
        freed = freed + columns[name] * repeated[name]
        whole = whole + columns[name]
    share = freed / whole
    if tensor.name == "norm_input":  # the sum behind the mixer; its scattered output is kept where there is one
        return np.where(_scatters(shard) & (np.asarray(shard.numbers.tp) > 1), 0.0, share)
    return share


def _scatters(shard: Shard) -> NDArray[np.bool_]:
    return np.asarray(shard.numbers.sequence_parallel)
