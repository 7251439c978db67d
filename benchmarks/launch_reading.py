"""How much of real launch files is decidable by reading alone, per construct: files read, words known, what is needed.

    python benchmarks/launch_reading.py FOLDER [--list]

FOLDER holds launch scripts and configurations, in any folders below it. The files are not part of the project; which
public ones were used is in the documentation of what is read.
"""

from __future__ import annotations

import argparse
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from shardplan.base.errors import InputError
from shardplan.launch.read import Command, Script, read_document, read_script

LAUNCHERS: Final = re.compile(
    r"(?:^|/)(?:torchrun|deepspeed|accelerate|srun|mpirun|python3?|bash|sbatch|composer|tune|run_cmd|flagscale|megatron|swift)$"
)
CONSTRUCTS: Final = {
    "option strings": r"^\s*\w+=\"[^\"]*--",
    "arrays": r"\w+\+?=\(",
    "arithmetic": r"\$\(\(",
    "defaults": r"\$\{\w+:?[-=]",
    "command substitution": r"\$\([^(]|`",
    "if": r"\bif\b",
    "case": r"\bcase\b",
    "loops": r"^\s*(?:for|while)\b",
    "functions": r"^\s*(?:function\s+)?\w+\s*\(\)",
    "here-documents": r"<<-?\s*['\"]?\w",
    "source": r"^\s*(?:source|\.)\s",
    "arguments": r"\$\{?[1-9@*#]",
    "#SBATCH": r"^#SBATCH",
    "eval": r"\beval\b",
}


class Row(NamedTuple):
    """One file."""

    path: str
    outcome: str
    """``decided``: every word of the longest launch line is known; ``asks``: some need what is named; or the error."""
    num_words: int
    num_known: int
    needs: tuple[str, ...]
    seconds: float
    constructs: tuple[str, ...]


def rows(folder: Path) -> Iterator[Row]:
    """Reads every file in ``folder``."""
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        text = path.read_text(encoding="utf-8", errors="replace")
        is_script = path.suffix == ".sh" or text.startswith("#!")
        start = time.perf_counter()
        try:
            num_words, num_known, needs = _of_script(read_script(path)) if is_script else _of_document(path)
            outcome = "decided" if num_known == num_words else "asks"
        except InputError as error:
            num_words, num_known, needs, outcome = 0, 0, (), f"refused: {error.message[:90]}"
        found = tuple(
            name for name, pattern in CONSTRUCTS.items() if is_script and re.search(pattern, text, re.MULTILINE)
        )
        name = str(path.relative_to(folder))
        yield Row(name, outcome, num_words, num_known, needs, time.perf_counter() - start, found or (path.suffix,))


def _of_script(script: Script) -> tuple[int, int, tuple[str, ...]]:
    launch = max(_launches(script), key=lambda command: len(command.words), default=None)
    if launch is None:
        return 0, 0, ()
    needs = dict.fromkeys(need for word in launch.words for need in word.needs)
    return len(launch.words), sum(word.text is not None for word in launch.words), tuple(needs)


def _launches(script: Script) -> Iterator[Command]:
    for command in script.commands:
        if any(LAUNCHERS.search(word.text or "") for word in command.words[:6]):
            yield command


def _of_document(path: Path) -> tuple[int, int, tuple[str, ...]]:
    document = read_document(path)
    needs = dict.fromkeys(need for value in document.values.values() for need in value.needs)
    return len(document.values), sum(not value.needs for value in document.values.values()), tuple(needs)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--list", action="store_true", help="one line per file")
    arguments = parser.parse_args()
    found = list(rows(arguments.folder))
    if arguments.list:
        for row in found:
            print(
                f"{row.path[-70:]:70} {row.num_known:4} of {row.num_words:4}",
                f"{row.seconds:6.3f} s {row.outcome} {row.needs[:6]}",
            )
    print(f"{'construct':24} {'files':>6} {'decided':>8} {'values known':>14}")
    for name in dict.fromkeys(each for row in found for each in ("all", *row.constructs)):
        chosen = [row for row in found if name == "all" or name in row.constructs]
        words, known = sum(row.num_words for row in chosen), sum(row.num_known for row in chosen)
        decided = sum(row.outcome == "decided" for row in chosen)
        print(f"{name:24} {len(chosen):6} {decided:8} {known:7,} of {words:,}")
    kinds = Counter(need.partition(":")[0] for row in found for need in row.needs)
    print("needs:", dict(kinds), "slowest:", f"{max((row.seconds for row in found), default=0):.3f} s")


if __name__ == "__main__":
    main()
