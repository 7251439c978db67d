"""Names that no table has: what they say by a word is asked for, and no framework's default is taken for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.launch.scripts import MEGATRON, read

from shardplan.base.errors import InputError

pytest.importorskip("tree_sitter_bash")

LINE = "torchrun --nproc_per_node 8 train.py --model_name_or_path a --bf16 True --per_device_train_batch_size 1 {}"
DEEPSPEED = "deepspeed train.py --model_name_or_path a --bf16 True --per_device_train_batch_size 1 --zero_stage 2 {}"
LLAMA_FACTORY = "{{model_name_or_path: a, stage: sft, finetuning_type: full, cutoff_len: 64, template: b, {}}}"
LINGUA = """
{{distributed: {{fsdp_type: full_shard, model_dtype: bf16, selective_activation_checkpointing: false, {}}},
  model: {{dim: 64, n_layers: 4, n_heads: 4, {}}}, data: {{seq_len: 64, batch_size: 1}}}}
"""


@pytest.mark.parametrize(
    ("option", "key"),
    [
        ("--lora_enabled True", "train"),
        ("--pre_seq_len 128", "train"),
        ("--training_parts lora", "train"),
        ("--adapter_size 48", "train"),
        ("--train_type reft", "train"),
        ("--cpu_offloading", "offload"),
        ("--use_adam_mini", "optimizer"),
        ("--full_recompute True", "recompute"),
    ],
)
def test_what_a_programs_own_word_chooses_is_asked_for(tmp_path: Path, option: str, key: str) -> None:
    found = read(tmp_path, "a.sh", DEEPSPEED.format(option))
    assert key in found.missing
    assert key not in found.facts


@pytest.mark.parametrize(
    ("option", "key"),
    [
        ("--lora_enabled False", "train"),
        ("--kv_lora_rank 512", "train"),
        ("--pretrain_mm_mlp_adapter a.bin", "train"),
        ("--rollout_offload True", "offload"),
        ("--offload_buffer_count 4", "offload"),
    ],
)
def test_a_word_that_is_off_or_of_something_else_asks_for_nothing(tmp_path: Path, option: str, key: str) -> None:
    assert key not in read(tmp_path, "a.sh", DEEPSPEED.format(option)).missing


def test_what_a_file_states_stays_next_to_a_programs_own_word(tmp_path: Path) -> None:
    found = read(tmp_path, "a.sh", LINE.format("--gradient_checkpointing True --recompute_vision True"))
    assert found.value("recompute") == "full"


def test_a_word_for_adapters_that_is_known_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, "a.sh", LINE.format("--train_type use_lora")).value("train") == "lora"


@pytest.mark.parametrize(("more", "optimizer"), [("bf16: true", "adam"), ("use_galore: true", None)])
def test_an_optimizer_that_a_switch_chooses_is_asked_for(tmp_path: Path, more: str, optimizer: str | None) -> None:
    found = read(tmp_path, "a.yaml", LLAMA_FACTORY.format(more))
    assert found.value("optimizer") == optimizer
    assert ("optimizer" in found.missing) == (optimizer is None)


def test_layers_by_an_option_of_a_fork_are_asked_for(tmp_path: Path) -> None:
    plain = MEGATRON.replace("--swiglu --disable-bias-linear --normalization RMSNorm", "").replace(
        "--ffn-hidden-size 14336", ""
    )
    assert read(tmp_path, "a.sh", plain).value("intermediate_size") == 4 * 4096
    found = read(tmp_path, "b.sh", plain.replace("--bf16", "--bf16 --t5-swiglu --RMSNorm --disable-bias-linear-fc"))
    assert {"gated", "intermediate_size", "normalization", "bias"} <= set(found.missing)
    said = read(tmp_path, "c.sh", MEGATRON.replace("--bf16", "--bf16 --t5-swiglu --RMSNorm"))
    assert said.value("gated") is True
    assert said.value("normalization") == "RMSNorm"


def test_a_degree_that_a_document_has_its_own_word_for_is_asked_for(tmp_path: Path) -> None:
    text = "{model_name_or_path: a, per_device_train_batch_size: 1, learning_rate: 1, num_train_epochs: 1, tp_size: 4}"
    assert "tp" in read(tmp_path, "a.yaml", text).missing


def test_whole_blocks_and_a_vision_encoder_of_a_fork_of_lingua(tmp_path: Path) -> None:
    plain = read(tmp_path, "a.yaml", LINGUA.format("tp_size: 1", "vocab_size: 64"))
    assert (plain.value("recompute"), "model" in plain.missing) == ("none", False)
    text = LINGUA.format("full_activation_checkpointing: true", "vision_model: {layers: 2}")
    found = read(tmp_path, "b.yaml", text)
    assert (found.value("recompute"), "model" in found.missing) == ("full", True)


def test_a_copy_of_a_program_of_transformers_has_no_defaults(tmp_path: Path) -> None:
    line = "torchrun --nproc_per_node 8 run_clm.py --model_name_or_path a --per_device_train_batch_size 1 {}"
    assert read(tmp_path, "a.sh", line.format("")).value("precision") == "fp32"
    found = read(tmp_path, "b.sh", line.format("--mem_cap 0"))
    assert {"precision", "recompute"} <= set(found.missing)


@pytest.mark.parametrize(("size", "precision"), [("4", "fp32"), ("auto", None)])
def test_a_file_that_a_program_completes_leaves_the_precision_open(
    tmp_path: Path, size: str, precision: str | None
) -> None:
    found = read(tmp_path, "a.json", f'{{"train_batch_size": "{size}", "zero_optimization": {{"stage": 2}}}}')
    assert found.value("precision") == precision


def test_autotuning_finds_stage_and_micro_batch(tmp_path: Path) -> None:
    found = read(
        tmp_path, "a.json", '{"train_batch_size": 64, "bf16": {"enabled": true}, "autotuning": {"enabled": true}}'
    )
    assert {"sharding", "micro_batch_size"} <= set(found.missing)


@pytest.mark.parametrize("scheme", ["null", "none", "lora"])
def test_a_scheme_of_nemo_says_what_trains(tmp_path: Path, scheme: str) -> None:
    text = "{{trainer: {{devices: 8, num_nodes: 1}}, model: {{micro_batch_size: 1, num_layers: 4, peft: {{{}}}}}}}"
    peft = f"peft_scheme: {scheme}, lora_tuning: {{adapter_dim: 32}}"
    found = read(tmp_path, "a.yaml", text.format(peft))
    assert found.value("train") == ("lora" if scheme == "lora" else "full")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.sh", "python -m paddle.distributed.launch --gpus 0,1 train.py --per_device_train_batch_size 1 --bf16 True"),
        ("a.json", '{"model_name_or_path": "a", "per_device_train_batch_size": 1, "sharding_parallel_degree": 2}'),
        ("a.sh", "python -m own.train_ppo --actor_num_nodes 1 --vllm_num_engines 2 --bf16 --gradient_checkpointing"),
        ("a.sh", "python3 -m oneflow.distributed.launch --nproc_per_node 4 pretrain.py --num-layers 4 --lr 1"),
        ("a.yaml", "{_wandb: {value: {m: 1}}, fsdp_config: {value: {}}, learning_rate: {value: 1}}"),
    ],
)
def test_what_looks_like_a_framework_is_refused_by_name(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(
        InputError, match=r"(PaddlePaddle|OpenRLHF|OneFlow|record of a run), which is recognised but not read"
    ):
        read(tmp_path, name, text)


def test_the_model_that_is_loaded_comes_before_the_path_of_what_is_written(tmp_path: Path) -> None:
    line = "accelerate launch --num_processes 8 own.py --model_path runs/1 --learning_rate 1 {}"
    assert read(tmp_path, "a.sh", line.format("--from_pretrained some/model")).value("model") == "some/model"
    assert read(tmp_path, "b.sh", line.format("")).value("model") == "runs/1"


def test_a_teacher_beside_the_model_that_trains_is_said(tmp_path: Path) -> None:
    text = """
    {model: {_component_: torchtune.models.llama3_1.llama3_1_8b}, tokenizer: {_component_: a},
     checkpointer: {_component_: b}, optimizer: {_component_: torch.optim.AdamW}, TEACHER}
    """
    said = "models beside the one that trains"
    assert said not in str(read(tmp_path, "a.yaml", text.replace("TEACHER", "seed: 1")).not_understood)
    found = read(tmp_path, "b.yaml", text.replace("TEACHER", "teacher_model: {_component_: c}"))
    assert said in str(found.not_understood)


def test_two_options_that_may_name_the_model_are_asked_for(tmp_path: Path) -> None:
    line = "accelerate launch --num_processes 8 own.py --model_path some/model --learning_rate 1 {}"
    assert "model" in read(tmp_path, "a.sh", line.format("--base_model Qwen")).missing
    assert read(tmp_path, "b.sh", line.format("--base_model some/model")).value("model") == "some/model"


@pytest.mark.parametrize("block", ["sequential", "own"])
def test_a_block_of_a_fork_of_olmo_is_asked_for(tmp_path: Path, block: str) -> None:
    text = "{model: {d_model: 64, n_layers: 4, n_heads: 4, max_sequence_length: 64, mlp_ratio: 4, block_type: BLOCK}}"
    assert ("model" in read(tmp_path, "a.yaml", text.replace("BLOCK", block)).missing) == (block == "own")


@pytest.mark.parametrize("option", ["--hybrid-attention-ratio 0.1", "--retro-add-retriever", "--use-la-module"])
def test_layers_that_options_do_not_build_are_asked_for(tmp_path: Path, option: str) -> None:
    assert "model" in read(tmp_path, "a.sh", MEGATRON.replace("--bf16", f"--bf16 {option}")).missing


def test_an_option_for_the_model_without_a_value_names_none(tmp_path: Path) -> None:
    found = read(tmp_path, "a.sh", "accelerate launch --num_processes 8 own.py --model_name_or_path --learning_rate 1")
    assert "model" in found.missing


def test_prompts_with_a_length_of_their_own_are_of_pairs(tmp_path: Path) -> None:
    text = "{model_name_or_path: a, per_device_train_batch_size: 1, learning_rate: 1, num_train_epochs: 1, MORE}"
    assert "pairs" not in str(read(tmp_path, "a.yaml", text.replace("MORE", "max_length: 8")).not_understood)
    assert "pairs" in str(read(tmp_path, "b.yaml", text.replace("MORE", "max_prompt_length: 8")).not_understood)


def test_pipelines_and_accumulation_of_the_first_fork_for_deepspeed(tmp_path: Path) -> None:
    line = "deepspeed --num_gpus 16 pretrain_gpt2.py --model-parallel-size 2 --pipe-parallel-size 2 --gas 16 "
    line += "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 8 --batch-size 4 --lr 1"
    found = read(tmp_path, "a.sh", line)
    assert [found.value(key) for key in ("tp", "pp", "gradient_accumulation", "global_batch_size")] == [2, 2, 16, 256]
    assert "cp" in read(tmp_path, "b.sh", f"{line} --my-sequence-parallel-size 2").missing


def test_a_file_that_names_no_model_and_no_batch_is_of_no_trainer(tmp_path: Path) -> None:
    text = "{learning_rate: 1, num_train_epochs: 1, gradient_accumulation_steps: 1, gradient_checkpointing: true, MORE}"
    with pytest.raises(InputError, match="not one that shardplan recognises"):
        read(tmp_path, "a.yaml", text.replace("MORE", "model_family: own"))
    assert read(tmp_path, "b.yaml", text.replace("MORE", "model_name_or_path: a")).framework == "hf-trainer"
