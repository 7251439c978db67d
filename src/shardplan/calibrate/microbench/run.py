"""Which shapes are timed and on what part, and a run of all of them that keeps what there is, interrupted or not."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from typing import Final, Literal, Protocol, cast, get_args

from shardplan.base.errors import InputError, UnknownNameError
from shardplan.calibrate.microbench.records import (
    Case,
    Exchange,
    Exchanged,
    Host,
    Measurements,
    MemoryPass,
    Product,
    Ranks,
    Sample,
    Sizes,
    SkippedCase,
    TimedAttention,
    TimedDevice,
    Timing,
)
from shardplan.calibrate.microbench.torch_backend import TorchBackend
from shardplan.inputs.cluster import Accelerator, Precision
from shardplan.inputs.readers.catalog import list_accelerators, load_accelerator

Progress = Callable[[int, int], None]
KI, MI = 1024, 1024**2
EXCHANGES: Final[tuple[Exchanged, ...]] = get_args(Exchanged)
FORMS: Final = {"pcie", "nvl"}
"""Words that a device states where its catalogue entry does."""
MEMORY_TOLERANCE: Final = 0.05
CORES_TOLERANCE: Final = 0.05
NAMED_TOLERANCE: Final = 0.1
"""Of the memory of a part that was named: drivers keep some of it back."""
MAKERS: Final = {"nvidia", "amd"}
PROCESSOR: Final = "other"
"""Generation of parts that no shipped profile speaks of, processors among them."""


class Backend(Protocol):
    """A machine that can time a case."""

    device: TimedDevice
    software: str
    ranks: Ranks
    rank: int

    def precisions(self) -> Sequence[str]:
        """Number formats in which the device multiplies matrices."""

    def time(self, case: Case) -> Timing:
        """Time of one call. Raises ``RuntimeError`` where the device cannot run the case."""

    def close(self) -> None:
        """Gives back what the backend holds."""


def run_microbenchmark(
    *,
    device: str | None = None,
    sizes: Sizes = "full",
    accelerator: str | None = None,
    precisions: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Measurements:
    """Times kernels on this machine's accelerator with torch, and collectives where torchrun started several processes.

    ``device``: ``cpu``, ``cuda`` or ``cuda:1``, the GPU by default. ``accelerator``: what it is in the catalogue, where
    its name does not tell, or the file that describes it; a part that the device cannot be is refused. ``precisions``:
    number formats of the products, all that it has by default. ``progress`` is called with the cases done and their
    number. An interrupt ends the run and keeps what was timed. Raises
    ``InputError``.
    """
    _check(sizes, accelerator, precisions)
    backend = TorchBackend(device, sizes)
    try:
        return measure_on(backend, sizes=sizes, accelerator=accelerator, precisions=precisions, progress=progress)
    finally:
        backend.close()


def measure_on(
    backend: Backend,
    *,
    sizes: Sizes = "full",
    accelerator: str | None = None,
    precisions: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Measurements:
    """The same on any machine that can time a case. Raises ``InputError``."""
    _check(sizes, accelerator, precisions)
    if accelerator is not None:
        check_part(backend.device, accelerator)
    chosen = _available(precisions, backend)
    waiting = cases_of(backend.device, sizes, chosen, backend.ranks, available=backend.precisions())
    samples: list[Sample] = []
    skipped: list[SkippedCase] = []
    empty = Measurements(
        device=backend.device,
        accelerator=accelerator or accelerator_of(backend.device),
        software=backend.software,
        date=datetime.now(UTC).date().isoformat(),
        num_ranks=backend.ranks.total,
        rank=backend.rank,
        is_complete=True,
        samples=(),
        skipped=(),
    )
    is_complete = True
    try:
        for done, case in enumerate(waiting):
            if progress is not None:
                progress(done, len(waiting))
            try:
                samples.append(Sample(case, backend.time(case)))
            except (RuntimeError, ValueError, TypeError, AttributeError, MemoryError) as error:
                # What a kernel's refusal raises depends on the library, and the other cases still have their worth.
                lines = str(error).strip().splitlines()
                skipped.append(SkippedCase(case, f"{lines[0]:.200}" if lines else type(error).__name__))
        if progress is not None:
            progress(len(waiting), len(waiting))
    except KeyboardInterrupt:
        is_complete = False
    return replace(empty, is_complete=is_complete, samples=tuple(samples), skipped=tuple(skipped))


def _check(sizes: str, accelerator: str | None, precisions: Sequence[str] | None) -> None:
    """Refuse what is wrong with a request before a machine is touched."""
    if sizes not in get_args(Sizes):
        raise UnknownNameError("sizes", str(sizes), get_args(Sizes), hint=f"one of {', '.join(get_args(Sizes))}")
    if accelerator is not None:
        load_accelerator(accelerator)
    if isinstance(precisions, str) or (precisions is not None and not precisions):
        raise InputError(
            f"precisions is {precisions!r:.60}", rule="precisions is a list of names", hint="give bf16, fp8 ..."
        )
    for name in precisions or ():
        if name not in get_args(Precision):
            raise UnknownNameError("precision", str(name), get_args(Precision))


def _available(precisions: Sequence[str] | None, backend: Backend) -> Sequence[str]:
    available = backend.precisions()
    missing = [name for name in precisions or () if name not in available]
    if missing:
        raise InputError(
            f"{backend.device.name} with {backend.software} does not multiply matrices in {', '.join(missing)}",
            rule="the device computes in the precision that is measured",
            hint=f"choose among {', '.join(available)}",
        )
    return precisions or available


def cases_of(
    device: TimedDevice, sizes: Sizes, precisions: Sequence[str], ranks: Ranks, *, available: Sequence[str] = ()
) -> list[Case]:
    """Cases to be timed, those that decide most first. ``available``: all formats that the device has."""
    is_cpu, full = device.kind == "cpu", sizes == "full"
    of_attention: Precision = "fp32" if is_cpu else "bf16" if "bf16" in (available or precisions) else "fp16"
    cases: list[Case] = [
        *_passes(is_cpu=is_cpu, full=full),
        *_products(precisions, is_cpu=is_cpu, full=full),
        *_attentions(of_attention, is_cpu=is_cpu, full=full),
        Host(operation="launch"),
        Host(operation="layer"),
        *_exchanges(ranks, is_cpu=is_cpu, full=full),
    ]
    return list(dict.fromkeys(cases))


def _passes(*, is_cpu: bool, full: bool) -> list[Case]:
    """Tiny ones for the latency, and ones that no cache holds for the rate."""
    large = (128 * MI,) if is_cpu else (512 * MI, 2048 * MI)
    operations: tuple[Literal["copy", "add", "norm"], ...] = ("copy", "add", "norm")
    chosen = [8 * KI, 64 * KI, *(large if full or is_cpu else large[:1])]
    return [MemoryPass(operation=name, bytes=size) for size, name in product(chosen, operations)]


def _products(precisions: Sequence[str], *, is_cpu: bool, full: bool) -> list[Case]:
    """Rows, and inner dimensions with columns: shallow, square and wide."""
    few: tuple[tuple[int, int], ...] = ((64, 512), (256, 256), (512, 512), (512, 1024))
    more: tuple[tuple[int, int], ...] = ((1024, 1024), (2048, 2048))
    rows: tuple[int, ...] = (64, 256, 1024) if full else (64, 256)
    if not is_cpu:
        few = ((256, 256), (64, 8192), (256, 8192), (1024, 8192), (4096, 4096), (4096, 14336), (8192, 8192))
        more = ((128, 8192), (512, 8192), (2048, 8192), (2048, 2048), (14336, 4096), (8192, 28672), (4096, 4608))
        rows = (256, 1024, 4096, 8192) if full else (256, 4096)
    known = [cast(Precision, name) for name in get_args(Precision) if name in precisions]
    shapes = product(known, rows, (*few, *more) if full else few)
    return [Product(precision=name, m=m, k=k, n=n) for name, m, (k, n) in shapes]


def _attentions(precision: Precision, *, is_cpu: bool, full: bool) -> list[Case]:
    """The same number of tokens at every length, as in training."""
    heads, tokens = (2, 512) if is_cpu else (16, 8192)
    dims, lengths = [64, 128], [128, 256, 512] if is_cpu else [512, 2048, 8192]
    if full:
        tokens *= 2
        lengths = [*lengths, 1024] if is_cpu else [512, 1024, 2048, 4096, 8192, 16384]
        dims = dims if is_cpu else [64, 96, 128, 256]
    directions: tuple[Literal["forward", "backward"], ...] = ("forward", "backward")
    return [
        TimedAttention(
            precision=precision,
            direction=way,
            head_dim=dim,
            num_heads=heads,
            sequence_length=length,
            batch_size=tokens // length,
        )
        for dim, length, way in product(dims, lengths, directions)
    ]


def _exchanges(ranks: Ranks, *, is_cpu: bool, full: bool) -> list[Case]:
    largest = 4 * MI if is_cpu else 256 * MI
    few = [16 * KI, largest // 4, largest]
    chosen = [*few, MI, largest // 16, 2 * largest] if full else few
    return [
        Exchange(operation=name, size=size, stride=stride, bytes=volume)
        for (size, stride), name, volume in product(ranks.groups, EXCHANGES, chosen)
    ]


def accelerator_of(device: TimedDevice) -> str | None:
    """Name of the accelerator in the catalogue; None where none fits or two do equally well."""
    if device.kind == "cpu":
        return None
    words = _words(device.name)
    fitting = sorted(
        (_memory_gap(accelerator, device), name)
        for name in list_accelerators()
        if _models(words) & {name.split("-")[0]}
        and FORMS & set(name.split("-")) == FORMS & set(words)
        and _memory_gap(accelerator := load_accelerator(name), device) <= MEMORY_TOLERANCE
        and (not accelerator.num_cores or abs(device.num_cores / accelerator.num_cores - 1) <= CORES_TOLERANCE)
    )
    if not fitting or (len(fitting) > 1 and fitting[0][0] == fitting[1][0]):
        return None
    return fitting[0][1]


def check_part(device: TimedDevice, accelerator: str) -> None:
    """Refuses a part that the device cannot be: its rates would be taken for that part's. Raises ``InputError``."""
    part = load_accelerator(accelerator)
    reason = _contradiction(device, part, is_shipped=accelerator.lower() in map(str.lower, list_accelerators()))
    if reason:
        raise InputError(
            f"the device is {device.name or 'unnamed'}, not {part.name}: {reason}",
            rule="the part that --accelerator names is the device that is timed",
            hint="name the part that it is, choose the device with --device, or leave --accelerator out; a file of "
            f"your own describes any other part (generation: {PROCESSOR} for a processor)",
        )


def _contradiction(device: TimedDevice, part: Accelerator, *, is_shipped: bool) -> str | None:
    """Why the device is not the part; None where nothing says so."""
    if device.kind == "cpu":
        return None if part.generation == PROCESSOR else "it is a processor, no accelerator"
    words = _words(device.name)
    if is_shipped and accelerator_of(device) not in (None, part.name):
        return f"it is {accelerator_of(device)}"
    if is_shipped and (other := _other_model(words, part)):
        return f"its name says {other}"
    if _memory_gap(part, device) > NAMED_TOLERANCE:
        return f"it has {device.memory_bytes / 1e9:.3g} GB, {part.name} has {part.memory_bytes / 1e9:.3g} GB"
    return None


def _other_model(words: list[str], part: Accelerator) -> str | None:
    """A model or a maker in a device's name that is not the part's."""
    makers = MAKERS & set(words) - {part.vendor.lower()}
    models = {name.split("-")[0] for name in list_accelerators()} & _models(words)
    if part.name.split("-")[0] in models:
        return None
    return min(models | makers, default=None)


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", name.lower())


def _models(words: list[str]) -> set[str]:
    """Words, and neighbours written as one: RTX PRO 6000 is ``rtxpro6000``."""
    return {"".join(words[start : start + length]) for start in range(len(words)) for length in (1, 2, 3)}


def _memory_gap(accelerator: Accelerator, device: TimedDevice) -> float:
    return abs(device.memory_bytes / accelerator.memory_bytes - 1)
