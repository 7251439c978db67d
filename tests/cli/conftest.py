"""What tests of commands share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cli.commands import kept_searches


@pytest.fixture
def kept() -> Iterator[None]:
    """The same question is searched once, for tests of how its answer is shown."""
    with kept_searches():
        yield
