"""Forks and trainers that keep another framework's names, with defaults and spellings of their own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.launch.scripts import ask, read, values

from shardplan import load_cluster
from shardplan.base.errors import InputError
from shardplan.launch.audit.answer import audit_launch
from shardplan.launch.dialects.megatron_core.forks import EPFL_PLANS

pytest.importorskip("tree_sitter_bash")

SLIME = """
source "/elsewhere/model.sh"
ray job submit --address here -- python3 train.py --actor-num-nodes 2 --actor-num-gpus-per-node 8 --colocate \\
    ${MODEL_ARGS[@]} --tensor-model-parallel-size 2 --pipeline-model-parallel-size 1 --global-batch-size 64 \\
    --use-dynamic-batch-size --max-tokens-per-gpu 4096 --rollout-batch-size 8
"""


def test_slime_trains_in_16_bits_with_the_distributed_optimizer(tmp_path: Path) -> None:
    found = read(tmp_path, "run.sh", SLIME)
    assert values(found, "num_accelerators", "tp", "sharding", "precision") == (16, 2, "zero1", "bf16")
    assert "answers that are generated" in " ".join(found.not_understood)
    assert {"micro_batch_size", "gated", "vp"} <= set(found.missing)


def test_a_variable_of_options_after_a_bare_flag_is_open(tmp_path: Path) -> None:
    """``--colocate ${MODEL_ARGS[@]}``: the variable is no value of the flag."""
    text = SLIME.replace("MODEL_ARGS[@]", "SIZE")
    assert read(tmp_path, "run.sh", SLIME).missing["vp"] == ("env:MODEL_ARGS",)
    assert "vp" not in read(tmp_path, "run.sh", text).missing


UNDERSCORES = """
torchrun --nproc_per_node 8 --nnodes 2 finetune.py --tensor_model_parallel_size 4 --pipeline_model_parallel_size 2 \\
    --num_layers 8 --hidden_size 1024 --num_attention_heads 16 --num_attention_heads_kv 4 --use_rms_norm \\
    --glu_activation swiglu --no_tie_embed_logits --seq_length 2048 --position_embedding_type rotary --bf16 \\
    --micro_batch_size 1 --global_batch_size 64 --vocab_size 32000 --recompute_granularity full \\
    --recompute_method uniform --recompute_num_layers 1
"""


def test_a_fork_of_megatron_whose_options_have_underscores(tmp_path: Path) -> None:
    found = read(tmp_path, "run.sh", UNDERSCORES)
    assert values(found, "tp", "pp", "dp", "num_key_value_heads", "recompute") == (4, 2, 2, 4, "full")
    assert values(found, "gated", "bias", "tie_word_embeddings", "normalization") == (True, False, False, "RMSNorm")
    assert not found.not_understood


def test_changes_of_a_fork_have_options_that_it_has(tmp_path: Path) -> None:
    """It overlaps no gradients and no gathered weights by options, and has no context parallelism."""
    found = audit_launch(ask(tmp_path, "run.sh", UNDERSCORES), cluster=load_cluster("dgx-h100"))
    put_in = {name for each in found.improvements for option in each.added for name in re.findall(r"--\w+", option)}
    assert put_in
    assert put_in <= {name.replace("-", "_").replace("__", "--", 1) for name in EPFL_PLANS}


SAT = """
options="--experiment-name tune --model-parallel-size 2 --mode finetune --train-iters 800 --deepspeed_config ds.json"
run="{front} deepspeed --num_gpus 8 finetune_own.py $options --num-layers 4 --hidden-size 64"
eval $run
"""


@pytest.mark.parametrize("text", [SAT.format(front=""), SAT.replace("--mode finetune", "").format(front="SAT_HOME=/m")])
def test_options_of_sat_are_none_of_megatron(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="of SwissArmyTransformer, which is recognised but not read"):
        read(tmp_path, "run.sh", text)


def test_a_mode_alone_is_not_of_sat(tmp_path: Path) -> None:
    """Megatron's first options have ``--model-parallel-size`` too; a program with few of them is asked for it."""
    old = SAT.format(front="").replace("--mode finetune", "").replace("--experiment-name tune", "")
    usual = old.replace("--num-layers 4", "--num-layers 4 --num-attention-heads 4 --seq-length 64 --batch-size 2")
    assert read(tmp_path, "run.sh", usual).value("tp") == 2
    assert "tp" in read(tmp_path, "own.sh", old).missing


FLAGSCALE = """
defaults: [train: small, _self_]
experiment: {task: {backend: megatron}, runner: {nnodes: 2, nproc_per_node: 8}}
"""
TRAINING = """
system: {tensor_model_parallel_size: 4, precision: {bf16: true}, disable_bias_linear: true, recompute_granularity: full,
  recompute_method: uniform, recompute_num_layers: 1}
model: {num_layers: 8, hidden_size: 1024, num_attention_heads: 16, seq_length: 2048, max_position_embeddings: 2048,
  swiglu: true, multiple_of: 256, micro_batch_size: 1, global_batch_size: 64, use_rotary_position_embeddings: true}
data: {tokenizer: {vocab_size: 32000}}
"""


def test_changes_are_spelt_as_the_file_spells_its_options(tmp_path: Path) -> None:
    cluster = load_cluster("dgx-h100")
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "small.yaml").write_text(TRAINING)
    changes = audit_launch(ask(tmp_path, "run.yaml", FLAGSCALE), cluster=cluster).improvements
    pieces = [piece for each in changes for piece in (*each.removed, *each.added)]
    assert "system.recompute_granularity: full" in pieces
    assert not any(piece.startswith("--") for piece in pieces)
    changes = audit_launch(ask(tmp_path, "run.sh", UNDERSCORES), cluster=cluster).improvements
    pieces = [piece for each in changes for piece in (*each.removed, *each.added)]
    assert any("--recompute_granularity full" in piece for piece in pieces)
    assert not any("recompute-" in piece for piece in pieces)


def test_the_width_of_flagscale_is_in_whole_multiples(tmp_path: Path) -> None:
    """int(8 x 1024 / 3) = 2730, which is 2816 in whole 256s."""
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "small.yaml").write_text(TRAINING)
    assert read(tmp_path, "run.yaml", FLAGSCALE).value("intermediate_size") == 2816


BY_FILE = """
cat <<EOF > ds.json
{{"train_micro_batch_size_per_gpu": 2, "zero_optimization": {{"stage": 2}}, "bf16": {{"enabled": {enabled}}},
  "optimizer": {{"type": "Lion"}}}}
EOF
deepspeed --num_gpus 8 train.py --model-parallel-size 1 --num-layers 4 --hidden-size 64 --num-attention-heads 4 \\
    --deepspeed_config {file} --use_lora --lora_rank 8
"""


def test_the_precision_of_a_line_without_one_is_that_of_its_file(tmp_path: Path) -> None:
    found = read(tmp_path, "run.sh", BY_FILE.format(enabled="true", file="ds.json"))
    assert values(found, "precision", "sharding", "train", "lora_rank") == ("bf16", "zero2", "lora", 8)
    assert read(tmp_path, "run.sh", BY_FILE.format(enabled="false", file="ds.json")).value("precision") == "fp32"
    away = read(tmp_path, "run.sh", BY_FILE.format(enabled="true", file="away.json"))
    assert {"precision", "sharding"} <= set(away.missing)


def test_llama_factory_on_megatron_core(tmp_path: Path) -> None:
    line = """
    torchrun --nproc_per_node 8 run.py --use_mca --tensor_model_parallel_size 2 --sequence_parallel \\
        --use_distributed_optimizer --per_device_train_batch_size 1 --gradient_accumulation_steps 4 --bf16
    """
    found = read(tmp_path, "run.sh", line)
    assert values(found, "tp", "dp", "sharding", "global_batch_size") == (2, 4, "zero1", 16)


OLMO = """
model: {{d_model: 1024, n_heads: 16, n_layers: 8, mlp_ratio: 8, weight_tying: false, rope: true, include_bias: false,
  block_type: {block}, layer_norm_type: rms, activation_type: swiglu, max_sequence_length: 2048, vocab_size: 50280,
  embedding_size: 50304}}
optimizer: {{name: adamw}}
global_train_batch_size: 64
device_train_microbatch_size: 4
precision: amp_bf16
{more}
"""


@pytest.mark.parametrize(
    ("more", "sharding"),
    [("fsdp: {sharding_strategy: SHARD_GRAD_OP}", "zero2"), ("distributed_strategy: ddp", "ddp"), ("", "zero3")],
)
def test_olmo(tmp_path: Path, more: str, sharding: str) -> None:
    """The width of a gated MLP is half of ``mlp_ratio x d_model``."""
    found = read(tmp_path, "a.yaml", OLMO.format(block="sequential", more=more))
    assert (found.framework, found.value("sharding")) == ("olmo", sharding)
    assert values(found, "intermediate_size", "vocab_size", "sequence_length") == (4096, 50304, 2048)
    assert "model" in read(tmp_path, "b.yaml", OLMO.format(block="moe", more=more)).missing


def test_what_is_recognised_but_not_read_is_refused_by_name(tmp_path: Path) -> None:
    text = """
    trainer: {devices: 32, num_nodes: 2}
    distributed_strategy: {tensor_model_parallel_size: 8}
    model: {num_layers: 4}
    """
    with pytest.raises(InputError, match="NeuronX Distributed Training"):
        read(tmp_path, "a.yaml", text)


def test_accumulation_of_a_fork_counts_in_the_batch(tmp_path: Path) -> None:
    line = """
    deepspeed --num_gpus 8 train.py --model-parallel-size 2 --num-layers 4 --hidden-size 64 --num-attention-heads 4 \\
        --batch-size 2 --gradient-accumulation-steps 4 --fp16 --use_qlora --lora_rank 8
    """
    found = read(tmp_path, "run.sh", line)
    assert values(found, "gradient_accumulation", "dp", "global_batch_size", "train") == (4, 4, 32, "lora")
    assert "quantised weights are not priced" in " ".join(found.not_understood)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("trainer: {devices: 8, num_nodes: 1}\nrun: {model_type: other}\n", "SageMaker HyperPod"),
        ("trainer: {devices: 8, num_nodes: 1}\nmodel: {name: other}\n", "shardplan recognises"),
        ("per_device_batch_size: 1\nsteps: 500\nlearning_rate: 0.1\n", "shardplan recognises"),
        ("max_target_length: 100\nmodel: other\n", "shardplan recognises"),
    ],
)
def test_a_key_that_others_have_too_makes_no_framework(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(InputError, match=named):
        read(tmp_path, "a.yaml", text)


def test_null_on_a_line_of_nemo_is_none(tmp_path: Path) -> None:
    (tmp_path / "conf.yaml").write_text("model: {virtual_pipeline_model_parallel_size: 4}\n")
    line = """
    torchrun --nproc_per_node 8 megatron_gpt_pretraining.py --config-name conf trainer.num_nodes=1 trainer.devices=8 \\
        model.micro_batch_size=1 model.tensor_model_parallel_size=2 model.virtual_pipeline_model_parallel_size={vp}
    """
    assert read(tmp_path, "run.sh", line.format(vp="null")).value("vp") == 1
    assert read(tmp_path, "run.sh", line.format(vp="2")).value("vp") == 2


def test_a_fragment_of_dimensions_leaves_the_plan_open(tmp_path: Path) -> None:
    text = 'ARGS="--num-layers 8 --hidden-size 512 --num-attention-heads 8 --seq-length 64 --kv-channels 64"'
    found = read(tmp_path, "size.sh", text)
    assert values(found, "num_hidden_layers", "hidden_size") == (8, 512)
    assert {"tp", "precision", "recompute", "optimizer", "gated"} <= set(found.missing)


def test_root_mean_square_norms_of_forks(tmp_path: Path) -> None:
    line = "torchrun --nproc_per_node 8 train.py --tensor-model-parallel-size 2 --num-layers 4 {more}"
    assert read(tmp_path, "a.sh", line.format(more="--apply-layernorm-rms")).value("normalization") == "RMSNorm"
    assert read(tmp_path, "b.sh", line.format(more="")).value("normalization") == "LayerNorm"
