"""An RL step in the options of verl, NeMo RL and slime: what each framework's launch file says of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.inputs.readers.names import model_sources
from shardplan.launch.export.megatron_lm import model_options
from shardplan.launch.export.shell import Given, quoted
from shardplan.launch.export.written import LaunchCase
from shardplan.physics.frameworks.stack import load_stack
from shardplan.rl.launches.audit import MODULES
from shardplan.rl.launches.reading import DIALECTS
from shardplan.rl.transfer import engine_facts


@dataclass(frozen=True, kw_only=True)
class RlCase:
    """A plan of a file, with its step."""

    model: ModelConfig
    cluster: Cluster
    rl: Mapping[str, Any]
    """The step as it was asked."""
    row: Mapping[str, Any]
    """The plan with its pools."""
    plan: Plan
    """Of the trainer."""
    number: int
    """Place in the file, from 1."""

    @property
    def shares(self) -> bool:
        """Whether both pools are the same accelerators."""
        return self.row["placement"] in ("colocated", "partial")

    @property
    def per_node(self) -> int:
        """Accelerators of a node that are used."""
        return min(self.cluster.accelerators_per_node, self.row["num_train"])

    @property
    def nodes(self) -> int:
        """Nodes of the trainer."""
        return int(self.row["num_train"]) // self.per_node

    @property
    def rollout_per_node(self) -> int:
        """Accelerators of a node that generate, where the pools are apart."""
        return min(self.cluster.accelerators_per_node, self.row["num_rollout"])

    @property
    def backend(self) -> str:
        """The trainer of its sharding."""
        return "megatron" if self.plan.sharding in ("zero1", "ddp") else "fsdp"

    @property
    def share(self) -> float:
        """Share of the memory that an engine takes."""
        facts = engine_facts(self.rl["engine"])
        return float(self.rl["memory_share"] or (facts.colocated_share if self.shares else facts.awake_share))

    def refuse(self, what: str, hint: str) -> InputError:
        """What a framework does not run."""
        return InputError(f"plan {self.number}: {what}", rule="the framework runs the plan that is written", hint=hint)


def hub_name(model: str) -> str:
    """The model as the hub calls it."""
    source = model_sources().get(model)
    return source.hf_id if source is not None and source.hf_id else model


def _megatron_recompute(case: RlCase) -> dict[str, Any]:
    """Megatron's words for what is computed again."""
    policy, layers = case.plan.recompute, case.plan.recompute_num_layers
    if policy == "none":
        return {}
    if policy == "full":
        method = {"recompute_method": "block" if layers else "uniform", "recompute_num_layers": layers or 1}
        return {"recompute_granularity": "full", **method}
    ours = {name: theirs for theirs, name in MODULES.items()}
    names = ["core_attn"] if policy == "selective" else [ours.get(name, name) for name in policy.split(",")]
    if any(name not in MODULES for name in names):
        raise case.refuse(f"recompute {policy}", "plan it with --fix train.recompute=selective,full,none")
    return {"recompute_granularity": "selective", "recompute_modules": names}


def _facts(case: RlCase) -> dict[str, Any]:
    """What a launch file says of a plan, by the keys of the rows that read it; None: nothing."""
    rl, row, plan = case.rl, case.row, case.plan
    estimator = {"ppo": "gae", "reinforce++": "reinforce_plus_plus"}.get(rl["algorithm"], "grpo")
    is_fsdp, leaves = case.backend == "fsdp", case.shares and not rl["states_stay"]
    whole = plan.sharding if plan.sharding != "hsdp" else "zero3"
    if plan.stage_layers is not None:
        raise case.refuse("stages of unlike size", "plan it with --fix train.stage_layers=even, or another pp")
    return {
        "model": hub_name(case.model.name),
        "prompts": rl["prompts"],
        "samples": rl["samples"],
        "mini_prompts": rl["prompts"] // rl["updates"],
        "mini_batch": rl["prompts"] * rl["samples"] // rl["updates"],
        "response_max": rl["response_tokens_max"],
        "dynamic": True,
        "tokens_per_accelerator": rl["pack_tokens"] // plan.cp,
        "advantage": estimator,
        "kl_loss": bool(rl["reference"]),
        "engine": rl["engine"],
        "memory_share": case.share,
        **{f"rollout_{name}": row[f"rollout_{name}"] for name in ("tp", "pp", "ep")},
        **{f"{name}_precision": "fp8" if rl[f"{name}_precision"] == "fp8" else None for name in ("rollout", "cache")},
        "drafts": rl["drafts"] or None,
        "nodes": case.nodes,
        "per_node": case.per_node,
        **{name: getattr(plan, name) for name in ("tp", "pp", "cp", "ep")},
        "etp": plan.etp if plan.ep > 1 or case.model.is_moe else None,
        "vp": plan.vp if plan.vp > 1 else None,
        "sequence_parallel": plan.sequence_parallel if plan.tp > 1 or is_fsdp else None,
        "sharding": whole,
        "sharding_degree": plan.sharding_degree if plan.sharding == "hsdp" else None,
        **({"recompute": plan.recompute} if is_fsdp else _megatron_recompute(case)),
        "states_leave": leaves,
        "optimizer_leaves": leaves,
    }


def _options_of(case: RlCase, name: str, own: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of a plan, and ``own`` ones, in the options of the rows of a framework's record."""
    record = DIALECTS[name].record
    rows = {**record["options"], **record.get(case.backend, {})}
    facts = {key: value for key, value in {**_facts(case), **own}.items() if value is not None and key in rows}
    named = {key: str(rows[key].get("written", rows[key]["names"][0])) for key in facts}
    return {named[key]: _word(rows[key]["read"], value) for key, value in facts.items()}


def _word(read: Any, value: Any) -> Any:
    """The framework's word for a value that a row reads."""
    if isinstance(read, list | tuple):
        return value == read[0]
    return [word for word, ours in read.items() if ours == value][-1] if isinstance(read, Mapping) else value


OWN: Final = "actor_rollout_ref"
"""Where verl has trainer and engine."""
ADDED: Final = re.compile("override_transformer_config|engine_kwargs|filter_groups|rollout_correction|quantization")
"""In keys of verl that not every release has."""


def _verl(case: RlCase) -> str:
    """Overrides of ``main_ppo``."""
    rl, is_off, is_dapo = case.rl, case.row["placement"] == "one-step-off", case.rl["algorithm"] == "dapo"
    own = {
        "prompt_max": max(rl["prompt_tokens"], 1), "epochs": rl["epochs"], "kl_reward": False, "unpadded": True,
        "backend": case.backend, "filtered": is_dapo or None, "drafts_on": True if rl["drafts"] else None,
        "critic_model": hub_name(rl["critic"]) if rl["critic"] else None, "sequence_parallel": None,
        "bypass_old": not rl["old_pass"] if is_off or not rl["old_pass"] else None,
        "drafts": rl["drafts"] if rl["engine"] == "vllm" and rl["drafts"] else None,
    }  # fmt: skip
    keys: dict[str, Any] = {"data.train_files": Given("TRAIN_FILES"), "data.val_files": Given("VAL_FILES")}
    keys |= _options_of(case, "verl", own) | _verl_pools(case)
    if rl["drafts"]:
        keys[f"{OWN}.model.mtp.enable"] = True
    program = "recipe.dapo.main_dapo" if is_dapo else "verl.trainer.main_ppo"
    program = "verl.experimental.one_step_off_policy.main_ppo" if is_off else program
    config = f" --config-name={'one_step_off_' * is_off}ppo_megatron_trainer" if case.backend == "megatron" else ""
    fill = "TRAIN_FILES=/path/to/train.parquet\nVAL_FILES=/path/to/test.parquet\n"
    lines = [f"    {_pair(f'++{key}' if ADDED.search(key) else key, value)}" for key, value in keys.items()]
    return f"set -euo pipefail\n\n{fill}\n" + " \\\n".join([f"python3 -m {program}{config}", *lines]) + "\n"


def _verl_pools(case: RlCase) -> dict[str, Any]:
    """The placement. The configuration of one step off leaves the pass of the old policy out itself."""
    row, each, placement = case.row, case.rollout_per_node, case.row["placement"]
    pool, mode = {"nnodes": row["num_rollout"] // each, "n_gpus_per_node": each}, "trainer.v1.trainer_mode"
    if placement == "one-step-off":
        return {f"{OWN}.hybrid_engine": False, **{f"rollout.{name}": value for name, value in pool.items()}}
    if placement != "async":
        return {mode: "colocate_async"} if placement == "partial" else {}
    return {
        mode: "separate_async",
        "trainer.v1.separate_async.parameter_sync_step": case.rl["updates"],
        "trainer.v1.separate_async.num_warmup_batches": case.rl["staleness"],
        "trainer.v1.sampler.max_off_policy_threshold": case.rl["staleness"] + 1,
        f"{OWN}.hybrid_engine": False,
        **{f"{OWN}.rollout.{name}": value for name, value in pool.items()},
        f"{OWN}.rollout.checkpoint_engine.backend": "nccl",
    }


def _pair(key: str, value: Any) -> str:
    if isinstance(value, Given):
        return f'{key}="${value.name}"'
    text = str(value) if not isinstance(value, list) else f"[{','.join(value)}]"
    return f"'{key}={text}'" if "[" in text else f"{key}={text}"


def _nemo(case: RlCase) -> str:
    """A YAML over ``grpo_math_1B.yaml``."""
    import yaml

    rl, placement, is_fsdp = case.rl, case.row["placement"], case.backend == "fsdp"
    again = _facts(case).get("recompute_granularity")
    own = {
        "filtered": rl["algorithm"] == "dapo", "kl": 0.01 if rl["reference"] else 0.0, "on_policy": not rl["old_pass"],
        "algorithm_name": "reinforce_plus_plus" if rl["algorithm"] == "reinforce++" else "grpo",
        "async": placement in ("async", "one-step-off"), "staleness": rl["staleness"] if placement == "async" else 1,
        "in_flight": placement == "async" and bool(rl["in_flight"]), "micro_answers": 1, "precision": "bfloat16",
        "window": rl["prompt_tokens"] + rl["response_tokens_max"], "packing": True, "dynamic": False, "engine": "vllm",
        "pack_tokens": rl["pack_tokens"], "is_megatron": not is_fsdp, "offload_always": False,
        "checkpointing": again is not None, "colocated": case.shares, **_nemo_cluster(case),
        **({"vp": None, "ep": None} if is_fsdp else {}),
    }  # fmt: skip
    found = {"policy.dtensor_cfg.enabled": is_fsdp} | _options_of(case, "nemo-rl", own)
    if rl["drafts"]:
        found["policy.generation.vllm_kwargs.speculative_config.method"] = "mtp"
    document: dict[str, Any] = {"defaults": "grpo_math_1B.yaml"}
    for name, value in found.items():
        *folders, last = name.split(".")
        place = document
        for folder in folders:
            place = place.setdefault(folder, {})
        place[last] = value
    return str(yaml.safe_dump(document, sort_keys=False))


def _nemo_cluster(case: RlCase) -> dict[str, Any]:
    """Nodes of both pools, and of generation; a node that both share has a number of accelerators for it."""
    if case.shares:
        return {}
    total = case.row["num_train"] + case.row["num_rollout"]
    if total <= case.cluster.accelerators_per_node:
        return {"nodes": 1, "per_node": total, "rollout_per_node": case.rollout_per_node}
    more = case.row["num_rollout"] // case.rollout_per_node
    return {"nodes": case.nodes + more, "rollout_nodes": more, "rollout_per_node": case.rollout_per_node}


def _slime(case: RlCase) -> str:
    """Options of ``train.py`` or ``train_async.py``."""
    rl, row, placement = case.rl, case.row, case.row["placement"]
    estimator, is_eagle = _facts(case)["advantage"], rl.get("speculative") == "eagle"
    filters = "slime.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std"
    own = {
        "updates": rl["updates"], "advantage": "ppo" if estimator == "gae" else estimator, "engine": None,
        "bypass_old": not rl["old_pass"], "filtered": filters if rl["algorithm"] == "dapo" else None,
        "partial": placement == "partial", "colocated": case.shares, "memory_share": f"{case.share:g}",
        "rollout_tp": row["rollout_tp"] * row["rollout_pp"],
        **{f"rollout_{name}": row[f"rollout_{name}"] if row[f"rollout_{name}"] > 1 else None for name in ("pp", "ep")},
        "rollout_accelerators": None if case.shares else row["num_rollout"],
        "draft_model": '"$DRAFT_MODEL"' if is_eagle else None,
    }  # fmt: skip
    step = {
        "ref-load": '"$REF_LOAD"',
        "prompt-data": '"$PROMPT_DATA"',
        "normalize-advantages": estimator == "reinforce_plus_plus",
        "sglang-speculative-algorithm": "EAGLE" if rl["drafts"] else None,
    }
    groups = (
        [" ".join(map(quoted, words)) for words in _dimensions(case)],
        _options(_options_of(case, "slime", own) | step),
    )
    program = "train_async.py" if placement == "one-step-off" else "train.py"
    options = "\n\n".join("\n".join(f"    {line}" for line in group) for group in groups)
    fill = "PROMPT_DATA=/path/to/prompts.jsonl\nREF_LOAD=/path/to/model_torch_dist\n"
    fill += "DRAFT_MODEL=/path/to/draft_model\n" * is_eagle
    return f'set -euo pipefail\n\n{fill}\nOPTIONS=(\n{options}\n)\n\npython3 {program} "${{OPTIONS[@]}}"\n'


def _options(values: Mapping[str, Any]) -> list[str]:
    """Options by their values: True stands for the option alone, False and None for none."""
    given = {
        f"--{name.replace('_', '-')}": value
        for name, value in values.items()
        if value is not None and value is not False
    }
    texts = {name: " ".join(value) if isinstance(value, list) else value for name, value in given.items()}
    return [name if value is True else f"{name} {value}" for name, value in texts.items()]


def _dimensions(case: RlCase) -> list[Any]:
    """Megatron's options of the model, without those that a user would fill in."""
    job = Job(sequence_length=case.rl["pack_tokens"], global_batch_size=1)
    made = LaunchCase(
        model=case.model, cluster=case.cluster, num_accelerators=case.row["num_train"], job=job, plan=case.plan,
        stack=load_stack("megatron-lm"),
    )  # fmt: skip
    return [words for words in model_options(made) if not any(isinstance(word, Given) for word in words)]


WRITERS: Final[Mapping[str, Callable[[RlCase], str]]] = {"verl": _verl, "nemo-rl": _nemo, "slime": _slime}
