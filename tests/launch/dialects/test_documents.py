"""Configurations of the other frameworks: what a person reads in them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.launch.scripts import read, values

from shardplan.base.errors import InputError
from shardplan.launch.dialects.ask import frameworks_read

TITAN = """
[model]
name = "llama3"
flavor = "70B"
converters = ["float8"]
[optimizer]
name = "AdamW"
[training]
local_batch_size = 8
seq_len = 8192
steps = 1_000
[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
tensor_parallel_degree = 8
pipeline_parallel_degree = 1
pipeline_parallel_schedule = "Interleaved1F1B"
[activation_checkpoint]
mode = "full"
[checkpoint]
enable = false
[job]
description = "64 GPUs"
"""


PAGE = Path(__file__).parents[3] / "docs" / "howto" / "audit-a-launch-script.md"


def test_what_is_read_is_in_the_documentation_and_named_where_a_file_is_of_nothing_known(tmp_path: Path) -> None:
    page = " ".join(PAGE.read_text(encoding="utf-8").split()).lower()
    titles = frameworks_read()
    assert all(title.lower().removeprefix("the ").removeprefix("recipes of ") in page for title in titles)
    with pytest.raises(InputError) as refusal:
        read(tmp_path, "job.yaml", "colour: blue\n")
    assert all(title in refusal.value.hint for title in titles)


def test_torchtitan(tmp_path: Path) -> None:
    found = read(tmp_path, "job.toml", TITAN)
    assert found.framework == "torchtitan"
    assert values(found, "tp", "pp", "cp", "sharding", "recompute") == (8, 1, 1, "zero3", "full")
    assert values(found, "micro_batch_size", "sequence_length", "precision") == (8, 8192, "fp8")
    assert found.value("model") == "llama-3.1-70b"
    assert set(found.missing) >= {"num_accelerators", "global_batch_size"}
    assert [each.rule for each in found.breaks] == ["a schedule needs a pipeline"]


@pytest.mark.parametrize(("stated", "gathers"), [("true", True), ("false", False)])
def test_torchtitan_may_gather_weights_in_8_bits(tmp_path: Path, stated: str, gathers: bool) -> None:  # noqa: FBT001
    """As train_configs/llama3_405b.toml of August 2024 does."""
    found = read(tmp_path, "job.toml", f"{TITAN}[float8]\nenable_fsdp_float8_all_gather = {stated}\n")
    assert found.value("software.quantised_gathers") is gathers
    assert found.value("software.fp8_scaling") == "tensor"


def test_torchtitan_with_the_answer_to_what_it_asks_for(tmp_path: Path) -> None:
    found = read(tmp_path, "job.toml", TITAN, num_accelerators=64)
    assert values(found, "dp", "global_batch_size", "gradient_accumulation") == (8, 64, 1)  # 64 / 8; 8 x 8


def test_torchtitan_hybrid_sharding_multiplies_to_the_world(tmp_path: Path) -> None:
    text = TITAN.replace("replicate_degree = 1", "replicate_degree = 2").replace(
        "shard_degree = -1", "shard_degree = 4"
    )
    found = read(tmp_path, "job.toml", text)
    assert values(found, "num_accelerators", "sharding", "sharding_degree") == (64, "hsdp", 4)
    broken = read(tmp_path, "job.toml", text, num_accelerators=32)
    assert "the degrees multiply to the accelerators" in [each.rule for each in broken.breaks]


@pytest.mark.parametrize(
    ("pp", "less", "layers"),
    [
        (4, "", (20, 21, 20, 19)),  # 80 + 2 on 4: 21, 21, 20, 20, less one at either end
        (4, "first 0 last 0", None),  # 20 each
        (8, "first 0 last 4", (11, 11, 11, 11, 10, 10, 10, 6)),  # 84 on 8: 11 four times, then 10; less 4
        (16, "first 3 last 3", (3, 6, 6, 6, 6, 6, 5, 5, 5, 5, 5, 5, 5, 5, 5, 2)),  # 86 on 16: 6 six times, then 5
        (16, "first 8 last 1", "refused"),  # 89 on 16: 5 each, fewer than 8
    ],
)
def test_torchtitan_shares_layers_as_its_source_does(pp: int, less: str, layers: object, tmp_path: Path) -> None:
    words = less.split()
    ends = {end: words[words.index(end) + 1] for end in ("first", "last") if end in words}
    given = [f"--parallelism.pipeline_parallel_{end}_stage_less_layers={value}" for end, value in ends.items()]
    given += [f"--parallelism.pipeline_parallel_degree={pp}", "--parallelism.pipeline_parallel_schedule=1F1B"]
    found = read(tmp_path, "job.toml", TITAN, num_accelerators=1024, arguments=given)
    refused = "embedding and head weigh no more layers than a stage has" in [each.rule for each in found.breaks]
    assert refused == (layers == "refused")
    assert found.value("stage_layers") == (None if refused else layers)


def test_overrides_after_the_hyphens_come_last(tmp_path: Path) -> None:
    found = read(tmp_path, "job.toml", TITAN, arguments=["--parallelism.tensor_parallel_degree", "4"])
    assert found.value("tp") == 4


def test_a_line_of_torchtitan_says_what_it_says_and_asks_for_the_rest(tmp_path: Path) -> None:
    pytest.importorskip("tree_sitter_bash")
    line = (
        "torchrun --nnodes 2 --nproc-per-node 8 -m torchtitan.train --module llama3 --config llama3_8b "
        "--parallelism.tensor_parallel_degree 2 --parallelism.pipeline_parallel_degree 1 "
        "--parallelism.data_parallel_replicate_degree 1 --parallelism.data_parallel_shard_degree 8 "
        "--parallelism.context_parallel_degree 1 --training.max_context_length 8192 "
        "--training.num_tokens_per_microbatch_per_dp_rank 16384 activation-checkpoint:full"
    )
    found = read(tmp_path, "run.sh", line)
    assert values(found, "num_accelerators", "tp", "pp", "micro_batch_size", "recompute") == (16, 2, 1, 2, "full")
    assert found.value("model") == "llama-3.1-8b"
    assert values(found, "precision", "optimizer", "ep") == ("bf16", "adam", 1)  # as the function is on record
    other = read(tmp_path, "run.sh", line.replace("llama3_8b", "my_8b"))
    assert {"precision", "optimizer", "model"} <= set(other.missing)  # it may have converters and another optimizer


DEEPSPEED = """
{
  "train_batch_size": 64,
  "train_micro_batch_size_per_gpu": 4,
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "none"}},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
"""


def test_deepspeed(tmp_path: Path) -> None:
    found = read(tmp_path, "ds.json", DEEPSPEED, num_accelerators=8)
    assert values(found, "sharding", "offload", "precision", "optimizer") == ("zero3", "optimizer", "bf16", "adam")
    assert values(found, "global_batch_size", "micro_batch_size", "gradient_accumulation") == (64, 4, 2)
    assert {"model", "sequence_length"} <= set(found.missing)
    assert not found.breaks


def test_deepspeed_batch_identity(tmp_path: Path) -> None:
    text = DEEPSPEED.replace('"train_batch_size": 64', '"train_batch_size": 60, "gradient_accumulation_steps": 2')
    found = read(tmp_path, "ds.json", text, num_accelerators=8)
    assert [each.values for each in found.breaks] == ["60 is not 4 x 2 x 8 = 64"]


def test_auto_is_not_a_value(tmp_path: Path) -> None:
    text = DEEPSPEED.replace("64", '"auto"').replace(": 4,", ': "auto",').replace("true", '"auto"')
    found = read(tmp_path, "ds.json", text)
    assert {"micro_batch_size", "precision", "global_batch_size"} <= set(found.missing)
    assert {"micro_batch_size", "precision", "global_batch_size"}.isdisjoint(found.facts)


def test_a_launch_line_fills_what_is_auto(tmp_path: Path) -> None:
    pytest.importorskip("tree_sitter_bash")
    (tmp_path / "ds.json").write_text(DEEPSPEED.replace("64", '"auto"').replace(": 4,", ': "auto",'), encoding="utf-8")
    line = (
        "deepspeed --num_gpus 4 train.py --deepspeed ds.json --model_name_or_path meta-llama/Llama-2-7b-hf "
        "--per_device_train_batch_size 2 --gradient_accumulation_steps 8 --model_max_length 4096 "
        "--gradient_checkpointing True"
    )
    found = read(tmp_path, "run.sh", line)
    assert values(found, "num_accelerators", "micro_batch_size", "global_batch_size") == (4, 2, 64)  # 2 x 8 x 4
    assert values(found, "sequence_length", "recompute", "sharding") == (4096, "full", "zero3")


def test_a_configuration_that_is_not_there_leaves_all_of_it_open(tmp_path: Path) -> None:
    pytest.importorskip("tree_sitter_bash")
    found = read(tmp_path, "run.sh", "deepspeed --num_gpus 4 train.py --deepspeed other.json --bf16 True")
    assert {"sharding", "tp", "offload", "optimizer"} <= set(found.missing)


def test_accelerate(tmp_path: Path) -> None:
    text = """
    compute_environment: LOCAL_MACHINE
    distributed_type: FSDP
    mixed_precision: bf16
    num_machines: 2
    num_processes: 16
    fsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: true, fsdp_activation_checkpointing: true}
    parallelism_config:
      parallelism_config_dp_replicate_size: 2
      parallelism_config_dp_shard_size: 4
      parallelism_config_tp_size: 2
    """
    found = read(tmp_path, "accelerate.yaml", text)
    assert values(found, "num_accelerators", "nodes", "per_node", "tp", "dp") == (16, 2, 8, 2, 8)
    assert values(found, "sharding", "sharding_degree", "recompute", "precision") == ("hsdp", 4, "full", "bf16")


def test_nanotron(tmp_path: Path) -> None:
    text = """
    general: {run: test}
    model:
      dtype: bfloat16
      model_config: {num_hidden_layers: 24, hidden_size: 2048, intermediate_size: 8192, num_attention_heads: 16,
        num_key_value_heads: 8, vocab_size: 49152, max_position_embeddings: 4096, tie_word_embeddings: true}
    optimizer: {zero_stage: 1, accumulate_grad_in_fp32: true, optimizer_factory: {name: adamW}}
    parallelism: {dp: 4, tp: 2, pp: 2, pp_engine: 1f1b, tp_mode: REDUCE_SCATTER, tp_linear_async_communication: true}
    tokens: {micro_batch_size: 2, batch_accumulation_per_replica: 8, sequence_length: 4096}
    """
    found = read(tmp_path, "run.yaml", text)
    assert values(found, "num_accelerators", "tp", "pp", "dp", "global_batch_size") == (16, 2, 2, 4, 64)
    assert values(found, "sharding", "sequence_parallel", "overlap_tp", "schedule") == ("zero1", True, True, "1f1b")


def test_maxtext(tmp_path: Path) -> None:
    pytest.importorskip("tree_sitter_bash")
    (tmp_path / "llama.yml").write_text(
        "base_config: base.yml\nmodel_name: llama2-7b\nper_device_batch_size: 4\nmax_target_length: 4096\n",
        encoding="utf-8",
    )
    axes = "dcn_data_parallelism=2 ici_fsdp_parallelism=8"
    line = f"python3 -m maxtext.trainers.pre_train.train llama.yml {axes} remat_policy=full"
    found = read(tmp_path, "run.sh", line)
    assert values(found, "num_accelerators", "sharding", "sharding_degree") == (16, "hsdp", 8)
    assert values(found, "global_batch_size", "micro_batch_size", "sequence_length") == (64, 4, 4096)
    assert values(found, "model", "recompute") == ("llama-2-7b", "full")


def test_gpt_neox(tmp_path: Path) -> None:
    text = """
    {
      # comments, trailing commas and words of Python
      "pipe-parallel-size": 2, "model-parallel-size": 2,
      "num-layers": 24, "hidden-size": 2048, "num-attention-heads": 16, "seq-length": 2048,
      "max-position-embeddings": 2048, "no-weight-tying": true,
      "zero_optimization": {"stage": 1, "overlap_comm": True,},
      "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8,
      "checkpoint-activations": true, "fp16": {"enabled": true,},
    }
    """
    found = read(tmp_path, "model.yml", text, num_accelerators=16)
    assert found.framework == "gpt-neox"
    assert values(found, "tp", "pp", "dp", "global_batch_size") == (2, 2, 4, 128)
    assert values(found, "sharding", "recompute", "precision", "intermediate_size") == ("zero1", "full", "fp16", 8192)


def test_llama_factory_and_axolotl(tmp_path: Path) -> None:
    factory = """
    model_name_or_path: Qwen/Qwen3-8B
    stage: sft
    finetuning_type: full
    template: qwen3
    cutoff_len: 2048
    per_device_train_batch_size: 2
    gradient_accumulation_steps: 4
    bf16: true
    """
    found = read(tmp_path, "sft.yaml", factory)
    assert found.framework == "llama-factory"
    assert values(found, "sequence_length", "recompute", "train") == (2048, "full", "full")
    axolotl = """
    base_model: meta-llama/Llama-3.1-8B
    datasets: [{path: x, type: alpaca}]
    sequence_len: 4096
    micro_batch_size: 2
    gradient_accumulation_steps: 4
    adapter: lora
    lora_r: 32
    gradient_checkpointing: true
    """
    other = read(tmp_path, "lora.yaml", axolotl)
    assert values(other, "train", "lora_rank", "recompute", "sequence_length") == ("lora", 32, "full", 4096)


@pytest.mark.parametrize(
    ("name", "text", "framework"),
    [
        ("a.yaml", "actor_rollout_ref: {actor: {strategy: fsdp}}\n", "verl"),
        ("c.yaml", "args: {mode: finetune, model_parallel_size: 1}\nmodel: {scale: 1.0}\n", "SwissArmyTransformer"),
        ("b.yaml", "model: {_component_: torchtune.models.llama3.llama3_8b}\n", "torchtune"),
    ],
)
def test_others_are_refused_by_name(tmp_path: Path, name: str, text: str, framework: str) -> None:
    with pytest.raises(InputError, match=framework):
        read(tmp_path, name, text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.yaml", "a: 1\n"),
        ("x.json", "{"),
        ("x.toml", "= ="),
        ("x.sh", "echo hello\n"),
        ("x.md", "# text"),
        ("x.yaml", ""),
    ],
)
def test_what_is_no_launch_file_is_refused(tmp_path: Path, name: str, text: str) -> None:
    if name.endswith(".sh"):
        pytest.importorskip("tree_sitter_bash")
    with pytest.raises(InputError):
        read(tmp_path, name, text)
