"""Models in the local download cache of the Hugging Face hub. Nothing is downloaded.

A repository ``org/name`` is the folder ``models--org--name``: ``refs/main`` holds the revision that was fetched last,
``snapshots/REVISION/config.json`` its file.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

from shardplan.base.errors import InputError
from shardplan.base.files import FileKind, read_text

REPOSITORY: Final = re.compile(r"(?:[\w.-]+/)?[\w.-]+", re.ASCII)
LONGEST: Final = 200
REFERENCE: Final = FileKind("the reference", 1000, "a reference holds a revision")
SHORT: Final = 12
"""Characters of a revision that people are shown."""


class Snapshot(NamedTuple):
    """The configuration of a repository in the cache."""

    config: Path
    repository: str
    revision: str
    is_only: bool
    """Whether the cache holds no other revision."""

    @property
    def said(self) -> str:
        """Where the model is from."""
        which = "" if self.is_only else ", of several in the cache"
        return f"{self.repository} is read from the hub cache, revision {self.revision[:SHORT]}{which}"


def cached_model(repository: str) -> Snapshot | None:
    """The newest fetched configuration of a repository; None where the cache has none."""
    if not REPOSITORY.fullmatch(repository) or len(repository) > LONGEST:
        return None
    wanted = f"models--{repository.replace('/', '--')}".lower()
    for folder in _folders(_cache()):
        if folder.name.lower() == wanted:
            return _snapshot(folder)
    return None


def _cache() -> Path:
    """The folder of the cache, as ``huggingface_hub`` finds it."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(name):
            return Path(os.environ[name]).expanduser()
    home = os.environ.get("HF_HOME") or f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    return Path(home).expanduser() / "hub"


def _folders(place: Path) -> list[Path]:
    try:
        return sorted(each for each in place.iterdir() if each.is_dir())
    except (OSError, ValueError):
        return []


def _snapshot(folder: Path) -> Snapshot | None:
    """The revision that ``main`` was fetched at; without it, the one that was fetched last."""
    found = [each for each in _folders(folder / "snapshots") if (each / "config.json").is_file()]
    if not found:
        return None
    main = _main(folder)
    chosen = next((each for each in found if each.name == main), None) or max(found, key=_age)
    repository = "/".join(folder.name.split("--")[1:])
    return Snapshot(chosen / "config.json", repository, chosen.name, is_only=len(found) == 1)


def _main(folder: Path) -> str:
    try:
        return read_text(folder / "refs" / "main", REFERENCE).strip()
    except InputError:
        return ""


def _age(folder: Path) -> tuple[float, str]:
    return folder.stat().st_mtime, folder.name
