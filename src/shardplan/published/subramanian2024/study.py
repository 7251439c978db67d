"""The whole study of the paper: every model, strategy, system, scale-up domain and number of accelerators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import cached_property, partial
from itertools import product
from typing import Any, Final

from shardplan.fields import dataclass
from shardplan.published.subramanian2024.candidates import candidates_of
from shardplan.published.subramanian2024.corrections import FAITHFUL, Corrections
from shardplan.published.subramanian2024.inputs import load_model, load_system
from shardplan.published.subramanian2024.records import configuration_records
from shardplan.published.subramanian2024.search import SizeResult, price_candidates
from shardplan.published.subramanian2024.strategies import STRATEGIES, strategy_of

MODELS: Final = ("gpt3_1T", "vit_era5")
SYSTEMS: Final = ("A100", "H200", "B200")
NVLINK_SIZES: Final = (4, 8, 64)
SIZES: Final = tuple(2**power for power in range(2, 15))
"""Numbers of accelerators, 4 to 16,384."""
GLOBAL_BATCH_SIZE: Final = 4096
NUM_KEPT: Final = 10
"""Best configurations that are kept of each search."""

SECONDS_PER_DAY = 86400.0


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
        """Time of the whole training with the best configuration. [days] None where the model has no data set."""
        samples = load_model(self.model).num_samples
        return None if samples is None else samples / result.throughputs[0] / SECONDS_PER_DAY

    @cached_property
    def records(self) -> tuple[dict[str, Any], ...]:
        """The best configurations of every size with all statistics."""
        found = [(result, number) for result in self.results for number in range(len(result.best))]
        priced = configuration_records(
            load_model(self.model),
            load_system(self.system, self.nvs),
            strategy_of(self.strategy),
            [result.best[number] for result, number in found],
            global_batch_size=self.global_batch_size,
            corrected=self.corrected,
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
    """Searches everything; candidates are enumerated once for the systems that share them."""
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
        results = price_candidates(space, system, corrected).results(system.hbm_capacity, NUM_KEPT)
        entries.append(
            StudyEntry(
                model=model,
                strategy=strategy,
                system=name,
                nvs=nvs,
                results=tuple(results),
                global_batch_size=GLOBAL_BATCH_SIZE,
                corrected=corrected,
            )
        )
    return entries
