"""Answers of the searcher and of methods of other packages in their own terms, and reference files recomputed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter, methodcaller
from pathlib import Path
from typing import Any, Final

from shardplan.answers.document import AnswerDocument, Bullets, Column, Line, Part, RowTable, Span
from shardplan.answers.methods.catalogue import answer_record
from shardplan.base.records import plain
from shardplan.base.units import format_time
from shardplan.methods.check import TOLERANCE, ZERO_TOLERANCE, CaseCheck, FileCheck
from shardplan.reports.texts.answer import percent

PARTS: Final = {"compute_ms": "compute", "dp_ms": "dp time", "tp_ms": "tp time", "pp_ms": "pp time"}
"""Of an iteration of the searcher."""
MOST_ROWS: Final = 20
"""Of a table of another package's method."""
LONGEST: Final = 60
MOST_SHOWN: Final = 10
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
            Part("Wrong with it", [Bullets(answer["notes"])]),
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
    more = [f"and {len(texts) - MOST_SHOWN:,} more"] if len(texts) > MOST_SHOWN else []
    note = f"{len(failed):,} of {len(check.cases):,} cases differ"
    return Part(check.label, [Bullets([*texts[:MOST_SHOWN], *more])], note)


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
