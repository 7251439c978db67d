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
TIERS: Final[Mapping[str, str]] = {"a": "A", "a-": "A-", "b": "B"}
