"""A grid that is answered at once."""

from __future__ import annotations

from typing import Any, Final

SMALL: Final[dict[str, Any]] = {
    "model": ["llama-3.2-1b"],
    "cluster": ["dgx-h100"],
    "gpus": [8, 16, 24],
    "memory": [12, 80],
    "sequence_length": 2048,
    "global_batch_size": [16, 48],
    "fix.cp": 1,
    "fix.pp": 1,
    "fix.sharding": "zero1",
    "fix.recompute": "none",
    "limit.tp": [1, 2],
}
