r"""Fewer accelerators than were given: the counts that may train the same batch in less time.

A count whose divisors do not suit the model or the batch leaves few plans, and racks of 72 leave few groups of a power
of two: 64 of 72 in each are often faster. Counts that can be laid out are whole domains of the innermost tier, and a
power of two of the accelerators in each domain; inside one domain whole nodes. Where the batch leaves all accelerators
few layouts, there are those too that divide it well, whatever the nodes. Those that are too few by arithmetic are left
out: with F operations in a step, peak P and the fastest step T on all accelerators,

.. math:: N' \le \frac{F}{P\,T}

Where there are ``MOST_SEARCHED`` or fewer, all are searched. Of more, the largest of each odd part is kept: it has the
layouts of those that differ from it by powers of two, with more replicas or longer groups. Of these, counts with less
than ``LEAST_LAYOUTS`` times the layouts of all accelerators are left out, and ``MOST_SEARCHED`` are searched: those
that promise most (``neighbours.worth``), and the one of most layouts. Where the batch leaves all accelerators few
layouts, the largest counts that it fills with small replicas come first, however few layouts they have.

They are searched one after the other for plans that are faster than the best so far, so that most cost little. Where
one is, the counts below it are looked at in the same way, up to ``MOST_SEARCHED`` in all.
"""

from __future__ import annotations

import time
from typing import Final

import numpy as np

from shardplan.base.arrays import divisors
from shardplan.base.fields import replace
from shardplan.estimation.charge import step_flops
from shardplan.estimation.question import Question
from shardplan.physics.costs.network import power_of_two
from shardplan.planner.related.counts import counts_of_batch, first_and_richest, has_enough_layouts, layouts_of, worth
from shardplan.planner.related.neighbours import Neighbours
from shardplan.planner.result import FewerCounts

MOST_SEARCHED: Final = 8
LEAST_LAYOUTS: Final = 0.5
"""Share of the layouts of all accelerators from which a count is searched: fewer accelerators with fewer of them were
never faster (docs/search.md)."""
LEAST_GAIN: Final = 1e-3
"""Share of a step by which fewer accelerators are faster at least: less does not show in the digits of an answer."""
SMALL_REPLICAS: Final = (1, 2, 4, 8, 16)
"""Accelerators of replicas that are small: two nodes at most."""
MOST_OF_SMALL: Final = 4
"""Counts of small replicas that are searched."""
SMALL: Final = 8
"""Accelerators of which any number is used, whatever the nodes."""


def fewer_that_are_faster(searched: Neighbours, fastest: float) -> tuple[int | None, FewerCounts]:
    """The number of accelerators below those of the question that takes least time, by its fastest plan.

    None where none is faster than all of them. With what was looked at.

    ``fastest``: the fastest step on all of them; infinite where no plan fits. [s]
    """
    started, asked = time.perf_counter(), searched.question
    used, best = asked.num_accelerators, fastest
    looked_at: list[int] = []
    left = counts_to_search(asked, fastest)
    while left:
        before = used
        for count in left:
            within = best if used < asked.num_accelerators else best * (1 - LEAST_GAIN)
            found = searched.fastest((count, asked.job.global_batch_size), within)
            used, best = (used, best) if found is None else (count, found[1].value)
        looked_at += left
        below = counts_to_search(replace(asked, num_accelerators=used), best) if used != before else []
        left = [count for count in below if count not in looked_at][: MOST_SEARCHED - len(looked_at)]
    account = FewerCounts(
        counts=tuple(looked_at),
        search_time=time.perf_counter() - started,
        step_time_of_all=fastest if np.isfinite(fastest) else None,
    )
    return used if used < asked.num_accelerators else None, account


def counts_to_search(question: Question, fastest: float) -> list[int]:
    """The counts that promise most first. ``fastest``: step time that they are to beat, infinite for none. [s]"""
    peak = question.cluster.accelerator.peak(question.job.recipe.matmul)
    fewest = step_flops(question) / (peak * fastest)
    units = counts_worth_trying(question)
    is_all = len(units) <= MOST_SEARCHED
    largest = sorted({count // (count & -count): count for count in sorted(units)}.values())  # of each odd part
    counts = [count for count in (units if is_all else largest) if count > fewest]
    if not counts:
        return []
    batch = question.job.global_batch_size
    pairs = np.asarray([(count, batch) for count in (question.num_accelerators, *counts)])
    layouts = layouts_of(pairs, question.model.num_hidden_layers)
    order = [place for place in np.argsort(-worth(question, pairs, layouts), kind="stable").tolist() if place]
    if not is_all:
        least = LEAST_LAYOUTS * layouts[0] if np.isfinite(fastest) else 0.0
        rich = [place for place in order if layouts[place] >= least]
        order = first_and_richest(rich, MOST_SEARCHED, lambda place: float(layouts[place]))
    ranked = [int(pairs[place, 0]) for place in order]
    poor = not is_all and not has_enough_layouts(question)
    first = [] if not poor else [count for count in counts_of_small_replicas(question) if count > fewest]
    return [*dict.fromkeys((*first[:MOST_OF_SMALL], *ranked))][:MOST_SEARCHED]


def counts_worth_trying(question: Question) -> list[int]:
    """Those of units, and where the batch leaves all accelerators few layouts those that it leaves most."""
    units = counts_of_units(question)
    if has_enough_layouts(question):
        return units
    return sorted({*units, *counts_of_batch(question), *counts_of_small_replicas(question)})


def counts_of_units(question: Question) -> list[int]:
    """Counts below that of the question which fill domains, or a power of two in each; inside one domain, nodes."""
    number, tier = question.num_accelerators, question.network.tiers[0]
    domain = tier.size
    if domain is None or number <= domain:
        unit = 1 if number <= SMALL else question.cluster.accelerators_per_node
        return [*range(unit, number, unit)]
    power = power_of_two(domain)
    full, rest = divmod(number, domain)
    whole = range(domain, number, domain)
    of_each = range(power, min((full + (rest >= power)) * power + 1, number), power)
    return sorted({*whole, *of_each})


def counts_of_small_replicas(question: Question) -> list[int]:
    """The largest count for each small replica of which a number that divides the batch fits; from large to small."""
    number, numbers = question.num_accelerators, np.asarray(divisors(question.job.global_batch_size))
    found = (size * numbers[size * numbers < number] for size in SMALL_REPLICAS)
    return sorted({int(counts.max()) for counts in found if len(counts)}, reverse=True)
