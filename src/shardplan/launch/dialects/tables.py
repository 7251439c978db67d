"""Frameworks whose configurations are read by a table alone: names, and defaults where a key is not given."""

from __future__ import annotations

from typing import Final

from shardplan.launch.dialects.megatron_core.nemo import NEMO
from shardplan.launch.dialects.settings import words_of
from shardplan.launch.dialects.table_dialect import PLAIN, TableDialect
from shardplan.launch.dialects.values import degree, on_off, optimizer, precision, text

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
    defaults={**PLAIN, "tp": 1, "recompute": "full", "optimizer": "adam", "offload": "none"},
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
    defaults={**PLAIN, "tp": 1, "recompute": "none", "offload": "none"},
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
    defaults={**PLAIN, "tp": 1, "offload": "none"},
    open={"num_accelerators": "the composer launcher: --gpus"},
)

TABLES: Final = (NEMO, LLAMA_FACTORY, AXOLOTL, LLM_FOUNDRY)
