"""Megatron-LM: what a person reads in these scripts, and what they leave open."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.launch.scripts import MEGATRON, read, values

from shardplan.base.errors import InputError
from shardplan.launch.dialects.megatron_core.megatron_stages import layer_pattern, pipeline_layout
from shardplan.launch.dialects.models import model_of

pytest.importorskip("tree_sitter_bash")

ENDS = "--decoder-first-pipeline-num-layers=2 --decoder-last-pipeline-num-layers 2"
ROOM = "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"
SMALL = (
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 12 --hidden-size 768 --num-attention-heads 12 "
    "--seq-length 1024 --max-position-embeddings 1024 --micro-batch-size 2 --vocab-size 50257 "
)


def test_a_script_of_variables_arrays_and_arithmetic(tmp_path: Path) -> None:
    found = read(tmp_path, "launch.sh", MEGATRON)
    assert found.framework == "megatron-lm"
    assert values(found, "num_accelerators", "tp", "pp", "vp", "cp", "dp") == (32, 4, 2, 4, 1, 4)
    assert values(found, "micro_batch_size", "global_batch_size", "gradient_accumulation") == (1, 128, 32)
    assert values(found, "sharding", "precision", "recompute") == ("zero1", "bf16", "layernorm,core_attn")
    assert not found.missing
    assert not found.not_understood
    assert found.facts["tp"].why.startswith("launch.sh:")
    assert not [each for each in found.breaks if each.severity == "stops"]


def test_its_model_has_the_parameters_of_llama_3_8b(tmp_path: Path) -> None:
    model = model_of(read(tmp_path, "launch.sh", MEGATRON))
    assert model is not None
    assert model.num_parameters == 8_030_261_248  # published


def test_environment_variables_decide(tmp_path: Path) -> None:
    found = read(tmp_path, "launch.sh", MEGATRON, env={"SLURM_NNODES": "8", "TP": "8"})
    assert values(found, "num_accelerators", "tp", "dp", "global_batch_size") == (64, 8, 4, 256)


def test_defaults_are_assumed_with_a_reason(tmp_path: Path) -> None:
    found = read(tmp_path, "run.sh", SMALL)
    assert values(found, "intermediate_size", "num_key_value_heads") == (3072, 12)  # 4 h; as many as heads
    assert values(found, "precision", "sharding", "recompute", "dropout") == ("fp32", "ddp", "none", True)
    assert {"intermediate_size", "precision", "sharding", "global_batch_size"} <= set(found.assumed)
    assert found.value("global_batch_size") == 16  # micro-batch 2 x dp 8
    assert "--bf16" in found.assumed["precision"][1]


def test_swiglu_and_groups(tmp_path: Path) -> None:
    found = read(tmp_path, "run.sh", SMALL + "--swiglu --num-query-groups 4")
    assert found.value("intermediate_size") == 2048  # 8 x 768 / 3, in whole 64s
    assert found.value("num_key_value_heads") == 12  # groups alone do nothing
    assert [each.rule for each in found.breaks if each.severity == "changes"] == ["query groups need grouped attention"]


def test_the_last_of_equal_options_counts(tmp_path: Path) -> None:
    found = read(tmp_path, "run.sh", SMALL + "--micro-batch-size 4 --hidden-size=768")
    assert found.value("micro_batch_size") == 4
    assert [each.rule for each in found.breaks] == ["an option is given once"]


def test_what_is_open_is_asked_for_and_has_no_default(tmp_path: Path) -> None:
    found = read(
        tmp_path, "run.sh", SMALL + '--tensor-model-parallel-size $TP --num-experts 8 --recompute-granularity "$R"'
    )
    assert found.missing["tp"] == ("env:TP",)
    assert found.missing["recompute"] == ("env:R",)
    assert found.missing["etp"] == ("env:TP",)  # follows tp
    assert {"tp", "recompute", "etp", "dp"}.isdisjoint(found.facts)


def test_sequence_parallelism_without_tensor_parallelism_is_switched_off(tmp_path: Path) -> None:
    found = read(tmp_path, "run.sh", SMALL + "--sequence-parallel")
    assert [each.severity for each in found.breaks] == ["changes"]


@pytest.mark.parametrize(
    ("options", "vp", "layers"),
    [
        ("--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 3", 3, None),
        ("--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2", 3, None),
        (
            f"--pipeline-model-parallel-size 4 {ENDS}",
            1,
            (2, 4, 4, 2),
        ),
        ("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et*3|(t*4|)*2tL'", 2, (3, 4, 4, 1)),
        ("--pipeline-model-parallel-size 2 --hybrid-layer-pattern 'M-M|*-|M-E|M-M*/*E'", 2, (3, 2, 3, 4)),
        (
            f"--pipeline-model-parallel-size 2 --num-layers 6 {ROOM}",
            1,
            (3, 3),
        ),
    ],
)
def test_stages(tmp_path: Path, options: str, vp: int, layers: tuple[int, ...] | None) -> None:
    found = read(tmp_path, "run.sh", SMALL + options)
    assert values(found, "vp", "stage_layers") == (vp, layers)


def test_twelve_layers_do_not_divide_into_eight_stages(tmp_path: Path) -> None:
    found = read(tmp_path, "run.sh", SMALL + "--pipeline-model-parallel-size 8")
    assert [each.rule for each in found.breaks if each.severity == "stops"] == ["layers divide into equal stages"]


@pytest.mark.parametrize(
    ("options", "sharding"),
    [
        ("--use-megatron-fsdp", "zero3"),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads --use-distributed-optimizer", "zero2"),
        ("--use-torch-fsdp2", "zero3"),
        ("--use-distributed-optimizer", "zero1"),
        ("", "ddp"),
    ],
)
def test_sharding(tmp_path: Path, options: str, sharding: str) -> None:
    assert read(tmp_path, "run.sh", SMALL + options).value("sharding") == sharding


@pytest.mark.parametrize(
    ("options", "precision"),
    [
        ("--bf16", "bf16"),
        ("--fp16", "fp16"),
        ("--bf16 --fp8-format hybrid", "fp8"),
        ("--bf16 --fp8-format e4m3 --fp8-recipe mxfp8", "mxfp8"),
        ("--bf16 --fp4-format e2m1", "nvfp4"),
    ],
)
def test_precision(tmp_path: Path, options: str, precision: str) -> None:
    assert read(tmp_path, "run.sh", SMALL + options).value("precision") == precision


@pytest.mark.parametrize(
    ("options", "graphs"),
    [
        ("", "none"),
        ("--cuda-graph-impl transformer_engine", "partial"),
        ("--cuda-graph-impl transformer_engine --cuda-graph-scope attn moe_router moe_preprocess", "partial"),
        ("--cuda-graph-impl transformer_engine --cuda-graph-scope moe_router moe_preprocess", "router"),
        ("--cuda-graph-impl local --cuda-graph-scope full_iteration", "full"),
        ("--cuda-graph-impl full_iteration", "full"),
        ("--cuda-graph-impl none --cuda-graph-scope moe_router", "none"),
        ("--enable-cuda-graph", "partial"),
        ("--external-cuda-graph --cuda-graph-scope moe_router", "router"),
    ],
)
def test_graphs(tmp_path: Path, options: str, graphs: str) -> None:
    assert read(tmp_path, "run.sh", SMALL + options).value("software.cuda_graphs") == graphs


def test_a_map_of_test_arguments(tmp_path: Path) -> None:
    text = """
    ENV_VARS: {CUDA_DEVICE_MAX_CONNECTIONS: 1}
    MODEL_ARGS:
      --num-layers: 12
      --hidden-size: 512
      --num-attention-heads: 8
      --micro-batch-size: 4
      --global-batch-size: 32
      --seq-length: 1024
      --pipeline-model-parallel-size: 4
      --bf16: true
      --sequence-parallel: false
    """
    found = read(tmp_path, "case.yaml", text)
    assert values(found, "num_hidden_layers", "pp", "precision", "sequence_parallel") == (12, 4, "bf16", False)
    assert "num_accelerators" in found.missing


def test_a_program_inside_the_text_of_a_shell(tmp_path: Path) -> None:
    text = f"#SBATCH --nodes=2 --ntasks-per-node=8\nsrun sh -c 'python -u {SMALL.partition('8 ')[2]} --fp16'"
    found = read(tmp_path, "run.sh", "#!/bin/bash\n" + text)
    assert values(found, "num_accelerators", "precision", "num_hidden_layers") == (16, "fp16", 12)


def test_a_fragment_has_no_launch_line(tmp_path: Path) -> None:
    text = 'ARGS="--num-layers 12 --hidden-size 768 --num-attention-heads 12 {more}"'
    found = read(tmp_path, "model.sh", text.format(more="--swiglu --normalization RMSNorm"))
    assert values(found, "num_hidden_layers", "hidden_size") == (12, 768)
    assert "num_accelerators" in found.missing
    with pytest.raises(InputError, match="without a launch that is understood"):  # others have these three too
        read(tmp_path, "own.sh", text.format(more="--inner-hidden-size 3072"))


def test_patterns() -> None:
    assert layer_pattern("([0]*1+[1]*2)*2") == (0, 1, 1, 0, 1, 1)
    assert layer_pattern("2") == 2
    for hostile in ("__import__('os')", "[1]*10**9", "[" * 1000, "", "[0]*-1", "1.5"):
        assert layer_pattern(hostile) is None
    assert pipeline_layout("Ett|t*2,m|L") == (2, 2, 0)
    assert pipeline_layout("E" + "(t*9999|)*9999" * 9) is None
