"""``shardplan.scale``: decisions that need many searches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

from shardplan.api.answers import frame_of, values_of
from shardplan.api.questions import (
    ClusterLike,
    JobFields,
    ModelLike,
    ProfileLike,
    PutQuestion,
    StackLike,
    ask,
    choices_of,
)
from shardplan.decisions import scale as scales
from shardplan.decisions.searching import Progress, Searches
from shardplan.fields import dataclass
from shardplan.frameworks.defaults import switches_in_stack
from shardplan.frameworks.usual_stack import USUAL
from shardplan.inputs.job import Job
from shardplan.planner.space import Given
from shardplan.planner.stopping import Stop
from shardplan.reports.decisions.scale import scale_record, scale_rows


class AsTables:
    """Answers that give themselves as mappings and as data frames."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """What ``--json`` writes; units are in the keys."""

    @abstractmethod
    def to_rows(self) -> list[dict[str, Any]]:
        """The rows of ``--csv``, units in the names of the columns."""

    def to_frame(self, library: str | None = None) -> Any:
        """The rows as a data frame of ``polars`` or ``pandas``. Raises InputError where none is installed."""
        return frame_of(self.to_rows(), library)


@dataclass(frozen=True, kw_only=True)
class ScaleAnswer(scales.Scaling, AsTables):
    """One job on several sizes: :class:`shardplan.decisions.scale.Scaling`."""

    def to_dict(self) -> dict[str, Any]:
        """What ``shardplan scale --json`` writes."""
        return scale_record(self)

    def to_rows(self) -> list[dict[str, Any]]:
        """A row for each size."""
        return scale_rows(self)


def scale(
    model: ModelLike,
    cluster: ClusterLike,
    sizes: Sequence[int],
    *,
    job: Job | Mapping[str, Any] | None = None,
    fix: Given | None = None,
    limit: Given | None = None,
    exclude: Given | None = None,
    stack: StackLike = USUAL,
    profile: ProfileLike | None = None,
    least_gain: float = scales.LEAST_GAIN,
    progress: Progress | None = None,
    stop: Stop | None = None,
    **fields: Unpack[JobFields],
) -> ScaleAnswer:
    """Plans one job on clusters of several sizes: ``scale("llama-3.1-70b", "dgx-h100", [64, 128, 256])``.

    The batch is the same at every size: that of :func:`search` at the largest, if it is not given. More accelerators
    pay while each added one brings ``least_gain`` of what one brings at the smallest size (``pays_up_to``). Other
    arguments are those of :func:`search`. Raises as it does.
    """
    ordered = scales.checked_sizes(sizes)
    asked = ask(model, cluster, ordered[-1], job=job, profile=profile, stack=stack, **fields)
    searches, assumed = _searches(asked, stop, fix=fix, limit=limit, exclude=exclude)
    found = scales.scaling(asked.question, ordered, searches, least_gain=least_gain, progress=progress)
    return ScaleAnswer(**values_of(scales.Scaling, replace(found, assumptions=assumed)))


def _searches(asked: PutQuestion, stop: Stop | None, **choices: Given | None) -> tuple[Searches, tuple[str, ...]]:
    """How questions are searched, and all that was assumed so far."""
    given = choices_of(**choices)
    of_stack = switches_in_stack(asked.stack, {name for each in given.values() for name in each or ()})
    return Searches(stack=asked.stack, stop=stop, **given), (*asked.assumptions, *of_stack)
