"""What the tests of published methods share."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

import pytest
from tests.cli.published import other_packages as others_module

from shardplan.methods import catalogue


@pytest.fixture
def other_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two methods of other packages beside the built-in ones, and one that cannot be loaded."""
    own = list(entry_points(group=catalogue.GROUP))
    others = [
        EntryPoint(name=name, value=value, group=catalogue.GROUP)
        for name, value in (
            ("mine", f"{others_module.__name__}:Mine"),
            ("broken", f"{others_module.__name__}:Broken"),
            ("gone", "no_such_package:Method"),
        )
    ]
    monkeypatch.setattr(catalogue, "entry_points", lambda group: [*own, *others] if group == catalogue.GROUP else [])
