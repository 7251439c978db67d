"""Launch files in the manner of every framework, drawn by a seed."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import yaml
from tests.launch.audit.changed_files import Files
from tests.launch.export.cases import LAUNCHES


class Sample(NamedTuple):
    """A launch to audit."""

    files: Files
    cluster: str
    given: Mapping[str, object] = {}
    """What the file does not say."""
    model: str | None = None


SIZES: Final = {
    "1b": "--num-layers 16 --hidden-size 2048 --ffn-hidden-size 8192 --num-attention-heads 32",
    "8b": "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32",
}
HUB: Final = "meta-llama/Llama-3.1-8B"
OVERLAP: Final = "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather"
FULL: Final = "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
CLUSTERS: Final = ("dgx-h100", "dgx-a100")
EITHER: Final = (True, False)


class Draw:
    """Choices of one sample."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)  # noqa: S311  # a sample, no secret

    def of(self, *values: Any) -> Any:
        """One of them."""
        return self.rng.choice(values)


def megatron(draw: Draw) -> Sample:
    """A line of Megatron-LM, with hyphens."""
    size = SIZES[draw.of("1b", "8b")]
    tp, pp = draw.of(1, 2, 4), draw.of(1, 2)
    words = [
        size, "--seq-length 4096 --max-position-embeddings 4096 --vocab-size 128256 --bf16 --swiglu",
        f"--tensor-model-parallel-size {tp} --pipeline-model-parallel-size {pp}",
        f"--micro-batch-size {draw.of(1, 2)} --global-batch-size {draw.of(128, 256)}",
        draw.of("", "--use-distributed-optimizer", OVERLAP),
        draw.of("", "--sequence-parallel") if tp > 1 else "",
        draw.of("--recompute-activations", FULL),
        "--num-layers-per-virtual-pipeline-stage 4" if pp > 1 and draw.of(*EITHER) else "",
    ]  # fmt: skip
    return Sample(
        {"run.sh": f"torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py {_line(words)}\n"}, draw.of(*CLUSTERS)
    )


def megatron_batch_left_out(draw: Draw) -> Sample:
    """The batch is one micro-batch of each rank."""
    sample = megatron(draw)
    return sample._replace(files={"run.sh": re.sub(r" --global-batch-size \d+", "", sample.files["run.sh"])})


def megatron_equals(draw: Draw) -> Sample:
    """Values behind equal signs."""
    sample = megatron(draw)
    return sample._replace(files={"run.sh": re.sub(r"(--[a-z-]+-[a-z]+) (?!-)", r"\1=", sample.files["run.sh"])})


def megatron_epfl(draw: Draw) -> Sample:
    """The fork of EPFL has underscores."""
    size = SIZES["8b"]
    words = [
        size, f"--seq-length 2048 --vocab-size 32000 --bf16 --tensor-model-parallel-size {draw.of(2, 4)}",
        f"--pipeline-model-parallel-size {draw.of(1, 2)} --micro-batch-size 1 --global-batch-size {draw.of(64, 128)}",
        FULL,
    ]  # fmt: skip
    line = re.sub(r"--[a-z-]+", lambda name: name[0][:2] + name[0][2:].replace("-", "_"), _line(words))
    return Sample({"run.sh": f"torchrun --nproc_per_node 8 --nnodes 2 pretrain.py {line}\n"}, draw.of(*CLUSTERS))


def megatron_deepspeed(draw: Draw) -> Sample:
    """A line of Megatron-DeepSpeed."""
    size = SIZES["8b"]
    words = [
        size, "--seq-length 2048 --vocab-size 32000 --bf16 --checkpoint-activations",
        f"--tensor-model-parallel-size {draw.of(2, 4)} --pipeline-model-parallel-size {draw.of(1, 2)}",
        f"--micro-batch-size 1 --global-batch-size {draw.of(64, 128)} --zero-stage 1",
    ]  # fmt: skip
    return Sample(
        {"run.sh": f"deepspeed --num_nodes 2 --num_gpus 8 pretrain_gpt.py {_line(words)}\n"}, draw.of(*CLUSTERS)
    )


def swift(draw: Draw) -> Sample:
    """Megatron by ms-swift."""
    words = [
        f"--model Qwen/Qwen2.5-7B --tensor_model_parallel_size {draw.of(2, 4)} --max_length 4096 --bf16 true",
        f"--pipeline_model_parallel_size {draw.of(1, 2)} --micro_batch_size 1 --global_batch_size {draw.of(64, 128)}",
        "--recompute_granularity full --recompute_method uniform --recompute_num_layers 1",
    ]
    return Sample({"run.sh": f"NNODES=2 NPROC_PER_NODE=8 megatron sft {_line(words)}\n"}, draw.of(*CLUSTERS))


def torchtitan_toml(draw: Draw) -> Sample:
    """A file of torchtitan up to 0.2.2, with or without a global batch."""
    training = {"local_batch_size": draw.of(1, 2), "seq_len": draw.of(2048, 8192)}
    if draw.of(*EITHER):
        training["global_batch_size"] = 128
    document = {
        "model": {"name": "llama3", "flavor": "8B"},
        "training": training,
        "parallelism": {"tensor_parallel_degree": draw.of(1, 4, 8), "data_parallel_shard_degree": -1},
        "activation_checkpoint": {"mode": draw.of("full", "selective"), "selective_ac_option": draw.of("op", "2")},
    }
    return Sample({"run.toml": document}, draw.of(*CLUSTERS), given={"num_accelerators": draw.of(16, 32)})


def torchtitan_before(draw: Draw) -> Sample:
    """A file of torchtitan before 0.1, whose keys stood in other sections."""
    document = {
        "model": {"name": "llama3", "flavor": "8B"},
        "training": {"batch_size": draw.of(1, 2), "seq_len": 2048, "tensor_parallel_degree": draw.of(4, 8)},
        "experimental": {"pipeline_parallel_degree": 1},
        "metrics": {"log_freq": 10},
        "activation_checkpoint": {"mode": "full"},
    }
    return Sample({"run.toml": document}, draw.of(*CLUSTERS), given={"num_accelerators": 16})


def torchtitan_line(draw: Draw) -> Sample:
    """A line of torchtitan."""
    words = [
        f"--parallelism.tensor_parallel_degree {draw.of(2, 8)} --training.local_batch_size {draw.of(1, 2)}",
        f"--training.seq_len {draw.of(2048, 4096)} activation-checkpoint:full",
    ]
    start = "torchrun --nproc_per_node 8 --nnodes 2 -m torchtitan.train --module llama3 --config llama3_8b"
    return Sample({"run.sh": f"{start} {_line(words)}\n"}, draw.of(*CLUSTERS))


def axolotl(draw: Draw) -> Sample:
    """A file of axolotl, whose world is the product of its degrees."""
    document = {
        "base_model": HUB,
        "sequence_len": 4096,
        "micro_batch_size": draw.of(1, 2),
        "gradient_accumulation_steps": draw.of(4, 8),
        "bf16": True,
        "datasets": [{"path": "data", "type": "alpaca"}],
        "optimizer": "adamw_torch_fused",
        "gradient_checkpointing": True,
        "dp_shard_size": draw.of(8, 16),
        "fsdp_version": 2,
        "fsdp_config": {"reshard_after_forward": draw.of(*EITHER), "state_dict_type": "FULL_STATE_DICT"},
    } | draw.of({}, {"tensor_parallel_size": 2}, {"context_parallel_size": 2})  # fmt: skip
    return Sample({"run.yaml": document}, draw.of(*CLUSTERS))


def axolotl_experts(draw: Draw) -> Sample:
    """Experts over two ranks."""
    sample = axolotl(draw)
    document = sample.files["run.yaml"] | {"base_model": "Qwen/Qwen3-30B-A3B", "expert_parallel_size": 2}
    return sample._replace(files={"run.yaml": document})


def _deepspeed(draw: Draw) -> dict[str, Any]:
    return {
        "bf16": {"enabled": "auto"},
        "zero_optimization": {"stage": draw.of(2, 3), "overlap_comm": True},
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "train_batch_size": "auto",
    }


def llama_factory(draw: Draw) -> Sample:
    """A file of LLaMA-Factory with the JSON of DeepSpeed."""
    document = {
        "model_name_or_path": HUB,
        "stage": "sft",
        "do_train": True,
        "finetuning_type": "full",
        "deepspeed": "ds.json",
        "template": "llama3",
        "cutoff_len": 4096,
        "per_device_train_batch_size": draw.of(1, 2),
        "gradient_accumulation_steps": draw.of(2, 4, 8),
        "bf16": True,
    }
    return Sample(
        {"run.yaml": document, "ds.json": _deepspeed(draw)},
        draw.of(*CLUSTERS),
        given={"num_accelerators": draw.of(8, 16)},
    )


def trainer_line(draw: Draw) -> Sample:
    """A line in the manner of Hugging Face's Trainer with the JSON of DeepSpeed."""
    words = [
        f"--model_name_or_path {HUB} --deepspeed ds.json --bf16 True --model_max_length 4096",
        f"--per_device_train_batch_size {draw.of(1, 2)} --gradient_accumulation_steps {draw.of(2, 4, 8)}",
        f"--gradient_checkpointing {draw.of('True', 'False')} --output_dir out",
    ]
    line = f"torchrun --nproc_per_node 8 --nnodes {draw.of(1, 2)} train.py {_line(words)}\n"
    return Sample({"run.sh": line, "ds.json": _deepspeed(draw)}, draw.of(*CLUSTERS))


def trainer_file(draw: Draw) -> Sample:
    """A file of arguments for TRL, with a section of FSDP."""
    document = {
        "model_name_or_path": HUB,
        "max_length": 4096,
        "per_device_train_batch_size": draw.of(1, 2, 4),
        "gradient_accumulation_steps": draw.of(2, 4, 8),
        "gradient_checkpointing": draw.of(*EITHER),
        "learning_rate": 1e-5,
        "num_train_epochs": 1,
        "bf16": True,
        "fsdp": draw.of("full_shard auto_wrap", "shard_grad_op auto_wrap"),
        "fsdp_config": {"transformer_layer_cls_to_wrap": "LlamaDecoderLayer"},
    }
    return Sample({"run.yaml": document}, draw.of(*CLUSTERS), given={"num_accelerators": draw.of(8, 16, 32)})


def accelerate(draw: Draw) -> Sample:
    """Accelerate's file of FSDP behind a line."""
    config = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "FSDP",
        "mixed_precision": "bf16",
        "num_machines": 2,
        "num_processes": 16,
        "fsdp_config": {
            "fsdp_version": 2,
            "fsdp_reshard_after_forward": draw.of(*EITHER),
            "fsdp_activation_checkpointing": draw.of(*EITHER),
            "fsdp_offload_params": False,
        },
    }
    words = [
        f"--model_name_or_path {HUB} --max_seq_length 4096 --bf16 True",
        f"--per_device_train_batch_size {draw.of(1, 2)} --gradient_accumulation_steps {draw.of(2, 4)}",
    ]
    line = f"accelerate launch --config_file fsdp.yaml train.py {_line(words)}\n"
    return Sample({"run.sh": line, "fsdp.yaml": config}, draw.of(*CLUSTERS))


def olmo(draw: Draw) -> Sample:
    """A file of OLMo."""
    document = {
        "model": {"d_model": 4096, "n_heads": 32, "n_layers": 32, "mlp_ratio": 8, "max_sequence_length": 4096,
                  "vocab_size": 50280, "embedding_size": 50304, "block_type": "sequential", "activation_type": "swiglu",
                  "weight_tying": False},
        "optimizer": {"name": "adamw"},
        "device_train_microbatch_size": draw.of(1, 2),
        "global_train_batch_size": draw.of(256, 512),
        "precision": "amp_bf16",
        "fsdp": {"wrapping_strategy": "by_block", "sharding_strategy": draw.of("FULL_SHARD", "SHARD_GRAD_OP")},
    } | draw.of({}, {"activation_checkpointing": "whole_layer"})  # fmt: skip
    return Sample({"run.yaml": document}, draw.of(*CLUSTERS), given={"num_accelerators": draw.of(16, 32)})


def nanotron(draw: Draw) -> Sample:
    """A file of nanotron."""
    dp, tp, pp = draw.of((16, 1, 1), (8, 2, 1), (4, 2, 2))
    document = {
        "general": {"project": "a", "run": "b"},
        "model": {
            "dtype": "bfloat16",
            "model_config": {
                "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
                "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 4096,
                "tie_word_embeddings": False, "hidden_act": "silu", "is_llama_config": True,
            },
        },
        "optimizer": {"zero_stage": draw.of(0, 1), "optimizer_factory": {"name": "adamW"}},
        "parallelism": {"dp": dp, "tp": tp, "pp": pp, "expert_parallel_size": 1, "pp_engine": "1f1b",
                        "tp_mode": "REDUCE_SCATTER", "tp_linear_async_communication": False,
                        "recompute_layer": draw.of(*EITHER)},
        "tokens": {"micro_batch_size": draw.of(1, 2), "batch_accumulation_per_replica": draw.of(4, 8),
                   "sequence_length": 4096, "train_steps": 100},
        "tokenizer": {"tokenizer_name_or_path": "meta-llama/Llama-3.1-8B"},
    }  # fmt: skip
    return Sample({"run.yaml": document}, draw.of(*CLUSTERS))


def maxtext(draw: Draw) -> Sample:
    """A line of MaxText on GPUs."""
    words = [
        f"base_config=base.yml model_name=llama3.1-8b max_target_length=4096 per_device_batch_size={draw.of(1, 2)}",
        f"gradient_accumulation_steps={draw.of(1, 2)} remat_policy=full dtype=bfloat16 attention=cudnn_flash_te",
        f"ici_fsdp_parallelism=8 dcn_fsdp_parallelism=1 dcn_data_parallelism={draw.of(1, 2)} ici_tensor_parallelism=1",
    ]
    return Sample(
        {"run.sh": f"python3 -m MaxText.train configs/base.yml {_line(words)}\n"},
        draw.of(*CLUSTERS),
        given={"num_accelerators": 16},
    )


OF_SCRIPT: Final = {"sequence_length": 4096, "recompute": "full"}
"""What the JSON of DeepSpeed leaves to the script."""


def deepspeed_file(draw: Draw) -> Sample:
    """The JSON of DeepSpeed alone."""
    document = {
        "train_batch_size": draw.of(128, 256),
        "train_micro_batch_size_per_gpu": draw.of(1, 2),
        "zero_optimization": {"stage": draw.of(1, 2, 3)},
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW"},
    }
    return Sample(
        {"ds.json": document}, draw.of(*CLUSTERS), OF_SCRIPT | {"num_accelerators": draw.of(16, 32)}, "llama-3.1-8b"
    )


def neox(draw: Draw) -> Sample:
    """A file of GPT-NeoX."""
    document = {
        "pipe_parallel_size": draw.of(1, 2), "model_parallel_size": draw.of(1, 2, 4), "num_layers": 32,
        "hidden_size": 4096, "num_attention_heads": 32, "seq_length": 2048, "max_position_embeddings": 2048,
        "train_micro_batch_size_per_gpu": draw.of(1, 2), "gradient_accumulation_steps": draw.of(4, 8),
        "zero_optimization": {"stage": 1}, "checkpoint_activations": True, "checkpoint_num_layers": 1,
        "precision": "bfloat16", "bf16": {"enabled": True}, "optimizer": {"type": "Adam"},
        "tokenizer_type": "HFTokenizer",
        "make_vocab_size_divisible_by": 128, "attention_config": [[["flash"], 32]], "pos_emb": "rotary",
        "padded_vocab_size": 50432, "vocab_size": 50432, "no_weight_tying": True,
    }  # fmt: skip
    return Sample(
        {"run.yml": document}, draw.of(*CLUSTERS), given={"vocab_size": 50432, "num_accelerators": draw.of(16, 32)}
    )


def torchtune(draw: Draw) -> Sample:
    """A recipe of torchtune on one process or several."""
    document = {
        "model": {"_component_": "torchtune.models.llama3_1.llama3_1_8b"},
        "tokenizer": {"_component_": "torchtune.models.llama3.llama3_tokenizer", "max_seq_len": 4096},
        "checkpointer": {"_component_": "torchtune.training.FullModelHFCheckpointer"},
        "optimizer": {"_component_": "torch.optim.AdamW"},
        "batch_size": draw.of(1, 2),
        "gradient_accumulation_steps": draw.of(1, 4),
        "dtype": "bf16",
        "enable_activation_checkpointing": True,
    }
    return Sample(
        {"run.yaml": document}, draw.of(*CLUSTERS), given={"num_accelerators": draw.of(4, 8)}, model="llama-3.1-8b"
    )


def lingua(draw: Draw) -> Sample:
    """A file of lingua."""
    document = {
        "distributed": {"fsdp_type": draw.of("full_shard", "no_shard"), "model_dtype": "bf16", "compile": True,
                        "selective_activation_checkpointing": draw.of(*EITHER), "tp_size": draw.of(1, 2)},
        "model": {"dim": 2048, "n_layers": 25, "n_heads": 16, "vocab_size": 128256},
        "data": {"seq_len": 4096, "batch_size": draw.of(1, 2, 4)},
        "grad_acc_steps": draw.of(1, 4),
    }  # fmt: skip
    return Sample({"run.yaml": document}, draw.of(*CLUSTERS), given={"num_accelerators": 16})


def llm_foundry(draw: Draw) -> Sample:
    """A file of llm-foundry."""
    document = {
        "max_seq_len": 2048,
        "model": {"name": "mpt_causal_lm", "d_model": 4096, "n_heads": 32, "n_layers": 32, "expansion_ratio": 4,
                  "max_seq_len": 2048, "vocab_size": 50432},
        "optimizer": {"name": "decoupled_adamw"},
        "max_duration": "10ba",
        "global_train_batch_size": draw.of(128, 256),
        "device_train_microbatch_size": draw.of(1, 2),
        "precision": "amp_bf16",
        "fsdp_config": {"sharding_strategy": draw.of("FULL_SHARD", "SHARD_GRAD_OP"), "mixed_precision": "PURE",
                        "activation_checkpointing": draw.of(*EITHER)},
    }  # fmt: skip
    return Sample({"run.yaml": document}, draw.of(*CLUSTERS), given={"num_accelerators": 16})


def levanter(draw: Draw) -> Sample:
    """A file of levanter."""
    document = {
        "model": {"type": "llama", "seq_len": 4096, "hidden_dim": 4096, "intermediate_dim": 11008, "num_layers": 32,
                  "num_heads": 32, "num_kv_heads": 32, "gradient_checkpointing": draw.of(*EITHER)},
        "trainer": {"mp": "p=f32,c=bfloat16", "train_batch_size": draw.of(256, 512), "num_train_steps": 100,
                    "per_device_parallelism": draw.of(1, 2), "tracker": {"type": "wandb"}},
        "optimizer": {"learning_rate": 1e-4},
    }  # fmt: skip
    return Sample({"run.yaml": document}, draw.of(*CLUSTERS), given={"num_accelerators": 16, "vocab_size": 32000})


def fms_fsdp(draw: Draw) -> Sample:
    """A line of fms-fsdp."""
    words = [
        f"--model_variant=llama3_8b --seq_length=4096 --batch_size={draw.of(1, 2)} --sharding_strategy=fsdp",
        f"--fsdp_activation_checkpointing={draw.of(*EITHER)} --mixed_precision=True --vocab_size=128256",
    ]
    line = f"torchrun --nproc_per_node 8 --nnodes 2 main_training_llama.py {_line(words)}\n"
    return Sample({"run.sh": line}, draw.of(*CLUSTERS), given={"sharding_degree": 16}, model="llama-3.1-8b")


def megatron_test_case(draw: Draw) -> Sample:
    """A test case of Megatron-LM: options of a line as keys of a document."""
    document = {
        "ENV_VARS": {"CUDA_DEVICE_MAX_CONNECTIONS": 1},
        "MODEL_ARGS": {
            "--num-layers": 32, "--hidden-size": 4096, "--num-attention-heads": 32, "--seq-length": 4096,
            "--max-position-embeddings": 4096, "--micro-batch-size": draw.of(1, 2), "--global-batch-size": 128,
            "--tensor-model-parallel-size": draw.of(2, 4), "--pipeline-model-parallel-size": draw.of(1, 2),
            "--bf16": True, "--use-distributed-optimizer": True, "--recompute-activations": True,
        },
    }  # fmt: skip
    return Sample(
        {"model_config.yaml": document}, draw.of(*CLUSTERS), given={"num_accelerators": 16, "vocab_size": 32000}
    )


def nemo(draw: Draw) -> Sample:
    """A file of NeMo 1."""
    document = {
        "trainer": {"num_nodes": 2, "devices": 8, "precision": "bf16"},
        "model": {
            "micro_batch_size": draw.of(1, 2), "global_batch_size": draw.of(256, 512),
            "tensor_model_parallel_size": draw.of(2, 4), "pipeline_model_parallel_size": draw.of(1, 2),
            "encoder_seq_length": 4096, "num_layers": 32, "hidden_size": 4096, "ffn_hidden_size": 11008,
            "num_attention_heads": 32, "override_vocab_size": 32000, "activation": "fast-swiglu",
            "normalization": "rmsnorm", "bias": False, "position_embedding_type": "rope",
            "share_embeddings_and_output_weights": False, "optim": {"name": "mcore_distributed_optim"},
        },
    }  # fmt: skip
    return Sample({"model.yaml": document}, draw.of(*CLUSTERS))


def flagscale(draw: Draw) -> Sample:
    """An experiment of FlagScale with the file of its training."""
    training = {
        "system": {"tensor_model_parallel_size": draw.of(2, 4), "precision": {"bf16": True},
                   "recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1},
        "model": {"num_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "seq_length": 2048,
                  "micro_batch_size": draw.of(1, 2), "global_batch_size": draw.of(64, 128)},
        "data": {"tokenizer": {"vocab_size": 32000}},
    }  # fmt: skip
    runner = {"task": {"backend": "megatron"}, "runner": {"nnodes": 2, "nproc_per_node": 8}}
    document = {"defaults": [{"train": "a"}, "_self_"], "experiment": runner}
    return Sample({"run.yaml": document, "train/a.yaml": training}, draw.of(*CLUSTERS))


STYLES: Final[tuple[Callable[[Draw], Sample], ...]] = (
    megatron, megatron_batch_left_out, megatron_equals, megatron_epfl, megatron_deepspeed, swift, torchtitan_toml,
    torchtitan_before, torchtitan_line, axolotl, axolotl_experts, llama_factory, trainer_line, trainer_file,
    accelerate, olmo, nanotron, maxtext, deepspeed_file, neox, torchtune, lingua, llm_foundry,
    levanter, fms_fsdp, megatron_test_case, nemo, flagscale,
)  # fmt: skip


def samples(number: int) -> Iterator[tuple[str, Sample]]:
    """Samples of all styles in turn."""
    for seed in range(number):
        style = STYLES[seed % len(STYLES)]
        yield f"{seed} {style.__name__}", style(Draw(seed))


def exports() -> Iterator[tuple[str, Sample]]:
    """The launch files of every exporter, of small clusters."""
    for name, launch in LAUNCHES.items():
        if launch.num_accelerators <= 64:
            files = launch.export().files.items()
            read = {file: text if file.endswith((".sh", ".py")) else yaml.safe_load(text) for file, text in files}
            yield f"export of {name}", Sample(read, launch.cluster, OF_NO_FILE, launch.model)


OF_NO_FILE: Final = {"precision": "bf16", "optimizer": "adam"}
"""What a configuration in Python that is to be written would say."""


def _line(words: Sequence[str]) -> str:
    return " ".join(word for word in words if word)
