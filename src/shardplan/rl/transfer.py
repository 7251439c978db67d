r"""New weights on their way to the engines, and how two programs share the memory of an accelerator.

What a transfer takes is mostly software: gathering tensors, one call for each, copies. Each method has its own rates,

.. math:: t = t_0 + k\,(t_1 + t_q) + \frac{w / n}{r_1} + \frac{c\,w}{B} + \frac{w}{r_2} + t_{gather}

for k tensors of w bytes in all, and n accelerators of a replica that receives them (``data/generation.yaml``).
Every byte crosses the memory c times; :math:`t_q` comes where weights are quantised on their way. Where the engine is
on the same accelerators, each of them gathers the whole model over the groups of the trainer's plan, tensor by tensor:
Megatron's over tp, pp and ep, FSDP2's in fp32 over all that share it. Where adapters are trained, an engine that runs
them next to its weights gets nothing else, each accelerator all of them (n is 1); others get all weights, with the
adapters in them.
"""

from __future__ import annotations

import math

from shardplan.base.errors import UnknownNameError
from shardplan.base.fields import dataclass
from shardplan.estimation.layout import whole_model
from shardplan.estimation.pricing import num_trained_parameters
from shardplan.estimation.question import Question
from shardplan.inputs.layers import MixtureOfExperts
from shardplan.inputs.trained import lora_targets
from shardplan.physics.costs.collectives import collective_time, groups_of
from shardplan.rl.engine import WEIGHT_BYTES, Adapters, Engine, generation_data, rates_of
from shardplan.rl.trainer import Trained


def transfer_methods() -> tuple[str, ...]:
    """Names of the methods."""
    return tuple(generation_data()["transfers"])


def checked_method(name: str) -> str:
    """The name of a method. Raises ``UnknownNameError``."""
    known = transfer_methods()
    if name not in known:
        raise UnknownNameError("transfer", name, known, hint=f"one of {', '.join(known)}")
    return name


def transfer_time(method: str, engine: Engine, trained: Trained | None = None) -> float:
    """Seconds until every replica has the weights, which ``trained`` gathers on their own accelerators.

    Raises ``UnknownNameError``.
    """
    checked_method(method)
    rate = float(engine.question.machine.memory_rate)
    if engine.adapters is not None:
        return seconds(method, engine.adapters.bytes, 1, engine.adapters.num_tensors, rate, quantised=False)
    number, quantised = engine.replica.num_accelerators, engine.precision not in ("bf16", "fp16")
    found = seconds(method, engine.weights, number, engine.num_tensors, rate, quantised=quantised)
    if method != "ipc" or trained is None:
        return found
    return found + gather_time(
        trained, engine.weights * number * 2 / WEIGHT_BYTES[engine.precision], engine.num_tensors
    )


def gather_time(trained: Trained, whole: float, tensors: int) -> float:
    """Until every accelerator of the trainer has had all tensors, ``whole`` bytes in bf16, one after the other. [s]

    Nearly all bytes of a mixture are its experts': each rank has its own from the pipeline, the others' from theirs.
    """
    numbers, network = trained.priced.numbers, trained.priced.question.network
    groups, ep = groups_of(numbers, network), float(numbers.ep)
    shares = {"tp": (1.0, 1.0), "pp": (1 / ep, 1 / ep), "ep": (1.0, 1 / ep)}
    if trained.packing.framework.backend == "fsdp":
        shares = {"dpcp": (2.0, 1.0)}
    return sum(
        float(collective_time("all_gather", share * whole, groups[name], network, calls=calls * tensors))
        for name, (share, calls) in shares.items()
    )


def seconds(method: str, received: float, num: int, tensors: int, memory_rate: float, *, quantised: bool) -> float:
    """The formula: ``received`` bytes on each of ``num`` accelerators of a replica."""
    rates = rates_of(method)
    return (
        rates["fixed"]
        + tensors * (rates.get("per_tensor", 0.0) + quantised * rates.get("per_quantised", 0.0))
        + received / rates.get("per_accelerator", math.inf)
        + rates.get("copies", 0.0) * received * num / memory_rate
        + received * num / rates.get("whole", math.inf)
    )


@dataclass(frozen=True, kw_only=True)
class EngineFacts:
    """What an inference engine takes of an accelerator."""

    awake_share: float
    """Share of the memory that weights and cache may fill where it is alone."""
    colocated_share: float
    """The same where the trainer shares the accelerator."""
    asleep: float
    """What it holds while the trainer works. [bytes]"""
    reserved: float
    """Its graphs, workspaces and communicators beside weights and cache. [bytes]"""
    wake_time: float
    """To sleep and awake again. [s]"""
    adapters: bool
    """Whether it runs adapters next to its weights."""
    adapters_source: str
    """Who says so."""


def engine_facts(name: str) -> EngineFacts:
    """Facts of an engine. Raises ``UnknownNameError``."""
    known = generation_data()["engines"]
    if name not in known:
        raise UnknownNameError("engine", name, known, hint=f"one of {', '.join(known)}")
    return EngineFacts(**known[name])


def sent_adapters(question: Question, facts: EngineFacts) -> Adapters | None:
    """The adapters that the job trains, where an engine takes them alone; None: it gets all weights."""
    job, model = question.job, question.model
    if job.train != "lora" or not facts.adapters:
        return None
    number, targets = 0, lora_targets(job.lora_targets)
    of_mlp = len({*targets} & {"gate", "up", "gate_up", "down"})
    for kind, count in zip(model.layer_kinds, whole_model(model).counts, strict=True):
        experts = kind.mlp.num_experts if isinstance(kind.mlp, MixtureOfExperts) else 1
        number += 2 * int(count) * (len(targets) - of_mlp + of_mlp * experts)
    return Adapters(job.recipe.activation_bytes * num_trained_parameters(question), number)
