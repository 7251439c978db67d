"""Where the files of the package lie."""

from __future__ import annotations

from pathlib import Path
from typing import Final

DATA: Final = Path(__file__).parent / "data"
"""Accelerators, clusters, models, stacks, profiles and measured runs."""
