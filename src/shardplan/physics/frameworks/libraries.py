"""Libraries beside a framework that some of its choices need, such as DeepEP: the entry ``libraries`` of a record."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cache

import numpy as np

from shardplan.base.arrays import Flags
from shardplan.base.errors import InputError, UnknownNameError
from shardplan.base.fields import dataclass
from shardplan.inputs.plan_numbers import Degrees, Setting
from shardplan.physics.frameworks.capabilities import Library
from shardplan.physics.frameworks.runnable import FrameworkRule, rule_against
from shardplan.physics.frameworks.stack import Stack, list_stacks, load_stack


@dataclass(frozen=True, kw_only=True)
class Without:
    """Libraries that are not installed, as a user names them."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, text: str | Iterable[str], stack: Stack | None) -> Without:
        """From ``deepep,hybridep``. Raises ``UnknownNameError`` for a library that no record names."""
        given = text.split(",") if isinstance(text, str) else list(text)
        names = tuple(dict.fromkeys(each.strip().lower() for each in given if each.strip()))
        known = known_libraries()
        for name in names:
            if name not in known:
                hint = f"one of {', '.join(known)}{_of_stack(stack)}"
                raise UnknownNameError("library", name[:60], known, hint=hint)
        if not names:
            raise InputError("no library is named", rule="--without names libraries", hint=f"one of {', '.join(known)}")
        return cls(names=names)


def libraries_of(stack: Stack | None) -> Mapping[str, Library]:
    """Libraries that choices of a framework need, by name; none where no record names any."""
    can = None if stack is None else stack.can_run
    return {} if can is None or can.libraries is None else can.libraries


@cache
def known_libraries() -> tuple[str, ...]:
    """Names of the libraries of every shipped framework."""
    return tuple(sorted({name for stack in list_stacks() for name in libraries_of(load_stack(stack))}))


def needed_libraries(stack: Stack | None, setting: Setting, degrees: Degrees) -> tuple[str, ...]:
    """Libraries that a plan needs, or that one of several candidates needs."""
    found = libraries_of(stack)
    return tuple(name for name, each in found.items() if bool(np.any(each.when.holds(setting, degrees))))


def runs_without(stack: Stack | None, without: Collection[str], setting: Setting, degrees: Degrees) -> Flags:
    """Whether the plan, or each of the candidates, needs none of the libraries ``without``."""
    lacking: Flags = False
    for name, each in libraries_of(stack).items():
        if name in without:
            lacking = np.logical_or(lacking, each.when.holds(setting, degrees))
    return np.logical_not(lacking)


def rules_without(stack: Stack | None, without: Collection[str]) -> tuple[FrameworkRule, ...]:
    """The same as rules, one for every library that is missing, in the form of those of a framework."""
    return tuple(
        rule_against(
            each.when,
            rule=f"{name} is not installed (--without {name})",
            field=each.field,
            instead=f"choose another value of {each.field}, or install {name}",
            source=each.source,
            from_memory=each.from_memory,
        )
        for name, each in libraries_of(stack).items()
        if name in without
    )


def _of_stack(stack: Stack | None) -> str:
    own = ", ".join(libraries_of(stack))
    return "" if stack is None else f"; {stack.name} uses {own or 'none of them'}"
