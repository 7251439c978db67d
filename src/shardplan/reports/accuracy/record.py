"""How right predictions are: a validation next to the same runs as predicted by constants that never saw their team.

*In-sample*: constants fitted to all published runs. *Left out*: constants that never saw the run's team, the figure
that counts for a run of one's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from shardplan.base.fields import dataclass
from shardplan.calibrate.errors import Errors, Verdicts, errors_by, errors_of_each, sweeps_of
from shardplan.calibrate.predict import Prediction
from shardplan.calibrate.validate import Validation
from shardplan.inputs.readers.residuals import CONTRADICTORY_MEMORY, Residual, read_residuals
from shardplan.reports.accuracy.targets import ratio_of, targets

T = TypeVar("T")
Ratio = Callable[[Prediction], float | None]
SCALES = (1, 8, 64, 512, 4096)
"""Lower ends of the classes of world size."""


class Sides(NamedTuple, Generic[T]):
    """What is reached in-sample and left out."""

    name: Any
    """Of a group of runs, or their cause."""
    in_sample: T
    left_out: T | None


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """A validation, and left out what is known of its runs."""

    fresh: Validation
    left_out: Validation | None = None
    residuals: Sequence[Residual] = ()
    profile: str | None = None
    """What the constants are called where they are not those that are shipped."""

    @classmethod
    def of(
        cls,
        fresh: Validation,
        residuals: Sequence[Residual] = (),
        profile: str | None = None,
        needs: Mapping[str, float] | None = None,
    ) -> Accuracy:
        """``residuals``: left-out errors; ``needs``: left-out needs of memory, by run."""
        left_out = left_out_validation(fresh, residuals, needs) if residuals else None
        return cls(fresh=fresh, left_out=left_out, residuals=residuals, profile=profile)

    @property
    def sides(self) -> dict[str, Validation]:
        """Both, by name."""
        return {"in_sample": self.fresh} | ({} if self.left_out is None else {"left_out": self.left_out})

    @property
    def pairs(self) -> list[tuple[Prediction, Prediction | None]]:
        """Every run as predicted in-sample and left out."""
        unseen = {} if self.left_out is None else {one.run.id: one for one in self.left_out.predictions}
        return [(one, unseen.get(one.run.id)) for one in self.fresh.predictions]

    def each(self, name: Any, reached: Callable[[Validation], T]) -> Sides[T]:
        """Something of both."""
        return Sides(name, reached(self.fresh), None if self.left_out is None else reached(self.left_out))

    def errors_by(self, name_of: Callable[[Prediction], str], ratio: Ratio) -> list[Sides[Errors]]:
        """A row for every name with a measurement, most runs first."""
        seen, unseen = (
            errors_by(() if checked is None else checked.predictions, name_of, ratio)
            for checked in (self.fresh, self.left_out)
        )
        rows = [Sides(name, errors, unseen.get(name)) for name, errors in seen.items() if errors.n]
        return sorted(rows, key=lambda row: (-row.in_sample.n, row.name))

    def errors_by_scale(self, ratio: Ratio) -> list[Sides[Errors]]:
        """The same by classes of world size, smallest first."""
        return sorted(self.errors_by(_scale, ratio), key=lambda row: int(row.name.split(" ")[0].replace(",", "")))

    def fits_by_family(self) -> list[Sides[Verdicts]]:
        """Families with a run that ran out of memory or a wrong verdict, most runs first, and one row for all."""
        seen, unseen = ({} if one is None else one.fits_by("family") for one in (self.fresh, self.left_out))
        rows = [Sides(name, one, unseen.get(name)) for name, one in seen.items() if one.out_of_memory or one.right != 1]
        everything = self.each("all", lambda checked: checked.fits)
        return [*sorted(rows, key=lambda row: -row.in_sample.n), everything]


def _scale(one: Prediction) -> str:
    index = int(np.searchsorted(SCALES, one.run.num_accelerators, side="right"))
    return f"{SCALES[index - 1]:,} to {SCALES[index] - 1:,}" if index < len(SCALES) else f"{SCALES[-1]:,} and more"


def believed_memory(one: Prediction) -> float | None:
    """ln(predicted / measured) of a peak memory, but of the families whose rows contradict themselves."""
    return None if one.run.family in CONTRADICTORY_MEMORY else one.log_memory_ratio


def described(checked: Validation) -> Validation:
    """With the sweeps of the runs alone that are described in full."""
    return replace(checked, sweeps=sweeps_of([one for one in checked.predictions if one.run.tier != "B"]))


def left_out_validation(
    fresh: Validation, residuals: Sequence[Residual], needs: Mapping[str, float] | None = None
) -> Validation:
    """The same runs as predicted by constants that never saw their team.

    Runs without a residual are not in it, but for those that ran out of memory. ``needs``: ln(needed / usable memory)
    by run; of runs that are not in it what the constants that saw all say.
    """
    known, needs = {residual.id: residual for residual in residuals}, needs or {}
    moved = tuple(
        _with_need(_moved(one, known.get(one.run.id)), needs.get(one.run.id))
        for one in fresh.predictions
        if one.run.id in known or not one.run.ran
    )
    return Validation(predictions=moved, skipped=(), sweeps=sweeps_of(moved))


def _moved(one: Prediction, residual: Residual | None) -> Prediction:
    time, memory = one.run.step_time, one.run.peak_memory_bytes
    if residual is None:
        return one
    return replace(
        one,
        step_time=one.step_time if time is None or residual.time is None else time * math.exp(residual.time),
        peak_memory_bytes=(
            one.peak_memory_bytes if memory is None or residual.memory is None else memory * math.exp(residual.memory)
        ),
    )


def _with_need(one: Prediction, log_need: float | None) -> Prediction:
    """The verdict at another need; that of the host's memory stays."""
    if log_need is None:
        return one
    needed = one.usable_memory_bytes * math.exp(log_need)
    is_on_host = not one.fits and one.needed_memory_bytes <= one.usable_memory_bytes
    return replace(one, needed_memory_bytes=needed, fits=needed <= one.usable_memory_bytes and not is_on_host)


@dataclass(frozen=True, kw_only=True)
class StatedAccuracy:
    """Errors on published runs by constants that never saw their team."""

    step_time: Errors
    """Of runs of tiers A and A-, of the families that constants are fitted to."""
    peak_memory: Errors
    """Of runs of all tiers of these families, without memory that contradicts itself."""

    @property
    def text(self) -> str:
        """The figures and the runs behind them."""
        time, memory = self.step_time, self.peak_memory
        return (
            f"a median error of {_percent(time.median, 1)} in step time (nine in ten within {_percent(time.p90, 0)}; "
            f"{time.n:,} runs of tiers A and A-) and of {_percent(memory.median, 1)} in peak memory "
            f"(nine in ten within {_percent(memory.p90, 0)}; {memory.n:,} runs of all tiers)"
        )

    def to_record(self) -> dict[str, Any]:
        """As plain values."""
        return {"step_time": asdict(self.step_time), "peak_memory": asdict(self.peak_memory)}


def stated_accuracy(published: Validation) -> StatedAccuracy:
    """Of the published runs under the shipped constants."""
    left_out = left_out_validation(published, read_residuals())
    by_label = {target.label: target for target in targets()}
    time, memory = (
        errors_of_each(filter(target.chosen, left_out.predictions), partial(ratio_of, quantity=target.quantity))
        for target in (by_label["step time, all"], by_label["peak memory, all tiers"])
    )
    return StatedAccuracy(step_time=time, peak_memory=memory)


def _percent(share: float | None, decimals: int) -> str:
    return "-" if share is None else f"{100 * share:.{decimals}f} %"
