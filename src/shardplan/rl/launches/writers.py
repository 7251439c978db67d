"""An RL step in the options of verl, NeMo RL and slime: what each framework's launch file says of it."""

from __future__ import annotations

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

    @property
    def answers(self) -> int:
        """Answers of an optimizer step."""
        return int(self.rl["prompts"] * self.rl["samples"] // self.rl["updates"])

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


def _estimator(case: RlCase, ppo: str = "gae") -> str:
    return {"ppo": ppo, "reinforce++": "reinforce_plus_plus"}.get(case.rl["algorithm"], "grpo")


OWN: Final = "actor_rollout_ref"
"""Where verl has trainer and engine."""


def _verl(case: RlCase) -> str:
    """Overrides of ``main_ppo``."""
    backend, is_off = case.backend, case.row["placement"] == "one-step-off"
    keys = _verl_step(case, backend) | _verl_trainer(case, backend) | _verl_engine(case) | _verl_pools(case)
    program = "recipe.dapo.main_dapo" if case.rl["algorithm"] == "dapo" else "verl.trainer.main_ppo"
    program = "verl.experimental.one_step_off_policy.main_ppo" if is_off else program
    config = f" --config-name={'one_step_off_' * is_off}ppo_megatron_trainer" if backend == "megatron" else ""
    fill = "TRAIN_FILES=/path/to/train.parquet\nVAL_FILES=/path/to/test.parquet\n"
    lines = [f"    {_pair(key, value)}" for key, value in keys.items() if value is not None]
    return f"set -euo pipefail\n\n{fill}\n" + " \\\n".join([f"python3 -m {program}{config}", *lines]) + "\n"


def _verl_step(case: RlCase, backend: str) -> dict[str, Any]:
    """Data, algorithm and batches."""
    rl = case.rl
    return {
        "algorithm.adv_estimator": _estimator(case),
        "data.train_files": Given("TRAIN_FILES"),
        "data.val_files": Given("VAL_FILES"),
        "data.train_batch_size": rl["prompts"],
        "data.max_prompt_length": max(rl["prompt_tokens"], 1),
        "data.max_response_length": rl["response_tokens_max"],
        f"{OWN}.model.path": hub_name(case.model.name),
        f"{OWN}.actor.ppo_mini_batch_size": rl["prompts"] // rl["updates"],
        f"{OWN}.actor.ppo_epochs": rl["epochs"],
        f"{OWN}.actor.use_kl_loss": rl["reference"],
        "algorithm.use_kl_in_reward": False,
        f"{OWN}.actor.strategy": "megatron" if backend == "megatron" else "fsdp2",
        f"{OWN}.model.use_remove_padding": True,
        f"{OWN}.actor.use_dynamic_bsz": True,
        f"{OWN}.actor.ppo_max_token_len_per_gpu": rl["pack_tokens"] // case.plan.cp,
    }


def _verl_trainer(case: RlCase, backend: str) -> dict[str, Any]:
    """Degrees, states and recomputation of the trainer."""
    plan, at = case.plan, f"{OWN}.actor.{'megatron' if backend == 'megatron' else 'fsdp_config'}"
    if backend == "megatron":
        degrees, again = _megatron_degrees(case), _megatron_recompute(case)
        found = {f"{at}.{name}": value for name, value in degrees.items() if name != "sequence_parallel"}
        found[f"{at}.use_distributed_optimizer"] = plan.sharding == "zero1"
        found |= {f"++{at}.override_transformer_config.{name}": value for name, value in again.items()}
    else:
        found = {
            f"{OWN}.actor.ulysses_sequence_parallel_size": plan.cp,
            f"{OWN}.model.enable_gradient_checkpointing": plan.recompute == "full",
            f"{at}.reshard_after_forward": plan.sharding != "zero2",
            f"{at}.fsdp_size": plan.sharding_degree if plan.sharding == "hsdp" else None,
        }
    leaves = case.shares and not case.rl["states_stay"]
    return {**found, f"{at}.param_offload": leaves, f"{at}.optimizer_offload": leaves}


def _verl_engine(case: RlCase) -> dict[str, Any]:
    """The engine, and what only some steps have."""
    rl, row = case.rl, case.row
    drafts = {"enable": True, "enable_rollout": True, "num_speculative_tokens": rl["drafts"]} if rl["drafts"] else {}
    return {
        f"{OWN}.rollout.name": rl["engine"],
        f"{OWN}.rollout.n": rl["samples"],
        f"{OWN}.rollout.tensor_model_parallel_size": row["rollout_tp"],
        f"{OWN}.rollout.pipeline_model_parallel_size": row["rollout_pp"],
        f"{OWN}.rollout.expert_parallel_size": row["rollout_ep"],
        f"{OWN}.rollout.gpu_memory_utilization": case.share,
        "trainer.n_gpus_per_node": case.per_node,
        "trainer.nnodes": case.nodes,
        f"++{OWN}.rollout.quantization": "fp8" if rl["rollout_precision"] == "fp8" else None,
        f"++{OWN}.rollout.engine_kwargs.{rl['engine']}.kv_cache_dtype": "fp8_e4m3"
        if rl["cache_precision"] == "fp8"
        else None,
        **{f"{OWN}.model.mtp.{name}": value for name, value in drafts.items()},
        "++algorithm.filter_groups.enable": True if rl["algorithm"] == "dapo" else None,
        "critic.model.path": hub_name(rl["critic"]) if rl["critic"] else None,
    }


def _verl_pools(case: RlCase) -> dict[str, Any]:
    """The placement. The configuration of one step off leaves the pass of the old policy out itself."""
    rl, row, each, placement = case.rl, case.row, case.rollout_per_node, case.row["placement"]
    bypass = {"++algorithm.rollout_correction.bypass_mode": not rl["old_pass"]}
    pool = {"nnodes": row["num_rollout"] // each, "n_gpus_per_node": each}
    if placement == "one-step-off":
        return {f"{OWN}.hybrid_engine": False, **{f"rollout.{name}": value for name, value in pool.items()}, **bypass}
    found: dict[str, Any] = {} if rl["old_pass"] else {**bypass}
    if placement == "partial":
        found |= {"trainer.v1.trainer_mode": "colocate_async"}
    if placement == "async":
        found |= {
            "trainer.v1.trainer_mode": "separate_async",
            "trainer.v1.separate_async.parameter_sync_step": rl["updates"],
            "trainer.v1.separate_async.num_warmup_batches": rl["staleness"],
            "trainer.v1.sampler.max_off_policy_threshold": rl["staleness"] + 1,
            f"{OWN}.hybrid_engine": False,
            **{f"{OWN}.rollout.{name}": value for name, value in pool.items()},
            f"{OWN}.rollout.checkpoint_engine.backend": "nccl",
        }
    return found


def _pair(key: str, value: Any) -> str:
    if isinstance(value, Given):
        return f'{key}="${value.name}"'
    text = str(value) if not isinstance(value, list) else f"[{','.join(value)}]"
    return f"'{key}={text}'" if "[" in text else f"{key}={text}"


def _megatron_degrees(case: RlCase) -> dict[str, Any]:
    """Degrees under the names that verl and NeMo RL share."""
    plan = case.plan
    found: dict[str, Any] = {
        "tensor_model_parallel_size": plan.tp,
        "pipeline_model_parallel_size": plan.pp,
        "context_parallel_size": plan.cp,
        "expert_model_parallel_size": plan.ep,
        "expert_tensor_parallel_size": plan.etp if plan.ep > 1 or case.model.is_moe else None,
        "virtual_pipeline_model_parallel_size": plan.vp if plan.vp > 1 else None,
        "sequence_parallel": plan.sequence_parallel if plan.tp > 1 else None,
    }
    if plan.stage_layers is not None:
        raise case.refuse("stages of unlike size", "plan it with --fix train.stage_layers=even, or another pp")
    return {name: value for name, value in found.items() if value is not None}


def _nemo(case: RlCase) -> str:
    """A YAML over ``grpo_math_1B.yaml``."""
    import yaml

    rl, placement = case.rl, case.row["placement"]
    document = {
        "defaults": "grpo_math_1B.yaml",
        "grpo": {
            "num_prompts_per_step": rl["prompts"],
            "num_generations_per_prompt": rl["samples"],
            "use_dynamic_sampling": rl["algorithm"] == "dapo",
            "adv_estimator": {"name": "reinforce_plus_plus" if rl["algorithm"] == "reinforce++" else "grpo"},
            "async_grpo": {
                "enabled": placement in ("async", "one-step-off"),
                "max_trajectory_age_steps": rl["staleness"] if placement == "async" else 1,
                "in_flight_weight_updates": placement == "async" and bool(rl["in_flight"]),
            },
        },
        "loss_fn": {
            "reference_policy_kl_penalty": 0.01 if rl["reference"] else 0.0,
            "force_on_policy_ratio": not rl["old_pass"],
        },
        "policy": _nemo_policy(case),
        "cluster": _nemo_cluster(case),
    }
    return str(yaml.safe_dump(document, sort_keys=False))


def _nemo_policy(case: RlCase) -> dict[str, Any]:
    rl, is_fsdp = case.rl, case.backend == "fsdp"
    return {
        "model_name": hub_name(case.model.name),
        "train_global_batch_size": case.answers,
        "train_micro_batch_size": 1,
        "max_total_sequence_length": rl["prompt_tokens"] + rl["response_tokens_max"],
        "precision": "bfloat16",
        "sequence_packing": {"enabled": True, "train_mb_tokens": rl["pack_tokens"]},
        "dynamic_batching": {"enabled": False},
        "dtensor_cfg": {"enabled": is_fsdp, **(_nemo_fsdp(case) if is_fsdp else {})},
        "megatron_cfg": {"enabled": not is_fsdp, **({} if is_fsdp else _nemo_megatron(case))},
        "generation": _nemo_generation(case),
    }


def _nemo_fsdp(case: RlCase) -> dict[str, Any]:
    plan = case.plan
    return {
        "tensor_parallel_size": plan.tp, "context_parallel_size": plan.cp,
        "sequence_parallel": plan.sequence_parallel, "activation_checkpointing": plan.recompute == "full",
        "cpu_offload": False,
    }  # fmt: skip


def _nemo_megatron(case: RlCase) -> dict[str, Any]:
    again = _megatron_recompute(case)
    again = {name: again[name] for name in ("recompute_granularity", "recompute_modules") if name in again}
    optimizer = {"use_distributed_optimizer": case.plan.sharding == "zero1"}
    return {**_megatron_degrees(case), "activation_checkpointing": bool(again), **again, "optimizer": optimizer}


def _nemo_generation(case: RlCase) -> dict[str, Any]:
    rl, row = case.rl, case.row
    engine = {
        "tensor_parallel_size": row["rollout_tp"], "pipeline_parallel_size": row["rollout_pp"],
        "expert_parallel_size": row["rollout_ep"], "gpu_memory_utilization": case.share,
    }  # fmt: skip
    engine |= {"precision": "fp8"} if rl["rollout_precision"] == "fp8" else {}
    engine |= {"kv_cache_dtype": "fp8"} if rl["cache_precision"] == "fp8" else {}
    drafts = {"speculative_config": {"method": "mtp", "num_speculative_tokens": rl["drafts"]}}
    pool = {"num_nodes": _nemo_rollout_nodes(case), "gpus_per_node": case.rollout_per_node}
    return {
        "backend": "vllm",
        "max_new_tokens": rl["response_tokens_max"],
        "vllm_cfg": engine,
        **({"vllm_kwargs": drafts} if rl["drafts"] else {}),
        "colocated": {"enabled": case.shares, **({} if case.shares else {"resources": pool})},
    }


def _nemo_rollout_nodes(case: RlCase) -> int | None:
    """Nodes that generate; None where both pools are on one node."""
    total = case.row["num_train"] + case.row["num_rollout"]
    is_one = total <= case.cluster.accelerators_per_node
    return None if is_one else int(case.row["num_rollout"] // case.rollout_per_node)


def _nemo_cluster(case: RlCase) -> dict[str, int]:
    """Nodes of both pools."""
    if case.shares:
        return {"num_nodes": case.nodes, "gpus_per_node": case.per_node}
    more = _nemo_rollout_nodes(case)
    if more is None:
        return {"num_nodes": 1, "gpus_per_node": case.row["num_train"] + case.row["num_rollout"]}
    return {"num_nodes": case.nodes + more, "gpus_per_node": case.per_node}


def _slime(case: RlCase) -> str:
    """Options of ``train.py`` or ``train_async.py``."""
    model = [" ".join(map(quoted, words)) for words in _dimensions(case)]
    groups = (model, *(_options(each(case)) for each in (_slime_step, _slime_trainer, _slime_pools)))
    program = "train_async.py" if case.row["placement"] == "one-step-off" else "train.py"
    options = "\n\n".join("\n".join(f"    {line}" for line in group) for group in groups)
    fill = "PROMPT_DATA=/path/to/prompts.jsonl\nREF_LOAD=/path/to/model_torch_dist\n"
    fill += "DRAFT_MODEL=/path/to/draft_model\n" * (case.rl.get("speculative") == "eagle")
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


def _slime_step(case: RlCase) -> dict[str, Any]:
    rl, estimator = case.rl, _estimator(case, "ppo")
    filters = "slime.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std"
    return {
        "hf-checkpoint": hub_name(case.model.name),
        "ref-load": '"$REF_LOAD"',
        "prompt-data": '"$PROMPT_DATA"',
        "rollout-batch-size": rl["prompts"],
        "n-samples-per-prompt": rl["samples"],
        "num-steps-per-rollout": rl["updates"],
        "global-batch-size": case.answers,
        "rollout-max-response-len": rl["response_tokens_max"],
        "advantage-estimator": estimator,
        "use-kl-loss": bool(rl["reference"]),
        "use-rollout-logprobs": not rl["old_pass"],
        "normalize-advantages": estimator == "reinforce_plus_plus",
        "dynamic-sampling-filter-path": filters if rl["algorithm"] == "dapo" else None,
    }


def _slime_trainer(case: RlCase) -> dict[str, Any]:
    degrees = _megatron_degrees(case)
    chunks = degrees.pop("virtual_pipeline_model_parallel_size", None)
    sequence_parallel = degrees.pop("sequence_parallel", None)
    return {
        **degrees,
        "num-virtual-stages-per-pipeline-rank": chunks,
        "sequence-parallel": sequence_parallel,
        **_megatron_recompute(case),
        "use-dynamic-batch-size": True,
        "max-tokens-per-gpu": case.rl["pack_tokens"] // case.plan.cp,
    }


def _slime_pools(case: RlCase) -> dict[str, Any]:
    rl, row = case.rl, case.row
    tp, pp, ep = (row[f"rollout_{name}"] for name in ("tp", "pp", "ep"))
    return {
        "actor-num-nodes": case.nodes,
        "actor-num-gpus-per-node": case.per_node,
        "colocate": case.shares,
        "rollout-num-gpus": None if case.shares else row["num_rollout"],
        "partial-rollout": row["placement"] == "partial",
        "rollout-num-gpus-per-engine": tp * pp,
        "sglang-mem-fraction-static": f"{case.share:g}",
        "sglang-pipeline-parallel-size": pp if pp > 1 else None,
        "sglang-expert-parallel-size": ep if ep > 1 else None,
        "sglang-kv-cache-dtype": "fp8_e4m3" if rl["cache_precision"] == "fp8" else None,
        "sglang-speculative-algorithm": "EAGLE" if rl["drafts"] else None,
        "sglang-speculative-num-steps": rl["drafts"] or None,
        "sglang-speculative-draft-model-path": '"$DRAFT_MODEL"' if rl.get("speculative") == "eagle" else None,
    }


def _dimensions(case: RlCase) -> list[Any]:
    """Megatron's options of the model, without those that a user would fill in."""
    job = Job(sequence_length=case.rl["pack_tokens"], global_batch_size=case.answers)
    made = LaunchCase(
        model=case.model, cluster=case.cluster, num_accelerators=case.row["num_train"], job=job, plan=case.plan,
        stack=load_stack("megatron-lm"),
    )  # fmt: skip
    return [words for words in model_options(made) if not any(isinstance(word, Given) for word in words)]


WRITERS: Final[Mapping[str, Callable[[RlCase], str]]] = {"verl": _verl, "nemo-rl": _nemo, "slime": _slime}
