"""YAML, JSON, TOML and INI files as documents."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from shardplan.launch.read.facts import Document, DocumentKind


def read_document(path: Path, kind: DocumentKind | None = None, *, env: Mapping[str, str] | None = None) -> Document:
    """The document in the file at ``path``; ``kind`` goes by the suffix where it is not given. Raises ``InputError``."""
    raise NotImplementedError


def parse_document(text: str, kind: DocumentKind, file: str, *, env: Mapping[str, str] | None = None) -> Document:
    """The document that ``text`` holds; ``file`` names it. Raises ``InputError``."""
    raise NotImplementedError
