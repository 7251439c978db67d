"""Records in files: what is written of a dataclass, and what is said of one that is wrong."""

from __future__ import annotations

import json
import math
from dataclasses import field
from typing import Any

import numpy as np
import pytest
from pydantic import ConfigDict, create_model

from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass, in_files
from shardplan.base.records import RecordFormat, field_values, keys, plain, schema_fields
from shardplan.estimation.estimate import Estimate


@dataclass(frozen=True, kw_only=True)
class Leg:
    """A part of a record."""

    length: float = field(metadata=in_files("length_m"))
    stops: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Trip:
    """A record with parts."""

    name: str
    legs: tuple[Leg, ...]
    extra: object = None


FORMAT = RecordFormat("a trip is as the planner writes it", "plan it again")
STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
LEG: Any = create_model("LegRecord", __config__=STRICT, **schema_fields(Leg))
TRIP: Any = create_model("TripRecord", __config__=STRICT, **schema_fields(Trip, legs=(list[LEG], ...)))


def test_fields_stand_under_their_keys_at_every_depth() -> None:
    trip = Trip(name="x", legs=(Leg(length=1.5, stops=("a", "b")),), extra={1: np.arange(2), "far": math.inf})
    record = plain(trip)
    assert list(record) == ["name", "legs", "extra"]
    assert record["legs"] == [{"length_m": 1.5, "stops": ["a", "b"]}]
    assert record["extra"] == {"1": [0, 1], "far": None}
    assert json.loads(json.dumps(record)) == record
    assert type(plain(np.float64(2))) is float


def test_a_record_is_read_by_the_same_keys() -> None:
    leg = Leg(length=2.0, stops=("a",))
    assert Leg(**field_values(Leg, FORMAT.read(LEG, plain(leg), as_json=True))) == leg


def test_quantities_of_an_estimate_carry_their_unit() -> None:
    assert keys(Estimate)["step_time"] == "step_time_s"
    assert len(set(keys(Estimate).values())) == len(keys(Estimate))


@pytest.mark.parametrize(
    ("legs", "message", "hint"),
    [
        (3, "my.json: trip.legs is 3: it must be a list", "correct trip.legs, or plan it again"),
        ([{}], "my.json: trip.legs.0.length_m is missing", "give trip.legs.0.length_m, or"),
        ([{"length_m": "far"}], "length_m is 'far': it must be a number", "correct"),
        ([{"lengthm": 1.0}], r"did you mean length_m\? \(and 1 more\)", "use length_m, or"),
        ([{"length": 1.0}], r"did you mean length_m", "use length_m, or"),
        ([{"length_m": 1.0, "zzz": 1}], "trip.legs.0.zzz is not a field of this format", "one of length_m, stops, or"),
        ([{"length_m": math.nan}], "length_m is nan: it must be a finite number", "correct"),
        ([{"length_m": 10**5000}], "length_m is a number of thousands of digits|cannot be read", "correct"),
    ],
    ids=lambda value: ascii(value)[:30] if isinstance(value, str) else "",
)
def test_what_is_wrong_is_said_with_place_value_and_fix(legs: object, message: str, hint: str) -> None:
    for as_json in (True, False):
        with pytest.raises(InputError, match=message) as refused:
            FORMAT.read(TRIP, {"name": "x", "legs": legs}, label="my.json", root="trip", as_json=as_json)
        assert refused.value.rule == FORMAT.rule
        assert hint in refused.value.hint
