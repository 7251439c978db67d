"""Settings that every test shares."""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Generator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import settings

# Tests start many processes, and each would compile the project anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# The same examples at every run, so that a failure is the change's own.
# To look for new ones: python -m pytest --hypothesis-profile=thorough
settings.register_profile("repeatable", derandomize=True, max_examples=25, deadline=None, database=None)
settings.register_profile("thorough", max_examples=2000, deadline=None)
settings.load_profile("repeatable")

LONGEST: Final = (
    "tests/calibrate/test_coverage.py", "tests/calibrate/test_defaults.py", "tests/calibrate/test_validate.py",
    "tests/cli/test_reference.py", "tests/web/browser/", "tests/test_pages.py", "tests/cli/calibration/test_runs.py",
    "tests/planner/test_runnable.py",
)  # fmt: skip
"""Files that take a quarter of a minute or more, alone or with those that run after them in the same process: they
start first, so that none is left over at the end."""
PUBLISHED: Final = r"from tests\.calibrate(\.published import| import published)"
MOST_PROCESSES: Final = 8
"""More save little: the longest file then takes most of the time."""


@pytest.hookimpl(tryfirst=True)  # before that of pytest-xdist, which starts the processes
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Runs all tests in a process for each core; tests that are named run in this process, since each new one collects.

    The tests of a file stay in one process, which makes what they share once, and files start in their order:
    ``LONGEST`` first. ``-n 0`` and ``-p no:xdist`` leave one process.
    """
    if not config.pluginmanager.hasplugin("xdist") or hasattr(config, "workerinput"):
        return
    option = config.option
    if config.args_source != config.ArgsSource.TESTPATHS or option.numprocesses is not None or option.tx:
        return
    if option.usepdb or option.collectonly or (os.cpu_count() or 1) == 1:
        return
    option.numprocesses = "logical"
    option.maxprocesses = option.maxprocesses or MOST_PROCESSES
    if option.dist == "no":
        option.dist, option.loadscopereorder = "loadfile", False


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Gives the tests of a file to one process, and those of all files that read predictions of the published runs."""
    if config.option.dist != "loadfile":
        return None
    scheduler: Any = import_module("xdist.scheduler")

    class BySharing(scheduler.LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return "published runs" if _reads_published_runs(config.rootpath / file) else file

    return BySharing(config, log)


@cache
def _reads_published_runs(path: Path) -> bool:
    """Whether a file of tests uses ``tests/calibrate/published.py``: 15 seconds in each process that does."""
    return path.suffix == ".py" and re.search(PUBLISHED, path.read_text(encoding="utf-8")) is not None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the longest files first, and refuses names that differ from process to process."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))
    addresses = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if addresses:
        raise pytest.UsageError(f"names of tests hold the address of an object: {addresses[:3]}")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Modules and tests stay until the end: the garbage collector need not look at them again and again.

    By default it took up to a sixth of a worker's time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 20)


class OnlyWithExamples:
    """Code without examples is not imported to look for some: no test does so, and few files of the source hold one.

    A hook of this file would see the files next to it alone, not those of the source.
    """

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
        found = yield
        return [
            each
            for each in found
            if not isinstance(each, DoctestModule) or ">>>" in file_path.read_text(encoding="utf-8")
        ]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(OnlyWithExamples())
