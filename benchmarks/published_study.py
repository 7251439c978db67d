"""The whole study of arXiv 2410.00273 on one core, one search of it, and a plain loop over the same candidates.

The study enumerates, prices and ranks every configuration of two models under three strategies on nine systems and 13
numbers of accelerators. The plain loop (``plain_subramanian2024.py``) works through a part of the same searches, one
candidate after the other; its rate gives the time it would need for all. Both must agree on every candidate of it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
from measure import parser, print_table, timed, write_record
from plain_subramanian2024 import candidates, time_and_memory

from shardplan.methods.subramanian2024.candidates import candidates_of
from shardplan.methods.subramanian2024.inputs import GLOBAL_BATCH_SIZE, System, Transformer, load_model, load_system
from shardplan.methods.subramanian2024.iteration import PaperSetting, price
from shardplan.methods.subramanian2024.search import price_candidates, search
from shardplan.methods.subramanian2024.strategies import strategy_of
from shardplan.methods.subramanian2024.study import NVLINK_SIZES, SIZES, SYSTEMS, study

UPSTREAM_PER_S = 450
"""Candidates per second and core of the paper's own programme, as its 5.7 core-hours for the study give it."""
SEARCH = ("gpt3_1T", "2d", "H200", 8, 16384)
SAMPLE = (("gpt3_1T", "1d", 1024), ("gpt3_1T", "2d", 128), ("vit_era5", "2d-seqp", 128), ("vit_era5", "2d", 32))
"""Searches of the plain loop, on H200 in domains of eight."""
TINY = (("gpt3_1T", "1d", 8),)


@dataclass(frozen=True, kw_only=True)
class Rate:
    """How fast something prices candidates."""

    what: str
    num_candidates: int
    wall_s: float
    cpu_s: float
    candidates_per_s: float
    """Candidates over ``wall_s``."""


def main() -> None:
    """Measures, prints the table and writes the record."""
    flags = parser(__doc__ or "", runs=7).parse_args()
    sizes = SIZES[:3] if flags.tiny else SIZES
    rates = [
        _study_rate(sizes, runs=flags.runs),
        _search_rate(runs=flags.runs),
        _alone_rate(num=20 if flags.tiny else 2000),
        _plain_rate(TINY if flags.tiny else SAMPLE),
    ]
    print_table(
        ("what", "candidates", "wall s", "cpu s", "candidates/s"),
        [
            (
                each.what,
                f"{each.num_candidates:,}",
                f"{each.wall_s:.3f}",
                f"{each.cpu_s:.3f}",
                f"{each.candidates_per_s:,.0f}",
            )
            for each in rates
        ],
    )
    whole, plain = rates[0], rates[-1]
    print(f"\nPlain loop, whole study: {whole.num_candidates / plain.candidates_per_s:,.0f} s (from its rate)")
    print(f"Over the plain loop: {whole.candidates_per_s / plain.candidates_per_s:,.0f} times")
    print(f"Over the paper's programme ({UPSTREAM_PER_S}/s): {whole.candidates_per_s / UPSTREAM_PER_S:,.0f} times")
    write_record(flags.json, "published_study", runs=flags.runs, rates=[asdict(each) for each in rates])


def _rate(what: str, num_candidates: int, wall_s: float, cpu_s: float) -> Rate:
    return Rate(
        what=what,
        num_candidates=num_candidates,
        wall_s=wall_s,
        cpu_s=cpu_s,
        candidates_per_s=num_candidates / wall_s,
    )


def _study_rate(sizes: tuple[int, ...], *, runs: int) -> Rate:
    num_candidates = study(sizes=sizes).num_candidates
    timing = timed(lambda: study(sizes=sizes), runs=runs)
    what = f"study: {len(SYSTEMS) * len(NVLINK_SIZES)} systems, {len(sizes)} sizes"
    return _rate(what, num_candidates, timing.median_s, timing.median_cpu_s)


def _search_rate(*, runs: int) -> Rate:
    """One search, nothing shared with another."""
    model, strategy, system, nvs, size = SEARCH
    setting = PaperSetting(model=load_model(model), system=load_system(system, nvs), strategy=strategy_of(strategy))
    (found,) = search(setting, [size])
    timing = timed(lambda: search(setting, [size]), runs=runs)
    what = f"one search: {strategy} {model} {system}-NVS{nvs} n={size}"
    return _rate(what, found.num_candidates, timing.median_s, timing.median_cpu_s)


def _alone_rate(*, num: int) -> Rate:
    """The same formulas, given one candidate at a time."""
    model, strategy, system, nvs, size = SEARCH
    form, config, part = strategy_of(strategy), load_model(model), load_system(system, nvs)
    space = candidates_of(form, config, sizes=[size], nvlink_size=nvs, global_batch_size=GLOBAL_BATCH_SIZE)
    chosen = [space.configuration(index) for index in range(0, space.num_candidates, space.num_candidates // num)][:num]
    setting = PaperSetting(model=config, system=part, strategy=form)
    timing = timed(lambda: [price(setting, [each]) for each in chosen], runs=3)
    return _rate("one candidate at a time", len(chosen), timing.median_s, timing.median_cpu_s)


def _plain_rate(sample: tuple[tuple[str, str, int], ...]) -> Rate:
    """The plain loop, and whether it agrees with the search on each candidate."""
    system, num_candidates, wall, cpu = load_system("H200", 8), 0, 0.0, 0.0
    for name, strategy, size in sample:
        found: list[tuple[float, float]] = []
        loop = partial(_plain_loop, found, strategy, load_model(name), system, size)
        timing = timed(loop, runs=1, warm_up=0)
        _compare(found, name, strategy, size)
        num_candidates, wall, cpu = num_candidates + len(found), wall + timing.median_s, cpu + timing.median_cpu_s
    return _rate(f"plain loop: {len(sample)} searches", num_candidates, wall, cpu)


def _plain_loop(found: list[tuple[float, float]], strategy: str, model: Transformer, system: System, size: int) -> None:
    for each in candidates(strategy, model, size, system.nvlink_size, GLOBAL_BATCH_SIZE):
        found.append(time_and_memory(strategy, model, system, each, GLOBAL_BATCH_SIZE))  # noqa: PERF401 - a plain loop


def _compare(plain: list[tuple[float, float]], name: str, strategy: str, size: int) -> None:
    """Ends the benchmark where the two do not price the same candidates alike."""
    space = candidates_of(
        strategy_of(strategy), load_model(name), sizes=[size], nvlink_size=8, global_batch_size=GLOBAL_BATCH_SIZE
    )
    prices = price_candidates(space, load_system("H200", 8))
    memory = np.asarray(prices.memory.total)[space.point] / 1e9
    for theirs, ours in zip(np.asarray(plain).T, (prices.time, memory), strict=True):
        if theirs.size != ours.size or not np.allclose(np.sort(theirs), np.sort(ours), rtol=1e-12, atol=0):
            raise SystemExit(f"{strategy} {name} {size}: the plain loop and the search differ")


if __name__ == "__main__":
    main()
