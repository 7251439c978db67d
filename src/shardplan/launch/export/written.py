"""What an export is: files, and what they do not say."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import MISSING, field, fields
from typing import Any, Final

from shardplan.errors import visible
from shardplan.fields import dataclass
from shardplan.inputs.job import Job
from shardplan.inputs.software import OF_EXPERTS, Software
from shardplan.launch.export.case import LaunchCase

START: Final = ">>> Fill in"
END: Final = "<<< All below follows from the plan."
"""First and last line of the block of placeholders."""


@dataclass(frozen=True, kw_only=True)
class Placeholder:
    """What a user has to give: shardplan does not know it."""

    name: str
    value: str
    """What it holds until then."""
    about: str


@dataclass(frozen=True, kw_only=True)
class Export:
    """Launch files of one plan."""

    framework: str
    """The framework and its version, such as ``torchtitan 0.3.0``."""
    files: Mapping[str, str]
    """Texts by file name; the first is what is run."""
    not_expressed: tuple[str, ...] = ()
    """What the plan, the job or the model has and these files do not say."""
    placeholders: tuple[str, ...] = ()
    """Names in the block that a user fills in."""
    relies_on: tuple[str, ...] = field(default=())
    """Defaults of the framework that the plan takes for granted."""


_OPTIONS_SAY: Final = ("sequence_length", "global_batch_size", "precision", "optimizer")
_NOT_SETTINGS: Final = ("moe_imbalance", "tokens", "software", *_OPTIONS_SAY)
"""Fields of a job that options say, or that no framework is given."""
_ADAPTERS: Final = ("lora_rank", "lora_targets")


def losses(case: LaunchCase, *, said: Collection[str], features: Collection[str]) -> tuple[str, ...]:
    """What a framework's files do not say.

    ``said``: fields of the plan, the job and its software that the files state besides the options on record;
    ``features``: those of the model.
    """
    of_plan = [f"{_words(name)} {_value(_of_either(case, name))}" for name in case.options.unsaid if name not in said]
    return (
        *of_plan,
        *_of_job(case, said),
        *_of_software(case, said),
        *case.decoder.unlike(*features),
        *_of_nodes(case),
    )


def _of_either(case: LaunchCase, name: str) -> Any:
    """A field of the plan, or of the job."""
    if name == "stage_layers":
        return case.plan.stage_layers or "shared unevenly"
    return getattr(case.plan, name) if hasattr(case.plan, name) else getattr(case.job, name)


def _of_job(case: LaunchCase, said: Collection[str]) -> list[str]:
    usual = case.stack.job_fields(case.job.precision)
    adapters = () if case.job.train == "lora" else _ADAPTERS
    found = []
    for each in fields(Job):
        if each.name in (*_NOT_SETTINGS, *said, *adapters):
            continue
        value = getattr(case.job, each.name)
        if value != usual.get(each.name, None if each.default is MISSING else each.default):
            found.append(f"{_words(each.name)} {_value(value)}")
    if "lora" not in said and case.job.train == "lora":
        found += [f"{_words(name)} {_value(getattr(case.job, name))}" for name in _ADAPTERS if name not in said]
    return list(dict.fromkeys(found))


def _of_software(case: LaunchCase, said: Collection[str]) -> list[str]:
    usual = case.stack.job_fields(case.job.precision)["software"]
    if not isinstance(usual, Software):
        return []
    can = case.stack.can_run
    chosen = {} if can is None or can.software is None else can.software
    written = {name for name, values in chosen.items() if getattr(case.job.software, name) in values}
    names = [each.name for each in fields(Software) if each.name not in {*said, *written}]
    return [
        f"{_words(name)} {_value(getattr(case.job.software, name))} (here: {_value(getattr(usual, name))})"
        for name in names
        if getattr(case.job.software, name) != getattr(usual, name) and (case.model.is_moe or name not in OF_EXPERTS)
    ]


def _of_nodes(case: LaunchCase) -> list[str]:
    per_node = case.cluster.accelerators_per_node
    if case.num_nodes == 1 or case.processes_per_node == per_node:
        return []
    return [f"{case.num_accelerators} accelerators do not fill nodes of {per_node}: {case.processes_per_node} of each"]


def _words(name: str) -> str:
    return name.replace("_", " ")


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return ",".join(str(each) for each in value) if isinstance(value, tuple) else visible(str(value))


def head(case: LaunchCase, losses_: Collection[str], relies_on: Collection[str]) -> list[str]:
    """Lines that say what a file is and what it leaves out, without the sign of a comment."""
    can = case.stack.can_run
    assert can is not None
    names = ", ".join(part for part in (can.repository, can.commit) if part)
    lines = [f"Written by shardplan: {case.title}.", f"Names of options as of {can.version}, {can.date} ({names})."]
    if losses_:
        lines += ["Not expressed here:", *(f"  - {each}" for each in losses_)]
    if relies_on:
        lines += ["Left to the framework's defaults:", *(f"  - {each}" for each in relies_on)]
    return [visible(line).replace("\n", " ") for line in lines]
