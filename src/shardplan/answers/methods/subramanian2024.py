"""Answers by the model of arXiv 2410.00273: configurations, and the operators of a layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final

from shardplan.answers.document import (
    AnswerDocument,
    BarRow,
    BarTable,
    Block,
    Column,
    Hanging,
    Line,
    Part,
    RowTable,
    Span,
)
from shardplan.answers.methods.catalogue import answer_record
from shardplan.base.units import format_bytes, format_count, format_time
from shardplan.methods.subramanian2024.strategies import STRATEGIES
from shardplan.plotting.subramanian2024 import MEMORY
from shardplan.reports.texts.answer import percent

PARTS: Final = {
    "t_comp": ("compute", "green"),
    "t_mem": ("device memory, exposed", "yellow"),
    "t_tp_comm": ("tensor-parallel communication", "red"),
    "t_pp_comm": ("pipeline transfers", "red"),
    "t_dp_comm": ("data-parallel communication", "red"),
    "t_bubble": ("pipeline bubble", "red"),
}
"""Statistics that sum to the time of an iteration."""
LONGEST_BAR: Final = 40
WORK: Final = {"flops": ("FLOP", 1), "memory_bytes": ("bytes", 1)}
TIMES: Final = {
    "compute_s": ("compute", 3),
    "exposed_memory_s": ("memory", 3),
    "communication_s": ("sending", 3),
    "time_s": ("time", 0),
}


def subramanian2024_document(case: Mapping[str, Any], answer: Mapping[str, Any]) -> AnswerDocument:
    """The best configuration, the next ones, and where its time and its memory go."""
    record = answer_record("subramanian2024", case, answer)
    found = record["configurations"]
    best = found[0]
    longest = max(best[name] for name in PARTS)
    rows = [
        BarRow((label, format_time(best[name]), percent(best[name] / best["t"])), best[name] / longest, colour)
        for name, (label, colour) in sorted(PARTS.items(), key=lambda part: -best[part[0]])
    ]
    bars = BarTable(rows, LONGEST_BAR, least_widths=(0, 8, 7), margin=1)
    return AnswerDocument(
        name="published-answer",
        head=[*_asked(record)],
        verdict=[*_verdict(record)],
        parts=[
            _configurations(found),
            Part("Iteration", [bars], f"{format_time(best['t'])}, of the first configuration"),
            _memory(found[0]),
            *(_operators(record["operators"], each) for each in ("forward", "backward") if "operators" in record),
        ],
        record=lambda: record,
        is_yes=found[0]["fits"],
    )


def _asked(record: Mapping[str, Any]) -> Iterator[Line]:
    system = f"{record['n_gpus']:,} x {record['gpu']}, scale-up domains of {record['nvs']}"
    yield Line(f"{record['model']} on {system}", tone="strong")
    strategy = record["strategy"]
    corrected = f", corrected: {', '.join(record['corrected'])}" if record["corrected"] else ", as published"
    text = f"{strategy}, {STRATEGIES[strategy].title}; {record['global_batch_size']:,} sequences a step{corrected}"
    yield Line(text, tone="quiet")


def _verdict(record: Mapping[str, Any]) -> Iterator[Line]:
    best, is_search = record["configurations"][0], "num_candidates" in record
    fits = (Span("Best: " if is_search else "Fits: ", "good"),)
    does_not = (
        Span("Nothing fits. " if is_search else "Does not fit. ", "bad"),
        Span("Least memory: " if is_search else "If it did: ", "strong"),
    )
    speed = Span(f"{best['throughput']:.6g} samples/s, {format_time(best['t'])} an iteration", "strong")
    memory = Span(f", {_gigabytes(best['memory_GB'])} on each accelerator")
    yield Line((*(fits if best["fits"] else does_not), speed, memory))
    if "training_days" in best:
        yield Line(f"{best['training_days']:.5g} days for the whole training")
    if is_search:
        fitting = f"{record['num_fitting']:,} of {record['num_candidates']:,} candidates fit"
        yield Line(f"{fitting}; the smallest takes {_gigabytes(record['smallest_memory_GB'])}")


def _gigabytes(amount: float) -> str:
    return format_bytes(amount * 1e9)


def _configurations(found: Sequence[Mapping[str, Any]]) -> Part:
    first = found[0]
    tensor = ("tp",) if first["tp1"] is None else ("tp1", "tp2")
    columns = [
        Column("", "", itemgetter("rank"), rank=4),
        Column("", "samples/s", itemgetter("throughput"), "{:.6g}".format),
        Column("", "time", itemgetter("t"), format_time, rank=2),
        Column("", "memory", itemgetter("memory_GB"), _gigabytes, rank=1),
        *(Column("", name, partial(_placed, name)) for name in ("dp", *tensor, "pp")),
        Column("", "mbs", itemgetter("mbs")),
    ]
    if first["nb"] is not None:
        columns.append(Column("", "nb", itemgetter("nb")))
    if "training_days" in first:
        columns.append(Column("", "days", itemgetter("training_days"), "{:.4g}".format, rank=3))
    table = RowTable(found, columns, lambda each: "strong" if each is first else "")
    note = "in brackets: ranks inside a scale-up domain; mbs: micro-batch size; nb: blocks"
    return Part("Configurations", [table], note)


def _placed(name: str, configuration: Mapping[str, Any]) -> str:
    """A degree and how much of it lies inside a scale-up domain."""
    return f"{configuration[name]:,} ({configuration[f'nv_{name}']})"


def _memory(best: Mapping[str, Any]) -> Part:
    parts = [f"{label} {_gigabytes(best[name])}" for name, label in MEMORY.items()]
    return Part("Memory", [Line(", ".join(parts))], f"{_gigabytes(best['memory_GB'])}, of the first configuration")


def _operators(operators: Sequence[Mapping[str, Any]], direction: str) -> Part:
    """Work and time of every operator of a layer for one micro-batch."""
    rows = [{"operator": each["operator"].replace("_", " "), **each[direction]} for each in operators]
    amounts = {name: sum(row[name] for row in rows) for name in WORK | TIMES}
    total = {"operator": "layer", **amounts}
    columns = (
        Column("", "operator", itemgetter("operator"), is_text=True),
        *(
            Column("", title, itemgetter(name), format_count if name == "flops" else format_bytes, rank=rank)
            for name, (title, rank) in WORK.items()
        ),
        Column("", "sent", text=_sent, rank=2),
        *(Column("", title, itemgetter(name), format_time, rank=rank) for name, (title, rank) in TIMES.items()),
    )
    table = RowTable([*rows, total], columns, lambda row: "strong" if row is total else "")
    calls = [
        Hanging(Span(row["operator"], "quiet"), Span("; ".join(map(_call, row["collectives"])), "quiet"))
        for row in rows
        if row["collectives"]
    ]
    blocks: list[Block] = [table, *calls]
    return Part(direction.capitalize(), blocks, "one layer, one micro-batch; sent: volumes of its collectives")


def _sent(row: Mapping[str, Any]) -> str:
    if "collectives" not in row:  # the sum of all operators
        return ""
    total = sum(call["volume_bytes"] for call in row["collectives"])
    return format_bytes(total) if total else "-"


def _call(call: Mapping[str, Any]) -> str:
    """A collective as text."""
    rounds, each = (f" in {call['rounds']} rounds", " each") if call["rounds"] > 1 else ("", "")
    ranks = f"{call['group']} {call['size']} ({call['inside_domain']} inside a domain)"
    volume = f"{call['kind'].replace('_', '-')} of {format_bytes(call['volume_bytes'])}"
    return f"{volume} over {ranks}{rounds}, {format_time(call['round_s'])}{each}"
