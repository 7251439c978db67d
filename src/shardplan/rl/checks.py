"""What no RL step can be: fixed layouts that engines refuse, pools that a cluster has not, ages of answers in turns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shardplan.ask.questions import size_of
from shardplan.base.errors import InputError, shown
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.counts import MAX_NUM_ACCELERATORS
from shardplan.inputs.plan_numbers import Setting
from shardplan.inputs.readers.typed import grid
from shardplan.rl.search import TENSOR_DEGREES, shares_evenly
from shardplan.rl.task import PLACEMENTS, RlTask


def check_asked(task: RlTask, given: Mapping[str, Any], pools: object) -> None:
    """Raises ``InputError`` for a task that none can run.

    ``given``: fields of the step as they were asked, ``pools``: the numbers of accelerators.
    """
    for text, cluster in zip(str(pools).split("+"), (task.question.cluster, task.generating), strict=False):
        if grid(text):
            size_of(text, cluster)
    _check_pools(task)
    _check_drafts(task)
    if given.get("staleness") and "async" not in task.placements:
        raise InputError(
            f"--staleness is {given['staleness']} with --placement {','.join(task.placements)}",
            rule="the age of answers is bounded where the step is asynchronous",
            hint="leave --staleness out, or set --placement async",
        )
    refusal = next(_refusals(task), None)
    if refusal is not None:
        raise refusal


def check_sum(given: object, counts: tuple[int, ...]) -> None:
    """Raises ``InputError`` where pools have more accelerators together than there may be."""
    if sum(counts) > MAX_NUM_ACCELERATORS:
        raise InputError(
            f"--gpus is {shown(given)}",
            rule=f"both pools have at most {MAX_NUM_ACCELERATORS:,} accelerators",
            hint="write --gpus 512, or --gpus 64+128",
        )


def _check_pools(task: RlTask) -> None:
    """Accelerators that each cluster has."""
    question, other = task.question, task.rollout_cluster
    if other is None:
        _check_fits(question.cluster, question.num_accelerators)
        return
    if task.num_rollout is None:
        raise InputError(
            f"--gpus is {question.num_accelerators} with --rollout-cluster {other.name}",
            rule="pools on two clusters have a number of accelerators each",
            hint="write --gpus 64+128: trainer and generation",
        )
    _check_fits(question.cluster, task.num_train or 1)
    _check_fits(other, task.num_rollout)


def _check_fits(cluster: Cluster, number: int) -> None:
    most = cluster.max_num_accelerators
    if most is not None and number > most:
        raise InputError(
            f"--gpus puts {number:,} accelerators on {cluster.name}, which has {most:,}",
            rule="the pools are no larger than their cluster",
            hint=f"take at most {most:,} of {cluster.name}, or another cluster",
        )


def _check_drafts(task: RlTask) -> None:
    """Multi-token prediction drafts with layers of the model."""
    model = task.question.model
    if task.drafter == "mtp" and not model.num_mtp_layers:
        raise InputError(
            f"--speculative is mtp, and {model.name} has no layers for multi-token prediction",
            rule="multi-token prediction drafts with layers that the model has",
            hint="leave --speculative out, or write --speculative eagle for a draft layer that was trained beside it",
        )


def _refusals(task: RlTask) -> Iterator[InputError]:
    """What engines refuse of the degrees that are fixed."""
    fixed, model = task.fixed_rollout, task.question.model
    setting = Setting.of(model, task.generating, 1, task.question.job)
    tp, pp, ep = (fixed.get(name, 1) for name in ("tp", "pp", "ep"))
    if not shares_evenly(setting, tp):
        good = [str(each) for each in TENSOR_DEGREES if shares_evenly(setting, each)]
        heads = " and ".join(f"{each:,}" for each in dict.fromkeys(setting.heads))
        pairs = " and ".join(f"{each:,}" for each in dict.fromkeys(setting.kv_heads))
        yield InputError(
            f"--fix rollout.tp={tp} does not divide the {heads} heads"
            + f", {pairs} of keys and values," * bool(pairs)
            + f" of {model.name} into equal parts",
            rule=f"{task.engine} shares heads and widths evenly by rollout.tp",
            hint=f"set --fix rollout.tp={good[-1]}; {', '.join(good)} are possible",
        )
    if pp > model.num_hidden_layers:
        yield InputError(
            f"--fix rollout.pp={pp}, and {model.name} has {model.num_hidden_layers} layers",
            rule="a stage of the engine has a layer at least",
            hint=f"set --fix rollout.pp={model.num_hidden_layers}, or less",
        )
    is_shared = bool(setting.num_experts) and all(each % ep == 0 for each in setting.num_experts)
    if ep > 1 and not (is_shared and ep == fixed.get("tp", ep)):
        experts = f"{' and '.join(map(str, setting.num_experts)) or 'no'} experts"
        yield InputError(
            f"--fix rollout.ep={ep} with rollout.tp {fixed.get('tp', 'open')}, and {model.name} has {experts}",
            rule="ranks of an engine share whole experts evenly: rollout.ep is 1 or rollout.tp",
            hint="leave rollout.ep out" + (f", or set --fix rollout.tp={ep}" if setting.num_experts else ""),
        )
    size, sizes = tp * pp, _pool_sizes(task)
    if size > 1 and all(each % size for each in sizes):
        yield InputError(
            f"--fix rollout.tp={tp} and rollout.pp={pp} take {size:,} accelerators a replica; {max(sizes):,} generate",
            rule="replicas of the engine fill the accelerators that generate",
            hint=f"set --fix rollout.tp and rollout.pp so that their product divides {max(sizes):,}",
        )


def _pool_sizes(task: RlTask) -> list[int]:
    """Accelerators that may generate, under any placement."""
    if task.num_rollout is not None:
        return [task.num_rollout]
    total = task.question.num_accelerators
    node = min(task.question.cluster.accelerators_per_node, max(total // 2, 1))
    shared = [total] if any(not PLACEMENTS[name].two_pools for name in task.placements) else []
    return [*shared, *range(node, total, node)] or [total]
