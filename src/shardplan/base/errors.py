"""Errors that a user can cause, each naming the rule, the values and the setting to change.

    ShardplanError (ValueError)
    |-- InputError          a file, flag or field is wrong
    |   |-- UnknownNameError    a name that no catalogue has, with the nearest ones
    |   `-- UnitError           a value whose unit is missing where needed, unknown or of another kind
    `-- PlanError           a plan that breaks a rule of validity

Internal invariants use ``assert``; anything else that escapes is a defect of shardplan.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Final


class ShardplanError(ValueError):
    """A question that cannot be answered."""

    def __init__(self, message: str, *, rule: str, hint: str = "") -> None:
        """``rule`` is the short name of the broken rule, ``message`` includes the values, ``hint`` says what to change.

        All name flags of the command line; a traceback shows arguments of Python instead.
        """
        message = bounded(message)
        super().__init__(in_python(message))
        self.message = message
        self.rule = bounded(rule)
        self.hint = bounded(hint)
        if hint:
            self.add_note(f"hint: {in_python(self.hint)}")

    def to_record(self) -> dict[str, dict[str, str]]:
        """The error object that a command writes to standard output with ``--json -``."""
        return {"error": {"rule": self.rule, "message": self.message, "hint": self.hint}}

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.rule, self.hint)


class InputError(ShardplanError):
    """A file, flag or field is wrong."""


class NotRunnableError(InputError):
    """A request that the meant training framework never runs."""


class UnitError(InputError):
    """A value whose unit is unknown, missing where needed, or of another kind."""


class PlanError(ShardplanError):
    """A plan that breaks a rule of validity."""


class UnknownNameError(InputError):
    """A name that no catalogue has."""

    def __init__(self, kind: str, name: str, known: Iterable[str], *, hint: str = "") -> None:
        name = str(name)  # Python callers may pass other types
        nearest = nearest_names(name[:MOST_NAME], known)
        guess = f"did you mean {' or '.join(nearest)}?" if nearest else ""
        super().__init__(
            f"unknown {kind} '{shortened(name, MOST_NAME)}'" + (f": {guess}" if guess else ""),
            rule=f"{kind} is known",
            hint=" ".join(part for part in (guess, hint) if part),
        )


def check_kind(name: str, value: object, *kinds: type, hint: str) -> None:
    """Refuses an argument of another type than one of ``kinds``, by its name. Raises ``InputError``."""
    if not isinstance(value, kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise InputError(
            f"{name} is {shown(value)}; it must be of type {wanted}", rule=f"{name} is a {wanted}", hint=hint
        )


FLAG: Final = r"(?<!\w)--(no-)?([a-z](?:[a-z-]*[a-z])?)(?: ([\w.]+)=(\w+(?:(?:\.\.|[.,+])\w+)*)| (\d+)(?!\S))?"
"""A flag, followed by NAME=VALUE or a number, if there is one."""
ARGUMENTS: Final = {"gpus": "num_accelerators"}
"""Arguments with another name than their flag."""


def in_python(text: str) -> str:
    """Text with flags as arguments of Python: ``fix={"tp": 4}`` for ``--fix tp=4``. Commands in backticks stay."""
    pieces = text.split("`")
    return "`".join(piece if place % 2 else re.sub(FLAG, _argument, piece) for place, piece in enumerate(pieces))


def _argument(flag: re.Match[str]) -> str:
    """The argument for a flag."""
    negated, name, field, value, number = flag.groups()
    name = ARGUMENTS.get(name, name.replace("-", "_"))
    if negated:
        return f"{name}=False"
    if field is None:
        return name if number is None else f"{name}={number}"
    values = [value] if name == "fix" else value.split(",")
    texts = [each if each.isdecimal() or each.isupper() else f'"{each}"' for each in values]
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return f'{name}={{"{field}": {listed}}}'


MOST_SHOWN = 60
"""Most characters of a wrong value in an error."""
MOST_NAME = 100
"""Most characters of an unknown name."""
MOST_TEXT = 1500
"""Most characters of a whole message, rule or hint."""
ELLIPSIS = "..."


def shown(value: object) -> str:
    """A wrong value as an error prints it: always short."""
    try:
        text = repr(value)
    except ValueError:  # Python does not print numbers of more than 4,300 digits
        return "a number of thousands of digits"
    except RecursionError:
        return f"a {type(value).__name__} nested too deep to print"
    return shortened(text, MOST_SHOWN)


def shortened(text: str, most: int) -> str:
    """``text``, cut off after ``most`` characters."""
    return text if len(text) <= most else f"{text[:most]}{ELLIPSIS}"


def visible(text: str) -> str:
    """``text`` with question marks for control characters and others that a terminal cannot show.

    Line ends stay.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else " " if char.isspace() else "?" for char in text)


def bounded(text: str) -> str:
    """``text`` in the form that an error holds: one line of limited length, of printable characters."""
    return visible(shortened(text, MOST_TEXT).replace("\n", " "))


def nearest_names(name: str, known: Iterable[str], *, most: int = 3) -> list[str]:
    """Known names spelt most like ``name``, best first: those that differ by one letter at the end before others."""
    folded = {candidate.lower(): candidate for candidate in known}
    wanted = name.lower()
    alike = difflib.get_close_matches(wanted, folded, n=most, cutoff=0.6)
    longer = [each for each in folded if each[:-1] == wanted or wanted[:-1] == each]
    return [folded[match] for match in dict.fromkeys((*longer, *alike))][:most]


def _rebuild(kind: type[ShardplanError], message: str, rule: str, hint: str) -> ShardplanError:
    error = kind.__new__(kind)
    ShardplanError.__init__(error, message, rule=rule, hint=hint)
    return error


def is_from_interrupt(error: BaseException | None) -> bool:
    """Whether Ctrl-C caused an error: Python raises others instead while classes and modules are made."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None
