"""What rows cannot say, by framework: the algorithm, micro-batches, placement and engine of an RL step.

Sources are named in the records of ``data/dialects/rl``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from shardplan.launch.dialects.reading import Fact
from shardplan.launch.dialects.values import number
from shardplan.rl.launches.rules import Rules


def _verl(own: Rules) -> None:
    facts = own.facts
    own.take_algorithm()
    own.take_reference(wanted=own.on("kl_loss") or own.on("kl_reward"))
    own.rl["old_pass"] = not own.on("bypass_old")
    mini, prompts = own.number("mini_prompts"), own.number("prompts")
    if "n_agent" in own.said("samples"):  # the worker counts answers then: verl/workers/fsdp_workers.py of such forks
        steps = math.ceil(prompts * own.number("samples") / mini) if mini else 1  # the last may be smaller
        priced = next((n for n in range(min(steps, prompts), 0, -1) if prompts % n == 0), 1)
        if priced != steps:
            own.notes.append(f"{steps:,} optimizer steps are priced as {priced:,}, which share the prompts evenly")
        facts.derive("updates", priced, f"{own.said('mini_prompts')}, in answers")
        facts.facts.pop("mini_prompts", None)
    elif mini >= prompts * max(own.number("samples"), 1) > prompts or (
        mini > prompts > 0 and own.number("samples") == 1
    ):
        own.notes.append(f"{own.said('mini_prompts')}: one optimizer step of all answers, which newer versions refuse")
        facts.replace("mini_prompts", Fact(value=prompts, origin="derived", why=f"no more than {own.said('prompts')}"))
    elif mini > prompts > 0:
        facts.miss(
            "updates", (f"{own.said('mini_prompts')}, of {prompts:,} prompts: forks count answers (--given updates=N)",)
        )
        facts.facts.pop("mini_prompts", None)
    if own.on("dynamic"):
        tokens = own.number("tokens_per_accelerator") * (own.number("cp") or 1)
        facts.derive("pack_tokens", tokens, "ppo_max_token_len_per_gpu x context-parallel ranks")
    elif not own.number("micro_answers"):
        total = own.number("micro_total")
        world = own.number("num_accelerators") or own.number("nodes") * own.number("per_node")
        ranks = [own.number(key) or 1 for key in ("cp", "tp", "pp")]
        shared = world // (ranks[0] * ranks[1] * ranks[2])
        if total and shared and total % shared == 0:
            facts.derive("micro_answers", total // shared, "ppo_micro_batch_size over all replicas")
        else:
            facts.miss("micro_answers", ("ppo_micro_batch_size_per_gpu: --given micro_answers=N",))
    if own.number("cp") > 1 and facts.value("backend") == "fsdp":
        facts.derive("cp_comm", "a2a", "Ulysses")
    _verl_pools(own)
    if own.on("drafts_on"):
        own.rl["speculative"] = f"mtp:{own.number('drafts')}"
    _engine(own)


def _verl_pools(own: Rules) -> None:
    """The placement, and how old answers may be."""
    facts, mode = own.facts, own.facts.value("trainer_mode")
    nodes, each = own.number("rollout_nodes"), own.number("rollout_per_node") or own.number("per_node")
    if mode == "separate_async" and own.on("hybrid"):
        own.price_as("hybrid", "no", "accelerators of the trainer generate as well")
    if nodes:
        facts.derive("rollout_accelerators", nodes * each, "rollout.nnodes x rollout.n_gpus_per_node")
    if mode == "separate_async":
        said = number(facts.value("staleness")) or 0.0
        age = max(math.ceil(said), 1)
        if age != said:
            own.price_as("staleness", age, "answers are whole steps old, one at least")
        own.rl |= {"placement": "async", "staleness": age}
    elif nodes or own.on("one_step_off") or not own.on("hybrid"):
        own.rl["placement"] = "one-step-off"
    else:
        stays = not (own.on("states_leave") and own.on("optimizer_leaves"))
        own.rl["placement"] = "partial" if mode == "colocate_async" else "colocated"
        own.rl |= {"states_stay": stays, "engine_stays": not own.on("engine_sleeps")}


def _easyr1(own: Rules) -> None:
    if own.facts.value("moments") == "adamw_bf16":
        own.facts.doubt(f"{own.said('moments')}: weights and moments in bf16 are priced as fp32")
    _verl(own)
    own.take_reference(wanted=own.on("kl_reward"))  # without disable_kl, whatever use_kl_loss says


def _engine(own: Rules) -> None:
    """VLLM or SGLang; others are not planned. Formats of its weights and cache."""
    for key in ("rollout_precision", "cache_precision"):
        if own.facts.value(key) == "fp8":
            own.rl[key] = "fp8"
    engine = str(own.facts.value("engine") or "vllm").lower()
    if engine not in ("vllm", "sglang"):
        own.price_as("engine", "vllm", "an engine is vllm or sglang")
        engine = "vllm"
    own.rl["engine"] = engine


def _nemo(own: Rules) -> None:
    facts = own.facts
    facts.derive("advantage", facts.value("algorithm_name"), "adv_estimator")
    own.take_algorithm()
    own.take_reference(wanted=facts.value("kl") != 0 and not own.on("skip_reference"))
    own.rl["old_pass"] = not own.on("on_policy")
    _nemo_packs(own)
    nodes = own.number("nodes")
    if own.on("colocated"):
        own.rl["placement"] = "colocated"
        if own.on("async"):
            raise own.refuse(
                f"{own.said('async')} with {own.said('colocated')}",
                "an asynchronous run has a pool of its own for generation",
                "set policy.generation.colocated.enabled to false",
            )
    else:
        of_rollout, each = own.number("rollout_nodes"), own.number("rollout_per_node") or own.number("per_node")
        if nodes > 1 and of_rollout:
            left = (nodes - of_rollout) * own.number("per_node")
            facts.derive("rollout_accelerators", of_rollout * each, "nodes of generation")
        else:
            left = own.number("per_node") - own.number("rollout_per_node")
            facts.derive("rollout_accelerators", own.number("rollout_per_node"), "those of the node that generate")
        if left < 1:
            raise own.refuse(
                f"{own.said('nodes')}; {own.said('rollout_nodes')}; {own.said('rollout_per_node')}",
                "generation leaves accelerators to the trainer",
                "set cluster.num_nodes to the nodes of both pools",
            )
        facts.derive("num_accelerators", left, "what generation leaves")
        age = own.number("staleness") or 1
        is_off = own.on("async") and age == 1 and not own.on("in_flight")
        own.rl["placement"] = "one-step-off" if is_off else "async" if own.on("async") else "in-turns"
        if own.rl["placement"] == "async":
            own.rl |= {"staleness": age, "in_flight": own.on("in_flight")}
    if own.number("drafts"):
        own.rl["speculative"] = f"mtp:{own.number('drafts')}"
    _engine(own)


def _nemo_packs(own: Rules) -> None:
    """Tokens of a micro-batch, in training and in passes without gradients."""
    facts = own.facts
    window, each = own.number("window"), own.number("micro_answers")
    if own.on("packing") or own.on("dynamic"):
        if own.on("dynamic"):
            facts.missing.pop("pack_tokens", None)
            if own.number("dynamic_tokens"):
                facts.derive("pack_tokens", own.number("dynamic_tokens"), "tokens of dynamic batching")
        if "pack_tokens" in facts.missing or not own.number("pack_tokens"):
            facts.missing.pop("pack_tokens", None)
            facts.derive("pack_tokens", window * each, "max_total_sequence_length x train_micro_batch_size")
        tokens = own.number("pass_tokens") or window * own.number("pass_answers")
        if tokens and own.number("pack_tokens"):
            own.rl["pass_packs"] = tokens / own.number("pack_tokens")
    else:
        facts.facts.pop("pack_tokens", None)


def _slime(own: Rules) -> None:
    facts = own.facts
    own.take_algorithm()
    own.take_reference(wanted=own.on("kl_loss") or facts.value("kl") != 0)
    own.rl |= {"old_pass": not own.on("bypass_old"), "engine": "sglang"}
    if facts.value("train_backend") != "megatron":
        own.price_as("train_backend", "megatron", "slime's Megatron backend is read")
    facts.derive("unpadded", value=True, rule="slime packs without padding")
    if own.on("dynamic"):
        tokens = own.needed("tokens_per_accelerator") * (own.number("cp") or 1)
        if tokens:
            facts.derive("pack_tokens", tokens, "max-tokens-per-gpu x context-parallel ranks")
    if own.number("rollout_pp") > 1:
        each = own.number("rollout_tp") // own.number("rollout_pp")
        facts.replace("rollout_tp", Fact(value=each, origin="derived", why="accelerators of an engine / its stages"))
    train = own.number("nodes") * own.number("per_node")
    if own.on("colocated"):
        own.rl["placement"] = "partial" if own.on("partial") else "colocated"
        own.rl["states_stay"] = facts.value("offload_train") is not None and not own.on("offload_train")
    else:
        own.rl["placement"] = "one-step-off" if own.on("one_step_off") else "in-turns"
    facts.derive("num_accelerators", train, "actor nodes x accelerators of a node")
    if facts.value("weights_by") == "delta":
        own.rl["transfer"] = "delta"
    if own.number("drafts"):
        own.rl["speculative"] = f"{'eagle' if facts.value('draft_model') else 'mtp'}:{own.number('drafts')}"
    if own.number("layers_per_chunk") and own.number("pp") > 1:
        facts.miss("vp", ("num-layers-per-virtual-pipeline-stage: --given vp=N",))
    if facts.value("memory_share") is None:
        own.notes.append("memory of the engine as usual: no --sglang-mem-fraction-static")
    if facts.value("cache_precision") == "fp8":
        own.rl["cache_precision"] = "fp8"


def _openrlhf(own: Rules) -> None:
    facts = own.facts
    own.take_algorithm()
    own.rl["algorithm"] = {"reinforce": "reinforce++"}.get(str(facts.value("advantage")), own.rl["algorithm"])
    own.take_reference(wanted=facts.value("kl") != 0)
    if own.on("with_reference") and not own.rl["reference"]:
        own.notes.append(f"{own.said('kl')}: no pass of a reference is priced, which forks of old versions have")
    own.rl["engine"] = "vllm"
    facts.derive("filled_together", own.number("micro_answers"), "answers of a micro-batch")
    facts.derive("sharding", facts.value("zero"), "zero_stage")
    if own.on("dynamic"):
        facts.derive("pack_tokens", own.needed("tokens_per_accelerator") * own.number("cp"), "dynamic batches")
    if own.on("reward_url") or facts.value("reward_url"):
        own.notes.append("rewards come from another program and are counted as no time")
    size = own.needed("rollout_tp")
    if not own.number("engines"):
        own.facts.miss("engines", ("vLLM generates the answers that are priced: set --vllm_num_engines",))
    pool = own.number("engines") * size
    if own.on("colocated"):
        own.rl["placement"] = "partial" if own.on("partial") else "colocated"
        own.rl |= {"states_stay": not own.on("sleeps"), "engine_stays": not own.on("engine_sleeps")}
        facts.derive("rollout_accelerators", pool, "engines x their accelerators")
        return
    if (own.rl["reference"] and not own.on("with_reference")) or own.rl["algorithm"] == "ppo":
        raise own.refuse(
            f"{own.said('with_reference')}; {own.said('colocated')}",
            "reference and critic that are priced share the accelerators of the actor",
            "price it so: --given with_reference=yes, and another estimator than gae",
        )
    facts.derive("rollout_accelerators", pool, "engines x their accelerators")
    own.rl["placement"] = "async" if own.on("async") else "in-turns"


def _skyrl(own: Rules) -> None:
    facts = own.facts
    own.take_algorithm()
    own.take_reference(wanted=own.on("kl_loss") or own.on("kl_reward"))
    if facts.value("judge") not in (None, facts.value("model")):
        facts.doubt(f"{own.said('judge')}: priced as a reference of the policy's size")
    own.rl["old_pass"] = True
    if own.on("simulated"):
        raise own.refuse(own.said("simulated"), "the trainer of a step that is priced trains", "set it to false")
    if own.number("cp") > 1 and facts.value("backend") == "fsdp":
        facts.derive("cp_comm", "a2a", "Ulysses")
    size = (own.number("rollout_tp") or 1) * (own.number("rollout_pp") or 1)
    facts.derive("rollout_accelerators", own.needed("engines") * size, "engines x their accelerators")
    if own.on("colocated"):
        own.rl |= {"placement": "colocated", "states_stay": False, "engine_stays": False}
    elif own.on("async"):
        own.rl |= {"placement": "async", "staleness": own.number("staleness") or 1, "in_flight": True}
        facts.replace("prompts", Fact(value=own.number("mini_prompts"), origin="derived", why="one mini-batch a step"))
    else:
        own.rl["placement"] = "in-turns"
    if facts.value("weights_by") == "delta":
        own.rl["transfer"] = "delta"
    _engine(own)


def _oat(own: Rules) -> None:
    facts, gpus = own.facts, own.number("num_accelerators")
    own.take_algorithm()
    own.take_reference(wanted=facts.value("kl") != 0)
    if own.on("fp16"):
        facts.derive("precision", "fp16", own.said("fp16"))
    facts.derive("filled_together", own.number("micro_answers"), "answers of a micro-batch")
    own.rl |= {"engine": "vllm", "old_pass": True}
    if own.on("colocated"):
        own.rl |= {"placement": "colocated", "states_stay": True, "engine_stays": not own.on("engine_sleeps")}
        return
    facts.derive("rollout_accelerators", gpus // 2, "actors have half of the accelerators")
    facts.replace("num_accelerators", Fact(value=gpus - gpus // 2, origin="derived", why="the other half trains"))
    own.rl["placement"] = "one-step-off" if own.on("async") else "in-turns"


def _trl(own: Rules) -> None:
    facts = own.facts
    own.take_algorithm()
    own.take_reference(wanted=facts.value("kl") not in (0, None))
    own.rl |= {"engine": "vllm", "old_pass": True}
    if not own.on("uses_engine"):
        own.price_as("uses_engine", "yes", "vLLM generates, and not generate() of transformers")
        if facts.value("mode") is None:
            facts.replace("mode", Fact(value="colocate", origin="derived", why="the trainer's accelerators generate"))
    if facts.value("train_type") not in (None, "full"):
        own.price_as("train_type", "full", "the policy is trained in full")
    mode = str(facts.value("mode") or "")
    if not mode and own.launch.name == "ms-swift":
        facts.miss("mode", ("vllm_mode is not in the file (--given mode=colocate, or server)",))
    nodes, each = own.number("nodes"), own.number("per_node")
    world = own.number("num_accelerators") or nodes * each
    if world:
        facts.derive("num_accelerators", world, "processes")
    world = own.needed("num_accelerators")
    batch = own.number("micro_answers") * world
    steps = own.number("steps_per_generation") or own.number("accumulation")
    generated = own.number("generation_batch") or batch * steps
    samples = own.needed("samples")
    if world and samples and batch and (generated % samples or generated % batch):
        raise own.refuse(
            f"{generated:,} answers of a generation, {samples:,} to a prompt, {batch:,} in a batch of all processes",
            "the answers of a generation are whole prompts and whole batches",
            f"set num_generations to a divisor of {generated:,}",
        )
    per_update = batch * own.number("accumulation")
    if world and per_update and generated % per_update:
        raise own.refuse(
            f"{generated:,} answers of a generation; an optimizer step takes {per_update:,}",
            "optimizer steps share the answers of a generation evenly",
            "set gradient_accumulation_steps to a divisor of steps_per_generation",
        )
    each_process = own.number("micro_answers") * steps
    facts.derive("filled_together", each_process, "answers of a generation on a process")
    if world and samples:
        facts.derive("prompts", generated // samples, "answers of a generation / num_generations")
        facts.derive("mini_batch", per_update, "answers of an optimizer step")
    if mode == "colocate":
        own.rl["placement"] = "colocated"
        own.rl |= {"states_stay": not own.on("states_leave") or own.launch.name == "trl"}
        own.rl["engine_stays"] = own.launch.name == "trl" and not own.on("states_leave")
    else:
        own.rl["placement"] = "colocated" if not mode else "one-step-off" if own.on("async") else "in-turns"
        if mode and "rollout_accelerators" not in facts.facts:
            facts.miss("rollout_accelerators", ("the server's line: --given rollout_accelerators=N",))


BY_NAME: Final[Mapping[str, Callable[[Rules], None]]] = {
    "verl": _verl, "easyr1": _easyr1, "nemo-rl": _nemo, "slime": _slime, "openrlhf": _openrlhf,
    "skyrl": _skyrl, "oat": _oat, "trl": _trl, "ms-swift": _trl,
}  # fmt: skip
