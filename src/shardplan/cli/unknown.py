"""What an unknown flag may have meant: another name of a flag, a value of one, or a flag with a similar name."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from shardplan.base.errors import InputError, ShardplanError, UnknownNameError
from shardplan.base.fields import Described, described
from shardplan.base.words import folded
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan, recompute_meant, schedule_meant
from shardplan.inputs.software import Software
from shardplan.inputs.words import RECOMPUTE_WORDS, SCHEDULES, field_meant

FLAGS = {"num_accelerators": "--gpus", "framework": "--stack"}
"""Flags with another name than their field."""
OTHERWISE: Final = {
    "gpu": ("--gpus", "--accelerator"), "-n": ("--gpus",), "gpus-per-node": ("--node-size",), "weeks": ("--days",),
    **dict.fromkeys(("batch", "batch-size", "bs"), ("--global-batch-size", "--micro-batch-size")),
    "-o": ("--json", "--out"), "out": ("--json",), "output": ("--json", "--out"),
}  # fmt: skip
"""Flags of other programs, and ours for the same."""
RECORDS = (Job, Plan, Software)


def unknown_flag(option: str, known: Sequence[str], *, command: str, usage: str) -> ShardplanError:
    """The error for ``option``; ``known`` are flags of the command; ``usage`` says where they are listed."""
    bare = option.removeprefix("--")
    field = field_meant(bare) or field_meant(bare.removeprefix("no-")) or bare.removeprefix("no-").replace("-", "_")
    if command == "plan" and field in ("dp", *described(Plan)):
        return InputError(
            f"unknown flag '{option[:100]}': the search chooses {field}",
            rule="flag is known",
            hint=f"--fix {field}=VALUE, or `shardplan estimate` for a single plan",
        )
    if command == "estimate" and field == "dp":
        return InputError(
            f"unknown flag '{option[:100]}': dp follows from the other degrees",
            rule="flag is known",
            hint="give --gpus: dp is what tp, cp and pp leave of them",
        )
    software = described(Software).get(field)
    if software is not None and "--software" in known:
        value = "VALUE" if software.kind.choices else "off" if bare.startswith("no-") else "on"
        meant = f"did you mean {software.assigned(value)}?"
        hint = f"{meant} See `shardplan stacks --fields`."
        return InputError(f"unknown flag '{option[:100]}': {meant}", rule="flag is known", hint=hint)
    if field == "model" and "--model" not in known:
        return InputError(
            f"unknown flag '{option[:100]}': the model stands alone",
            rule="flag is known",
            hint=f"shardplan {command} MODEL",
        )
    named = FLAGS.get(field, f"--{field.replace('_', '-')}")
    meant_by = OTHERWISE.get(bare, (named,) if named != option else ())
    ways = [flag for flag in meant_by if flag in known] or list(_with_value(bare, known))
    if not ways:
        return UnknownNameError("flag", option[:100], (name for name in known if name.startswith("--")), hint=usage)
    meant = f"did you mean {' or '.join(ways)}?"
    return InputError(f"unknown flag '{option[:100]}': {meant}", rule="flag is known", hint=f"{meant} {usage}")


def stray_field(message: str, known: Collection[str]) -> str:
    """What to do about ``--fix tp=4 pp=2``, whose second field became a separate argument; empty for other messages."""
    found = STRAY.search(message)
    if found is None:
        return ""
    if "--change" in known:
        return f"write --change {found[1]}"
    return f"join fields with a comma: --fix tp=4,{found[1]}, or repeat --fix"


STRAY: Final = re.compile(r"unexpected extra argument\S* \(((?:\w|-){1,30}=[^ )]{1,30})")


def _with_value(bare: str, known: Collection[str]) -> Iterator[str]:
    """The flag and value for a flag with the name of the value: ``--precision fp8``."""
    for record in RECORDS:
        for field in described(record).values():
            value = _value_named(field, bare)
            way = None if value is None else _flag_for(field, value, record, known)
            if way is not None:
                yield way
                return


def _value_named(field: Described, bare: str) -> str | None:
    """The value of ``field`` with that name."""
    if field.name == "recompute":
        is_policy = folded(bare) in RECOMPUTE_WORDS and len(bare) > SHORTEST
        return recompute_meant(bare) if is_policy else None
    if field.name == "schedule":
        return str(schedule_meant(bare)) if folded(bare) in SCHEDULES else None
    value = field.meant(bare)
    return str(value) if field.kind.choices and value in field.kind.choices and len(bare) > 1 else None


SHORTEST = 3
"""Most letters of a word of recomputation that is too short to suggest a flag: ``op``, ``all``, ``yes``."""


def _flag_for(field: Described, value: str, record: type, known: Collection[str]) -> str | None:
    """How a command takes a value of a field."""
    if field.flag in known:
        return f"{field.flag} {value}"
    if record is Plan and "--fix" in known:
        return f"--fix {field.name}={value}"
    return f"--software {field.name}={value}" if record is Software and "--software" in known else None
