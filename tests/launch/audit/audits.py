"""Audits of training for tests."""

from __future__ import annotations

from typing import Any

import shardplan


def audited(*files: Any, **asked: Any) -> shardplan.AuditAnswer:
    """The audit of a launch file that trains."""
    found = shardplan.audit(*files, **asked)
    assert isinstance(found, shardplan.AuditAnswer)
    return found
