"""Numbers as people write them on a command line."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from shardplan.errors import InputError, shown
from shardplan.units import comma_text, parse_whole, without_thousands

if TYPE_CHECKING:
    from shardplan.reports.plan_file import Pick


LARGEST: Final = 1e30
MOST_PICK: Final = 1_000_000


def whole(text: str, flag: str, *, least: int = 1, most: int, is_length: bool = False) -> int:
    """The number that ``text`` means; ``is_length``: tokens of a sequence, which may be 8k. Raises InputError."""
    try:
        value, why = parse_whole(text, is_length=is_length), ""
    except ValueError as error:
        value, why = -1, str(error)
    if least <= value <= most:
        return value
    wanted = f"a whole number from {least:,} to {most:,}{', such as 8192 or 8k' if is_length else ''}"
    said = f", which {why}" if why.startswith("may be") else f"; it must be {wanted}"
    raise InputError(f"{flag} is {shown(text)}{said}", rule=f"{flag} is {wanted}", hint=f"set {flag} to {wanted}")


def picked(text: str) -> Pick:
    """The plan of a file that --pick names. Raises InputError."""
    if text.strip() == "recommended":
        return "recommended"
    if not text.strip().isdecimal():
        wanted = "a whole number, or recommended"
        raise InputError(
            f"--pick is {shown(text)}; it must be {wanted}", rule=f"--pick is {wanted}", hint=f"set --pick to {wanted}"
        )
    return whole(text, "--pick", most=MOST_PICK)


def number(text: str, flag: str, *, least: float = 0.0, most: float = LARGEST, may_be_zero: bool = False) -> float:
    """The number above zero that ``text`` means, and at least ``least``: 70, 0.5, 1e28. Raises InputError."""
    try:
        value = float(without_thousands(text.strip())) if text.isascii() else math.nan
    except ValueError:
        value = math.nan
    if (value > 0 or (may_be_zero and value == 0)) and least <= value <= most:
        return value
    wanted = f"a number {f'from {least:g} to' if least or may_be_zero else 'above 0, at most'} {most:g}"
    comma = comma_text(text)
    said = f", which {comma}" if comma else f"; it must be {wanted}"
    raise InputError(f"{flag} is {shown(text)}{said}", rule=f"{flag} is {wanted}", hint=f"set {flag} to {wanted}")
