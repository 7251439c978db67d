"""Exports as the frameworks' own code reads them, without accelerators: ``pytest -m frameworks``.

Each framework is checked where it is installed; ``requirements-megatron.txt`` and ``requirements-torch.txt`` next to
this file name what that takes. The plain tests do without.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.launch.export.cases import LAUNCHES
from tests.launch.export.launched import Launched, launched
from tests.launch.export.parsers import READERS, expected, import_or_skip, understood
from tests.launch.export.runnable import Runnable, varied

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore")]


def _names(to: str, version: str | None = None) -> list[str]:
    return [name for name, each in LAUNCHES.items() if each.to == to and each.version == version]


FILLED = {"NORM_EPSILON=FILL_IN": "NORM_EPSILON=1e-5"}
"""What a user puts in the places to fill in that Megatron-LM reads."""


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


def _is_main() -> bool:
    """Whether torchtitan is the one of main, which counts a batch in tokens."""
    return hasattr(pytest.importorskip("torchtitan.config").TrainingConfig, "max_context_length")


def _is_open(found: Runnable) -> bool:
    """Whether a user names a configuration of their own, since the framework has no layers like the model's."""
    return any(each.startswith("the model:") for each in found.export().not_expressed)


@pytest.mark.parametrize("name", [name for name, each in LAUNCHES.items() if each.to in READERS])
def test_what_a_framework_makes_of_an_export(name: str, tmp_path: Path) -> None:
    launch = LAUNCHES[name]
    import_or_skip(launch.to)
    if launch.to == "torchtitan" and _is_main() is (launch.version == "0.3.0"):
        pytest.skip("the exports of another version")
    found = Runnable.of(launch)
    if _is_open(found):
        pytest.skip("a configuration of one's own")
    read, planned = understood(found, tmp_path), expected(found)
    assert read == {each: planned[each] for each in read}


@pytest.mark.parametrize("to", READERS)
def test_what_a_framework_makes_of_varied_plans(to: str, tmp_path: Path) -> None:
    """Each is accepted and means the plan; models that need a configuration of one's own are left out."""
    import_or_skip(to)
    version = None if to != "torchtitan" or _is_main() else "0.3.0"
    wrong = []
    for at, found in enumerate(varied(to, version, 60)):
        if _is_open(found):
            continue
        planned = expected(found)
        (tmp_path / str(at)).mkdir()
        try:
            read = understood(found, tmp_path / str(at))
        except (Exception, SystemExit) as error:  # noqa: BLE001  # whatever a framework raises is what is looked for
            wrong.append((at, repr(error)[:300]))
        else:
            unlike = {each: (read[each], planned[each]) for each in read if read[each] != planned[each]}
            wrong += [(at, f"read and planned: {unlike}")] if unlike else []
    assert wrong == []
