"""Folders: nothing is lost, nothing foreign is touched, and two sweeps exclude each other."""

from __future__ import annotations

import errno
import os
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from tests.sweeps.small import SMALL

import shardplan
from shardplan.base.errors import InputError
from shardplan.decide.sweeps import folder, run
from shardplan.decide.sweeps.folder import (
    CHUNKS,
    LOCK,
    MANIFEST,
    RESULTS,
    SCHEMA,
    holder_of,
    locked,
    new_folder,
    open_folder,
)
from shardplan.decide.sweeps.grid import SweepGrid, grid_of
from shardplan.decide.sweeps.rows import FAILED, Row, failed_row, rows_of

pytest.importorskip("polars", reason="comes with the extra 'sweep'")


class Killed(BaseException):
    """The end of a process, as far as one can be played inside another."""


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of two questions, each of which is asked once in all tests."""
    monkeypatch.setattr(run, "CHUNK", 2)
    monkeypatch.setattr(run, "rows_of", lambda grid, numbers: _asked_once(grid, tuple(numbers)))


@cache
def _asked_once(grid: SweepGrid, numbers: tuple[int, ...]) -> list[Row]:
    return rows_of(grid, numbers)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("sweep") / "results"
    frame = shardplan.sweep(SMALL, out=path)
    assert frame["question"].to_list() == list(range(12))
    assert set(frame["outcome"]) == {"fits"} | ({"nothing fits"} & set(frame["outcome"]))
    return (path / RESULTS).read_bytes()


def test_the_table_does_not_depend_on_executor_or_chunks(
    tmp_path: Path, undisturbed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "CHUNK", 5)
    with ThreadPoolExecutor(2) as executor:
        shardplan.sweep(SMALL, out=tmp_path / "a", executor=executor)
    assert (tmp_path / "a" / RESULTS).read_bytes() == undisturbed
    assert {each.name for each in (tmp_path / "a").iterdir()} == {MANIFEST, RESULTS, LOCK}


@pytest.mark.parametrize("moment", range(1, 10))
def test_a_sweep_that_stops_at_any_write_goes_on_to_the_same_table(
    tmp_path: Path, undisturbed: bytes, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    writes, replace, begun = 0, Path.replace, tmp_path / MANIFEST

    def stopping(path: Path, target: Path) -> Path:
        nonlocal writes
        writes += 1
        if writes == moment:
            raise Killed
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", stopping)
    with pytest.raises(Killed):
        shardplan.sweep(SMALL, out=tmp_path)
    monkeypatch.setattr(Path, "replace", replace)
    if begun.exists():
        assert open_folder(tmp_path).num_done == min(2 * (moment - 2), 12)
    shardplan.sweep(SMALL, out=tmp_path, resume=begun.exists())
    assert (tmp_path / RESULTS).read_bytes() == undisturbed
    assert not [*tmp_path.rglob("*.tmp")]


def test_a_full_disk_is_reported_and_what_was_written_is_kept(
    tmp_path: Path, undisturbed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes, fsync = 0, os.fsync

    def full(file: int) -> None:
        nonlocal writes
        writes += 1
        if writes > 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(file)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="the disk is full"):
        shardplan.sweep(SMALL, out=tmp_path)
    monkeypatch.undo()
    assert open_folder(tmp_path).num_done == 4
    shardplan.sweep(SMALL, out=tmp_path, resume=True)
    assert (tmp_path / RESULTS).read_bytes() == undisturbed


def _begun(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The chunks of a sweep whose last write failed, all of them answered."""
    with monkeypatch.context() as patch:
        patch.setattr(folder, "joined", _killed)
        with pytest.raises(Killed):
            shardplan.sweep(SMALL, out=path, resume=(path / MANIFEST).exists())
    return sorted((path / CHUNKS).iterdir())


def _killed(*_: object) -> None:
    raise Killed


def _flipped(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


DAMAGES: Final[dict[str, Any]] = {
    "flipped bit": lambda chunks, rng: _flipped(rng.choice(chunks), rng),
    "copied over another": lambda chunks, rng: shutil.copy(*rng.sample(chunks, 2)),
    "cut": lambda chunks, rng: os.truncate(rng.choice(chunks), rng.randrange(200)),
    "of another sweep": lambda chunks, rng: rng.choice(chunks).write_bytes(rng.choice(OF_ANOTHER)),
}
OF_ANOTHER: Final[list[bytes]] = []


@pytest.mark.parametrize("kind", DAMAGES)
def test_damaged_chunks_are_asked_again(
    tmp_path: Path, undisturbed: bytes, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(folder, "VERSION", "0")
        OF_ANOTHER[:] = [each.read_bytes() for each in _begun(tmp_path / "other", monkeypatch)]
    chunks, rng = _begun(tmp_path / "results", monkeypatch), random.Random(kind)  # noqa: S311  # not a secret
    for _ in range(20):
        DAMAGES[kind](chunks, rng)
        reopened = open_folder(tmp_path / "results")
        reopened.reopen()
        assert len(reopened.missing()) == 1
        _begun(tmp_path / "results", monkeypatch)
    shardplan.sweep(SMALL, out=tmp_path / "results", resume=True)
    assert (tmp_path / "results" / RESULTS).read_bytes() == undisturbed


@pytest.mark.parametrize("name", [RESULTS, MANIFEST])
def test_a_flipped_bit_of_what_a_sweep_ends_with_is_found(tmp_path: Path, name: str) -> None:
    shardplan.sweep(SMALL, out=tmp_path)
    content, rng = (tmp_path / name).read_bytes(), random.Random(0)  # noqa: S311  # not a secret
    for _ in range(50):
        _flipped(tmp_path / name, rng)
        with pytest.raises(InputError):
            shardplan.sweep(SMALL, out=tmp_path, resume=True)
        (tmp_path / name).write_bytes(content)


def test_a_chunk_that_is_damaged_while_the_sweep_runs_ends_it(tmp_path: Path, undisturbed: bytes) -> None:
    def damage(now: run.SweepProgress) -> None:
        if now.num_done == now.num_questions:
            _flipped(tmp_path / CHUNKS / "0000003.chunk", random.Random(0))  # noqa: S311  # not a secret

    with pytest.raises(InputError, match="not as the sweep wrote it"):
        shardplan.sweep(SMALL, out=tmp_path, progress=damage)
    shardplan.sweep(SMALL, out=tmp_path, resume=True)
    assert (tmp_path / RESULTS).read_bytes() == undisturbed


def test_questions_that_failed_are_asked_again(
    tmp_path: Path, undisturbed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the resumed sweep is stopped; no other question is asked."""
    asked: list[int] = []

    def failing(grid: SweepGrid, numbers: list[int]) -> list[Row]:
        asked.extend(numbers)
        rows = _asked_once(grid, tuple(numbers))
        return [row | failed_row(FAILED, "killed") if row["question"] in broken else row for row in rows]

    monkeypatch.setattr(run, "rows_of", failing)
    broken = {2, 5}
    frame = shardplan.sweep(SMALL, out=tmp_path)
    assert set(frame.filter(frame["outcome"] == FAILED)["question"]) == broken
    broken, asked = {5}, []
    frame = shardplan.sweep(SMALL, out=tmp_path, resume=True)
    assert {2, 5} <= {*asked}
    assert len(asked) <= 4
    assert set(frame.filter(frame["outcome"] == FAILED)["question"]) == broken
    broken = set()
    shardplan.sweep(SMALL, out=tmp_path, resume=True)
    assert (tmp_path / RESULTS).read_bytes() == undisturbed
    assert {each.name for each in tmp_path.iterdir()} == {MANIFEST, RESULTS, LOCK}


def test_two_sweeps_on_one_folder_exclude_each_other(tmp_path: Path) -> None:
    with locked(tmp_path):
        assert f"process {os.getpid()} on " in str(holder_of(tmp_path))
        with pytest.raises(InputError, match=rf"another sweep writes into .*process {os.getpid()} on"):
            shardplan.sweep(SMALL, out=tmp_path)
    assert holder_of(tmp_path) is None


def test_the_lock_of_a_process_that_is_gone_stops_nobody_and_that_of_another_host_does(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text(f"process 1 on {os.uname().nodename}\n")
    with locked(tmp_path):
        pass
    (tmp_path / LOCK).write_text("process 1 on another-host\n")
    with pytest.raises(InputError, match="another-host") as error, locked(tmp_path):
        pass
    assert f"delete {LOCK}" in error.value.hint


def test_folders_that_hold_something_else_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(InputError, match="thesis"):
        shardplan.sweep(SMALL, out=tmp_path)
    with pytest.raises(InputError, match="manifest"):
        shardplan.sweep(SMALL, out=tmp_path, resume=True)
    assert [each.name for each in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("text", ["", "[]", "{}", f'{{"schema": "{SCHEMA}"}}', f'{{"schema": "{SCHEMA}", "grid": 3}}'])
def test_foreign_manifests_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(InputError):
        open_folder(tmp_path)


def test_a_sweep_is_resumed_with_its_own_grid_and_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new_folder(tmp_path, grid_of(SMALL), 2)
    with pytest.raises(InputError, match="holds a sweep already"):
        shardplan.sweep(SMALL, out=tmp_path)
    with pytest.raises(InputError, match="another grid"):
        shardplan.sweep(SMALL | {"gpus": 8}, out=tmp_path, resume=True)
    monkeypatch.setattr(folder, "model_named", lambda _: "of another day")
    with pytest.raises(InputError, match="have changed: model llama"):
        shardplan.sweep(SMALL, out=tmp_path, resume=True)


def test_one_way_of_asking_is_given(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as executor, pytest.raises(InputError, match="executor are given"):
        shardplan.sweep(SMALL, out=tmp_path, executor=executor, workers=2)


def test_an_executor_that_ends_is_reported_and_the_rows_are_kept(tmp_path: Path) -> None:
    class Ending(ThreadPoolExecutor):
        num_submitted = 0

        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            self.num_submitted += 1
            return super().submit(fn if self.num_submitted < 4 else lambda *_: 1 / 0, *args, **kwargs)

    with Ending(1) as executor, pytest.raises(InputError, match="ZeroDivisionError"):
        shardplan.sweep(SMALL, out=tmp_path, executor=executor)
    assert 0 < open_folder(tmp_path).num_done < 12
