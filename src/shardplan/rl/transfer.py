r"""New weights on their way to the engines, and how two programs share the memory of an accelerator.

What a transfer takes is mostly software: gathering tensors, one call for each, copies. Each method has its own rates,

.. math:: t = t_0 + k\,(t_1 + t_q) + \frac{w / n}{r_1} + \frac{c\,w / n}{B} + \frac{w}{r_2}

for k tensors of w bytes in all, and n accelerators of a replica that receives them (``data/generation.yaml``).
Copies on an accelerator take c times as long as its memory needs for the bytes; :math:`t_q` comes where weights are
quantised on their way. Where adapters are trained, an engine that runs them next to its weights gets nothing else, each
accelerator all of them (n is 1); others get all weights, with the adapters in them.
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
from shardplan.rl.engine import Adapters, Engine, generation_data, rates_of


def transfer_methods() -> tuple[str, ...]:
    """Names of the methods."""
    return tuple(generation_data()["transfers"])


def transfer_time(method: str, engine: Engine) -> float:
    """Seconds until every replica has the new weights. Raises ``UnknownNameError``."""
    known = generation_data()["transfers"]
    if method not in known:
        raise UnknownNameError("transfer", method, known, hint=f"one of {', '.join(known)}")
    rate = float(engine.question.machine.memory_rate)
    if engine.adapters is not None:
        return seconds(method, engine.adapters.bytes, 1, engine.adapters.num_tensors, rate, quantised=False)
    quantised = engine.precision not in ("bf16", "fp16")
    return seconds(
        method, engine.weights, engine.replica.num_accelerators, engine.num_tensors, rate, quantised=quantised
    )


def seconds(method: str, received: float, num: int, tensors: int, memory_rate: float, *, quantised: bool) -> float:
    """The formula: ``received`` bytes on each of ``num`` accelerators of a replica."""
    rates = rates_of(method)
    return (
        rates["fixed"]
        + tensors * (rates.get("per_tensor", 0.0) + quantised * rates.get("per_quantised", 0.0))
        + received / rates.get("per_accelerator", math.inf)
        + rates.get("copies", 0.0) * received / memory_rate
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
