"""Fields of records, described once and checked and read by type; and dataclasses that are cheap to import.

A field carries its own description, ``tp: int = field(default=1, metadata=about("Tensor-parallel degree.",
least=1))``: :func:`check` checks it, the command line makes a flag of it, and the documentation a row.

``dataclasses.dataclass`` compiles up to eight methods for each class, 0.4 ms for a frozen one, and a command imports
more than a hundred classes. :func:`dataclass` takes the same arguments and gives classes that behave the same
(``fields``, ``replace``, ``asdict``, equality, hashing), but compiles nothing: its methods read the list of fields.
Making an object takes as long as with a compiled method.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING
from functools import cache
from operator import attrgetter
from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from shardplan.base.errors import InputError, UnknownNameError, shown
from shardplan.base.units import parse_count, parse_whole
from shardplan.base.words import folded

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414  # others import it from here
else:

    def dataclass(*, frozen: bool = False, kw_only: bool = False) -> Callable[[type], type]:
        """The decorator of the standard library, with the options that are used here."""

        def decorate(cls: type) -> type:
            given = set(vars(cls))
            extends = any(dataclasses.is_dataclass(base) for base in cls.__mro__[1:])  # a base that is equally frozen
            options = {"kw_only": kw_only, "frozen": frozen and extends}
            made = dataclasses.dataclass(init=False, repr=False, eq=False, **options)(cls)
            made.__dataclass_params__.frozen = frozen  # read by classes that inherit from this one
            for name, method in _methods(made, frozen=frozen).items():
                if name not in given:
                    setattr(made, name, method)
            return made

        return decorate


CHECKS: Final = "__post_init__"
"""The method by which a dataclass checks its fields."""
ABOUT: Final = "about"
KEY: Final = "key"


def in_files(key: str) -> dict[str, str]:
    """The ``metadata`` of a field with another name in files, where a key ends in its unit."""
    return {KEY: key}


class InJson(NamedTuple):
    """Differences of a field in the JSON API."""

    help: str = ""
    most: float = math.inf
    default: object = None
    is_required: bool = False


class About(NamedTuple):
    """The description of a field in addition to its type and default."""

    help: str
    """One line for the command line. If it ends in a colon, the choices follow."""
    least: float = -math.inf
    """Smallest number; for numbers that need not be whole, an exclusive bound."""
    most: float = math.inf
    """Largest number."""
    unit: str = ""
    """Unit of a quantity; counts, shares and names have none."""
    includes_least: bool = False
    """Whether a number that need not be whole may equal ``least``."""
    is_count: bool = False
    """Whether a number may be written as a count: 15.6T."""
    metavar: str = ""
    """Placeholder for a value in the usage; by default it follows from the field's type."""
    example: str = ""
    """Example of a list's element, for errors."""
    is_rare: bool = False
    """Whether few people need its flag: help lists it after the others."""
    words: Mapping[str, str] = MappingProxyType({})
    """Other names of the values of a choice, folded: ``fsdp`` for ``zero3``."""
    is_length: bool = False
    """Whether a number counts tokens of a sequence, so that 8k is 8,192."""
    flags: tuple[str, ...] = ()
    """Its flags, if they are not just its name."""
    has_opposite: bool = True
    """Whether a switch can be turned off: ``--no-dropout``."""
    is_argument: bool = False
    """Whether it is a positional argument."""
    panel: str = ""
    """Heading of its flag in the help, if it is not the ``PANEL`` of its form."""
    completes: tuple[str, ...] = ()
    """Module and function that list its possible names."""
    takes: str = ""
    """Meaning of a text: see :mod:`shardplan.inputs.readers.typed` and :mod:`shardplan.web.json.bodies`."""
    in_json: InJson = InJson()
    """Differences in the JSON API."""
    in_form: tuple[str, ...] = ()
    """Label and example of its field on pages; empty if it has no field of its own."""
    quantity: tuple[str, ...] = ()
    """Kind of its unit, and ending of its column in a table, if it is typed with a unit."""


def about(help: str, **known: Any) -> dict[str, About]:  # noqa: A002  # as typer calls it
    """The ``metadata`` of a field: see :class:`About`."""
    return {ABOUT: About(help, **known)}


def asked(help: str, default: object = None, *, key: str = "", **known: Any) -> Any:  # noqa: A002  # as above
    """An optional field of a form or a record: see :class:`About`; ``key`` is its name in files."""
    return dataclasses.field(default=default, metadata=about(help, **known) | (in_files(key) if key else {}))


def switch(help: str, **known: Any) -> Any:  # noqa: A002  # as above
    """A field of a form that is off by default: see :class:`About`."""
    return asked(help, default=False, has_opposite=False, **known)


class FieldsOf(NamedTuple):
    """Marks a field of a form that holds the given fields of a record, by name."""

    record: type[Any]
    title: str
    """Heading of their flags in the help."""


class FieldOf(NamedTuple):
    """Marks a parameter that is a field of a form by itself."""

    form: type[Any]
    name: str


Given = Mapping[str, Any]
"""Values of given fields, as text or switches."""


class Kind(NamedTuple):
    """Type of a field."""

    base: type
    """``bool``, ``int``, ``float``, ``str`` or ``tuple`` (of whole numbers); ``object`` for others."""
    choices: tuple[str, ...]
    """Names of a choice; empty for other fields."""
    may_be_none: bool


class Described(NamedTuple):
    """A field with its complete description."""

    name: str
    kind: Kind
    about: About
    default: object
    """``dataclasses.MISSING`` if there is none."""
    shared_flag: str = ""
    """The flag for all fields of the record, as ``NAME=VALUE``; empty if each has its own flag."""

    @property
    def flag(self) -> str:
        """Its flag on the command line."""
        if self.shared_flag:
            return f"{self.shared_flag} {self.name}"
        return self.about.flags[0] if self.about.flags else f"--{self.name.replace('_', '-')}"

    def assigned(self, value: object) -> str:
        """The flag with a value, as a user types it."""
        return f"{self.flag}={value}" if self.shared_flag else f"{self.flag} {value}"

    @property
    def wanted(self) -> str:
        """The allowed values, as text."""
        least, most = self.about.least, self.about.most
        if self.kind.choices:
            return f"one of {', '.join(self.kind.choices)}"
        if self.kind.base is float:
            return f"a number {'of at least' if self.about.includes_least else 'above'} {least:g} and at most {most:g}"
        whole = f"whole number from {least:,} to {most:,}"
        words = {
            bool: "true or false",
            int: f"a {whole}",
            tuple: f"a list such as {self.about.example}, each a {whole}",
        }
        return words.get(self.kind.base, "text")

    def meant(self, value: object) -> object:
        """The value that ``value`` is another name or spelling of; ``value`` itself if there is none."""
        if isinstance(value, bool) and self.kind.choices:  # a choice that was a switch before it had names
            return self.about.words.get(str(value).lower(), value)
        if not isinstance(value, str):
            return value
        if not self.kind.choices:
            return self._count_in(value)
        name = folded(value)
        same = (each for each in self.kind.choices if folded(each) == name)
        return next(same, None) or self.about.words.get(name, value)

    def _count_in(self, text: str) -> object:
        """The number that a length (8k) or a count (15T) means; ``text`` if it is neither."""
        try:
            if self.about.is_length and self.kind.base is int:
                return parse_whole(text, is_length=True)
            return float(parse_count(text, field=self.name)) if self.about.is_count else text
        except ValueError:
            return text

    def allows(self, value: Any) -> bool:
        """Whether ``value`` is of the field's type and within its bounds."""
        base, (_, least, most, *_others) = self.kind.base, self.about
        if value is None:
            return self.kind.may_be_none
        if self.kind.choices:
            return isinstance(value, str) and value in self.kind.choices
        if base is int:
            return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
        if base is float:
            enough = isinstance(value, int | float) and (
                least < value or (self.about.includes_least and value == least)
            )
            return enough and not isinstance(value, bool) and value <= most
        if base is tuple:
            parts = value if isinstance(value, tuple | list) else ()
            whole = all(isinstance(part, int) and not isinstance(part, bool) for part in parts)
            return bool(parts) and whole and all(least <= part <= most for part in parts)
        return isinstance(value, base)


def described(record: type[Any]) -> Mapping[str, Described]:
    """The described fields of a dataclass, by name."""
    key: Any = record  # a class is hashable, whatever its metaclass says
    return _described(key)


@cache
def _described(record: Any) -> Mapping[str, Described]:
    hints, shared = get_type_hints(record), getattr(record, "SHARED_FLAG", "")
    panel, found = getattr(record, "PANEL", ""), {}
    for each in dataclasses.fields(record):
        if ABOUT in each.metadata:
            known: About = each.metadata[ABOUT]
            known = known._replace(panel=known.panel or panel)
            found[each.name] = Described(each.name, _kind(hints[each.name]), known, each.default, shared)
    return found


def _kind(hint: Any) -> Kind:
    options = get_args(hint) if get_origin(hint) not in (Literal, tuple) else (hint,)
    base = next((each for each in options if each is not NoneType), hint)
    choices = tuple(str(each) for each in get_args(base)) if get_origin(base) is Literal else ()
    return Kind(str if choices else get_origin(base) or base, choices, may_be_none=NoneType in options)


def check(record: Any) -> None:
    """Checks type and bounds of every described field; other names of choices become ours. Raises ``InputError``."""
    kind: Any = type(record)  # a class is hashable, whatever its metaclass says
    values, defaults, known = _checked(kind)
    for value, default, field in zip(values(record), defaults, known, strict=True):
        if value is default or field.allows(value):
            continue
        meant = field.meant(value)
        if not field.allows(meant):
            raise wrong(field, value)
        object.__setattr__(record, field.name, meant)


class _Checked(NamedTuple):
    """The described fields of a dataclass as columns, for fast checks."""

    values: Callable[[Any], Any]
    """Returns their values in an object."""
    defaults: tuple[object, ...]
    known: tuple[Described, ...]


@cache
def _checked(record: Any) -> _Checked:
    known = _described(record)
    values = attrgetter(*known) if len(known) > 1 else lambda one: tuple(getattr(one, name) for name in known)
    return _Checked(values, tuple(each.default for each in known.values()), tuple(known.values()))


def in_our_words(kind: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """``values`` of fields of ``kind``, with other names of choices replaced by ours."""
    known = described(kind)
    return {name: known[name].meant(value) if name in known else value for name, value in values.items()}


def wrong(field: Described, value: object) -> InputError:
    """The error for a value that a field does not allow."""
    if field.kind.choices and isinstance(value, str):
        return UnknownNameError(field.name, value, field.kind.choices, hint=field.wanted)
    return InputError(
        f"{field.name} is {shown(value)}; it must be {field.wanted}",
        rule=f"{field.name} is {field.wanted}",
        hint=f"set {field.flag} to {field.wanted}",
    )


def _methods(cls: type, *, frozen: bool) -> dict[str, Any]:
    """Methods of a dataclass, by name."""
    each = dataclasses.fields(cls)
    compared = _values([field.name for field in each if field.compare])
    hashed = _values([field.name for field in each if (field.compare if field.hash is None else field.hash)])

    def text(self: Any) -> str:
        shown = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in each if field.repr)
        return f"{type(self).__qualname__}({shown})"

    def equals(self: Any, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return bool(compared(self) == compared(other))

    def number(self: Any) -> int:
        return hash(hashed(self))

    methods = {"__init__": _init(cls), "__repr__": text, "__eq__": equals, "__hash__": number if frozen else None}
    return methods | ({"__setattr__": _refuse, "__delattr__": _refuse} if frozen else {})


def _values(names: list[str]) -> Callable[[Any], Any]:
    """Returns a function for the values of these fields of an object, in C code."""
    return attrgetter(*names) if names else lambda _object: ()


def _init(cls: type) -> Callable[..., None]:
    """The ``__init__`` that takes the fields, fills in their defaults and checks them."""
    each = dataclasses.fields(cls)
    taken = frozenset(field.name for field in each if field.init)
    places = [field.name for field in each if field.init and not field.kw_only]
    defaults = {field.name: field.default for field in each if field.default is not MISSING}
    makers = [(field.name, field.default_factory) for field in each if field.default_factory is not MISSING]
    has_more = hasattr(cls, CHECKS)
    every = frozenset(field.name for field in each)
    has_late = every != taken

    def placed(given: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        known = {**dict(zip(places, given, strict=False)), **named}
        if len(known) != len(given) + len(named):
            raise _field_error(cls, known, missing=[])
        return known

    def init(self: Any, *given: Any, **named: Any) -> None:
        values = known = placed(given, named) if given else named
        if len(known) < len(every):
            values = {**defaults, **known}
            for name, make in makers:
                if name not in values:
                    values[name] = make()
        if values.keys() != every or (has_late and not taken.issuperset(known)):
            raise _field_error(cls, known, missing=[field.name for field in each if field.name not in values])
        _set(self, "__dict__", values)  # not by setattr, which a frozen object refuses
        if has_more:
            self.__post_init__()

    return init


_set = object.__setattr__
Record = TypeVar("Record")


def made(kind: Any, values: dict[str, Any]) -> Any:
    """An object with these values, which have been checked: those of another object, changed."""
    record = object.__new__(kind)
    own = {name: make() for name, make in _made_alone(kind)}
    _set(record, "__dict__", values | own if own else values)
    return record


def replace(record: Record, **changes: Any) -> Record:
    """Like ``dataclasses.replace``, in a third of the time."""
    kind: Any = type(record)
    values, names = record.__dict__, given_fields(kind)
    changed = {name: values[name] for name in names} | changes
    replaced: Record = kind(**changed) if hasattr(kind, CHECKS) or len(changed) > len(names) else made(kind, changed)
    return replaced


@cache
def _made_alone(kind: type[Any]) -> tuple[tuple[str, Callable[[], Any]], ...]:
    """Fields with a default factory."""
    each = [field for field in dataclasses.fields(kind) if not field.init]
    return tuple((field.name, field.default_factory) for field in each if field.default_factory is not MISSING)


@cache
def given_fields(kind: type[Any]) -> tuple[str, ...]:
    """Names of the fields with which a dataclass is made."""
    return tuple(field.name for field in dataclasses.fields(kind) if field.init)


def _field_error(cls: type, known: Mapping[str, object], missing: list[str]) -> TypeError:
    """The error for unknown or missing fields of a dataclass."""
    taken = {field.name for field in dataclasses.fields(cls) if field.init}
    faults = [f"takes no {name}" for name in known if name not in taken] + [f"needs {name}" for name in missing]
    return TypeError(f"{cls.__qualname__}() {', '.join(faults) or 'is given too many values'}")


def _refuse(_self: object, name: str, *_value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot change field {name!r}")
