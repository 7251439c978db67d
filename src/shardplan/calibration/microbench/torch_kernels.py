"""The kernels that are timed, as calls without arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, assert_never

from shardplan.calibration.microbench.records import Host, MemoryPass, Product, TimedAttention

Call = Callable[[], object]
"""Issues the work; on a GPU it returns before the work is done."""


def call_of(torch: Any, device: Any, case: MemoryPass | Product | TimedAttention | Host) -> Call:
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
