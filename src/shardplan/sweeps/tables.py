"""Rows as Parquet, by polars: an optional extra, looked for when a sweep begins."""

from __future__ import annotations

import io
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from shardplan.errors import InputError
from shardplan.files import note_read
from shardplan.sweeps.grid import SweepGrid
from shardplan.sweeps.rows import NUMBER, Row, as_columns, schema_of

ROW_GROUP: Final = 65_536
"""Rows of a group in the final table."""
TYPES: Final = {"int": "Int64", "float": "Float64", "bool": "Boolean", "text": "String"}


def polars() -> Any:
    """The library. Raises InputError where it is not installed."""
    try:
        return import_module("polars")
    except ImportError:
        raise InputError(
            "polars is not installed, which writes and reads the tables of a sweep",
            rule="sweeps need the extra 'sweep'",
            hint="pip install 'shardplan[sweep]'",
        ) from None


def frame_of(grid: SweepGrid, rows: Sequence[Row]) -> Any:
    """Rows as a frame."""
    library = polars()
    schema = {name: getattr(library, TYPES[cell]) for name, cell in schema_of(grid).items()}
    return library.DataFrame(as_columns(grid, rows), schema=schema)


def parquet_of(frame: Any) -> bytes:
    """A frame as the content of a Parquet file; equal frames give equal bytes."""
    written = io.BytesIO()
    frame.rechunk().write_parquet(written, compression="zstd", row_group_size=ROW_GROUP)
    return written.getvalue()


def joined(paths: Sequence[Path]) -> Any:
    """The rows of all chunks in the grid's order."""
    library = polars()
    return library.concat([read_frame(path) for path in paths]).sort(NUMBER)


def read_frame(path: Path) -> Any:
    """The frame in a Parquet file. Raises InputError."""
    library = polars()
    try:
        note_read(path)
        return library.read_parquet(path, use_pyarrow=False)
    except FileNotFoundError:
        why = "it does not exist"
    except (OSError, library.exceptions.PolarsError) as error:
        why = str(error).partition("\n")[0][:200]
    raise InputError(
        f"cannot read '{path}': {why}", rule="results are a Parquet file of `shardplan sweep`", hint="correct the path"
    )
