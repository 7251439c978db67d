"""Lines and files of forks, trainers and launchers that real scripts have: what a person reads in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.launch.scripts import read, values

from shardplan.base.errors import InputError
from shardplan.launch.dialects.ask import Ask
from shardplan.launch.dialects.read import read_launch

pytest.importorskip("tree_sitter_bash")

ASCEND = """
ARGS="--tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 --expert-model-parallel-size 4
  --moe-tp-extend-ep --num-layers 12 --noop-layers 10,11 --first-k-dense-replace 2 --moe-layer-freq 1
  --n-shared-experts 2 --moe-ffn-hidden-size 256 --num-experts 16 --moe-router-topk 4
  --hidden-size 512 --num-attention-heads 8 --ffn-hidden-size 2048 --seq-length 1024 --micro-batch-size 1
  --global-batch-size 16 --bf16 --swiglu --vocab-size 1000 --swap-optimizer --use-distributed-optimizer
  --context-parallel-size 1 --context-parallel-algo megatron_cp_algo"
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py $ARGS $MOE_ARGS $MORE_ARGS
"""


def test_options_of_mindspeed(tmp_path: Path) -> None:
    """12 places of which the last two are empty: 3 + 3 + 3 + 1 layers; 4 x 2 ranks hold whole experts."""
    found = read(tmp_path, "run.sh", ASCEND)
    assert values(found, "num_hidden_layers", "stage_layers") == (10, (3, 3, 3, 1))
    assert values(found, "ep", "etp", "offload", "cp_comm") == (8, 1, "optimizer", "p2p")
    assert found.value("moe_layer_freq") == (0, 0, 1, 1, 1, 1, 1, 1, 1, 1)
    assert found.value("shared_expert_intermediate_size") == 512


def test_a_variable_that_no_file_sets_is_empty_and_noted(tmp_path: Path) -> None:
    found = read(tmp_path, "run.sh", ASCEND)
    assert found.value("recompute") == "none"
    assert any("MORE_ARGS is set in no file" in note for note in found.notes)
    with_more = read(tmp_path, "run.sh", ASCEND, env={"MORE_ARGS": "--recompute-granularity full"})
    assert with_more.value("recompute") == "full"


def test_a_variable_that_an_unread_file_may_set_is_asked_for(tmp_path: Path) -> None:
    found = read(tmp_path, "run.sh", f"source /far/away/settings.sh\n{ASCEND}")
    assert "env:MORE_ARGS" in found.missing["recompute"]


@pytest.mark.parametrize(
    ("layers", "option", "expected"),
    [
        (12, "--num-layer-list 2,3,4,3", (2, 3, 4, 3)),
        (14, "--pp-partition-method 'type:transformer|embedding'", (3, 4, 4, 3)),
        (12, "--num-layer-list 2,3,4", None),
    ],
)
def test_stages_of_forks(tmp_path: Path, layers: int, option: str, expected: object) -> None:
    text = ASCEND.replace("--num-layers 12 --noop-layers 10,11", f"--num-layers {layers}")
    found = read(tmp_path, "run.sh", text.replace("$MORE_ARGS", option))
    assert found.value("stage_layers") == expected
    assert expected is not None or "stage_layers" in found.missing


SWIFT = """
NPROC_PER_NODE=4 swift sft --model Qwen/Qwen2.5-7B --tuner_type {tuner} --torch_dtype bfloat16 \\
    --per_device_train_batch_size 2 --gradient_accumulation_steps 8 --max_length 4096 --deepspeed {deepspeed}
"""


def test_swift_on_transformers_has_the_names_and_defaults_of_a_trainer(tmp_path: Path) -> None:
    found = read(tmp_path, "run.sh", SWIFT.format(tuner="full", deepspeed="zero3"))
    assert values(found, "num_accelerators", "sharding", "micro_batch_size", "global_batch_size") == (4, "zero3", 2, 64)
    assert values(found, "precision", "recompute", "train") == ("bf16", "full", "full")
    lora = read(tmp_path, "run.sh", SWIFT.format(tuner="lora --lora_rank 32", deepspeed="zero2_offload"))
    assert values(lora, "train", "lora_rank", "sharding", "offload") == ("lora", 32, "zero2", "optimizer")


def test_options_of_accelerate_launch(tmp_path: Path) -> None:
    line = """
    accelerate launch --mixed_precision bf16 --num_processes 16 --num_machines 2 --use_fsdp --fsdp_version 2 \\
        --fsdp_reshard_after_forward true --fsdp_activation_checkpointing true train.py \\
        --model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 1 --gradient_accumulation_steps 2 \\
        --use_peft true --lora_r 8
    """
    found = read(tmp_path, "run.sh", line)
    assert values(found, "precision", "num_accelerators", "sharding", "recompute") == ("bf16", 16, "zero3", "full")
    assert values(found, "train", "lora_rank", "global_batch_size") == ("lora", 8, 32)


def test_what_a_program_of_ones_own_starts_is_read_and_its_world_asked_for(tmp_path: Path) -> None:
    line = """
    python cluster.py --num_nodes 4 --gpus 8 -- accelerate launch --mixed_precision bf16 --num_processes 8 train.py \\
        --model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 1 --gradient_accumulation_steps 2
    """
    found = read(tmp_path, "run.sh", line)
    assert values(found, "precision", "micro_batch_size") == ("bf16", 1)
    assert any("cluster.py" in need for need in found.missing["num_accelerators"])


def test_a_program_that_converts_is_not_the_one_that_trains(tmp_path: Path) -> None:
    line = """
    python3 -m maxtext.trainers.pre_train.train base.yml model_name=llama3.1-8b per_device_batch_size=2
    python3 -m maxtext.checkpoint_conversion.to_huggingface base.yml model_name=llama3.1-8b per_device_batch_size=7
    """
    assert read(tmp_path, "run.sh", line).value("per_device_batch_size") == 2


def test_a_line_of_xpk(tmp_path: Path) -> None:
    """v5p slices are named by cores, two of a chip: 2 slices of 128 chips."""
    line = """
    ARGS="model_name=llama3.1-8b per_device_batch_size=4 max_target_length=4096 quantization=fp8"
    xpk workload create --device-type=v5p-256 --num-slices=2 \\
        --command="set -e && export A=b && python3 -m maxtext.trainers.pre_train.train base.yml ${ARGS} | tee log"
    """
    found = read(tmp_path, "run.sh", line)
    assert found.value("num_accelerators") == 256
    assert values(found, "precision", "sequence_length", "global_batch_size") == ("fp8", 4096, 1024)


def test_exported_variables_in_the_text_of_bash(tmp_path: Path) -> None:
    line = """
    #SBATCH --nodes=2
    export LAUNCHER="python -u -m torch.distributed.launch --nproc_per_node 4 --nnodes 2"
    export CMD="pretrain_gpt.py --tensor-model-parallel-size 2 --num-layers 4 --hidden-size 64 \\
        --num-attention-heads 4 --seq-length 128 --micro-batch-size 1 --global-batch-size 8 --load $HOME/a"
    srun bash -c '$LAUNCHER --node_rank $SLURM_PROCID $CMD' 2>&1 | tee log
    """
    found = read(tmp_path, "run.sh", line)
    assert values(found, "num_accelerators", "tp", "global_batch_size") == (8, 2, 8)


def test_a_script_that_a_script_writes(tmp_path: Path) -> None:
    """Options of Megatron-Bridge's performance scripts; what the table of plans decides is asked for."""
    line = """
    worker=$(cat <<- EOM
    python scripts/performance/run_script.py --model_recipe_name deepseek_v3 --gpu h100 --num_gpus 256 \\
      --gpus_per_node 8 --compute_dtype fp8_mx --tensor_model_parallel_size 2 --pipeline_model_parallel_size 8 \\
      --micro_batch_size 1 --global_batch_size 512
    EOM
    )
    echo "$worker" > worker.sh
    torchrun --nproc-per-node=8 --no-python bash worker.sh
    """
    found = read(tmp_path, "run.sh", line)
    assert values(found, "num_accelerators", "tp", "pp", "precision") == (256, 2, 8, "mxfp8")
    assert "deepseek_v3 on h100" in " ".join(found.missing["ep"])


def test_nothing_is_assumed_of_a_configuration_that_is_not_at_hand(tmp_path: Path) -> None:
    found = read(tmp_path, "run.sh", "torchrun --nproc_per_node 8 torchtitan/train.py --job.config_file far/away.toml")
    assert {"tp", "recompute", "micro_batch_size", "precision"} <= set(found.missing)


TITAN = """
def first() -> Trainer.Config:
    spec = model_registry("32B")
    return Trainer.Config(
        loss=Loss(size=vocabulary(spec)), model_spec=spec,
        training=TrainingConfig(num_tokens_per_microbatch_per_dp_rank=8192, max_context_length=4096),
        parallelism=ParallelismConfig(tensor_parallel_degree=8), activation_checkpoint=FullAC.Config(),
    )

def second():
    return first()
"""


def test_functions_of_a_file_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "qwen3"
    folder.mkdir()
    with pytest.raises(InputError) as error:
        read(folder, "config_registry.py", TITAN)
    assert "first, second" in error.value.hint
    found = read_launch(Ask(path=folder / "config_registry.py", entry="first"))
    assert values(found, "model", "tp", "recompute") == ("qwen3-32b", 8, "full")


AXOLOTL = """
base_model: Qwen/Qwen3-8B
sequence_len: 2048
micro_batch_size: 1
datasets: [a]
bf16: auto
fp16:
optimizer: adamw_bnb_8bit
"""
TRL = """
model_name_or_path: Qwen/Qwen3-8B
per_device_train_batch_size: 4
gradient_accumulation_steps: 4
learning_rate: 1e-5
max_seq_length: 2048
bf16: true
gradient_checkpointing: true
optim: adamw_torch
"""
SHARDED = "adapter: qlora\nfsdp_config:\n  fsdp_version: 2\n  activation_checkpointing: true\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (AXOLOTL + SHARDED, ("axolotl", "lora", "bf16", "adam", "zero3", "full")),
        (AXOLOTL + "gradient_checkpointing: false\n", ("axolotl", "full", "bf16", "adam", "ddp", "none")),
        (TRL, ("hf-trainer", None, "bf16", "adam", None, "full")),
    ],
)
def test_files_of_trainers(tmp_path: Path, text: str, expected: tuple[object, ...]) -> None:
    found = read(tmp_path, "run.yaml", text)
    keys = ("train", "precision", "optimizer", "sharding", "recompute")
    assert (found.framework, *values(found, *keys)) == expected


BITS = "load_in_8bit: false\nload_in_4bit: true\n"
TUNED = "finetuning_type: lora\nquantization_bit: 4\ntemplate: qwen\ncutoff_len: 64\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (AXOLOTL + BITS + SHARDED, "nf4-dq"),
        (AXOLOTL + BITS + SHARDED + "bnb_4bit_use_double_quant: false\n", "nf4"),
        (AXOLOTL + "load_in_8bit: true\n" + SHARDED, None),
        (AXOLOTL + BITS, None),  # no adapters
        (TRL + BITS + "use_peft: true\n", "nf4"),
        (TRL + BITS + "use_peft: true\nuse_bnb_nested_quant: true\n", "nf4-dq"),
        (TRL + TUNED, "nf4-dq"),
        (TRL + TUNED.replace("4", "8", 1), None),
        (TRL + TUNED + "double_quantization: false\n", "nf4"),
    ],
)
def test_weights_in_4_bits_next_to_adapters(tmp_path: Path, text: str, expected: str | None) -> None:
    """Defaults of scales: loaders/model.py of axolotl, hparams/model_args.py of LLaMA-Factory, ModelConfig of TRL."""
    found = read(tmp_path, "run.yaml", text)
    assert found.value("base_weights") == expected
    assert any("quantised weights are not priced" in each for each in found.not_understood) == (expected is None)


def test_fp8_of_nemo_1_is_a_switch_over_the_precision(tmp_path: Path) -> None:
    text = """
    trainer: {num_nodes: 2, devices: 8, precision: bf16}
    model:
      micro_batch_size: 1
      tensor_model_parallel_size: 4
      activation: fast-swiglu
      bias: false
      fp8: true
      ub_tp_comm_overlap: true
      optim: {name: mcore_distributed_optim, grad_sync_dtype: bf16}
    """
    found = read(tmp_path, "run.yaml", text)
    assert values(found, "precision", "gated", "bias", "overlap_tp", "grad_dtype") == ("fp8", True, False, True, "bf16")


def test_ulysses_beside_deepspeed_in_a_file_of_accelerate(tmp_path: Path) -> None:
    text = """
    compute_environment: LOCAL_MACHINE
    distributed_type: DEEPSPEED
    num_machines: 1
    num_processes: 8
    mixed_precision: bf16
    deepspeed_config: {zero_stage: 3}
    parallelism_config: {parallelism_config_dp_shard_size: 2, parallelism_config_sp_size: 4}
    """
    found = read(tmp_path, "run.yaml", text)
    assert values(found, "sharding", "cp", "cp_comm", "dp") == ("zero3", 4, "a2a", 2)


BRIDGE = """
def pretrain_config():
    cfg = _pretrain_common()
    cfg.model = AutoBridge.from_hf_pretrained("meta-llama/Meta-Llama-3-8B").to_megatron_provider(load_weights=False)
    cfg.model.tensor_model_parallel_size = 2
    cfg.model.recompute_granularity = None
    cfg.ddp.use_distributed_optimizer = True
    cfg.ddp.overlap_grad_reduce = True
    cfg.ddp.grad_reduce_in_fp32 = False
    return cfg
"""
NEMO = """
def pretrain_recipe():
    strategy = run.Config(nl.MegatronStrategy, tensor_model_parallel_size=2, context_parallel_size=4)
    return run.Partial(
        pretrain,
        model=run.Config(LlamaModel, config=run.Config(Llama31Config8B)),
        trainer=run.Config(nl.Trainer, strategy=strategy, num_nodes=2, devices=8, plugins=bf16_mixed()),
        optim=distributed_fused_adam_with_cosine_annealing(max_lr=1e-4),
    )
"""


def test_recipes_state_more_than_degrees(tmp_path: Path) -> None:
    (tmp_path / "recipe.py").write_text(BRIDGE)
    (tmp_path / "nemo.py").write_text(NEMO)
    found = read_launch(Ask(path=tmp_path / "recipe.py", entry="pretrain_config"))
    keys = ("model", "recompute", "sharding", "overlap_dp", "grad_dtype")
    assert values(found, *keys) == ("meta-llama/Meta-Llama-3-8B", "none", "zero1", True, "bf16")
    other = read_launch(Ask(path=tmp_path / "nemo.py", entry="pretrain_recipe"))
    assert (other.framework, *values(other, "model", "cp", "precision", "sharding")) == (
        "nemo", "llama-3.1-8b", 4, "bf16", "zero1",
    )  # fmt: skip


def test_a_file_whose_folder_is_open_is_looked_for_beside_the_script(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 3, "zero_optimization": {"stage": 2}}')
    found = read(
        tmp_path, "run.sh", "here=`pwd`\ndeepspeed --num_gpus 4 ${here}/train.py --deepspeed_config $here/ds.json"
    )
    assert values(found, "micro_batch_size", "sharding", "num_accelerators") == (3, "zero2", 4)


def test_degrees_and_offload_of_a_training_script(tmp_path: Path) -> None:
    line = "deepspeed --num_gpus 4 main.py --ep-world-size 2 --zero_stage 2 --offload --per_device_train_batch_size 1"
    assert values(read(tmp_path, "run.sh", line), "ep", "sharding", "offload") == (2, "zero2", "optimizer")


LEVANTER = """
model:
  {type: llama, hidden_dim: 1024, intermediate_dim: 4096, num_heads: 8, num_kv_heads: 2, num_layers: 12, seq_len: 2048}
trainer:
  mp: p=f32,c=bfloat16
  num_train_steps: 10
  model_axis_size: 2
  train_batch_size: [{start: 0, value: 64}, {start: 10, value: 128}]
"""
LINGUA = """
grad_acc_steps: 2
distributed: {fsdp_type: full_shard, model_dtype: bf16, tp_size: 1, selective_activation_checkpointing: false}
model: {dim: 4096, n_layers: 32, n_heads: 32, multiple_of: 256, ffn_dim_multiplier: 1.0}
data: {batch_size: 2, seq_len: 4096}
"""
TORCHTUNE = """
tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, max_seq_len: 1024}
model: {_component_: torchtune.models.llama3_1.lora_llama3_1_70b, lora_rank: 16}
checkpointer: {_component_: torchtune.training.FullModelHFCheckpointer}
optimizer: {_component_: torch.optim.AdamW}
tensor_parallel_dim: 8
batch_size: 4
dtype: bf16
enable_activation_checkpointing: true
"""


def test_levanter_lingua_and_torchtune(tmp_path: Path) -> None:
    """8 x 4,096 / 3 = 10,922 in whole 256s is 11,008."""
    found = read(tmp_path, "a.yaml", LEVANTER)
    assert values(found, "tp", "global_batch_size", "precision", "sharding") == (2, 128, "bf16", "zero3")
    found = read(tmp_path, "b.yaml", LINGUA)
    assert values(found, "intermediate_size", "micro_batch_size", "sharding", "recompute") == (
        11008,
        2,
        "zero3",
        "none",
    )
    found = read(tmp_path, "c.yaml", TORCHTUNE)
    assert values(found, "model", "train", "lora_rank", "tp", "recompute") == ("llama-3.1-70b", "lora", 16, 8, "full")


def test_flagscale_joins_an_experiment_with_its_training(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "7b.yaml").write_text(
        "system: {tensor_model_parallel_size: 2, precision: {bf16: true}, use_distributed_optimizer: true}\n"
        "model: {num_layers: 4, hidden_size: 64, num_attention_heads: 4, micro_batch_size: 1, global_batch_size: 16,\n"
        "  attention_dropout: 0.0, hidden_dropout: 0.0, position_embedding_type: mrope}\n"
    )
    text = """
    defaults: [train: 7b, _self_]
    experiment: {task: {backend: megatron}, runner: {nnodes: 2, nproc_per_node: 8}}
    """
    found = read(tmp_path, "run.yaml", text)
    assert values(found, "num_accelerators", "tp", "precision", "sharding", "dp") == (16, 2, "bf16", "zero1", 8)
    assert values(found, "dropout") == (False,)  # 0.0 is said; Megatron's default is 0.1
    alone = read_launch(Ask(path=tmp_path / "train" / "7b.yaml"))
    assert values(alone, "tp", "precision", "sharding", "dropout") == (2, "bf16", "zero1", False)
    assert "num_accelerators" in alone.missing
    assert any("the text model alone" in text for text in alone.not_understood)


def test_experts_of_megablocks_lie_on_the_data_parallel_ranks(tmp_path: Path) -> None:
    line = """
    torchrun --nproc_per_node 8 pretrain_gpt.py --model-parallel-size 1 --num-layers 4 --hidden-size 64 \\
        --num-attention-heads 4 --moe-num-experts=64 --moe-top-k=1 --moe-expert-model-parallelism --bf16 \\
        --seq-length 64
    """
    assert values(read(tmp_path, "run.sh", line), "num_experts", "num_experts_per_tok", "ep") == (64, 1, 8)
    plain = re.sub(r"--moe-num-experts=64.*parallelism", "--num-experts 8", line)  # of 2023: one expert, since 2024 two
    assert "num_experts_per_tok" in read(tmp_path, "run.sh", plain).missing
    assert read(tmp_path, "run.sh", plain.replace("--bf16", "--moe-grouped-gemm")).value("num_experts_per_tok") == 2


def test_a_file_that_a_line_of_ms_swift_names(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("model: Qwen/Qwen3-8B\nmicro_batch_size: 2\nrecompute_granularity: full\n")
    found = read(tmp_path, "run.sh", "NPROC_PER_NODE=8 megatron sft --config a.yaml --tensor_model_parallel_size 2")
    assert values(found, "micro_batch_size", "recompute", "tp") == (2, "full", 2)
    away = read(tmp_path, "run.sh", "NPROC_PER_NODE=8 megatron sft --config far/b.yaml")
    assert {"micro_batch_size", "recompute", "sharding"} <= set(away.missing)


@pytest.mark.parametrize(("pieces", "batch"), [("--parallelism.num_pp_microbatches 8", 128), ("", 16)])
def test_the_batch_of_torchtitan_counts_the_micro_batches_of_its_pipeline(
    tmp_path: Path, pieces: str, batch: int
) -> None:
    """2 sequences x 8 micro-batches x 8 replicas where no step is given; one micro-batch by default."""
    line = (
        "torchrun --nproc_per_node 16 -m torchtitan.train --module llama3 --config llama3_8b "
        "--training.max_context_length 4096 --training.num_tokens_per_microbatch_per_dp_rank 8192 "
        "--parallelism.pipeline_parallel_degree 2 "
    )
    found = read(tmp_path, "run.sh", line + pieces)
    assert values(found, "micro_batch_size", "global_batch_size", "dp") == (2, batch, 8)
