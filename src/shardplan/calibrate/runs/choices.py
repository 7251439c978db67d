"""What the columns, the stack and the options of a measured run chose so far, and which option chose what."""

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
"""Characters of a value that are printed."""


@dataclass(kw_only=True)
class Choices:
    """Fields chosen so far, and what there is to say about them."""

    run: MeasuredRun
    software: dict[str, Any] = field(default_factory=dict)
    job: dict[str, Any] = field(default_factory=dict)
    plan: dict[str, Any] = field(default_factory=dict)
    network: LinkType | None = None
    """Kind of the links between scale-up domains, where it is stated."""
    metered_rank: int | None = None
    """Pipeline rank whose memory was measured (-1: the last), where it is stated."""
    assumed: list[str] = field(default_factory=list)
    """What was taken for granted as text."""
    taken: list[str] = field(default_factory=list)
    """Of what was assumed, names and words of the row that are taken as others."""
    ignored: list[str] = field(default_factory=list)
    """What was stated and has no place in the estimate."""
    unknown: list[str] = field(default_factory=list)
    """Of what is ignored, that which shardplan does not know."""
    unclear: set[str] = field(default_factory=set)
    """Options whose value is not understood."""
    stated: dict[tuple[Part, str], tuple[str, object]] = field(default_factory=dict)
    """Option that set a field, and the value it gave."""

    def state(self, key: str, part: Part, **values: object) -> None:
        """Sets fields as option ``key`` says. Raises ``InputError`` where another option gave another value."""
        for name, value in values.items():
            other, before = self.stated.setdefault((part, name), (key, value))
            if before != value:
                pairs = " and ".join(f"{each}={self.run.options[each][:MOST_SHOWN]}" for each in (other, key))
                raise self._contradiction(f"{pairs} both set {name}", f"leave out {other} or {key}")
            getattr(self, part)[name] = value

    def say_taken(self, text: str) -> None:
        """Reports a name or a word that is taken as another."""
        self.assumed.append(text)
        self.taken.append(text)

    def say_unknown(self, text: str) -> None:
        """Reports what shardplan does not know and does not use."""
        self.ignored.append(text)
        self.unknown.append(text)

    def not_known(self, key: str, value: str, allowed: str, guess: str = "") -> None:
        """Reports an option whose value is not understood and sets nothing; ``guess``: what was probably meant."""
        self.unclear.add(key)
        self.say_unknown(f"option {key}={value[:MOST_SHOWN]} is not {allowed}{guess}")

    def meant(self, key: str, value: str, table: Mapping[str, T]) -> T | None:
        """What the words of an option mean by ``table``; None, and reported, where they are not in it."""
        found = table.get(folded(value))
        if found is None and True in table.values():
            self.not_known(key, value, "yes or no")
        elif found is None:
            self.not_known(key, value, one_of(table.values()), guess(value, table))
        return found

    def contradicts_itself(self, key: str, value: str, how: str) -> InputError:
        """What a user reads about an option of which one part excludes another."""
        hint = f"correct {key}, or leave it out where it is not stated"
        return self._contradiction(f"option {key} is '{value[:MOST_SHOWN]}', where {how}", hint)

    def _contradiction(self, what: str, hint: str) -> InputError:
        where = f"run '{self.run.id}' (line {self.run.line})"
        return InputError(f"{where}: {what}", rule="options do not contradict each other", hint=hint)
