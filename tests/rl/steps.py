"""RL steps for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from shardplan.rl.asked import AskedRl, ask_rl

QUESTION = {"model": "llama-3.2-1b", "cluster": "dgx-h100", "num_accelerators": 32}
STEP = {"prompts": 32, "samples": 8, "prompt_tokens": 128, "response_tokens": "mean=500,max=1500"}
FEW: Final[dict[str, Any]] = {"limit": {"pp": ["1"], "cp": ["1"], "sharding": ["zero1"], "recompute": ["none"]}}
"""A small space of the trainer."""


def asked(question: Mapping[str, Any] | None = None, **step: Any) -> AskedRl:
    """The task of a small step with other values."""
    return ask_rl({**QUESTION, **FEW, **(question or {})}, {**STEP, **step})
