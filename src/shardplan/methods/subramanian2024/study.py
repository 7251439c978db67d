"""The whole study of the paper: every model, strategy, system, scale-up domain and number of accelerators.

It also recomputes the published rows: every configuration is priced again, and its search repeated.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import cached_property, partial
from itertools import product
from typing import Any, Final

from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass
from shardplan.methods.base import Case
from shardplan.methods.subramanian2024.candidates import candidates_of
from shardplan.methods.subramanian2024.inputs import (
    FAITHFUL,
    GLOBAL_BATCH_SIZE,
    MAX_DOMAIN,
    Corrections,
    count_of,
    load_model,
    load_system,
)
from shardplan.methods.subramanian2024.iteration import STATISTICS, Configuration, PaperSetting
from shardplan.methods.subramanian2024.search import (
    SizeResult,
    check_configuration,
    configuration_records,
    price_candidates,
    search,
)
from shardplan.methods.subramanian2024.strategies import STRATEGIES, strategy_of

MODELS: Final = ("gpt3_1T", "vit_era5")
SYSTEMS: Final = ("A100", "H200", "B200")
NVLINK_SIZES: Final = (4, 8, 64)
SIZES: Final = tuple(2**power for power in range(2, 15))
"""Numbers of accelerators, 4 to 16,384."""
NUM_KEPT: Final = 10
"""Best configurations of each search that are kept."""

SECONDS_PER_DAY = 86400.0


def setting_of(strategy: object, model: object, system: object, nvs: int, **others: Any) -> PaperSetting:
    """The setting of a search by names. Raises ``InputError``."""
    parts = load_model(model), load_system(system, nvs), strategy_of(strategy)
    return PaperSetting(model=parts[0], system=parts[1], strategy=parts[2], **others)


@dataclass(frozen=True, kw_only=True)
class StudyEntry:
    """One search of the study: one strategy and model on one system, for every number of accelerators."""

    model: str
    strategy: str
    system: str
    nvs: int
    results: tuple[SizeResult, ...]
    global_batch_size: int = GLOBAL_BATCH_SIZE
    corrected: Corrections = FAITHFUL

    @property
    def num_candidates(self) -> int:
        """Configurations that were priced."""
        return sum(result.num_candidates for result in self.results)

    @property
    def best(self) -> tuple[SizeResult, ...]:
        """Results for the sizes at which something fits."""
        return tuple(result for result in self.results if result.best)

    def days(self, result: SizeResult) -> float | None:
        """Time of the whole training with the best configuration. [days] None if the model has no data set."""
        samples = load_model(self.model).num_samples
        return None if samples is None else samples / result.throughputs[0] / SECONDS_PER_DAY

    @cached_property
    def records(self) -> tuple[dict[str, Any], ...]:
        """The best configurations of every size with all statistics."""
        found = [(result, number) for result in self.results for number in range(len(result.best))]
        priced = configuration_records(
            setting_of(
                self.strategy,
                self.model,
                self.system,
                self.nvs,
                global_batch_size=self.global_batch_size,
                corrected=self.corrected,
            ),
            [result.best[number] for result, number in found],
        )
        label = {"strategy": self.strategy, "model": self.model, "gpu": self.system, "nvs": self.nvs}
        return tuple(
            {**label, "n_gpus": result.num_gpus, "rank": number + 1, **record}
            for (result, number), record in zip(found, priced, strict=True)
        )

    @property
    def best_records(self) -> tuple[dict[str, Any], ...]:
        """The best configuration of every size at which one fits."""
        return tuple(record for record in self.records if record["rank"] == 1)


@dataclass(frozen=True, kw_only=True)
class Study:
    """Results of all searches."""

    entries: tuple[StudyEntry, ...]

    @property
    def num_candidates(self) -> int:
        """Configurations that were priced."""
        return sum(entry.num_candidates for entry in self.entries)

    @cached_property
    def _index(self) -> Mapping[tuple[str, str, str, int], StudyEntry]:
        return {(entry.model, entry.strategy, entry.system, entry.nvs): entry for entry in self.entries}

    def entry(self, model: str, strategy: str, system: str, nvs: int) -> StudyEntry:
        """The search of one strategy and model on one system."""
        return self._index[model, strategy, system, nvs]

    def records(self) -> Iterator[dict[str, Any]]:
        """All best configurations with all statistics, in the columns of the published results."""
        return (record for entry in self.entries for record in entry.records)


def study(
    *,
    models: Sequence[str] = MODELS,
    strategies: Sequence[str] = tuple(STRATEGIES),
    nvlink_sizes: Sequence[int] = NVLINK_SIZES,
    sizes: Sequence[int] = SIZES,
    corrected: Corrections = FAITHFUL,
    executor: Executor | None = None,
) -> Study:
    """All searches; candidates are enumerated once for systems that share them."""
    group = partial(_entries, sizes=tuple(sizes), corrected=corrected)
    groups = list(product(models, strategies, nvlink_sizes))
    spread = map if executor is None else executor.map
    return Study(entries=tuple(entry for entries in spread(group, groups) for entry in entries))


def _entries(group: tuple[str, str, int], *, sizes: tuple[int, ...], corrected: Corrections) -> list[StudyEntry]:
    """Searches of one model, strategy and size of the scale-up domain on several systems."""
    model, strategy, nvs = group
    space = candidates_of(
        strategy_of(strategy), load_model(model), sizes=sizes, nvlink_size=nvs, global_batch_size=GLOBAL_BATCH_SIZE
    )
    entries = []
    for name in SYSTEMS:
        system = load_system(name, nvs)
        results = tuple(price_candidates(space, system, corrected).results(system.hbm_capacity, NUM_KEPT))
        entries.append(
            StudyEntry(model=model, strategy=strategy, system=name, nvs=nvs, results=results, corrected=corrected)
        )
    return entries


NEEDED: Final = ("strategy", "model", "gpu", "nvs", "n_gpus", "throughput", "dp", "pp", "mbs")
"""Columns by which a file is recognised."""
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
    """Two cases for each row of a table in the published columns; None if the text is no such table."""
    reader = csv.DictReader(io.StringIO(text.removeprefix("\ufeff")))
    try:
        names = reader.fieldnames or ()
        if not all(name in names for name in NEEDED):
            return None
        records = list(reader)
    except csv.Error:
        return None
    rows = []
    for line, record in enumerate(records, start=2):
        try:
            rows.append(_row(record))
        except InputError as error:
            raise InputError(f"line {line}: {error.message}", rule=error.rule, hint=error.hint) from None
    return _cases(rows)


def _cases(rows: list[_Row]) -> Iterator[Case]:
    """Cases of all rows; a group is priced together, and all its sizes are searched at once."""
    groups: dict[tuple[str, str, str, int], list[_Row]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    for group, members in groups.items():
        setting = setting_of(*group)
        priced = configuration_records(setting, [row.configuration for row in members])
        found = search(setting, sorted({row.num_gpus for row in members}), top=max(row.rank for row in members))
        results = {result.num_gpus: result for result in found}
        for row, record in zip(members, priced, strict=True):
            yield Case(name=f"{row.name}, priced", expected=row.figures, computed=record)
            # Configurations of one throughput count as the same, so only that is compared with the search.
            rates = {"throughput": [*results[row.num_gpus].throughputs, 0.0][: row.rank][-1]}
            expected = {name: value for name, value in row.figures.items() if name in rates}
            yield Case(name=f"{row.name}, searched", expected=expected, computed=rates)


def _row(record: Mapping[str | None, Any]) -> _Row:
    """A row, read and checked."""
    nvs = _count(record, "nvs", most=MAX_DOMAIN)
    setting = setting_of(record["strategy"], record["model"], record["gpu"], nvs)
    suffix = "1" if setting.strategy.has_second_degree else ""
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
    check_configuration(setting, configuration)
    return _Row(
        group=(setting.strategy.name, setting.model.name, setting.system.name, nvs),
        num_gpus=num_gpus,
        rank=_count(record, "rank", most=10_000),
        configuration=configuration,
        figures={name: _number(record, name) for name in FIGURES if record.get(name)},
    )


def _count(record: Mapping[str | None, Any], name: str, **bounds: int) -> int:
    """A whole number; an empty or missing column means 1."""
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
