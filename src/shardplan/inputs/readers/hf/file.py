"""Reads a ``config.json`` from an untrusted source: its content and name, or why it cannot be read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Final

from shardplan.base.errors import InputError
from shardplan.base.files import FileKind, parse_json, printable, read_text

CONFIG: Final = FileKind(
    "the model",
    16_000_000,
    "a model file is a JSON object in UTF-8 that can be read",
    "give the config.json of a Hugging Face model, or the name of a built-in model; 'shardplan models' lists them",
)
"""Most bytes; real configurations stay under 100 kB."""


def config_path(path: str | os.PathLike[str]) -> Path:
    """The configuration at ``path``: the file itself, or ``config.json`` in that folder."""
    if "\0" in os.fspath(path):
        return Path(path)  # the reader reports what is wrong with it
    file = Path(path)
    if os.path.isfile(file / "config.json"):  # noqa: PTH113 - Path.is_file raises where this answers False
        return file / "config.json"
    return file


def model_name(file: Path) -> str:
    """Name of the model in ``file``: the file's own, or its folder's if it is just called ``config.json``.

    In the download cache of the Hugging Face hub (``models--ORG--NAME/snapshots/REVISION``) it is NAME.
    """
    if file.stem != "config":
        return printable(file.stem)
    folder = Path(os.path.abspath(file)).parent  # noqa: PTH100 - Path.resolve would follow the links of the cache
    repository = folder.parent.parent.name
    if folder.parent.name == "snapshots" and repository.startswith("models--"):
        return printable(repository.rpartition("--")[2])
    return printable(folder.name or file.stem)


def read_config_from(stream: BinaryIO) -> Mapping[str, object]:
    """Content of the JSON on a stream, such as standard input. Raises InputError."""
    label = "the config.json on standard input"
    data = stream.read(CONFIG.most_bytes + 1)
    if len(data) > CONFIG.most_bytes:
        raise InputError(f"{label} has more than {CONFIG.most_bytes:,} bytes", rule=CONFIG.rule, hint=CONFIG.hint)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{label} is not text in UTF-8", rule=CONFIG.rule, hint=CONFIG.hint) from None
    if not text.strip():
        raise InputError(f"{label} is empty", rule=CONFIG.rule, hint=CONFIG.hint)
    found = parse_json(text, label)
    if not isinstance(found, Mapping):
        raise InputError(f"{label} is not a JSON object", rule=CONFIG.rule, hint=CONFIG.hint)
    return found


def read_config(file: Path) -> object:
    """Content of the JSON in ``file``. Raises InputError."""
    text, label = read_text(file, CONFIG), f"'{printable(str(file))}'"
    if not text.strip():
        raise InputError(f"{label} is not JSON: it is empty", rule=CONFIG.rule, hint=CONFIG.hint)
    return parse_json(text, label)
