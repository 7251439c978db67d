"""What an exporter writes down: a plan with its question, the files that it becomes, and what they do not say."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, field, fields
from functools import cached_property
from html import escape
from math import ceil
from typing import Any, Final, NamedTuple

from shardplan.base.errors import NotRunnableError, visible
from shardplan.base.fields import dataclass
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.companions import GivenModels
from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import Setting
from shardplan.inputs.software import OF_EXPERTS, Software
from shardplan.launch.export.decoder import Decoder, decoder_of
from shardplan.physics.frameworks.options import OptionsOfPlan, options_of
from shardplan.physics.frameworks.runnable import refusals
from shardplan.physics.frameworks.stack import Stack


@dataclass(frozen=True, kw_only=True)
class LaunchCase:
    """One plan for one framework."""

    model: ModelConfig
    cluster: Cluster
    num_accelerators: int
    job: Job
    plan: Plan
    stack: Stack
    """The framework in the version that is meant."""
    companions: GivenModels = ()
    """Models of the job's companions that are no built-in ones."""
    stem: str = "launch"
    """Name of the files without their ends: a script names the files next to it."""

    @cached_property
    def setting(self) -> Setting:
        """What the rules of a framework know besides the plan."""
        return Setting.of(self.model, self.cluster, self.num_accelerators, self.job, self.companions)

    @cached_property
    def decoder(self) -> Decoder:
        """The model as exporters write it. Raises ``InputError`` where it is no plain decoder."""
        return decoder_of(self.model)

    @cached_property
    def options(self) -> OptionsOfPlan:
        """The plan in the framework's own option names."""
        found = options_of(self.stack, self.setting, self.plan)
        assert found is not None, f"{self.stack.name} has options"
        return found

    @property
    def processes_per_node(self) -> int:
        """Processes on every node, one for an accelerator: the most that gives whole nodes."""
        most = min(self.cluster.accelerators_per_node, self.num_accelerators)
        return next(number for number in range(most, 0, -1) if self.num_accelerators % number == 0)

    @property
    def num_nodes(self) -> int:
        """Nodes."""
        return self.num_accelerators // self.processes_per_node

    @property
    def dp(self) -> int:
        """Data-parallel degree."""
        return self.plan.dp(self.num_accelerators)

    @property
    def num_microbatches(self) -> int:
        """Micro-batches of a step on every replica."""
        return self.job.global_batch_size // (self.plan.micro_batch_size * self.dp)

    @property
    def num_steps(self) -> int | None:
        """Optimizer steps, where the job names its tokens."""
        return None if self.job.tokens is None else ceil(self.job.tokens / self.job.tokens_per_step)

    @property
    def title(self) -> str:
        """What is launched, on one line."""
        where = f"{self.num_accelerators} x {self.cluster.accelerator.name} ({self.cluster.name})"
        return visible(f"{self.model.name} on {where} with {self.stack.label}").replace("\n", " ")

    def check(self) -> None:
        """Refuses a plan that the framework cannot run, by its first rule. Raises ``NotRunnableError``."""
        for each in refusals(self.stack, self.plan, self.setting):
            values = f" ({each.message})" if each.message else ""
            message = f"{each.framework} cannot run this plan: {each.rule}{values}"
            raise NotRunnableError(message, rule=each.rule, hint=each.hint)


def flags(options: Iterable[str]) -> list[Sequence[str]]:
    """Options of a command line, ``--name value ...``, each as its words."""
    found: list[list[str]] = []
    for word in (word for option in options for word in shlex.split(option)):
        if not word.startswith("--") and found and ":" not in word:
            found[-1].append(word)
        else:
            found.append([word])
    return list(found)


def pairs(options: Iterable[str]) -> dict[str, str]:
    """Options of the form ``key=value``."""
    words = [word for option in options for word in shlex.split(option)]
    return {key: value for key, _, value in (word.partition("=") for word in words)}


def keys(options: Iterable[str]) -> dict[str, Any]:
    """Options of the form ``key: value``; switches and whole numbers are read."""
    parted = [option.partition(": ") for option in options]
    return {key: _plain_value(value) for key, separator, value in parted if separator}


def _plain_value(value: str) -> bool | int | str:
    if value in ("true", "false"):
        return value == "true"
    return int(value) if value.isdecimal() else value


def nested(values: dict[str, Any]) -> dict[str, Any]:
    """Values by keys with dots, ``{"a.b": 1}``, as mappings in mappings."""
    tree: dict[str, Any] = {}
    for key, value in values.items():
        *folders, name = key.split(".")
        place = tree
        for folder in folders:
            place = place.setdefault(folder, {})
        place[name] = value
    return tree


START: Final = ">>> Fill in"
END: Final = "<<< All below follows from the plan."
"""First and last line of the block of placeholders."""


class Placeholder(NamedTuple):
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

    def __repr__(self) -> str:
        files = ", ".join(f"{name} ({text.count(chr(10))} lines)" for name, text in self.files.items())
        unsaid = f"; not expressed: {len(self.not_expressed)}" if self.not_expressed else ""
        return f"<Export: {self.framework}: {files}{unsaid}>"

    def _repr_html_(self) -> str:
        whole = "".join(f"<h4>{escape(name)}</h4><pre>{escape(text)}</pre>" for name, text in self.files.items())
        return f"<p>{escape(repr(self))}</p>{whole}"


_OPTIONS_SAY: Final = ("sequence_length", "global_batch_size", "precision", "optimizer")
_NOT_SETTINGS: Final = ("routing", "tokens", "software", *_OPTIONS_SAY)
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


def comment_of(case: LaunchCase, losses_: Collection[str]) -> str:
    """The head of a configuration next to a script, which says what is left to the framework's defaults."""
    return "".join(f"# {line}\n" for line in head(case, losses_, ()))


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
