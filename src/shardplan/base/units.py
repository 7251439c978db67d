"""Quantities at the edges: text with a unit in, SI floats inside, readable text out.

Inside shardplan every quantity is in SI units (bytes, seconds, FLOP, bytes/s). A bare number takes the usual unit of
its kind; a time has none and must say its unit. Prefixes are decimal (``GB`` is 1e9 bytes), ``Gi`` and the like are
binary. ``B`` is a byte and ``b`` is a bit, so case matters in units of data.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from typing import Final, Literal, NamedTuple

from shardplan.base.errors import UnitError

Kind = Literal["bandwidth", "bytes", "time", "count", "flop rate", "power", "energy", "price", "fraction"]


class _Facts(NamedTuple):
    """Facts about a kind of quantity."""

    name: str
    """Its name with an article, for errors."""
    unit: str | None
    """Unit of a bare number; None if a number must say its unit."""
    examples: str
    largest: float
    """Largest plausible value in SI units."""
    may_be_zero: bool = False


_KINDS: Final[Mapping[Kind, _Facts]] = {
    "bandwidth": _Facts("a bandwidth", "GB/s", "25 (GB/s), 25GB/s, 200Gb/s, 200Gbps, 25GiB/s", 1e18),
    "bytes": _Facts("an amount of data", "GB", "80 (GB), 80GB, 80GiB, 512MB", 1e18),
    "time": _Facts("a time", None, "2us, 1.5ms, 3s, 2h, 5days", 1e12, may_be_zero=True),
    "count": _Facts("a count", "", "16384, 15.6e12, 15.6T, 4M, 100k", 1e18, may_be_zero=True),
    "flop rate": _Facts("a compute rate", "TFLOP/s", "989 (TFLOP/s), 989TFLOP/s, 1.2PFLOP/s", 1e24),
    "power": _Facts("a power", "W", "700 (W), 700W, 0.7kW", 1e9),
    "energy": _Facts("an energy", "kWh", "5000 (kWh), 5000kWh, 5MWh, 0.005GWh", 1e21),
    "price": _Facts("a price per hour", "USD/h", "3.99 (USD/h), 3.99USD/h", 1e9, may_be_zero=True),
    "fraction": _Facts("a fraction", "1", "0.8, 80%", 1.0, may_be_zero=True),
}

_DECIMAL: Final = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_BINARY: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_TIMES: Final = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), Fraction(1)),
    **dict.fromkeys(("ms",), Fraction(1, 10**3)),
    **dict.fromkeys(("us", "\u00b5s", "\u03bcs"), Fraction(1, 10**6)),
    **dict.fromkeys(("ns",), Fraction(1, 10**9)),
    **dict.fromkeys(("min", "minute", "minutes"), Fraction(60)),
    **dict.fromkeys(("h", "hour", "hours"), Fraction(3600)),
    **dict.fromkeys(("d", "day", "days"), Fraction(86400)),
}
_NUMBER: Final = re.compile(
    r"\s*([+-]?(?:\d[\d_]*\.?[\d_]*|\.\d+)(?:[eE][+-]?\d{1,3})?)\s*([a-zA-Z%$\u00b5\u03bc].*?|)\s*",
    re.DOTALL | re.ASCII,
)
_LONGEST_TEXT: Final = 100


def parse_count(value: str | float, *, field: str) -> int:
    """Number of things, such as tokens: ``15.6e12``, ``15.6T``, ``4M``. Raises UnitError."""
    number, unit = _split(value, "count", field)
    count = _in_si(number, unit.removesuffix("tokens").strip(), "count", field, value)
    if count.denominator != 1:
        raise _refusal(value, "count", field, "is not a whole number")
    return int(count)


def parse_whole(text: str, *, is_length: bool = False) -> int:
    """A whole number: ``4096``, ``4,096``, ``4_096``, and for tokens of a sequence ``4k``.

    Lengths are named by powers of two: 8k is 8,192 tokens, 1M is 1,048,576. For other counts 2k is ambiguous, 2,000 or
    2,048. Raises ``ValueError`` with the reason.
    """
    match = _WHOLE.fullmatch(text.strip())
    if match is None:
        raise ValueError("is not a whole number")
    number, suffix = match[1].replace(",", "").replace("_", ""), match[2].lower()
    if not suffix:
        return int(number)
    digits, power = Fraction(number), "kmgt".index(suffix[0]) + 1
    binary, decimal = digits * 1024**power, digits * 1000**power
    if not (is_length or suffix.endswith("i")):
        raise ValueError(f"may be {_exact(decimal)} or {_exact(binary)}: write the digits")
    if binary.denominator != 1:
        raise ValueError("is not a whole number")
    return int(binary)


def _exact(number: Fraction) -> str:
    return f"{int(number):,}" if number.denominator == 1 else f"{float(number):,}"


_WHOLE: Final = re.compile(
    r"(\d{1,18}|\d{1,3}(?:[,_]\d{3}){1,5}|\d{1,6}\.\d{1,6}(?=\s?[kmgt]))\s?([kmgt]i?|)", re.ASCII | re.IGNORECASE
)
"""Digits, with separators of thousands if any, and a suffix."""


def parse_quantity(value: str | float, kind: Kind, *, field: str, is_unit_required: bool = False) -> float:
    """``value`` in SI units of its ``kind``; a bare number takes the default unit. Raises UnitError."""
    number, unit = _split(value, kind, field)
    usual = _KINDS[kind].unit
    if not unit and (is_unit_required or usual is None):
        raise _refusal(value, kind, field, f"has no unit; {_KINDS[kind].name} needs one here", is_unit_required=True)
    return float(_in_si(number, unit or usual or "", kind, field, value))


def to_si(value: float, unit: str, kind: Kind, *, field: str) -> float:
    """``value`` [``unit``] in SI units; the unit must be given, as in data files. Raises UnitError."""
    number, extra = _split(value, kind, field)
    if extra:
        raise _refusal(value, kind, field, "is not a number followed by its unit")
    return float(_in_si(number, unit.strip(), kind, field, f"{value} {unit}"))


def with_unit(text: str, kind: Kind) -> str:
    """A typed quantity with the unit that a bare number takes: ``400`` of a bandwidth is ``400 GB/s``."""
    unit = _KINDS[kind].unit
    return f"{text.strip()} {unit}" if unit and is_bare(text) else text


def is_bare(text: str) -> bool:
    """Whether a text is a number without a unit."""
    match = _NUMBER.fullmatch(text)
    return match is not None and not match[2]


def format_bytes(num_bytes: float, *, unit: str | None = None) -> str:
    """``num_bytes`` [bytes] in decimal units, such as ``85.0 GB``; ``unit`` fixes one (``GB``)."""
    if unit is not None:
        return f"{num_bytes / float(_units('bytes')[unit]):.1f} {unit}"
    return _scaled(num_bytes, "B")


def format_time(time: float) -> str:
    """``time`` [s] as ns, µs, ms, s, min, h or days, to three digits; rounding rests of sums that cancel are 0."""
    size = abs(time)
    if not math.isfinite(time) or size < 1e-15:
        return "0 s" if size < 1e-15 else f"{time:.0f} s"
    for limit, factor, unit in (
        (1e-6, 1e-9, "ns"), (1e-3, 1e-6, "\u00b5s"), (1.0, 1e-3, "ms"), (600.0, 1.0, "s"), (7200.0, 60.0, "min"),
        (172800.0, 3600.0, "h"),
    ):  # fmt: skip
        if size < limit * 0.9995:
            return f"{_three_digits(time / factor)} {unit}"
    return f"{_three_digits(time / 86400.0)} days"


def format_count(count: float) -> str:
    """Number of things: exact up to 99,999 (with separators), then three digits and ``k``, ``M``, ``B`` or ``T``."""
    if not math.isfinite(count) or (abs(count) < 100_000 and float(count).is_integer()):
        return f"{count:,.0f}"
    return short_count(count)


def short_count(count: float) -> str:
    """Number of things with three digits and ``k``, ``M``, ``B`` or ``T``, for columns."""
    for limit, factor, suffix in ((1e3, 1.0, ""), (1e6, 1e3, "k"), (1e9, 1e6, "M"), (1e12, 1e9, "B")):
        if abs(count) < limit * 0.9995:
            return f"{_three_digits(count / factor)}{suffix}"
    return f"{_three_digits(count / 1e12)}T"


def format_rate(rate: float, unit: str = "B") -> str:
    """``rate`` [``unit`` per second]: ``B`` and ``FLOP`` with a prefix (``50.0 GB/s``), others as a count."""
    if unit in ("B", "b", "FLOP"):
        return f"{_scaled(rate, unit)}/s"
    return f"{format_count(round(rate) if math.isfinite(rate) and abs(rate) >= 100 else rate)} {unit}/s"


def _split(value: str | float, kind: Kind, field: str) -> tuple[Fraction, str]:
    """Exact number and unit text of ``value``."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise _refusal(value, kind, field, f"is a {type(value).__name__}")
    text = value if isinstance(value, str) else _number_text(value)
    if not text.strip():
        raise _refusal(value, kind, field, "is empty")
    match = _NUMBER.fullmatch(text) if len(text) <= _LONGEST_TEXT else None
    if match is None or "__" in match[1]:
        raise _refusal(value, kind, field, comma_text(text) or "is not a number with a unit")
    number = Fraction(match[1].replace("_", ""))
    if number < 0:
        raise _refusal(value, kind, field, "is negative")
    return number, match[2]


_COMMA: Final = r"(?as)\s*([+-]?\d{1,18}),(\d{1,18})(?!,)(?:[^\d,].*)?"
_THOUSANDS: Final = r"(?a)\s*[+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?\s*"


def comma_text(text: str) -> str:
    """A hint for a number with a decimal comma, such as ``3,5``; empty for others."""
    found = re.fullmatch(_COMMA, text[:_LONGEST_TEXT])
    if found is None:
        return ""
    with_point = f"has a comma: write {found[1]}.{found[2]} with a point before the decimals"
    return f"{with_point}, or {found[1]}{found[2]}" if len(found[2]) == len("000") else with_point


def without_thousands(text: str) -> str:
    """``text`` without thousands separators; ``3,5`` stays as it is."""
    return text.replace(",", "") if re.fullmatch(_THOUSANDS, text) else text


def _number_text(value: float) -> str:
    return str(value) if isinstance(value, float) or abs(value) < 10**30 else "a number of more than 30 digits"


def _in_si(number: Fraction, unit: str, kind: Kind, field: str, value: object) -> Fraction:
    """``number`` [``unit``] in SI units, if it is plausible for its ``kind``."""
    factor = _units(kind).get(unit)
    if factor is None:
        raise _refusal(value, kind, field, _why_unknown(unit, kind))
    name, _, _, largest, may_be_zero = _KINDS[kind]
    if number == 0 and not may_be_zero:
        raise _refusal(value, kind, field, "is zero")
    if number * factor > largest:
        raise _refusal(value, kind, field, f"is too much for {name} (at most {largest:g} in SI units)")
    return number * factor


def _why_unknown(unit: str, kind: Kind) -> str:
    others = [other for other in _KINDS if other != kind and unit in _units(other)]
    if others:
        return f"has the unit '{unit}' of {_KINDS[others[0]].name}, not of {_KINDS[kind].name}"
    spelt = [known for known in _units(kind) if known and known.lower() == unit.lower()]
    if spelt:
        return f"has the unit '{unit}', which differs in case from {' and '.join(spelt)} (B is a byte, b is a bit)"
    return f"has the unknown unit '{unit}'"


@cache
def _units(kind: Kind) -> Mapping[str, Fraction]:
    """Factor to SI of every spelling of a unit of ``kind``."""
    binary = {**_DECIMAL, **_BINARY}
    spellings: dict[Kind, Mapping[str, Fraction]] = {
        "bytes": _prefixed(binary, ("B", "byte", "bytes")),
        "bandwidth": _prefixed(binary, ("B/s", "byte/s", "bytes/s"))
        | _prefixed(_DECIMAL, ("Bps",))
        | _prefixed(_DECIMAL, ("b/s", "bit/s", "bits/s", "bps"), Fraction(1, 8)),
        "flop rate": _prefixed(_DECIMAL, ("FLOP/s", "FLOPS", "FLOPs/s")),
        "time": _TIMES,
        "count": _prefixed(_DECIMAL, ("",)) | {"B": Fraction(10**9)},
        "power": _prefixed(_DECIMAL, ("W",)),
        "energy": _prefixed(_DECIMAL, ("Wh",), Fraction(3600)) | _prefixed(_DECIMAL, ("J",)),
        "price": dict.fromkeys(("USD/h", "USD/hour", "$/h"), Fraction(1)),
        "fraction": {"1": Fraction(1), "%": Fraction(1, 100)},
    }
    return spellings[kind]


def _prefixed(prefixes: Mapping[str, int], units: tuple[str, ...], size: Fraction = Fraction(1)) -> dict[str, Fraction]:
    return {prefix + unit: factor * size for prefix, factor in prefixes.items() for unit in units}


def _refusal(value: object, kind: Kind, field: str, why: str, *, is_unit_required: bool = False) -> UnitError:
    shown = repr(value) if not isinstance(value, int) or abs(value) < 10**30 else "the value"
    shown = shown if len(shown) <= _LONGEST_TEXT else shown[:_LONGEST_TEXT] + "..."
    examples = _KINDS[kind].examples
    if is_unit_required and " (" in examples:
        examples = examples.split(", ", maxsplit=1)[1]
    return UnitError(
        f"{field}: {shown} {why}",
        rule=f"{_KINDS[kind].name} is a plausible number in a unit that is understood",
        hint=f"write it like one of {examples}",
    )


def _scaled(value: float, unit: str) -> str:
    """``value`` with the decimal prefix that leaves one to three digits before the point."""
    if not math.isfinite(value) or value == 0:
        return f"{value:.0f} {unit}"
    for factor, prefix in ((1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T"), (1e15, "P")):
        if abs(value) < 999.5 * factor:
            return f"{_three_digits(value / factor)} {prefix}{unit}"
    return f"{_three_digits(value / 1e18)} E{unit}"


def _three_digits(value: float) -> str:
    """Three significant digits without an exponent: 4.19, 41.9, 419, 4190."""
    size = abs(value)
    digits = 0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.9995 else 3
    return f"{value:,.{digits}f}"
