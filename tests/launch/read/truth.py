"""What real bash passes to commands, for scripts of our own: the truth that the evaluator is compared with."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

BASH = shutil.which("bash")

_STUB = r"""
run() { local IFS=' '; printf '%s\0' "run" "$@" >> "$WORDS_OF_RUN"; printf '\1\0' >> "$WORDS_OF_RUN"; }
export LC_ALL=C.UTF-8
"""


def words_of_bash(
    script: str, folder: Path, *, env: Mapping[str, str] | None = None, arguments: Sequence[str] = ()
) -> list[list[str]]:
    """Words of every call of ``run`` in ``script``, as bash passes them."""
    assert BASH is not None
    out = folder / "words"
    out.write_bytes(b"")
    subprocess.run(
        [BASH, "--norc", "--noprofile", "-c", _STUB + script, "script.sh", *arguments],
        cwd=folder,
        env={"PATH": os.defpath, "WORDS_OF_RUN": str(out), **(env or {})},
        check=False,
        capture_output=True,
        timeout=120,
    )
    calls: list[list[str]] = [[]]
    for word in out.read_bytes().decode("utf-8", errors="replace").split("\0")[:-1]:
        if word == "\1":
            calls.append([])
        else:
            calls[-1].append(word)
    return calls[:-1]
