"""What the columns, the stack and the options of a measured run chose so far, and which option chose what."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from shardplan.calibration.runs import MeasuredRun
from shardplan.errors import InputError
from shardplan.inputs.cluster import LinkType

__all__ = ["Choices"]

Part = Literal["software", "job", "plan"]


@dataclass(kw_only=True, slots=True)
class Choices:
    """Fields chosen so far, and what there is to say about them."""

    run: MeasuredRun
    software: dict[str, Any] = field(default_factory=dict)
    job: dict[str, Any] = field(default_factory=dict)
    plan: dict[str, Any] = field(default_factory=dict)
    network: LinkType | None = None
    """Kind of the links between fast domains, where it is stated."""
    assumed: list[str] = field(default_factory=list)
    """What was taken for granted, in words."""
    ignored: list[str] = field(default_factory=list)
    """What was stated and has no place in the estimate."""
    stated: dict[tuple[Part, str], tuple[str, object]] = field(default_factory=dict)
    """Option that set a field, and the value it gave."""

    def state(self, key: str, part: Part, **values: object) -> None:
        """Sets fields as option ``key`` says. Raises ``InputError`` where another option gave another value."""
        for name, value in values.items():
            other, before = self.stated.setdefault((part, name), (key, value))
            if before != value:
                raise self._contradiction(other, key, name)
            getattr(self, part)[name] = value

    def wrong(self, key: str, value: str, allowed: str) -> InputError:
        """What a user reads about a bad option."""
        return InputError(
            f"run '{self.run.id}' (line {self.run.line}): option {key} is '{value[:80]}'; it must be {allowed}",
            rule=f"option {key} has a known value",
            hint=f"correct {key}, or leave it out where it is not stated",
        )

    def _contradiction(self, one: str, other: str, name: str) -> InputError:
        pairs = " and ".join(f"{key}={self.run.options[key][:80]}" for key in (one, other))
        return InputError(
            f"run '{self.run.id}' (line {self.run.line}): {pairs} both set {name}",
            rule="options do not contradict each other",
            hint=f"leave out {one} or {other}",
        )
