"""ms-swift's ``megatron sft`` and ``megatron pt``: Megatron's names with underscores, and defaults of its own."""

from __future__ import annotations

from typing import Final

from shardplan.launch.dialects.megatron_core.megatron_names import VALUES
from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.settings import Settings, batch_of, state, world_of
from shardplan.launch.dialects.values import degree, on_off, switch, text

NAME: Final = "ms-swift"
VERSION: Final = "main of 2026 (3602360a)"


def swift_facts(facts: Facts, settings: Settings) -> None:
    """Reads options, whose names have hyphens here."""
    for key, (names, convert) in VALUES.items():
        state(facts, key, settings.first(*names), convert)
    state(facts, "vp", settings.first("num-virtual-stages-per-pipeline-rank"), degree)
    state(facts, "model", settings.first("model", "load"), text)
    state(facts, "sequence_length", settings.first("max-length"), degree)
    state(facts, "sequence_parallel", settings.first("sequence-parallel"), switch)
    sharding = settings.first("use-distributed-optimizer")
    state(facts, "sharding", sharding, on_off("zero1", "ddp"))
    facts.assume("sharding", "zero1", "use_distributed_optimizer true")
    granularity = settings.first("recompute-granularity")
    state(
        facts,
        "recompute",
        granularity,
        lambda value: value if value in {"full", "none"} else "selective" if value == "selective" else None,
    )
    facts.assume("recompute", "selective", "recompute_granularity")
    facts.assume("sequence_parallel", value=False)
    for key in ("tp", "pp", "cp", "ep", "vp"):
        facts.assume(key, 1)
    facts.assume("optimizer", "adam")
    facts.miss("precision", ("the checkpoint",))
    world_of(facts)
    batch_of(facts)
