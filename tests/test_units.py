"""Quantities with units: what is understood, what is refused, and what is written."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import FunctionType
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardplan.base import units
from shardplan.base.errors import UnitError
from shardplan.base.units import (
    Kind,
    format_bytes,
    format_count,
    format_rate,
    format_time,
    parse_count,
    parse_quantity,
    parse_whole,
    to_si,
)

KINDS: tuple[Kind, ...] = get_args(Kind)
Parser = Callable[..., float]


def parse_flop_rate(value: str, *, field: str) -> float:
    return parse_quantity(value, "flop rate", field=field)


def parse_bandwidth(value: str | float, *, field: str) -> float:
    return parse_quantity(value, "bandwidth", field=field)


def parse_bytes(value: str | float, *, field: str) -> float:
    return parse_quantity(value, "bytes", field=field)


def parse_time(value: str | float, *, field: str) -> float:
    return parse_quantity(value, "time", field=field)


def _shown(value: object) -> str:
    if isinstance(value, int) and value > 1e30:
        return "huge"
    return value.__name__ if isinstance(value, FunctionType) else ascii(value)[:40]


# Prefixes of the SI (k to E: powers of 1000) and of IEC 80000-13 (Ki to Pi: powers of 1024); a byte has 8 bits.
@pytest.mark.parametrize(
    ("parse", "text", "si"),
    [
        (parse_bandwidth, "25", 25e9),
        (parse_bandwidth, 25, 25e9),
        (parse_bandwidth, 6.25, 6.25e9),
        (parse_bandwidth, "25GB/s", 25e9),
        (parse_bandwidth, " 25 GB/s ", 25e9),
        (parse_bandwidth, "200Gb/s", 25e9),
        (parse_bandwidth, "200 Gbit/s", 25e9),
        (parse_bandwidth, "200Gbps", 25e9),
        (parse_bandwidth, "25GBps", 25e9),
        (parse_bandwidth, "0.2Tb/s", 25e9),
        (parse_bandwidth, "25GiB/s", 25 * 2**30),
        (parse_bandwidth, "3.35TB/s", 3.35e12),
        (parse_bytes, "80", 80e9),
        (parse_bytes, "80GB", 80e9),
        (parse_bytes, "80GiB", 80 * 1024**3),
        (parse_bytes, "512 MB", 512e6),
        (parse_time, "5us", 5e-6),
        (parse_time, "5 \u00b5s", 5e-6),
        (parse_time, "936ns", 936e-9),
        (parse_time, "1.5ms", 1.5e-3),
        (parse_time, "90 min", 5400.0),
        (parse_time, "2 days", 172800.0),
        (parse_time, "0s", 0.0),
        (parse_flop_rate, "989", 989e12),
        (parse_flop_rate, "1.2PFLOP/s", 1.2e15),
        (parse_flop_rate, "989 TFLOPS", 989e12),
        (parse_count, "16384", 16384),
        (parse_count, "16_384", 16384),
        (parse_count, "15.6e12", 15_600_000_000_000),
        (parse_count, "15.6T", 15_600_000_000_000),
        (parse_count, "4M", 4_000_000),
        (parse_count, "15.6T tokens", 15_600_000_000_000),
        (parse_count, 2.0, 2),
    ],
    ids=_shown,
)
def test_quantities_are_read(parse: Parser, text: str | float, si: float) -> None:
    assert parse(text, field="x") == si


@pytest.mark.parametrize(
    ("parse", "text", "why"),
    [
        (parse_bandwidth, "25us", "of a time, not of a bandwidth"),
        (parse_bandwidth, "25GB", "of an amount of data, not of a bandwidth"),
        (parse_bandwidth, "25TFLOP/s", "of a compute rate, not of a bandwidth"),
        (parse_bandwidth, "25GiBps", "unknown unit 'GiBps'"),
        (parse_bandwidth, "25gb/s", "differs in case"),
        (parse_bandwidth, "25 G", "of a count"),
        (parse_bandwidth, "25 GB/sec", "unknown unit"),
        (parse_bandwidth, "fast", "is not a number"),
        (parse_bandwidth, "25 GB/s each", "unknown unit"),
        (parse_bandwidth, "1,5GB/s", "write 1.5 with a point"),
        (parse_bandwidth, "\u0665GB/s", "is not a number"),
        (parse_bandwidth, "0", "is zero"),
        (parse_bandwidth, "-0.0", "is zero"),
        (parse_bandwidth, "-25", "is negative"),
        (parse_bandwidth, "nan", "is not a number"),
        (parse_bandwidth, "inf", "is not a number"),
        (parse_bandwidth, math.nan, "is not a number"),
        (parse_bandwidth, math.inf, "is not a number"),
        (parse_bandwidth, "25e9", "is too much"),
        (parse_bandwidth, "1e999", "is too much"),
        (parse_bandwidth, "1e99999", "unknown unit 'e99999'"),
        (parse_bandwidth, 10**5000, "is not a number"),
        (parse_bandwidth, "9" * 5000, "is not a number"),
        (parse_bandwidth, "", "is empty"),
        (parse_bandwidth, " ", "is empty"),
        (parse_bandwidth, True, "is a bool"),
        (parse_bandwidth, None, "is a NoneType"),
        (parse_bandwidth, [25], "is a list"),
        (parse_bytes, "80e9", "is too much"),
        (parse_bytes, "80 Gb", "differs in case"),
        (parse_time, "5", "has no unit"),
        (parse_time, 5, "has no unit"),
        (parse_time, "5 M", "of a count"),
        (parse_flop_rate, "989e12", "is too much"),
        (parse_count, "2.5", "is not a whole number"),
        (parse_count, "16GB", "of an amount of data"),
        (parse_count, "1__0", "is not a number"),
        (parse_count, "0x10", "unknown unit"),
    ],
    ids=_shown,
)
def test_what_is_refused(parse: Callable[..., object], text: object, why: str) -> None:
    with pytest.raises(UnitError) as refused:
        parse(text, field="--the-flag")
    assert "--the-flag: " in refused.value.message
    assert why in refused.value.message
    assert "write it like one of " in refused.value.hint


def test_a_value_next_to_its_unit() -> None:
    assert to_si(450, "GB/s", "bandwidth", field="x") == 450e9
    assert to_si(80, "%", "fraction", field="x") == 0.8
    with pytest.raises(UnitError, match="a number followed by its unit"):
        to_si("450 GB/s", "GB/s", "bandwidth", field="x")  # type: ignore[arg-type]  # what a file may hold
    with pytest.raises(UnitError, match="unknown unit"):
        to_si(450, "furlongs", "bandwidth", field="x")
    with pytest.raises(UnitError, match="needs one here"):
        parse_quantity("450", "bandwidth", field="x", is_unit_required=True)


def test_prefixes_are_exact() -> None:
    """Values that are written in decimal are the nearest floats, whatever the prefix."""
    assert parse_time("5.8us", field="x") == 5.8e-6
    assert parse_bandwidth("0.3125GB/s", field="x") == 312_500_000.0
    assert parse_flop_rate("1.3074 PFLOP/s", field="x") == parse_flop_rate("1307.4", field="x") == 1.3074e15


@given(text=st.one_of(st.text(max_size=30), st.from_regex(r"\A-?\d{1,9}(\.\d+)?(e\d+)? ?[A-Za-z/%$]{0,7}\Z")))
@pytest.mark.parametrize("kind", KINDS)
def test_any_text_is_a_quantity_or_refused(kind: Kind, text: str) -> None:
    try:
        value = parse_quantity(text, kind, field="x")
    except UnitError:
        return
    assert 0 <= value < math.inf


@given(value=st.floats(min_value=1e-3, max_value=1e6))
def test_a_unit_scales_its_number(value: float) -> None:
    assert parse_bandwidth(value, field="x") == pytest.approx(value * 1e9, rel=1e-15)
    assert parse_bandwidth(f"{value!r} Gb/s", field="x") == pytest.approx(value * 1e9 / 8, rel=1e-15)
    assert to_si(value, "TB/s", "bandwidth", field="x") == pytest.approx(value * 1e12, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (format_bytes(85e9), "85.0 GB"),
        (format_bytes(0), "0 B"),
        (format_bytes(999.6e6), "1.00 GB"),
        (format_bytes(2048e9), "2.05 TB"),
        (format_bytes(80 * 2**30, unit="GiB"), "80.0 GiB"),
        (format_bytes(math.inf), "inf B"),
        (format_time(0), "0 s"),
        (format_time(5e-6), "5.00 \u00b5s"),
        (format_time(0.9999), "1.00 s"),
        (format_time(41.94), "41.9 s"),
        (format_time(599.0), "599 s"),
        (format_time(5400.0), "90.0 min"),
        (format_time(7 * 86400.0), "7.00 days"),
        (format_count(1_000), "1,000"),
        (format_count(99_999), "99,999"),
        (format_count(4_194_304), "4.19M"),
        (format_count(70_553_706_496), "70.6B"),
        (format_count(15.6e12), "15.6T"),
        (format_rate(50e9), "50.0 GB/s"),
        (format_rate(989e12, "FLOP"), "989 TFLOP/s"),
        (format_rate(12_345.6, "tokens"), "12,346 tokens/s"),
    ],
)
def test_quantities_are_written(text: str, expected: str) -> None:
    assert text == expected


@given(value=st.floats(min_value=1.0, max_value=1e17))
def test_what_is_written_is_read_again(value: float) -> None:
    """To the three digits that are written."""
    assert parse_bytes(format_bytes(value), field="x") == pytest.approx(value, rel=0.0051)
    assert parse_bandwidth(format_rate(value), field="x") == pytest.approx(value, rel=0.0051)


@pytest.mark.parametrize("left_over", [0.0, 5.4e-27, -5.4e-27])
def test_what_sums_leave_is_no_time(left_over: float) -> None:
    assert format_time(left_over) == "0 s"


@given(value=st.floats(min_value=1e-9, max_value=8e7))
def test_a_time_that_is_written_is_read_again(value: float) -> None:
    assert parse_time(format_time(value), field="x") == pytest.approx(value, rel=0.0051)


def test_every_kind_has_its_examples_and_they_are_understood() -> None:
    for kind in KINDS:
        examples = units._KINDS[kind].examples
        for example in examples.replace(" (", ", ").replace(")", "").split(", "):
            text = example if any(sign.isdigit() for sign in example) else f"1 {example}"
            assert parse_quantity(text, kind, field=kind) > 0


@given(st.integers(0, 10**6))
def test_whole_numbers_as_people_write_them(number: int) -> None:
    """k of tokens is 1,024, as models name their contexts: 128k is 131,072."""
    for text in (str(number), f"{number:,}", f"{number:_}", f" {number} "):
        assert parse_whole(text) == parse_whole(text, is_length=True) == number
    assert parse_whole(f"{number}k", is_length=True) == parse_whole(f"{number} Ki") == 1024 * number
    assert parse_whole(f"{number}M", is_length=True) == 1024**2 * number


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2k", "may be 2,000 or 2,048"), ("1.5M", "may be 1,500,000 or 1,572,864"), ("", "is not a whole number"),
        ("8q", "is not a whole number"), ("-8", "is not a whole number"), ("8.0", "is not a whole number"),
        ("1,2", "is not a whole number"), ("1__0", "is not a whole number"), ("\u0663", "is not a whole number"),
        ("9" * 30, "is not a whole number"), ("0.0001ki", "is not a whole number"),
    ],
)  # fmt: skip
def test_what_is_no_whole_number(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_whole(text)
