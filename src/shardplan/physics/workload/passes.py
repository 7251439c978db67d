"""Bytes of memory-bound kernels: for each kind of pass what its kernels read and write for one element.

One row for each kind. Where a row is not ``counted``, it is the traffic of ideally fused kernels, and the profile's
``memory_pass_factor`` says how many times that real blocks make.
"""

from __future__ import annotations

from shardplan.base.arrays import Numbers
from shardplan.base.fields import dataclass
from shardplan.physics.workload.ops import StreamPass


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """What the kernels of a pass read and write."""

    of: str
    """What one element of it is."""
    forward: float
    backward: float
    forward_kernels: str
    """Tensors that the kernels read (R) and write (W), forward."""
    backward_kernels: str
    """The same, backward."""
    unit: str = "elements"
    """``elements`` of activations, in their own number format, or ``bytes``."""
    counted: bool = False
    """Whether these are the kernels that run, one by one, rather than ideally fused ones."""

    def at(self, name: str, modules: tuple[str, ...], number: Numbers, element: float) -> StreamPass:
        """The pass over a ``number`` of elements, of ``element`` bytes each."""
        size = number * element if self.unit == "elements" else number
        return StreamPass(
            name=name,
            modules=modules,
            forward_bytes=self.forward * size,
            backward_bytes=self.backward * size,
            counted=self.counted,
        )


TRAFFIC: dict[str, Traffic] = {
    "norm": Traffic(
        of="norm with residual addition, per token and channel",
        forward=5,
        backward=7,
        forward_kernels="addition R block, R residual, W sum; norm R sum, W output",
        backward_kernels="between 6 (weights R gradient, R input; input R gradient, R input, R residual's gradient, W) "
        "and 8 (an addition of its own)",
    ),
    "addition": Traffic(
        of="residual addition of an MLP that shares its mixer's norm, per token and channel",
        forward=3,
        backward=3,
        forward_kernels="R block, R residual, W sum",
        backward_kernels="R gradient of the mixer's input, R that of the MLP's, W sum",
    ),
    "norm of several kernels": Traffic(
        of="RMSNorm operation by operation in fp32, with residual addition, per token and channel",
        forward=21,
        backward=41,
        forward_kernels="addition R block, R residual, W sum; cast R, W fp32; in fp32 square R, W, mean R, product "
        "with the inverse root R, W; cast R fp32, W; product with the weight R, W",
        backward_kernels="weight R gradient, R scaled, W, and its sum R; its input R, W; cast R, W fp32; in fp32 by "
        "the inverse root R, W, whose gradient R, R, W and its sum R, square R, W and R, W, sum of both R, R, W; cast "
        "R fp32, W; addition R, R, W",
        counted=True,
    ),
    "rope": Traffic(
        of="rotation, or norm of queries and keys, per token and channel",
        forward=2,
        backward=2,
        forward_kernels="R, W",
        backward_kernels="R gradient, W gradient",
    ),
    "activation": Traffic(
        of="plain activation, per token and inner channel",
        forward=2,
        backward=3,
        forward_kernels="R input, W output",
        backward_kernels="R gradient, R input, W result",
    ),
    "gated activation": Traffic(
        of="gated activation, per token and inner channel",
        forward=3,
        backward=5,
        forward_kernels="R gate, R up, W output",
        backward_kernels="R gradient, R gate, R up, W gate's gradient, W up's gradient",
    ),
    "adapter": Traffic(
        of="sum with an adapter's output, per token and mean of input and output channels",
        forward=3,
        backward=3,
        forward_kernels="R output, R adapter's output, W sum",
        backward_kernels="R input gradient, R adapter's, W sum",
    ),
    "embedding": Traffic(
        of="embedding, per token and channel",
        forward=2,
        backward=3,
        forward_kernels="R row, W output",
        backward_kernels="R gradient, R and W the row's gradient",
    ),
    "softmax": Traffic(
        of="softmax of unfused attention, per score",
        forward=2,
        backward=3,
        forward_kernels="R score, W probability",
        backward_kernels="R gradient, R probability, W result",
        counted=True,
    ),
    "softmax of several kernels": Traffic(
        of="mask and softmax operation by operation, per score",
        forward=6,
        backward=5,
        forward_kernels="copy R score, W; mask R, W; softmax R, W",
        backward_kernels="softmax R gradient, R probability, W; mask R, W",
        counted=True,
    ),
    "softmax with dropout of several kernels": Traffic(
        of="the same with dropout",
        forward=8.5,
        backward=7.5,
        forward_kernels="copy R score, W; mask R, W; softmax R, W; dropout R, W, and half of one for its mask",
        backward_kernels="dropout R gradient, half of one for its mask, W; softmax R, R probability, W; mask R, W",
        counted=True,
    ),
    "softmax with dropout": Traffic(
        of="the same with dropout",
        forward=3,
        backward=4,
        forward_kernels="R score, W probability, W what is left",
        backward_kernels="R gradient, R what is left, R probability, W result",
        counted=True,
    ),
    "index scores": Traffic(
        of="scores of an indexer, per query and key",
        unit="bytes",
        forward=8,
        backward=0,
        forward_kernels="W fp32 (heads summed as they are scored); selection R",
        backward_kernels="none: the loss of an indexer reads what was selected",
        counted=True,
    ),
    "index scores of several kernels": Traffic(
        of="the same operation by operation, per query, key and head",
        unit="bytes",
        forward=24,
        backward=0,
        forward_kernels="product W fp32; scaled R, W; rectified R, W; weighted sum over heads R (transformers, "
        "GlmMoeDsaIndexer)",
        backward_kernels="none, as above",
        counted=True,
    ),
    "pooling": Traffic(
        of="pooling of keys over a window by their gates, per token and channel",
        forward=2,
        backward=4,
        forward_kernels="R key, R gate (one of a window's pooled keys W)",
        backward_kernels="R key, R gate, W both gradients",
    ),
    "streams": Traffic(
        of="hyper-connection of a block, per token, channel and stream",
        forward=4,
        backward=8,
        forward_kernels="weights R; block's input R; output spread R, W (the block's own tensors stand with its norm)",
        backward_kernels="spread R gradient, R stream, W gradient; input R stream, R and W gradient; weights R stream, "
        "R gradient",
    ),
    "collapse": Traffic(
        of="sum of streams behind the last layer, per token, channel and stream",
        forward=2,
        backward=3,
        forward_kernels="weights R; sum R",
        backward_kernels="R stream twice, W gradient",
    ),
    "routing": Traffic(
        of="routing, per token and expert",
        unit="bytes",
        forward=20,
        backward=20,
        forward_kernels="in fp32: softmax R logit, W probability; top-k R, W chosen; auxiliary loss R",
        backward_kernels="in fp32: chosen W gradient; auxiliary loss and softmax R gradient, R probability, W; "
        "R result for its 16-bit copy",
    ),
    "permute": Traffic(
        of="permutation of token copies, per element that it reads or writes",
        forward=1,
        backward=1,
        forward_kernels="R or W: what a dispatcher moves is counted with the experts",
        backward_kernels="as forward, the other way round",
        counted=True,
    ),
    "expert bias": Traffic(
        of="bias behind the experts, weighed by the router in fp32, per token copy and channel",
        unit="bytes",
        forward=28,
        backward=40,
        forward_kernels="bias times weight W fp32; sum R 16 bits, R, W fp32; rows of all experts together R, W fp32; "
        "cast R fp32, W 16 bits (Megatron Core, moe/experts.py, _apply_bias)",
        backward_kernels="cast R 16 bits, W fp32; of the product's output R fp32, W 16 bits, and these together R, W; "
        "of the bias R, W fp32 and its sum R; of the weight R, W fp32 and its sum R",
        counted=True,
    ),
    "expert scores of several kernels": Traffic(
        of="outputs of experts times the router's scores in fp32, operation by operation, per token copy and channel",
        unit="bytes",
        forward=20,
        backward=36,
        forward_kernels="cast R 16 bits, W fp32; product R, W fp32; cast R fp32, W 16 bits",
        backward_kernels="cast R 16 bits, W fp32; gradient of the output R, W fp32; product with the output R, R, W "
        "fp32 and its sum R; cast R fp32, W 16 bits",
        counted=True,
    ),
    "stash": Traffic(
        of="copy of what experts keep to pages, and back, per byte",
        unit="bytes",
        forward=2,
        backward=2,
        forward_kernels="R, W",
        backward_kernels="R, W",
        counted=True,
    ),
    "conv": Traffic(
        of="convolution of a recurrent mixer, per token and channel",
        forward=2,
        backward=3,
        forward_kernels="R input, W output",
        backward_kernels="R gradient, R input, W result",
    ),
    "conv twice": Traffic(
        of="the same where the backward pass convolves again (Mamba-2)",
        forward=2,
        backward=5,
        forward_kernels="R input, W output",
        backward_kernels="convolution R input, W output; R gradient, R input, W result",
    ),
    "gate": Traffic(
        of="gated output of a recurrent mixer, per token and inner channel",
        forward=3,
        backward=5,
        forward_kernels="R gate, R scanned, W output",
        backward_kernels="R gradient, R gate, R scanned, W gate's gradient, W scanned one's gradient",
    ),
    "scale": Traffic(
        of="learned scale per channel, per token and channel",
        forward=2,
        backward=3,
        forward_kernels="R input, W output",
        backward_kernels="R gradient, R input, W result",
    ),
    "loss": Traffic(
        of="loss: fp32 copies and a softmax of several kernels, per logit",
        unit="bytes",
        forward=26,
        backward=20,
        forward_kernels="copy R 16 bits, W fp32; maximum R; exponential of the difference and its sum R, W; division "
        "R, W (Megatron Core, cross_entropy.py)",
        backward_kernels="between 14 (product with the loss's gradient R, W; R fp32, W 16 bits) and 26 (zeros W; "
        "log-softmax R gradient twice, R output, W; R fp32, W 16 bits)",
        counted=True,
    ),
    "loss in one kernel": Traffic(
        of="loss of one kernel (`loss_kernel` single, `fused_loss`), per logit",
        unit="bytes",
        forward=2,
        backward=4,
        forward_kernels="R 16 bits",
        backward_kernels="R 16 bits, W 16 bits in its place",
        counted=True,
    ),
}
"""Every kind of pass by its name."""
