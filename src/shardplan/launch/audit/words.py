"""What to change, in the words of the user's file: its options in place of this program's."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from shardplan.launch.dialects.reading import JOB_KEYS, PLAN_KEYS, Break, Reading

_FLAG: Final = re.compile(r"--(no-)?([a-z][a-z0-9-]*[a-z0-9])")


def in_words_of(found: Break, reading: Reading) -> Break:
    """The broken rule with what to change as the file calls it; fields that no option of it states by their name."""
    return replace(found, knob=_FLAG.sub(lambda flag: _called(flag, reading), found.knob))


def _called(flag: re.Match[str], reading: Reading) -> str:
    """The option of the file for a flag of this program; flags of the audit itself stay."""
    field = flag[2].replace("-", "_")
    if field not in PLAN_KEYS | JOB_KEYS:
        return flag[0]
    own = _option(reading, field)
    if own is None:
        return f"{field.replace('_', ' ')} off" if flag[1] else field.replace("_", " ")
    return f"leave out {own}" if flag[1] else own


def _option(reading: Reading, field: str) -> str | None:
    """The option that states a field, as it is written."""
    fact, name = reading.facts.get(field), reading.options.get(field)
    if fact is None or name is None or fact.origin == "assumed":
        return None
    written = fact.why.partition(": ")[0].rpartition(" ")[2]
    return written if written.lstrip("-").replace("_", "-") == name.lstrip("-").replace("_", "-") else name
