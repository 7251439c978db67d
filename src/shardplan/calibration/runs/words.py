"""Words of measured runs that no field of a job or a plan has: how a run was measured, and how it ended.

All others are those of :mod:`shardplan.inputs.words`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from shardplan.words import words

STEP_TIMES: Final[Mapping[str, str]] = words(
    {"step": "step step-time iteration", "tokens": "tokens tokens/s token throughput", "flops": "flops tflops mfu"}
)
MEMORY_KINDS: Final[Mapping[str, str]] = words(
    {
        "allocated": "allocated max-allocated max-memory-allocated",
        "reserved": "reserved max-reserved max-memory-reserved",
        "process": "process nvidia-smi nvml rocm-smi",
    }
)
RESULTS: Final[Mapping[str, str]] = words(
    {
        "ran": "ran run ok yes success succeeded completed finished",
        "oom": "oom out-of-memory cuda-oom cuda-out-of-memory oom-error out-of-memory-error torch.OutOfMemoryError "
        "torch.cuda.OutOfMemoryError resource-exhausted hip-out-of-memory",
    }
)
"""How a run ended; JAX calls a full memory ``RESOURCE_EXHAUSTED``."""
COLUMN_NAMES: Final = words(
    {
        "id": "id run run-id run-name name experiment config-name job-id",
        "scale_up_size": "scale-up-size nvlink-domain nvlink-domain-size gpus-per-node accelerators-per-node "
        "devices-per-node",
        "step_time_s": "step-time-s step-time step-time-sec step-time-seconds step-seconds iteration-time-s "
        "iteration-time iter-time iter-time-s seconds-per-step sec-per-step s-per-step s/step s/it sec/step s/iter "
        "time-per-step time-per-step-s seconds-per-iteration elapsed-time-per-iteration-s",
        "step_time_ms": "step-time-ms iteration-time-ms iter-time-ms ms-per-step ms/step ms/iter ms/it "
        "time-per-step-ms elapsed-time-per-iteration-ms",
        "tokens_per_second": "tokens-per-second tokens-per-sec tokens/s tokens/sec tok/s total-tokens-per-second "
        "global-tokens-per-second",
        "tokens_per_second_per_accelerator": "tokens-per-second-per-gpu tokens-per-sec-per-gpu tokens/s/gpu "
        "tokens/sec/gpu tok/s/gpu tokens/gpu/s tokens-per-gpu-per-second tokens-per-second-per-device "
        "tokens-per-second-per-chip tokens/s/chip tokens/s/device tgs",
        "tflops_per_accelerator": "tflops-per-gpu tflops/gpu tflop/s/gpu tflops/s/gpu tflops-per-device "
        "tflops-per-second-per-gpu tflop/s-per-gpu tflops/device model-tflops-per-gpu tflops/chip "
        "throughput-per-gpu-tflop/s/gpu",
        "peak_memory_gb": "peak-memory-gb peak-memory peak-mem peak-mem-gb max-memory max-memory-gb max-mem-gb "
        "memory-gb mem-gb",
        "peak_memory_gib": "peak-memory-gib peak-mem-gib max-memory-gib max-mem-gib memory-gib mem-gib",
        "peak_memory_mib": "peak-memory-mib peak-mem-mib max-memory-mib max-mem-mib memory-mib mem-mib",
        "result": "result status outcome state",
        "notes": "notes note comment comments remarks",
    }
)
"""Names of the columns that no field of a job or a plan has. Left out are those that mean several things: ``tps`` is
of one accelerator in torchtitan and of all elsewhere, ``throughput`` may be of samples."""
TIERS: Final[Mapping[str, str]] = {"a": "A", "a-": "A-", "b": "B"}
