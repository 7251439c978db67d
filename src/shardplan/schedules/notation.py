"""Orders of passes written short: ``F0 F1+BW0 W1``."""

from __future__ import annotations

from collections import Counter
from typing import cast

from shardplan.schedules.base import Kind, Pass


def numbered(order: str) -> tuple[Pass, ...]:
    """The passes of one rank, each with the next micro-batch of its kind and chunk.

    ``F1``: forward pass of chunk 1; ``B1``: input gradient; ``BW1``: both gradients; ``W1``: the oldest weight gradient
    of chunk 1 that waits; ``W``: the oldest of either chunk; ``+`` joins passes to one block.
    """
    passes: list[Pass] = []
    counts: Counter[tuple[str, int]] = Counter()
    waiting: list[tuple[int, int]] = []
    for block in order.split():
        *first, last = block.split("+")
        passes += [_next(token, counts, waiting)._replace(joined=True) for token in first]
        passes.append(_next(last, counts, waiting))
    return tuple(passes)


def _next(token: str, counts: Counter[tuple[str, int]], waiting: list[tuple[int, int]]) -> Pass:
    kind = cast("Kind", token.rstrip("01"))
    if kind == "W":
        oldest = next(one for one in waiting if token in {"W", f"W{one[0]}"})
        waiting.remove(oldest)
        return Pass(kind, *oldest)
    chunk = int(token[-1])
    microbatch = counts[kind[0], chunk]
    counts[kind[0], chunk] += 1
    if kind == "B":
        waiting.append((chunk, microbatch))
    return Pass(kind, chunk, microbatch)
