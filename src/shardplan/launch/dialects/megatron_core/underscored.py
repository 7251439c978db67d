"""Megatron-LLM of EPFL: a fork of Megatron-LM whose options have underscores.

``megatron/arguments.py`` of epfLLM/Megatron-LLM at 806a8330.
"""

from __future__ import annotations

import re
from typing import Final

from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.settings import Options, state
from shardplan.launch.dialects.values import degree

VERSION: Final = "Megatron-LLM of 2024 (806a8330)"
RENAMED: Final = {"no-tie-embed-logits": "untie-embeddings-and-output-weights"}
"""Options that Megatron-LM has under another name."""

OF_PLANS: Final = frozenset(
    {
        "--attention-dropout", "--bf16", "--fp16", "--global-batch-size", "--hidden-dropout", "--micro-batch-size",
        "--num-layers-per-virtual-pipeline-stage", "--optimizer", "--pipeline-model-parallel-size",
        "--recompute-granularity", "--recompute-method", "--recompute-num-layers", "--seq-length",
        "--sequence-parallel", "--tensor-model-parallel-size", "--transformer-impl", "--use-distributed-optimizer",
        "--use-flash-attn",
    }
)  # fmt: skip
"""Options of plans that Megatron-LM has and the fork too."""


def is_underscored(options: Options) -> bool:
    """Whether options, with hyphens, are of the fork."""
    own = options.first("num-layers", "use-checkpoint-args", "lr-decay-style")
    return own is not None and "micro-batch-size" in options and "tensor-model-parallel-size" in options


def own_facts(facts: Facts, options: Options) -> None:
    """What it states otherwise, before the rules of Megatron-LM."""
    bias, norm = options.first("use-bias"), options.first("use-rms-norm")
    facts.derive("bias", bias is not None, bias.place if bias is not None else "without --use_bias", "use_bias")
    if norm is not None:
        facts.state("normalization", "RMSNorm", norm.place, norm.name)
    state(facts, "num_key_value_heads", options.first("num-attention-heads-kv"), degree)
    kinds = {"absolute": "learned_absolute", "rotary": "rope"}
    state(facts, "position_embedding_type", options.first("position-embedding-type"), lambda word: kinds.get(str(word)))
    if (beside := options.first("parallel-attn")) is not None:
        facts.note(f"{beside.place}: attention beside the MLP is priced as in front of it")


def with_underscores(options: str) -> tuple[str, ...]:
    """Options of Megatron-LM as the fork spells them.

    >>> with_underscores("--micro-batch-size 2")
    ('--micro_batch_size 2',)
    """
    return (re.sub(r"(?<=--)[a-z][a-z0-9-]*", lambda name: name[0].replace("-", "_"), options),)
