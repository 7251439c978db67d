"""Launch files written for the tests, and how they are read."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from shardplan.launch.dialects.ask import Ask
from shardplan.launch.dialects.read import read_launch
from shardplan.launch.dialects.reading import Reading

MEGATRON = """
#!/bin/bash
#SBATCH --nodes=4
NODES=${SLURM_NNODES:-4}
TP=${TP:-4}
MODEL=(
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336
    --num-attention-heads 32 --group-query-attention --num-query-groups 8
    --seq-length 8192 --max-position-embeddings 8192
    --swiglu --disable-bias-linear --normalization RMSNorm --position-embedding-type rope
    --untie-embeddings-and-output-weights --vocab-size 128256 --tokenizer-type NullTokenizer
    --hidden-dropout 0 --attention-dropout 0
)
PLAN="--tensor-model-parallel-size $TP --pipeline-model-parallel-size=2 --sequence-parallel"
PLAN+=" --num-layers-per-virtual-pipeline-stage 4"
torchrun --nnodes $NODES --nproc_per_node 8 pretrain_gpt.py "${MODEL[@]}" $PLAN \\
    --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather \\
    --micro-batch-size 1 --global-batch-size $((NODES * 32)) --bf16 \\
    --recompute-granularity selective --recompute-modules layernorm core_attn
"""
"""Llama-3-8B-like on 4 nodes of 8: dp = 32 / (4 x 2) = 4; 32 layers / 2 stages / 4 layers = 4 virtual stages."""


def read(
    folder: Path,
    name: str,
    text: str,
    *,
    env: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
    **given: object,
) -> Reading:
    """The reading of a file with that text."""
    return read_launch(ask(folder, name, text, env=env, arguments=arguments, **given))


def ask(
    folder: Path,
    name: str,
    text: str,
    *,
    env: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
    **given: object,
) -> Ask:
    """A file with that text, and what is said about it."""
    path = folder / name
    path.write_text(textwrap.dedent(text).lstrip(), encoding="utf-8")
    stated = {key: str(value) for key, value in given.items()}
    return Ask(path=path, env=dict(env or {}), arguments=tuple(arguments), given=stated)


def values(reading: Reading, *keys: str) -> tuple[object, ...]:
    """The values of some keys."""
    return tuple(reading.value(key) for key in keys)
