"""The constants of a plan file: those of its generation, or others that were given, with the errors of their runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shardplan.errors import shown
from shardplan.inputs.profile import NOT_CONSTANTS, Profile, load_profile
from shardplan.inputs.readers.residuals import residual_row, residuals_from_rows
from shardplan.records import Record, keys, plain
from shardplan.reports.model_record import WRITTEN


def constants_record(profile: Profile, given: Profile | None) -> Record:
    """The constants that a question is answered with, and what is known of those that were given."""
    return {"profile": _profile_record(profile)} | _origin_record(given)


def _profile_record(profile: Profile) -> Record:
    left_out = set(NOT_CONSTANTS) - {"name"}
    return {name: plain(getattr(profile, name)) for name in keys(Profile) if name not in left_out}


def _origin_record(given: Profile | None) -> Record:
    """What the band of a given profile needs: its generation and the errors of its own runs."""
    if given is None:
        return {"profile_origin": None}
    rows = [residual_row(run) for run in given.left_out_errors]
    return {"profile_origin": {"generation": given.generation, "left_out_errors": rows}}


def _with_origin(profile: Profile | None, origin: Any, shipped: Profile) -> Profile | None:
    """The profile of a file as it was given: one that says no more than the shipped one stays the shipped one."""
    if origin is None or (profile is None and not origin.left_out_errors):
        return profile
    errors = residuals_from_rows(origin.left_out_errors, "profile_origin.left_out_errors", origin.generation)
    return replace(profile or shipped, generation=origin.generation, left_out_errors=errors)


def profile_in(checked: Any, generation: str) -> tuple[Profile | None, bool]:
    """The constants that were given, None for the generation's own; and whether they are of another version."""
    shipped = load_profile(generation)
    profile, is_older = _given_profile(checked.profile, shipped)
    return (None, True) if is_older else (_with_origin(profile, checked.profile_origin, shipped), False)


def _given_profile(given: Mapping[str, Any] | None, shipped: Profile) -> tuple[Profile | None, bool]:
    """The constants of the file, None where they are the generation's own; and whether they are of another version.

    Those of another version of shardplan cannot be used: this version's are taken instead.
    """
    usual = _profile_record(shipped)
    if given is None or given == usual:
        return None, False
    if given.keys() != usual.keys() or not all(_is_like(value, usual[name]) for name, value in given.items()):
        return None, True
    for name, value in given.items():
        if not _is_plausible(value):
            raise WRITTEN.wrong(f"profile.{name}", f"is {shown(str(value))}")
    return Profile(**given, generation=shipped.generation), False


def _is_like(value: object, usual: object) -> bool:
    """Whether ``value`` is of the kind of the ``usual`` one: a text, a number, or a table with its keys."""
    if isinstance(usual, Mapping):
        return isinstance(value, Mapping) and value.keys() >= usual.keys()
    return isinstance(value, str) == isinstance(usual, str) and not isinstance(value, Mapping)


def _is_plausible(value: Any) -> bool:
    """Whether no number is below zero. Zero is a limit case: nothing hidden, no launch time."""
    if isinstance(value, Mapping):
        return all(_is_plausible(part) for part in value.values())
    return isinstance(value, str) or value >= 0
