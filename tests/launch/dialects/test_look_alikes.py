"""Files that look like those of a framework that is read: refused, or asked for what their own program decides."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.launch.scripts import read, values

from shardplan.base.errors import InputError

pytest.importorskip("tree_sitter_bash")

OWN_DOCUMENTS = {
    "a name and a tokenizer are not MaxText": "{model_name: mine, tokenizer_path: a, block_size: 64, dtype: bf16}",
    "dimensions and degrees are not GPT-NeoX": "{num_layers: 4, hidden_size: 64, pipe_parallel_size: 1, "
    "model_parallel_size: 1, tie_embeddings: false, inner_mlp_size: 96}",
    "sections are not torchtitan": "{training: {lr: 1}, checkpoint: {path: a}, metrics: {every: 2}, model: {dim: 64}}",
    "a base that is no YAML is not MaxText": "{base_config: config/base.json, model_type: mine, train: {lr: 1}}",
    "MaxDiffusion": "{diffusion_scheduler_config: {a: 1}, ici_fsdp_parallelism: -1, per_device_batch_size: 2}",
    "speech models of NeMo": "{trainer: {devices: 8, num_nodes: 1}, model: {optim: {name: adam}, sample_rate: 1}}",
    "Megatron's own YAML": "{language_model: {num_layers: 4, hidden_size: 64}, train_iters: 1, lr_decay_iters: 1, "
    "lr_decay_style: cosine, distributed_backend: nccl}",
}


@pytest.mark.parametrize("text", OWN_DOCUMENTS.values(), ids=OWN_DOCUMENTS.keys())
def test_a_document_with_some_names_of_a_framework_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match=r"not one that shardplan recognises|recognised but not read"):
        read(tmp_path, "a.yaml", text)


def test_layers_of_other_kinds_are_asked_for_and_context_is_read(tmp_path: Path) -> None:
    text = """
    {num_layers: 4, hidden_size: 64, num_attention_heads: 4, pipe_parallel_size: 1, model_parallel_size: 1,
     pos_emb: rotary, train_micro_batch_size_per_gpu: 1, context_parallel_size: 2, "operator-config": [[["long"], 4]]}
    """
    found = read(tmp_path, "a.yml", text)
    assert found.value("cp") == 2
    assert "model" in found.missing


def test_a_line_of_megatron_without_rate_steps_and_batch_trains_nothing(tmp_path: Path) -> None:
    line = "torchrun --nproc_per_node 8 {program} --tensor-model-parallel-size 2 --micro-batch-size 1 --num-layers 4"
    with pytest.raises(InputError, match="trains nothing"):
        read(tmp_path, "a.sh", line.format(program="tasks/main.py"))
    assert read(tmp_path, "b.sh", line.format(program="tasks/main.py --lr 1e-5")).value("tp") == 2
    assert read(tmp_path, "c.sh", line.format(program="pretrain_gpt.py")).value("tp") == 2


@pytest.mark.parametrize(
    ("option", "key"),
    [
        ("--model_parallel_size 2", "tp"),
        ("--pp_size 2", "pp"),
        ("--seq_parallel_degree 2", "cp"),
        ("--my_expert_parallel 2", "ep"),
        ("--data_parallel_size 2", None),
        ("--vllm_own_parallel_size 2", None),
        ("--own_parallel_size 1", None),
    ],
)
def test_a_degree_in_a_programs_own_word_is_asked_for(tmp_path: Path, option: str, key: str | None) -> None:
    found = read(tmp_path, "a.sh", f"deepspeed --num_gpus 8 own.py --per_device_train_batch_size 1 {option}")
    assert {"tp", "pp", "cp", "ep"} & set(found.missing) == ({key} if key else set())


@pytest.mark.parametrize(
    ("line", "world"),
    [
        ("srun --ntasks 32 --ntasks-per-node 8 python train.py", (4, 8, 32)),
        ("srun -n 16 --ntasks-per-node 8 python train.py", (2, 8, 16)),
        ("srun --ntasks-per-node 8 python train.py", (None, 8, None)),
        ("srun --ntasks 4 --ntasks-per-node 1 torchrun --nnodes 4 --nproc_per_node 8 train.py", (4, 8, 32)),
        ("srun --nodes 4 --ntasks-per-node 1 accelerate launch --num_processes 32 train.py", (4, 8, 32)),
        ("srun --nodes 2 --ntasks-per-node 1 accelerate launch train.py", (2, None, None)),
        ("srun --ntasks 2 --ntasks-per-node 1 own_launcher --nnodes 2 --nproc-per-node 4 train.py", (2, 4, 8)),
        ("mpirun -np 32 -npernode 8 python train.py", (4, 8, 32)),
    ],
)
def test_tasks_of_a_scheduler_are_ranks_unless_a_launcher_starts_them(
    tmp_path: Path, line: str, world: tuple[int | None, ...]
) -> None:
    found = read(tmp_path, "a.sh", f"{line} --per_device_train_batch_size 1 --bf16 True --model_name_or_path a")
    assert values(found, "nodes", "per_node", "num_accelerators") == world


def test_a_mark_of_an_open_value_ends_no_command_inside_a_text(tmp_path: Path) -> None:
    """``<arg:1>`` in the text that a shell runs is no redirection that swallows the next line."""
    text = """
    srun bash -c "
    torchrun --nproc_per_node 8 train.py --model_name_or_path first --bf16 True --warmup_steps ${1}
    other --model_name_or_path second --name 'a ${1}'
    "
    """
    found = read(tmp_path, "a.sh", text)
    assert found.value("model") == "first"


def test_weights_of_few_bits_and_weights_in_host_memory_are_not_silent(tmp_path: Path) -> None:
    line = "torchrun --nproc_per_node 8 train.py --model_name_or_path {} --bf16 True --per_device_train_batch_size 1 {}"
    assert "train" in read(tmp_path, "a.sh", line.format("some/model-4bit", "")).missing
    found = read(tmp_path, "b.sh", line.format("some/model", "--fsdp 'full_shard offload'"))
    assert "weights in host memory" in " ".join(found.not_understood)


def test_what_a_configuration_of_nemo_aligner_trains_for_is_said(tmp_path: Path) -> None:
    text = "{trainer: {devices: 8, num_nodes: 1, dpo: {max_epochs: 1}}, model: {micro_batch_size: 1, num_layers: 4}}"
    assert "pairs of answers" in " ".join(read(tmp_path, "a.yaml", text).not_understood)


def test_a_file_of_the_model_decides_what_a_line_of_megatron_leaves_out(tmp_path: Path) -> None:
    line = "torchrun --nproc_per_node 8 pretrain_vlm.py --tensor-model-parallel-size 2 --num-layers 4 {more}"
    assert "dropout" in read(tmp_path, "a.sh", line.format(more="--mm-model model.json")).missing
    assert read(tmp_path, "b.sh", line.format(more="--mm-data data.json")).value("dropout") is True


def test_settings_without_hyphens_are_said_and_leave_the_rest_open(tmp_path: Path) -> None:
    """``config.py batch_size 8 use_lora True`` says what is read by nothing here."""
    text = "accelerate launch --num_processes 8 train.py config.py batch_size 8 model.use_lora True --bf16"
    found = read(tmp_path, "a.sh", text)
    assert "settings without hyphens are not read: config.py batch_size" in " ".join(found.not_understood)
    assert {"train", "tp", "micro_batch_size"} <= set(found.missing)


@pytest.mark.parametrize(("program", "optimizer"), [("finetune.py", "adam"), ("optimize_rotation.py", None)])
def test_a_program_that_may_train_something_else_is_asked_for_its_optimizer(
    tmp_path: Path, program: str, optimizer: str | None
) -> None:
    text = f"torchrun --nproc_per_node 8 {program} --per_device_train_batch_size 1 --bf16 True --use_kd True"
    found = read(tmp_path, "a.sh", text)
    assert found.value("optimizer") == optimizer
    assert ("optimizer" in found.missing) == (optimizer is None)


def test_an_option_whose_value_is_open_is_on(tmp_path: Path) -> None:
    text = "torchrun --nproc_per_node 8 train.py --per_device_train_batch_size 1 --bf16 True --w_bits $1"
    assert "--w_bits may change time or memory" in " ".join(read(tmp_path, "a.sh", text).not_understood)


def test_a_program_that_samples_does_not_train(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="trains nothing"):
        read(tmp_path, "a.sh", "torchrun --nproc_per_node 8 sample.py --job.config_file a.toml")


def test_a_line_of_deepspeed_that_generates_text_trains_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="generates text"):
        read(tmp_path, "a.sh", "deepspeed --num_gpus 8 run_model.py --model some/model --batch_size 8 --gen-len 32")


def test_a_kind_of_mlp_of_a_fork_is_asked_for(tmp_path: Path) -> None:
    text = "{num_layers: 4, hidden_size: 64, pipe_parallel_size: 1, model_parallel_size: 1, pos_emb: rotary, "
    text += "mlp_type: KIND}"
    found = read(tmp_path, "a.yml", text.replace("KIND", "gated"))
    assert {"gated", "intermediate_size"} <= set(found.missing)
    assert read(tmp_path, "b.yml", text.replace("KIND", "regular")).value("intermediate_size") == 256


@pytest.mark.parametrize(
    ("more", "precision"), [("", None), (', "bf16": {"enabled": false}', "fp32"), (', "train_batch_size": 8', "fp32")]
)
def test_a_file_of_deepspeed_that_a_program_completes_leaves_the_precision_open(
    tmp_path: Path, more: str, precision: str | None
) -> None:
    found = read(tmp_path, "a.json", '{"zero_optimization": {"stage": 2}' + more + "}")
    assert found.value("precision") == precision
    assert ("precision" in found.missing) == (precision is None)


def test_a_program_under_accelerate_may_set_the_precision_with_deepspeed_too(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config: {zero_stage: 2}\n"
    )
    found = read(tmp_path, "a.sh", "accelerate launch --config_file c.yaml train.py --per_device_train_batch_size 1")
    assert "precision" in found.missing
