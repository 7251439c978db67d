"""Run every case on a machine and keep what there is, interrupted or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import get_args

from shardplan.calibration.microbench.backend import Backend
from shardplan.calibration.microbench.cases import Sizes, cases_of
from shardplan.calibration.microbench.identify import accelerator_of, check_part
from shardplan.calibration.microbench.records import Measurements, Sample, SkippedCase
from shardplan.calibration.microbench.torch_backend import TorchBackend
from shardplan.errors import InputError, UnknownNameError
from shardplan.inputs.cluster import Precision
from shardplan.inputs.readers.catalog import load_accelerator

Progress = Callable[[int, int], None]


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
                skipped.append(SkippedCase(case, _first_line(error)))
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


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{lines[0]:.200}" if lines else type(error).__name__
