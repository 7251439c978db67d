"""How domains of a network tier, such as nodes, cut the groups of a parallel dimension into parts."""

from __future__ import annotations

from functools import reduce

import numpy as np

from shardplan.arrays import Flags, Numbers
from shardplan.fields import dataclass
from shardplan.inputs.plan_numbers import Digit


@dataclass(frozen=True)
class PlacedParts:
    """Parts into which domains of one size cut the groups of a dimension, at their worst."""

    smallest: Numbers
    largest: Numbers
    domains: Numbers
    """Domains in which a group lies."""

    def times(self, other: PlacedParts) -> PlacedParts:
        """Parts of ranks that lie apart in both ways."""
        return PlacedParts(self.smallest * other.smallest, self.largest * other.largest, self.domains * other.domains)

    def where(self, condition: Flags, other: PlacedParts) -> PlacedParts:
        """Plan by plan these parts or others."""
        names = ("smallest", "largest", "domains")
        return PlacedParts(*(np.where(condition, getattr(self, name), getattr(other, name)) for name in names))


def parts_in_domains(parts: tuple[Digit, ...], domain: int, world: int) -> PlacedParts:
    """Parts of the worst-placed groups: of each run of ranks, those of all runs multiplied."""
    if world % domain:
        return reduce(PlacedParts.times, (_spread(digit, domain) for digit in parts), PlacedParts(1, 1, 1))
    if len(parts) < 2:
        return _packed(parts[0], domain) if parts else PlacedParts(1, 1, 1)
    first, second, *others = parts
    continued = np.equal(first.size * first.stride, second.stride)
    if not np.any(continued):
        return _packed(first, domain).times(parts_in_domains((second, *others), domain, world))
    joined = parts_in_domains((Digit(first.size * second.size, first.stride), *others), domain, world)
    if np.all(continued):
        return joined
    apart = _packed(first, domain).times(parts_in_domains((second, *others), domain, world))
    return joined.where(continued, apart)


def _packed(digit: Digit, domain: int) -> PlacedParts:
    """In a job that fills whole domains: accelerator i lies in domain i / D, so groups may straddle domains.

    Of a ranks t apart, with g the greatest common divisor of a t and D, the smallest part has g / t and the largest
    D / t. This is exact where t divides D or is not less than D, and otherwise at the worse side.
    """
    size, stride = np.asarray(digit.size, dtype=np.int64), np.asarray(digit.stride, dtype=np.int64)
    shared = np.gcd(size * stride, domain)
    smallest = np.minimum(np.maximum(shared // stride, 1), size)
    largest = np.minimum(np.maximum(-(-domain // stride), 1), size)
    straddled = np.minimum(np.ceil((size * stride - shared) / domain) + 1, size)
    return PlacedParts(smallest, largest, np.where(smallest == largest, size / smallest, straddled))


def _spread(digit: Digit, domain: int) -> PlacedParts:
    """In a job with a rest: the fewest domains hold the group, as evenly as whole blocks of ``stride`` ranks can be.

    Schedulers place jobs so on the nodes that they need (Slurm's block distribution): 1,022 accelerators on nodes of
    eight are 127 nodes of eight and one of six where pairs stay together, 126 of eight and two of seven where none do.
    """
    fits = np.clip(np.floor(domain / np.asarray(digit.stride)), 1, digit.size)
    domains = np.ceil(digit.size / fits)
    return PlacedParts(np.floor(digit.size / domains), np.ceil(digit.size / domains), domains)
