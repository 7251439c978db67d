"""Real processes that are killed: workers and drivers. The final table is that of a sweep that nobody disturbed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.sweeps.small import SMALL

import shardplan
from shardplan.decide.sweeps import run
from shardplan.decide.sweeps.folder import RESULTS, new_folder, open_folder
from shardplan.decide.sweeps.grid import grid_of
from shardplan.decide.sweeps.rows import rows_of

pytest.importorskip("polars", reason="comes with the extra 'sweep'")
pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="a system without signals")

DRIVER = "import sys, shardplan; shardplan.sweep(sys.argv[1], out=sys.argv[2], resume=True)"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("sweep") / "results"
    shardplan.sweep(SMALL, out=path)
    return (path / RESULTS).read_bytes()


@pytest.mark.parametrize("moment", [1, 4])
def test_a_driver_that_is_killed_goes_on_to_the_same_table(tmp_path: Path, undisturbed: bytes, moment: int) -> None:
    import json

    grid, out = tmp_path / "grid.json", tmp_path / "results"
    grid.write_text(json.dumps({"grid": SMALL}))
    folder = new_folder(out, grid_of(SMALL), 2)
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(grid), str(out)])
    while folder.num_done < 2 * moment and driver.poll() is None:
        time.sleep(0.001)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    assert open_folder(out).num_done >= 2 * moment
    shardplan.sweep(SMALL, out=out, resume=True)
    assert (out / RESULTS).read_bytes() == undisturbed


def test_a_worker_that_is_killed_is_replaced(
    tmp_path: Path, undisturbed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "CHUNK", 2)
    killed: list[int] = []
    submit = ProcessPoolExecutor.submit

    def killing(self: Any, fn: Any, *args: Any, **kwargs: Any) -> Any:
        future = submit(self, fn, *args, **kwargs)
        if fn is rows_of and not killed:
            assert len(self._processes) == 2  # all have started: none starts while another dies
            killed.append(next(iter(self._processes)))
            os.kill(killed[0], signal.SIGKILL)
        return future

    monkeypatch.setattr(ProcessPoolExecutor, "submit", killing)
    shardplan.sweep(SMALL, out=tmp_path, workers=2)
    assert killed
    assert (tmp_path / RESULTS).read_bytes() == undisturbed
    for process in multiprocessing.active_children():
        process.join(timeout=20)
        assert not process.is_alive()
