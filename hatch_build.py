"""Builds the JSON of the package's YAML files, which is read ten times faster, as a wheel is made or installed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BuildHook(BuildHookInterface[Any]):
    """What hatchling runs for a wheel, an editable install included."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002  # as hatchling calls it
        """Writes the files, and names them: git ignores them, so that hatchling would leave them out."""
        sys.path.insert(0, str(Path(self.root) / "src"))
        from shardplan.base.files import DATA, build

        build()
        build_data["artifacts"].append(f"{DATA.relative_to(self.root).as_posix()}/built/**/*.json")
