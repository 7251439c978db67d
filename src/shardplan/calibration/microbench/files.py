"""A measured profile as a file, and the raw timings next to it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from shardplan.calibration.microbench.doubts import busy
from shardplan.calibration.microbench.records import Measurements
from shardplan.errors import InputError
from shardplan.files import read_document
from shardplan.inputs.profile import Constant
from shardplan.inputs.readers.catalog import load_accelerator
from shardplan.outputs.target import PROFILE, TIMINGS, JsonTarget

WIDTH: Final = 120


def write_profile(path: str | os.PathLike[str], constants: Mapping[str, Constant], measurements: Measurements) -> Path:
    """Writes the profile to ``path`` and the timings next to it, and returns where those are. Raises ``InputError``.

    The timings are kept even where they determine no constant; a profile that was there before stays.
    """
    profile, raw = Path(path), measurements_path(path)
    JsonTarget(str(raw), "--out", kind=TIMINGS, is_forced=True).write_text(_measurements_text(measurements))
    if not constants:
        raise InputError(
            f"the timings determine no constant; they are kept in {raw}",
            rule="a profile holds constants",
            hint="let the micro-benchmark run to its end, on a machine that does nothing else",
        )
    JsonTarget(str(profile), "--out", kind=PROFILE, is_forced=True).write_text(profile_text(constants, measurements))
    return raw


def measurements_path(path: str | os.PathLike[str]) -> Path:
    """Where the timings of the profile at ``path`` are: ``my-gpu.measurements.json`` next to ``my-gpu.yaml``."""
    try:
        return Path(path).with_suffix(".measurements.json")
    except ValueError as error:
        raise InputError(
            f"{os.fspath(path)!r:.100} is no path of a file: {error}",
            rule="a profile has a path",
            hint="give my-gpu.yaml",
        ) from error


def read_measurements(path: str | os.PathLike[str]) -> Measurements:
    """The timings that were kept in a file. Raises ``InputError``."""
    return Measurements.from_record(read_document(Path(path)))


def profile_text(constants: Mapping[str, Constant], measurements: Measurements) -> str:
    """The constants in the format of profile files."""
    import yaml

    name = " ".join(measurements.device.name.split())
    lines = [f"# Constants measured on {name}; all others are those of the base profile."]
    if not measurements.is_complete:
        lines.append("# The run was interrupted: later parts are missing.")
    if measurements.accelerator is None:
        lines.append(
            "# The device is not in the catalogue: rates relative to a peak are left out. Name its accelerator."
        )
    disturbed = busy(measurements)
    if disturbed is not None:
        lines.append(f"# {disturbed[0].upper()}{disturbed[1:]}.")
    generation = load_accelerator(measurements.accelerator).generation if measurements.accelerator else "default"
    body: dict[str, Any] = {"generation": generation}
    body |= {name: _entry(constant) for name, constant in constants.items()}
    return "\n".join(lines) + "\n" + yaml.safe_dump(body, sort_keys=False, width=WIDTH, allow_unicode=True)


def _entry(constant: Constant) -> dict[str, Any]:
    entry = {"value": constant.value, "unit": constant.unit, "source": constant.source}
    return entry if constant.sd is None else entry | {"sd": constant.sd}


def _measurements_text(measurements: Measurements) -> str:
    """JSON with one timing in a line."""
    record = measurements.to_record()
    parts = []
    for name, value in record.items():
        if name in ("samples", "skipped"):
            rows = ",\n".join(f"    {json.dumps(row)}" for row in value)
            text = f"[\n{rows}\n  ]" if rows else "[]"
        else:
            text = json.dumps(value)
        parts.append(f"  {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"
