"""Reference rows of the paper's results: every configuration priced anew, and its search repeated."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from shardplan.errors import InputError
from shardplan.fields import dataclass
from shardplan.published.base import Case
from shardplan.published.subramanian2024.inputs import MAX_DOMAIN, count_of, load_model, load_system
from shardplan.published.subramanian2024.iteration import STATISTICS, Configuration
from shardplan.published.subramanian2024.records import configuration_records
from shardplan.published.subramanian2024.rules import check_configuration
from shardplan.published.subramanian2024.search import SizeResult, search
from shardplan.published.subramanian2024.strategies import strategy_of
from shardplan.published.subramanian2024.study import GLOBAL_BATCH_SIZE

NEEDED: Final = ("strategy", "model", "gpu", "nvs", "n_gpus", "throughput", "dp", "pp", "mbs")
"""Columns by which a file is known."""
FIGURES: Final = ("throughput", "memory_GB", *STATISTICS)


@dataclass(frozen=True, kw_only=True)
class _Row:
    """One row of a file."""

    group: tuple[str, str, str, int]
    """Strategy, model, system, size of the scale-up domain."""
    num_gpus: int
    rank: int
    configuration: Configuration
    figures: dict[str, float]

    @property
    def name(self) -> str:
        strategy, model, system, nvs = self.group
        rank = f" rank {self.rank}" if self.rank > 1 else ""
        return f"{strategy} {model} {system}-NVS{nvs} n={self.num_gpus}{rank}"


def reference_cases(text: str) -> Iterator[Case] | None:
    """Two cases for each row of a table in the published columns; None where the text is no such table."""
    reader = csv.DictReader(io.StringIO(text.removeprefix("\ufeff")))
    try:
        names = reader.fieldnames or ()
        if not all(name in names for name in NEEDED):
            return None
        records = list(reader)
    except csv.Error:
        return None
    return _cases([_row(record, number) for number, record in enumerate(records, start=2)])


def _cases(rows: list[_Row]) -> Iterator[Case]:
    """Rows of a group are priced together, and all sizes of a group searched at once."""
    groups: dict[tuple[str, str, str, int], list[_Row]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    for group, members in groups.items():
        strategy, model, system = strategy_of(group[0]), load_model(group[1]), load_system(group[2], group[3])
        chosen = [row.configuration for row in members]
        priced = configuration_records(model, system, strategy, chosen, global_batch_size=GLOBAL_BATCH_SIZE)
        found = search(
            model,
            system,
            strategy,
            sizes=sorted({row.num_gpus for row in members}),
            global_batch_size=GLOBAL_BATCH_SIZE,
            top=max(row.rank for row in members),
        )
        results = {result.num_gpus: result for result in found}
        for row, record in zip(members, priced, strict=True):
            yield Case(name=f"{row.name}, priced", expected=row.figures, computed=record)
            yield _search_case(row, results[row.num_gpus])


def _search_case(row: _Row, result: SizeResult) -> Case:
    """Configurations of one throughput count as the same, so only that is compared."""
    found = result.throughputs[row.rank - 1] if row.rank <= len(result.throughputs) else 0.0
    return Case(
        name=f"{row.name}, searched",
        expected={name: value for name, value in row.figures.items() if name == "throughput"},
        computed={"throughput": found},
    )


def _row(record: Mapping[str | None, Any], line: int) -> _Row:
    """A row read and checked. Raises ``InputError`` that names its line."""
    try:
        return _checked(record)
    except InputError as error:
        raise InputError(f"line {line}: {error.message}", rule=error.rule, hint=error.hint) from None


def _checked(record: Mapping[str | None, Any]) -> _Row:
    strategy, model = strategy_of(record["strategy"]), load_model(record["model"])
    nvs = _count(record, "nvs", most=MAX_DOMAIN)
    system = load_system(record["gpu"], nvs)
    suffix = "1" if strategy.has_second_degree else ""
    degrees = {
        name: _count(record, column)
        for name, column in (
            ("dp", "dp"), ("tp1", f"tp{suffix}"), ("tp2", "tp2"), ("pp", "pp"), ("mbs", "mbs"), ("nb", "nb"),
            ("nv_tp1", f"nv_tp{suffix}"), ("nv_tp2", "nv_tp2"), ("nv_dp", "nv_dp"), ("nv_pp", "nv_pp"),
        )
    }  # fmt: skip
    configuration, num_gpus = Configuration(**degrees), _count(record, "n_gpus")
    if configuration.num_gpus != num_gpus:
        raise InputError(
            f"the degrees multiply to {configuration.num_gpus:,}, n_gpus is {num_gpus:,}",
            rule="dp x tp x pp is the number of accelerators",
            hint="correct the row",
        )
    check_configuration(model, system, strategy, configuration, global_batch_size=GLOBAL_BATCH_SIZE)
    return _Row(
        group=(strategy.name, model.name, system.name, nvs),
        num_gpus=num_gpus,
        rank=_count(record, "rank", most=10_000),
        configuration=configuration,
        figures={name: _number(record, name) for name in FIGURES if record.get(name)},
    )


def _count(record: Mapping[str | None, Any], name: str, **bounds: int) -> int:
    """A whole number; a column that is empty or missing means 1."""
    if not record.get(name):
        return 1
    return count_of(_number(record, name), name, **bounds)


def _number(record: Mapping[str | None, Any], name: str) -> float:
    try:
        number = float(record[name])
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{name} is {record[name]!r:.60}", rule=f"{name} is a finite number", hint=f"correct {name}")
    return number
