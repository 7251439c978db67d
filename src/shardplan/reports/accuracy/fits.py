"""Verdicts "fits" of the accuracy report: by family, in-sample and left out, and runs wrongly predicted to fit."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from shardplan.calibration.errors import CLOSE
from shardplan.calibration.validate import Validation
from shardplan.reports.accuracy.causes import cause_of


def fits_record(fresh: Validation, left_out: Validation | None) -> list[dict[str, Any]]:
    """A row for every family with a run that ran out of memory or a wrong verdict, most runs first, and one for all."""
    unseen = left_out.fits_by("family") if left_out else {}
    rows: list[dict[str, Any]] = [
        {"name": name, "in_sample": asdict(found), "left_out": asdict(unseen[name]) if name in unseen else None}
        for name, found in fresh.fits_by("family").items()
        if found.out_of_memory or found.right != 1
    ]
    everything: dict[str, Any] = {
        "name": "all",
        "in_sample": asdict(fresh.fits),
        "left_out": asdict(left_out.fits) if left_out else None,
    }
    return [*sorted(rows, key=lambda row: -row["in_sample"]["n"]), everything]


def false_fits(fresh: Validation) -> list[dict[str, Any]]:
    """Runs that ran out of memory, predicted to leave more than 3 % of it free, those first that leave most."""
    return [
        {
            "id": one.run.id,
            "tier": one.run.tier,
            "needed_memory_bytes": one.needed_memory_bytes,
            "usable_memory_bytes": one.usable_memory_bytes,
            "cause": known.cause if (known := cause_of(one.run.id, "false_fits")) else None,
        }
        for one in fresh.false_fits
        if one.free_share > CLOSE
    ]
