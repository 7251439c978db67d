"""The folder of a sweep: a manifest, chunks of rows that are written atomically, and the final table.

Each has a checksum. That of a chunk includes its number and its sweep, so that no other can take its place. One sweep
at a time writes into a folder: it holds a lock that names its process and host.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import platform
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass
from shardplan.base.files import FileKind, bytes_of, read_document, read_text
from shardplan.base.outputs import json_text
from shardplan.base.records import plain
from shardplan.base.version import VERSION
from shardplan.decide.sweeps.grid import SweepGrid, cluster_named, model_named, profile_named
from shardplan.decide.sweeps.rows import FAILED, Row, frame_in, frame_of, joined, parquet_of
from shardplan.inputs.profile import generations, load_profile

SCHEMA: Final = "shardplan/sweep/1"
MANIFEST: Final = "manifest.json"
RESULTS: Final = "results.parquet"
CHUNKS: Final = "chunks"
CHECKSUM: Final = "checksum"
"""Key of the checksum of the rest of the manifest; that of the final table is under the table's name."""
ALL_ANSWERED, SOME_FAILED = b"A", b"F"
"""Kinds of a chunk."""
SEAL_BYTES: Final = 33
"""Size of the kind and the checksum at the start of a chunk."""
MANIFEST_FILE: Final = FileKind(
    "the manifest", 256 * 1024 * 1024, "the folder of a sweep has a manifest", "give the folder of a sweep"
)
Record = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class SweepFolder:
    """A folder with the manifest of a sweep."""

    path: Path
    grid: SweepGrid
    chunk_size: int
    """Questions of a chunk."""
    manifest: Record
    """The manifest with which the sweep began."""

    @property
    def checksum(self) -> str:
        """Checksum of the manifest with which the sweep began."""
        return _digest(self.manifest)

    @property
    def results(self) -> Path:
        """The final table."""
        return self.path / RESULTS

    @property
    def num_chunks(self) -> int:
        """Number of all chunks."""
        return -(-self.grid.num_questions // self.chunk_size)

    def chunk(self, number: int) -> Path:
        """File of a chunk."""
        return self.path / CHUNKS / f"{number:07d}.chunk"

    def missing(self) -> list[int]:
        """Numbers of the missing chunks."""
        return [] if self.results.exists() else [n for n in range(self.num_chunks) if not self.chunk(n).exists()]

    @property
    def num_done(self) -> int:
        """Number of questions with stored rows."""
        missing = self.missing()
        last = self.num_chunks - 1
        lacking = len(missing) * self.chunk_size
        if last in missing:
            lacking -= self.num_chunks * self.chunk_size - self.grid.num_questions
        return self.grid.num_questions - lacking

    def write_chunk(self, number: int, rows: list[Row]) -> None:
        """Stores the rows of a chunk: all of them or none. Raises InputError if they cannot be written."""
        kind = SOME_FAILED if any(row["outcome"] == FAILED for row in rows) else ALL_ANSWERED
        content = parquet_of(frame_of(self.grid, rows))
        write_whole(self.chunk(number), self._seal(number, kind, content) + content)

    def _seal(self, number: int, kind: bytes, content: bytes) -> bytes:
        """The first bytes of a chunk: its kind, and a checksum of its number, sweep and content."""
        return kind + hashlib.sha256(f"{self.checksum} {number} ".encode() + kind + content).digest()

    def _kept(self, number: int) -> tuple[bytes, bytes]:
        """Kind and content of a chunk; an empty kind if it is damaged."""
        whole = bytes_of(self.chunk(number))
        kind, content = whole[:1], whole[SEAL_BYTES:]
        return (kind, content) if whole[:SEAL_BYTES] == self._seal(number, kind, content) else (b"", b"")

    def reopen(self) -> None:
        """Removes damaged chunks, and those with failed rows, to be computed again. Raises InputError."""
        if self.results.exists() and not (self.table()["outcome"] == FAILED).any():
            shutil.rmtree(self.path / CHUNKS, ignore_errors=True)
            return
        _make(self.path / CHUNKS)
        for number in range(self.num_chunks):
            if self.chunk(number).exists() and self._kept(number)[0] != ALL_ANSWERED:
                self.chunk(number).unlink()
        self.results.unlink(missing_ok=True)

    def finish(self) -> None:
        """Joins the chunks into the final table; they stay if some rows failed. Raises InputError."""
        kept = [self._kept(number) for number in range(self.num_chunks)]
        if not all(kind for kind, _ in kept):
            raise self._damaged("a chunk", "its questions are asked again with --resume")
        content = parquet_of(joined([content for _, content in kept]))
        _write_manifest(self, hashlib.sha256(content).hexdigest())
        write_whole(self.results, content)
        if all(kind == ALL_ANSWERED for kind, _ in kept):
            shutil.rmtree(self.path / CHUNKS, ignore_errors=True)

    def table(self) -> Any:
        """The final table. Raises InputError."""
        content = bytes_of(self.results)
        if hashlib.sha256(content).hexdigest() != read_document(self.path / MANIFEST, MANIFEST_FILE).get(RESULTS):
            raise self._damaged(RESULTS, "restore it, or delete it and have its questions asked again with --resume")
        return frame_in(content)

    def _damaged(self, what: str, hint: str) -> InputError:
        return InputError(
            f"{what} in '{self.path}' is not as the sweep wrote it",
            rule="the files of a sweep have their checksums",
            hint=hint,
        )


def new_folder(path: Path, grid: SweepGrid, chunk_size: int) -> SweepFolder:
    """A folder for a new sweep, which must be empty or not exist yet. Raises InputError."""
    check_free(path)
    record = {"schema": SCHEMA, "num_questions": grid.num_questions, "chunk_size": chunk_size, "grid": grid.record()}
    record |= {"versions": versions(), "inputs": inputs_of(grid)}
    folder = SweepFolder(path=path, grid=grid, chunk_size=chunk_size, manifest=record)
    _write_manifest(folder)
    _make(path / CHUNKS)
    return folder


def _write_manifest(folder: SweepFolder, of_results: str | None = None) -> None:
    """Writes the manifest; ``of_results`` is the checksum of the final table."""
    record = {**folder.manifest, CHECKSUM: folder.checksum} | ({RESULTS: of_results} if of_results else {})
    write_whole(folder.path / MANIFEST, (json_text(record) + "\n").encode())


def check_free(path: Path) -> None:
    """Makes the folder; refuses one that is not empty. Raises InputError."""
    _make(path)
    names = {each.name for each in path.iterdir()} - {"sweep.lock"}
    if MANIFEST in names:
        raise InputError(
            f"'{path}' holds a sweep already",
            rule="a new sweep has a folder of its own",
            hint="add --resume to go on with that sweep, or give --out another folder",
        )
    if any(not name.endswith(TEMPORARY) for name in names):
        raise InputError(
            f"'{path}' is not empty and holds no sweep: {', '.join(sorted(names)[:3])}",
            rule="a new sweep has a folder of its own",
            hint="give --out an empty or a new folder",
        )


def open_folder(path: Path, grid: SweepGrid | None = None) -> SweepFolder:
    """The folder of an earlier sweep; ``grid`` is the grid that it must have. Raises InputError."""
    record = read_document(path / MANIFEST, MANIFEST_FILE)
    if record.get("schema") != SCHEMA:
        raise _foreign(path, "its manifest is not one of a sweep")
    try:
        folder = SweepFolder(
            path=path,
            grid=SweepGrid.from_record(record["grid"]),
            chunk_size=int(record["chunk_size"]),
            manifest={name: value for name, value in record.items() if name not in (CHECKSUM, RESULTS)},
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _foreign(path, f"its manifest cannot be read: {error}") from None
    if folder.checksum != record.get(CHECKSUM):
        raise _foreign(path, "its manifest is not as the sweep wrote it")
    if grid is not None and json.loads(json.dumps(grid.record())) != record["grid"]:
        raise InputError(
            f"'{path}' holds the sweep of another grid",
            rule="a sweep is resumed with its own grid",
            hint="leave the grid out, or give --out another folder",
        )
    return folder


def check_inputs(folder: SweepFolder) -> None:
    """Refuses to continue if the inputs or shardplan have changed: rows would be inconsistent. Raises InputError."""
    now = {"shardplan": VERSION} | inputs_of(folder.grid)
    then = {"shardplan": folder.manifest["versions"]["shardplan"]} | dict(folder.manifest["inputs"])
    changed = sorted(name for name in now if now[name] != then.get(name))
    if changed:
        raise InputError(
            f"since the sweep in '{folder.path}' began, these have changed: {', '.join(changed[:5])}",
            rule="all rows of a sweep have the same inputs",
            hint="restore them, or begin again in another folder",
        )
    for left in (*folder.path.glob(f"*{TEMPORARY}"), *folder.path.glob(f"{CHUNKS}/*{TEMPORARY}")):
        left.unlink(missing_ok=True)


def versions() -> dict[str, str]:
    """Versions that the rows depend on."""
    return {"shardplan": VERSION, "python": platform.python_version()} | {
        name: metadata.version(name) for name in ("numpy", "polars")
    }


def inputs_of(grid: SweepGrid) -> dict[str, str]:
    """A checksum of every model, cluster and profile that the grid names."""
    readers: dict[str, Callable[[str], object]] = {
        "model": model_named,
        "cluster": lambda name: cluster_named(name, None),
        "profile": profile_named,
    }
    found = {
        f"{field} {name}": _digest(read(name))
        for field, read in readers.items()
        for axis in grid.axes
        if field in axis.fields
        for name in dict.fromkeys(values[axis.fields.index(field)] for values in axis.values)
        if name
    }
    return found | {f"profile {name}": _digest(load_profile(name)) for name in ("default", *generations())}


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(plain(value), sort_keys=True).encode()).hexdigest()


TEMPORARY: Final = ".tmp"


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file atomically, so that it is complete or missing even after a crash. Raises InputError."""
    beside = path.with_name(f".{path.name}{TEMPORARY}")
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise _unwritable(path, error) from None


def _make(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: Exception) -> InputError:
    is_full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    why = "the disk is full" if is_full else getattr(error, "strerror", None) or str(error)
    kept = "all rows that were written are kept; free space and go on with --resume"
    return InputError(
        f"cannot write '{path}': {why}",
        rule="the folder of --out can be written",
        hint=kept if is_full else "give --out a folder that can be written",
    )


def _foreign(path: Path, why: str) -> InputError:
    return InputError(
        f"'{path}' is not the folder of a sweep: {why}",
        rule="a sweep is resumed in its own folder",
        hint="correct --out",
    )


LOCK: Final = "sweep.lock"
LOCK_FILE: Final = FileKind("the lock", 4096, "a lock names a process and a host")


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds the folder's lock. Raises InputError if another sweep holds it.

    The operating system frees the lock of a killed process, so its lock file does not stop the next sweep on the same
    host. A lock file of another host does: whether that sweep still runs cannot be seen here.
    """
    path, me = folder / LOCK, f"process {os.getpid()} on {socket.gethostname()}"
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        holder = _holder(path)
        if not _taken(file) or not _is_here(holder):
            raise InputError(
                f"another sweep writes into '{folder}': {holder or 'a process that has not said which'}",
                rule="one sweep at a time writes into a folder",
                hint=f"wait for it, or give --out another folder; if that process has ended, delete {LOCK} there",
            )
        os.ftruncate(file, 0)
        os.write(file, f"{me}\n".encode())
        try:
            yield
        finally:
            os.ftruncate(file, 0)  # the file stays: if it were removed, two processes could lock it
    finally:
        os.close(file)


def holder_of(folder: Path) -> str | None:
    """The process that writes into the folder now; None if there is none."""
    path = folder / LOCK
    if not path.exists():
        return None
    with path.open("r+b") as file:
        holder = _holder(path)
        return None if _is_here(holder) and _taken(file.fileno()) else holder


def _taken(file: int) -> bool:
    """Takes the lock of an open file; False if another process has it."""
    try:
        import fcntl
    except ImportError:  # Windows has no such locks: there the file alone is the lock
        return os.fstat(file).st_size == 0
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _holder(path: Path) -> str:
    try:
        return read_text(path, LOCK_FILE).strip()
    except InputError:
        return ""


def _is_here(holder: str) -> bool:
    """Whether the holder, if there is one, is a process of this host."""
    return not holder or holder.endswith(f" on {socket.gethostname()}")
