"""The calculator as a method: its answers in its page's words, their known errors, and our questions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, Final

from shardplan.base.fields import dataclass, in_files
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.job import Job
from shardplan.inputs.layers import Attention, LatentAttention, MixtureOfExperts
from shardplan.inputs.model import ModelConfig
from shardplan.methods.base import Case, Method, MethodAnswer, MethodError, MethodRow
from shardplan.methods.calculator.table import ADAM_BYTES, FILLED, GB, CalculatorCase, MemoryTable, table
from shardplan.methods.fields import json_cases, read_fields
from shardplan.methods.mapping import ASK_ANOTHER, as_refusal, case_of, domain_size


@dataclass(frozen=True, kw_only=True)
class Flaw:
    """A known error of the calculator."""

    figure: str
    """Column of its table, or the recommendation."""
    text: str
    ours: str | None = field(metadata=in_files("ours_key"))
    """The same quantity in our estimate: a key of an element of ``plans`` in a plan file."""


FLAWS: Final = (
    Flaw(
        figure="memory_per_gpu",
        text="activation memory takes batch // (batch // pp) sequences, so neither dp nor the micro-batch changes it",
        ours="peak_memory_bytes",
    ),
    Flaw(
        figure="memory_per_gpu",
        text="optimizer states are sharded as by ZeRO-1, labelled ZeRO-3, and lack the fp32 master copy",
        ours="peak_memory_bytes",
    ),
    Flaw(
        figure="memory_per_gpu",
        text="an MLP has two matrices and attention four square ones, also where the model's differ",
        ours="peak_memory_bytes",
    ),
    Flaw(
        figure="tp_per_step_gb",
        text="tensor-parallel traffic is that of the whole batch: it is not divided by dp",
        ours="communication_bytes.tp",
    ),
    Flaw(
        figure="pp_per_step_gb",
        text="pipeline traffic is one boundary's for the whole batch, at pp 1 too",
        ours="communication_bytes.pp",
    ),
    Flaw(
        figure="dp_per_step_gb",
        text="gradient traffic uses the stated parameters where memory uses the counted ones, and is not divided by tp",
        ours="communication_bytes.dp",
    ),
    Flaw(
        figure="recommended",
        text="bytes on fast and on slow links are added up, so deep pipelines win whatever their bubble",
        ours="step_time_s",
    ),
    Flaw(figure="example", text="the example output of the page does not come from its code", ours=None),
)


DEGREES: Final = ("tp", "pp", "dp")
EXPERT_PARALLEL: Final = 8
"""Degree for which the page gives its hint."""
RESULTS: Final = ("model_memory_gb", "rows", "recommended", "reasons", "expert_parallelism", "notes")
"""Fields of an answer."""


def record(case: CalculatorCase) -> dict[str, Any]:
    """The answer in the words of the reference file. Raises ``InputError``."""
    found = table(case)
    best = int(found.order[0])
    recommended = {name: int(getattr(found, name)[best]) for name in DEGREES} if found.fits[best] else None
    count, size = case.model.num_parameters, case.training.dtype_bytes
    return {
        "model_memory_gb": {
            "params": count * size / GB,
            "gradients": count * size / GB,
            "optimizer": count * ADAM_BYTES / GB,
            "total": count * (2 * size + ADAM_BYTES) / GB,
            "param_count": count,
        },
        "rows": [_row(found, index) for index in range(len(found.tp))],
        "recommended": recommended,
        "reasons": _reasons(case, recommended),
        "expert_parallelism": _expert_hint(case.model.num_experts) if case.model.is_moe else None,
        "notes": [flaw.text for flaw in FLAWS],
    }


def _row(found: MemoryTable, index: int) -> dict[str, Any]:
    traffic = {f"{name}_per_step_gb": float(getattr(found, f"{name}_gb")[index]) for name in DEGREES}
    return {
        **{name: int(getattr(found, name)[index]) for name in DEGREES},
        "memory_per_gpu": float(found.memory_gb[index]),
        "fits": bool(found.fits[index]),
        "communication": {**traffic, "total_gb": float(found.total_gb[index])},
        "tp_intra_node": True,  # larger degrees are not tried
        "num_microbatches": int(found.num_microbatches[index]),
        "bubble_fraction": float(found.bubble_fraction[index]),
    }


def _reasons(case: CalculatorCase, recommended: Mapping[str, int] | None) -> list[str]:
    """The reasons for that configuration, a line for each degree."""
    if recommended is None:
        limit = FILLED * case.hardware.memory_per_gpu_gb
        return [f"nothing stays below {limit:g} GB per GPU: use more GPUs, larger ones or a smaller batch"]
    tp, pp, dp = (recommended[name] for name in DEGREES)
    return [
        f"tp {tp}: inside one node of {case.hardware.gpus_per_node}, on its fast links",
        f"pp {pp}: {'one stage' if pp == 1 else f'the model in {pp} stages'}",
        f"dp {dp}: {'one replica' if dp == 1 else f'{dp} replicas share the batch'}",
        "least traffic of all that fit",
    ]


def _expert_hint(num_experts: int) -> dict[str, Any]:
    """The page's hint on expert parallelism."""
    return {
        "ep": EXPERT_PARALLEL,
        "experts_per_gpu": num_experts // EXPERT_PARALLEL,
        "all_to_all_per_layer": 2,
        "hints": [
            "whole experts make larger matrix products than experts cut by tensor parallelism",
            "expert parallelism pays if there are many more experts than tensor-parallel ranks",
            "use it for the experts, instead of tensor parallelism or with it",
        ],
    }


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
        cases = json_cases(text, "hardware")
        return None if cases is None else (self.recomputed(case, RESULTS) for case in cases)

    def plan(
        self, model: ModelConfig, cluster: Cluster, num_accelerators: int, job: Job, *, top: int = 10
    ) -> MethodAnswer:
        """The calculator's table for a question of ours, recommended configuration first. Raises ``MethodError``."""
        case = case_of(CalculatorCase, _terms(model, cluster, num_accelerators, job), owner=self.name)
        with as_refusal():
            found = table(case)
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
            hint=ASK_ANOTHER,
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
    """What the calculator ignores of a question."""
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
    """Notes if nothing fits, or if accelerators are left over."""
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
            **{f"{name}_communication_bytes": float(getattr(found, f"{name}_gb")[index]) * GB for name in DEGREES},
            "bubble_fraction": float(found.bubble_fraction[index]),
            "num_microbatches": float(found.num_microbatches[index]),
        },
    )
