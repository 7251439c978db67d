"""In how many domains the copies of a token arrive: what an exchange with experts sends once to each of them."""

from __future__ import annotations

import math
from functools import cache
from itertools import combinations

import numpy as np

from shardplan.arrays import Numbers
from shardplan.workload.ops import Copies


def sent_once(copies: Copies, num_domains: Numbers) -> Numbers:
    """Different domains among those of a token's copies, as a share of the copies."""
    return domains_reached(copies, num_domains) / copies.count


def domains_reached(copies: Copies, num_domains: Numbers) -> Numbers:
    r"""Domains that a token's k copies reach on average, of D that hold equal runs of the experts.

    .. math:: D - \sum_d E_S \left(1 - \tfrac{1}{t} \sum_{g \in S} a_{dg}\right)^k

    S are the t groups that the token may visit, of G, and :math:`a_{dg}` is the part of group g that domain d holds.
    Without groups that is :math:`D (1 - (1 - 1/D)^k)`; with a group in each domain :math:`t (1 - (1 - 1/t)^k)`, so that
    DeepSeek-V3 reaches 3.6 nodes of 8, never more than 4 (arXiv 2412.19437, section 2.1.2); with groups of several
    domains each, what D t / G domains without groups give.

    Assumptions: experts lie on the ranks in their order; all sets of t groups are as likely, and so are the experts in
    them, one by one (a token may then choose one twice: up to 4 % too few domains). A number of domains that is not
    whole lies between its neighbours.
    """
    if copies.num_groups == 1:
        return num_domains * (1 - (1 - 1 / np.asarray(num_domains)) ** copies.count)
    whole = np.asarray(num_domains).astype(np.int64)
    reached = np.zeros(whole.max() + 2)
    for number in np.flatnonzero(np.bincount(whole.ravel())).tolist():  # few among many plans
        reached[number : number + 2] = _reached(copies, number), _reached(copies, number + 1)
    return reached[whole] + (num_domains - whole) * (reached[whole + 1] - reached[whole])


@cache
def _reached(copies: Copies, num_domains: int) -> float:
    """Of a whole number of domains: their chances of a copy, which repeat where domains and groups begin together."""
    alike = math.gcd(num_domains, copies.num_groups)
    return alike * sum(1 - _missed(copies, _held(copies, num_domains, d)) for d in range(num_domains // alike))


def _held(copies: Copies, num_domains: int, domain: int) -> list[float]:
    """Parts of the groups that a domain holds experts of."""
    first, last = domain * copies.num_groups, (domain + 1) * copies.num_groups  # in parts of a group
    groups = range(first // num_domains, -(-last // num_domains))
    return [(min(last, (g + 1) * num_domains) - max(first, g * num_domains)) / num_domains for g in groups]


def _missed(copies: Copies, held: list[float]) -> float:
    """Chance that a domain of these parts of groups gets no copy of a token: over what it may visit of them."""
    t, k = copies.groups_reached, copies.count
    whole, parts = held.count(1.0), [part for part in held if part < 1]
    sets = math.comb(copies.num_groups, t)
    missed = 0.0
    for some in (chosen for n in range(len(parts) + 1) for chosen in combinations(parts, n)):
        for j in range(min(whole, t - len(some)) + 1):
            ways = math.comb(whole, j) * math.comb(copies.num_groups - len(held), t - j - len(some))
            missed += ways / sets * (1 - (j + sum(some)) / t) ** k
    return missed
