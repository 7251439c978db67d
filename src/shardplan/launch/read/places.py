"""Where files are that a launch file names: companions, the folder that it is launched from, and its own folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from pathlib import Path
from typing import Final

from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass
from shardplan.base.files import printable

MARKS: Final = (".git", "pyproject.toml", "setup.py", "LICENSE", "LICENSE.md", "README.md")
"""What a repository has at its root; a part of it may have some of them too."""
MOST_UP: Final = 8
"""Folders above the one of a file that are looked at."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """Files that are given next to a launch file, and the folder that it is launched from."""

    root: Path | None = None
    """None: the repository's root is tried where a path of the file exists there."""
    companions: tuple[Path, ...] = ()
    used: set[Path] = field(default_factory=set, compare=False)
    """Companions that a file names."""
    starts: bool = True
    """Whether a line of the repository that starts the file is looked for."""
    roots: dict[Path, Sequence[Path]] = field(default_factory=dict, compare=False)
    """Folders above others that may be roots, as they were found."""

    def check(self, file: Path) -> None:
        """Raises InputError for a root or a companion that is not there, or given twice."""
        if self.root is not None and not self.root.is_dir():
            what = "is a file" if self.root.is_file() else "is not there"
            raise InputError(
                f"--root {printable(str(self.root))} {what}",
                rule="the root is the folder that the file is launched from",
                hint=f"give its folder: --root {printable(str(self.root.parent))}",
            )
        for place, each in enumerate(self.companions):
            what = "" if each.is_file() else "is a folder" if each.is_dir() else "is not there"
            again = next((other for other in (file, *self.companions[:place]) if _same(each, other)), None)
            if what or again is not None:
                raise InputError(
                    f"the companion {printable(str(each))} of {printable(str(file))} "
                    f"{what or f'is {printable(str(again))}, which is given already'}",
                    rule="companions are other files that the first one names, or configurations next to it",
                    hint="correct the path, or leave it out; arguments of a script go after --",
                )

    def find(self, name: str, folder: Path, *, is_exact: bool = False) -> Path | None:
        """The file that one in ``folder`` names; None where it is not there or may not be read. Raises InputError.

        ``is_exact``: with all folders of its path.
        """
        if "\0" in name or not name.strip():
            return None
        named = self._companion(name)
        return named or next(
            (each for each in self._candidates(name, folder, is_exact=is_exact) if self.may_read(each, folder)), None
        )

    def folders(self, folder: Path) -> tuple[Path, ...]:
        """Other folders than ``folder`` whose files a file in it may name, the likeliest first."""
        own = {each.parent: None for each in self.companions}
        if self.root is None and folder not in self.roots:
            self.roots[folder] = _roots(folder)
        return (*(self.roots[folder] if self.root is None else [self.root]), *own)

    def _companion(self, name: str) -> Path | None:
        """The companion that a name means. Raises InputError where it means two that differ."""
        parts = [part for part in Path(name).parts if part not in ("/", ".", "..")]
        same = [each for each in self.companions if parts and each.name == parts[-1]]
        near = [each for each in same if each.parts[-len(parts) :] == tuple(parts)] or same
        if len(near) > 1 and len({each.read_bytes() for each in near}) > 1:
            raise InputError(
                f"{printable(name)} may be {printable(str(near[0]))} or {printable(str(near[1]))}, which differ",
                rule="a name means one of the companions",
                hint="leave one of them out",
            )
        self.used.update(near)
        return near[0] if near else None

    def _candidates(self, name: str, folder: Path, *, is_exact: bool) -> Iterator[Path]:
        """The path as it is written, then its end, then the name alone next to the file."""
        parts = Path(name.lstrip("/")).parts
        others = self.folders(folder)
        at_root = others[:1] if self.root is not None else ()
        for each in (*at_root, folder, *others):
            yield each / name.lstrip("/")
        if (
            len(parts) > 1 or Path(name).suffix
        ) and others:  # it is launched from a folder in between, where that path is there
            outer = [each.resolve() for each in others]
            between = (each for each in folder.resolve().parents if any(each.is_relative_to(root) for root in outer))
            yield from (each / name.lstrip("/") for each in between)
        for place in range(1, 0 if is_exact else len(parts) - 1):
            yield from (each.joinpath(*parts[place:]) for each in others)
        if parts and not is_exact:
            yield folder / parts[-1]
            yield from (each / parts[-1] for each in at_root)

    def may_read(self, path: Path, folder: Path) -> bool:
        """Whether a file lies in ``folder``, at the root, or in the repository."""
        return any(is_inside(path, each) for each in (folder, *self.folders(folder)))


def is_inside(path: Path, folder: Path) -> bool:
    """Whether a file is there, and in ``folder`` wherever links lead."""
    try:
        return path.is_file() and path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):
        return False


def _roots(folder: Path) -> Sequence[Path]:
    """Folders above one that may be the root of its repository, the nearest first; none above one with ``.git``."""
    found = list[Path]()
    try:
        above = folder.resolve()
        for each in (above, *above.parents[:MOST_UP]):
            if each == each.parent or each == Path.home():
                break
            if each != above and any((each / mark).exists() for mark in MARKS):
                found.append(each)
            if (each / ".git").exists():
                break
    except (OSError, RuntimeError, ValueError):
        return ()
    return found


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except (OSError, ValueError):
        return False
