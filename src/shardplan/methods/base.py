"""The interface of published models of training cost, which a user's own model can implement too.

A method is a small class. It answers cases in the form of its own paper (``answer``), recomputes the cases of a
reference file (``cases``), and maps a question of ours onto what it knows (``plan``), saying what it had to ignore.
Methods are found by the entry points of the group ``shardplan.methods``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import field
from typing import Any

from shardplan.base.errors import ShardplanError
from shardplan.base.fields import dataclass, in_files
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig

Record = Mapping[str, Any]


class MethodError(ShardplanError):
    """A question that a published method cannot answer."""


@dataclass(frozen=True, kw_only=True)
class MethodRow:
    """One configuration as a method sees it."""

    degrees: dict[str, int]
    """``dp``, ``tp``, ``pp`` and other degrees of the method, by our names."""
    step_time: float | None = field(default=None, metadata=in_files("step_time_s"))
    """One optimizer step, if the method predicts a time. [s]"""
    memory_bytes: float | None = None
    """Memory of one accelerator, if the method predicts it. [bytes]"""
    fits: bool | None = None
    """Whether the memory fits, by the method's own rule."""
    parts: dict[str, float] = field(default_factory=dict)
    """The method's own terms, with the unit as part of the key."""


@dataclass(frozen=True, kw_only=True)
class MethodAnswer:
    """A method's answer to a question of ours."""

    method: str
    rows: tuple[MethodRow, ...]
    """Configurations, the method's own best first."""
    mapped: tuple[str, ...]
    """How the question was translated into the method's terms."""
    ignored: tuple[str, ...]
    """What the method ignores of the question."""
    notes: tuple[str, ...] = ()
    """Known errors of the method that affect this answer."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One case of a reference file, recomputed."""

    name: str
    expected: Record
    """Published figures: numbers, texts, lists and tables of them."""
    computed: Record
    """The same figures as this program computes them."""


class Method(ABC):
    """A published model of training cost."""

    name: str
    """Name on the command line."""
    title: str
    """Description in one line."""
    source: str
    """Where it was published."""
    counts: tuple[str, ...]
    """What it counts."""
    leaves_out: tuple[str, ...]
    """What it leaves out or has wrong."""

    @abstractmethod
    def answer(self, case: Record) -> Record:
        """Answers a case given in the method's own terms. Raises ``InputError`` for wrong fields."""

    @abstractmethod
    def cases(self, text: str) -> Iterator[Case] | None:
        """Recomputes every case of a reference file; None if the file is not of this method."""

    def recomputed(self, case: Record, results: Collection[str], name: str = "") -> Case:
        """A case of a reference file, which holds the method's terms and, in ``results``, the published figures."""
        computed = self.answer(case)  # raises if the fields are not a case
        expected = {key: case[key] for key in results if key in case}
        return Case(name=name or str(case.get("name", "case")), expected=expected, computed=computed)

    @abstractmethod
    def plan(
        self, model: ModelConfig, cluster: Cluster, num_accelerators: int, job: Job, *, top: int = 10
    ) -> MethodAnswer:
        """Answers a question of ours. Raises ``MethodError`` if the method cannot answer it."""
