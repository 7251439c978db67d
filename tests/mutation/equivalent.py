"""Mutants that change no result, each with the reason: no test can catch them."""

from __future__ import annotations

EQUIVALENT: dict[tuple[str, str, str], str] = {}
"""Reason by file and by its lines before and after the change."""
