"""Recipes of Megatron-Bridge and NeMo 2, lines that start them, NeMo 1 and ms-swift: read right, or asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shardplan.launch.dialects.ask import Ask
from shardplan.launch.dialects.read import read_launch
from shardplan.launch.dialects.reading import Reading

RECIPE = """
def pretrain_config(tensor_model_parallel_size: int = 4, micro_batch_size: int = 1):
    cfg = _pretrain_common()
    cfg.model.tensor_model_parallel_size = tensor_model_parallel_size
    cfg.model.pipeline_model_parallel_size = 2
    cfg.model.virtual_pipeline_model_parallel_size = 5
    cfg.model.context_parallel_size = 1
    cfg.model.sequence_parallel = True
    cfg.train.micro_batch_size = micro_batch_size
    cfg.train.global_batch_size = 8 * 16
    cfg.dataset.sequence_length = 4096
    cfg.mixed_precision = "bf16_mixed"
    return cfg
"""
NEMO2 = """
def trainer(tensor_parallelism: int = 4, pipeline_parallelism: int = 1, num_nodes: int = 1, num_gpus_per_node: int = 8):
    strategy = run.Config(
        MegatronStrategy,
        tensor_model_parallel_size=tensor_parallelism,
        pipeline_model_parallel_size=pipeline_parallelism,
    )
    return run.Config(nl.Trainer, strategy=strategy, num_nodes=num_nodes, devices=num_gpus_per_node)

def pretrain_recipe(num_nodes: int = 2, num_gpus_per_node: int = 8, fn=pretrain):
    return run.Partial(
        fn,
        trainer=trainer(
            tensor_parallelism=2, pipeline_parallelism=4, num_nodes=num_nodes, num_gpus_per_node=num_gpus_per_node
        ),
        data=run.Config(MockDataModule, seq_length=8192, global_batch_size=512, micro_batch_size=1),
    )
"""
NEMO1 = """
trainer:
  devices: 8
  num_nodes: 4
  precision: bf16
model:
  micro_batch_size: 1
  global_batch_size: ${multiply:8,${.factor}}
  factor: 32
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 2
  virtual_pipeline_model_parallel_size: 4
  encoder_seq_length: 4096
  num_layers: 32
  hidden_size: 4096
  ffn_hidden_size: ${multiply:4,${.hidden_size}}
  num_attention_heads: 32
  sequence_parallel: true
  activations_checkpoint_granularity: selective
  optim:
    name: distributed_fused_adam
"""
SWIFT = """#!/bin/bash
NNODES=2
NPROC_PER_NODE=8 megatron pt \\
    --model Qwen/Qwen3-8B \\
    --tensor_model_parallel_size 4 \\
    --context_parallel_size 2 \\
    --sequence_parallel true \\
    --micro_batch_size 1 \\
    --global_batch_size 32 \\
    --max_length 8192 \\
    --recompute_granularity full
"""
BRIDGE = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
srun torchrun --nproc-per-node 8 --nnodes 2 scripts/training/run_recipe.py --recipe {recipe} \\
    model.tensor_model_parallel_size=2 model.pipeline_model_parallel_size=1 train.global_batch_size=64 \\
    model.recompute_granularity=null
"""


def read(folder: Path, name: str, text: str, entry: str | None = None) -> Reading:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return read_launch(Ask(path=path, entry=entry))


def values(reading: Reading, *keys: str) -> tuple[Any, ...]:
    return tuple(reading.value(key) for key in keys)


def test_a_recipe_of_megatron_bridge(tmp_path: Path) -> None:
    found = read(tmp_path, "recipe.py", RECIPE, "pretrain_config")
    assert found.framework == "megatron-bridge"
    assert values(found, "tp", "pp", "vp", "cp", "micro_batch_size") == (4, 2, 5, 1, 1)
    assert values(found, "global_batch_size", "sequence_length", "precision") == (128, 4096, "bf16")


def test_what_the_common_recipe_sets_is_asked_for(tmp_path: Path) -> None:
    found = read(tmp_path, "recipe.py", RECIPE.replace("cfg.train.global_batch_size = 8 * 16", ""), "pretrain_config")
    assert {"global_batch_size", "sharding", "recompute", "num_accelerators", "model"} <= set(found.missing)
    assert not {"sharding", "recompute", "num_accelerators"} & set(found.facts)


def test_a_recipe_of_nemo_2(tmp_path: Path) -> None:
    found = read(tmp_path, "recipe.py", NEMO2, "pretrain_recipe")
    assert values(found, "num_accelerators", "tp", "pp", "cp", "dp") == (16, 2, 4, 1, 2)
    assert values(found, "sequence_length", "global_batch_size", "micro_batch_size") == (8192, 512, 1)
    assert {"precision", "sharding", "recompute", "model"} <= set(found.missing)


def test_a_trainer_of_another_file_decides_what_is_not_given_to_it(tmp_path: Path) -> None:
    text = NEMO2[NEMO2.index("def pretrain_recipe") :]
    found = read(tmp_path, "recipe.py", text, "pretrain_recipe")
    assert values(found, "num_accelerators", "tp", "pp") == (16, 2, 4)
    assert {"cp", "ep", "vp"} <= set(found.missing)


def test_nemo_1_by_hydra(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    found = read(tmp_path, "megatron_gpt.yaml", NEMO1)
    assert (found.framework, found.value("num_accelerators")) == ("nemo", 32)
    assert values(found, "tp", "pp", "vp", "dp", "global_batch_size") == (4, 2, 4, 4, 256)
    assert values(found, "intermediate_size", "recompute", "sharding") == (16384, "selective", "zero1")
    assert "vocab_size" in found.missing  # the tokenizer decides it


@pytest.mark.parametrize("left_out", ["precision: bf16", "encoder_seq_length: 4096", "micro_batch_size: 1"])
def test_nemo_1_asks_for_what_is_left_out(tmp_path: Path, left_out: str) -> None:
    key = {"encoder_seq_length": "sequence_length"}.get(left_out.partition(":")[0], left_out.partition(":")[0])
    found = read(tmp_path, "megatron_gpt.yaml", NEMO1.replace(left_out, f"{left_out.partition(':')[0]}: ???"))
    assert key not in found.facts or found.facts[key].origin == "derived"


def test_ms_swift(tmp_path: Path) -> None:
    pytest.importorskip("tree_sitter_bash")
    found = read(tmp_path, "run.sh", SWIFT)
    assert (found.framework, found.value("num_accelerators")) == ("ms-swift", 16)
    assert values(found, "tp", "cp", "sequence_parallel", "dp") == (4, 2, True, 2)
    assert values(found, "sequence_length", "recompute", "sharding") == (8192, "full", "zero1")
    assert "precision" in found.missing  # the checkpoint decides it


def test_a_line_over_a_recipe_that_is_not_on_record_asks_for_the_rest(tmp_path: Path) -> None:
    pytest.importorskip("tree_sitter_bash")
    found = read(tmp_path, "run.sh", BRIDGE.format(recipe="my_recipe_config"))
    assert (found.framework, found.value("num_accelerators")) == ("megatron-bridge", 16)
    assert values(found, "tp", "pp", "global_batch_size", "recompute") == (2, 1, 64, "none")
    assert {"precision", "sharding", "overlap_dp", "offload", "sequence_parallel"} <= set(found.missing)
    assert all("my_recipe_config" in " ".join(found.missing[key]) for key in ("sharding", "offload"))


def test_ranks_of_copies_decide_the_sharding_degree(tmp_path: Path) -> None:
    pytest.importorskip("tree_sitter_bash")
    strategy = "ddp.use_megatron_fsdp=true ddp.data_parallel_sharding_strategy=optim_grads_params"
    copies = f"{strategy} ddp.num_distributed_optimizer_instances=2"
    found = read(
        tmp_path,
        "run.sh",
        BRIDGE.format(recipe="my_recipe_config").replace("model.recompute_granularity=null", copies),
    )
    assert values(found, "sharding", "sharding_degree") == ("hsdp", 4)


def test_a_recipe_gives_the_expert_parallelism_that_its_line_leaves_open(tmp_path: Path) -> None:
    line = BRIDGE.format(recipe="deepseek_v3_pretrain_1024gpu_h100_bf16_config") + "    model.num_moe_experts=256\n"
    found = read(tmp_path, "launch.sh", line.replace("null\n", "null \\\n"))
    assert found.value("ep") == 64  # recipes/deepseek/h100/deepseek_v3.py at 067f987d
