"""Reads traces of the PyTorch profiler (Kineto): what the accelerator did, and the annotations of steps and passes.

A trace is a JSON object, plain or compressed with gzip. Read are ``distributedInfo`` (``rank``, ``world_size``),
``baseTimeNanoseconds`` and, of ``traceEvents``, the complete events (``ph`` X, with ``ts`` and ``dur`` in microseconds)
of the categories ``kernel``, ``gpu_memcpy`` and ``gpu_memset``, and the annotations ``gpu_user_annotation`` and
``user_annotation``. Format: ``torch.profiler``, ``export_chrome_trace``, PyTorch 2.11.

The file is read as a stream. The C decoder of the standard library decodes every value; only the object around them,
and the items of one list in it, are read piece by piece, so a trace of a gigabyte needs the memory of one piece. Only
times, names and classes of the events above are kept.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np

from shardplan.base.errors import InputError, shown
from shardplan.base.fields import dataclass
from shardplan.base.files import FileKind, printable, read_pieces
from shardplan.simulation.case import Seconds
from shardplan.simulation.measured.passes import CLASSES, COMMUNICATION, group_of, kind_of_kernel
from shardplan.simulation.measured.ranks import MOST_RANK
from shardplan.simulation.pieces import Ints

SPACE: Final = re.compile(r"[ \t\r\n]*")
COMMA: Final = re.compile(r"[ \t\r\n]*,[ \t\r\n]*")
OF_NUMBERS: Final = re.compile(r"[-+.\deE]*")
"""Characters that may continue a number at the end of a piece."""
MOST_LENGTH: Final = 64 * 1024 * 1024
"""Most characters of one value."""


class JsonObject:
    """A JSON object whose members are read in their order."""

    def __init__(self, pieces: Iterator[str], label: str, rule: str) -> None:
        """``pieces`` is the text; ``label`` names it in errors."""
        self._pieces, self._label, self._rule = pieces, label, rule
        self._text, self._at, self._before = "", 0, 0
        self._decoder = json.JSONDecoder()

    def members(self, streamed: str) -> Iterator[tuple[str, object]]:
        """Name and value of every member; for the list called ``streamed``, one pair for each item.

        Raises ``InputError`` if the text ends early or is not a JSON object.
        """
        self._expect("{")
        if self._next() == "}":
            return
        while True:
            name = self._value()
            if not isinstance(name, str):
                self._refuse(f"has {shown(name)} in place of a name")
            self._expect(":")
            if name == streamed and self._next() == "[":
                self._expect("[")
                yield from ((name, item) for item in self._items())
            else:
                yield name, self._value()
            if self._next() == "}":
                return
            self._expect(",")

    def _items(self) -> Iterator[object]:
        if self._next() == "]":
            self._expect("]")
            return
        while True:
            yield self._value()
            yield from self._objects()
            if self._next() == "]":
                self._expect("]")
                return
            self._expect(",")

    def _objects(self) -> Iterator[object]:
        """The next complete items; ``_value`` reads an item that continues in the next piece."""
        while (comma := COMMA.match(self._text, self._at)) is not None:
            try:
                value, end = self._decoder.raw_decode(self._text, comma.end())
            except (ValueError, RecursionError):
                return
            if not isinstance(value, dict):
                return
            self._at = end
            yield value

    def _next(self) -> str:
        """The next character that is not white space; empty at the end of the text."""
        while True:
            found = SPACE.match(self._text, self._at)
            assert found is not None
            self._at = found.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read_on():
                return ""

    def _expect(self, character: str) -> None:
        found = self._next()
        if found != character:
            self._refuse(f"has {shown(found)} where '{character}' belongs" if found else "ends early")
        self._at += 1

    def _value(self) -> object:
        """The next value; more text is read until it is complete."""
        self._next()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except RecursionError:
                self._refuse("is nested too deep")
            except ValueError as error:
                if len(self._text) - self._at > MOST_LENGTH:
                    self._refuse("is not JSON, or has a value that is too long")
                if not self._read_on():
                    self._refuse(
                        "ends early" if self._is_cut(error) else f"is not JSON: {str(error).partition(':')[0]}"
                    )
                continue
            if OF_NUMBERS.fullmatch(self._text, end) and self._read_on():
                continue
            self._at = end
            return value

    def _is_cut(self, error: ValueError) -> bool:
        """Whether the text ends where the decoder wants more of it."""
        where = getattr(error, "pos", 0)
        return where >= len(self._text.rstrip()) - 1 or "Unterminated" in str(error)

    def _read_on(self) -> bool:
        """Adds the next piece to the text, without what has been read; False at the end."""
        piece = next(self._pieces, None)
        if piece is None:
            return False
        self._before += self._at
        self._text, self._at = self._text[self._at :] + piece, 0
        return True

    def _refuse(self, why: str) -> NoReturn:
        where = self._before + self._at
        raise InputError(
            f"{self._label} {why} (character {where:,})", rule=self._rule, hint="give the file as the profiler wrote it"
        )


SOURCE: Final = "trace of the PyTorch profiler"
RULE: Final = "a trace of the PyTorch profiler is a JSON object with the list traceEvents, plain or in gzip"
FILE: Final = FileKind("the trace", 16 * 1024**3, RULE)
MOST_EVENTS: Final = 50_000_000
"""Most events of an accelerator, of 20 bytes each."""
MOST_ANNOTATIONS: Final = 2_000_000
MOST_TIME: Final = 1e16
"""Largest time. [µs] Times of traces may count from 1970."""
EVENTS: Final = "traceEvents"
ON_DEVICE: Final = ("kernel", "gpu_memcpy", "gpu_memset")
DEVICE_ANNOTATION: Final = "gpu_user_annotation"
HOST_ANNOTATION: Final = "user_annotation"
MICROSECOND: Final = 1e-6


@dataclass(frozen=True, kw_only=True)
class Annotation:
    """A named interval."""

    name: str
    start: float
    """Start on the clock of the trace. [s]"""
    end: float
    on_device: bool
    """Whether it spans kernels; otherwise it spans the code that launches them."""
    stream: str


@dataclass(frozen=True, kw_only=True)
class Trace:
    """What one accelerator did."""

    label: str
    rank: int
    world_size: int | None
    """Ranks of the run, if the trace says it."""
    base_ns: int
    """Origin of the times. [ns]"""
    kind: Ints
    """Class of every kernel, copy and fill: position in ``CLASSES``."""
    collective: Ints
    """Position in ``collectives``, or -1."""
    start: Seconds
    """Start on the clock of the trace. [s]"""
    end: Seconds
    collectives: tuple[tuple[str, str], ...]
    """Dimension and collective."""
    annotations: tuple[Annotation, ...]


def read_trace(path: Path, rank: int) -> Trace:
    """The trace in the file at ``path``; ``rank`` is used if the file names none. Raises InputError."""
    label = printable(path.name)
    reading = _Reading(label)
    for name, value in JsonObject(read_pieces(path, FILE), label, RULE).members(EVENTS):
        if name == "schema" and str(value).startswith("shardplan/"):
            raise FILE.wrong(f"{label} is a step that shardplan predicted", "give the trace of a run")
        if name == EVENTS:
            if isinstance(value, dict):
                reading.add(value)
        elif name == "distributedInfo" and isinstance(value, dict):
            rank = _whole(value.get("rank", rank), "rank", label, MOST_RANK)
            if "world_size" in value:
                reading.world_size = _whole(value["world_size"], "world_size", label, MOST_RANK + 1)
        elif name == "baseTimeNanoseconds":
            reading.base_ns = _whole(value, name, label, 10**19)
    return reading.trace(rank)


class _Reading:
    """Columns that grow with the events."""

    def __init__(self, label: str) -> None:
        self.label, self.base_ns, self.number = label, 0, 0
        self.world_size: int | None = None
        self.kinds, self.groups = array("b"), array("i")
        self.starts, self.durations = array("d"), array("d")
        self.collectives: dict[tuple[str, str], int] = {}
        self.annotations: list[Annotation] = []
        self.devices: set[str] = set()

    def add(self, event: Mapping[str, Any]) -> None:
        """Stores the data of one event."""
        self.number += 1
        category = event.get("cat")
        if event.get("ph") != "X" or not isinstance(category, str):
            return
        if category in ON_DEVICE:
            self._kernel(event, category)
        elif category in {DEVICE_ANNOTATION, HOST_ANNOTATION}:
            self._annotation(event, on_device=category == DEVICE_ANNOTATION)

    def _kernel(self, event: Mapping[str, Any], category: str) -> None:
        start, duration = self._times(event)
        name = str(event.get("name", ""))[:2000]
        details = event.get("args")
        details = details if isinstance(details, dict) else {}
        kind, group = kind_of_kernel(name, category), -1
        if kind == COMMUNICATION:
            kind, collective = group_of(name, details)
            group = self.collectives.setdefault((kind, collective), len(self.collectives))
        self.kinds.append(CLASSES.index(kind))
        self.groups.append(group)
        self.starts.append(start)
        self.durations.append(duration)
        if "device" in details:
            self.devices.add(str(details["device"]))
        if len(self.starts) > MOST_EVENTS:
            raise FILE.wrong(f"{self.label} has more than {MOST_EVENTS:,} kernels", "profile fewer steps")

    def _annotation(self, event: Mapping[str, Any], *, on_device: bool) -> None:
        start, duration = self._times(event)
        if len(self.annotations) >= MOST_ANNOTATIONS:
            raise FILE.wrong(f"{self.label} has more than {MOST_ANNOTATIONS:,} annotations", "profile fewer steps")
        self.annotations.append(
            Annotation(
                name=str(event.get("name", ""))[:300],
                start=start * MICROSECOND,
                end=(start + duration) * MICROSECOND,
                on_device=on_device,
                stream=str(event.get("tid")),
            )
        )

    def _times(self, event: Mapping[str, Any]) -> tuple[float, float]:
        """Start and duration. [µs]"""
        start, duration = event.get("ts"), event.get("dur")
        for name, value, least in (("ts", start, -MOST_TIME), ("dur", duration, 0.0)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= MOST_TIME:
                what = f"event {self.number} ({shown(str(event.get('name', '')))})"
                raise FILE.wrong(
                    f"{self.label}: {name} of {what} is {shown(value)}",
                    "measure again: times are microseconds, and none lasts less than 0",
                )
        return float(start or 0), float(duration or 0)

    def trace(self, rank: int) -> Trace:
        """The trace that was read. Raises InputError if it is empty."""
        if not self.number:
            raise FILE.wrong(f"{self.label} has no events in traceEvents", "give the file as the profiler wrote it")
        if not self.starts:
            raise FILE.wrong(f"{self.label} has no kernels of an accelerator", "profile with ProfilerActivity.CUDA")
        if len(self.devices) > 1:
            raise FILE.wrong(
                f"{self.label} has kernels of {len(self.devices)} accelerators", "give a trace for every accelerator"
            )
        start = np.frombuffer(self.starts, dtype=np.float64)
        return Trace(
            label=f"rank {rank} ({self.label})",
            rank=rank,
            world_size=self.world_size,
            base_ns=self.base_ns,
            kind=np.frombuffer(self.kinds, dtype=np.int8).astype(np.int64),
            collective=np.frombuffer(self.groups, dtype=np.int32).astype(np.int64),
            start=start * MICROSECOND,
            end=(start + np.frombuffer(self.durations, dtype=np.float64)) * MICROSECOND,
            collectives=tuple(self.collectives),
            annotations=tuple(self.annotations),
        )


def _whole(value: object, name: str, label: str, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise FILE.wrong(f"{name} of {label} is {shown(value)}", "give the file as the profiler wrote it")
    return value
