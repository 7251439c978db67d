"""What is predicted of the runs that ship: made once for all tests that read it."""

from __future__ import annotations

from functools import cache
from typing import Any

from shardplan.calibrate.errors import read_needs
from shardplan.calibrate.predict import Profiles
from shardplan.calibrate.validate import Validation, validate
from shardplan.inputs.readers.residuals import read_residuals
from shardplan.reports.accuracy.record import accuracy_record


@cache
def validation() -> Validation:
    """Predictions of all runs."""
    return validate()


@cache
def record() -> dict[str, Any]:
    """What the accuracy page and the README show of them."""
    return accuracy_record(validation(), read_residuals(), needs=read_needs())


def validate_once(path: str | None = None, profiles: Profiles | None = None) -> Validation:
    """In place of ``validate``, where a command is run that compares the published runs."""
    return validation() if path is None and profiles is None else validate(path, profiles)
