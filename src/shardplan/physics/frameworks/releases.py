"""Software has a date: what a framework did before a month, where that differs from what it does today.

A stack file holds today's defaults. ``since`` is the month of the framework's first public version, and ``earlier``
lists changes, the latest first: what held until the month that each names. The behaviour of a month is today's with
every change undone that came after it, the latest first. What a release can run is in its record of capabilities.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from shardplan.base.errors import InputError, UnknownNameError, shown
from shardplan.base.fields import dataclass, replace

if TYPE_CHECKING:
    from shardplan.physics.frameworks.capabilities import Capabilities
    from shardplan.physics.frameworks.stack import Stack

MONTH: Final = re.compile(r"(\d{4})-(0[1-9]|1[0-2])(-\d{2})?")
"""A year and a month; a day behind it is read over."""
PARTS: Final = ("software", "job", "plan")


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """What held until a month."""

    before: str
    """The month of the change, such as ``2025-10``."""
    software: Mapping[str, Any] = field(default_factory=dict)
    job: Mapping[str, Any] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Where each value comes from, by ``software.cuda_graphs`` and the like."""

    @property
    def values(self) -> dict[str, Any]:
        """Every value by ``software.cuda_graphs`` and the like."""
        return {f"{part}.{name}": value for part in PARTS for name, value in getattr(self, part).items()}


def month_of(text: str) -> str | None:
    """The month that a text names (``2024-12``, ``2024-12-18``); None where it names none."""
    found = MONTH.fullmatch(text.strip())
    return None if found is None else f"{found[1]}-{found[2]}"


def at_release(stack: Stack, text: str) -> Stack:
    """``stack`` at a version on record (``0.3`` names 0.3.0) or in a month. Raises ``InputError``."""
    records = [each for each in (stack.can_run, *stack.can_run_before) if each is not None]
    named = next((record for record in records if text and record.at(text)), None)
    if named is not None:
        return _with_record(_in_month(stack, named.date[:7]), named)
    month = month_of(text)
    if month is None:
        raise _unknown(stack, text, [each.version for each in records])
    _check_month(stack, month)
    return replace(in_month(stack, month), as_of=month)


def in_month(stack: Stack, month: str) -> Stack:
    """``stack`` as it was in ``month``, or at its first release where that came later."""
    records = [each for each in (stack.can_run, *stack.can_run_before) if each is not None]
    known = next((each for each in records if each.date[:7] <= month), records[-1] if records else None)
    return _with_record(_in_month(stack, month), known)


def _in_month(stack: Stack, month: str) -> Stack:
    """With the behaviour of that month."""
    for change in stack.earlier:  # the latest first
        if change.before > month:
            stack = undone(stack, change)
    return stack


def undone(stack: Stack, change: Earlier) -> Stack:
    """``stack`` with what held before a change. Raises ``InputError`` where that is no value of a field."""
    parts = {part: {**getattr(stack, part), **getattr(change, part)} for part in PARTS}
    return replace(stack, **parts, sources={**stack.sources, **change.sources})


def _with_record(stack: Stack, record: Capabilities | None) -> Stack:
    if record is None or record is stack.can_run:
        return stack
    others = [each for each in (stack.can_run, *stack.can_run_before) if each is not None and each is not record]
    return replace(stack, can_run=record, can_run_before=tuple(others))


def _unknown(stack: Stack, text: str, known: list[str]) -> UnknownNameError:
    month = f", or a month such as {stack.since}" if stack.since else ""
    hint = f"one of {', '.join(known)}{month}, or no version for the newest" if known else "leave the version out"
    return UnknownNameError(f"version of {stack.name}", text[:60], known, hint=hint)


def _check_month(stack: Stack, month: str) -> None:
    """Raises ``InputError`` where the framework's history is not on record, or begins later."""
    if not stack.since:
        raise InputError(
            f"no history of {stack.name} is on record, so {month} cannot be told from today",
            rule="a month is given for frameworks whose earlier behaviour is on record",
            hint=f"leave it out: --stack {stack.name}, and state what was different (--software NAME=VALUE)",
        )
    if month < stack.since:
        raise InputError(
            f"{month} is before the first release of {stack.name}",
            rule=f"{stack.name} has releases since {stack.since}",
            hint=f"--stack {stack.name}@{stack.since} is the earliest",
        )


def read_history(
    document: Mapping[str, Any],
    label: str,
    sources: dict[str, str],
    defaults: Callable[[object, str, str, dict[str, str]], dict[str, Any]],
) -> dict[str, Any]:
    """``since`` and ``earlier`` of a stack file. Raises ``InputError``.

    ``defaults`` reads the fields of ``software``, ``job`` or ``plan`` and keeps their sources.
    """
    listed = document.get("earlier") or []
    if not isinstance(listed, list):
        raise _bad(label, "earlier", listed, "a list of what held before a month, the latest first")
    earlier = tuple(_earlier(each, label, defaults) for each in listed)
    months = [each.before for each in earlier]
    if months != sorted(set(months), reverse=True):
        raise _bad(label, "earlier", months, "in order: the latest month first, each once")
    since = document.get("since")
    if since is None and not earlier:
        return {}
    is_sourced = isinstance(since, Mapping) and set(since) == {"value", "source"}
    month = month_of(str(since["value"])) if is_sourced and isinstance(since, Mapping) else None
    if month is None or not isinstance(since, Mapping):
        raise _bad(label, "since", since, 'the month of the first release: {value: "2024-04", source: ...}')
    sources["since"] = str(since["source"])
    return {"since": month, "earlier": earlier}


def _earlier(
    raw: object, label: str, defaults: Callable[[object, str, str, dict[str, str]], dict[str, Any]]
) -> Earlier:
    if not isinstance(raw, Mapping) or not {"before"} < set(raw) <= {"before", *PARTS}:
        raise _bad(label, "an entry of earlier", raw, "before (a month), and software, job or plan")
    month = month_of(str(raw["before"]))
    if month is None:
        raise _bad(label, "before", raw["before"], 'a month: "2025-10"')
    sources: dict[str, str] = {}
    parts = {part: defaults(raw.get(part), part, label, sources) for part in PARTS}
    return Earlier(before=month, sources=sources, **parts)


def _bad(label: str, name: str, value: object, what: str) -> InputError:
    return InputError(
        f"{label}: {name} is {shown(str(value))}", rule=f"{name} is {what}", hint=f"correct {name}, or leave it out"
    )
