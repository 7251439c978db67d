"""What a user says about the space of a search: values of fields, fixed, limited or excluded."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, fields
from typing import Any, Final, Self

from shardplan.base.arrays import divisors
from shardplan.base.errors import InputError, UnknownNameError, check_kind, shown
from shardplan.base.fields import dataclass, described, replace
from shardplan.base.words import FLAGS, folded
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan, is_whole, schedule_meant
from shardplan.physics.schedules.registry import load_schedule

Choices = Mapping[str, Sequence[object]]
"""Values by field, as given on the command line (text) or in Python."""
Given = Mapping[str, object]
"""The same as a user may give it: a value that is not a list stands for a list of it."""


LIBRARY: Final = "library"
"""Stands among what is excluded for libraries that are not installed: no plan may need one of them."""


@dataclass(frozen=True, kw_only=True)
class Restrictions:
    """What the user says about the space."""

    fix: Choices = field(default_factory=dict)
    """The one value of a field."""
    limit: Choices = field(default_factory=dict)
    """The candidates of a field."""
    exclude: Choices = field(default_factory=dict)
    """Values taken from the candidates of a field."""

    @classmethod
    def of(
        cls, *, fix: Given | None = None, limit: Given | None = None, exclude: Given | None = None, **others: Any
    ) -> Self:
        """As a user gives them; ``others``: fields of what else limits a search. Raises ``InputError``."""
        return cls(fix=_as_lists(fix), limit=_as_lists(limit), exclude=_as_lists(exclude), **others)

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields that are restricted."""
        return tuple(dict.fromkeys(each for each in (*self.fix, *self.limit, *self.exclude) if each != LIBRARY))

    @property
    def missing_libraries(self) -> tuple[str, ...]:
        """Libraries that are not installed."""
        return tuple(str(name) for name in self.exclude.get(LIBRARY, ()))

    def without(self, *names: str) -> Self:
        """All but those of some fields."""
        every = {"fix": self.fix, "limit": self.limit, "exclude": self.exclude}
        kept = {how: {key: each for key, each in given.items() if key not in names} for how, given in every.items()}
        return replace(self, **kept)

    def fixing(self, **values: object) -> Self:
        """The same with fields fixed to other values."""
        others = self.without(*values)
        return replace(others, fix={**others.fix, **_as_lists(values)})

    def limiting(self, **values: Sequence[object]) -> Self:
        """The same with more fields limited."""
        return replace(self, limit={**self.limit, **values})


def _as_lists(given: Given | None) -> Choices:
    """Values of every field as a list."""
    if given is not None:
        check_kind("each of fix, limit and exclude", given, Mapping, hint='{"tp": [4, 8]}')
    alone = (str, Mapping)
    return {
        name: values if isinstance(values, Sequence) and not isinstance(values, alone) else (values,)
        for name, values in (given or {}).items()
    }


def values_given(restrictions: Restrictions, question: Question) -> dict[str, tuple[Any, ...]]:
    """Candidates of the fields that are fixed or limited, in their own types. Raises ``InputError``."""
    fix, limit = restrictions.fix, restrictions.limit
    both = [name for name in fix if name in limit]
    if both:
        raise InputError(
            f"{both[0]} is fixed and limited", rule="a field is fixed or limited, not both", hint="drop one"
        )
    for name, values in fix.items():
        is_range = len(values) == 1 and _range(values[0]) is not None
        if len(values) != 1 or is_range:
            raise InputError(
                f"{name} is fixed to {'a range' if is_range else f'{len(values)} values'}",
                rule="a field is fixed to one value",
                hint=f"--limit {name}={','.join(map(str, values))}",
            )
    return {name: _some(name, values, question) for name, values in {**limit, **fix}.items()}


def values_excluded(restrictions: Restrictions, question: Question) -> dict[str, tuple[Any, ...]]:
    """Values of fields that are left out, in their own types. Raises ``InputError``."""
    excluded = {name: values for name, values in restrictions.exclude.items() if name != LIBRARY}
    return {name: _values(name, values, question) for name, values in excluded.items()}


def _some(name: str, values: Sequence[object], question: Question) -> tuple[Any, ...]:
    """The values of a field, at least one: a range may have none that can be valid. Raises ``InputError``."""
    found = _values(name, values, question)
    if not found:
        texts = ", ".join(str(value) for value in values)
        candidates = _whole_numbers(name, question)
        listed = [*map(str, candidates[:MOST_LISTED]), *["..."] * (len(candidates) > MOST_LISTED)]
        reason = WHY_NONE.get(name, f"none of them divides {question.num_accelerators:,} accelerators")
        raise InputError(
            f"{name} is {texts}: {reason.format(batch=question.job.global_batch_size)}",
            rule="a range has a value that can be valid",
            hint=f"candidates of {name} are {', '.join(listed)}",
        )
    return found


WHY_NONE: Final = {
    "micro_batch_size": "none of them divides the global batch of {batch:,} sequences",
    **dict.fromkeys(("vp", "recompute_num_layers", "offload_num_layers"), "the model has fewer layers"),
}
"""Why a range has no candidate; by default because none of its values divides the accelerators."""
MOST_LISTED: Final = 12


def _values(name: str, values: Sequence[object], question: Question) -> tuple[Any, ...]:
    """Values of a field in its own type; ranges have those that can be valid. Raises ``InputError``."""
    known = ["dp", *(each.name for each in fields(Plan))]
    if name not in known:
        raise UnknownNameError("field of a plan", name, known, hint="`shardplan estimate --help` lists them all")
    if isinstance(values, str) or not values:
        raise InputError(f"{name} has no values", rule="a choice lists values", hint=f"{name}=value,value")
    default = getattr(USUAL, name, None)
    checked = {each for value in values for each in _each(name, value, question)}
    return tuple(sorted(checked, key=lambda value: (_is_switch(value) and value != default, *_in_order(value))))


def _each(name: str, value: object, question: Question) -> tuple[Any, ...]:
    """The values that ``value`` stands for: those of a range, or itself. Raises ``InputError``."""
    ends = _range(value)
    if ends is None:
        return (_checked(name, _typed(name, value)),)
    least, most = ends
    candidates = _whole_numbers(name, question)
    if not candidates:
        raise InputError(
            f"{name} is {shown(value)}; it takes no range",
            rule="ranges are for degrees, the micro-batch size and numbers of layers",
            hint=f"list the values: --limit {name}=VALUE,VALUE",
        )
    if least > most:
        raise InputError(
            f"{name} is {shown(value)}, which ends before it starts",
            rule="a range is its smallest value, two dots and its largest",
            hint=f"--limit {name}={most}..{least}",
        )
    return tuple(each for each in candidates if least <= each <= most)


RANGE: Final = re.compile(r"\s*(\d{1,9})\s*\.\.\s*(\d{1,9})\s*", re.ASCII)
DIVIDE_ACCELERATORS: Final = ("tp", "tp_rows", "cp", "pp", "ep", "etp", "dp", "sharding_degree")
"""Degrees: only divisors of the accelerators can be valid."""


def _range(value: object) -> tuple[int, int] | None:
    """The ends of ``1..16``; None where a value is no range."""
    found = RANGE.fullmatch(value) if isinstance(value, str) else None
    return None if found is None else (int(found[1]), int(found[2]))


def _whole_numbers(name: str, question: Question) -> Sequence[int]:
    """Numbers of a field that can be valid; none for fields that take no range."""
    if name in DIVIDE_ACCELERATORS:
        return divisors(question.num_accelerators)
    if name == "micro_batch_size":
        return divisors(question.job.global_batch_size)
    most = question.model.num_hidden_layers
    return {
        "vp": range(1, most + 1),
        "recompute_num_layers": range(most + 1),
        "offload_num_layers": range(most + 1),
    }.get(name, range(0))


USUAL: Final = Plan()


def _is_switch(value: Any) -> bool:
    """Whether the default of a field comes first: where a switch does nothing, a plan is named by its first value."""
    return isinstance(value, bool | str)


def _in_order(value: Any) -> tuple[bool, str, Any]:
    """Numbers by size, names by letter: the order in which they were given changes no answer."""
    return value is not None, type(value).__name__, 0 if value is None else value


def _checked(name: str, value: Any) -> Any:
    """A value that ``Plan`` accepts. dp follows from the other degrees, but it is a degree like them."""
    own_name = "tp" if name == "dp" else name
    if name == "schedule" and isinstance(value, str):
        load_schedule(str(schedule_meant(value)))
    try:
        return getattr(replace(Plan(), **{own_name: value}), own_name)
    except InputError as error:
        message = error.message.replace("tp is", f"{name} is")
        raise InputError(
            message,
            rule=error.rule.replace("tp is", f"{name} is"),
            hint=_how_to_write(name, value) + (f"; {error.hint}" if isinstance(error, UnknownNameError) else ""),
        ) from None


NOT_A_RANGE: Final = re.compile(r"\s*(\d{1,9})\s*(?:-|:|\.{3}|to)\s*(\d{1,9})\s*", re.ASCII)
"""Ranges as other tools write them."""


def _how_to_write(name: str, value: object) -> str:
    """How a field is fixed or limited; as a range where one was meant."""
    meant = NOT_A_RANGE.fullmatch(value) if isinstance(value, str) else None
    if meant is not None:
        return f"write a range with two dots: --limit {name}={meant[1]}..{meant[2]}"
    return f"--fix {name}=VALUE or --limit {name}=VALUE,VALUE"


MOST_DIGITS = 20


def _typed(name: str, value: object) -> object:
    """What a text means for a field: numbers, yes and no; '+' joins the parts of a list that ',' would take apart."""
    if not isinstance(value, str):
        return value
    text, kind = value.strip(), described(Plan)["tp" if name == "dp" else name].kind
    if name == "recompute":
        return text.replace("+", ",")
    if kind.base is tuple and text.lower() != "none":
        return tuple(_number(part.strip()) for part in text.replace(",", "+").split("+"))
    if kind.choices:
        return text
    switch = FLAGS.get(folded(text)) if kind.base is bool else None
    return switch if switch is not None else None if text.lower() == "none" else _number(text)


def _number(text: str) -> int | str:
    return int(text) if is_whole(text) and len(text) < MOST_DIGITS else text
