"""Frameworks of 2025 and 2026: what their files say, by the keys and defaults of their own sources."""

from __future__ import annotations

import contextlib
import os
import random
import time
from pathlib import Path

import pytest
from tests.fuzz.mutations import mutated
from tests.launch.scripts import values

from shardplan.base.errors import ShardplanError
from shardplan.launch.dialects.ask import Ask
from shardplan.launch.dialects.read import read_launch
from shardplan.launch.dialects.reading import Reading

PRIME_RL = """max_steps = 100
[model]
name = "Qwen/Qwen3-30B-A3B"
cp = 2
cp_style = "ulysses"
optim_cpu_offload = false
[model.ac]
mode = "full"
[data]
seq_len = 16384
batch_size = 64
[optim]
type = "muon"
lr = 1e-5
[deployment]
type = "multi_node"
num_train_nodes = 4
"""
AUTOMODEL = """recipe: TrainFinetuneRecipeForNextTokenPrediction
step_scheduler: {global_batch_size: 64, local_batch_size: 2}
dist_env: {backend: nccl}
model:
  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained
  pretrained_model_name_or_path: meta-llama/Llama-3.1-8B
  torch_dtype: float32
distributed: {strategy: fsdp2, dp_size: 16, dp_replicate_size: 4, tp_size: 2, activation_checkpointing: true}
packed_sequence: {packed_sequence_size: 4096}
peft: {_target_: nemo_automodel.components._peft.lora.PeftConfig, match_all_linear: true, dim: 16}
"""
OUMI = """model: {model_name: meta-llama/Llama-3.1-8B-Instruct, model_max_length: 8192, torch_dtype_str: bfloat16}
data: {train: {datasets: [{dataset_name: a}]}}
training:
  trainer_type: TRL_SFT
  per_device_train_batch_size: 2
  gradient_accumulation_steps: 8
  enable_gradient_checkpointing: true
  optimizer: adamw_torch_fused
  use_peft: true
peft: {lora_r: 64, lora_target_modules: [q_proj, v_proj]}
fsdp: {enable_fsdp: true, sharding_strategy: HYBRID_SHARD}
"""
VEOMNI = """model: {model_path: Qwen/Qwen3-8B, attn_implementation: flash_attention_2}
data: {train_path: a, max_seq_len: 32768}
train:
  data_parallel_mode: fsdp2
  ulysses_parallel_size: 4
  global_batch_size: 32
  micro_batch_size: 1
  enable_full_shard: false
  enable_activation_offload: true
  init_device: meta
"""
LITGPT = """checkpoint_dir: checkpoints/meta-llama/Llama-3.1-8B
out_dir: out
devices: 4
num_nodes: 1
precision: bf16-true
lora_r: 16
lora_query: true
lora_key: false
lora_value: true
data: {class_path: litgpt.data.Alpaca2k}
train: {global_batch_size: 32, micro_batch_size: 4, max_seq_length: 2048}
"""
PRIMUS = """work_group: amd
workspace: ./output
modules:
  pre_trainer:
    framework: megatron
    config: pre_trainer.yaml
    model: llama3.1_8B.yaml
    overrides:
      global_batch_size: ${PRIMUS_BATCH:256}
      tensor_model_parallel_size: 2
      overlap_grad_reduce: true
      use_distributed_optimizer: false
"""
OLMO_CORE = """from functools import partial
from olmo_core.internal.experiment import build_config, main
from olmo_core.nn.transformer import TransformerConfig
from olmo_core.train.train_module import TransformerTrainModuleConfig, TransformerDataParallelConfig
SEQUENCE_LENGTH = 4096

def build_model_config(common):
    return TransformerConfig.olmo2_13B(vocab_size=common.tokenizer.padded_vocab_size())

def build_train_module_config(common):
    return TransformerTrainModuleConfig(
        rank_microbatch_size=2 * SEQUENCE_LENGTH,
        max_sequence_length=common.max_sequence_length,
        optim=SkipStepAdamWConfig(lr=3e-4),
        dp_config=TransformerDataParallelConfig(name=DataParallelType.fsdp, param_dtype=DType.bfloat16),
        ac_config=TransformerActivationCheckpointingConfig(mode=TransformerActivationCheckpointingMode.full),
    )

if __name__ == "__main__":
    main(config_builder=partial(build_config, global_batch_size=2048 * SEQUENCE_LENGTH,
                                max_sequence_length=SEQUENCE_LENGTH, num_nodes=16))
"""
MLPERF = """export DGXNNODES=64
export DGXNGPU=8
export MINIBS=144
export TENSOR_MODEL_PARALLEL=4
export PIPELINE_MODEL_PARALLEL=8
export INTERLEAVED_PIPELINE=8
export CONTEXT_PARALLEL=2
export MICRO_BATCH_SIZE=1
export FP8=True
export WALLTIME_RUNANDTIME=420
"""
FILES = {
    "sft.toml": PRIME_RL, "automodel.yaml": AUTOMODEL, "oumi.yaml": OUMI, "veomni.yaml": VEOMNI, "litgpt.yaml": LITGPT,
    "primus.yaml": PRIMUS, "olmo.py": OLMO_CORE, "config_dgx.sh": MLPERF,
}  # fmt: skip


def read(folder: Path, name: str, text: str, node: int | None = None) -> Reading:
    path = folder / name
    path.write_text(text)
    return read_launch(Ask(path=path, node=node))


def test_prime_rl(tmp_path: Path) -> None:
    found = read(tmp_path, "sft.toml", PRIME_RL)
    assert found.framework == "prime-rl"
    assert values(found, "cp", "cp_comm", "global_batch_size", "sequence_length") == (2, "a2a", 64, 16384)
    assert values(found, "num_accelerators", "dp", "ep", "sharding") == (32, 16, 8, "zero3")
    assert values(found, "optimizer", "offload", "recompute", "train") == ("muon", "none", "full", "full")
    assert any("ac_offloading" in each for each in found.not_understood)
    one = read(tmp_path, "b.toml", PRIME_RL.replace('"multi_node"', '"single_node"').replace("nodes = 4", "gpus = 8"))
    assert values(one, "num_accelerators", "ep") == (8, 8)
    dense = read(tmp_path, "c.toml", PRIME_RL.replace("Qwen3-30B-A3B", "Qwen3-8B").replace("optim_cpu", "x_cpu"))
    assert values(dense, "ep", "offload") == (1, "optimizer")
    adapters = PRIME_RL + "[model.lora]\nrank = 16\n"
    assert values(read(tmp_path, "d.toml", adapters), "software.expert_scores") == ("eager",)
    assert "software.expert_scores" not in found.facts  # without adapters the graph compiles


def test_automodel(tmp_path: Path) -> None:
    found = read(tmp_path, "a.yaml", AUTOMODEL)
    assert values(found, "num_accelerators", "tp", "dp", "sharding", "sharding_degree") == (32, 2, 16, "hsdp", 4)
    assert values(found, "global_batch_size", "micro_batch_size", "sequence_length") == (64, 2, 4096)
    assert values(found, "train", "lora_rank", "lora_targets", "recompute") == ("lora", 16, "all", "full")
    assert found.value("moment_dtype") is None
    stored = read(tmp_path, "b.yaml", AUTOMODEL.replace("  torch_dtype: float32\n", ""))
    assert stored.value("moment_dtype") == "bf16"
    piped = AUTOMODEL.replace(
        "tp_size: 2", "pp_size: 4, pipeline: {pp_schedule: interleaved1f1b, pp_microbatch_size: 1}"
    )
    assert "vp" in read(tmp_path, "c.yaml", piped).missing
    assert read(tmp_path, "c.yaml", piped).value("micro_batch_size") == 1
    assert read(tmp_path, "d.yaml", AUTOMODEL.replace("dp_size: 16, dp_replicate_size: 4, ", ""), 8).value("dp") == 4


def test_oumi(tmp_path: Path) -> None:
    found = read(tmp_path, "a.yaml", OUMI)
    assert values(found, "micro_batch_size", "gradient_accumulation", "sequence_length") == (2, 8, 8192)
    assert values(found, "train", "lora_rank", "lora_targets", "sharding") == ("lora", 64, "q,v", "hsdp")
    assert values(found, "precision", "moment_dtype", "recompute", "optimizer") == ("bf16", "bf16", "full", "adam")
    assert "num_accelerators" in found.missing


def test_veomni(tmp_path: Path) -> None:
    found = read(tmp_path, "a.yaml", VEOMNI, node=8)
    assert values(found, "cp", "cp_comm", "sharding", "recompute") == (4, "a2a", "zero2", "full")
    assert values(found, "offload", "precision", "dp", "gradient_accumulation") == ("activations", "bf16", 2, 16)


def test_litgpt(tmp_path: Path) -> None:
    found = read(tmp_path, "a.yaml", LITGPT)
    assert values(found, "num_accelerators", "sharding", "recompute") == (4, "zero3", "full")
    assert found.value("model") == "checkpoints/meta-llama/Llama-3.1-8B"
    assert values(found, "train", "lora_rank", "lora_targets", "moment_dtype") == ("lora", 16, "q,v", "bf16")
    alone = read(tmp_path, "b.yaml", LITGPT.replace("devices: 4", "devices: 1"))
    assert values(alone, "sharding", "recompute") == ("ddp", "none")


def test_primus(tmp_path: Path) -> None:
    found = read(tmp_path, "a.yaml", PRIMUS, node=8)
    assert found.framework == "primus"
    assert values(found, "tp", "dp", "global_batch_size", "micro_batch_size", "sequence_length") == (2, 4, 256, 2, 1024)
    assert values(found, "precision", "sharding", "overlap_dp", "model") == ("bf16", "ddp", True, "llama3.1-8B")
    assert found.facts["precision"].origin == "assumed"
    assert found.facts["tp"].origin == "stated"
    cut = read(tmp_path, "b.yaml", PRIMUS.replace("      tensor", "      num_layers: 4\n      tensor"))
    assert "num_layers" in " ".join(cut.missing["model"])
    titan = PRIMUS.replace("framework: megatron", "framework: torchtitan").replace(
        "global_batch_size: ${PRIMUS_BATCH:256}", "training: {local_batch_size: 4, seq_len: 8192}"
    )
    assert values(read(tmp_path, "c.yaml", titan), "micro_batch_size", "sequence_length") == (4, 8192)


def test_olmo_core(tmp_path: Path) -> None:
    found = read(tmp_path, "olmo.py", OLMO_CORE)
    assert values(found, "model", "sequence_length", "micro_batch_size") == ("olmo-2-1124-13b", 4096, 2)
    assert values(found, "global_batch_size", "num_accelerators", "sharding") == (2048, 128, "zero3")
    assert values(found, "recompute", "precision", "optimizer") == ("full", "bf16", "adam")
    wide = OLMO_CORE.replace("13B(", "13B(n_layers=4, ")
    assert "model" in read(tmp_path, "wide.py", wide).missing
    line = "torchrun --nnodes 2 --nproc-per-node 8 olmo.py train a b --train_module.rank_microbatch_size=4096\n"
    assert values(read(tmp_path, "run.sh", line), "num_accelerators", "micro_batch_size") == (16, 1)


def test_settings_of_mlperf(tmp_path: Path) -> None:
    alone = read(tmp_path, "config_dgx.sh", MLPERF)
    assert values(alone, "num_accelerators", "tp", "pp", "cp", "vp", "dp") == (512, 4, 8, 2, 8, 8)
    assert values(alone, "global_batch_size", "precision") == (1152, "fp8")
    assert "sequence_length" in alone.missing
    folder = tmp_path / "llama31_405b"
    (folder / "conf").mkdir(parents=True)
    (folder / "conf" / "custom.yaml").write_text(
        """trainer: {devices: "${oc.decode:${oc.env:DGXNGPU,8}}", precision: bf16}
model:
  micro_batch_size: ${oc.decode:${oc.env:MICRO_BATCH_SIZE}}
  tensor_model_parallel_size: ${oc.decode:${oc.env:TENSOR_MODEL_PARALLEL}}
  pipeline_model_parallel_size: ${oc.decode:${oc.env:PIPELINE_MODEL_PARALLEL}}
  context_parallel_size: ${oc.decode:${oc.env:CONTEXT_PARALLEL,4}}
  encoder_seq_length: 8192
  activations_checkpoint_granularity: ${oc.decode:${oc.env:ACT_CKPT_GRANULARITY,null}}
  fp8: ${oc.decode:${oc.env:FP8,False}}
  global_batch_size: ${multiply:${oc.decode:${oc.env:MINIBS}},8}
"""
    )
    found = read(folder, "config_dgx.sh", MLPERF)
    assert values(found, "model", "global_batch_size", "sequence_length", "precision") == (
        "llama-3.1-405b", 1152, 8192, "fp8"
    )  # fmt: skip
    assert values(found, "cp", "recompute", "num_accelerators") == (2, "none", 512)


PROGRAM = """from dataclasses import dataclass, field
from transformers import HfArgumentParser, TrainingArguments
@dataclass
class ScriptArguments:
    model_name: str = "a"
    max_seq_length: int = field(default=2048, metadata={"help": "b"})
"""
LINE = "accelerate launch train.py --model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 2 --bf16 True\n"


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (PROGRAM, (2048, 1, "none")),
        (PROGRAM + "    max_len: int = None\n", (None, 1, "none")),
        (PROGRAM + "    gradient_checkpointing: bool = True\n", (2048, 1, "full")),
        (PROGRAM + "def main(model):\n    model.gradient_checkpointing_enable()\n", (2048, 1, None)),
        (PROGRAM + "import somewhere_else\n", (2048, 1, None)),
        (PROGRAM + "from other import run\n", (2048, 1, None)),
    ],
)
def test_a_program_next_to_its_line_has_defaults(program: str, expected: tuple[object, ...], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(program)
    (tmp_path / "other.py").write_text("def run(model):\n    model.gradient_checkpointing_enable()\n")
    found = read(tmp_path, "run.sh", LINE)
    assert values(found, "sequence_length", "gradient_accumulation", "recompute") == expected


def test_the_file_of_fsdp_config_counts(tmp_path: Path) -> None:
    line = LINE.replace("\n", ' --fsdp "full_shard auto_wrap" --fsdp_config config/fsdp.json\n')
    assert "recompute" in read(tmp_path, "a.sh", line).missing
    (tmp_path / "fsdp.json").write_text('{"activation_checkpointing": true}')
    assert values(read(tmp_path, "a.sh", line), "recompute", "sharding") == ("full", "zero3")


def test_a_node_is_what_a_script_counts(tmp_path: Path) -> None:
    counted = "GPUS=$(nvidia-smi -L | wc -l)\n" + LINE.replace("accelerate launch", "torchrun --nproc_per_node $GPUS")
    assert read(tmp_path, "a.sh", counted, node=8).value("num_accelerators") == 8
    assert "num_accelerators" in read(tmp_path, "a.sh", counted).missing


BUDGET = int(os.environ.get("SHARDPLAN_FUZZ", "0"))
LONGEST = 1.0
"""Processor time of a reading. [s]"""


@pytest.mark.parametrize("name", FILES)
def test_no_mutation_breaks_a_reader_or_holds_it(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    for seed in range(BUDGET or 30):
        chance = random.Random(seed)  # noqa: S311  # the same inputs at every run
        path.write_bytes(mutated(FILES[name].encode(), name, chance))
        begin = time.process_time()
        with contextlib.suppress(ShardplanError):
            read_launch(Ask(path=path, node=8))
        assert time.process_time() - begin < LONGEST, (seed, path.read_bytes())


RECIPE = """model_name_or_path: Qwen/Qwen2.5-7B-Instruct
stage: sft
finetuning_type: full
deepspeed: examples/deepspeed/ds_z3_config.json
template: qwen
cutoff_len: 4096
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
bf16: true
"""
SFT = """model_name_or_path: Qwen/Qwen3-8B
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
learning_rate: 1.0e-5
num_train_epochs: 1
max_length: 4096
gradient_checkpointing: true
bf16: true
"""
ZERO = """compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
deepspeed_config: {zero_stage: 2}
mixed_precision: bf16
num_machines: 1
num_processes: 8
"""


def test_a_line_that_starts_a_trainer_with_its_configuration(tmp_path: Path) -> None:
    (tmp_path / "sft.yaml").write_text(RECIPE)
    line = "export CUDA_VISIBLE_DEVICES=0,1,2,3\nllamafactory-cli train sft.yaml cutoff_len=2048\n"
    found = read(tmp_path, "a.sh", line)
    assert found.framework == "llama-factory"
    assert values(found, "num_accelerators", "sequence_length", "global_batch_size") == (4, 2048, 32)
    assert (found.facts["sharding"].value, found.facts["sharding"].origin) == ("zero3", "assumed")
    several = "NNODES=2 NPROC_PER_NODE=8 FORCE_TORCHRUN=1 llamafactory-cli train sft.yaml\n"
    assert read(tmp_path, "b.sh", several).value("num_accelerators") == 16
    assert read(tmp_path, "c.sh", "llamafactory-cli train sft.yaml\n", node=8).value("dp") == 8
    for wrong in ("llamafactory-cli export sft.yaml", "llamafactory-cli train gone.yaml"):
        with pytest.raises(ShardplanError):
            read(tmp_path, "d.sh", wrong)


def test_accelerate_in_front_of_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "sft.yaml").write_text(SFT)
    (tmp_path / "zero2.yaml").write_text(ZERO)
    line = "accelerate launch --config_file zero2.yaml sft.py --config sft.yaml\n"
    found = read(tmp_path, "run.sh", line)
    assert values(found, "sharding", "num_accelerators", "global_batch_size") == ("zero2", 8, 64)
    assert values(found, "sequence_length", "recompute", "model") == (4096, "full", "Qwen/Qwen3-8B")


def test_torchtune_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "model: {_component_: torchtune.models.llama3_1.llama3_1_8b}\n"
        "tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, max_seq_len: 8192}\n"
        "checkpointer: {_component_: torchtune.training.FullModelHFCheckpointer}\n"
        "batch_size: 2\ngradient_accumulation_steps: 1\ndtype: bf16\nenable_activation_checkpointing: true\n"
        "optimizer: {_component_: torch.optim.AdamW}\nloss: {_component_: a}\ndataset: {_component_: b}\n"
    )
    line = "tune run --nproc_per_node 4 full_finetune_distributed --config c.yaml batch_size=4\n"
    found = read(tmp_path, "run.sh", line)
    assert values(found, "num_accelerators", "micro_batch_size", "global_batch_size") == (4, 4, 16)


def test_the_value_of_an_option_is_no_command(tmp_path: Path) -> None:
    with pytest.raises(ShardplanError, match=r"my\.train\.main"):
        read(tmp_path, "a.sh", "uv run --extra megatron python -m my.train.main model.path=a batch_size=24\n")
