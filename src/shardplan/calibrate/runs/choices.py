"""The choices of the columns, the stack and the options of a measured run, and which option made each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, Literal, TypeVar

from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass
from shardplan.base.words import folded, guess, one_of
from shardplan.calibrate.runs.rows import MeasuredRun
from shardplan.inputs.cluster import LinkType

Part = Literal["software", "job", "plan"]
T = TypeVar("T")
MOST_SHOWN: Final = 80
"""Most characters of a value that are printed."""


@dataclass(kw_only=True)
class Choices:
    """Fields chosen so far, and notes about them."""

    run: MeasuredRun
    software: dict[str, Any] = field(default_factory=dict)
    job: dict[str, Any] = field(default_factory=dict)
    plan: dict[str, Any] = field(default_factory=dict)
    network: LinkType | None = None
    """Kind of the links between scale-up domains, if stated."""
    metered_rank: int | None = None
    """Pipeline rank whose memory was measured (-1: the last), if stated."""
    assumed: list[str] = field(default_factory=list)
    """Assumptions as text."""
    taken: list[str] = field(default_factory=list)
    """Assumptions about names and words of the row that were understood as others."""
    ignored: list[str] = field(default_factory=list)
    """Stated values without a place in the estimate."""
    unknown: list[str] = field(default_factory=list)
    """Ignored values that shardplan does not know."""
    unclear: set[str] = field(default_factory=set)
    """Options whose value is not understood."""
    stated: dict[tuple[Part, str], tuple[str, object]] = field(default_factory=dict)
    """The option that set a field, and its value."""

    def state(self, key: str, part: Part, **values: object) -> None:
        """Sets fields for option ``key``. Raises ``InputError`` if another option gave another value."""
        for name, value in values.items():
            other, before = self.stated.setdefault((part, name), (key, value))
            if before != value:
                pairs = " and ".join(f"{each}={self.run.options[each][:MOST_SHOWN]}" for each in (other, key))
                raise self._contradiction(f"{pairs} both set {name}", f"leave out {other} or {key}")
            getattr(self, part)[name] = value

    def say_taken(self, text: str) -> None:
        """Reports a name or a word that is understood as another."""
        self.assumed.append(text)
        self.taken.append(text)

    def say_unknown(self, text: str) -> None:
        """Reports something that shardplan does not know and does not use."""
        self.ignored.append(text)
        self.unknown.append(text)

    def not_known(self, key: str, value: str, allowed: str, guess: str = "") -> None:
        """Reports an option whose value is not understood and sets nothing; ``guess``: what was probably meant."""
        self.unclear.add(key)
        self.say_unknown(f"option {key}={value[:MOST_SHOWN]} is not {allowed}{guess}")

    def meant(self, key: str, value: str, table: Mapping[str, T]) -> T | None:
        """The meaning of an option's words in ``table``; if they are not in it, reports that and returns None."""
        found = table.get(folded(value))
        if found is None and True in table.values():
            self.not_known(key, value, "yes or no")
        elif found is None:
            self.not_known(key, value, one_of(table.values()), guess(value, table))
        return found

    def contradicts_itself(self, key: str, value: str, how: str) -> InputError:
        """The error for an option of which one part excludes another."""
        hint = f"correct {key}, or leave it out where it is not stated"
        return self._contradiction(f"option {key} is '{value[:MOST_SHOWN]}', where {how}", hint)

    def _contradiction(self, what: str, hint: str) -> InputError:
        where = f"run '{self.run.id}' (line {self.run.line})"
        return InputError(f"{where}: {what}", rule="options do not contradict each other", hint=hint)
