"""The framework that an answer is for where none is named: the one that is usual on the accelerator."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Final

from shardplan.errors import InputError, UnknownNameError, check_kind
from shardplan.frameworks.stack import Stack, list_stacks, load_stack

USUAL: Final = "usual"
"""Stands for the usual framework of the accelerator."""
ANY: Final = "any"
"""Stands for no framework: every plan that is physically consistent."""
ALL: Final = "all"
"""Stands for every published framework that runs on the accelerator, one after the other."""


def stack_for(stack: str | Stack | None, vendor: str) -> Stack | None:
    """The framework that is meant on accelerators of ``vendor``; None where none limits the plans.

    Raises ``UnknownNameError`` for a name that no framework has, ``InputError`` for a file that is not a stack.
    """
    word = stack.lower() if isinstance(stack, str) else stack
    if word is None or word == ANY:
        return None
    check_kind("stack", stack, str, Stack, hint="a name, a Stack, or None for no framework")
    if word == USUAL:
        return usual_stack(vendor)
    return load_stack(stack) if isinstance(stack, str) else stack


def usual_stack(vendor: str) -> Stack | None:
    """The usual framework on accelerators of ``vendor``; None where no shipped one is."""
    return next((each for each in _shipped() if vendor in each.usual_on), None)


def published_stacks(vendor: str) -> tuple[Stack, ...]:
    """The frameworks that anyone can run on accelerators of ``vendor``, in their newest versions, the usual one first.

    Stacks that describe how one framework was run at some time (``where``) are left out. Raises ``InputError`` where
    there are none.
    """
    found = [each for each in _shipped() if not (each.only_for_runs or each.where) and _runs_on(each, vendor)]
    if not found:
        raise InputError(
            f"no framework on record runs on accelerators of {vendor}",
            rule="frameworks that run on the accelerator are compared",
            hint="leave --stack out: plans are then limited by no framework",
        )
    return tuple(sorted(found, key=lambda stack: vendor not in stack.usual_on))


@lru_cache(maxsize=256)
def stack_of_label(label: str | None) -> Stack | None:
    """The framework that an answer is labelled with: ``torchtitan 0.3.0``; None where no shipped one has the label."""
    name, _, version = (label or "").partition(" ")
    stack = load_stack(name) if name in list_stacks() else None
    if stack is None or not version:
        return stack
    try:
        return stack.at_version(version)
    except UnknownNameError:
        return None


def how_chosen(stack: Stack | None, vendor: str) -> str:
    """What is assumed where nobody named a framework, and how to change it."""
    if stack is None:
        return f"no framework is on record for accelerators of {vendor or 'this maker'}: plans are limited by none"
    return f"framework {stack.name}, as is usual on {vendor} (--stack NAME for another, all to compare, any for none)"


def _runs_on(stack: Stack, vendor: str) -> bool:
    makers = None if stack.can_run is None else stack.can_run.vendors
    return makers is None or vendor in ("", *makers)


@cache
def _shipped() -> tuple[Stack, ...]:
    return tuple(load_stack(name) for name in list_stacks())
