"""A ``config.json`` that nobody vouches for: what it holds and what it is called, or why it cannot be read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from shardplan.errors import InputError
from shardplan.inputs.readers.hf.fields import shown

MAX_FILE_BYTES: Final = 16_000_000
"""Largest configuration file that is read; real ones stay under 100 kB."""


def config_path(path: str | os.PathLike[str]) -> Path:
    """The configuration at ``path``: the file itself, or ``config.json`` where that is a folder with one."""
    if "\0" in os.fspath(path):
        raise _unreadable(Path(os.fspath(path).replace("\0", "?")), "a path holds no null characters")
    file = Path(path)
    if os.path.isfile(file / "config.json"):  # noqa: PTH113 - Path.is_file raises where this answers False
        return file / "config.json"
    return file


def model_name(file: Path) -> str:
    """Name of the model in ``file``: the file's own, or its folder's where it is just called ``config.json``.

    In the download cache of the Hugging Face hub (``models--ORG--NAME/snapshots/REVISION``) it is NAME.
    """
    if file.stem != "config":
        return _printable(file.stem)
    folder = Path(os.path.abspath(file)).parent  # noqa: PTH100 - Path.resolve would follow the links of the cache
    repository = folder.parent.parent.name
    if folder.parent.name == "snapshots" and repository.startswith("models--"):
        return _printable(repository.rpartition("--")[2])
    return _printable(folder.name or file.stem)


def read_config(file: Path) -> object:
    """What the JSON in ``file`` holds. Raises InputError."""

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        fields: dict[str, object] = {}
        for key, value in pairs:
            if key in fields:
                raise _repeated(file, key)
            fields[key] = value
        return fields

    try:
        return json.loads(_text(file), object_pairs_hook=unique)
    except InputError:
        raise
    except RecursionError as error:
        raise _not_json(file, "it is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise _not_json(file, f"byte {error.start} is not UTF-8 text") from error
    except json.JSONDecodeError as error:
        raise _not_json(file, f"{error.msg} in line {error.lineno}, column {error.colno}") from error
    except ValueError as error:  # a number of thousands of digits
        raise _not_json(file, str(error).partition(";")[0]) from error


def _text(file: Path) -> str:
    try:
        size = file.stat().st_size
        if not file.is_file():
            raise _unreadable(file, "it is a directory without a config.json" if file.is_dir() else "it is no file")
        text = file.read_text(encoding="utf-8-sig") if size <= MAX_FILE_BYTES else ""
    except OSError as error:
        raise _unreadable(file, error.strerror or str(error)) from error
    if size > MAX_FILE_BYTES:
        raise _unreadable(file, f"it has {size:,} bytes, more than the {MAX_FILE_BYTES:,} of any configuration")
    if not text.strip():
        raise _not_json(file, "it is empty")
    return text


def _unreadable(file: Path, why: str) -> InputError:
    return InputError(
        f"cannot read a model from '{_printable(str(file))}': {why}",
        rule="the model file exists and can be read",
        hint="check the path, or give the name of a built-in model; 'shardplan models' lists them",
    )


def _not_json(file: Path, why: str) -> InputError:
    return InputError(
        f"'{_printable(str(file))}' is not JSON: {why}",
        rule="a model file is a JSON object in UTF-8",
        hint="give the config.json that lies beside the weights of a Hugging Face model",
    )


def _repeated(file: Path, key: str) -> InputError:
    return InputError(
        f"'{_printable(str(file))}' gives {shown(key)} twice",
        rule="a model file gives every field once",
        hint=f"remove one of the {shown(key)}",
    )


def _printable(text: str) -> str:
    """``text`` without what a terminal would act on or could not show, and not endless."""
    return "".join(char if char.isprintable() else "?" for char in text[:300])
