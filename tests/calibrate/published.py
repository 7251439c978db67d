"""What is predicted of the runs that ship: made once for all tests that read it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np

from shardplan.calibrate.defaults import Refit, refit, shipped_moves
from shardplan.calibrate.errors import read_needs
from shardplan.calibrate.fit import Evidence, Vector, evidence_of
from shardplan.calibrate.predict import Profiles
from shardplan.calibrate.validate import Validation, validate
from shardplan.inputs.readers.residuals import read_residuals
from shardplan.reports.accuracy.record import Accuracy


@cache
def validation() -> Validation:
    """Predictions of all runs."""
    return validate()


@cache
def accuracy() -> Accuracy:
    """What the accuracy page shows of them."""
    return Accuracy.of(validation(), read_residuals(), needs=read_needs())


def validate_once(path: str | None = None, profiles: Profiles | None = None) -> Validation:
    """In place of ``validate``, where a command is run that compares the published runs."""
    return validation() if path is None and profiles is None else validate(path, profiles)


@cache
def ended_fits() -> tuple[Refit, Refit]:
    """What a fit would do next: each that shipped from where it ended, and from there one without each generation."""
    known: dict[bytes, Vector] = {}

    def evidence(*given: Any) -> Evidence:
        found = evidence_of(*given)

        def residuals(theta: Vector) -> Vector:
            """Those of the same constants are worked out once for both."""
            new = [moves for moves in theta if moves.tobytes() not in known]
            if new:
                known.update(zip([each.tobytes() for each in new], found.residuals(np.stack(new)).T, strict=True))
            return np.stack([known[moves.tobytes()] for moves in theta], axis=1)

        return replace(found, residuals=residuals)

    ends = shipped_moves()
    with patch("shardplan.calibrate.defaults.evidence_of", evidence):
        return (
            refit(start=np.stack([*ends.values()]), iterations=0),
            refit(left_out="generation", start=ends[""], iterations=0),
        )
