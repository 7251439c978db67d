"""Where launch files go. None is lost: a file that is there may hold what a user filled in."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from shardplan.errors import InputError, shown
from shardplan.launch.export.written import Export
from shardplan.outputs.target import JsonTarget, OwnFile

EXPORTED: Final = OwnFile("empty (an exported file may hold what you filled in)", re.compile(rb"(?!)"))
"""Nothing that is there is ours to replace."""


class ExportTarget:
    """The file that an export is written to, with those that belong to it next to it."""

    def __init__(self, where: str, flag: str, *, is_forced: bool = False, forced_by: str = "--force") -> None:
        """``where``: the file that is run; ``flag`` is by what it was given."""
        self.where, self.flag = where, flag
        self.is_forced, self.forced_by = is_forced, forced_by
        if not where or where == "-" or not Path(where).name:
            raise InputError(
                f"{flag} is {shown(where)}", rule=f"{flag} names a file", hint=f"set {flag} to a file such as launch.sh"
            )

    @property
    def stem(self) -> str:
        """Name of the files without their ends."""
        return Path(self.where).stem

    def check(self, *reads: str | Path | None) -> None:
        """Finds out early whether the file can be written. Raises ``InputError``."""
        self._target(Path(self.where)).check(*reads)

    def write(self, export: Export) -> tuple[Path, ...]:
        """Writes all files of ``export`` or, where one cannot be written, none. Raises ``InputError``."""
        texts = {self._path(at, name): text for at, (name, text) in enumerate(export.files.items())}
        for path in texts:
            self._target(path).check_content(b"")
        for path, text in texts.items():
            self._target(path).write_text(text)
        return tuple(texts)

    def _path(self, at: int, name: str) -> Path:
        first = Path(self.where)
        return first if at == 0 else first.with_name(name)

    def _target(self, path: Path) -> JsonTarget:
        return JsonTarget(str(path), self.flag, kind=EXPORTED, is_forced=self.is_forced, forced_by=self.forced_by)
