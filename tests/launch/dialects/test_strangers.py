"""Idioms of launch files of repositories that nobody had tried, each in a file of our own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.launch.scripts import ask, read, values

from shardplan.base.errors import InputError
from shardplan.launch.dialects.models import named_model
from shardplan.launch.dialects.read import read_launch

pytest.importorskip("tree_sitter_bash")

LINE = """
torchrun {front} train.py --deepspeed ds.json {model} --per_device_train_batch_size 2 \\
    --gradient_accumulation_steps 4 --bf16 True {more}
"""
DEEPSPEED = '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}}'
MODEL = "--model_name_or_path Qwen/Qwen3-8B"


def line(folder: Path, more: str = "", model: str = MODEL, front: str = "--nproc_per_node 8") -> str:
    (folder / "ds.json").write_text(DEEPSPEED)
    return LINE.format(more=more, model=model, front=front)


@pytest.mark.parametrize(
    ("more", "length"),
    [
        ("--block_size 8 --max_seq_length 5632", 5632),  # the block is that of a diffusion of text
        ("--block_size 1024", 1024),
        ("--multimodal_max_length 6000 --text_max_length 4000", 6000),
    ],
)
def test_a_length_of_sequences_is_the_most_that_is_named_so(tmp_path: Path, more: str, length: int) -> None:
    assert read(tmp_path, "run.sh", line(tmp_path, more)).value("sequence_length") == length


@pytest.mark.parametrize(
    ("more", "policy"),
    [("--grad_checkpoint True", "full"), ("--use_gradient_checkpointing False", "none"), ("--grad_ckpt_every 2", None)],
)
def test_switches_of_recomputation_by_other_names(tmp_path: Path, more: str, policy: str | None) -> None:
    assert read(tmp_path, "run.sh", line(tmp_path, more)).value("recompute") == policy


def test_a_line_that_turns_training_off_trains_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="trains nothing"):
        read(tmp_path, "run.sh", line(tmp_path, "--do_train False --do_eval True"))
    assert read(tmp_path, "run.sh", line(tmp_path, "--do_train True --do_eval False")).value("sharding") == "zero2"


@pytest.mark.parametrize(
    ("model", "known"),
    [
        ("--input_model_filename meta-llama/Llama-3.2-1B", "meta-llama/Llama-3.2-1B"),
        ("--llm_pretrained_path /data//Qwen2.5-7B-Instruct/ --vision_model qwen3-8b", "/data//Qwen2.5-7B-Instruct/"),
        ("--student_model Qwen/Qwen3-8B --teacher_model Qwen/Qwen3-32B", "Qwen/Qwen3-8B"),
        ("--first_model Qwen/Qwen3-8B --second_model Qwen/Qwen3-32B", None),
        ("--llm_path my/checkpoint", None),
    ],
)
def test_the_only_option_whose_value_is_a_model_names_it(tmp_path: Path, model: str, known: str | None) -> None:
    assert read(tmp_path, "run.sh", line(tmp_path, model=model)).value("model") == known


@pytest.mark.parametrize(
    ("front", "number"),
    [
        ("--nproc_per_node ${NPROC_PER_NODE}", 8),
        ("--nnodes 2 --nproc_per_node $SLURM_GPUS_ON_NODE", 16),
        ("--nnodes $NNODES --nproc_per_node 8", None),
        ("--nproc_per_node $WORLD_SIZE", None),
    ],
)
def test_processes_of_a_node_that_nothing_sets_are_its_accelerators(
    tmp_path: Path, front: str, number: int | None
) -> None:
    text = line(tmp_path, "--model_max_length 4096", front=front)
    found = read_launch(replace(ask(tmp_path, "run.sh", text), node=8))
    assert found.value("num_accelerators") == number
    assert any(f"{number} accelerators" in note and "nothing sets" in note for note in found.notes) == bool(number)
    assert read(tmp_path, "run.sh", text).value("num_accelerators") is None  # without a cluster


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("lmms-lab/llava-onevision-qwen2-7b-ov", "qwen2.5-7b"),
        ("/models/InternVL3_5-8B/", "qwen3-8b"),
        ("./checkpoints/vicuna-7b-v1-5", "llama-2-7b"),
        ("Qwen/Qwen2.5-VL-3B-Instruct", "qwen2.5-vl-3b-text"),
    ],
)
def test_models_by_folders_and_what_is_priced_of_those_with_images(tmp_path: Path, name: str, model: str) -> None:
    known = named_model(name)
    assert known is not None
    assert known.name == model
    found = read(tmp_path, "run.sh", line(tmp_path, model=f"--model_name_or_path {name}"))
    sees = "vicuna" not in name
    assert any("text model alone is priced" in text for text in found.not_understood) == sees


TEMPLATE = """
model_name_or_path: {{model}}
stage: sft
finetuning_type: full
cutoff_len: {{length}}
per_device_train_batch_size: 1
bf16: true
"""
FILLS = """
sed -e "s|{model}|Qwen/Qwen3-8B|" -e "s|{length}|16384|" template.yaml > filled.yaml
llamafactory-cli train filled.yaml
sed -e "s|{model}|Qwen/Qwen3-8B|" template.yaml > merge.yaml
llamafactory-cli export merge.yaml
"""


def test_places_of_a_template_are_open_until_a_script_fills_them(tmp_path: Path) -> None:
    template = read(tmp_path, "template.yaml", TEMPLATE.replace("{{", "{").replace("}}", "}"))
    assert {"model", "sequence_length"} <= template.missing.keys()
    filled = read(tmp_path, "run.sh", FILLS)  # trains, and exports after that
    assert values(filled, "model", "sequence_length") == ("Qwen/Qwen3-8B", 16384)


def test_a_file_of_llama_factory_without_a_length_has_its_default(tmp_path: Path) -> None:
    text = "model_name_or_path: Qwen/Qwen3-8B\nstage: sft\nfinetuning_type: full\ntemplate: qwen\nbf16: true\n"
    found = read(tmp_path, "sft.yaml", text)
    assert (found.value("sequence_length"), found.facts["sequence_length"].origin) == (2048, "assumed")


BY_OPTIONS = """
CUDA_VISIBLE_DEVICES=0,1,2,3 llamafactory-cli train --stage sft --do_train True --finetuning_type full \\
    --model_name_or_path Qwen/Qwen3-8B --template qwen --cutoff_len 4096 --per_device_train_batch_size 6 \\
    --gradient_accumulation_steps 16 --bf16 True --deepspeed cache/ds_z3_config.json
"""


def test_llama_factory_takes_its_arguments_on_the_line_too(tmp_path: Path) -> None:
    found = read(tmp_path, "run.sh", BY_OPTIONS)
    assert found.framework == "llama-factory"
    assert values(found, "num_accelerators", "sequence_length", "sharding", "recompute") == (4, 4096, "zero3", "full")


def test_a_file_of_hosts_is_more_than_one_node(tmp_path: Path) -> None:
    text = line(tmp_path).replace("torchrun --nproc_per_node 8", "deepspeed --hostfile hosts")
    assert read_launch(replace(ask(tmp_path, "run.sh", text), node=8)).value("num_accelerators") is None
    text = text.replace("--hostfile hosts", "")
    assert read_launch(replace(ask(tmp_path, "run.sh", text), node=8)).value("num_accelerators") == 8


def test_a_program_that_is_open_trains_where_its_options_say_so(tmp_path: Path) -> None:
    text = line(tmp_path, "--model_max_length 2048", front="--nproc_per_node=8 --nnodes=$NODES --rdzv_id $JOB")
    found = read(tmp_path, "run.sh", text.replace("train.py", "$SCRIPT"), env={"NODES": "2"})
    assert values(found, "sequence_length", "micro_batch_size", "sharding") == (2048, 2, "zero2")


def test_what_a_program_trains_for_is_no_kind_of_adapters(tmp_path: Path) -> None:
    assert "train" not in read(tmp_path, "run.sh", line(tmp_path, "--train_type sft")).missing
    assert read(tmp_path, "run.sh", line(tmp_path, "--train_type lora")).value("train") == "lora"


PAIRS = """
model: {{_component_: torchtune.models.qwen2_5.qwen2_5_7b_instruct}}
tokenizer: {{_component_: torchtune.models.qwen2_5.qwen2_5_tokenizer, max_seq_len: 4096}}
checkpointer: {{_component_: torchtune.training.FullModelHFCheckpointer}}
optimizer: {{_component_: torch.optim.AdamW}}
loss: {{_component_: {loss}}}
batch_size: 1
dtype: bf16
"""


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        ("torchtune.rlhf.loss.DPOLoss", "pairs of answers"),
        ("torchtune.modules.loss.ForwardKLLoss", "models beside"),
        ("torchtune.modules.loss.CEWithChunkedOutputLoss", None),
    ],
)
def test_the_loss_of_torchtune_says_what_is_not_priced(tmp_path: Path, loss: str, says: str | None) -> None:
    found = read(tmp_path, "dpo.yaml", PAIRS.format(loss=loss)).not_understood
    assert any(text.partition(says or loss)[1] for text in found) == (says is not None)


VEOMNI = """
model: {model_path: Qwen/Qwen3-8B}
data: {max_seq_len: 4096, train_path: x}
train: {data_parallel_mode: fsdp2, enable_full_shard: true, micro_batch_size: 1, global_batch_size: 64}
"""
OVER_FILE = """
#SBATCH --nodes=2
#SBATCH --gres=gpu:6
N=$(nvidia-smi -L 2>/dev/null | wc -l)
srun torchrun --nproc_per_node=$N --nnodes=$SLURM_JOB_NUM_NODES tasks/train_torch.py veomni.yaml \\
    --train.micro_batch_size=4 --model.model_path Qwen/Qwen3-0.6B --train.global_batch_size=48
"""


def test_options_of_a_line_stand_over_its_configuration(tmp_path: Path) -> None:
    (tmp_path / "veomni.yaml").write_text(VEOMNI)
    found = read(tmp_path, "run.sh", OVER_FILE)
    assert values(found, "model", "micro_batch_size", "global_batch_size") == ("Qwen/Qwen3-0.6B", 4, 48)
    assert found.value("num_accelerators") == 12  # a node has what the job asks for, not what the cluster has


def test_arguments_of_trl_stand_over_its_configuration(tmp_path: Path) -> None:
    (tmp_path / "sft.yaml").write_text("model_name_or_path: Qwen/Qwen3-8B\nlearning_rate: 1\nnum_train_epochs: 1\n"
                                       "max_length: 4096\ngradient_accumulation_steps: 2\n")  # fmt: skip
    found = read(tmp_path, "run.sh", "trl sft --config sft.yaml --max_length 1024 --per_device_train_batch_size 3\n")
    assert values(found, "sequence_length", "micro_batch_size", "gradient_accumulation") == (1024, 3, 2)
