"""The calculator's answer, and our own estimate of the same model and degrees next to each of its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args

from shardplan.errors import ShardplanError
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.question import Question
from shardplan.fields import dataclass
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.job import Job, Precision
from shardplan.inputs.layers import MLP, Attention, Layer, MixtureOfExperts
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.readers.catalog import load_cluster
from shardplan.inputs.readers.overrides import Overrides, override
from shardplan.published.base import MethodRow
from shardplan.published.calculator.method import FLAWS, RESULTS, Calculator, Flaw
from shardplan.published.calculator.table import GB, CalculatorCase, CalculatorModel
from shardplan.published.fields import read_fields
from shardplan.records import plain
from shardplan.reports.methods.catalogue import answer_record
from shardplan.reports.methods.question import Beside, beside, our_part

DEGREES: Final = ("dp", "tp", "pp")
PRECISIONS: Final[Mapping[int, Precision]] = {1: "fp8", 2: "bf16", 4: "fp32"}
"""Number formats by bytes per value."""


@dataclass(frozen=True, kw_only=True)
class CalculatorRow:
    """A configuration of its table, and ours."""

    row: Mapping[str, Any]
    ours: Beside


@dataclass(frozen=True, kw_only=True)
class KnownError:
    """Something known to be wrong, with both figures of the recommended configuration."""

    flaw: Flaw
    theirs: float | None = None
    ours: float | None = None


@dataclass(frozen=True, kw_only=True)
class CalculatorReport:
    """The whole answer."""

    case: Mapping[str, Any]
    asked: CalculatorCase
    answer: Mapping[str, Any]
    rows: tuple[CalculatorRow, ...]
    cluster: str
    """Of our estimates."""
    assumptions: tuple[str, ...]
    fault: str | None = None
    """Why there is no estimate of ours at all."""

    @property
    def recommended(self) -> CalculatorRow | None:
        """The row that the calculator recommends."""
        wanted = self.answer["recommended"]
        if wanted is None:
            return None
        return next(each for each in self.rows if all(each.row[name] == wanted[name] for name in DEGREES))

    @property
    def our_fastest(self) -> CalculatorRow | None:
        """The row that our estimate finds the fastest of those that fit."""
        fitting = [each for each in self.rows if each.ours.estimate is not None and each.ours.estimate.feasible]
        return min(fitting, key=lambda each: _step_time(each.ours.estimate), default=None)

    @property
    def known_errors(self) -> tuple[KnownError, ...]:
        """What is wrong with its numbers, with ours next to them."""
        return tuple(_known_error(flaw, self.recommended) for flaw in FLAWS)


def _step_time(estimate: Estimate | None) -> float:
    assert estimate is not None
    return estimate.step_time


def calculator_report(case: Mapping[str, Any], *, cluster: str) -> CalculatorReport:
    """Answers a case as the calculator does, and by our estimate. Raises ``InputError``."""
    asked = read_fields(CalculatorCase, case, owner="calculator", results=RESULTS)
    answer = Calculator().answer(case)
    hardware = load_cluster(cluster)
    try:
        question, assumptions, fault = _question(asked, hardware), _assumptions(asked, hardware), None
    except ShardplanError as error:
        question, assumptions, fault = None, (), error.message
    rows = tuple(
        CalculatorRow(row=row, ours=Beside(broken_rule=fault or "") if question is None else _ours(question, row))
        for row in answer["rows"]
    )
    return CalculatorReport(
        case=case, asked=asked, answer=answer, rows=rows, cluster=hardware.name, assumptions=assumptions, fault=fault
    )


def _ours(question: Question, row: Mapping[str, Any]) -> Beside:
    return beside(question, MethodRow(degrees={name: row[name] for name in DEGREES}))


def _question(asked: CalculatorCase, cluster: Cluster) -> Question:
    """The calculator's question in our terms. Raises ``InputError``."""
    training = asked.training
    job = Job(
        sequence_length=training.sequence_length,
        global_batch_size=training.batch_size,
        precision=_precision(training.dtype_bytes),
    )
    return Question(
        model=_model(asked.model, training.sequence_length),
        cluster=override(cluster, _overrides(asked, cluster)),
        num_accelerators=asked.hardware.num_gpus,
        job=job,
    )


def _precision(dtype_bytes: int) -> Precision:
    return PRECISIONS.get(dtype_bytes, get_args(Precision)[0])


def _overrides(asked: CalculatorCase, cluster: Cluster) -> Overrides:
    """Memory and node size of the calculator."""
    values: Overrides = {"memory": asked.hardware.memory_per_gpu_gb * GB}
    node = cluster.innermost
    if asked.hardware.gpus_per_node != node.size and node.topology == "switch":
        values["node_size"] = asked.hardware.gpus_per_node
    return values


def _model(model: CalculatorModel, sequence_length: int) -> ModelConfig:
    """As many weights as the calculator counts: square attention, an MLP of two matrices, one table of embeddings."""
    width = int(model.hidden_size * model.intermediate_ratio)
    dense = MLP(intermediate_size=width, gated=False)
    experts = MixtureOfExperts(
        num_experts=model.num_experts, top_k=model.top_k, intermediate_size=width, gated=False
    )  # fmt: skip
    heads = model.num_heads if model.hidden_size % model.num_heads == 0 else 1
    attention = Attention(num_heads=heads, num_kv_heads=heads, head_dim=model.hidden_size // heads)
    layer = Layer(mixer=attention, mlp=experts if model.is_moe else dense, num_norms=2)
    return ModelConfig(
        name="the calculator's model",
        model_type="calculator",
        hidden_size=model.hidden_size,
        layers=(layer,) * model.num_layers,
        vocab_size=max(model.vocab_size, 1),
        tie_word_embeddings=True,
        norm_bias=False,
        max_position_embeddings=sequence_length,
    )


def _assumptions(asked: CalculatorCase, cluster: Cluster) -> tuple[str, ...]:
    model = asked.model
    kind = f"{model.num_experts} experts of which a token visits {model.top_k}" if model.is_moe else "an MLP"
    texts = [
        f"our estimates: the counted parameters as square attention and {kind} of two matrices",
        f"{cluster.accelerator.full_name} in the network of {cluster.name}, with the memory given here (--cluster)",
        "ZeRO-1, sequence parallelism, no recomputation, micro-batches of one sequence",
        "traffic of ours is what one accelerator sends in a step",
    ]
    if asked.training.dtype_bytes not in PRECISIONS:
        texts.append(
            f"{_precision(asked.training.dtype_bytes)}, as no format of ours has {asked.training.dtype_bytes} B"
        )
    return tuple(texts)


def _known_error(flaw: Flaw, recommended: CalculatorRow | None) -> KnownError:
    """Both figures, where the recommended configuration has them. [bytes or s]"""
    if recommended is None or flaw.ours is None or recommended.ours.estimate is None:
        return KnownError(flaw=flaw)
    estimate, row = recommended.ours.estimate, recommended.row
    if flaw.figure == "memory_per_gpu":
        return KnownError(flaw=flaw, theirs=row["memory_per_gpu"] * GB, ours=estimate.peak_memory_bytes)
    if flaw.figure == "recommended":
        return KnownError(flaw=flaw, ours=estimate.step_time)
    dimension = flaw.figure.partition("_")[0]
    theirs = row["communication"][flaw.figure] * GB
    return KnownError(flaw=flaw, theirs=theirs, ours=our_part(f"{dimension}_communication_bytes", estimate))


def calculator_record(report: CalculatorReport) -> dict[str, Any]:
    """The answer with ours in every row, as a mapping that JSON can hold."""
    answer = dict(report.answer)
    answer["rows"] = [{**each.row, "ours": _ours_record(each.ours)} for each in report.rows]
    fastest = report.our_fastest
    answer["our_fastest"] = None if fastest is None else {name: fastest.row[name] for name in ("tp", "pp", "dp")}
    answer["known_errors"] = [
        {**plain(error.flaw), "theirs": error.theirs, "ours": error.ours} for error in report.known_errors
    ]
    answer["assumptions"] = list(report.assumptions)
    return answer_record("calculator", report.case, answer)


def _ours_record(ours: Beside) -> dict[str, Any]:
    """Our figures under the keys of a plan file."""
    if ours.estimate is None:
        return {"broken_rule": ours.broken_rule}
    estimate = ours.estimate
    return {
        "feasible": estimate.feasible,
        "reason": estimate.reason,
        "step_time_s": estimate.step_time,
        "mfu": estimate.mfu,
        "peak_memory_bytes": estimate.peak_memory_bytes,
        "communication_bytes": {name: sum(moved.values()) for name, moved in estimate.communication.items()},
        "bubble_fraction": our_part("bubble_fraction", estimate),
        "num_microbatches": estimate.num_microbatches,
    }
