"""What the program of a line, a comment or a record of a framework says where the launch file leaves it out."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.launch.scripts import read, values

from shardplan.inputs.readers.catalog import load_model
from shardplan.launch.dialects.ask import Ask
from shardplan.launch.dialects.read import read_launch
from shardplan.launch.dialects.trainers import targets_of

pytest.importorskip("tree_sitter_bash")

PROGRAM = """
from dataclasses import dataclass, field
import transformers
from peft import LoraConfig, get_peft_model
@dataclass
class Arguments(transformers.TrainingArguments):
    model_max_length: int = field(default=2048)
    lora_r: int = 16
@dataclass
class OfAnotherProgram:
    max_seq_length: int = field(default=64)
    gradient_checkpointing: bool = True
def train():
    parser = transformers.HfArgumentParser((Arguments,))
"""
LINE = "{launcher} train.py --model_name_or_path Qwen/Qwen3-8B --bf16 True --lora_enable True\n"
KEYS = ("sequence_length", "recompute", "sharding", "micro_batch_size", "lora_rank", "lora_targets")


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", (2048, "none", "ddp", 8, 16, None)),
        ("    if args.gradient_checkpointing:\n        model.gradient_checkpointing_enable()\n",
         (2048, "none", "ddp", 8, 16, None)),
        ("    prepare(model, use_gradient_checkpointing=args.gradient_checkpointing)\n",
         (2048, "none", "ddp", 8, 16, None)),
        ("    prepare(model, use_gradient_checkpointing=True)\n", (2048, None, "ddp", 8, 16, None)),
        ("    model._set_gradient_checkpointing(vision, True)\n", (2048, None, "ddp", 8, 16, None)),
        ("    model.gradient_checkpointing_enable()\n", (2048, None, "ddp", 8, 16, None)),
        ("    model = FSDP(model)\n", (2048, "none", None, 8, 16, None)),
        ("    args.deepspeed = 'ds.json' or None\n", (2048, "none", None, 8, 16, None)),
        ("    deepspeed.initialize(model)\n", (2048, "none", None, 8, 16, None)),
        ("    from trl import SFTConfig\n", (2048, None, "ddp", 8, 16, None)),
        ("    import unknown_package\n", (2048, None, None, 8, 16, None)),
        ("    LoraConfig(r=4, target_modules=['q_proj', 'v_proj'])\n", (2048, "none", "ddp", 8, 4, "q,v")),
        ("    LoraConfig(r=args.lora_r, target_modules=find_all_linear_names(model))\n",
         (2048, "none", "ddp", 8, 16, "all")),
        ("    LoraConfig(r=4)\n    LoraConfig(r=8)\n", (2048, "none", "ddp", 8, 16, None)),
    ],
)  # fmt: skip
def test_a_program_of_the_trainer_has_what_its_line_leaves_out(
    more: str, expected: tuple[object, ...], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(PROGRAM + more)
    assert values(read(tmp_path, "a.sh", LINE.format(launcher="torchrun --nproc_per_node 8")), *KEYS) == expected


@pytest.mark.parametrize(
    ("more", "is_said"),
    [
        ("    for p in model.parameters():\n        p.requires_grad = 'head' in p\n", False),
        ("    for p in model.parameters():\n        p.requires_grad = False\n", True),
        ("    model.embed.requires_grad_(False)\n", True),
        ("    if args.freeze:\n        model.requires_grad_(False)\n", False),
        ("    ref_model.requires_grad_(False)\n", False),
    ],
)
def test_weights_that_a_program_keeps_are_said_to_be_priced_as_trained(
    more: str, tmp_path: Path, *, is_said: bool
) -> None:
    (tmp_path / "train.py").write_text(PROGRAM + more)
    found = read(tmp_path, "a.sh", LINE.format(launcher="torchrun --nproc_per_node 8"))
    assert any("frozen are priced as trained" in text for text in found.not_understood) == is_said


def test_moments_of_few_bits_are_said_to_be_priced_as_fp32(tmp_path: Path) -> None:
    line = LINE.format(launcher="torchrun --nproc_per_node 8").replace("\n", " --optim paged_adamw_8bit\n")
    found = read(tmp_path, "a.sh", line)
    assert found.value("optimizer") == "adam"
    assert any("moments of few bits" in text for text in found.not_understood)


@pytest.mark.parametrize("switch", ["--use_liger_kernel True", "--use_liger True", "--cut_cross_entropy True"])
def test_a_loss_without_logits_is_read(switch: str, tmp_path: Path) -> None:
    line = LINE.format(launcher="torchrun --nproc_per_node 8").replace("\n", f" {switch}\n")
    assert read(tmp_path, "a.sh", line).value("software.fused_loss") is True
    assert read(tmp_path, "b.sh", line.replace("True\n", "False\n")).value("software.fused_loss") is False


@pytest.mark.parametrize(
    ("launcher", "expected"),
    [
        ("CUDA_VISIBLE_DEVICES=3 python", (1, "ddp")),
        ("CUDA_VISIBLE_DEVICES=0,1 python", (None, None)),
        ("CUDA_VISIBLE_DEVICES=0,1 accelerate launch", (2, None)),
        ("CUDA_VISIBLE_DEVICES=$MINE accelerate launch", (None, None)),
    ],
)
def test_devices_that_a_line_makes_visible_count(launcher: str, expected: tuple[object, ...], tmp_path: Path) -> None:
    found = read(tmp_path, "a.sh", LINE.format(launcher=launcher))
    assert values(found, "num_accelerators", "sharding") == expected


OPENRLHF = """
read -r -d '' training <<EOF
openrlhf.cli.train_sft --max_len 2048 --train_batch_size 256 --micro_train_batch_size 2
   --pretrain meta-llama/Meta-Llama-3-8B --zero_stage 3 --bf16 --gradient_checkpointing {more}
EOF
deepspeed --module $training
"""


@pytest.mark.parametrize(
    ("more", "keys", "expected"),
    [
        ("", ("global_batch_size", "micro_batch_size", "sharding", "recompute", "precision", "train", "offload"),
         (256, 2, "zero3", "full", "bf16", "full", "none")),
        ("--adam_offload --lora_rank 8", ("offload", "train", "lora_rank", "lora_targets"),
         ("optimizer", "lora", 8, "all")),
        ("--ring_attn_size 4", ("cp", "cp_comm"), (4, "p2p")),
    ],
)  # fmt: skip
def test_a_line_of_openrlhf_without_rollouts(
    more: str, keys: tuple[str, ...], expected: tuple[object, ...], tmp_path: Path
) -> None:
    assert values(read(tmp_path, "a.sh", OPENRLHF.format(more=more)), *keys) == expected


@pytest.mark.parametrize(("task", "said"), [("sft", []), ("rm", [True]), ("dpo", [True])])
def test_pairs_of_answers_are_said_not_to_be_priced(task: str, said: list[bool], tmp_path: Path) -> None:
    found = read(tmp_path, "a.sh", OPENRLHF.format(more="").replace("train_sft", f"train_{task}"))
    assert [True for each in found.not_understood if "pairs of answers" in each] == said


VERL = """
#SBATCH --nodes=4
srun bash -c 'torchrun --nnodes=$SLURM_NNODES --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer \\
  model.partial_pretrain=Qwen/Qwen3-8B data.max_length=4096 data.train_batch_size=128 {more}'
"""


@pytest.mark.parametrize(
    ("more", "defaults", "expected"),
    [
        ("data.micro_batch_size_per_gpu=2", None, (32, 128, 2, None, "zero3", 1)),
        ("ulysses_sequence_parallel_size=2", "model: {enable_gradient_checkpointing: true}",
         (32, 128, 4, "full", "zero3", 2)),
        ("data.micro_batch_size=32 model.enable_gradient_checkpointing=False", None,
         (32, 128, None, "none", "zero3", 1)),
    ],
)  # fmt: skip
def test_supervised_training_of_verl_on_the_nodes_of_a_job(
    more: str, defaults: str | None, expected: tuple[object, ...], tmp_path: Path
) -> None:
    if defaults is not None:
        (tmp_path / "verl/trainer/config").mkdir(parents=True)
        (tmp_path / "verl/trainer/config/sft_trainer.yaml").write_text(defaults)
    found = read(tmp_path, "a.sh", VERL.format(more=more))
    keys = ("num_accelerators", "global_batch_size", "micro_batch_size", "recompute", "sharding", "cp")
    assert values(found, *keys) == expected


GPT = (
    "n_layer = 12\nn_head = 12\nn_embd = 768\nblock_size = 1024\nbatch_size = 12\nlearning_rate = 6e-4\nmax_iters = 9\n"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("python train.py config.py", (1, 480, 12, 50304)),
        ("torchrun --standalone --nproc_per_node=4 train.py config.py --batch_size=8", (4, 320, 8, 50304)),
        ("python train.py config.py --dataset=mine --gradient_accumulation_steps=1", (1, 12, 12, None)),
    ],
)
def test_a_line_of_nanogpt_accumulates_over_all_ranks(text: str, expected: tuple[object, ...], tmp_path: Path) -> None:
    (tmp_path / "config.py").write_text(GPT)
    line = text + " --n_layer=12 --n_head=12 --n_embd=768 --block_size=1024 --learning_rate=6e-4 --max_iters=9"
    found = read(tmp_path, "a.sh", line)
    assert found.framework == "nanogpt"
    assert values(found, "num_accelerators", "global_batch_size", "micro_batch_size", "vocab_size") == expected


def test_weights_that_nanogpt_loads_are_asked_for(tmp_path: Path) -> None:
    assert read(tmp_path, "a.py", GPT + "init_from = 'gpt2-medium'\n").value("model") == "gpt2-medium"
    assert "model" in read(tmp_path, "a.py", GPT + "init_from = 'resume'\n").missing


BLOCKS = """
model_args:
  pretrained_config:
    {{num_layers: 2, hidden_size: 64, vocab_size: 100,
      sequence_mixer_blocks: [{mixer}, {mixer2}], mlp_blocks: [{mlp}, {mlp}]}}
tuning_args: {{tuning_method: pretraining}}
datasets: [{{class_args: {{sequence_length: 128}}}}]
training_parameters: {{num_training_steps: 3, micro_batch_size: 4, gradient_accumulation_steps: 2}}
mixed_precision_args: {{dtype: bf16}}
distributed_args:
  stage: 3
  zero_topology: {{data_parallel_replication_world_size: 2, data_parallel_sharding_world_size: 8}}
"""
MIXER = "{sequence_mixer_type: softmax_attention, num_attention_heads: 4, num_key_value_heads: 1}"
MLP = "{mlp_type: MLP, activation_function: swiglu, intermediate_size: 160}"


def test_blocks_of_lm_engine_are_a_model_where_they_are_alike(tmp_path: Path) -> None:
    found = read(tmp_path, "a.yaml", BLOCKS.format(mixer=MIXER, mixer2=MIXER, mlp=MLP))
    keys = ("num_accelerators", "global_batch_size", "sharding", "sharding_degree", "num_key_value_heads", "gated")
    assert values(found, *keys) == (16, 128, "hsdp", 8, 1, True)
    other = MIXER.replace("softmax_attention", "mamba2")
    assert "model" in read(tmp_path, "b.yaml", BLOCKS.format(mixer=MIXER, mixer2=other, mlp=MLP)).missing


NEMO_RL = """
sft: {max_num_steps: 3}
policy:
  model_name: Qwen/Qwen3-8B
  train_global_batch_size: 64
  train_micro_batch_size: 1
  max_total_sequence_length: 4096
  precision: bfloat16
  dtensor_cfg: {enabled: DTENSOR, tensor_parallel_size: 2, activation_checkpointing: true, cpu_offload: false}
  megatron_cfg:
    {enabled: MEGATRON, activation_checkpointing: false, tensor_model_parallel_size: 4, pipeline_model_parallel_size: 2,
     optimizer: {use_distributed_optimizer: true}}
cluster: {gpus_per_node: 8, num_nodes: 2}
"""


@pytest.mark.parametrize(
    ("on", "expected"), [("dtensor", (2, 1, "zero3", "full", 16)), ("megatron", (4, 2, "zero1", "none", 16))]
)
def test_supervised_training_of_nemo_rl(on: str, expected: tuple[object, ...], tmp_path: Path) -> None:
    text = NEMO_RL.replace("DTENSOR", str(on == "dtensor")).replace("MEGATRON", str(on == "megatron"))
    assert values(read(tmp_path, "a.yaml", text), "tp", "pp", "sharding", "recompute", "num_accelerators") == expected


SFT = "{model_name_or_path: Qwen/Qwen3-8B, stage: sft, finetuning_type: full, template: qwen, cutoff_len: 9, bf16: on}"


def test_sizes_that_a_trainer_leaves_out_are_its_defaults(tmp_path: Path) -> None:
    assert values(read(tmp_path, "a.yaml", SFT), "micro_batch_size", "gradient_accumulation") == (8, 1)


def test_kernels_of_llama_factory(tmp_path: Path) -> None:
    text = SFT.replace("bf16: on", "bf16: on, enable_liger_kernel: true, flash_attn: disabled")
    assert values(read(tmp_path, "a.yaml", text), "software.fused_loss", "attention") == (True, "unfused")


@pytest.mark.parametrize("word", ["batch_size", "train_batch_size", "bsz", "data.micro_batch"])
def test_a_batch_under_a_programs_own_name_is_asked_for(word: str, tmp_path: Path) -> None:
    text = (
        "{model_name_or_path: Qwen/Qwen3-8B, learning_rate: 1, num_train_epochs: 1, max_length: 9, bf16: true, WORD: 4}"
    )
    found = read(tmp_path, "a.yaml", text.replace("WORD", word))
    assert {"micro_batch_size", "gradient_accumulation"} <= found.missing.keys()
    (tmp_path / "train.py").write_text(PROGRAM)
    line = LINE.format(launcher="torchrun --nproc_per_node 8").replace("\n", f" --{word} 4\n")
    assert "micro_batch_size" in read(tmp_path, "a.sh", line).missing


TUNE = """
{comment}
tokenizer: {{_component_: torchtune.models.qwen2.qwen2_tokenizer, max_seq_len: 2048}}
model: {{_component_: torchtune.models.qwen2_5.qwen2_5_7b_instruct}}
batch_size: 2
gradient_accumulation_steps: 4
dtype: bf16
optimizer: {{_component_: torch.optim.AdamW}}
loss: {{_component_: torchtune.modules.loss.CEWithChunkedOutputLoss}}
epochs: 1
"""


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("# tune run --nproc_per_node 8 full_finetune_distributed --config a.yaml", 8),
        ("# tune run --nnodes 1 --nproc_per_node 8 full_finetune_distributed", 8),
        ("# tune run full_finetune_single_device --config a.yaml", 1),
        ("# tune run --nnodes 2 --nproc_per_node 8 full_finetune_distributed", None),
        ("# --nproc_per_node 8\n# or --nproc_per_node 4", None),
    ],
)
def test_processes_of_the_line_in_a_comment_count_where_all_say_the_same(
    comment: str, expected: int | None, tmp_path: Path
) -> None:
    found = read(tmp_path, "a.yaml", TUNE.format(comment=comment))
    assert found.value("num_accelerators") == expected
    assert expected is None or any("a comment" in note for note in found.notes)


def test_a_script_that_counts_accelerators_gets_those_of_the_clusters_nodes(tmp_path: Path) -> None:
    path = tmp_path / "a.sh"
    count = "GPUS=$(python -c 'import torch; print(torch.cuda.device_count())')\n"
    path.write_text(f"{count}torchrun --nproc_per_node $GPUS train.py --gradient_accumulation_steps $((64 / GPUS)) "
                    "--per_device_train_batch_size 1 --model_name_or_path Qwen/Qwen3-8B")  # fmt: skip
    found = read_launch(Ask(path=path, node=8))
    assert values(found, "num_accelerators", "global_batch_size") == (8, 64)
    assert any("which the script counts" in note for note in found.notes)
    assert "num_accelerators" in read_launch(Ask(path=path)).missing


@pytest.mark.parametrize(
    ("text", "expected"),
    [(r"llm\..*layers\.\d+\.self_attn\.(q_proj|v_proj)", "q,v"), (r".*\.(query|unknown)$", None)],
)
def test_a_pattern_of_matrices(text: str, expected: str | None) -> None:
    assert targets_of(text) == expected


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("openai-community/gpt2-medium", 354823168),
        ("Qwen/Qwen1.5-14B-Chat", 14167290880),
        ("google/gemma-3-12b-it", 11766034176),
        ("HuggingFaceH4/zephyr-7b-beta", 7241732096),
    ],
)
def test_models_by_their_names_on_the_hub(name: str, parameters: int) -> None:
    assert load_model(name).num_parameters == parameters
