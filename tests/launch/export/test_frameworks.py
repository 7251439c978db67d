"""Exports as the frameworks' own code reads them, without accelerators: ``pytest -m frameworks``.

Each framework is checked where it is installed; ``requirements-megatron.txt`` and ``requirements-torch.txt`` next to
this file name what that takes. The plain tests do without.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.launch.export.cases import LAUNCHES
from tests.launch.export.launched import Launched, launched

from shardplan import load_model

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore")]


def _names(to: str, version: str | None = None) -> list[str]:
    return [name for name, each in LAUNCHES.items() if each.to == to and each.version == version]


FILLED = {
    "NORM_EPSILON=FILL_IN": "NORM_EPSILON=1e-5",
    "MODULE=your_package": "MODULE=deepseek_v3",
    "CONFIG=your_configuration": "CONFIG=deepseek_v3_671b",
}
"""What a user puts in the places to fill in that a framework reads: numbers, and a configuration that it knows."""


def _launched(name: str, folder: Path) -> Launched:
    """What the export of a case runs once its places are filled in."""
    files = dict(LAUNCHES[name].export().files)
    for place, value in FILLED.items():
        files = {file: text.replace(place, value) for file, text in files.items()}
    return launched(files, folder)


@pytest.mark.parametrize("name", _names("megatron-lm"))
def test_megatron_lm(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parser, its checks of arguments, and the TransformerConfig that they make."""
    arguments = pytest.importorskip("megatron.training.arguments")
    launch, found = LAUNCHES[name], _launched(name, tmp_path)
    _without_accelerators(monkeypatch, arguments, is_blackwell="b200" in launch.cluster)
    _given(monkeypatch, found, launch.num_accelerators)
    monkeypatch.setattr(sys, "argv", ["pretrain_gpt.py", *found.after("pretrain_gpt.py")])
    parsed = arguments.parse_args()
    arguments.validate_args(parsed)
    config = arguments.core_transformer_config_from_args(parsed)
    _check_megatron(name, parsed, config)


def _check_megatron(name: str, parsed: Any, config: Any) -> None:
    """What Megatron made of it is the plan."""
    launch, (job, plan) = LAUNCHES[name], LAUNCHES[name].question()
    assert parsed.data_parallel_size == plan.dp(launch.num_accelerators)
    assert parsed.global_batch_size == job.global_batch_size
    assert (parsed.virtual_pipeline_model_parallel_size or 1) == plan.vp
    assert not config.num_moe_experts or parsed.expert_tensor_parallel_size == plan.etp
    assert config.tensor_model_parallel_size == plan.tp
    assert config.pipeline_model_parallel_size == plan.pp
    assert config.expert_model_parallel_size == plan.ep


def _without_accelerators(monkeypatch: pytest.MonkeyPatch, arguments: Any, *, is_blackwell: bool) -> None:
    """Lets Megatron believe in an accelerator and in Transformer Engine, which need one to be installed."""
    import torch  # type: ignore[import-not-found,unused-ignore]
    from megatron.core import utils  # type: ignore[import-not-found,unused-ignore]  # an optional job
    from megatron.core.models.common.embeddings import (  # type: ignore[import-not-found,unused-ignore]
        rope_utils,
    )
    from packaging.version import Version

    major = 10 if is_blackwell else 9
    monkeypatch.setattr(arguments, "get_device_arch_version", lambda: major)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (major, 0))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda *_: SimpleNamespace(major=major, minor=0))
    monkeypatch.setattr(utils, "_te_version", Version("2.13.0"))
    for fused in ("fused_apply_rotary_pos_emb", "fused_apply_rotary_pos_emb_thd"):
        monkeypatch.setattr(rope_utils, fused, lambda *_: None)


def _given(monkeypatch: pytest.MonkeyPatch, found: Launched, num_accelerators: int) -> None:
    """The environment of the script in place of ours."""
    for name in ("CUDA_DEVICE_MAX_CONNECTIONS", "NVTE_CPU_OFFLOAD_V1"):
        monkeypatch.delenv(name, raising=False)
        if name in found.environment:
            monkeypatch.setenv(name, found.environment[name])
    for name, value in (("WORLD_SIZE", str(num_accelerators)), ("RANK", "0"), ("LOCAL_RANK", "0")):
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("name", _names("torchtitan", "0.3.0"))
def test_torchtitan(name: str, tmp_path: Path) -> None:
    """Its ConfigManager, and the mesh of its ParallelDims."""
    config = pytest.importorskip("torchtitan.config")
    from torchtitan.distributed import ParallelDims  # type: ignore[import-not-found,unused-ignore]  # an optional job

    launch, found = LAUNCHES[name], _launched(name, tmp_path)
    parsed = config.ConfigManager().parse_args(list(found.after("torchtitan.train")))
    job, plan = launch.question()
    given = parsed.parallelism
    dims = ParallelDims(
        dp_replicate=given.data_parallel_replicate_degree,
        dp_shard=given.data_parallel_shard_degree,
        cp=given.context_parallel_degree,
        tp=given.tensor_parallel_degree,
        pp=given.pipeline_parallel_degree,
        ep=given.expert_parallel_degree,
        world_size=launch.num_accelerators,
    )
    assert (given.tensor_parallel_degree, given.pipeline_parallel_degree) == (plan.tp, plan.pp)
    if plan.pp > 1:
        from torchtitan.distributed.pipeline_parallel import (  # type: ignore[import-not-found,unused-ignore]
            _get_pipeline_metadata,
        )

        stages, *_ = _get_pipeline_metadata(dims, given, parsed.model_spec.model)
        assert stages == plan.pp * plan.vp
    assert (parsed.training.seq_len, parsed.training.global_batch_size) == (job.sequence_length, job.global_batch_size)


@pytest.mark.parametrize("name", _names("deepspeed"))
def test_deepspeed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its DeepSpeedConfig, which checks the product of batch and ranks and refuses unknown keys of ZeRO."""
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    runtime = pytest.importorskip("deepspeed.runtime.config")
    launch = LAUNCHES[name]
    job, plan = launch.question()
    document = json.loads(launch.export().files["launch.json"])
    ranks = plan.dp(launch.num_accelerators)
    monkeypatch.setattr(runtime.dist, "get_rank", lambda *_: 0)
    ours = SimpleNamespace(get_data_parallel_world_size=lambda: ranks)
    parsed = runtime.DeepSpeedConfig(_without_auto(document), mpu=ours)
    assert parsed.train_batch_size == job.global_batch_size
    assert parsed.zero_config.stage == {"ddp": 0, "zero1": 1, "zero2": 2}.get(plan.sharding, 3)


def _without_auto(document: Mapping[str, Any]) -> dict[str, Any]:
    """The file as the Trainer of transformers leaves it."""
    made = {name: value for name, value in document.items() if value != "auto"}
    return {name: _without_auto(value) if isinstance(value, dict) else value for name, value in made.items()}


@pytest.mark.parametrize("name", _names("accelerate"))
def test_accelerate(name: str, tmp_path: Path) -> None:
    """Its reader of files, its launcher's names, and its ParallelismConfig."""
    args = pytest.importorskip("accelerate.commands.config.config_args")
    from accelerate.commands.launch import (  # type: ignore[import-not-found,unused-ignore]  # an optional job
        launch_command_parser,
    )
    from accelerate.parallelism_config import (  # type: ignore[import-not-found,unused-ignore]
        ParallelismConfig,
    )

    launch = LAUNCHES[name]
    text = launch.export().files["launch.yaml"]
    (tmp_path / "launch.yaml").write_text(text)
    parsed = args.load_config_from_file(str(tmp_path / "launch.yaml"))
    assert parsed.num_processes == launch.num_accelerators
    known = {option for action in launch_command_parser()._actions for option in action.option_strings}
    named = {*parsed.fsdp_config, *parsed.parallelism_config}
    assert {f"--{each}" for each in named} <= known
    sizes = {each.removeprefix("parallelism_config_"): size for each, size in parsed.parallelism_config.items()}
    if sizes:
        degrees = {each: size for each, size in sizes.items() if each.endswith("_size")}
        assert ParallelismConfig(**degrees).total_size == launch.num_accelerators


@pytest.mark.parametrize("name", _names("maxtext"))
def test_maxtext(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pyconfig, with a compile-time topology for accelerators: slices of an A3, a v5p, or two pods of v5e."""
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    pyconfig = pytest.importorskip("maxtext.configs.pyconfig")
    launch, found = LAUNCHES[name], _launched(name, tmp_path)
    base = Path(pyconfig.__file__).parent / "base.yml"
    of_tpu = ("compile_topology=v5p-128", "compile_topology_num_slices=1")
    of_pods = ("compile_topology=v5e-256", "compile_topology_num_slices=2")
    of_gpu = ("compile_topology=a3", "compile_topology_num_slices=8")
    topology = {"tpu-v5p-pod": of_tpu, "tpu-v5e-pod": of_pods}.get(launch.cluster, of_gpu)
    parsed = pyconfig.initialize(["", str(base), *found.after("base.yml"), *topology, "enable_checkpointing=false"])
    job, _ = launch.question()
    assert parsed.global_batch_size_to_train_on == job.global_batch_size
    assert parsed.emb_dim == load_model(launch.model).hidden_size
