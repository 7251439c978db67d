"""What a visitor pastes to be audited: a launch file, and what is said of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl

from shardplan.errors import InputError
from shardplan.fields import dataclass
from shardplan.web.settings import MOST_TEXT

LONGEST_VALUE: Final = 500
FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
EXAMPLE: Final = "launch.sh"
ENV, GIVEN = "env.", "given."
"""What the names of fields begin with that give an environment variable, or a value that the file leaves open."""


@dataclass(frozen=True, kw_only=True)
class PastedScript:
    """A launch file, and what the visitor says of it."""

    text: str
    name: str = EXAMPLE
    cluster: str = ""
    model: str = ""
    num_accelerators: str = ""
    observed: str = ""
    env: dict[str, str]
    given: dict[str, str]

    @classmethod
    def of(cls, body: str) -> PastedScript:
        """From the fields of the form. Raises InputError."""
        values = {key: value.strip("\r\n") for key, value in parse_qsl(body)}
        text = values.get("script", "").replace("\r\n", "\n")
        if len(text) > MOST_TEXT:
            raise InputError(
                f"the script has {len(text):,} characters",
                rule=f"a script has at most {MOST_TEXT:,} characters",
                hint="give the script or configuration alone",
            )
        name = values.get("name", "") or EXAMPLE
        return cls(
            text=text,
            name=name
            if FILE_NAME.fullmatch(name)
            else f"launch{Path(name).suffix if len(name) < LONGEST_VALUE else ''}",
            cluster=values.get("audit_cluster", "")[:LONGEST_VALUE].strip(),
            model=values.get("audit_model", "")[:LONGEST_VALUE].strip(),
            num_accelerators=values.get("audit_gpus", "")[:LONGEST_VALUE].strip(),
            observed=values.get("observed", "")[:LONGEST_VALUE],
            env=_with_prefix(values, ENV),
            given=_with_prefix(values, GIVEN),
        )


def _with_prefix(values: dict[str, str], prefix: str) -> dict[str, str]:
    return {
        key.removeprefix(prefix): value[:LONGEST_VALUE].strip()
        for key, value in values.items()
        if key.startswith(prefix) and value.strip()
    }
