"""A command run on whatever it is given, and what must hold of every outcome."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.cli.commands import run
from tests.workplace import contents

BUDGET: Final = int(os.environ.get("SHARDPLAN_FUZZ", "0"))
"""Inputs of each fuzzer; 0 for the few that every run of the tests tries."""
ACTED_ON: Final = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal acts on."""
LONGEST_MESSAGE: Final = 4000
MOST_SHOWN: Final = 20


def fuzz(few: int, one: Callable[[random.Random], list[str]]) -> None:
    """Runs ``one`` for many seeds; it returns what is wrong. All faults are shown, each with its seed."""
    faults: list[str] = []
    for seed in range(BUDGET or few):
        faults += [f"seed {seed}: {fault}" for fault in one(random.Random(seed))]  # noqa: S311  # the same inputs at every run
        if len(faults) >= MOST_SHOWN:
            break
    assert not faults, "\n".join(faults)


def faults_of(arguments: Sequence[str], folder: Path, *, makes_files: bool = False) -> list[str]:
    """What is wrong with the outcome of a command in ``folder``, whose files it leaves as they were.

    ``makes_files``: whether it may make others there.
    """
    before = contents(folder)
    result = run(*arguments)
    after = contents(folder)
    said = result.stdout + result.stderr
    wrong = []
    if result.exit_code not in (0, 1, 2):
        wrong.append(f"status {result.exit_code}")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        wrong.append(f"raised {result.exception!r:.200}")
    if ACTED_ON.search(said):
        wrong.append("characters that a terminal acts on")
    if len(result.stderr) > LONGEST_MESSAGE:
        wrong.append(f"{len(result.stderr):,} characters of error")
    if (result.exit_code == 2) != result.stderr.startswith("shardplan: "):
        wrong.append("status and standard error differ")
    if "--json=-" in arguments and result.exit_code in (0, 1, 2):
        wrong += _of_json(result.stdout)
    names = before.keys() if makes_files else before.keys() | after.keys()
    changed = {name for name in names if before.get(name) != after.get(name)}
    if changed:
        wrong.append(f"changed {changed}")
    return [f"{', '.join(wrong)}: {list(arguments)!r:.300}: {result.stderr[:300]!r}"] if wrong else []


def _of_json(text: str) -> list[str]:
    try:
        record = json.loads(text, parse_constant=_refused)
    except ValueError as error:
        return [f"no JSON: {error}"]
    return [] if {"schema", "error"} & set(record) else ["JSON without a schema"]


def _refused(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
