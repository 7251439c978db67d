"""Dataclasses that cost little to import.

``dataclasses.dataclass`` compiles up to eight methods for each class, 0.4 ms for a frozen one; a command imports a
hundred classes and makes objects of half of them. :func:`dataclass` takes the same arguments and gives classes that
behave alike (``fields``, ``replace``, ``asdict``, equality, hashing, pickling), but compiles only ``__init__``, and
that when the first object is made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(*, frozen: bool = False, kw_only: bool = False, slots: bool = False) -> Callable[[type], type]:
        """The decorator of the standard library, with the options that are used here."""

        def decorate(cls: type) -> type:
            given = set(vars(cls))
            extends = any(dataclasses.is_dataclass(base) for base in cls.__mro__[1:])  # one that is as frozen
            options = {"kw_only": kw_only, "slots": slots, "frozen": frozen and extends}
            made = dataclasses.dataclass(init=False, repr=False, eq=False, **options)(cls)
            made.__dataclass_params__.frozen = frozen  # what a class that inherits from this one looks for
            for name, method in _methods(made, frozen=frozen, slots=slots).items():
                if name not in given:
                    setattr(made, name, method)
            return made

        return decorate


def _methods(cls: type, *, frozen: bool, slots: bool) -> dict[str, Any]:
    """Methods of a dataclass, by name."""
    each = dataclasses.fields(cls)
    compared = _values([field.name for field in each if field.compare])
    hashed = _values([field.name for field in each if (field.compare if field.hash is None else field.hash)])

    def init(self: Any, *given: Any, **named: Any) -> None:
        cls.__init__ = _compiled_init(cls)  # type: ignore[misc]  # it takes the place of this one
        cls.__init__(self, *given, **named)

    def text(self: Any) -> str:
        shown = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in each if field.repr)
        return f"{type(self).__qualname__}({shown})"

    def equals(self: Any, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return bool(compared(self) == compared(other))

    def number(self: Any) -> int:
        return hash(hashed(self))

    methods = {"__init__": init, "__repr__": text, "__eq__": equals, "__hash__": number if frozen else None}
    if frozen:
        methods |= {"__setattr__": _refuse, "__delattr__": _refuse}
    return methods | {"__getstate__": _state_of, "__setstate__": _take_state} if frozen and slots else methods


def _values(names: list[str]) -> Callable[[Any], Any]:
    """The values of these fields of an object, in C code."""
    return attrgetter(*names) if names else lambda _object: ()


def _compiled_init(cls: type) -> Callable[..., None]:
    """The ``__init__`` that takes the fields, fills in their defaults and checks."""
    names: dict[str, Any] = {"_set": object.__setattr__, "_missing": MISSING}
    places, keywords, lines = [], [], []
    for field in dataclasses.fields(cls):
        default, value = "", field.name
        if field.default is not MISSING:
            names[f"_of_{field.name}"], default = field.default, f"=_of_{field.name}"
        elif field.default_factory is not MISSING:
            names[f"_of_{field.name}"], default = field.default_factory, "=_missing"
            value = f"_of_{field.name}() if {field.name} is _missing else {field.name}"
        if field.init:
            (keywords if field.kw_only else places).append(field.name + default)
        elif default:
            value = f"_of_{field.name}()" if default == "=_missing" else f"_of_{field.name}"
        if field.init or default:
            lines.append(f" _set(self, {field.name!r}, {value})")
    head = ", ".join(("self", *places, *(["*", *keywords] if keywords else [])))
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    exec(f"def __init__({head}):\n" + "\n".join(lines or [" pass"]), names)  # noqa: S102  # names of fields alone, as the standard library does it
    init: Callable[..., None] = names["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _refuse(_self: object, name: str, *_value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot change field {name!r}")


def _state_of(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _take_state(self: Any, state: list[Any]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
