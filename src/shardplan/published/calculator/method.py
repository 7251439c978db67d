"""The calculator as a method: its answers in its page's words, and questions of ours in its terms."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from shardplan.errors import InputError
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.job import Job
from shardplan.inputs.layers import Attention, LatentAttention, MixtureOfExperts
from shardplan.inputs.model import ModelConfig
from shardplan.published.base import Case, Method, MethodAnswer, MethodError, MethodRow
from shardplan.published.calculator.flaws import FLAWS
from shardplan.published.calculator.record import RESULTS, record
from shardplan.published.calculator.table import (
    FILLED,
    GB,
    CalculatorCase,
    MemoryTable,
    table,
)
from shardplan.published.fields import json_object, read_fields
from shardplan.published.mapping import domain_size, put


class Calculator(Method):
    """The calculator as a method."""

    name = "calculator"
    title = "rule-of-thumb memory and communication volume of tensor, pipeline and data parallelism"
    source = "tutorial page parallel_strategy_calculator.py (part 2, chapter 7: pipeline and expert parallelism)"
    counts = (
        "weights, gradients, Adam states and activations of one GPU",
        "bytes per step of tensor, pipeline and data parallelism",
        "pipeline bubble and micro-batches (promised by its page, added here)",
    )
    leaves_out = ("time: it ranks by bytes", *(flaw.text for flaw in FLAWS))

    def answer(self, case: Mapping[str, Any]) -> Mapping[str, Any]:
        """Table, recommendation and reasons for ``model``, ``hardware`` and ``training``. Raises ``InputError``."""
        return record(read_fields(CalculatorCase, case, owner=self.name, results=RESULTS))

    def cases(self, text: str) -> Iterator[Case] | None:
        """Cases of a file that holds ``model``, ``hardware`` and ``training`` of each."""
        cases = (json_object(text) or {}).get("cases")
        if not isinstance(cases, list) or not any(isinstance(case, dict) and "hardware" in case for case in cases):
            return None
        return (self.recomputed(case, RESULTS) for case in cases)

    def plan(
        self, model: ModelConfig, cluster: Cluster, num_accelerators: int, job: Job, *, top: int = 10
    ) -> MethodAnswer:
        """The calculator's table for a question of ours, recommended configuration first. Raises ``MethodError``."""
        case = put(CalculatorCase, _terms(model, cluster, num_accelerators, job), owner=self.name)
        try:
            found = table(case)
        except InputError as error:
            raise MethodError(error.message, rule=error.rule, hint=error.hint) from None
        rows = tuple(_method_row(found, int(index)) for index in found.order[:top])
        return MethodAnswer(
            method=self.name,
            rows=rows,
            mapped=_mapped(case, cluster),
            ignored=_ignored(model, job),
            notes=(*_remarks(rows, num_accelerators), *(flaw.text for flaw in FLAWS if flaw.ours)),
        )


def _terms(model: ModelConfig, cluster: Cluster, num_accelerators: int, job: Job) -> dict[str, Any]:
    """A question of ours in the calculator's words. Raises ``MethodError``."""
    heads = [kind.mixer.num_heads for kind in model.layer_kinds if isinstance(kind.mixer, Attention | LatentAttention)]
    if len(heads) != len(model.layer_kinds):
        raise MethodError(
            f"{model.name} has layers without attention; the calculator knows attention and an MLP in every layer",
            rule="every layer has attention",
            hint="ask another method (`shardplan methods`)",
        )
    mlp = sum(layer.mlp.num_parameters(model.hidden_size) for layer in model.layers if layer.mlp)
    experts = max(kind.mlp.num_experts if isinstance(kind.mlp, MixtureOfExperts) else 1 for kind in model.layer_kinds)
    return {
        "model": {
            "params_billions": model.num_parameters / 1e9,
            "hidden_size": model.hidden_size,
            "num_layers": model.num_hidden_layers,
            "num_heads": heads[0],
            "vocab_size": model.vocab_size,
            "intermediate_ratio": mlp / (2 * model.hidden_size**2 * experts * model.num_hidden_layers),
            "is_moe": model.is_moe,
            "num_experts": experts,
        },
        "hardware": {
            "num_gpus": num_accelerators,
            "memory_per_gpu_gb": cluster.accelerator.memory_bytes / GB,
            "gpus_per_node": domain_size(cluster),
        },
        "training": {
            "batch_size": job.global_batch_size,
            "sequence_length": job.sequence_length,
            "dtype_bytes": int(job.recipe.weight_bytes),
        },
    }


def _mapped(case: CalculatorCase, cluster: Cluster) -> tuple[str, ...]:
    model, hardware, training = case.model, case.hardware, case.training
    experts = f" in each of {model.num_experts} experts" if model.is_moe else ""
    return (
        f"{model.params_billions:.4g} billion parameters stated, {model.num_parameters / 1e9:.4g} counted",
        f"MLP of {model.intermediate_ratio:.4g} times the hidden size{experts}: as many weights as in the model",
        f"node of {hardware.gpus_per_node}: the {cluster.innermost.name}",
        f"{hardware.memory_per_gpu_gb:.4g} GB per GPU, {FILLED:.0%} of which may be filled",
        f"{training.batch_size:,} sequences of {training.sequence_length:,} tokens, {training.dtype_bytes} B a value",
        "micro-batches of one sequence, for the bubble",
    )


def _ignored(model: ModelConfig, job: Job) -> tuple[str, ...]:
    """What of a question the calculator does not look at."""
    ignored = [
        "speed of accelerators and links",
        "grouped or latent attention: four square matrices are counted",
        "context and expert parallelism, sharding, recomputation, schedules, micro-batch size",
        f"optimizer {job.optimizer} and {job.grad_dtype} gradients: Adam moments in fp32 and gradients as weights",
    ]
    if job.precision not in ("bf16", "fp16", "fp32"):
        ignored.append(f"the number format {job.precision} of the matrix products")
    if not model.tie_word_embeddings and model.vocab_size:
        ignored.append("the output head: one table of embeddings is counted")
    if model.num_mtp_layers:
        ignored.append("multi-token-prediction blocks")
    return tuple(ignored)


def _remarks(rows: tuple[MethodRow, ...], num_accelerators: int) -> tuple[str, ...]:
    """Says where nothing fits, and where accelerators are left over."""
    used = math.prod(rows[0].degrees.values())
    notes = [] if rows[0].fits else ["nothing fits by its own rule: it recommends no configuration"]
    if used < num_accelerators:
        notes.append(f"dp is rounded down: the first row uses {used:,} of {num_accelerators:,} accelerators")
    return tuple(notes)


def _method_row(found: MemoryTable, index: int) -> MethodRow:
    return MethodRow(
        degrees={name: int(getattr(found, name)[index]) for name in ("dp", "tp", "pp")},
        memory_bytes=float(found.memory_gb[index]) * GB,
        fits=bool(found.fits[index]),
        parts={
            "tp_communication_bytes": float(found.tp_gb[index]) * GB,
            "pp_communication_bytes": float(found.pp_gb[index]) * GB,
            "dp_communication_bytes": float(found.dp_gb[index]) * GB,
            "bubble_fraction": float(found.bubble_fraction[index]),
            "num_microbatches": float(found.num_microbatches[index]),
        },
    )
