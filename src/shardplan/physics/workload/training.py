"""Gradients that a job does not need, and adapters (LoRA) next to frozen matrices.

A frozen matrix has no weight gradient, so that its input need not be kept; the gradient of its input goes on to what is
trained before it. A matrix W with an adapter computes :math:`x W + x A B` with A of k x r and B of r x n (LoRA, arXiv
2106.09685); A needs the input again.

Recomputation by operator: what PyTorch's selective activation checkpointing keeps of a layer.

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

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import Numbers
from shardplan.base.fields import replace
from shardplan.inputs.job import Job
from shardplan.inputs.layers import Gradients
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.trained import lora_targets
from shardplan.physics.workload.communication import Shard
from shardplan.physics.workload.ops import AttentionCore, Block, Collective, Matmul, Operator, Saved, StreamPass
from shardplan.physics.workload.passes import TRAFFIC

NORMED: Final = (
    "qkv", "q", "q_down", "kv_down", "index_k", "in_proj", "gates_down", "mlp_fc1", "shared_fc1", "latent_down",
    "router", "mtp_projection",
)  # fmt: skip
"""Products that read the output of the norm before them."""
READ_BY: Final = {
    "norm_output": NORMED,
    "dispatched": ("expert_fc1",),
    "latents": ("q_up", "kv_up"),
    "core_output": ("proj",),
    "out_proj_input": ("out_proj",),
    "selection_output": ("step_size",),
    "gates_down_output": ("gates_up",),
    "gathered_input": ("head",),
    **{f"{name}_fc2_input": (f"{name}_fc2",) for name in ("mlp", "expert", "shared")},
}
"""Tensors that are kept as inputs of products, and these products."""
ALSO_READ: Final = ("latents", "core_output")
"""Those that a norm or the attention core reads backward as well."""
ROW_PARALLEL: Final = ("proj", "out_proj", "mlp_fc2", "expert_fc2", "shared_fc2")
"""Products whose inner dimension is shared by tensor-parallel ranks; of the others the columns are."""


def trained(block: Block, gradients: Gradients, shard: Shard) -> Block:
    """``block`` with the gradients that its layer needs, and with the job's adapters."""
    if gradients == "none":
        return forward_alone(block)
    if shard.job.train == "lora":
        return _adapted(block, shard)
    return frozen(block, shard) if gradients == "input" else block


def forward_alone(block: Block) -> Block:
    """``block`` without a backward pass: nothing before it is trained, so nothing is kept."""
    kept = tuple(each for each in block.collectives if each.direction == "forward")
    return Block(operators=block.operators, collectives=kept, forward_alone=True)


def frozen(block: Block, shard: Shard) -> Block:
    """``block`` with gradients of its inputs alone."""
    return _without_weight_gradients(block, shard, adapted=())


def _without_weight_gradients(block: Block, shard: Shard, adapted: tuple[str, ...]) -> Block:
    """Products have no weight gradients, and inputs that only these read are not kept; but those of adapters are."""
    operators = tuple(replace(each, wgrad=False) if isinstance(each, Matmul) else each for each in block.operators)
    saved = (_kept(tensor, shard, adapted) for tensor in block.saved)
    return replace(block, operators=operators, saved=tuple(tensor for tensor in saved if tensor is not None))


def _kept(tensor: Saved, shard: Shard, adapted: tuple[str, ...]) -> Saved | None:
    """What is kept of a tensor where the products that read it are frozen."""
    readers = READ_BY.get(tensor.name)
    if readers is None:
        return tensor
    quantised = shard.linear_input if shard.linear_input < shard.element or tensor.name == "latents" else 0.0
    if tensor.name in ALSO_READ:  # one copy for the product, another where that is kept in other bits
        return replace(tensor, bytes=tensor.bytes * (shard.element / (shard.element + quantised)))
    if {*readers} & {*adapted}:  # adapters compute in 16 bits
        return replace(tensor, bytes=tensor.bytes * (shard.element / shard.linear_input))
    return None


def _adapted(block: Block, shard: Shard) -> Block:
    """``block`` frozen, with the adapters of the job."""
    pairs = [pair for each in block.operators for pair in adapters(each, shard.job, shard.numbers)]
    is_packed = shard.job.packed_weights is not None
    keeps_all = is_packed and shard.job.software.keeps_packed_inputs
    reading = {each.name for each in block.operators} if keeps_all else {down.name.split(".")[0] for down, _ in pairs}
    base = _without_weight_gradients(block, shard, tuple(reading))
    if is_packed:
        base = replace(base, operators=tuple(_packed(each, shard.job) for each in base.operators))
    operators: list[Operator] = []
    saved: list[Saved] = []
    for down, up in pairs:
        operators += [down, up, _sum(down, up, shard)]
        saved.append(Saved(name=f"{up.name}_input", modules=down.modules, bytes=up.m * up.k * up.count * shard.element))
    return base + Block(operators=tuple(operators), saved=tuple(saved))


def _packed(operator: Operator, job: Job) -> Operator:
    """``operator`` with a weight that is kept in few bits."""
    if isinstance(operator, Matmul) and operator.weight:
        return replace(operator, packed=job.packed_weights)
    return operator


def _sum(down: Matmul, up: Matmul, shard: Shard) -> StreamPass:
    """The adapter's output is added to the product's, and its input gradient to that of the product."""
    elements = down.m * down.count * (down.k + up.n) / 2
    return TRAFFIC["adapter"].at(f"{down.name}_sum", down.modules, elements, shard.element)


def adapters(operator: Operator, job: Job, numbers: PlanNumbers) -> Iterator[tuple[Matmul, Matmul]]:
    """Products A and B of the adapters of an operator; both are shared by tensor-parallel ranks (Megatron, NeMo).

    Rows of a tensor grid share tokens, so that its columns alone share these products.
    """
    if not isinstance(operator, Matmul):
        return
    rank, tp = job.lora_rank, numbers.etp if operator.grouped else numbers.tp_columns
    for target, columns in _targets(operator, job):
        by_rows = operator.name in ROW_PARALLEL
        plain = replace(operator, low_precision=False, parts=(1,))
        yield (
            replace(plain, name=f"{operator.name}.{target}_a", n=rank if by_rows else rank / tp),
            replace(plain, name=f"{operator.name}.{target}_b", k=rank, n=columns / tp if by_rows else columns),
        )


def _targets(operator: Matmul, job: Job) -> Iterator[tuple[str, Numbers]]:
    """Targets of the job among the matrices of a product, and the columns of each."""
    parts = _parts(operator)
    whole = sum(operator.parts)
    named = dict(zip(parts, (operator.n * part / whole for part in operator.parts), strict=False))
    for target in lora_targets(job.lora_targets):
        if target in named:
            yield target, named[target]
        elif FUSED.get(target) == operator.name or (target == "gate_up" and operator.name.endswith("_fc1")):
            yield target, operator.n


FUSED: Final = {"qkv": "qkv"}
"""Targets that are one matrix of several."""
PARTS: Final = {
    "qkv": ("q", "k", "v"), "q": ("q",), "q_up": ("q",), "kv_up": ("k",), "proj": ("o",), "out_proj": ("o",),
}  # fmt: skip
"""Targets among the matrices of each product, in their order."""


def _parts(operator: Matmul) -> tuple[str, ...]:
    if operator.name.endswith("_fc1"):
        return ("gate", "up") if len(operator.parts) > 1 else ("up",)
    return ("down",) if operator.name.endswith("_fc2") else PARTS.get(operator.name, ())


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
