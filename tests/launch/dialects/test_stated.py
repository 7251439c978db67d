"""What a file states counts before every default, and what it states in words that are not understood is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.launch.scripts import ask, read, values

from shardplan import load_cluster
from shardplan.base.errors import InputError
from shardplan.launch.audit.answer import audit_launch

pytest.importorskip("tree_sitter_bash")

BLOOM = """
#!/bin/bash
#SBATCH --nodes=48 --ntasks-per-node=1
#SBATCH --gres=gpu:{name}8
STAGE=0
CONFIG=config.$SLURM_JOBID.json
cat <<END > $CONFIG
{{"train_micro_batch_size_per_gpu": 2, "train_batch_size": 2048, "zero_optimization": {{"stage": $STAGE}},
 "bf16": {{"enabled": {bf16}}}, "fp16": {{"enabled": {fp16}}}}}
END
srun python -u -m torch.distributed.run --nproc_per_node 8 --nnodes $SLURM_NNODES pretrain_gpt.py \\
    --tensor-model-parallel-size 4 --pipeline-model-parallel-size 12 \\
    --pp-partition-method 'type:transformer|embedding' --num-layers 70 --hidden-size 14336 \\
    --num-attention-heads 112 --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 2 \\
    --global-batch-size 2048 --train-samples 220000000 --vocab-size 250880 --checkpoint-activations \\
    --position-embedding-type alibi --lr 6e-5 --deepspeed --deepspeed_config $CONFIG --zero-stage $STAGE {more}
"""
"""The plan of BLOOM as published (arXiv 2211.05100, section 3.4: 48 nodes of 8 A100 80 GB, 105 s a step), in words of
our own."""


def test_bf16_of_deepspeed_shares_optimizer_states_at_stage_0(tmp_path: Path) -> None:
    """Truth: the run fits and takes 105 s a step."""
    text = BLOOM.format(name="", bf16="true", fp16="false", more="--bf16")
    assert values(read(tmp_path, "a.sh", text), "sharding", "num_accelerators", "attention") == ("zero1", 384, None)
    found = audit_launch(ask(tmp_path, "a.sh", text), cluster=load_cluster("dgx-a100"))
    assert found.runs
    assert found.estimate is not None
    assert found.estimate.step_time == pytest.approx(105, rel=0.12)


@pytest.mark.parametrize(
    ("bf16", "fp16", "more"), [("false", "true", "--fp16"), ("true", "false", "--bf16 --no-pipeline-parallel")]
)
def test_other_engines_of_stage_0_share_nothing(tmp_path: Path, bf16: str, fp16: str, more: str) -> None:
    """``_do_optimizer_sanity_check``: FP16_Optimizer, and bf16 outside of the pipeline engine, keep whole states."""
    assert read(tmp_path, "a.sh", BLOOM.format(name="", bf16=bf16, fp16=fp16, more=more)).value("sharding") == "ddp"


@pytest.mark.parametrize(
    ("more", "kernel", "generation"),
    [
        ("", None, None),
        ("--use-flash-attn", "flash", "flash1"),
        ("--use-flash-attn-v2", "flash", "flash2"),
        ("--use-flash-attn-triton", "flash", "flash1"),
        ("--use-flash-attn-builder", "flash", None),
    ],
)
def test_switches_of_megatron_deepspeed_choose_the_kernel(
    tmp_path: Path, more: str, kernel: str | None, generation: str | None
) -> None:
    text = BLOOM.format(name="", bf16="true", fp16="false", more=f"--bf16 {more}")
    assert values(read(tmp_path, "a.sh", text), "attention", "software.attention_generation") == (kernel, generation)


MEGATRON = """
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --lr 1e-4 \\
    --tensor-model-parallel-size 2 --micro-batch-size 1 --seq-length 4096 --bf16 {more}
"""


@pytest.mark.parametrize(
    ("more", "kernel"),
    [
        ("", None),
        ("--attention-backend unfused", "unfused"),
        ("--use-flash-attn", "flash"),
        ("--transformer-impl local", "unfused"),
        ("--transformer-impl local --use-flash-attn", "flash"),
        ("--attention-backend auto", None),
    ],
)
def test_the_kernel_of_megatron(tmp_path: Path, more: str, kernel: str | None) -> None:
    assert read(tmp_path, "a.sh", MEGATRON.format(more=more)).value("attention") == kernel


NEOX = """
{{"pipe-parallel-size": {pp}, "model-parallel-size": 2, "num-layers": 24, "hidden-size": 2048, "seq-length": 2048,
 "num-attention-heads": 16, "train_micro_batch_size_per_gpu": 4, "zero_optimization": {{"stage": 0}},
 "bf16": {{"enabled": true}}, "lr-decay-style": "cosine", {more}}}
"""


@pytest.mark.parametrize(
    ("more", "kernel"),
    [
        ("", "unfused"),
        ('"attention-config": [[["flash"], 24]]', "flash"),
        ('"attention_config": [[["flash"], "all"]]', "flash"),
        ('"attention_config": [[["global"], 24]]', "unfused"),
        ('"attention_config": [[["flash", "global"], 12]]', None),
    ],
)
def test_the_kernel_of_gpt_neox(tmp_path: Path, more: str, kernel: str | None) -> None:
    found = read(tmp_path, "a.yml", NEOX.format(pp=1, more=more))
    assert found.value("attention") == kernel
    assert ("attention" in found.missing) == (kernel is None)


@pytest.mark.parametrize(("pp", "sharding"), [(0, "ddp"), (1, "zero1"), (2, "zero1")])
def test_gpt_neox_shares_states_on_the_pipeline_engine(tmp_path: Path, pp: int, sharding: str) -> None:
    assert read(tmp_path, "a.yml", NEOX.format(pp=pp, more="")).value("sharding") == sharding


MAXTEXT = "python3 -m maxtext.train base.yml model_name=llama3-8b per_device_batch_size=1 remat_policy=custom {more}\n"


@pytest.mark.parametrize(
    ("more", "recompute", "offload"),
    [
        ("", "full", "none"),
        ("decoder_layer_input=offload", "full", "activations"),
        ("context=device", "full", "none"),
        ("query_proj=device key_proj=device value_proj=device", "layernorm,activation,core_attn,mlp", "none"),
        ("qkv_proj=offload context=device", "layernorm,activation,mlp", "activations"),
        ("qkv_proj=device context=device mlpwi_0=device mlpwi_1=device", "layernorm,activation", "none"),
        ("query_proj=$WHERE", None, None),
        ("query_proj=disk", None, None),
    ],
)
def test_tensors_that_maxtext_keeps(tmp_path: Path, more: str, recompute: str | None, offload: str | None) -> None:
    """``configs/base.yml``: a tensor is ``remat``, ``device`` or ``offload``; what is not kept is computed again."""
    found = read(tmp_path, "a.sh", MAXTEXT.format(more=more))
    assert values(found, "recompute", "offload") == (recompute, offload)
    assert ("recompute" in found.missing) == (recompute is None)


@pytest.mark.parametrize(
    ("policy", "recompute", "offload"),
    [
        ("minimal", "layernorm,activation,core_attn", "none"),
        ("qkv_proj_offloaded", "layernorm,activation,core_attn,mlp", "activations"),
        ("save_out_proj", None, "none"),
        ("full", "full", "none"),
    ],
)
def test_policies_of_maxtext(tmp_path: Path, policy: str, recompute: str | None, offload: str) -> None:
    text = MAXTEXT.format(more="").replace("custom", policy)
    assert values(read(tmp_path, "a.sh", text), "recompute", "offload") == (recompute, offload)


def test_the_kernel_of_maxtext(tmp_path: Path) -> None:
    assert read(tmp_path, "a.sh", MAXTEXT.format(more="attention=dot_product")).value("attention") == "unfused"


TRAINER = (
    "torchrun --nproc_per_node 8 train.py --model_name_or_path a --bf16 True --per_device_train_batch_size 1 {more}\n"
)
DEEPSPEED = (
    '{{"train_micro_batch_size_per_gpu": 1, "bf16": {{"enabled": true}},'
    ' "zero_optimization": {{"stage": 1, {more}}}}}\n'
)
AXOLOTL = "base_model: a\nsequence_len: 2048\nmicro_batch_size: 1\ndatasets: [a]\nbf16: true\n{more}\n"


@pytest.mark.parametrize(
    ("text", "name", "more", "key"),
    [
        (MEGATRON, "a.sh", "--swap-weights", "offload"),
        (MEGATRON, "a.sh", "--enable-swap", "offload"),
        (MEGATRON, "a.sh", "--use-fsdp", "sharding"),
        (MEGATRON, "a.sh", "--zero-stage $Z", "sharding"),
        (MEGATRON, "a.sh", "--zero2-comm", "sharding"),
        (MEGATRON, "a.sh", "--recompute-granularity partial", "recompute"),
        (MEGATRON, "a.sh", "--checkpoint-layers 4", "recompute"),
        (TRAINER, "a.sh", "--gradient_checkpointing unsloth", "recompute"),
        (TRAINER, "a.sh", "--gradient_checkpointing $GC", "recompute"),
        (TRAINER, "a.sh", "--fsdp my_shard", "sharding"),
        (TRAINER, "a.sh", "--offload $O", "offload"),
        (DEEPSPEED, "a.json", '"offload_optimizer": {"device": "disk"}', "offload"),
        (DEEPSPEED, "a.json", '"overlap_comm": "sometimes"', "overlap_dp"),
        (AXOLOTL, "a.yaml", "gradient_checkpointing: sometimes", "recompute"),
        (AXOLOTL, "a.yaml", "swap_optimizer: true", "offload"),
    ],
)
def test_words_that_are_not_understood_leave_their_field_open(
    tmp_path: Path, text: str, name: str, more: str, key: str
) -> None:
    found = read(tmp_path, name, text.format(more=more))
    assert key in found.missing
    assert key not in found.facts


@pytest.mark.parametrize(
    "more",
    ["--save-shard-size 4", "--data-shards 8", "--ckpt-format torch", "--use-checkpoint-args", "--num-workers 2"],
)
def test_names_that_say_something_else_open_nothing(tmp_path: Path, more: str) -> None:
    plain, found = (read(tmp_path, "a.sh", MEGATRON.format(more=each)) for each in ("", more))
    assert found.missing.keys() == plain.missing.keys()


@pytest.mark.parametrize(
    ("more", "size"),
    [
        ("--tokenizer-type GPT2BPETokenizer", 50257),
        ("--tokenizer-type GPT2BPETokenizer --vocab-file $VOCAB", 50257),
        ("--tokenizer-type GPT2BPETokenizer --vocab-file /data/gpt2-vocab.json", 50257),
        ("--tokenizer-type GPT2BPETokenizer --vocab-file /data/own-64k.json", None),
        ("--tokenizer-type Llama2Tokenizer --tokenizer-model /models/tokenizer.model", 32000),
        ("--tokenizer-type Llama2Tokenizer --tokenizer-model $DIR/Yi-34B/tokenizer.model", None),
        ("--tokenizer-type Llama2Tokenizer --tokenizer-model $DIR/llama3/tokenizer.model", None),
        ("--tokenizer-type HuggingFaceTokenizer --tokenizer-model meta-llama/Meta-Llama-3-8B", 128256),
        ("--tokenizer-type Llama2Tokenizer --tokenizer-model Qwen/Qwen2.5-7B", 152064),
        ("--tokenizer-type Llama2Tokenizer --vocab-size 43176", 43176),
    ],
)
def test_the_vocabulary_is_that_of_the_named_tokenizer(tmp_path: Path, more: str, size: int | None) -> None:
    """Truth: ``vocab_size`` of ``config.json`` of the models that are named."""
    found = read(tmp_path, "a.sh", MEGATRON.format(more=more))
    assert found.value("vocab_size") == size
    assert ("vocab_size" in found.missing) == (size is None)


@pytest.mark.parametrize(
    ("kind", "count", "devices"),
    [
        ("tpu7x-4x4x4", 1, 128), ("tpu7x-128", 2, 256), ("v5p-256", 1, 128), ("v5p-4x4x4", 1, 64), ("v6e-256", 1, 256),
        ("v5litepod-16", 2, 32),
    ],
)  # fmt: skip
def test_devices_of_slices(tmp_path: Path, kind: str, count: int, devices: int) -> None:
    """Truth: ``devices_per_slice`` of ``maxtext/utils/accelerator_to_spec_map.py``."""
    line = MAXTEXT.format(more="ici_fsdp_parallelism=-1").strip()
    text = f'xpk workload create --device-type={kind} --num-slices={count} --command "{line}"\n'
    assert read(tmp_path, "a.sh", text).value("num_accelerators") == devices


def test_a_chip_of_two_devices_is_priced_as_two(tmp_path: Path) -> None:
    line = MAXTEXT.format(more="ici_fsdp_parallelism=128").strip()
    text = f'xpk workload create --device-type=tpu7x-4x4x4 --command "{line}"\n'
    cluster = load_cluster("tpu-v7-pod")
    found = audit_launch(ask(tmp_path, "a.sh", text), cluster=cluster)
    assert found.posed.question is not None
    device = found.posed.question.cluster.accelerator
    assert device.memory_bytes * 2 == cluster.accelerator.memory_bytes
    assert device.peak_flops["bf16"] * 2 == cluster.accelerator.peak_flops["bf16"]


@pytest.mark.parametrize(
    ("name", "cluster", "is_said"),
    [
        ("h100:", "dgx-a100", True), ("h100:", "dgx-h100", False), ("a100:", "dgx-a100", False),
        ("volta:", "dgx-a100", False), ("a100_40gb:", "dgx-a100", True), ("", "dgx-a100", False),
    ],
)  # fmt: skip
def test_accelerators_that_the_file_names(tmp_path: Path, name: str, cluster: str, is_said: bool) -> None:  # noqa: FBT001
    text = BLOOM.format(name=name, bf16="true", fp16="false", more="--bf16")
    found = audit_launch(ask(tmp_path, "a.sh", text), cluster=load_cluster(cluster))
    assert any("accelerators of the file" in each.rule for each in found.violations) == is_said
    assert found.runs


FSDP = """
#SBATCH --nodes=2 --gres=gpu:8
mpirun -np 16 python {program} --seq-length 4096 --micro-batch-size 2 --global-batch-size 512 \\
    --train-iters 9 --lr 1e-5 --lr-decay-style cosine --tokenizer-type Llama2Tokenizer --bf16 \\
    --base-model meta-llama/Llama-2-7b-hf {more}
"""


@pytest.mark.parametrize(
    ("program", "more", "sharding", "recompute"),
    [
        ("finetune.py", "--sharding-strategy FULL_SHARD --fsdp-activation-checkpointing", "zero3", "full"),
        ("finetune.py", "--use-fsdp --sharding-strategy SHARD_GRAD_OP", "zero2", None),
        ("train_fsdp.py", "", None, None),
    ],
)
def test_fsdp_behind_options_like_megatrons(
    tmp_path: Path, program: str, more: str, sharding: str | None, recompute: str | None
) -> None:
    found = read(tmp_path, "a.sh", FSDP.format(program=program, more=more))
    keys = ("num_accelerators", "micro_batch_size", "global_batch_size", "sharding", "recompute")
    assert (found.framework, *values(found, *keys)) == ("pytorch-fsdp", 16, 2, 512, sharding, recompute)
    assert found.value("model") == "meta-llama/Llama-2-7b-hf"


def test_fsdp_of_megatron_itself_is_megatrons(tmp_path: Path) -> None:
    assert read(tmp_path, "a.sh", MEGATRON.format(more="--use-megatron-fsdp")).framework == "megatron-lm"


TITAN = (
    "torchrun --nnodes 2 --nproc_per_node 8 -m torchtitan.train --module llama3 --config llama3_8b"
    " --parallelism.pipeline_parallel_degree {} --parallelism.pipeline_parallel_schedule Interleaved1F1B"
)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.sh", TITAN.format(10**11)),
        ("a.sh", TITAN.format(99_999)),
        ("a.sh", MEGATRON.format(more="--num-layers 999999999999")),
        ("a.sh", MEGATRON.format(more="--pipeline-model-parallel-size 50000 --decoder-first-pipeline-num-layers 1"
                                 " --num-virtual-stages-per-pipeline-rank 50000")),
        ("a.sh", MEGATRON.format(more="--global-batch-size 100000000000")),
        ("a.json", DEEPSPEED.format(more='"x": 1').replace('gpu": 1', 'gpu": 1e300')),
        ("a.sh", TITAN.format(2).replace("--nnodes 2", "--nnodes 99999999")),
    ],
)  # fmt: skip
def test_numbers_that_no_run_has_are_refused_before_anything_is_made_of_them(
    tmp_path: Path, name: str, text: str
) -> None:
    with pytest.raises(InputError, match="more than") as error:
        read(tmp_path, name, text)
    assert "at most" in error.value.rule
    assert "--given" in error.value.hint


@pytest.mark.parametrize(
    ("name", "text", "saw", "way"),
    [
        ("a.sh", "srun --mpi=pmix $LAUNCHER $CMD --foo 1", "srun (line 1)", "--env LAUNCHER=VALUE, --env CMD=VALUE"),
        ("a.sh", "sbatch -N 4 jobs/train_70b.sh", "sbatch (line 1)", "give jobs/train_70b.sh"),
        (
            "a.sh",
            "python tune.py --data x --config conf.yaml",
            "whose configuration conf.yaml is not at hand",
            "conf.yaml",
        ),
        (
            "a.yaml",
            "model: {dim: 4}\ndistributed: {fsdp_type: full_shard}\n",
            "keys are model, distributed",
            "Megatron",
        ),
        ("a.yaml", "model: {dim: 4}\ndistributed: {fsdp_type: full_shard}\n", "closest is lingua", "model.n_layers"),
    ],
)
def test_a_refusal_names_what_it_saw_and_what_would_be_read(
    tmp_path: Path, name: str, text: str, saw: str, way: str
) -> None:
    with pytest.raises(InputError) as error:
        read(tmp_path, name, text)
    assert saw in str(error.value)
    assert way in f"{error.value} {error.value.hint}"
