"""Frameworks whose configurations are read by a table alone: names, and defaults where a key is not given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from shardplan.fields import dataclass
from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.settings import Settings, Table, assume_all, batch_of, state_all, words_of, world_of
from shardplan.launch.dialects.values import degree, on_off, optimizer, precision, switch, text

FULL_OR_NONE: Final = on_off("full", "none")
STRATEGY: Final = words_of(
    {
        "full_shard": "zero3",
        "shard_grad_op": "zero2",
        "no_shard": "ddp",
        "hybrid_shard": "hsdp",
        "fsdp": "zero3",
        "hsdp": "hsdp",
        "ddp": "ddp",
    }
)


@dataclass(frozen=True, kw_only=True)
class TableDialect:
    """A framework as a table."""

    name: str
    version: str
    marks: tuple[str, ...]
    """Keys of which ``least_marks`` show that a document is its own."""
    least_marks: int
    table: Table
    defaults: Mapping[str, object]
    open: Mapping[str, str]
    """What its files never state, with where it comes from."""
    product: tuple[str, ...] = ()
    """Degrees whose product is the world, where the framework says so."""

    def owns(self, settings: Settings) -> bool:
        """Whether a document is its own."""
        return sum(settings.has(mark) for mark in self.marks) >= self.least_marks

    def read(self, facts: Facts, settings: Settings) -> None:
        """Reads a document into ``facts``."""
        state_all(facts, settings, self.table)
        _nodes(facts)
        assume_all(facts, self.defaults)
        world_of(facts)
        batch_of(facts)
        for key, need in self.open.items():
            facts.miss(key, (need,))


def _nodes(facts: Facts) -> None:
    nodes, each = facts.number("nodes"), facts.number("per_node")
    if nodes and each:
        facts.derive("num_accelerators", nodes * each, f"{nodes} nodes x {each} accelerators")


_PLAIN: Final = {"pp": 1, "cp": 1, "ep": 1, "vp": 1}

NEMO: Final = TableDialect(
    name="nemo",
    version="1.x (hydra)",
    marks=("trainer.devices", "trainer.num_nodes", "model.micro_batch_size", "model.tensor_model_parallel_size"),
    least_marks=2,
    table={
        "nodes": (("trainer.num_nodes",), degree),
        "per_node": (("trainer.devices",), degree),
        "precision": (
            ("trainer.precision", "model.precision"),
            lambda value: precision({"16": "fp16", "32": "fp32"}.get(str(value), value)),
        ),
        "tp": (("model.tensor_model_parallel_size",), degree),
        "pp": (("model.pipeline_model_parallel_size",), degree),
        "vp": (("model.virtual_pipeline_model_parallel_size",), degree),
        "cp": (("model.context_parallel_size",), degree),
        "ep": (("model.expert_model_parallel_size",), degree),
        "micro_batch_size": (("model.micro_batch_size",), degree),
        "global_batch_size": (("model.global_batch_size",), degree),
        "sequence_length": (("model.encoder_seq_length", "model.data.seq_length"), degree),
        "sequence_parallel": (("model.sequence_parallel",), switch),
        "recompute": (
            ("model.activations_checkpoint_granularity",),
            words_of({"selective": "selective", "full": "full"}),
        ),
        "num_hidden_layers": (("model.num_layers",), degree),
        "hidden_size": (("model.hidden_size",), degree),
        "intermediate_size": (("model.ffn_hidden_size",), degree),
        "num_attention_heads": (("model.num_attention_heads",), degree),
        "num_key_value_heads": (("model.num_query_groups",), degree),
        "max_position_embeddings": (("model.max_position_embeddings",), degree),
        "sharding": (
            ("model.optim.name",),
            lambda value: "zero1" if str(value) in {"distributed_fused_adam", "mcore_distributed_optim"} else "ddp",
        ),
        "optimizer": (("model.optim.name",), optimizer),
    },
    defaults={**_PLAIN, "tp": 1, "recompute": "none", "sequence_parallel": False, "offload": "none"},
    open={"vocab_size": "the tokenizer", "num_accelerators": "trainer.num_nodes x trainer.devices"},
)

LLAMA_FACTORY: Final = TableDialect(
    name="llama-factory",
    version="main of 2026 (ff6d4d12)",
    marks=("model_name_or_path", "finetuning_type", "stage", "cutoff_len", "template"),
    least_marks=3,
    table={
        "model": (("model_name_or_path",), text),
        "sequence_length": (("cutoff_len",), degree),
        "micro_batch_size": (("per_device_train_batch_size",), degree),
        "gradient_accumulation": (("gradient_accumulation_steps",), degree),
        "train": (("finetuning_type",), words_of({"full": "full", "lora": "lora"})),
        "lora_rank": (("lora_rank",), degree),
        "recompute": (
            ("disable_gradient_checkpointing",),
            on_off("none", "full"),
        ),
        "optimizer": (("optim",), optimizer),
        "tp": (("tensor_model_parallel_size",), degree),
        "pp": (("pipeline_model_parallel_size",), degree),
        "ep": (("expert_model_parallel_size",), degree),
    },
    defaults={**_PLAIN, "tp": 1, "recompute": "full", "optimizer": "adam", "offload": "none"},
    open={"num_accelerators": "the launch line: --gpus"},
)

AXOLOTL: Final = TableDialect(
    name="axolotl",
    version="main of 2026 (067b021c)",
    marks=("base_model", "sequence_len", "micro_batch_size", "datasets", "dp_shard_size"),
    least_marks=3,
    table={
        "model": (("base_model",), text),
        "sequence_length": (("sequence_len",), degree),
        "micro_batch_size": (("micro_batch_size",), degree),
        "gradient_accumulation": (("gradient_accumulation_steps",), degree),
        "tp": (("tensor_parallel_size",), degree),
        "cp": (("context_parallel_size",), degree),
        "ep": (("expert_parallel_size",), degree),
        "train": (("adapter",), words_of({"lora": "lora"})),
        "lora_rank": (("lora_r",), degree),
        "recompute": (("gradient_checkpointing",), FULL_OR_NONE),
        "optimizer": (("optimizer",), optimizer),
        "sharding_degree": (("dp_shard_size",), degree),
    },
    defaults={**_PLAIN, "tp": 1, "recompute": "none", "offload": "none"},
    open={"num_accelerators": "the launch line: --gpus"},
)

LLM_FOUNDRY: Final = TableDialect(
    name="llm-foundry",
    version="main of 2025 (8c8dd48f)",
    marks=("device_train_microbatch_size", "global_train_batch_size", "max_duration", "fsdp_config"),
    least_marks=2,
    table={
        "global_batch_size": (("global_train_batch_size",), degree),
        "micro_batch_size": (("device_train_microbatch_size",), degree),
        "sequence_length": (("max_seq_len",), degree),
        "precision": (("precision",), precision),
        "sharding": (("fsdp_config.sharding_strategy",), STRATEGY),
        "recompute": (("fsdp_config.activation_checkpointing",), FULL_OR_NONE),
        "optimizer": (("optimizer.name",), optimizer),
        "num_hidden_layers": (("model.n_layers",), degree),
        "hidden_size": (("model.d_model",), degree),
        "num_attention_heads": (("model.n_heads",), degree),
        "vocab_size": (("model.vocab_size",), degree),
        "max_position_embeddings": (("model.max_seq_len",), degree),
        "model": (("model.pretrained_model_name_or_path",), text),
        "expansion_ratio": (("model.expansion_ratio",), degree),
    },
    defaults={**_PLAIN, "tp": 1, "offload": "none"},
    open={"num_accelerators": "the composer launcher: --gpus"},
)

TABLES: Final = (NEMO, LLAMA_FACTORY, AXOLOTL, LLM_FOUNDRY)
