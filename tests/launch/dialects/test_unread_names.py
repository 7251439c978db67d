"""What dialects do not read is said: names without a rule, layers of other kinds, and parts that are not priced."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.launch.dialects.test_fresh_samples import AXOLOTL, SWIFT, line
from tests.launch.scripts import read, values

from shardplan.launch.dialects.own_names import without_effect

pytest.importorskip("tree_sitter_bash")

TRAINER = (
    "torchrun --nproc_per_node 2 train.py --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 1 "
    "--gradient_accumulation_steps 2 --max_seq_length 1024 --bf16 True "
)
FOUNDRY = """
max_seq_len: 2048
global_train_batch_size: 64
device_train_microbatch_size: 4
max_duration: 1ba
model: {{name: {name}, {more}}}
fsdp_config: {{sharding_strategy: FULL_SHARD, {fsdp}}}
optimizer: {{name: decoupled_adamw}}
precision: amp_bf16
"""


def said(tmp_path: Path, name: str, text: str, part: str) -> bool:
    found = read(tmp_path, name, text)
    return any(part in each for each in (*found.not_understood, *found.notes))


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("seed", True), ("lr_scheduler_type", True), ("no-masked-softmax-fusion", True), ("moe-router-dtype", True),
        ("adam-offload", False), ("pixel-shuffle", False), ("padding-free", False), ("data_parallel_shard", False),
    ],
)  # fmt: skip
def test_words_of_names_tell_those_without_effect(name: str, *, plain: bool) -> None:
    assert without_effect(name) is plain


@pytest.mark.parametrize(
    ("name", "text", "unread"),
    [
        ("run.sh", line("--pixel-shuffle --seed 3"), "--pixel-shuffle may change time or memory"),
        (
            "run.sh",
            TRAINER + "--use_customized_optim True --seed 3",
            "--use_customized_optim may change time or memory",
        ),
        ("run.sh", SWIFT + "--padding_free true --seed 3", "--padding-free may change time or memory"),
        (
            "run.sh",
            "deepspeed --num_gpus 2 train.py ++train_config.freeze_llm=true ++train_config.seed=3",
            "train_config.freeze_llm may change time or memory",
        ),
        ("config.yml", AXOLOTL + "sparse_layers: 4\nseed: 3\n", "sparse_layers may change time or memory"),
    ],
)
def test_names_that_no_rule_reads_are_listed(tmp_path: Path, name: str, text: str, unread: str) -> None:
    assert said(tmp_path, name, text, unread)
    assert not said(tmp_path, name, text, "seed")


def test_what_is_off_or_plain_is_not_listed(tmp_path: Path) -> None:
    text = TRAINER + "--use_customized_optim False --logging_steps 1 --output_dir out"
    assert not said(tmp_path, "run.sh", text, "may change")


def test_many_names_are_counted(tmp_path: Path) -> None:
    text = line(" ".join(f"--odd-{number}-switch" for number in range(15)))
    assert said(tmp_path, "run.sh", text, "--odd-11-switch and 3 more may change time or memory")


def test_foundry_asks_for_layers_of_another_kind(tmp_path: Path) -> None:
    other = FOUNDRY.format(name="mpt_moe_causal_lm", more="d_model: 64", fsdp="mixed_precision: PURE")
    found = read(tmp_path, "train.yaml", other)
    assert "model" in found.missing
    assert any("PURE: gradients are reduced" in each for each in found.not_understood)


def test_foundry_keeps_activations_in_host_memory(tmp_path: Path) -> None:
    more = "n_layers: 2, d_model: 64, n_heads: 4, vocab_size: 100"
    text = FOUNDRY.format(name="mpt_causal_lm", more=more, fsdp="activation_cpu_offload: true")
    found = read(tmp_path, "train.yaml", text)
    assert "model" not in found.missing
    assert not any("PURE" in each for each in found.not_understood)
    assert found.value("offload") == "activations"


def test_a_rank_alone_leaves_open_what_trains(tmp_path: Path) -> None:
    found = read(tmp_path, "run.sh", TRAINER + "--lora_rank 8")
    assert found.missing["train"][0].endswith("8: full or lora")
    assert read(tmp_path, "run.sh", TRAINER).value("train") in ("full", None)


@pytest.mark.parametrize(
    ("more", "part"),
    [
        ("--tune_mm_vision False", "frozen"),
        ("--lora_enable True --lora_rank 4 --modules_to_save lm_head", "besides these adapters"),
    ],
)
def test_what_trains_besides_and_what_does_not_is_said(tmp_path: Path, more: str, part: str) -> None:
    assert said(tmp_path, "run.sh", TRAINER + more, part)


@pytest.mark.parametrize(
    ("value", "kind"), [("eager", "unfused"), ("flash_attention_2", "flash"), ("sdpa", "flash"), ("own", None)]
)
def test_attention_is_what_the_trainer_is_given(tmp_path: Path, value: str, kind: str | None) -> None:
    assert read(tmp_path, "run.sh", f"{TRAINER} --attn_implementation {value}").value("attention") == kind


def test_quantisation_of_axolotl_while_training_is_said(tmp_path: Path) -> None:
    assert said(tmp_path, "config.yml", AXOLOTL + "qat:\n  weight_dtype: int4\n", "priced without it")


def test_one_expert_of_megatron_deepspeed_is_a_dense_layer(tmp_path: Path) -> None:
    found = read(tmp_path, "run.sh", line("--deepspeed --zero-stage 1 --no-pipeline-parallel --num-experts 1"))
    assert found.framework == "megatron-deepspeed"
    assert found.value("num_experts") is None


def test_fragments_leave_variables_that_they_do_not_set_open(tmp_path: Path) -> None:
    text = (
        line("--x $SPLIT")
        .split("pretrain_gpt.py")[1]
        .replace("--tensor-model-parallel-size 2", "--tensor-model-parallel-size $SPLIT")
    )
    text = 'OPTIONS="' + text.replace("\\\n", " ").strip() + '"\n'
    assert read(tmp_path, "part.sh", text).missing["tp"] == ("env:SPLIT",)


@pytest.mark.parametrize(("hosts", "number"), [("localhost:0,1,2", 3), ("one:0,1@two:0,1,2,3", 6), ("localhost:0", 1)])
def test_hosts_with_slots_count_every_process(tmp_path: Path, hosts: str, number: int) -> None:
    text = f"deepspeed --include {hosts} train.py --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 1"
    assert read(tmp_path, "run.sh", text).value("num_accelerators") == number


SECTIONS = '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3%s}%s}'


@pytest.mark.parametrize(
    ("inside", "after", "part"),
    [
        ("", ', "curriculum_learning": {"enabled": true}', "full length"),
        (', "offload_optimizer": {"device": "cpu", "ratio": 0.9}', "", "as all of them"),
        (', "offload_optimizer": {"device": "cpu", "ratio": 1.0}', "", ""),
    ],
)
def test_sections_of_deepspeed_that_are_not_priced(tmp_path: Path, inside: str, after: str, part: str) -> None:
    (tmp_path / "ds.json").write_text(SECTIONS % (inside, after))
    found = read(tmp_path, "run.sh", "deepspeed --num_gpus 2 train.py --model_name_or_path a/b --deepspeed ds.json")
    assert (
        any(part in each for each in found.not_understood)
        if part
        else not any("share" in each for each in found.not_understood)
    )


def test_axes_that_only_another_program_reads_are_asked_for(tmp_path: Path) -> None:
    """gdGPT's ``model_topo``, in a file of DeepSpeed."""
    topology = ', "model_topo": {"process_topology": {"axes": ["pipe", "data"], "dims": [8, 1]}, "parts": [4, 4]}'
    plain, found = (read(tmp_path, "ds.json", SECTIONS % ("", more)) for more in ("", topology))
    assert values(plain, "tp", "pp") == (1, 1)
    assert values(found, "tp", "pp", "cp") == (None, None, 1)
    assert "model_topo" in found.missing["pp"][0]
    line_of = read(tmp_path, "run.sh", "deepspeed --num_gpus 8 train.py --config ds.json")
    assert values(line_of, "tp", "pp", "sharding", "micro_batch_size") == (None, None, "zero3", 1)
    given = read(tmp_path, "ds.json", SECTIONS % ("", topology), tp=1, pp=8)
    assert values(given, "tp", "pp") == (1, 8)


TUNED = """
experiment: {{exp_name: a, runner: {{nnodes: 1, nproc_per_node: 8}}, task: {{type: train, backend: megatron}},
  auto_tuner: {{space: {{tensor_model_parallel_size: auto, micro_batch_size: [1, 2]}}}}}}
action: {action}
train:
  system: {{tensor_model_parallel_size: 2, pipeline_model_parallel_size: 1, precision: {{bf16: true}}}}
  model: {{num_layers: 4, hidden_size: 64, num_attention_heads: 4, seq_length: 128, max_position_embeddings: 128,
    micro_batch_size: 1, global_batch_size: 8}}
  data: {{data_path: x}}
"""


def test_what_a_tuner_chooses_is_asked_for(tmp_path: Path) -> None:
    open_ = read(tmp_path, "tune.yaml", TUNED.format(action="auto_tune")).missing
    assert {"tp", "micro_batch_size"} <= open_.keys()
    assert values(read(tmp_path, "run.yaml", TUNED.format(action="run")), "tp", "micro_batch_size") == (2, 1)


def test_a_branch_that_starts_a_program_before_it_ends_is_read(tmp_path: Path) -> None:
    text = 'if [ -n "$SLURM_JOB_ID" ]; then\n' + line("") + "  exit 0\nfi\n"
    found = read(tmp_path, "run.sh", text, env={"SLURM_JOB_ID": "1"})
    assert found.value("tp") == 2
