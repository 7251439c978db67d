"""Models in the local download cache of the Hugging Face hub, and fetching the ``config.json`` of others into it.

Only :func:`fetch` uses the network; the command line and Python call it, ``shardplan serve`` never does.
A repository ``org/name`` is the folder ``models--org--name``: ``refs/main`` holds the revision that was fetched last,
``snapshots/REVISION/config.json`` its file.
"""

from __future__ import annotations

import os
import re
import sys
from concurrent.futures import Future
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Final, NamedTuple

from shardplan.base.errors import InputError, shortened
from shardplan.base.files import FileKind, read_text

REPOSITORY: Final = re.compile(r"(?:[\w.-]+/)?[\w.-]+", re.ASCII)
LONGEST: Final = 200
REFERENCE: Final = FileKind("the reference", 1000, "a reference holds a revision")
SHORT: Final = 12
"""Characters of a revision in messages."""


class Snapshot(NamedTuple):
    """The configuration of a repository in the cache."""

    config: Path
    repository: str
    revision: str
    is_only: bool
    """Whether the cache holds no other revision."""

    @property
    def said(self) -> str:
        """The source of the model, as text."""
        which = "" if self.is_only else ", of several in the cache"
        return f"{self.repository} is read from the hub cache, revision {self.revision[:SHORT]}{which}"


def cached_model(repository: str) -> Snapshot | None:
    """The newest fetched configuration of a repository; None if the cache has none."""
    if not REPOSITORY.fullmatch(repository) or len(repository) > LONGEST:
        return None
    wanted = f"models--{repository.replace('/', '--')}".lower()
    for folder in _folders(_cache()):
        if folder.name.lower() == wanted:
            return _snapshot(folder)
    return None


class NotFetchedError(InputError):
    """A repository that is not in the cache."""

    def __init__(self, repository: str, why: str = "not a repository in the local hub cache") -> None:
        """``why``: the result of the last attempt."""
        super().__init__(
            f"model {repository!r} is not built in, not a path, and {why}",
            rule="the model is built in or a file",
            hint=f"fetch its config.json (`hf download {repository} config.json`) and ask again, or see "
            "`shardplan models`",
        )
        self.repository = repository


def fetch(repository: str) -> None:
    """Fetches the ``config.json`` of a repository into the cache, and says so on standard error.

    It needs ``huggingface_hub`` and takes at most ``MOST_TIME``. Raises NotFetchedError with the reason.
    """
    if find_spec("huggingface_hub") is None:
        raise NotFetchedError(repository, "huggingface_hub is not installed, which would fetch it from the hub")
    sys.stderr.write(
        f"Fetching config.json of {repository} from the Hugging Face hub, for {MOST_TIME:.0f} s at most.\n"
    )
    done: Future[object] = Future()
    Thread(target=_download, args=(repository, done), daemon=True).start()
    try:
        done.result(timeout=MOST_TIME)
    except TimeoutError:
        raise NotFetchedError(repository, f"the hub sent nothing in {MOST_TIME:.0f} s") from None
    except FAILURES as error:
        why = str(error).strip().partition("\n")[0] or type(error).__name__
        raise NotFetchedError(repository, f"could not be fetched from the hub: {shortened(why, MOST_WHY)}") from None


def _download(repository: str, done: Future[object]) -> None:
    try:
        hub = import_module("huggingface_hub")
        done.set_result(hub.hf_hub_download(repository, "config.json", etag_timeout=MOST_TIME))
    except FAILURES as error:
        done.set_exception(error)


MOST_TIME: Final = 5.0
"""[s]"""
MOST_WHY: Final = 200
FAILURES: Final = (OSError, ValueError, RuntimeError, ImportError, AttributeError, TypeError)
"""Errors of ``hf_hub_download``: those of the network and of HTTP are ``OSError``, wrong names ``ValueError``."""


def _cache() -> Path:
    """The folder of the cache, found as ``huggingface_hub`` does."""
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
    """The revision of ``main`` when it was fetched; without it, the one that was fetched last."""
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
