"""How far an answer goes through the code: from the result of a search to the printed text of ``shardplan plan``.

    python benchmarks/answer_path.py               files, visits and calls to a higher layer
    python benchmarks/answer_path.py --functions   every function on the way too

It counts what a reader who follows the answer opens. On the way are the functions that the answer is handed to: the
result, a plan's estimate, the explanation, the document and its parts, or a list of them. Each is followed the first
time that it is called. One inside another is read with it, a derived attribute of the answer reads like a field, and
what ``base`` holds is known to any reader. A visit is a step to another file than that of the function before. A call
to a higher layer comes from a function of a package that is lower in the layers of ``pyproject.toml``, as a callback
does. The second count also follows all functions that put the answer into words; what they have calculated is one step
each time.
"""

from __future__ import annotations

import io
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import shardplan
from shardplan.cli.main import app
from shardplan.planner import search

PACKAGE = Path(shardplan.__file__).parent
QUESTION = ("plan", "llama-3.1-70b", "--cluster", "dgx-h100", "--gpus", "512")
ANSWERS = {"SearchResult", "Ties", "Estimate", "Explanation", "Recommendation", "ListedPlans"}
"""Classes of what an answer is before it is a document."""
DOCUMENTS = "shardplan.answers.document"
"""The module whose classes are a document and its parts."""
KNOWN = ("base/", "__init__.py")
"""What every program needs: units, fields, words, files, and the names that the package gives."""
CALCULATED = ("planner", "simulation", "estimation", "physics")
"""Packages whose functions calculate what an answer says."""


@dataclass
class Way:
    """The functions on the way of an answer, in the order in which they are first called."""

    functions: dict[tuple[str, str], None] = field(default_factory=dict)
    """File and name."""
    calls_up: set[tuple[str, str]] = field(default_factory=set)
    """Calling file, and the file in a higher layer that it calls."""

    @property
    def visits(self) -> list[str]:
        """Files in the order in which they are opened."""
        files = [file for file, _ in self.functions]
        return [file for before, file in zip(["", *files], files, strict=False) if file != before]

    def add(self, frame: FrameType) -> None:
        """A call on the way."""
        file, caller = file_of(frame), _caller(frame)
        self.functions.setdefault((file, _name(frame)))
        if caller is not None and rank(file_of(caller)) < rank(file):
            self.calls_up.add((file_of(caller), file))

    def __str__(self) -> str:
        files, visits = len(set(self.visits)), len(self.visits)
        return f"{len(self.functions)} functions in {files} files, {visits} visits, {len(self.calls_up)} calls up"


def ways_of(question: Sequence[str] = QUESTION) -> tuple[Way, Way]:
    """Asks a question and follows its answer: the functions it is handed to, and these with all helpers."""
    handed, all_of_them = Way(), Way()

    def follow(frame: FrameType, event: str, _argument: object) -> None:
        if event != "call" or not _is_read(frame):
            return
        if any(map(_is_answer, _arguments(frame))):
            handed.add(frame)
        if not _is_calculating(_caller(frame)):
            all_of_them.add(frame)

    with redirect_stdout(io.StringIO()), suppress(SystemExit), _followed_from_its_search(follow):
        app([*question])
    return handed, all_of_them


@contextmanager
def _followed_from_its_search(follow: Any) -> Iterator[None]:
    """Calls ``follow`` for what happens after a search has returned its result, whose plans are priced before."""
    searched = search.search_question

    def found(*arguments: Any, **options: Any) -> Any:
        result = searched(*arguments, **options)
        _ = (*result.estimates, result.recommended)
        sys.setprofile(follow)
        return result

    search.search_question = found
    try:
        yield
    finally:
        sys.setprofile(None)
        search.search_question = searched


@cache
def _relative(path: str) -> str:
    return Path(path).relative_to(PACKAGE).as_posix() if Path(path).is_relative_to(PACKAGE) else ""


def file_of(frame: FrameType) -> str:
    """The file of a call relative to the package; empty for one of another package."""
    return _relative(frame.f_code.co_filename)


def _caller(frame: FrameType) -> FrameType | None:
    """The nearest function of the package that led to a call."""
    back = frame.f_back
    while back is not None and not file_of(back):
        back = back.f_back
    return back


def _is_calculating(frame: FrameType | None) -> bool:
    """Whether a call was made by a calculation."""
    while frame is not None:
        if file_of(frame).startswith(CALCULATED):
            return True
        frame = frame.f_back
    return False


def _is_read(frame: FrameType) -> bool:
    """Whether a call is of a function that a reader would look up: a named one of the package, and no attribute."""
    is_attribute = isinstance(getattr(type(frame.f_locals.get("self")), frame.f_code.co_name, None), property)
    return (
        bool(file_of(frame)) and not file_of(frame).startswith(KNOWN) and "<" not in _name(frame) and not is_attribute
    )


def _name(frame: FrameType) -> str:
    return frame.f_code.co_qualname


def _arguments(frame: FrameType) -> list[Any]:
    code = frame.f_code
    return [frame.f_locals.get(name) for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]]


def _is_answer(value: Any) -> bool:
    first = value[0] if isinstance(value, list | tuple) and value else value
    return any(type(each).__name__ in ANSWERS or type(each).__module__ == DOCUMENTS for each in (value, first))


def rank(file: str) -> int:
    """The layer of a file, from the lowest."""
    return _layers()[file.partition("/")[0]]


@cache
def _layers() -> dict[str, int]:
    """Packages by their layer, as import-linter has them."""
    project = tomllib.loads((PACKAGE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    rows = project["tool"]["importlinter"]["contracts"][0]["layers"]
    return {name.strip(" ()"): place for place, row in enumerate(reversed(rows)) for name in row.split("|")}


def main() -> None:
    """Prints the counts."""
    handed, all_of_them = ways_of()
    if "--functions" in sys.argv[1:]:
        sys.stdout.writelines(f"{file:34} {name}\n" for file, name in handed.functions)
    print(f"handed the answer: {handed}\nwith helpers: {all_of_them}")


if __name__ == "__main__":
    main()
