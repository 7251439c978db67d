"""The step of a launch file: its trainer's plan and its engines as they are, priced as ``shardplan rl`` prices."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import PurePath
from typing import Any, Final

from shardplan.base.errors import InputError, ShardplanError
from shardplan.base.fields import dataclass, replace
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.readers.catalog import load_model
from shardplan.inputs.readers.names import names_meant
from shardplan.launch.dialects.ask import Ask
from shardplan.launch.dialects.companions import model_file, take_one_node
from shardplan.launch.dialects.models import named_model
from shardplan.launch.dialects.reading import PLAN_KEYS, Facts, Taken
from shardplan.launch.dialects.values import switch
from shardplan.rl.asked import AskedRl, ask_rl
from shardplan.rl.engine import constant
from shardplan.rl.launches.frameworks import BY_NAME
from shardplan.rl.launches.reading import EXAMPLES, RlLaunch, read_rl_launch
from shardplan.rl.launches.rules import ANSWER, Rules
from shardplan.rl.search import NoEngineError, PlacementSearch, RlPlan, RlResult
from shardplan.rl.task import PLACEMENTS
from shardplan.rl.trainer import Trained

USUAL: Final = "kernels of the trainer are those of its framework in `shardplan rl` (--given stack=NAME)"


@dataclass(frozen=True, kw_only=True)
class RlAudit:
    """A launch file of post-training, understood and priced."""

    launch: RlLaunch
    result: RlResult
    """The plan of the file alone."""
    assumptions: tuple[str, ...]
    notes: tuple[str, ...]
    """What a reader should know."""
    taken: Taken = field(default_factory=dict)
    """What the file leaves open, or has and is not priced: what was taken instead."""
    range: tuple[float, float] | None = None
    """Step times with short and with long answers, where their mean is taken. [s]"""

    @property
    def plan(self) -> RlPlan:
        """Both pools as the file has them."""
        return self.result.plans[0]

    @property
    def fits(self) -> bool:
        """Whether both programs fit on their accelerators."""
        return self.plan.trainer_memory <= self.plan.usable_memory


def audit_rl(
    ask: Ask, *, model: ModelConfig | None = None, cluster: Cluster | None = None, launch: RlLaunch | None = None
) -> RlAudit | None:
    """The step of a launch file; None where it is of no framework of post-training.

    Raises ``InputError`` for what is open, contradicts itself, or decides and is not priced.
    """
    if cluster is not None:
        ask = dataclasses.replace(ask, node=cluster.accelerators_per_node)
    launch = launch or read_rl_launch(ask)
    if launch is None:
        return None
    take_one_node(launch.facts, ask)
    rules = Rules(launch)
    rules.work_out(BY_NAME[launch.name])
    found = model or _model(launch.facts, ask)
    _check_open(rules, found, cluster)
    assert found is not None
    assert cluster is not None
    record, rl = _records(rules, found, cluster)
    asked = ask_rl(record, rl)
    result = RlResult(task=asked.task, plans=(_plan(rules, asked),), refused={})
    notes = (*dict.fromkeys((*rules.notes, *launch.facts.notes)),)
    taken = {**rules.instead, **{key: (rules.facts.value(key), why) for key, why in rules.likely.items()}}
    audit = RlAudit(launch=launch, result=result, assumptions=(*asked.assumptions, USUAL), notes=notes, taken=taken)
    return replace(audit, range=_range(rules, ask, found, cluster)) if ANSWER in rules.likely else audit


def _range(rules: Rules, ask: Ask, model: ModelConfig, cluster: Cluster) -> tuple[float, float] | None:
    """The step with answers as short and as long as in nine of ten measured steps; None where one breaks a rule."""
    cap = rules.number("response_max")
    means = (max(round(cap * constant(f"answer_share_{end}")), 1) for end in ("least", "most"))
    try:
        ends = [
            audit_rl(dataclasses.replace(ask, given={**ask.given, ANSWER: str(mean)}), model=model, cluster=cluster)
            for mean in means
        ]
    except ShardplanError:
        return None
    least, most = (each.plan.step_time for each in ends if each is not None)
    return least, most


def _model(facts: Facts, ask: Ask) -> ModelConfig | None:
    config = model_file(facts, ask)
    if config is not None:
        return load_model(config)
    return named_model(facts.value("model"))


OPEN: Final = (
    "prompts", "samples", "response_max", "response_mean", "micro_answers", "micro_batch_size", "num_accelerators",
    "nodes", "per_node", "rollout_accelerators", "rollout_tp", "rollout_pp", "rollout_ep", "tp", "pp", "cp", "ep",
    "etp", "vp", "sharding", "recompute", "stage_layers", "mode", "critic_model", "pack_tokens", "mini_batch",
    "mini_prompts", "tokens_per_accelerator", "memory_share", "engine", "advantage", "dynamic", "unpadded",
    "colocated", "packing", "window", "prompt_max", "updates", "epochs", "kl_loss", "kl_reward", "kl", "zero",
    "engines", "async", "backend", "states_leave", "optimizer_leaves", "accumulation", "uses_engine", "lora",
    "turns", "reward_model", "recompute_modules", "recompute_granularity", "sequence_parallel", "sharding_degree",
    "offload_always", "hybrid_offload",
)  # fmt: skip
"""What a step cannot do without, of what a file may leave open."""


class OpenStepError(InputError):
    """A launch file leaves open what decides its step."""

    needs: Mapping[str, str] = {}
    """What has to be given, with the reason."""
    framework: str = ""


def _check_open(rules: Rules, model: ModelConfig | None, cluster: Cluster | None) -> None:
    """Raises ``OpenStepError`` that names all that has to be given."""
    launch, facts = rules.launch, rules.facts
    needs: dict[str, str] = {}
    if model is None:
        name = facts.value("model")
        close = names_meant("model", PurePath(str(name or "")).name)
        may = f"; {' or '.join(close)} may be the same" if close else ""
        open_ = ", ".join(facts.missing.get("model", ()))
        needs["model"] = f"{f'{name} is not in the catalogue' if name else open_ or 'not in the file'}{may}"
    if cluster is None:
        needs["cluster"] = "the accelerators and their network"
    for key in OPEN:
        asked = "num_accelerators" in needs and launch.name != "nemo-rl"  # whose pools are nodes
        known = key in ("nodes", "per_node") and ("num_accelerators" in facts.facts or asked)
        unused = key == "unpadded" and switch(facts.value("dynamic"))
        if key in facts.missing and not known and not unused:
            needs[key] = ", ".join(facts.missing[key])
    if needs:
        needs = {**{key: why for key, (_, why) in rules.instead.items()}, **needs, **rules.likely}
        flags = {"model": "--model NAME", "cluster": "--cluster NAME", "num_accelerators": "--gpus N"}
        longest = min(800, rules.number("response_max") or 800)
        examples = {**EXAMPLES, ANSWER: longest, **{key: value for key, (value, _) in rules.instead.items()}}
        given = [flags.get(key, f"--given {key}={examples.get(key, 'VALUE')}") for key in needs]
        error = OpenStepError(
            f"{facts.file} is a launch file of {launch.title}, which leaves open: "
            f"{'; '.join(f'{key}: {why}' for key, why in needs.items())}",
            rule="a step is priced when all that decides it is known",
            hint=f"add {' '.join(given)}",
        )
        error.needs, error.framework = needs, launch.title
        raise error


def _records(rules: Rules, model: ModelConfig, cluster: Cluster) -> tuple[dict[str, Any], dict[str, Any]]:
    """The question of the trainer, and the fields of the step."""
    facts, rl = rules.facts, rules.rl
    train = rules.number("num_accelerators")
    apart = PLACEMENTS[rl["placement"]].two_pools
    pools = f"{train}+{rules.number('rollout_accelerators')}" if apart else train
    fixed = {f"rollout.{name}": rules.number(f"rollout_{name}") or 1 for name in ("tp", "pp")}
    fixed["rollout.ep"] = rules.number("rollout_ep") or 1
    record = {"model": model, "cluster": cluster, "num_accelerators": pools, "fix": fixed}
    for key in ("precision", "stack"):
        if facts.value(key) is not None:
            record[key] = facts.value(key)
    share = facts.value("memory_share")
    if share is not None:
        share = float(str(share))
        if not 0 < share <= 1:
            raise rules.refuse(
                rules.said("memory_share"), "an engine takes a share of the memory from 0 to 1", "set it to 0.6"
            )
    release = facts.value("release")
    framework = f"{rules.launch.name}:{release}" if release else rules.launch.name
    return record, {**rl, "memory_share": share, "framework": framework, "backend": facts.value("backend")}


def _plan(rules: Rules, asked: AskedRl) -> RlPlan:
    """Both pools as the file has them. Raises ``InputError`` where it breaks a rule."""
    facts, task = rules.facts, asked.task
    if rules.launch.name in ("verl", "nemo-rl", "skyrl", "slime"):
        _take_recompute(rules)
    if switch(facts.value("offload_always")) or switch(facts.value("hybrid_offload")):
        facts.derive("offload", "optimizer", "the optimizer runs on the host")
    train = rules.number("num_accelerators")
    known = {key: facts.value(key) for key in PLAN_KEYS if facts.value(key) is not None}
    _take_shards(known, train)
    search = PlacementSearch(task, asked.searches)
    apart = PLACEMENTS[rules.rl["placement"]].two_pools
    rollout = rules.number("rollout_accelerators") if apart else train
    try:
        found = search.written(rules.rl["placement"], (train, rollout), known)
        more = _more_memory(rules, found.trained)
    except NoEngineError as error:
        text = f"{facts.file}: {rules.said('rollout_tp')}, {rules.said('memory_share')}: {error.message}"
        raise InputError(text, rule=error.rule, hint=error.hint) from None
    except ShardplanError as error:
        raise InputError(f"{facts.file}: trainer: {error.message}", rule=error.rule, hint=error.hint) from None
    return replace(found, trainer_memory=found.trainer_memory + more)


def _more_memory(rules: Rules, trained: Trained) -> float:
    """What the longest micro-batch needs beyond a usual one, where micro-batches have a number of answers. [bytes]"""
    if rules.longest_batch <= trained.packing.pack_tokens:
        return 0.0
    longest = replace(trained.packing, pack_tokens=rules.longest_batch)
    question, plan = trained.priced.question, trained.priced.plan
    return float(Trained.of(question, plan, longest).priced.peak_memory_bytes - trained.priced.peak_memory_bytes)


def _take_shards(known: dict[str, Any], train: int) -> None:
    """Shards within some ranks, with copies across, are hybrid."""
    degree = known.pop("sharding_degree", None)
    ranks = train // (known.get("tp", 1) * known.get("pp", 1))
    if degree is not None and 1 < degree < ranks and known.get("sharding") == "zero3":
        known |= {"sharding": "hsdp", "sharding_degree": degree}


def _take_recompute(rules: Rules) -> None:
    """Megatron's words for what is computed again."""
    facts = rules.facts
    if facts.value("backend") != "megatron":
        return
    granularity = facts.value("recompute_granularity")
    is_on = facts.value("checkpointing") is None or rules.on("checkpointing")
    if facts.value("checkpointing") is not None and is_on:
        granularity = granularity or "full"
    if not is_on or granularity in (None, "null", "None"):
        facts.derive("recompute", "none", "nothing is computed again")
    elif granularity == "full":
        facts.derive("recompute", "full", "granularity full")
    else:
        words = str(facts.value("recompute_modules") or "core_attn")
        names = re.findall(r"\w+", words)
        unknown = [name for name in names if name not in MODULES]
        if unknown:
            raise rules.refuse(
                f"recompute_modules are {words}",
                f"modules are among {', '.join(MODULES)}",
                "--given recompute=selective",
            )
        text = "selective" if names == ["core_attn"] else ",".join(dict.fromkeys(MODULES[name] for name in names))
        facts.derive("recompute", text, f"granularity selective, {words}")
    if granularity != "full" or facts.value("recompute_method") != "block":
        facts.facts.pop("recompute_num_layers", None)


MODULES: Final[Mapping[str, str]] = {
    **{name: name for name in ("core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts")},
    "moe_act": "activation",
}
"""Megatron's modules by our names."""
