"""Sweeps on a Dask cluster of real worker processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.sweeps.small import SMALL

import shardplan
from shardplan.base.errors import InputError
from shardplan.decide.sweeps.folder import RESULTS

distributed = pytest.importorskip("distributed", reason="comes with the extra 'cluster'")
pytestmark = pytest.mark.filterwarnings("default")  # what Dask warns of while it ends is not ours


def test_a_cluster_gives_the_same_table_when_a_worker_is_killed(tmp_path: Path) -> None:
    shardplan.sweep(SMALL, out=tmp_path / "here")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    ) as cluster:
        killed: list[int] = []

        def kill_one(_now: object) -> None:
            if not killed:
                (worker,) = cluster.workers.values()
                killed.append(worker.pid)
                worker.process.process._process.kill()

        shardplan.sweep(SMALL, out=tmp_path / "there", scheduler=cluster.scheduler_address, progress=kill_one)
    assert killed
    assert (tmp_path / "there" / RESULTS).read_bytes() == (tmp_path / "here" / RESULTS).read_bytes()


def test_a_scheduler_that_is_not_there_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardplan.decide.sweeps.run.PATIENCE", 0.2)
    with pytest.raises(InputError, match="no Dask scheduler answers at"):
        shardplan.sweep(SMALL, out=tmp_path, scheduler="tcp://127.0.0.1:1")
    assert not [*tmp_path.iterdir()]
