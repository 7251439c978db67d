"""Columns of plans that several answers share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

from shardplan.cli.layout import Column, Page
from shardplan.estimation.estimate import Estimate
from shardplan.reports.texts.plan import short_recompute, short_sharding
from shardplan.words import joined

DEGREES = ("tp", "cp", "pp", "vp", "ep", "etp")
NONE = "-"


def plan_columns(estimates: Sequence[Estimate | None]) -> list[Column]:
    """Degrees that any plan uses, replicas, micro-batch size, sharding and recomputation."""
    found = [each for each in estimates if each is not None]
    degrees = [name for name in DEGREES if any(getattr(each.plan, name) != 1 for each in found)]

    def cells(text: Callable[[Estimate], object]) -> list[str]:
        return [NONE if each is None else str(text(each)) for each in estimates]

    return [
        *(Column(title=name, cells=cells(attrgetter(f"plan.{name}"))) for name in degrees),
        Column(title="dp", cells=cells(lambda each: each.dp), rank=1),
        Column(title="mb", cells=cells(lambda each: each.plan.micro_batch_size)),
        Column(title="sharding", cells=cells(lambda each: short_sharding(each.plan)), is_text=True),
        Column(title="recompute", cells=cells(lambda each: short_recompute(each.plan)), is_text=True, rank=1),
    ]


def used_column(estimates: Sequence[Estimate | None]) -> list[Column]:
    """How many accelerators each plan uses, where some leave idle ones."""
    if not any(each is not None and each.num_accelerators_idle for each in estimates):
        return []
    return [Column(title="used", cells=[NONE if e is None else f"{e.num_accelerators_used:,}" for e in estimates])]


def show_doubtful_sizes(page: Page, estimates: Sequence[Estimate | None]) -> None:
    """The sizes whose plan is outside the measured runs."""
    sizes = [f"{each.num_accelerators_given:,}" for each in estimates if each is not None and each.not_measured]
    if sizes:
        where = "at all sizes" if len(sizes) == len(estimates) else f"at {joined(sizes)} accelerators"
        page.line(f"Outside the measured runs {where}: the bands there are wider, or guesses.", style="yellow")


def bars(page: Page, shares: Sequence[float | None], room: int) -> list[str]:
    """A bar for each share of one, in characters."""
    return ["" if share is None else str(page.bar(min(max(share, 0.0), 1.0), room, "")) for share in shares]


def centred_bar(page: Page, share: float, room: int) -> str:
    """A bar of a share of one: to the left of the middle for less than zero, to the right for more."""
    length, full = min(round(abs(share) * room), room), page.glyph("\u2588", "#")
    middle = page.glyph("\u2502", "|")
    return " " * (room - length) + full * length + middle if share < 0 else " " * room + middle + full * length


def show_written(page: Page, names: Sequence[str]) -> None:
    """Which files were written."""
    if names:
        page.console.print()
        page.labelled("Written", ", ".join(names), style="dim")
