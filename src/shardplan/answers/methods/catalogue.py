"""Methods of estimating a training run: our own estimate, the published models, and those of other packages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter, methodcaller
from pathlib import Path
from typing import Any, Final

from shardplan.answers.document import AnswerDocument, Bullets, Column, CommandLine, Hanging, Line, Part, RowTable, Span
from shardplan.base.errors import UnknownNameError
from shardplan.base.fields import dataclass
from shardplan.base.records import plain
from shardplan.base.units import format_time
from shardplan.methods.base import Method
from shardplan.methods.catalogue import broken_methods, list_methods, load_method, load_methods
from shardplan.methods.check import TOLERANCE, ZERO_TOLERANCE, CaseCheck, FileCheck
from shardplan.reports.texts.answer import percent


@dataclass(frozen=True, kw_only=True)
class MethodEntry:
    """One method: what it is, what it counts, what it leaves out."""

    name: str
    """Word for it on the command line."""
    title: str
    """What it is, in a line."""
    source: str
    """Where it was published."""
    counts: tuple[str, ...]
    leaves_out: tuple[str, ...]
    """What it leaves out or has wrong."""
    fault: str | None = None
    """Why it cannot be used; None where it can."""

    @classmethod
    def of(cls, method: Method) -> MethodEntry:
        """The entry of a method."""
        return cls(
            name=method.name,
            title=str(getattr(method, "title", "")),
            source=str(getattr(method, "source", "")),
            counts=tuple(map(str, getattr(method, "counts", ()))),
            leaves_out=tuple(map(str, getattr(method, "leaves_out", ()))),
        )


OURS: Final = MethodEntry(
    name="shardplan",
    title="our own estimate: what `shardplan plan` and `shardplan estimate` answer with",
    source="pages on formulas in the documentation, each with its sources",
    counts=(
        "every operator of real architectures: attention of any kind, MLPs, experts, state-space layers, both ends",
        "tensor, context, pipeline, expert and data parallelism, sharding, recomputation, offload, pipeline schedules",
        "any number of network tiers, and any placement of the parallel dimensions on them",
        "efficiencies, latencies and overheads from a profile of the accelerator's generation, each with its source",
        "memory of every stage, what the framework holds included; a band for the step time",
    ),
    leaves_out=(
        "routing of tokens to experts that changes from step to step (one ratio of imbalance holds for all)",
        "traffic of other jobs on the same network",
        "data loading and evaluation; checkpoints and failures, which `shardplan budget` adds",
    ),
)
"""Our own estimate, in the words of a method."""


def method_entries() -> tuple[MethodEntry, ...]:
    """Ours, the published ones, those of other packages, and last those that cannot be used."""
    broken = (
        MethodEntry(name=name, title="cannot be used", source="", counts=(), leaves_out=(), fault=fault)
        for name, fault in broken_methods().items()
    )
    return (OURS, *(MethodEntry.of(method) for method in load_methods()), *broken)


def method_entry(name: str) -> MethodEntry:
    """One of them. Raises ``UnknownNameError``, or ``InputError`` where its package is at fault."""
    known = (OURS.name, *list_methods())
    if name not in known:
        raise UnknownNameError("method", f"{name:.60}", known, hint="see `shardplan published methods`")
    return OURS if name == OURS.name else MethodEntry.of(load_method(name))


MOST_SHOWN: Final = 3
"""Entries of what a method leaves out that the list shows."""
COMMANDS: Final = (
    "shardplan published methods subramanian2024",
    "shardplan plan llama-2-70b --cluster dgx-h100 --gpus 64 --method subramanian2024",
    "shardplan published --help",
)


def methods_document(entries: Sequence[MethodEntry]) -> AnswerDocument:
    """All of them in a few lines each."""
    about = "All that a method counts and leaves out; a question of yours in its terms; a case in its own words:"
    first, *others = ([*_entry(entry)] for entry in entries)
    return AnswerDocument(
        name="methods",
        verdict=first,
        parts=[
            *(Part("", each) for each in others),
            Part("Next steps", [Line(about), *map(CommandLine, COMMANDS)]),
        ],
        record=lambda: {"methods": plain(list(entries))},
    )


def _entry(entry: MethodEntry) -> Iterator[Hanging | Line]:
    yield Hanging(Span(entry.name, "strong"), Span(entry.title, "quiet"), is_flush=True)
    if entry.fault is not None:
        yield Line(entry.fault, tone="wrong")
        return
    more = len(entry.leaves_out) - MOST_SHOWN
    left_out = [*entry.leaves_out[:MOST_SHOWN], *([f"and {more} more"] if more > 0 else [])]
    yield Hanging(Span("counts    "), Span("; ".join(entry.counts)))
    yield Hanging(Span("leaves out"), Span("; ".join(left_out)))
    yield Hanging(Span("source    "), Span(entry.source, "quiet"))


def entry_document(entry: MethodEntry) -> AnswerDocument:
    """Everything that a method says of itself."""
    return AnswerDocument(
        name="methods",
        verdict=[Line(entry.name, tone="strong"), Line(entry.title), Line(f"Source: {entry.source}", tone="quiet")],
        parts=[
            Part("Counts", [Bullets(entry.counts)]),
            Part("Leaves out" if entry is OURS else "Leaves out or has wrong", [Bullets(entry.leaves_out)]),
        ],
        record=lambda: {"methods": plain([entry])},
    )


def answer_record(name: str, case: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of a method to a case in its own terms, as a mapping that JSON can hold."""
    head = {"method": name, "case": plain(case)}
    return head | {key: value for key, value in plain(answer).items() if key not in (*head, "schema")}


PARTS: Final = {"compute_ms": "compute", "dp_ms": "dp time", "tp_ms": "tp time", "pp_ms": "pp time"}
"""Of an iteration of the searcher."""
MOST_ROWS: Final = 20
"""Of a table of another package's method."""
LONGEST: Final = 60
MOST_DIFFERENCES: Final = 10
"""Differences of a reference file that are shown."""
MOST_DIFFERING: Final = 100
"""Differences that a record lists of one file."""


def searcher_document(case: Mapping[str, Any], answer: Mapping[str, Any], *, top: int) -> AnswerDocument:
    """The fastest configuration, and the next ones with their parts."""
    cluster, best = case["cluster"], answer["best"]
    order = sorted(answer["configs"], key=lambda row: float(row["total_ms"]))  # stable: the first of equal ones wins
    rows = order[:top]
    table = RowTable(
        rows,
        (
            *(Column("", name, itemgetter(name), "{:,}".format) for name in ("dp", "tp", "pp")),
            Column("", "total", itemgetter("total_ms"), _milliseconds),
            *(
                Column("", title, itemgetter(name), _milliseconds, rank=number)
                for number, (name, title) in enumerate(PARTS.items(), start=1)
            ),
            Column("", "efficiency", itemgetter("eff"), percent, rank=6),
        ),
        lambda row: "strong" if row is rows[0] else "",
    )
    verdict = f"dp {best['dp']}, tp {best['tp']}, pp {best['pp']}: {_milliseconds(best['total_ms'])} an iteration"
    head = f"{cluster['n_node']:,} nodes of {cluster['n_gpu_per_node']:,} GPUs, {answer['n_configs']:,} configurations"
    return AnswerDocument(
        name="published-answer",
        verdict=[
            Line(f"searcher: {head}", tone="strong"),
            Line((Span("Fastest: ", "good"), Span(verdict, "strong"))),
        ],
        parts=[
            Part("Configurations", [table], f"fastest first; {len(rows)} of {len(order):,}"),
            Part("Known errors", [Bullets(answer["notes"])]),
        ],
        record=lambda: answer_record("searcher", case, answer),
    )


def _milliseconds(value: float) -> str:
    return format_time(value / 1000)


def other_document(name: str, case: Mapping[str, Any], answer: Mapping[str, Any]) -> AnswerDocument:
    """The answer of a method of another package: single values first, then every list of records as a table."""
    record = answer_record(name, case, answer)
    values = _flat({key: value for key, value in record.items() if key not in ("method", "case")})
    single = [(key, value) for key, value in values.items() if not _is_table(value)]
    columns = (
        Column("", "figure", itemgetter(0), is_text=True),
        Column("", "value", lambda pair: _text(pair[1]), is_text=True),
    )
    return AnswerDocument(
        name="published-answer",
        verdict=[Line(name, tone="strong"), *([RowTable(single, columns)] if single else [])],
        parts=[
            Part(key, [_table(value[:MOST_ROWS])], f"{min(len(value), MOST_ROWS)} of {len(value):,}")
            for key, value in values.items()
            if _is_table(value)
        ],
        record=lambda: record,
    )


def _flat(record: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, Mapping) for row in value)


def _table(rows: Sequence[Mapping[str, Any]]) -> RowTable:
    flat = [_flat(row) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    return RowTable(
        flat,
        [
            Column("", name, methodcaller("get", name), _text, rank=min(number, 1) * number)
            for number, name in enumerate(names)
        ],
    )


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = "-" if value is None else str(value)
    text = text if text.isprintable() else repr(text)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def check_document(checks: Sequence[FileCheck]) -> AnswerDocument:
    """Reference files recomputed: one line for each, then what differs."""
    names = dict(zip(checks, _names(checks), strict=True))
    table = RowTable(
        checks,
        (
            Column("", "method", lambda check: check.method, is_text=True),
            Column("", "cases", lambda check: len(check.cases), "{:,}".format, rank=2),
            Column("", "figures", lambda check: check.num_values, "{:,}".format, rank=1),
            Column("", "worst difference", _difference),
            Column("", "", lambda check: "passed" if check.passed else "FAILED", is_text=True),
            Column("", "file", lambda check: names[check], is_text=True),
        ),
        lambda check: "" if check.passed else "bad",
    )
    failed = [check for check in checks if not check.passed]
    agrees = Line(f"Every figure agrees to {TOLERANCE:g}.", tone="good", indent=0)
    differs = Line(f"{len(failed)} of {len(checks)} files differ from what is computed.", tone="bad", indent=0)
    return AnswerDocument(
        name="published-check",
        verdict=[table],
        parts=[*map(_differences, failed), Part("", [differs if failed else agrees])],
        record=lambda: {
            "passed": not failed,
            "tolerance": TOLERANCE,
            "zero_tolerance": ZERO_TOLERANCE,
            "files": [_file_record(check) for check in checks],
        },
        is_yes=not failed,
    )


def _names(checks: Sequence[FileCheck]) -> list[str]:
    """Names of the files; with their folders where two are called the same."""
    names = [Path(check.label).name for check in checks]
    if len(set(names)) < len(names):
        names = [check.label for check in checks]
    return [name if name.isprintable() else repr(name) for name in names]


def _difference(check: FileCheck) -> str:
    """Relative; absolute where that is what fails."""
    if check.worst_at_zero > check.worst_relative:
        return f"{check.worst_at_zero:.1e} at 0"
    return f"{check.worst_relative:.1e}"


def _differences(check: FileCheck) -> Part:
    failed = [case for case in check.cases if not case.passed]
    texts = [text for case in failed for text in _differing(case)]
    more = [f"and {len(texts) - MOST_DIFFERENCES:,} more"] if len(texts) > MOST_DIFFERENCES else []
    note = f"{len(failed):,} of {len(check.cases):,} cases differ"
    return Part(check.label, [Bullets([*texts[:MOST_DIFFERENCES], *more])], note)


def _differing(case: CaseCheck) -> Iterator[str]:
    """What differs in one case."""
    if case.worst_relative > TOLERANCE:
        yield f"{case.name}: {case.worst_relative_at} by {case.worst_relative:.2e}, relative"
    yield from (f"{case.name}: {text}" for text in case.differing)
    if case.worst_relative <= TOLERANCE and not case.differing:
        yield f"{case.name}: by {case.worst_at_zero:.2e} where the reference is 0"


def _file_record(check: FileCheck) -> dict[str, Any]:
    worst = check.worst_case
    return {
        "file": check.label,
        "method": check.method,
        "passed": check.passed,
        "num_cases": len(check.cases),
        "num_failed": sum(not case.passed for case in check.cases),
        "num_values": check.num_values,
        "worst_relative_difference": plain(check.worst_relative),
        "worst_difference_at_zero": plain(check.worst_at_zero),
        "worst_case": {
            "name": worst.name,
            "at": worst.worst_relative_at,
            "worst_relative_difference": plain(worst.worst_relative),
        },
        "differing": list(check.differing[:MOST_DIFFERING]),
        "num_differing": len(check.differing),
    }
