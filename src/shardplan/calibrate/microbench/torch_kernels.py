"""The kernels and collectives that are timed, as calls without arguments.

Collectives run between the processes that torchrun started: NCCL on GPUs, gloo on CPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, assert_never

from shardplan.base.errors import InputError
from shardplan.calibrate.microbench.records import Exchange, Host, Kernel, MemoryPass, Product, Ranks, TimedAttention

Call = Callable[[], object]
"""Issues the work; on a GPU it returns before the work is done."""
VOLUME = 2**28
"""Bytes after which a series of calls ends."""


def call_of(torch: Any, device: Any, case: Kernel | Host) -> Call:
    """A call that runs ``case`` on the device."""
    match case:
        case MemoryPass():
            return _memory_pass(torch, device, case)
        case Product():
            return _product(torch, device, case)
        case TimedAttention():
            return _attention(torch, device, case)
        case Host(operation="launch"):
            tiny = torch.zeros(16, device=device)
            return lambda: tiny.add_(1.0)
        case Host():
            return _layer(torch, device)
        case _:
            assert_never(case)


def _training_format(torch: Any, device: Any) -> Any:
    """16 bits where the device is fast in them."""
    if device.type == "cpu":
        return torch.float32
    return torch.bfloat16 if torch.cuda.get_device_capability(device)[0] >= 8 else torch.float16


def _memory_pass(torch: Any, device: Any, case: MemoryPass) -> Call:
    kind = _training_format(torch, device)
    tensors = 3 if case.operation == "add" else 2
    columns = 1024
    rows = max(case.bytes // (tensors * columns * kind.itemsize), 1)
    source = torch.randn(rows, columns, device=device, dtype=kind)
    if case.operation == "norm":
        weight, bias = (torch.ones(columns, device=device, dtype=kind) for _ in range(2))
        return lambda: torch.nn.functional.layer_norm(source, (columns,), weight, bias)
    target = torch.empty_like(source)
    if case.operation == "copy":
        return lambda: target.copy_(source)
    other = torch.randn_like(source)
    return lambda: torch.add(source, other, out=target)


FORMATS: Final[Mapping[str, str]] = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "tf32": "float32",
    "fp32": "float32",
    "fp8": "bfloat16",  # cast once, before timing
}


def _product(torch: Any, device: Any, case: Product) -> Call:
    """Activations by a weight that is kept as (n, k), as linear layers keep it."""
    kind = getattr(torch, FORMATS[case.precision])
    rows = torch.randn(case.m, case.k, device=device, dtype=kind)
    weight = torch.randn(case.n, case.k, device=device, dtype=kind)
    if case.precision == "fp8":
        return _scaled_product(torch, rows, weight)
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high" if case.precision == "tf32" else "highest")
    return lambda: torch.nn.functional.linear(rows, weight)


def _scaled_product(torch: Any, rows: Any, weight: Any) -> Call:
    """One scale per tensor; the casts are no part of the product."""
    quantised, turned = rows.to(torch.float8_e4m3fn), weight.to(torch.float8_e4m3fn).t()
    one = torch.ones((), device=rows.device)
    return lambda: torch._scaled_mm(  # noqa: SLF001  # torch has no public name for it
        quantised, turned, scale_a=one, scale_b=one, out_dtype=torch.bfloat16
    )


def _attention(torch: Any, device: Any, case: TimedAttention) -> Call:
    shape = (case.batch_size, case.num_heads, case.sequence_length, case.head_dim)
    kind, backward = getattr(torch, FORMATS[case.precision]), case.direction == "backward"
    q, k, v = (torch.randn(*shape, device=device, dtype=kind, requires_grad=backward) for _ in range(3))
    attend = torch.nn.functional.scaled_dot_product_attention
    if not backward:
        return lambda: attend(q, k, v, is_causal=True)
    out = attend(q, k, v, is_causal=True)
    gradient = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)


def _layer(torch: Any, device: Any) -> Call:
    """Forward and backward of one eager Llama layer, so small that the device always waits for the host."""
    length, heads, dim, width = 16, 4, 16, 128
    hidden = heads * dim
    kind = _training_format(torch, device)

    def tensor(*shape: int, trained: bool = True) -> Any:
        return (torch.randn(*shape, device=device, dtype=kind) / hidden**0.5).requires_grad_(trained)

    x, norms = tensor(1, length, hidden), (tensor(hidden), tensor(hidden))
    qkv, output = tensor(3 * hidden, hidden), tensor(hidden, hidden)
    up, down = tensor(2 * width, hidden), tensor(hidden, width)
    cos, sin = tensor(length, dim, trained=False), tensor(length, dim, trained=False)
    linear = torch.nn.functional.linear

    def norm(x: Any, weight: Any) -> Any:
        return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))

    def rotate(x: Any) -> Any:
        low, high = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-high, low), dim=-1) * sin

    def forward(x: Any) -> Any:
        q, k, v = linear(norm(x, norms[0]), qkv).view(1, length, 3, heads, dim).permute(2, 0, 3, 1, 4)
        attend = torch.nn.functional.scaled_dot_product_attention
        mixed = attend(rotate(q), rotate(k), v, is_causal=True).transpose(1, 2).reshape(1, length, hidden)
        x = x + linear(mixed, output)
        gate, value = linear(norm(x, norms[1]), up).chunk(2, dim=-1)
        return x + linear(torch.nn.functional.silu(gate) * value, down)

    gradient = tensor(1, length, hidden, trained=False)
    inputs = (x, *norms, qkv, output, up, down)
    return lambda: torch.autograd.grad(forward(x), inputs, gradient)


class Exchanges:
    """Groups of processes and the calls in them."""

    def __init__(self, torch: Any, device: Any, ranks: Ranks) -> None:
        self._torch, self._device, self._ranks = torch, device, ranks
        self._dist = torch.distributed
        self._is_own = not self._dist.is_initialized()
        if self._is_own:
            self._join()
        self._groups = {group: self._own_group(*group) for group in ranks.groups}

    def _join(self) -> None:
        try:
            self._dist.init_process_group(backend="nccl" if self._device.type == "cuda" else "gloo")
        except (RuntimeError, ValueError) as error:
            raise InputError(
                f"the processes cannot join: {str(error).splitlines()[0]:.200}",
                rule="collectives are timed between processes that reach each other",
                hint="start with torchrun; see its --rdzv-endpoint for several nodes",
            ) from error

    def _own_group(self, size: int, stride: int) -> Any:
        """The group of this process; all processes make all groups, in the same order."""
        own = None
        for first in range(self._ranks.total):
            if (first // stride) % size == 0:
                members = [first + position * stride for position in range(size)]
                group = self._dist.new_group(members)
                if self._dist.get_rank() in members:
                    own = (group, members)
        assert own is not None
        return own

    def call_of(self, case: Exchange) -> tuple[Call, int]:
        """A call, and how many of them make a series."""
        group, members = self._groups[case.size, case.stride]
        self._dist.barrier()
        num_calls = max(2, min(40, VOLUME // case.bytes))
        return self._call(case, group, members), num_calls

    def _call(self, case: Exchange, group: Any, members: list[int]) -> Call:
        dist = self._dist
        whole = self._tensor(case.bytes, case.size)
        part = whole[: whole.numel() // case.size].clone()
        match case.operation:
            case "all_gather":
                gather = _either(dist, "all_gather_single", "all_gather_into_tensor")
                return lambda: gather(whole, part, group=group)
            case "reduce_scatter":
                scatter = _either(dist, "reduce_scatter_single", "reduce_scatter_tensor")
                return lambda: scatter(part, whole, group=group)
            case "all_reduce":
                return lambda: dist.all_reduce(whole, group=group)
            case "all_to_all":
                received = self._torch.empty_like(whole)
                return lambda: dist.all_to_all_single(received, whole, group=group)
            case "p2p":
                return self._ring(whole, group, members)

    def _ring(self, sent: Any, group: Any, members: list[int]) -> Call:
        """Every process sends to the next one and receives from the one before."""
        dist, received = self._dist, self._torch.empty_like(sent)
        place = members.index(dist.get_rank())
        after, before = members[(place + 1) % len(members)], members[place - 1]

        def call() -> None:
            both = [dist.P2POp(dist.isend, sent, after, group), dist.P2POp(dist.irecv, received, before, group)]
            for work in dist.batch_isend_irecv(both):
                work.wait()

        return call

    def _tensor(self, num_bytes: int, size: int) -> Any:
        """Zeros, so that repeated sums stay finite."""
        kind = self._torch.bfloat16 if self._device.type == "cuda" else self._torch.float32
        return self._torch.zeros(max(num_bytes // kind.itemsize // size, 1) * size, device=self._device, dtype=kind)

    def close(self) -> None:
        """Leaves the group that was joined here."""
        if self._is_own and self._dist.is_initialized():
            self._dist.destroy_process_group()


def _either(dist: Any, name: str, older_name: str) -> Any:
    """A function of torch by its name, or by the one it had in older versions."""
    return getattr(dist, name, None) or getattr(dist, older_name)
