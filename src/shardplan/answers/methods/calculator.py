"""The calculator's answer, and our own estimate of the same model and degrees next to each of its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, get_args

from shardplan.answers.document import AnswerDocument, Bullets, Column, Line, Part, RowTable, Span, assumptions_part
from shardplan.answers.methods.catalogue import answer_record
from shardplan.answers.methods.question import Beside, beside, our_part
from shardplan.base.errors import ShardplanError
from shardplan.base.fields import dataclass
from shardplan.base.records import plain
from shardplan.base.units import format_bytes, format_time
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.question import Question
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.job import Job, Precision
from shardplan.inputs.layers import MLP, Attention, Layer, MixtureOfExperts
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.readers.catalog import load_cluster
from shardplan.inputs.readers.overrides import Overrides, override
from shardplan.methods.base import MethodRow
from shardplan.methods.calculator.method import FLAWS, RESULTS, Calculator, Flaw
from shardplan.methods.calculator.table import GB, CalculatorCase, CalculatorModel
from shardplan.methods.fields import read_fields
from shardplan.reports.texts.answer import percent

DEGREES: Final = ("dp", "tp", "pp")
SHOWN: Final = ("tp", "pp", "dp")
"""The same in the order of the page."""
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
    # Memory and node size of the calculator
    values: Overrides = {"memory": asked.hardware.memory_per_gpu_gb * GB}
    node = cluster.innermost
    if asked.hardware.gpus_per_node != node.size and node.topology == "switch":
        values["node_size"] = asked.hardware.gpus_per_node
    return Question(
        model=_model(asked.model, training.sequence_length),
        cluster=override(cluster, values),
        num_accelerators=asked.hardware.num_gpus,
        job=job,
    )


def _precision(dtype_bytes: int) -> Precision:
    return PRECISIONS.get(dtype_bytes, get_args(Precision)[0])


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


def calculator_document(report: CalculatorReport) -> AnswerDocument:
    """Recommendation, tables, what is wrong."""
    return AnswerDocument(
        name="published-answer",
        head=[*_asked(report)],
        verdict=[*_verdict(report)],
        parts=[_memory(report), _traffic(report), *_texts(report)],
        record=lambda: _record(report),
    )


def _record(report: CalculatorReport) -> dict[str, Any]:
    """The answer with ours in every row."""
    fastest = report.our_fastest
    answer = {
        **report.answer,
        "rows": [{**each.row, "ours": _ours_record(each.ours)} for each in report.rows],
        "our_fastest": None if fastest is None else {name: fastest.row[name] for name in SHOWN},
        "known_errors": [
            {**plain(error.flaw), "theirs": error.theirs, "ours": error.ours} for error in report.known_errors
        ],
        "assumptions": list(report.assumptions),
    }
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


def _asked(report: CalculatorReport) -> Iterator[Line]:
    model, hardware, training = report.asked.model, report.asked.hardware, report.asked.training
    memory = report.answer["model_memory_gb"]
    yield Line(
        f"calculator: {model.params_billions:g} billion parameters on {hardware.num_gpus:,} GPUs of "
        f"{hardware.memory_per_gpu_gb:g} GB",
        tone="strong",
    )
    layers = f"{model.num_layers} layers of {model.hidden_size:,}"
    experts = f", {model.num_experts} experts" if model.is_moe else ""
    parts = (
        f"{memory['param_count'] / 1e9:.4g} billion counted: {layers}{experts}",
        f"weights {memory['params']:.4g}, gradients {memory['gradients']:.4g}, optimizer {memory['optimizer']:.4g} GB",
        f"{training.batch_size:,} sequences of {training.sequence_length:,} tokens a step",
    )
    yield Line("; ".join(parts), tone="quiet")


def _verdict(report: CalculatorReport) -> Iterator[Line]:
    best, fastest = report.recommended, report.our_fastest
    if best is None:
        yield Line((Span("Recommends nothing: ", "bad"), Span(f"{report.answer['reasons'][0]}.")))
    else:
        row = best.row
        figures = f"{row['memory_per_gpu']:.1f} GB, {row['communication']['total_gb']:.4g} GB of traffic a step"
        yield Line((Span("Recommends ", "good"), Span(f"{_degrees_text(best)}: {figures}", "strong")))
        if report.fault is None:
            yield Line((Span("Our estimate of it: ", "strong"), Span(_our_words(best))))
    if fastest is not None and fastest is not best:
        text = f"{_degrees_text(fastest)}: {_our_words(fastest)}"
        yield Line((Span("Of these, fastest by ours: ", "strong"), Span(text)))
    if report.fault is not None:
        yield Line(f"No estimate of ours: {report.fault}", tone="doubt")


def _degrees_text(row: CalculatorRow) -> str:
    return ", ".join(f"{name} {row.row[name]}" for name in SHOWN)


def _our_words(row: CalculatorRow) -> str:
    estimate = row.ours.estimate
    if estimate is None:
        return f"none, as {row.ours.broken_rule}"
    text = f"{format_time(estimate.step_time)} a step, {format_bytes(estimate.peak_memory_bytes)}"
    usable = format_bytes(estimate.usable_memory_bytes)
    return text if estimate.feasible else f"{text}; it does not fit ({usable} usable)"


def _table(report: CalculatorReport, *columns: Column) -> RowTable:
    """The configurations in the page's order, that which it recommends in bold."""
    degrees = (_theirs(name, name, str) for name in SHOWN)
    return RowTable(report.rows, (*degrees, *columns), lambda each: "strong" if each is report.recommended else "")


def _theirs(title: str, name: str, text: Callable[[Any], str], rank: int = 0) -> Column:
    return Column("", title, lambda each: each.row[name], text, rank=rank)


def _of_ours(title: str, value: Callable[[Estimate], Any], text: Callable[[Any], str], rank: int = 0) -> Column:
    """A figure of our estimate, where there is one."""
    return Column("", title, lambda each: each.ours.estimate and value(each.ours.estimate), text, rank=rank)


def _yes(value: bool) -> str:  # noqa: FBT001  # the text of a column
    return "yes" if value else "no"


def _memory(report: CalculatorReport) -> Part:
    table = _table(
        report,
        _theirs("memory", "memory_per_gpu", "{:.1f} GB".format),
        _of_ours("ours", lambda e: e.peak_memory_bytes, lambda size: format_bytes(size, unit="GB")),
        _theirs("fits", "fits", _yes),
        _of_ours("ours", lambda e: e.feasible, _yes),
        _theirs("bubble", "bubble_fraction", percent, rank=1),
        _theirs("micro-batches", "num_microbatches", "{:,}".format, rank=3),
        _of_ours("our step", lambda e: e.step_time, format_time, rank=2),
    )
    broken = dict.fromkeys(each.ours.broken_rule for each in report.rows if each.ours.estimate is None)
    missing = [Line(f"No plan of ours: {'; '.join(broken)}.", tone="quiet")] if broken and report.fault is None else []
    return Part("Memory and bubble", [table, *missing], "of one GPU, in the page's order; ours: our own estimate")


def _traffic(report: CalculatorReport) -> Part:
    columns = [column for name in SHOWN for column in _traffic_columns(name, rank=2 if name == "pp" else 0)]
    total = Column("", "total GB", lambda each: each.row["communication"]["total_gb"], "{:.1f}".format, rank=3)
    return Part("Traffic", [_table(report, *columns, total)], "of a step in GB; ours: what one accelerator sends")


def _traffic_columns(name: str, rank: int) -> tuple[Column, Column]:
    """Their traffic along a dimension, and ours."""
    theirs = Column(
        "",
        f"{name} GB",
        lambda each: each.row["communication"][f"{name}_per_step_gb"],
        "{:.1f}".format,
        rank=rank,
    )
    ours = _of_ours("ours", lambda e: sum(e.communication.get(name, {}).values()) / GB, "{:.1f}".format, rank=rank)
    return theirs, ours


def _texts(report: CalculatorReport) -> Iterator[Part]:
    if report.recommended is not None:
        yield Part("Its reasons", [Bullets(report.answer["reasons"])])
    hint = report.answer["expert_parallelism"]
    if hint is not None:
        calls = f"{hint['all_to_all_per_layer']} all-to-all a layer"
        first = f"ep {hint['ep']}: {hint['experts_per_gpu']} experts per GPU, {calls}"
        yield Part("Its word on experts", [Bullets([first, *hint["hints"]])])
    note = "" if report.recommended is None else "figures of the recommended configuration"
    yield Part("Known errors", [Bullets([_error_text(error) for error in report.known_errors])], note)
    if report.assumptions:
        yield assumptions_part(report.assumptions)


def _error_text(error: KnownError) -> str:
    if error.ours is None:
        return error.flaw.text
    if error.theirs is None:
        return f"{error.flaw.text} (ours: {format_time(error.ours)} a step)"
    return f"{error.flaw.text} ({format_bytes(error.theirs)}, ours {format_bytes(error.ours)})"
