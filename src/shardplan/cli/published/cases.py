"""A case of a published method in its own terms, from flags or from a file.

The ``key`` of a form's field is its name in a case: ``model.num_layers`` is ``num_layers`` of ``model``.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shardplan.base.errors import InputError, UnknownNameError
from shardplan.base.fields import asked, dataclass
from shardplan.base.records import keys
from shardplan.cli.progress import MOST_WORKERS

if TYPE_CHECKING:
    from shardplan.methods.base import Method


MOST: Final = 2**31
MOST_DEVICES: Final = 10**12
MOST_FLOP: Final = 1e40
MOST_NAMED: Final = 8
_count: Final = partial(asked, least=1, most=MOST, metavar="N")
_number: Final = partial(asked, least=0, most=1e30)

Case = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class CaseFlags:
    """Source of a case."""

    PANEL = "Case"

    input: Path | None = asked(
        "A case as a JSON or YAML file, or a reference file; flags replace its values.", metavar="FILE"
    )
    case: str | None = asked("Which case of a reference file: its name, or its number from 1.", metavar="NAME|N")


@dataclass(frozen=True, kw_only=True)
class CalculatorFlags:
    """Inputs of the calculator. Without any flag it answers its page's own example."""

    PANEL = "Model"

    params: float | None = _number(
        "Billions of parameters. [default: 70]", key="model.params_billions", metavar="BILLIONS"
    )
    hidden_size: int | None = _count("Hidden size. [default: 8192]", key="model.hidden_size")
    num_layers: int | None = _count("Layers. [default: 80]", key="model.num_layers")
    vocab_size: int | None = _count("Rows of the vocabulary. [default: 128000]", key="model.vocab_size")
    moe: bool | None = asked("The model is a mixture of experts.", key="model.is_moe")
    num_experts: int | None = _count("Its experts. [default: 64]", key="model.num_experts")
    gpus: int | None = _count("Number of GPUs. [default: 64]", panel="Hardware", key="hardware.num_gpus")
    memory: str | None = asked(
        "Memory of one GPU: 80, 80GB. [default: 80]", panel="Hardware", key="hardware.memory_per_gpu_gb", metavar="GB"
    )
    gpus_per_node: int | None = _count("GPUs of a node. [default: 8]", panel="Hardware", key="hardware.gpus_per_node")
    batch_size: int | None = _count("Sequences of a step. [default: 512]", panel="Training", key="training.batch_size")
    seq_len: int | None = _count(
        "Tokens of a sequence. [default: 4096]", panel="Training", key="training.sequence_length"
    )
    num_microbatches: int | None = _count(
        "Micro-batches of a replica, for the bubble. Default: one sequence each.",
        panel="Training",
        key="training.num_microbatches",
    )
    cluster: str = asked(
        "Accelerators and network of our own estimate next to it; memory and node size are the calculator's.",
        default="dgx-h100",
        panel="Our estimate",
        metavar="NAME|FILE",
    )


@dataclass(frozen=True, kw_only=True)
class SearcherFlags:
    """Inputs and outputs of the searcher."""

    PANEL = "Search"

    cluster: Path | None = asked("Its description of the cluster, a JSON file.", panel="Case", metavar="FILE")
    model: Path | None = asked("Its description of the model, a JSON file.", panel="Case", metavar="FILE")
    output: str | None = asked(
        "Its result file: every configuration with its time, as JSON.", panel="Output", metavar="FILE|-"
    )
    workers: int = _count("Number of worker processes.", default=1, most=MOST_WORKERS)
    top: int = _count("Number of configurations to show.", default=10)


@dataclass(frozen=True, kw_only=True)
class LayerFlags:
    """A linear layer of the data-movement model."""

    PANEL = "Layer"

    device: str | None = asked("H100 SXM5, or an accelerator by name. [default: H100 SXM5]", metavar="NAME")
    d_in: int | None = _count("Inputs.", key="layer.d_in")
    d_out: int | None = _count("Outputs.", key="layer.d_out")
    tp_in: int | None = _count("Devices that share the inputs. [default: 1]", key="layer.tp_in")
    tp_out: int | None = _count("Devices that share the outputs. [default: 1]", key="layer.tp_out")
    dp: int | None = _count("Replicas. [default: 1]", key="layer.dp")
    batch: float | None = _number("Tokens of a micro-batch over all replicas.", key="b", metavar="TOKENS")
    bytewidth: float | None = _number("Bytes per number. [default: 2]", key="layer.bytewidth", metavar="BYTES")
    num_devices: int | None = _count(
        "Search tp-in, tp-out and dp with this product instead of giving them.", most=MOST_DEVICES
    )
    num_microbatches: int | None = _count("Micro-batches of a batch, in a search. [default: 1]")


@dataclass(frozen=True, kw_only=True)
class LimitsFlags:
    """The limits curve of the data-movement model."""

    PANEL = "Limits"

    limits: bool | None = asked("The best utilisation against training compute, instead of a layer.")
    min_flop: float | None = _number(
        "Training compute at which the curve begins. [default: 1e20]", most=MOST_FLOP, metavar="FLOP"
    )
    max_flop: float | None = _number(
        "Training compute at which the curve ends. [default: 1e33]", most=MOST_FLOP, metavar="FLOP"
    )
    points_per_decade: int | None = _count("Points of the curve per decade. [default: 5]", most=50)
    training_time: str | None = asked(
        "Time within which a run must end: 30days, 720h. [default: 3 months]", key="training_time_s", metavar="TIME"
    )
    out: Path | None = asked("Write the curve there as a page, a picture and a table.", panel="Output", metavar="DIR")
    variants: bool | None = asked("Show how batch size, shape, links and latency move the cliff.")


@dataclass(frozen=True, kw_only=True)
class SearchedFlags:
    """A search of the model of arXiv 2410.00273."""

    PANEL = "Search"

    model: str | None = asked("gpt3_1T, vit_era5, gpt3, or a file with l, e, h and depth.", metavar="NAME|FILE")
    system: str | None = asked("A100, H200, B200, B200-next, or a file.", metavar="NAME|FILE")
    nvs: int | None = _count("Accelerators of a scale-up domain. [default: 8]")
    strategy: str | None = asked("Form of tensor parallelism: 1d, 2d-seqp or 2d.", metavar="NAME")
    gpus: int | None = _count("Number of accelerators.")
    global_batch_size: int | None = _count("Sequences of a step. [default: 4096]")
    top: int | None = _count("Number of configurations. [default: 10]")
    corrected: str | None = asked(
        "Correct Q1, Q2, Q3, Q5 and Q11 of its known errors, or those named: Q2,Q11.", metavar="[NAMES]"
    )
    explain: bool | None = asked("Show every operator of a layer under the best configuration.")


@dataclass(frozen=True, kw_only=True)
class DegreeFlags:
    """Degrees that make the case one configuration to price."""

    PANEL = "One configuration"

    dp: int | None = _count("Price one configuration: replicas. Default: --gpus divided by the other degrees.")
    tp: int | None = _count("Tensor-parallel degree of 1d.")
    tp1: int | None = _count("Its first degree in 2d-seqp and 2d: heads and width.")
    tp2: int | None = _count("Its second degree: the sequence.")
    pp: int | None = _count("Pipeline stages.")
    mbs: int | None = _count("Sequences of a micro-batch.")
    nb: int | None = _count("Blocks of 2d (SUMMA).")
    nv_dp: int | None = _count("Replicas inside a scale-up domain. Default: the best place.")
    nv_tp: int | None = _count("Tensor-parallel ranks inside one.")
    nv_tp1: int | None = _count("Ranks of the first degree inside one.")
    nv_tp2: int | None = _count("Ranks of the second degree inside one.")
    nv_pp: int | None = _count("Pipeline stages inside one.")


def case_of(form: object, **others: Any) -> Case:
    """The values of a form's fields, each in its place; ``others`` are parsed values that replace texts."""
    case: Case = {}
    for name, key in keys(type(form)).items():
        value = others.get(name, getattr(form, name))
        if value is not None:
            *parts, last = key.split(".")
            place = case
            for part in parts:
                place = place.setdefault(part, {})
            place[last] = value
    return case


def read_case(flags: CaseFlags, method: Method) -> Case:
    """The case in the file that the flags name; empty without one. Raises InputError."""
    from shardplan.base.files import read_text
    from shardplan.methods.check import REFERENCE

    if flags.input is None:
        if flags.case is not None:
            raise InputError("--case is given without --input", rule="a case is one of a file", hint="add --input FILE")
        return {}
    text, label = read_text(flags.input, REFERENCE), str(flags.input)
    cases = _cases(text, label, method)
    if isinstance(cases, dict):
        if flags.case is not None:
            raise InputError(
                f"{label} is one case by itself", rule="--case picks from a reference file", hint="leave out --case"
            )
        return cases
    return _picked(cases, flags.case, label)


def section(path: Path, name: str) -> Any:
    """The mapping in a file, or its part called ``name``. Raises InputError."""
    from shardplan.base.files import parse_document, read_text
    from shardplan.methods.check import REFERENCE

    document = parse_document(read_text(path, REFERENCE), label=str(path), is_json=path.suffix.lower() == ".json")
    return document.get(name, document)


def merged(base: Mapping[str, Any], given: Mapping[str, Any]) -> Case:
    """``base`` with the given fields replacing its own, part by part."""
    result = dict(base)
    for name, value in given.items():
        before = result.get(name)
        nested = isinstance(value, Mapping) and isinstance(before, Mapping)
        result[name] = merged(before, value) if nested else value  # type: ignore[arg-type]  # a mapping, as checked
    return result


def _cases(text: str, label: str, method: Method) -> Case | list[tuple[str, Case]]:
    """One case, or the cases of a reference file by name."""
    from shardplan.base.files import parse_document

    if label.lower().endswith(".csv"):
        return [(f"row {number}", row) for number, row in enumerate(_rows(text, label), start=1)]
    document = parse_document(text, label=label, is_json=label.lower().endswith(".json"))
    is_reference = isinstance(document.get("cases"), list) or method.cases(text) is not None
    return list(_entries(document)) if is_reference else document


def _rows(text: str, label: str) -> list[Case]:
    try:
        records = list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"))))
    except csv.Error as error:
        raise InputError(f"{label} is no table: {error}", rule="a CSV file holds rows", hint="correct it") from None
    return [{str(name): _value(value) for name, value in record.items() if value} for record in records]


def _value(text: Any) -> Any:
    """A cell as a number, if it is one."""
    try:
        value = float(text)
    except (TypeError, ValueError):
        return text
    return int(value) if value.is_integer() else value


def _entries(document: Mapping[str, Any]) -> Iterator[tuple[str, Case]]:
    """The cases of a reference file under the names that ``published check`` gives them."""
    for key, value in document.items():
        if isinstance(value, list):
            for index, case in enumerate(value):
                if isinstance(case, dict):
                    yield str(case.get("name", f"{key}[{index}]")), case
        elif isinstance(value, dict) and any(isinstance(part, dict) for part in value.values()):
            yield key, value


def _picked(cases: list[tuple[str, Case]], wanted: str | None, label: str) -> Case:
    if wanted is None and len(cases) == 1:
        return cases[0][1]
    names = [name for name, _ in cases]
    shown = ", ".join(repr(name) for name in names[:MOST_NAMED]) + (" ..." if len(names) > MOST_NAMED else "")
    if not cases:
        raise InputError(f"{label} holds no case", rule="a reference file holds cases", hint="give another file")
    if wanted is None:
        raise InputError(
            f"{label} holds {len(cases)} cases",
            rule="one case is answered",
            hint=f"add --case NAME or a number from 1: {shown}",
        )
    if wanted.isdecimal() and 1 <= int(wanted[:12]) <= len(cases):
        return cases[int(wanted[:12]) - 1][1]
    for name, case in cases:
        if name == wanted:
            return case
    raise UnknownNameError("case", wanted[:80], names, hint=f"cases: {shown}, or a number from 1 to {len(cases)}")
