"""Scripts and styles of the pages, all under one path that changes with any of them: scripts import one another."""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "static"


@cache
def static_path() -> str:
    """Path of the folder, ``/static/5744c0cb3956``: a browser may keep what is under it for ever."""
    digest = blake2b(digest_size=6)
    for path in sorted(each for each in FOLDER.rglob("*") if each.is_file()):
        digest.update(path.relative_to(FOLDER).as_posix().encode() + b"\0" + path.read_bytes())
    return f"/static/{digest.hexdigest()}"


def static_url(name: str) -> str:
    """Address of a file of the folder."""
    return f"{static_path()}/{name}"
