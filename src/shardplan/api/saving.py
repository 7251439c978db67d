"""Common parts of answers: they convert to mappings and data frames, and save themselves."""

from __future__ import annotations

import os
from abc import abstractmethod
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from shardplan.answers.document import AnswerDocument, summary
from shardplan.base.errors import InputError
from shardplan.base.outputs import JsonTarget
from shardplan.render.html import notebook_html
from shardplan.render.record import document_record, frame_rows

FRAMES: Final = ("polars", "pandas")
"""Libraries of data frames, the preferred one first."""


class AsRecord:
    """An answer as a mapping, and as a JSON file."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The mapping that ``--json`` of its command writes (docs/output.md names every key; units are in the keys)."""

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Writes the mapping as JSON, atomically. Raises InputError.

        An existing file is replaced only if it is of the same kind, or with ``overwrite``.
        """
        where = Path(path)
        JsonTarget(str(where), "path", forced_by="overwrite=True", is_forced=overwrite).write(self.to_dict())
        return where


class AsTable(AsRecord):
    """An answer that also has rows."""

    @abstractmethod
    def to_rows(self) -> list[dict[str, Any]]:
        """Rows as mappings, with the unit in the name of a column."""

    def to_frame(self, library: str | None = None) -> Any:
        """The rows as a data frame of ``polars`` or ``pandas``, by default of the first that is installed.

        Raises InputError if none is.
        """
        wanted = FRAMES if library is None else (library,)
        for name in wanted:
            if name in FRAMES and find_spec(name) is not None:
                return import_module(name).DataFrame(self.to_rows())
        raise InputError(
            f"{' and '.join(wanted)} cannot be imported",
            rule=f"a data frame is made by {' or '.join(FRAMES)}, which is installed",
            hint="pip install polars, or take to_rows()",
        )


class AsPage(AsRecord):
    """An answer that is a document: a notebook shows it like the terminal, and its verdict is its text."""

    def __init_subclass__(cls) -> None:
        """Keeps a dataclass from printing its fields."""
        super().__init_subclass__()
        if "__repr__" not in vars(cls):
            cls.__repr__ = AsPage.__repr__  # type: ignore[method-assign]  # as if the class had it

    @abstractmethod
    def document(self) -> AnswerDocument:
        """The answer as a document: verdict, parts with tables, figure."""

    def to_dict(self) -> dict[str, Any]:
        """The mapping that ``--json`` of its command writes (docs/output.md names every key; units are in the keys)."""
        return document_record(self.document())

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {summary(self.document())}>"

    def _repr_html_(self) -> str:
        return notebook_html(self.document())


class AsDocument(AsPage, AsTable):
    """A document with a table."""

    def to_rows(self) -> list[dict[str, Any]]:
        """The rows of its table as mappings, with the unit in the name of a column: what ``--csv`` writes."""
        return frame_rows(self.document())
