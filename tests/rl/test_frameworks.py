"""Exports of RL steps as the frameworks' own parsers read them: ``pytest -m frameworks``.

Each framework is checked where it is found; ``tests/launch/export/requirements-rl.txt`` says how. None of them is
imported: hydra composes verl's configurations, NeMo RL's own function loads its files, and slime's own parser reads the
options that are not Megatron's.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec, spec_from_file_location, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple
from unittest.mock import MagicMock, patch

import pytest
import yaml
from tests.cli.commands import answer
from tests.launch.export.launched import launched

from shardplan.base.errors import InputError
from shardplan.rl.launches.export import export_rl

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore")]

SMALL: Final = ("--prompts", "64", "--samples", "8", "--prompt-tokens", "200", "--response-tokens", "mean=500,max=1500")
FIX: Final = ("--fix", "train.micro_batch_size=1", "--limit", "cp=1")
STEPS: Final[Mapping[str, tuple[str, ...]]] = {
    "small": ("llama-3.2-1b", "--gpus", "16", "--updates", "2", "--fix", "train.sharding=zero1", "--limit", "pp=1,2"),
    "selective": (
        *("qwen3-8b", "--gpus", "24", "--fix", "train.sharding=zero1", "--fix", "train.recompute=selective"),
        *("--fix", "train.tp=2", "--fix", "rollout.tp=4"),
    ),
    "experts": ("qwen3-30b-a3b", "--gpus", "32", "--fix", "train.sharding=zero1", "--fix", "train.recompute=full"),
    "sharded": (
        *("llama-3.2-1b", "--gpus", "16", "--fix", "train.sharding=zero3", "--fix", "train.recompute=full"),
        *("--old-pass", "no", "--rollout-precision", "fp8"),
    ),
    "pipeline": ("qwen3-8b", "--gpus", "32", "--fix", "train.sharding=zero1", "--fix", "train.pp=2", "--updates", "4"),
}
CASES: Final = [(name, place) for name in STEPS for place in range(5)]


class Read(NamedTuple):
    """What a framework understood of both pools."""

    train: int
    """Accelerators that train; of one pool, all."""
    generate: int
    tp: int
    pp: int
    rollout_tp: int
    prompts: int
    samples: int
    updates: int
    longest: int


@cache
def record(name: str) -> dict[str, Any]:
    found: dict[str, Any] = answer("rl", *STEPS[name], "--cluster", "dgx-h100", *SMALL, *FIX)
    return found


def exported(name: str, place: int, to: str, folder: Path) -> tuple[dict[str, str], Read]:
    """The files of a plan, and the plan in the facts that are read; skips what the framework does not run."""
    found = record(name)
    (folder / "rl.json").write_text(json.dumps(found))
    try:
        made = export_rl(folder / "rl.json", to, place + 1)
    except InputError as error:
        pytest.skip(error.message)
    row, rl = found["plans"][place], found["rl"]
    plan = row["plan"]["plan"]
    read = Read(
        row["num_train"], row["num_rollout"], plan["tp"], plan["pp"], row["rollout_tp"],
        rl["prompts"], rl["samples"], rl["updates"], rl["response_tokens_max"],
    )  # fmt: skip
    return dict(made.files), read


def found_or_skip(name: str) -> Path:
    """The folder of a package, which is not imported."""
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{name} is not on PYTHONPATH")
    return Path(next(iter(spec.submodule_search_locations)))


@pytest.mark.parametrize(("name", "place"), CASES)
def test_verl(name: str, place: int, tmp_path: Path) -> None:
    """Hydra composes the configuration of the program that the script runs; unknown keys are refused."""
    hydra, package = pytest.importorskip("hydra"), found_or_skip("verl")
    files, expected = exported(name, place, "verl", tmp_path)
    words = launched(files, tmp_path).words
    module = Path(*words[words.index("-m") + 1].split(".")[1:-1])
    named = [word.partition("=")[2] for word in words if word.startswith("--config-name")]
    usual = "one_step_off_ppo_trainer" if "one_step" in str(module) else "ppo_trainer"
    with contextlib.chdir(package.parent), hydra.initialize_config_dir(str(package / module / "config"), "1.3"):
        config = hydra.compose((*named, usual)[0], [word for word in words[3:] if not word.startswith("--")])
    own, is_apart = config.actor_rollout_ref, not config.actor_rollout_ref.hybrid_engine
    modes = {"partial": "colocate_async", "async": "separate_async"}
    mode, placement = config.trainer.v1.trainer_mode, record(name)["plans"][place]["placement"]
    pool = own.rollout if mode == "separate_async" else config.get("rollout")
    assert mode == modes.get(placement, "sync")
    train = config.trainer.nnodes * config.trainer.n_gpus_per_node
    degrees = own.actor.get("megatron", {})
    assert expected == Read(
        train=train,
        generate=pool.nnodes * pool.n_gpus_per_node if is_apart else train,
        tp=degrees.get("tensor_model_parallel_size", 1),
        pp=degrees.get("pipeline_model_parallel_size", 1),
        rollout_tp=own.rollout.tensor_model_parallel_size,
        prompts=config.data.train_batch_size,
        samples=own.rollout.n,
        updates=config.data.train_batch_size // own.actor.ppo_mini_batch_size,
        longest=config.data.max_response_length,
    )
    if mode == "separate_async":  # PPOTrainerSeparateAsync refuses others
        steps = config.trainer.v1.separate_async.parameter_sync_step
        assert config.data.train_batch_size == steps * own.actor.ppo_mini_batch_size
    assert own.actor.strategy == ("megatron" if degrees else "fsdp2")
    assert config.algorithm.rollout_correction.bypass_mode is not record(name)["rl"]["old_pass"]


@pytest.mark.parametrize(("name", "place"), CASES)
def test_nemo_rl(name: str, place: int, tmp_path: Path) -> None:
    """Its own function loads the file over the configuration that it builds on; keys are those of that one."""
    pytest.importorskip("omegaconf")
    package = found_or_skip("nemo_rl")
    files, expected = exported(name, place, "nemo-rl", tmp_path)
    configs = tmp_path / "configs"
    shutil.copytree(package.parent / "examples" / "configs", configs)
    (file, text), *_ = files.items()
    (configs / file).write_text(text)
    reader = module_of(package / "utils" / "config.py")
    reader.register_omegaconf_resolvers()
    config, base = map(reader.load_config_with_inheritance, (configs / file, configs / "grpo_math_1B.yaml"))
    unknown = [
        key for key in keys_of(yaml.safe_load(text)) if not has(base, key) and key[0] not in ("defaults", "data", "env")
    ]
    assert unknown == []
    policy, cluster, generation = config.policy, config.cluster, config.policy.generation
    total, resources = cluster.num_nodes * cluster.gpus_per_node, generation.colocated.resources
    per_node = resources.gpus_per_node or cluster.gpus_per_node
    generate = total if generation.colocated.enabled else (resources.num_nodes or 1) * per_node
    is_megatron = policy.megatron_cfg.enabled
    degrees = policy.megatron_cfg if is_megatron else policy.dtensor_cfg
    batch = config.grpo.num_prompts_per_step * config.grpo.num_generations_per_prompt
    assert expected == Read(
        train=total if generation.colocated.enabled else total - generate,
        generate=generate,
        tp=degrees.tensor_model_parallel_size if is_megatron else degrees.tensor_parallel_size,
        pp=degrees.pipeline_model_parallel_size if is_megatron else 1,
        rollout_tp=generation.vllm_cfg.tensor_parallel_size,
        prompts=config.grpo.num_prompts_per_step,
        samples=config.grpo.num_generations_per_prompt,
        updates=batch // policy.train_global_batch_size,
        longest=expected.longest,  # NeMo RL has the whole sequence alone
    )


@pytest.mark.parametrize(("name", "place"), CASES)
def test_slime(name: str, place: int, tmp_path: Path) -> None:
    """Its parser reads its options; the others are options of Megatron's arguments or of SGLang's server."""
    package = found_or_skip("slime")
    files, expected = exported(name, place, "slime", tmp_path)
    words = launched(files, tmp_path).words
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for each in ("--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--global-batch-size"):
        parser.add_argument(each, type=int)
    with stubbed("slime", "sglang", "sglang_router", "wandb", "requests", "transformers"):
        module_of(package / "utils" / "arguments.py").get_slime_extra_args_provider()(parser)
    options = words[next(at for at, word in enumerate(words) if word.startswith("--")) :]
    args, rest = parser.parse_known_args(list(options))
    known = {flag for file in megatron_files() for flag in flags_of(file)}
    left = [word for word in rest if word.startswith("--") and not word.startswith("--sglang-")]
    assert [word for word in left if known and word not in known] == []
    train = args.actor_num_nodes * args.actor_num_gpus_per_node
    assert expected == Read(
        train=train,
        generate=train if args.colocate else args.rollout_num_gpus,
        tp=args.tensor_model_parallel_size,
        pp=args.pipeline_model_parallel_size,
        rollout_tp=args.rollout_num_gpus_per_engine,
        prompts=args.rollout_batch_size,
        samples=args.n_samples_per_prompt,
        updates=args.rollout_batch_size * args.n_samples_per_prompt // args.global_batch_size,
        longest=args.rollout_max_response_len,
    )


@contextlib.contextmanager
def stubbed(*names: str) -> Iterator[None]:
    """Packages that a file imports and that its parser does not need."""

    class Finder(MetaPathFinder, Loader):
        def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
            return spec_from_loader(name, self, is_package=True) if name.partition(".")[0] in names else None

        def create_module(self, spec: ModuleSpec) -> Any:
            return MagicMock(__spec__=spec, __path__=[], __name__=spec.name)

        def exec_module(self, _module: object) -> None:
            """Nothing is run."""

    before = {name for name in sys.modules if name.partition(".")[0] in names}
    kept = {name: sys.modules.pop(name) for name in before}
    with patch.object(sys, "meta_path", [Finder(), *sys.meta_path]):
        yield
    for name in [name for name in sys.modules if name.partition(".")[0] in names]:
        del sys.modules[name]
    sys.modules.update(kept)


def module_of(path: Path) -> ModuleType:
    """A file as a module, without its package."""
    spec = spec_from_file_location(f"read_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def megatron_files() -> list[Path]:
    """Files that declare Megatron's options; none where it is not found."""
    spec = find_spec("megatron")
    places = [] if spec is None else [*(spec.submodule_search_locations or ())]
    patterns = ("training/**/*.py", "core/**/*config.py")
    return [file for place in places for each in patterns for file in Path(place).glob(each)]


@cache
def flags_of(file: Path) -> frozenset[str]:
    """Flags that a file adds to a parser, or that fields of its dataclasses become."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("--"):
            found.add(node.value)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(f"--{node.target.id.replace('_', '-')}")
    return frozenset(found)


def keys_of(value: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Paths of the values of a mapping."""
    if not isinstance(value, Mapping) or not value:
        return [path]
    return [key for name, each in value.items() for key in keys_of(each, (*path, str(name)))]


def has(config: Any, path: tuple[str, ...]) -> bool:
    """Whether a configuration has a key, be it one to fill in."""
    for name in path:
        if name not in ([*config.keys()] if hasattr(config, "keys") else []):
            return False
        config = config[name]
    return True
