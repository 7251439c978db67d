"""Finding torch, the device and the other processes."""

from __future__ import annotations

import os
import platform
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from shardplan.calibration.microbench.cases import Ranks
from shardplan.calibration.microbench.records import TimedDevice
from shardplan.errors import InputError

INSTALL: Final = "pip install 'shardplan[microbench]'"


def import_torch() -> Any:
    """The torch module. Raises ``InputError`` where it is missing or broken."""
    try:
        return import_module("torch")
    except (ImportError, OSError) as error:
        raise InputError(
            f"the micro-benchmark runs its kernels with torch, which cannot be imported: {error}",
            rule="torch is installed",
            hint=f"{INSTALL}, or the build of torch that suits your accelerator",
        ) from error


def pick_device(torch: Any, name: str | None) -> Any:
    """The torch device called ``name``; under torchrun the process's own. Raises ``InputError``."""
    has_gpu = bool(torch.cuda.is_available())
    if name is None:
        name = "cuda" if has_gpu else "cpu"
    known = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count() if has_gpu else 0))]
    chosen = f"cuda:{_environment('LOCAL_RANK', 0)}" if name == "cuda" and has_gpu else name
    if chosen not in known:
        raise InputError(
            f"device {chosen!r:.60} is not one of {', '.join(known)}",
            rule="the micro-benchmark runs on a device that torch sees",
            hint=f"choose one of {', '.join(known)}",
        )
    return torch.device(chosen)


def describe(torch: Any, device: Any) -> TimedDevice:
    """What the driver says of the device."""
    if device.type == "cuda":
        found = torch.cuda.get_device_properties(device)
        return TimedDevice(
            kind="cuda",
            name=str(found.name),
            memory_bytes=int(found.total_memory),
            num_cores=int(found.multi_processor_count),
        )
    return TimedDevice(
        kind="cpu", name=_processor(), memory_bytes=_host_memory(), num_cores=int(torch.get_num_threads())
    )


def available_precisions(torch: Any, device: Any) -> tuple[str, ...]:
    """Number formats worth timing: on a CPU those of its fast kernels, on a GPU those of its matrix units."""
    if device.type == "cpu":
        return ("bf16", "fp32")
    major, minor = torch.cuda.get_device_capability(device)
    if getattr(torch.version, "hip", None):
        return ("bf16", "fp16", "fp32", *(("fp8",) if (major, minor) >= (9, 5) else ()))
    names = ["fp16", "fp32"]
    if major >= 8:
        names = ["bf16", "fp16", "tf32", "fp32"]
    if (major, minor) >= (8, 9) and hasattr(torch, "float8_e4m3fn") and hasattr(torch, "_scaled_mm"):
        names.append("fp8")
    return tuple(names)


def ranks_of_launch() -> tuple[Ranks, int]:
    """Processes that torchrun started, and which of them this is. Raises ``InputError``."""
    total = _environment("WORLD_SIZE", 1)
    per_node = _environment("LOCAL_WORLD_SIZE", total)
    rank = _environment("RANK", 0)
    if total < 1 or per_node < 1 or total % per_node or not 0 <= rank < total:
        raise InputError(
            f"WORLD_SIZE {total}, LOCAL_WORLD_SIZE {per_node}, RANK {rank} do not fit together",
            rule="every node runs the same number of processes",
            hint="start with torchrun, the same --nproc-per-node on every node",
        )
    return Ranks(total=total, per_node=per_node), rank


def _environment(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    try:
        return int(text) if text else default
    except ValueError as error:
        raise InputError(
            f"the environment has {name}={text!r:.60}", rule=f"{name} is a whole number", hint="start with torchrun"
        ) from error


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine() or "CPU"


def _host_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1
