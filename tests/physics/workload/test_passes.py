"""Bytes of memory-bound kernels against kernels counted by hand: what each reads and writes of one element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from tests.examples import gpt, mixtral

from shardplan.inputs.job import Job
from shardplan.inputs.layers import MLP, Attention
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.recurrent import LinearAttention, StateSpace
from shardplan.inputs.software import Software
from shardplan.physics.workload.attention import attention
from shardplan.physics.workload.communication import Shard
from shardplan.physics.workload.embedding import embedding, head
from shardplan.physics.workload.mlp import mixture_of_experts, mlp, norm
from shardplan.physics.workload.ops import Block, StreamPass
from shardplan.physics.workload.passes import TRAFFIC
from shardplan.physics.workload.recurrent import linear_attention, state_space

HALF, FULL = 2, 4
"""Bytes of 16-bit and of fp32 numbers."""


@dataclass(frozen=True)
class Kernel:
    """One kernel: bytes of the elements that it reads and of those that it writes."""

    reads: tuple[float, ...]
    writes: tuple[float, ...] = ()

    @property
    def bytes(self) -> float:
        return sum(self.reads) + sum(self.writes)


def read(number: int, *, write: int = 0, size: float = HALF) -> Kernel:
    return Kernel((size,) * number, (size,) * write)


def counted(*kernels: Kernel) -> float:
    return sum(kernel.bytes for kernel in kernels)


ADDITION, NORM = read(2, write=1), read(1, write=1)
WEIGHTS, INPUT = read(2), read(2, write=1)
"""Gradients of a norm's weights and of its input: both read the output's gradient and the input."""
COPY, MAXIMUM = Kernel((HALF,), (FULL,)), read(1, size=FULL)
IN_PLACE = read(1, write=1, size=FULL)
BACK = Kernel((FULL,), (HALF,))
SCORES = read(1, write=1)

EXACT: dict[str, tuple[tuple[Kernel, ...], tuple[Kernel, ...]]] = {
    "rope": ((read(1, write=1),), (read(1, write=1),)),
    "addition": ((ADDITION,), (ADDITION,)),
    "activation": ((read(1, write=1),), (read(2, write=1),)),
    "gated activation": ((read(2, write=1),), (read(3, write=2),)),
    "embedding": ((read(1, write=1),), (read(1), read(1, write=1))),
    "softmax": ((read(1, write=1),), (read(2, write=1),)),
    "softmax with dropout": ((read(1, write=1), Kernel((), (HALF,))), (read(3, write=1),)),
    "softmax of several kernels": ((SCORES,) * 3, (read(2, write=1), SCORES)),
    "softmax with dropout of several kernels": (
        (*(SCORES,) * 3, Kernel((HALF,), (HALF, HALF / 2))),
        (Kernel((HALF, HALF / 2), (HALF,)), read(2, write=1), SCORES),
    ),
    "norm of several kernels": (
        (read(2, write=1), COPY, IN_PLACE, read(1, size=FULL), IN_PLACE, BACK, read(1, write=1)),
        (
            read(2, write=1),
            read(1),
            read(1, write=1),
            COPY,
            IN_PLACE,
            read(2, write=1, size=FULL),
            read(1, size=FULL),
            IN_PLACE,
            IN_PLACE,
            read(2, write=1, size=FULL),
            BACK,
            read(2, write=1),
        ),
    ),
    "conv": ((read(1, write=1),), (read(2, write=1),)),
    "scale": ((read(1, write=1),), (read(2, write=1),)),
    "conv twice": ((read(1, write=1),), (read(1, write=1), read(2, write=1))),
    "gate": ((read(2, write=1),), (read(3, write=2),)),
    "adapter": ((read(2, write=1),), (read(2, write=1),)),
    "loss in one kernel": ((Kernel((HALF,)),), (Kernel((HALF,), (HALF,)),)),
    "routing": (
        (read(1, write=1, size=FULL), read(1, write=1, size=FULL), read(1, size=FULL)),
        (read(0, write=1, size=FULL), read(2, write=1, size=FULL), read(1, size=FULL)),
    ),
    "expert bias": (
        (read(0, write=1, size=FULL), Kernel((HALF, FULL), (FULL,)), read(1, write=1, size=FULL), BACK),
        (COPY, BACK, read(1, write=1), *(read(1, write=1, size=FULL), read(1, size=FULL)) * 2),
    ),
    "expert scores of several kernels": (
        (COPY, IN_PLACE, BACK),
        (COPY, IN_PLACE, read(2, write=1, size=FULL), read(1, size=FULL), BACK),
    ),
    "permute": ((read(1),), (read(1),)),
    "index scores": ((read(1, write=1, size=FULL),), ()),
    "index scores of several kernels": (
        (read(0, write=1, size=FULL), *(read(1, write=1, size=FULL),) * 2, read(1, size=FULL)),
        (),
    ),
    "pooling": ((read(2),), (read(2, write=2),)),
    "streams": (
        (read(1), read(1), read(1, write=1)),
        (read(2, write=1), read(2, write=1), read(2)),
    ),
    "collapse": ((read(1), read(1)), (read(2, write=1),)),
    "stash": ((Kernel((1,), (1,)),), (Kernel((1,), (1,)),)),
}
"""Kernels forward and backward."""
WITHIN: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "norm": (
        (counted(ADDITION, NORM), counted(ADDITION, NORM)),
        (counted(WEIGHTS, read(3, write=1)), counted(WEIGHTS, INPUT, ADDITION)),
    ),
    "loss": (
        (counted(COPY, MAXIMUM, IN_PLACE, IN_PLACE),) * 2,
        (
            counted(IN_PLACE, BACK),
            counted(read(0, write=1, size=FULL), read(1, size=FULL), read(2, write=1, size=FULL), BACK),
        ),
    ),
}
"""Bytes forward and backward of kernels that are fused as far as can be, and of those that are not."""


def bytes_of(kind: str) -> tuple[float, float]:
    """Forward and backward, of one element in 16 bits."""
    row = TRAFFIC[kind].at("x", (), 1, HALF)
    return float(row.forward_bytes), float(row.backward_bytes)


def test_every_row_is_counted() -> None:
    assert EXACT.keys() | WITHIN.keys() == TRAFFIC.keys()
    assert all(row.unit in {"elements", "bytes"} for row in TRAFFIC.values())


@pytest.mark.parametrize("kind", EXACT)
def test_bytes_are_those_of_kernels_counted_by_hand(kind: str) -> None:
    forward, backward = EXACT[kind]
    assert bytes_of(kind) == (counted(*forward), counted(*backward))


@pytest.mark.parametrize("kind", WITHIN)
def test_bytes_lie_between_fused_and_separate_kernels(kind: str) -> None:
    for value, (least, most) in zip(bytes_of(kind), WITHIN[kind], strict=True):
        assert least <= value <= most


def test_those_between_are_taken_as() -> None:
    """Elements of a norm's backward pass, bytes of the loss: fits rest on these."""
    assert [bytes_of(kind) for kind in ("norm", "loss")] == [(5 * HALF, 7 * HALF), (26, 20)]


def test_twice_the_elements_or_their_size_are_twice_the_bytes() -> None:
    for kind, row in TRAFFIC.items():
        one, more, wider = (row.at("x", (), *args) for args in ((10, HALF), (20, HALF), (10, FULL)))
        assert (more.forward_bytes, more.backward_bytes) == (2 * one.forward_bytes, 2 * one.backward_bytes), kind
        assert wider.forward_bytes == (1 if row.unit == "bytes" else 2) * one.forward_bytes, kind
        assert one.counted == row.counted == _is_counted(kind), kind


def _is_counted(kind: str) -> bool:
    return kind.startswith(("softmax", "loss", "permute", "expert bias", "stash", "index scores")) or kind.endswith(
        "of several kernels"
    )


# Which elements a block has of each row.

LENGTH, HIDDEN, HEADS = 512, 256, 8
MAMBA = StateSpace(num_heads=16, head_dim=32, state_size=64, num_groups=2, conv_kernel=4, chunk_size=64,
                   conv_bias=False, proj_bias=False)  # fmt: skip
DELTA = LinearAttention(num_key_heads=4, num_value_heads=8, key_head_dim=32, value_head_dim=16, conv_kernel=4)


def shard(*, hidden: int = HIDDEN, attention: Any = "flash", dropout: bool = False, loss: Any = "in_place") -> Shard:
    job = Job(
        sequence_length=LENGTH, global_batch_size=1, attention=attention, dropout=dropout,
        software=Software(loss_kernel=loss),
    )  # fmt: skip
    return Shard.of(hidden, job, PlanNumbers.of(Plan(), 1, job))


def check(block: Block, name: str, kind: str, number: float) -> None:
    (found,) = (op for op in block.operators if isinstance(op, StreamPass) and op.name == name)
    forward, backward = bytes_of(kind)
    assert (found.forward_bytes, found.backward_bytes) == (number * forward, number * backward)


@pytest.mark.parametrize(("rotary", "qk_norm", "times"), [(True, "none", 1), (False, "head", 1), (True, "head", 2)])
def test_queries_and_keys_are_rotated_and_normed(*, rotary: bool, qk_norm: Any, times: int) -> None:
    config = Attention(num_heads=HEADS, num_kv_heads=2, head_dim=32, rotary=rotary, qk_norm=qk_norm)
    check(attention(config, shard()), "rope", "rope", times * LENGTH * (HEADS + 2) * 32)


@pytest.mark.parametrize("dropout", [False, True])
def test_unfused_softmax_passes_over_every_score(*, dropout: bool) -> None:
    config = Attention(num_heads=HEADS, num_kv_heads=2, head_dim=32)
    kind = "softmax with dropout" if dropout else "softmax"
    check(attention(config, shard(attention="unfused", dropout=dropout)), "softmax", kind, HEADS * LENGTH**2)


def test_norms_activations_and_tables_have_an_element_per_token_and_channel() -> None:
    check(norm(shard()), "norm", "norm", LENGTH * HIDDEN)
    for gated, kind in (False, "activation"), (True, "gated activation"):
        block = mlp(MLP(intermediate_size=3 * HIDDEN, gated=gated), shard())
        check(block, "mlp_activation", kind, LENGTH * 3 * HIDDEN)
    check(embedding(gpt(HIDDEN, 2, HEADS), shard()), "embedding", "embedding", LENGTH * HIDDEN)


@pytest.mark.parametrize(("kernel", "kind"), [("in_place", "loss"), ("single", "loss in one kernel")])
def test_the_loss_has_an_element_per_logit(kernel: str, kind: str) -> None:
    check(head(gpt(HIDDEN, 2, HEADS, vocab_size=1024), shard(loss=kernel)), "loss", kind, LENGTH * 1024)


def test_routing_and_permutation_of_experts() -> None:
    """On one rank a token is read once and its two copies written, and the same the other way round."""
    config: Any = mixtral().layers[0].mlp
    block = mixture_of_experts(config, shard(hidden=4096))
    check(block, "routing", "routing", LENGTH * 8)
    check(block, "permute", "permute", LENGTH * (1 + 2 + 2 + 1) * 4096)


def test_recurrent_mixers_convolve_and_gate() -> None:
    mamba, delta = state_space(MAMBA, shard()), linear_attention(DELTA, shard())
    check(mamba, "conv", "conv twice", LENGTH * (16 * 32 + 2 * 2 * 64))
    check(mamba, "gate", "gate", LENGTH * 16 * 32)
    check(delta, "conv", "conv", LENGTH * (2 * 4 * 32 + 8 * 16))
    check(delta, "gate", "gate", LENGTH * 8 * 16)
