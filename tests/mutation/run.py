"""Which faults in formulas the tests of their folder catch. From the root: python -m tests.mutation.run --json FILE

Each of a random sample of mutants is written into a copy of the project, where the tests of the folder that mirrors the
formula's run until one fails. FILE keeps what was found, so that the same command goes on where it was stopped.
Mutants that equivalent.py lists change no result: they are counted apart, not run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.mutation.equivalent import EQUIVALENT
from tests.mutation.mutants import ROOMS, Mutant, mutants_of

ROOT = Path(__file__).parents[2]
COPIED = ("src", "tests", "docs", "examples", "benchmarks", "pyproject.toml", "README.md")
CAUGHT, SURVIVED, SLOW, SAME = "caught", "survived", "out of time", "equivalent"

AT_ONCE = """
from hypothesis import Phase

settings.register_profile("at once", settings.get_profile("repeatable"), phases=(Phase.explicit, Phase.generate))
settings.load_profile("at once")
"""
"""Settings of the copy's tests: the first example that fails is enough, no simpler one is sought."""

Found = dict[str, dict[str, str]]
"""Name and outcome of every mutant by its key."""


def main() -> int:
    """Runs what is left of the sample; the status is 1 where a mutant survived."""
    flags = _flags().parse_args()
    chosen = sample(ROOT / "src" / "shardplan", flags.rooms, flags.sample, flags.seed)
    found: Found = json.loads(flags.json.read_text(encoding="utf-8")) if flags.json.exists() else {}
    left = [mutant for mutant in chosen if mutant.fault not in EQUIVALENT and _left(found, mutant, again=flags.again)]
    with _copy() as project:
        _check_passing(project, {mirrored(project, mutant.path)[-1] for mutant in left[: flags.most]})
        for mutant in left[: flags.most]:
            outcome, seconds = _outcome(project, mutant, flags.timeout)
            found[mutant.key] = {"mutant": mutant.name, "outcome": outcome}
            flags.json.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            _say(f"{outcome:11} {seconds:5.0f} s  {mutant.name}")
    known = [_known(found, mutant) for mutant in chosen if mutant.fault in EQUIVALENT or mutant.key in found]
    counts = Counter(each["outcome"] for each in known)
    _say(f"\n{len(known)} of {len(chosen)}: " + ", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    stopped, able = counts[CAUGHT] + counts[SLOW], len(known) - counts[SAME]
    _say(f"caught of those that change a result: {stopped / max(able, 1):.1%}")
    for each in known:
        if each["outcome"] == SURVIVED:
            _say(f"  {each['mutant']}")
    return int(counts[SURVIVED] > 0)


def _left(found: Found, mutant: Mutant, *, again: bool) -> bool:
    """Whether a mutant is still to be run; ``again``: also where it survived before."""
    return mutant.key not in found or (again and found[mutant.key]["outcome"] == SURVIVED)


def _known(found: Found, mutant: Mutant) -> dict[str, str]:
    same = {"mutant": mutant.name, "outcome": SAME}
    return same if mutant.fault in EQUIVALENT else found[mutant.key]


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def sample(package: Path, rooms: list[str], size: int, seed: int) -> list[Mutant]:
    """A random sample, in which a change of one formula leaves the mutants of the others as they were."""

    def drawn(mutant: Mutant) -> bytes:
        return hashlib.sha256("\n".join((str(seed), *mutant.fault)).encode()).digest()

    return sorted(mutants_of(package, rooms), key=drawn)[:size]


def mirrored(project: Path, path: str) -> list[str]:
    """Tests of a formula's folder (or of the one around it), those of its own file or folder first."""
    file = (Path("tests") / path).with_suffix("")
    folder = next(each for each in (file, *file.parents) if (project / each).is_dir())
    own = [folder / f"test_{name}.py" for name in reversed(file.relative_to(folder).parts)]
    return [str(each) for each in (*own, folder) if (project / each).exists()]


def _outcome(project: Path, mutant: Mutant, timeout: float) -> tuple[str, float]:
    """What the tests say of a mutant, and how long they took. [s]"""
    file = project / "src" / "shardplan" / mutant.path
    source = file.read_bytes()
    started = time.monotonic()
    file.write_bytes(mutant.applied(source))
    try:
        failed = _tested(project, mirrored(project, mutant.path), timeout).returncode
    except subprocess.TimeoutExpired:
        return SLOW, time.monotonic() - started
    finally:
        file.write_bytes(source)
    return (CAUGHT if failed else SURVIVED), time.monotonic() - started


def _tested(project: Path, tests: list[str], timeout: float | None = None) -> subprocess.CompletedProcess[str]:
    """The tests of a copy in the order given, run until one fails; none is expected to fail there."""
    in_order = "--keep-duplicates"  # else a file whose folder is named as well waits for its turn in the folder
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=short", "-p", "no:cacheprovider", in_order, *tests]
    environment = {**os.environ, "PYTHONPATH": str(project / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, check=False, timeout=timeout
    )


def _check_passing(project: Path, folders: set[str]) -> None:
    """Stops where tests fail without any mutant: they would seem to catch all of them."""
    for folder in sorted(folders):
        done = _tested(project, [folder])
        if done.returncode:
            sys.exit(f"{folder} fails without a mutant:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


@contextmanager
def _copy() -> Iterator[Path]:
    """The project in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, project / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, project / name)
        with (project / "tests" / "conftest.py").open("a", encoding="utf-8") as settings:
            settings.write(AT_ONCE)
        yield project


def _flags() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument(
        "--json", type=Path, required=True, metavar="FILE", help="what was found; read first if it exists"
    )
    flags.add_argument("--seed", type=int, default=1, help="random seed of the sample (default: 1)")
    flags.add_argument("--sample", type=int, default=150, help="mutants in the sample (default: 150)")
    flags.add_argument("--most", type=int, help="mutants to run now (default: all that are left)")
    flags.add_argument("--again", action="store_true", help="also run those that survived before")
    flags.add_argument("--timeout", type=float, default=600, help="seconds for the tests of a mutant (default: 600)")
    flags.add_argument("--rooms", nargs="+", choices=ROOMS, default=list(ROOMS), help="folders (default: all)")
    return flags


if __name__ == "__main__":
    sys.exit(main())
