"""A grid of questions: the product of axes of values, in a fixed order.

A point of a grid becomes a question, with the framework and the restrictions of its plans.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardplan.ask import names
from shardplan.ask.questions import CHOICES, ask_search
from shardplan.base.errors import InputError, UnknownNameError, shown
from shardplan.base.fields import dataclass
from shardplan.base.files import FileKind, read_document
from shardplan.decide.sweeps.fields import RECOMMENDED, REPLACED, WHICH_PLAN, GridField, field_of, values_of
from shardplan.estimation.question import Question
from shardplan.inputs.readers.catalog import load_accelerator
from shardplan.inputs.readers.overrides import override
from shardplan.physics.frameworks.usual_stack import stack_for
from shardplan.planner.scope import Scope

MOST_QUESTIONS: Final = 10_000_000
GRID_FILE: Final = FileKind("the grid", 1024 * 1024, "a grid is a short text file that can be read")
KEYS: Final = ("grid", "zip")
OUTERMOST: Final = ("model", "stack", "cluster", "accelerator")
"""Fields that change slowest in the order of the work: what questions share is kept only for the latest ones."""
TOGETHER: Final = (
    *("memory", "inter_node_bandwidth", "intra_node_bandwidth", "inter_node_latency", "intra_node_latency"),
    *("memory_bandwidth", "peak_flops"),
)
"""Fields that change fastest, the first of them the fastest; questions that differ only here are answered together."""
MOST_TOGETHER: Final = 256
"""Most questions that are answered together, which limits what a crash loses and the memory in use."""


@dataclass(frozen=True, kw_only=True)
class GridAxis:
    """Fields that vary together, and their values."""

    fields: tuple[str, ...]
    """Own names of the fields (:mod:`shardplan.decide.sweeps.fields`)."""
    values: tuple[tuple[Any, ...], ...]
    """The value of each field at every step, in SI units."""


@dataclass(frozen=True, kw_only=True)
class SweepGrid:
    """The product of axes; the last axis changes fastest."""

    axes: tuple[GridAxis, ...]

    def __post_init__(self) -> None:
        """Checks names and size. Raises InputError."""
        names = [name for axis in self.axes for name in axis.fields]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise _wrong(f"the grid gives {twice} twice", "every field is given once", f"keep one of the two {twice}")
        for wanted, flag in ((("model",), "model"), (("cluster", "accelerator"), "cluster"), (WORLD, "gpus")):
            if not {*wanted} & {*names}:
                raise _wrong(f"the grid has no {flag}", "a grid has a model, a cluster and gpus", f"add {flag}")
        if {*WORLD} <= {*names}:
            raise _wrong("the grid has gpus and nodes", "a grid has gpus or nodes", "keep one of the two")
        if self.num_questions > MOST_QUESTIONS:
            axes = [f"{len(axis.values):,} {'+'.join(axis.fields)}" for axis in self.axes if len(axis.values) > 1]
            raise _wrong(
                f"the grid has {self.num_questions:,} questions: {' x '.join(axes)}",
                f"a grid has at most {MOST_QUESTIONS:,} questions",
                "give fewer values, or write fields that change together under zip",
            )

    @property
    def fields(self) -> tuple[GridField, ...]:
        """All fields, in the order of the file."""
        return _fields_of(tuple(axis.fields for axis in self.axes))

    @property
    def num_questions(self) -> int:
        """Product of the lengths of the axes."""
        return prod(len(axis.values) for axis in self.axes)

    def point(self, number: int) -> dict[str, Any]:
        """The values of question ``number``, by field."""
        found: dict[str, Any] = {}
        for axis in reversed(self.axes):
            number, place = divmod(number, len(axis.values))
            found |= dict(zip(axis.fields, axis.values[place], strict=True))
        return {field.name: found[field.name] for field in self.fields}

    def work_order(self) -> NDArray[np.int64]:
        """Numbers of the questions in the order of the work: neighbours share most."""
        places = sorted(range(len(self.axes)), key=lambda place: self._work_rank(self.axes[place]))
        numbers = np.arange(self.num_questions).reshape([len(axis.values) for axis in self.axes])
        return numbers.transpose(places).ravel()

    @property
    def group_size(self) -> int:
        """Number of consecutive questions that are answered together."""
        size = 1
        for axis in sorted(self.axes, key=self._work_rank, reverse=True):
            if not {*axis.fields} <= {*TOGETHER} or size * len(axis.values) > MOST_TOGETHER:
                return size
            size *= len(axis.values)
        return size

    @staticmethod
    def _work_rank(axis: GridAxis) -> int:
        """Position of an axis in the order of the work: higher ones change faster."""
        if {*axis.fields} <= {*TOGETHER}:
            return len(OUTERMOST) + len(TOGETHER) - min(TOGETHER.index(name) for name in axis.fields)
        return min((OUTERMOST.index(name) for name in axis.fields if name in OUTERMOST), default=len(OUTERMOST))

    def record(self) -> list[dict[str, Any]]:
        """The grid in the form of a manifest."""
        return [{"fields": [*axis.fields], "values": [[*values] for values in axis.values]} for axis in self.axes]

    @classmethod
    def from_record(cls, record: Sequence[Mapping[str, Any]]) -> SweepGrid:
        """The grid of a manifest. Raises InputError."""
        axes = []
        for each in record:
            values = [[tuple(v) if isinstance(v, list) else v for v in values] for values in each["values"]]
            axes.append(GridAxis(fields=tuple(each["fields"]), values=tuple(map(tuple, values))))
        return cls(axes=tuple(axes))


WORLD: Final = ("num_accelerators", "nodes")


@lru_cache(maxsize=16)
def _fields_of(names: tuple[tuple[str, ...], ...]) -> tuple[GridField, ...]:
    """Fields by name; cached here, not in a grid, since grids are sent to workers and fields cannot be."""
    return tuple(field_of(name) for axis in names for name in axis)


def read_grid(path: Path) -> SweepGrid:
    """The grid in a file. Raises InputError, which names the file."""
    return grid_of(read_document(path, GRID_FILE), label=str(path))


def grid_of(document: Mapping[str, Any], *, label: str = "the grid") -> SweepGrid:
    """A grid from the content of a file, or from fields with their values. Raises InputError."""
    if not isinstance(document, Mapping) or not document:
        raise _wrong(
            f"{label} holds {shown(document)}", "a grid holds fields with values", "see `shardplan sweep --help`"
        )
    is_whole = any(key in document for key in KEYS)
    for key in document if is_whole else ():
        if key not in KEYS:
            raise UnknownNameError(f"part of {label}", str(key)[:60], KEYS, hint="fields are below grid or zip")
    products = document.get("grid") or {} if is_whole else document
    zips = document.get("zip") or [] if is_whole else []
    zips = [zips] if isinstance(zips, Mapping) else zips
    if not isinstance(products, Mapping) or not all(isinstance(each, Mapping) for each in zips):
        raise _wrong(
            f"{label}: grid and zip hold no fields", "grid and zip hold fields with values", "write field: values"
        )
    axes = [_zipped({name: given}) for name, given in products.items()]
    return SweepGrid(axes=(*axes, *(_zipped(each) for each in zips)))


def _zipped(given: Mapping[Any, Any]) -> GridAxis:
    """Fields that vary together; a single field is an axis of its own."""
    columns: dict[str, tuple[Any, ...]] = {}
    for name, values in given.items():
        field = field_of(name)
        listed = values_of(str(name), values, takes_lists=field.takes_lists)
        columns[field.name] = tuple(field.read(value) for value in listed)
    lengths = {name: len(values) for name, values in columns.items() if len(values) > 1}
    if len({*lengths.values()}) > 1:
        told = ", ".join(f"{name} has {length} values" for name, length in lengths.items())
        raise _wrong(f"zip: {told}", "fields of a zip have the same number of values", "give each as many values")
    most = max(lengths.values(), default=1)
    full = [values if len(values) == most else values * most for values in columns.values()]
    return GridAxis(fields=tuple(columns), values=tuple(zip(*full, strict=True)))


def _wrong(message: str, rule: str, hint: str) -> InputError:
    return InputError(message, rule=rule, hint=hint)


Point = Mapping[str, Any]
model_named = lru_cache(maxsize=64)(names.model_of)
profile_named = lru_cache(maxsize=64)(names.profile_named)
cluster_named = lru_cache(maxsize=256)(names.cluster_of)
NAMED = ("model", "cluster", "accelerator", "profile")


class GridQuestion(NamedTuple):
    """A question with the arguments of its search."""

    question: Question
    scope: Scope
    is_recommended: bool = False
    """Whether the recommended plan is asked for, rather than the fastest."""


def question_at(point: Point) -> GridQuestion:
    """The question at a point, with the defaults of ``shardplan plan``. Raises InputError."""
    choices = {name: _grouped(point, name) for name in CHOICES}
    own = {name: value for name, value in point.items() if "." not in name and name not in (*NAMED, *REPLACED)}
    own.pop(WHICH_PLAN, None)
    profile = None if point.get("profile") is None else profile_named(point["profile"])
    model, cluster = model_named(point["model"]), cluster_named(point.get("cluster"), point.get("accelerator"))
    values: Any = {name: point[name] for name in REPLACED if name in point}
    cluster = override(cluster, values) if values else cluster
    record = {"model": model, "cluster": cluster, "profile": profile, **own}
    asked = ask_search({**record, "software": _grouped(point, "software"), **choices})
    return GridQuestion(asked.question, Scope.of(stack=asked.stack, **choices), point.get(WHICH_PLAN) == RECOMMENDED)


def _grouped(point: Point, group: str) -> dict[str, Any]:
    """Values of ``group.field`` by field."""
    return {name.removeprefix(f"{group}."): value for name, value in point.items() if name.startswith(f"{group}.")}


def check_names(grid: SweepGrid) -> None:
    """Checks all names before anything is computed. Raises InputError."""
    checks: dict[str, Callable[[str], object]] = {
        "model": model_named,
        "cluster": cluster_named,
        "accelerator": load_accelerator,
        "stack": lambda name: stack_for(name, ""),
        "profile": profile_named,
    }
    for axis in grid.axes:
        for place, field in enumerate(axis.fields):
            for value in dict.fromkeys(values[place] for values in axis.values if field in checks):
                if value is not None:
                    checks[field](value)
