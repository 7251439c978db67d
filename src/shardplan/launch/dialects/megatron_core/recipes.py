"""Recipes of Megatron-Bridge and NeMo 2 in Python, as far as their own text decides."""

from __future__ import annotations

from typing import Final

from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.settings import Settings, Table, batch_of, state_all, world_of
from shardplan.launch.dialects.values import degree, precision, switch, text

TABLE: Final[Table] = {
    "tp": (
        (
            "model.tensor_model_parallel_size",
            "tensor_model_parallel_size",
            "tensor_parallelism",
            "trainer.tensor_parallelism",
            "trainer.strategy.tensor_model_parallel_size",
        ),
        degree,
    ),
    "pp": (
        (
            "model.pipeline_model_parallel_size",
            "pipeline_model_parallel_size",
            "pipeline_parallelism",
            "trainer.pipeline_parallelism",
            "trainer.strategy.pipeline_model_parallel_size",
        ),
        degree,
    ),
    "vp": (
        (
            "model.virtual_pipeline_model_parallel_size",
            "virtual_pipeline_model_parallel_size",
            "virtual_pipeline_parallelism",
            "trainer.virtual_pipeline_parallelism",
        ),
        degree,
    ),
    "cp": (
        ("model.context_parallel_size", "context_parallel_size", "context_parallelism", "trainer.context_parallelism"),
        degree,
    ),
    "ep": (
        (
            "model.expert_model_parallel_size",
            "expert_model_parallel_size",
            "expert_parallelism",
            "trainer.expert_parallelism",
        ),
        degree,
    ),
    "etp": (("model.expert_tensor_parallel_size", "expert_tensor_parallel_size"), degree),
    "sequence_parallel": (
        ("model.sequence_parallel", "sequence_parallel", "sequence_parallelism", "trainer.sequence_parallelism"),
        switch,
    ),
    "micro_batch_size": (("train.micro_batch_size", "micro_batch_size", "data.micro_batch_size"), degree),
    "global_batch_size": (("train.global_batch_size", "global_batch_size", "data.global_batch_size"), degree),
    "sequence_length": (
        ("dataset.seq_length", "dataset.sequence_length", "model.seq_length", "seq_length", "data.seq_length"),
        degree,
    ),
    "precision": (("mixed_precision", "precision_config"), precision),
    "nodes": (("num_nodes", "trainer.num_nodes"), degree),
    "per_node": (("num_gpus_per_node", "trainer.devices", "trainer.num_gpus_per_node"), degree),
    "model": (("hf_path",), text),
}


def is_recipe(settings: Settings) -> bool:
    """Whether a configuration in Python is a recipe on Megatron Core."""
    own = [name for key in ("tp", "pp", "cp", "ep") for name in TABLE[key][0]]
    return any(name in settings for name in own)


def recipe_facts(facts: Facts, settings: Settings, entry: str | None) -> None:
    """Reads what the recipe sets; what it takes from functions of other files is missing, and so not guessed."""
    is_bridge = any(key.startswith(("model.", "train.", "ddp.")) for key in settings)
    facts.framework = "megatron-bridge" if is_bridge else "nemo"
    facts.version = "recipes of 2026"
    state_all(facts, settings, TABLE)
    nodes, each = facts.number("nodes"), facts.number("per_node")
    if nodes and each:
        facts.derive("num_accelerators", nodes * each, f"{nodes} nodes x {each} accelerators")
    is_called = any(key.startswith("trainer.") and key.endswith("_parallelism") for key in settings)
    for key in ("tp", "pp", "cp", "ep", "vp"):
        if is_called and key not in facts:
            facts.miss(key, (f"the function {settings.value('trainer.__class__')} of another file",))
        facts.assume(key, 1, "not set by the recipe")
    world_of(facts)
    batch_of(facts)
    for key, need in (
        ("num_accelerators", "the launch line: --gpus"),
        ("micro_batch_size", "the base recipe"),
        ("global_batch_size", "the base recipe"),
        ("sequence_length", "the base recipe"),
        ("precision", "the base recipe"),
        ("sharding", "the base recipe"),
        ("recompute", "the base recipe"),
        ("model", "the recipe's model: --model"),
    ):
        facts.miss(key, (need,))
    if entry is None:
        facts.note("no function is named; --entry NAME chooses one of several")
