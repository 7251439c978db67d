"""The file that a profile is written to."""

from __future__ import annotations

from shardplan.errors import InputError
from shardplan.outputs.target import PROFILE, JsonTarget


def profile_name(out: str | None) -> str:
    """Where the profile goes. Raises ``InputError``."""
    if out is None or out == "-":
        raise InputError(
            "no file for the profile is given", rule="--out names the file of the profile", hint="--out my-cluster.yaml"
        )
    return out


def profile_target(out: str, runs: str | None, accelerator: str | None, target: JsonTarget) -> JsonTarget:
    """Where the profile goes, which is written as YAML."""
    page = JsonTarget(out, "--out", kind=PROFILE, is_forced=target.is_forced)
    if out.lower().endswith((".json", ".csv")):
        raise InputError(
            f"--out is {out[-200:]!r}; a profile is YAML",
            rule="the file of --out does not end as one of another kind",
            hint="--out my-cluster.yaml",
        )
    page.check(runs, accelerator, other=target)
    return page
