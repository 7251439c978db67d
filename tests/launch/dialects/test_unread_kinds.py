"""Kinds of launch files that are named and not read, and switches that records write without a value."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.launch.scripts import read

from shardplan.base.errors import InputError
from shardplan.launch.dialects.megatron_core.megatron_options import BARE

pytest.importorskip("tree_sitter_bash")

FLAGSCALE = "system: {tensor_model_parallel_size: 1}\nmodel: {num_layers: 12, hidden_size: 768, micro_batch_size: 2}\n"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("model: {target_model_path: Qwen/Qwen3-8B, draft_model_config: d.json}", "SpecForge"),
        ("off_by_n: 1\ngroup_size: 8\ntrainer: {model: x}", "torchforge"),
        ("loss_functions: [{function: kl}]\nsequence_length: 16384", "DistillKit"),
        ("compute: {gpus: 8}\ncommand: composer train.py", "mcli"),
        ("train_module: {optim: {lr: 0.1}}\ndata_loader: {global_batch_size: 1024}", "OLMo-core"),
        ("verification_environment: {bridge_commit: abc}\nmodel: m", "verification cards"),
        ("transformer_architecture: {num_layers: 8}\ntopology: {model_parallel_size: 2}", "Scaling"),
        ("_wandb: {value: {cli_version: 0.16}}\nlr: {value: 0.1}", "record of a run"),
        ("finetune: {rl: {kl_coef: 0.1}}\nvllm_config: {vllm_kwargs: {}}", "PipelineRL"),
        ("cluster: {component_placement: {actor: 0-7}}\nactor: {model: m}", "RLinf"),
        ("train_cfgs: {ds_cfgs: ds.json}\nmodel_cfgs: {model_name_or_path: m}", "align-anything"),
        (
            "model_id_or_path: m\nlora: {rank: 64}\noptim: {lr: 1e-5, pct_start: 0.05}",
            "mistral-finetune",
        ),
        ("distributed: {tp_size: 2, pp_size: 2, pp_engine: 1f1b}\nmodel: {name: m}", "picotron"),
        ("rl_or_sft: rl\nmodel: {base_model: m}\noptimization: {actor_lr: 1e-6}", "RAGEN"),
        ("rollout_worker: {type: simple}\nservice: {train_service: {backend: x}}", "NexRL"),
    ],
)
def test_a_refusal_names_what_was_seen(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(InputError, match=named):
        read(tmp_path, "a.yaml", text)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("colossalai run --nproc_per_node 8 train.py --config gpt.py", "ColossalAI"),
        ("torchrun --nproc_per_node 8 train_fsdp2.py --model-id x", "FSDP2"),
        ("torchrun --nproc_per_node 8 picotron/train.py --config c.json", "picotron"),
        ("python launcher_scripts/main.py training=gpt3/5b stages=[training]", "NeMo launcher"),
        ("python benchmarks/benchmark_runner.py xpk --model_name=m", "benchmark runner"),
        ("python -m src.maxdiffusion.train_wan wan.yml per_device_batch_size=1", "MaxDiffusion"),
        ("torchrun --nproc_per_node 8 chatlearn_entrypoint.py --config rl.yaml", "ChatLearn"),
        ("NPROC_PER_NODE=8 xtuner train internlm2_7b_full_custom_e1 --deepspeed deepspeed_zero3", "xtuner"),
        ("python -m skyrl.train.main_sft trainer.micro_batch=1", "SkyRL"),
        ("torchrun --nproc_per_node 8 posttrain_gpt.py --num-layers 8 --hidden-size 512 --stage sft", "MindSpeed"),
        ("lightning run model --devices 8 pretrain/tinyllama.py --train_data_dir d", "TinyLlama"),
        ("torchrun --nproc_per_node 8 -m flame.train --training.batch_size 32 --training.seq_len 2048", "flame"),
    ],
)
def test_a_line_of_a_trainer_that_is_not_read_is_refused_by_its_name(tmp_path: Path, line: str, named: str) -> None:
    with pytest.raises(InputError, match=named):
        read(tmp_path, "run.sh", line)


def test_layers_of_another_kind_under_flagscale_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "rwkv").mkdir()
    assert "layers of another kind" in read(tmp_path / "rwkv", "7b.yaml", FLAGSCALE).missing["model"][0]
    assert "layers of another kind" not in str(read(tmp_path, "7b.yaml", FLAGSCALE).missing.get("model"))


def test_switches_are_those_that_records_write_without_a_value() -> None:
    assert {"moe-paged-stash", "cpu-optimizer", "sequence-parallel"} <= BARE
    assert BARE.isdisjoint({"cpu-offloading-num-layers", "tensor-model-parallel-size"})
