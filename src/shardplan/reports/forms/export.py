"""Launch files as a record."""

from __future__ import annotations

from typing import Final

from shardplan.base.records import Record
from shardplan.launch.export.written import Export

SCHEMA: Final = "shardplan/export/1"


def export_record(export: Export) -> Record:
    """``export`` as a mapping that JSON can hold."""
    return {
        "schema": SCHEMA,
        "framework": export.framework,
        "files": dict(export.files),
        "not_expressed": list(export.not_expressed),
        "placeholders": list(export.placeholders),
        "relies_on": list(export.relies_on),
    }
