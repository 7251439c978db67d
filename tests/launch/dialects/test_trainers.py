"""Trainers in the manner of Hugging Face's: sections that are empty, weights in few bits, files that train nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.launch.scripts import read, values

from shardplan.base.errors import InputError

pytest.importorskip("tree_sitter_bash")

AXOLOTL = """
base_model: org/model-8b
sequence_len: 4096
micro_batch_size: 1
datasets: [{path: a}]
bf16: true
deepspeed: #zero1.json
fsdp:
fsdp_config:
"""


def test_an_empty_section_is_no_section(tmp_path: Path) -> None:
    assert read(tmp_path, "a.yaml", AXOLOTL).value("sharding") == "ddp"
    assert read(tmp_path, "b.yaml", AXOLOTL.replace("fsdp:\n", "fsdp: [full_shard]\n")).value("sharding") == "zero3"


LINE = "accelerate launch train.py --per_device_train_batch_size 1 --bf16 True {more}"


@pytest.mark.parametrize(
    ("more", "is_said"),
    [
        ("--load_in_bits 4", True),
        ("--load_in_bits 16", False),
        ("--load_in_kbits 4", True),
        ("--bits 8", True),
        ("--quantize", True),
        ("--load_in_4bit False", False),
        ("--model_name_or_path org/Model-8B-GPTQ", True),
        ("--model_name_or_path org/model-7b-bnb-4bit", True),
        ("--model_name_or_path org/bits-and-int", False),
    ],
)
def test_weights_in_few_bits_are_said(tmp_path: Path, more: str, *, is_said: bool) -> None:
    found = read(tmp_path, "run.sh", LINE.format(more=more))
    assert ("quantised weights are not priced" in " ".join(found.not_understood)) is is_said


def test_offload_is_the_optimizers_where_a_stage_is_given(tmp_path: Path) -> None:
    assert read(tmp_path, "a.sh", LINE.format(more="--zero_stage 2 --offload")).value("offload") == "optimizer"
    assert "offload" in read(tmp_path, "b.sh", LINE.format(more="--offload --offload_ratio 0.5")).missing


def test_names_of_trainers(tmp_path: Path) -> None:
    found = read(tmp_path, "a.sh", LINE.format(more="--seq-length 8192 --model_path org/model"))
    assert values(found, "sequence_length", "model") == (8192, "org/model")


PREDICTS = """
model_name_or_path: org/model
finetuning_type: lora
template: llama3
stage: sft
do_predict: true
"""


def test_a_configuration_that_trains_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="evaluates, predicts or exports alone"):
        read(tmp_path, "a.yaml", PREDICTS)
    assert read(tmp_path, "b.yaml", PREDICTS + "do_train: true\n").framework == "llama-factory"


def test_a_line_that_evaluates_says_so(tmp_path: Path) -> None:
    assert "train nothing" in " ".join(read(tmp_path, "a.sh", LINE.format(more="--do_eval")).notes)
    assert "train nothing" not in " ".join(read(tmp_path, "a.sh", LINE.format(more="--do_eval --do_train")).notes)


DEEPSPEED = '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}, "scheduler": {"type": "WarmupLR"}%s}'


def test_keys_of_deepspeed_that_nothing_reads_are_listed(tmp_path: Path) -> None:
    plain = read(tmp_path, "a.json", DEEPSPEED % ', "gradient_clipping": 1.0')
    assert not plain.not_understood
    found = read(
        tmp_path, "b.json", DEEPSPEED % ', "compile": {"enabled": true}, "offload_optimizer": {"device": "cpu"}'
    )
    assert "compile.enabled may change time or memory" in found.not_understood
    assert found.value("offload") == "none"
    assert [each.severity for each in found.breaks] == ["notice"]


def test_keys_of_internevo_that_nothing_reads_are_listed(tmp_path: Path) -> None:
    text = """
    data = dict(seq_len=2048, micro_bsz=1, micro_num=4)
    model = dict(num_layers=4, hidden_size=64, num_attention_heads=4, no_bias=True, dtype="torch.bfloat16", odd_part=2)
    parallel = dict(zero1=dict(size=-1), tensor=dict(size=2, mode="mtp"), pipeline=dict(size=1))
    hybrid_zero_optimizer = dict(overlap_sync_grad=True, reduce_bucket_size=512)
    """
    found = read(tmp_path, "a.py", text)
    assert found.not_understood == ("model.odd_part may change time or memory",)
    assert values(found, "tp", "bias", "overlap_dp") == (2, False, True)


def test_a_script_under_a_scheduler_knows_what_was_asked_for(tmp_path: Path) -> None:
    """``SLURM_*`` of an inner script are those of the outer one's #SBATCH lines; ``$[ ]`` is old arithmetic."""
    (tmp_path / "inner.sh").write_text(
        "torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 train.py --per_device_train_batch_size 2 --bf16 True "
        "--gradient_accumulation_steps $[128 / ($SLURM_NNODES * 8 * 2)]\n"
    )
    found = read(tmp_path, "job.sh", "#!/bin/bash\n#SBATCH --nodes=4\nsrun bash inner.sh\n")
    assert values(found, "num_accelerators", "gradient_accumulation") == (32, 2)


def test_a_path_that_is_not_decided_holds_no_options(tmp_path: Path) -> None:
    """``1.0 $PWD/data`` is data; a variable alone in a word may hold options where a sourced file is not read."""
    line = (
        "source away.sh\ntorchrun --nproc_per_node 8 pretrain.py --tensor-model-parallel-size 2 --num-layers 4 {more}"
    )
    assert "vp" not in read(tmp_path, "a.sh", line.format(more="--data-path 1.0 $DATA/text")).missing
    assert "vp" in read(tmp_path, "b.sh", line.format(more="--data-path 1.0 $DATA")).missing


def test_options_that_a_script_reads_from_a_command_are_open(tmp_path: Path) -> None:
    text = """
    read -ra MODEL_ARGS <<< "$(python args.py)"
    torchrun --nproc_per_node 8 pretrain.py --tensor-model-parallel-size 2 --colocate ${MODEL_ARGS[@]}
    """
    assert read(tmp_path, "run.sh", text).missing["vp"] == ("cmd:read MODEL_ARGS", "cmd:python args.py")


def test_a_file_of_accelerate_that_is_not_at_hand_decides(tmp_path: Path) -> None:
    line = "accelerate launch --config_file $CONFIG.yaml --gradient_accumulation_steps 4 train.py --bf16 True"
    found = read(tmp_path, "run.sh", line)
    assert found.value("gradient_accumulation") == 4
    assert found.missing["sharding"] == ("file:<env:CONFIG>.yaml",)
    assert "overlap_dp" not in found.facts


def test_a_program_in_a_folder_of_evaluations_trains_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="trains nothing"):
        read(tmp_path, "run.sh", "deepspeed project/eval/model_vqa.py --model-path checkpoints/one")


def test_the_text_of_a_shell_with_several_lines_is_a_script(tmp_path: Path) -> None:
    """The program with a launcher is read, and not the one that evaluates after it."""
    text = """
    srun --nodes=2 bash -c "
    echo start $1 | head -n 1
    torchrun --nproc_per_node 4 --nnodes 2 train.py --per_device_train_batch_size 2 --bf16 True --run_name $1
    lm_eval --model hf --tasks one
    "
    """
    found = read(tmp_path, "run.sh", text)
    assert values(found, "num_accelerators", "micro_batch_size", "precision") == (8, 2, "bf16")


def test_other_names_of_sections_and_parts(tmp_path: Path) -> None:
    found = read(tmp_path, "a.json", '{"zero_optimization": {"stage": 1}, "bfloat16": {"enabled": true}}')
    assert values(found, "precision", "sharding") == ("bf16", "zero1")
    text = "distributed_type: MULTI_GPU\ncompute_environment: LOCAL_MACHINE\nnum_processes: 8\nuse_cpu: true\n"
    assert "host's processor" in " ".join(read(tmp_path, "b.yaml", text).not_understood)


def test_a_section_of_deepspeed_inside_a_configuration(tmp_path: Path) -> None:
    text = """
    model_name_or_path: org/model
    gradient_accumulation_steps: 4
    learning_rate: 0.1
    num_train_epochs: 1
    per_gpu_train_batch_size: 2
    fp16: true
    fp16_bfloat16: true
    ds_cfg: {zero_optimization: {stage: 1, offload_optimizer: {device: cpu}}}
    """
    found = read(tmp_path, "a.yaml", text)
    assert values(found, "micro_batch_size", "precision", "sharding", "offload") == (2, "bf16", "zero1", "optimizer")


def test_a_program_that_is_named_by_adapters_may_train_them(tmp_path: Path) -> None:
    line = "deepspeed {program} --per_device_train_batch_size 1 --bf16 True"
    assert "train" in read(tmp_path, "a.sh", line.format(program="tool/train_lora.py")).missing
    assert "train" not in read(tmp_path, "b.sh", line.format(program="tool/explorations.py")).missing


def test_a_bare_no_of_accelerate_is_a_word(tmp_path: Path) -> None:
    text = "distributed_type: NO\ncompute_environment: LOCAL_MACHINE\nnum_processes: 1\n"
    assert read(tmp_path, "a.yaml", text).value("sharding") == "ddp"
