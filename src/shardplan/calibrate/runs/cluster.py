"""The cluster of a measured run: the usual one of its accelerator, with the network that the run states."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from shardplan.base.errors import InputError
from shardplan.calibrate.runs.rows import MeasuredRun
from shardplan.inputs.cluster import Cluster, LinkType
from shardplan.inputs.readers.catalog import cluster_of_accelerator
from shardplan.inputs.readers.hardware_files import hop_latency


def cluster_of_run(run: MeasuredRun, network: LinkType | None) -> Cluster:
    """The usual cluster of the run's accelerator with the stated network. Raises ``InputError``.

    A run may state the size of scale-up domains, and the bandwidth and the kind (``network``) of the links between
    them.
    """
    return _cluster(run.accelerator, run.scale_up_size, run.inter_node_bandwidth, network)


@lru_cache(maxsize=256)
def _cluster(accelerator: str, size: int | None, bandwidth: float | None, network: LinkType | None) -> Cluster:
    cluster = cluster_of_accelerator(accelerator)
    if size is not None:
        cluster = _with_domain(cluster, size)
    inner, outer = cluster.tiers[0], cluster.tiers[1:]
    if bandwidth is not None:
        outer = tuple(replace(tier, bandwidth=bandwidth * tier.bandwidth / outer[0].bandwidth) for tier in outer)
    if network is not None:
        outer = tuple(replace(tier, link_type=network, latency=hop_latency(network), kind=network) for tier in outer)
    return replace(cluster, tiers=(inner, *outer))


def _with_domain(cluster: Cluster, size: int) -> Cluster:
    """The cluster with fast domains of another size; tiers inside them disappear."""
    inner = cluster.innermost
    if inner.size == size:
        return cluster
    if inner.size is None:
        raise InputError(
            f"scale_up_size is {size}; the scale-up domain of {cluster.name} is not bounded",
            rule="scale_up_size is that of a bounded domain",
            hint="leave scale_up_size empty",
        )
    outer = [tier for tier in cluster.tiers[1:] if tier.size is None or (tier.size > size and tier.size % size == 0)]
    # A torus keeps its number of axes; a larger mesh is joined by switches (DGX-2 against DGX-1).
    shape = _torus(size, len(inner.torus_shape)) if inner.topology == "torus" else ()
    is_kept = bool(shape) if inner.topology == "torus" else 2 <= size <= inner.size
    topology = inner.topology if is_kept else "switch"
    return replace(cluster, tiers=(replace(inner, size=size, topology=topology, torus_shape=shape), *outer))


def _torus(size: int, num_axes: int) -> tuple[int, ...]:
    """Sides as equal as the prime factors of ``size`` allow."""
    sides = [1] * num_axes
    for factor in sorted(_prime_factors(size), reverse=True):
        sides[sides.index(min(sides))] *= factor
    return tuple(sorted(side for side in sides if side > 1))


def _prime_factors(number: int) -> list[int]:
    for factor in range(2, math.isqrt(number) + 1):
        if number % factor == 0:
            return [factor, *_prime_factors(number // factor)]
    return [number] if number > 1 else []
