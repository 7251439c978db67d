"""The search of arXiv 2410.00273 as a plain loop: one candidate after the other, numbers only, no NumPy.

It is the baseline of ``published_study.py`` and a second reading of the same formulas, against which that checks
itself. Sizes are in GB and TFLOP, as in the paper's programme.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from shardplan.methods.subramanian2024.inputs import System, Transformer

__all__ = ["Candidate", "candidates", "time_and_memory"]

W, K, TERA = 2e-9, 1e-9, 1e-12


@dataclass(frozen=True, slots=True)
class Candidate:
    """One configuration."""

    tp1: int
    tp2: int
    pp: int
    dp: int
    mbs: int
    nb: int
    nv_tp1: int
    nv_tp2: int
    nv_dp: int
    nv_pp: int


def candidates(strategy: str, model: Transformer, size: int, nvs: int, batch: int) -> Iterator[Candidate]:
    """All configurations that the paper's rules allow."""
    places = list(_factorisations(nvs, is_grid=strategy != "1d"))
    for tp1 in _divisors(size):
        for tp2 in _divisors(size // tp1) if strategy != "1d" else [1]:
            if not _is_allowed(strategy, model, tp1, tp2):
                continue
            left = size // (tp1 * tp2)
            for pp in _divisors(min(left, model.depth)):
                if model.depth % pp or left % pp or batch % (left // pp):
                    continue
                dp = left // pp
                degrees = (tp1, tp2, dp, pp)
                inside = [degrees] if size <= nvs else [way for way in places if _fits(way, degrees)]
                for mbs in _divisors(batch // dp):
                    if mbs * model.l % {"1d": tp1, "2d-seqp": tp1 * tp2, "2d": tp2}[strategy]:
                        continue
                    for nb in _blocks(strategy, model, max(tp1, tp2)):
                        for way in inside:
                            yield Candidate(tp1, tp2, pp, dp, mbs, nb, *way)


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def _factorisations(number: int, *, is_grid: bool) -> Iterator[tuple[int, int, int, int]]:
    for first in _divisors(number):
        for second in _divisors(number // first) if is_grid else [1]:
            for third in _divisors(number // first // second):
                yield first, second, third, number // first // second // third


def _fits(way: tuple[int, ...], degrees: tuple[int, ...]) -> bool:
    return all(degree % members == 0 for degree, members in zip(degrees, way, strict=True))


def _is_allowed(strategy: str, model: Transformer, tp1: int, tp2: int) -> bool:
    if model.h % tp1 or model.e % tp1:
        return False
    if strategy == "1d":
        return 3 * model.e // tp1 >= 128
    return model.e // tp1 >= 128 and model.l // tp2 >= 128 and (strategy == "2d-seqp" or model.e % tp2 == 0)


def _blocks(strategy: str, model: Transformer, least: int) -> list[int]:
    if strategy != "2d":
        return [1]
    if model.e / least < 512:
        return [least]
    doubled = [least * 2**power for power in range(math.ceil(math.log2(model.e // least)))]
    return [nb for nb in doubled if model.e % nb == 0 and model.e // nb >= 512]


def time_and_memory(strategy: str, model: Transformer, system: System, c: Candidate, batch: int) -> tuple[float, float]:
    """Time of an iteration [s] and memory of an accelerator [GB]."""
    layer = _Layer(strategy, model, system, c)
    nm, nl = batch // c.dp // c.mbs, model.depth // c.pp
    tf, tb = layer.forward, layer.backward
    work = (tf + tb) * nm * nl + 2 * nm * layer.transfer()
    shards, inside = (c.tp2, c.nv_tp2) if strategy == "2d-seqp" else (1, 1)
    one = layer.collective("all_gather", layer.weights, c.dp * shards, c.nv_dp * inside)
    exposed = one + max(one - tb, 0) * (nl - 1) + one + max(one - tf, 0) * (nl - 1)
    weights = layer.weights * nl
    memory = 2 * weights + 6 * weights / (c.dp * shards) + layer.kept * nl * min(c.pp, nm)
    return work + (c.pp - 1) * work / nm + exposed, memory


class _Layer:
    """Sums over the operators of one layer."""

    def __init__(self, strategy: str, model: Transformer, system: System, c: Candidate) -> None:
        self.model, self.system, self.c = model, system, c
        self.forward = self.backward = self.weights = self.kept = self.boundary = 0.0
        e, f, l, b = model.e, model.f, model.l, c.mbs  # noqa: E741 - the paper's letter
        L, hidden = l // c.tp2, b * (l / c.tp2) * (f // c.tp1)
        products = (("column", e, f), ("row", f, e), ("column", e, 3 * e), ("row", e, e))
        for kind, k, n in products:
            if strategy == "2d":
                self._summa(b * L, k, n)
            else:
                self._product(kind, b * L, k, n)
        self._pass(8 * hidden, 13 * hidden, 2 * hidden * W, 3 * hidden * W, kept=hidden * W)
        shard = {"1d": (b * (l // c.tp1), e), "2d-seqp": (b * (L // c.tp1), e), "2d": (b * L, e // c.tp1)}[strategy]
        for elements in (hidden, shard[0] * shard[1], shard[0] * shard[1]):
            traffic = 2 * elements * W + elements * K
            self._pass(elements, elements, traffic, traffic, kept=elements * K)
        biases = {
            "1d": ((b * l, f // c.tp1), (b * l, e), (b * l, e)),
            "2d-seqp": ((b * L, f // c.tp1), (b * (L // c.tp1), e), (b * L, e // c.tp1)),
            "2d": ((b * L, f // c.tp1), (b * L, e // c.tp1), (b * L, e // c.tp1)),
        }[strategy]
        for rows, n in biases:
            traffic = (rows * n + n) * W
            self._pass(rows * n, rows * n, traffic, traffic, weights=n * W)
        for _ in range(2):
            self._norm(strategy, L)
        self._attention(L)

    def collective(self, kind: str, volume: float, g: int, t: int) -> float:
        """Time of a collective over ``g`` ranks, ``t`` of them in each fast domain. [s]"""
        s = self.system
        if g == 1 or volume == 0:
            return 0.0
        bs, bf = s.slow_bandwidth / 1e9, s.fast_bandwidth / 1e9
        share = 1.0 if kind in ("broadcast", "reduce") else (g - 1) / g
        nodes = g // t
        if t == 1:
            return s.ib_latency * (g - 1) + share * volume / bs
        if nodes == 1:
            return s.nvlink_latency * (g - 1) + share * volume / bf
        factor = 2 if kind == "all_reduce" else 1
        slowest = max(share * volume / (s.nic_factor * t * bs), share * volume / bf)
        return factor * slowest + s.ib_latency * (nodes - 1) + s.nvlink_latency * (g - nodes)

    def transfer(self) -> float:
        """Time to send a micro-batch to the next stage. [s]"""
        c, s = self.c, self.system
        if c.pp == 1:
            return 0.0
        if c.nv_pp == 1:
            return s.ib_latency + self.boundary / (s.slow_bandwidth / 1e9)
        slow = c.pp // c.nv_pp - 1
        return (c.pp - 1 - slow) / (c.pp - 1) * (s.nvlink_latency + self.boundary / (s.fast_bandwidth / 1e9))

    def _pass(
        self,
        work_forward: float,
        work_backward: float,
        traffic_forward: float,
        traffic_backward: float,
        *,
        rate: float = 0.0,
        sent_forward: float = 0.0,
        sent_backward: float = 0.0,
        weights: float = 0.0,
        kept: float = 0.0,
    ) -> None:
        peak = 0.8 * (rate or self.system.vector_flops) * TERA
        bandwidth = self.system.hbm_bandwidth / 1e9
        self.forward += max(20e-6 + work_forward * TERA / peak, traffic_forward / bandwidth) + sent_forward
        self.backward += max(20e-6 + work_backward * TERA / peak, traffic_backward / bandwidth) + sent_backward
        self.weights += weights
        self.kept += kept

    def _product(self, kind: str, rows: int, k: int, n: int) -> None:
        c, is_column = self.c, kind == "column"
        sent = self.collective("reduce_scatter", rows * (k if is_column else n) * W, c.tp1, c.nv_tp1)
        k, n = (k, n // c.tp1) if is_column else (k // c.tp1, n)
        x, y, w = rows * k * W, rows * n * W, k * n * W
        self._pass(
            rows * n * (2 * k - 1),
            rows * k * (2 * n - 1) + k * n * (2 * rows - 1),
            x + y + w,
            2 * (x + y + w),
            rate=self.system.matrix_flops,
            sent_forward=0.0 if is_column else sent,
            sent_backward=sent if is_column else 0.0,
            weights=w,
            kept=x,
        )

    def _summa(self, rows: int, k: int, n: int) -> None:
        c, peak = self.c, 0.8 * self.system.matrix_flops * TERA
        n_local = n // c.tp1
        x, w, y = rows * k * W, k * n_local * W, rows * n_local * W
        across, along = (
            self.collective("broadcast", x / c.nb, c.tp1, c.nv_tp1),
            self.collective("broadcast", w / c.nb, c.tp2, c.nv_tp2),
        )
        work = 2 * rows * n_local * k, rows * k * (2 * n_local - 1) + k * n_local * (2 * rows - 1)
        traffic = x + w + c.nb * y
        sent = []
        for one, flops, moved in zip((across + along, 2 * (across + along)), work, (traffic, 2 * traffic), strict=True):
            product = max(20e-6 + flops * TERA / peak, moved / (self.system.hbm_bandwidth / 1e9))
            sent.append(one + max(c.nb * one - product, 0))
        self._pass(
            *work,
            traffic,
            2 * traffic,
            rate=self.system.matrix_flops,
            sent_forward=sent[0],
            sent_backward=sent[1],
            weights=(k // c.tp2) * n_local * W,
            kept=rows * (k // c.tp1) * W,
        )

    def _norm(self, strategy: str, L: int) -> None:
        c, e, b = self.c, self.model.e, self.c.mbs
        if strategy == "2d":
            rows, n = b * L, self.model.l // c.tp1
            sent = (
                self.collective("all_reduce", 2 * b * L * W, c.tp1, c.nv_tp1),
                self.collective("all_reduce", (2 * e // c.tp1 + 2 * b * self.model.l // c.tp2) * W, c.tp1, c.nv_tp1),
            )
        else:
            rows, n = b * (L // c.tp1), e
            sent = (self.collective("all_gather", b * L * e * W, c.tp1, c.nv_tp1),) * 2
        elements = rows * n
        self._pass(
            9 * elements,
            8 * elements + 4 * rows * (n - 1),
            (2 * elements + 2 * rows + 2 * n) * W,
            (5 * elements + 2 * n) * W,
            sent_forward=sent[0],
            sent_backward=sent[1],
            weights=2 * n * W,
            kept=elements * W,
        )
        self.boundary = elements * W

    def _attention(self, L: int) -> None:
        c, model, q = self.c, self.model, self.model.q
        z, keys, r = c.mbs * (model.h // c.tp1), model.l, self.system.matrix_flops / self.system.vector_flops
        scores = z * L * keys
        forward = scores * (2 * q - 1) + r * (2 * scores + z * L * (keys - 1)) + r * scores + z * L * q * (2 * keys - 1)
        backward = z * L * q * (2 * keys - 1) + z * keys * q * (2 * L - 1) + r * (3 * scores + z * L * (keys - 1))
        backward += r * scores + scores * (2 * q - 1) + z * keys * q * (2 * L - 1)
        backward += scores * (2 * q - 1) + r * (2 * scores + z * L * (keys - 1)) + r * scores
        kept = (4 * z * L * q + 2 * z * L) * W
        sent = self.collective("all_gather", 2 * z * keys * q * W, c.tp2, c.nv_tp2)
        self._pass(
            forward,
            backward,
            (2 * z * L * q + 2 * z * keys * q + z * L) * W,
            (2 * z * keys * q + 2 * z * L * q) * W + kept,
            rate=self.system.matrix_flops,
            sent_forward=sent,
            sent_backward=2 * sent,
            kept=kept,
        )
