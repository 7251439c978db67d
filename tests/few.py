"""How many examples a property test looks at where each is a search, or several."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

USUAL = 25
"""Examples of a test that says nothing, in the profile of every day."""


def few(number: int, **more: Any) -> settings:
    """``number`` examples every day, and in proportion more in other profiles: ``--hypothesis-profile=thorough``."""
    return settings(max_examples=max(number * settings().max_examples // USUAL, 1), **more)
