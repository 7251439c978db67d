"""Methods by name: the published models that ship with shardplan, and those that other packages add.

A package adds one by an entry point of the group ``shardplan.methods`` whose name is the method's own.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Final, TypeVar

from shardplan.base.errors import InputError, ShardplanError, UnknownNameError
from shardplan.methods.base import Method

Answer = TypeVar("Answer")

GROUP: Final = "shardplan.methods"
OWN: Final = ("calculator", "subramanian2024", "data-movement", "searcher")
"""The built-in methods, in the order in which they are shown; others follow by name."""


def list_methods() -> list[str]:
    """Names of all methods, the built-in ones first."""
    return list(_entry_points())


def load_method(name: str) -> Method:
    """The method called ``name``. Raises ``UnknownNameError``, or ``InputError`` if its package is at fault."""
    known = _entry_points()
    if name not in known:
        raise UnknownNameError("method", f"{name!s:.60}", known, hint="see `shardplan published methods`")
    method, fault = _load(known[name])
    if method is None:
        raise InputError(
            f"method '{name}' cannot be used: {fault}",
            rule=f"an entry point of the group {GROUP} leads to a Method",
            hint=f"correct or remove the package that gives {known[name].value}",
        )
    return method


def load_methods() -> tuple[Method, ...]:
    """Every method that can be used."""
    loaded = (_load(point)[0] for point in _entry_points().values())
    return tuple(method for method in loaded if method is not None)


def broken_methods() -> dict[str, str]:
    """Methods that cannot be used, and why."""
    faults = {name: _load(point)[1] for name, point in _entry_points().items()}
    return {name: fault for name, fault in faults.items() if fault}


def asked_of(method: Method, ask: Callable[[], Answer]) -> Answer:
    """The result of ``ask``; any error in a method of another package becomes an ``InputError``."""
    try:
        return ask()
    except ShardplanError:
        raise
    except Exception as error:
        if type(method).__module__.startswith("shardplan."):
            raise
        raise InputError(
            f"method '{method.name}' fails: {type(error).__name__}: {error!s:.200}",
            rule="a method answers, or refuses with an error of shardplan",
            hint=f"correct {type(method).__module__}",
        ) from error


def _entry_points() -> dict[str, EntryPoint]:
    """Entry points by name; another package cannot replace a built-in method."""
    found = sorted(entry_points(group=GROUP), key=lambda point: (not point.value.startswith("shardplan."), point.value))
    points: dict[str, EntryPoint] = {}
    for point in found:
        points.setdefault(point.name, point)
    order = {name: place for place, name in enumerate(OWN)}
    return dict(sorted(points.items(), key=lambda item: (order.get(item[0], len(OWN)), item[0])))


def _load(point: EntryPoint) -> tuple[Method | None, str]:
    """The method of an entry point, or its error."""
    try:
        method = point.load()()
    except Exception as error:  # noqa: BLE001  # another package's code may fail in any way
        return None, f"{point.value} fails: {type(error).__name__}: {error!s:.200}"
    if not isinstance(method, Method):
        return None, f"{point.value} is no Method"
    if getattr(method, "name", None) != point.name:
        return None, f"{point.value} calls itself '{getattr(method, 'name', None)}', not '{point.name}'"
    return method, ""
