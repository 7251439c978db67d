"""What frameworks make of the files that are exported for them: their own readers, asked without accelerators.

Every reader returns what the framework understood, by the names of ``expected``, or raises what the framework raises.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import MagicMock, patch

import pytest
from tests.launch.export.launched import Launched, launched
from tests.launch.export.runnable import Runnable

FILLED: Final = {"=FILL_IN": "=10000", ": FILL_IN": ": 10000", "'FILL_IN'": "10000"}
"""What a user puts in the places to fill in that a framework reads: numbers."""


def expected(found: Runnable) -> dict[str, Any]:
    """The plan in the facts that readers return."""
    q, plan = found.question, found.plan
    stages = {"ddp": 0, "zero1": 1, "zero2": 2}
    return {
        "tp": plan.tp,
        "cp": plan.cp,
        "pp": plan.pp,
        "vp": plan.vp,
        "ep": plan.ep,
        "world": q.num_accelerators,
        "stages": plan.pp * plan.vp,
        "micro_batch_size": plan.micro_batch_size,
        "global_batch_size": q.job.global_batch_size,
        "sequence_length": q.job.sequence_length,
        "precision": q.job.precision,
        "zero": stages.get(plan.sharding, 3),
        "is_replicated": plan.sharding == "ddp" or plan.tp * plan.pp == q.num_accelerators,
        "reshards": plan.sharding != "zero2",
        "has_sequence_parallel": plan.sequence_parallel or plan.tp == 1,
        "recompute": plan.recompute,
        "num_layers": q.model.num_hidden_layers,
        "hidden_size": q.model.hidden_size,
        "num_parameters": q.model.num_parameters,
        "schedule": plan.schedule or ("interleaved" if plan.vp > 1 else "1f1b"),
        "window": next((getattr(kind.mixer, "window", None) for kind in q.model.layer_kinds), None),
        "fused_loss": q.job.software.fused_loss,
    }


def understood(found: Runnable, folder: Path) -> dict[str, Any]:
    """What the framework of a plan makes of its launch files, which are written to ``folder``."""
    files = dict(found.export().files)
    for place, value in FILLED.items():
        files = {file: text.replace(place, value) for file, text in files.items()}
    run = launched(files, folder)
    with _environment(run):
        return READERS[found.stack.name](run, found, folder)


@contextmanager
def _environment(run: Launched) -> Iterator[None]:
    """The environment of the script, on the processor, without the network."""
    own = {"DS_ACCELERATOR": "cpu", "JAX_PLATFORMS": "cpu", "HF_HUB_OFFLINE": "1"}
    with patch.dict(os.environ, {**own, **run.environment, "PATH": os.environ["PATH"]}):
        yield


def torchtitan(run: Launched, found: Runnable, folder: Path) -> dict[str, Any]:
    """Its ConfigManager, its mesh, its stages, and the parameters of the model that it would build."""
    manager = importlib.import_module("torchtitan.config")
    pipelines = importlib.import_module("torchtitan.distributed.pipeline_parallel")
    distributed = importlib.import_module("torchtitan.distributed")
    with patch.object(sys, "path", [str(folder), *sys.path]), _capable():
        sys.modules.pop("configuration_launch", None)
        config = manager.ConfigManager().parse_args(list(run.after("torchtitan.train")))
    given, training = config.parallelism, config.training
    names = {
        "dp_replicate": given.data_parallel_replicate_degree,
        "dp_shard": given.data_parallel_shard_degree,
        "cp": given.context_parallel_degree,
        "tp": given.tensor_parallel_degree,
        "pp": given.pipeline_parallel_degree,
        "ep": given.expert_parallel_degree,
    }
    dims = distributed.ParallelDims(**names, world_size=found.question.num_accelerators)
    model = config.model_spec.model
    return {
        **{name: names[name] for name in ("tp", "cp", "pp", "ep")},
        **_titan_batch(given, training),
        "stages": _titan_stages(pipelines, dims, given, model),
        "is_replicated": names["dp_shard"] * names["cp"] == 1,
        **({"reshards": given.fsdp_reshard_after_forward != "never"} if names["dp_shard"] * names["cp"] > 1 else {}),
        "has_sequence_parallel": given.enable_sequence_parallel,
        "recompute": {"SelectiveAC": "op_sac", "FullAC": "full"}.get(_class_of(config.activation_checkpoint), "none"),
        "fused_loss": _class_of(config.loss) == "ChunkedLossWrapper",
        "num_layers": len(model.layers),
        "hidden_size": model.dim,
    }


def _class_of(config: Any) -> str:
    return type(config).__qualname__.partition(".")[0]


def _titan_batch(given: Any, training: Any) -> dict[str, int]:
    """Sequences: main counts tokens."""
    if hasattr(training, "max_context_length"):
        length = training.max_context_length
        local = training.num_tokens_per_microbatch_per_dp_rank // length
        whole = training.num_tokens_per_train_step // length
    else:
        length, whole = training.seq_len, training.global_batch_size
        is_cut = given.pipeline_parallel_degree > 1
        local = given.pipeline_parallel_microbatch_size if is_cut else training.local_batch_size
    return {"sequence_length": length, "global_batch_size": whole, "micro_batch_size": local}


def _titan_stages(pipelines: Any, dims: Any, given: Any, model: Any) -> int:
    if given.pipeline_parallel_degree == 1:
        return 1
    if given.module_fqns_per_model_part is not None:
        return len(given.module_fqns_per_model_part)
    stages, *_ = pipelines._get_pipeline_metadata(dims, given, model)
    return int(stages)


@contextmanager
def _capable() -> Iterator[None]:
    """Lets converters of low precision believe in an accelerator that has it."""
    quantization = ("float8", "mx", "nvfp4")
    modules = [importlib.import_module(f"torchtitan.components.quantization.{name}") for name in quantization]
    held = [
        patch.object(each, "has_cuda_capability", lambda *_: True)
        for each in modules
        if hasattr(each, "has_cuda_capability")
    ]
    for each in held:
        each.start()
    try:
        yield
    finally:
        for each in held:
            each.stop()


def deepspeed(run: Launched, found: Runnable, folder: Path) -> dict[str, Any]:
    """The Trainer's own filling in of the file, what Accelerate does to it, and DeepSpeed's configuration."""
    import deepspeed.runtime.config as runtime  # type: ignore[import-not-found,unused-ignore]
    from transformers.integrations.deepspeed import (  # type: ignore[import-not-found,unused-ignore]
        HfTrainerDeepSpeedConfig,
    )

    options, total = _options(run.after("run_clm.py")), found.question.num_accelerators
    filled = HfTrainerDeepSpeedConfig(str(folder / options["deepspeed"]))
    filled.trainer_config_process(_arguments(options, total))
    assert not filled.mismatches, filled.mismatches
    document = filled.config
    cp = _ulysses()
    if cp > 1:
        shard = int(os.environ["PARALLELISM_CONFIG_DP_SHARD_SIZE"])
        pieces = document["train_micro_batch_size_per_gpu"] * document["gradient_accumulation_steps"]
        document["train_batch_size"] = pieces * shard  # as Accelerator._prepare_deepspeed
    mpu = SimpleNamespace(get_data_parallel_world_size=lambda: total // cp) if cp > 1 else None
    world = SimpleNamespace(get_rank=lambda *_: 0, get_world_size=lambda *_: total)
    with patch.object(runtime, "dist", world):
        parsed = runtime.DeepSpeedConfig(document, mpu=mpu)
    tp = document.get("tensor_parallel", {}).get("autotp_size", 1)
    each = parsed.train_micro_batch_size_per_gpu
    return {
        "tp": tp,
        "cp": cp,
        "pp": 1,
        "ep": document.get("expert_parallel", {}).get("autoep_size", 1),
        "zero": parsed.zero_config.stage,
        "micro_batch_size": each,
        "global_batch_size": each * parsed.gradient_accumulation_steps * (total // (tp * cp)),
        "sequence_length": int(options["block_size"]),
        "precision": next((word for word in ("bf16", "fp16") if word in options), "fp32"),
        "recompute": "full" if "gradient_checkpointing" in options else "none",
        "fused_loss": "use_liger_kernel" in options,
    }


def _ulysses() -> int:
    """Ranks that share a sequence, as Accelerate reads them."""
    from accelerate.parallelism_config import (  # type: ignore[import-not-found,unused-ignore]
        ParallelismConfig,
    )

    is_on = os.environ.get("ACCELERATE_USE_PARALLELISM_CONFIG") == "true"
    return int(ParallelismConfig().sp_size) if is_on else 1


def _options(words: tuple[str, ...]) -> dict[str, str]:
    """Options of the Trainer by name; a bare one is true."""
    found: dict[str, str] = {}
    for at, word in enumerate(words):
        if word.startswith("--"):
            value = words[at + 1] if at + 1 < len(words) and not words[at + 1].startswith("--") else "true"
            found[word.removeprefix("--")] = value
    return found


def _arguments(options: Mapping[str, str], total: int) -> SimpleNamespace:
    """What the Trainer's configuration reads of TrainingArguments."""
    return SimpleNamespace(
        world_size=total,
        per_device_train_batch_size=int(options["per_device_train_batch_size"]),
        gradient_accumulation_steps=int(options["gradient_accumulation_steps"]),
        max_grad_norm=1.0,
        learning_rate=3e-4,
        adam_beta1=0.9,
        adam_beta2=0.999,
        adam_epsilon=1e-8,
        weight_decay=0.0,
        save_on_each_node=False,
        **{name: name in options for name in ("fp16", "bf16")},
        **dict.fromkeys(("fp16_full_eval", "bf16_full_eval"), False),
    )


def accelerate(run: Launched, _found: Runnable, folder: Path) -> dict[str, Any]:
    """Its reader of files, its launcher's names, and its ParallelismConfig."""
    from accelerate.commands.config import config_args  # type: ignore[import-not-found,unused-ignore]
    from accelerate.commands.launch import (  # type: ignore[import-not-found,unused-ignore]
        launch_command_parser,
    )
    from accelerate.parallelism_config import (  # type: ignore[import-not-found,unused-ignore]
        ParallelismConfig,
    )

    parsed, options = config_args.load_config_from_file(str(folder / "launch.yaml")), _options(run.after("run_clm.py"))
    known = {option for action in launch_command_parser()._actions for option in action.option_strings}
    fsdp, degrees = parsed.fsdp_config, parsed.parallelism_config
    assert {f"--{each}" for each in (*fsdp, *degrees)} <= known
    sizes = {each.removeprefix("parallelism_config_"): size for each, size in degrees.items() if each.endswith("_size")}
    made = ParallelismConfig(**sizes)
    others = made.tp_size * made.cp_size
    size, rounds = (int(options[name]) for name in ("per_device_train_batch_size", "gradient_accumulation_steps"))
    recomputes = fsdp.get("fsdp_activation_checkpointing") or "gradient_checkpointing" in options
    return {
        "world": made.total_size if sizes else parsed.num_processes,
        "tp": made.tp_size,
        "cp": made.cp_size,
        "micro_batch_size": size,
        "global_batch_size": size * rounds * (parsed.num_processes // others),
        "sequence_length": int(options["block_size"]),
        "is_replicated": parsed.distributed_type == "MULTI_GPU",
        **({"reshards": fsdp["fsdp_reshard_after_forward"]} if fsdp else {}),
        "precision": {"no": "fp32"}.get(parsed.mixed_precision, parsed.mixed_precision),
        "recompute": "full" if recomputes else "none",
    }


def nanotron(_run: Launched, _found: Runnable, folder: Path) -> dict[str, Any]:
    """Its reader of files; flash-attn, which needs an accelerator to be built, is a stand-in."""
    _stand_in_for_flash_attention()
    reader = importlib.import_module("nanotron.config").get_config_from_file
    config = reader(str(folder / "launch.yaml"), skip_unused_config_keys=False)
    given, model, tokens = config.parallelism, config.model.model_config, config.tokens
    engine = type(given.pp_engine).__name__
    return {
        "world": given.dp * given.tp * given.pp * given.context_parallel_size,
        "tp": given.tp,
        "pp": given.pp,
        "cp": given.context_parallel_size,
        "ep": given.expert_parallel_size,
        **({"schedule": "gpipe" if engine.startswith("AllForward") else "1f1b"} if given.pp > 1 else {}),
        "zero": config.optimizer.zero_stage,
        "micro_batch_size": tokens.micro_batch_size,
        "global_batch_size": config.global_batch_size,
        "sequence_length": tokens.sequence_length,
        **({"has_sequence_parallel": given.tp_mode.name == "REDUCE_SCATTER"} if given.tp > 1 else {}),
        "recompute": "full" if given.recompute_layer else "none",
        "num_layers": model.num_hidden_layers,
        "hidden_size": model.hidden_size,
    }


def _stand_in_for_flash_attention() -> None:
    """For the rest of the process: modules that were imported with it hold on to it."""
    parts = ("bert_padding", "flash_attn_interface", "layers", "layers.rotary", "modules", "modules.mha", "ops",
             "ops.triton", "ops.triton.layer_norm")  # fmt: skip
    for name in ("flash_attn", *(f"flash_attn.{part}" for part in parts)):
        sys.modules.setdefault(name, MagicMock(__version__="2.8.0", __spec__=None))


def maxtext(run: Launched, found: Runnable, _folder: Path) -> dict[str, Any]:
    """Its pyconfig, with a compile-time topology of as many accelerators."""
    from maxtext.configs import pyconfig  # type: ignore[import-not-found,unused-ignore]

    base = Path(pyconfig.__file__).parent / "base.yml"
    words = [*run.after("base.yml"), *_topology(found), "enable_checkpointing=false"]
    parsed = pyconfig.initialize(["", str(base), *words])
    axes = ("data", "fsdp", "tensor", "tensor_sequence", "context", "expert", "pipeline")
    sizes = {name: _axis(parsed, name) for name in axes}
    is_piped, is_plain = sizes["pipeline"] > 1, not parsed.shard_optimizer_over_data
    pieces = parsed.num_pipeline_microbatches if is_piped else parsed.gradient_accumulation_steps
    ranks, shared = sizes["data"] * sizes["fsdp"] * sizes["expert"], sizes["fsdp"] * sizes["context"] * sizes["expert"]
    return {
        "world": prod(sizes.values()),
        "tp": sizes["tensor"] * sizes["tensor_sequence"],
        "cp": sizes["context"],
        "ep": sizes["expert"],
        "pp": sizes["pipeline"],
        "vp": parsed.num_pipeline_repeats if is_piped else 1,
        "micro_batch_size": parsed.global_batch_size_to_train_on // (pieces * ranks),
        "global_batch_size": parsed.global_batch_size_to_train_on,
        "sequence_length": parsed.max_target_length,
        **({"is_replicated": is_plain and shared == 1} if sizes["data"] * shared > 1 else {}),
        "num_layers": parsed.num_decoder_layers,
        "hidden_size": parsed.emb_dim,
        **({"recompute": parsed.remat_policy} if parsed.remat_policy in ("full", "none") else {}),
        "fused_loss": parsed.num_vocab_tiling > 1,
    }


def _axis(parsed: Any, name: str) -> int:
    within, across = (getattr(parsed, f"{place}_{name}_parallelism") for place in ("ici", "dcn"))
    return int(within * across)


def _topology(found: Runnable) -> tuple[str, str]:
    """Slices of an A3, one of v5p, or as many pods of v5e as it takes."""
    total, cluster = found.question.num_accelerators, found.question.cluster.name
    name, slices = "a3", max(1, total // 8)
    if "v5p" in cluster:
        name, slices = f"v5p-{2 * total}", 1
    elif "v5e" in cluster:
        name, slices = f"v5e-{min(total, 256)}", max(1, total // 256)
    return f"compile_topology={name}", f"compile_topology_num_slices={slices}"


READERS: Final[Mapping[str, Callable[[Launched, Runnable, Path], dict[str, Any]]]] = {
    each.__name__: each for each in (torchtitan, deepspeed, accelerate, nanotron, maxtext)
}
NEEDS: Final = {
    "torchtitan": ("torchtitan.config",),
    "deepspeed": ("deepspeed.runtime.config", "transformers", "accelerate"),
    "accelerate": ("accelerate.commands.launch",),
    "nanotron": ("nanotron",),
    "maxtext": ("maxtext.configs.pyconfig",),
}
"""Modules without which a framework is not asked."""


def import_or_skip(to: str) -> None:
    """Skips the test where the framework is not installed."""
    with patch.dict(os.environ, {"DS_ACCELERATOR": "cpu", "JAX_PLATFORMS": "cpu"}):
        for each in NEEDS[to]:
            pytest.importorskip(each)
