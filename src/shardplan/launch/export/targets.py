"""Every framework that a plan can be exported to, and the call that does it."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Final, NamedTuple

from shardplan.base.errors import InputError, UnknownNameError
from shardplan.base.fields import replace
from shardplan.base.files import DATA
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.question import Question
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.companions import GivenModels
from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.launch.export.written import Export, LaunchCase
from shardplan.physics.frameworks.stack import Stack, load_stack
from shardplan.physics.validity import check_plans


class ExportFramework(NamedTuple):
    """A framework that plans are exported to."""

    name: str
    module: str
    """Module next to this one."""
    call: str = "export"
    """Its function there."""
    versions: tuple[str, ...] = ()
    """Versions whose files are written; none stated: all on record."""
    beside: str = ""
    """End of the file that belongs to the script, next to it; none where the script says everything."""


TARGETS: Final = {
    each.name: each
    for each in (
        ExportFramework("megatron-lm", "megatron_lm", versions=("main",)),
        ExportFramework("megatron-bridge", "megatron_bridge"),
        ExportFramework("nemo", "nemo"),
        ExportFramework("torchtitan", "torchtitan", versions=("main", "0.3.0")),
        ExportFramework("deepspeed", "hugging_face", "export_deepspeed", beside=".json"),
        ExportFramework("accelerate", "hugging_face", "export_accelerate", beside=".yaml"),
        ExportFramework("nanotron", "nanotron", beside=".yaml"),
        ExportFramework("maxtext", "maxtext"),
    )
}
"""By name."""
_ONLY_HERE: Final = {"accelerate": DATA / "launch" / "accelerate.yaml"}
"""Frameworks that are no stack of estimates, with their records."""


def export_plan(
    to: str,
    *,
    model: ModelConfig,
    cluster: Cluster,
    num_accelerators: int,
    job: Job,
    plan: Plan,
    companions: GivenModels = (),
    version: str | None = None,
    stem: str = "launch",
) -> Export:
    """The launch files of a plan for the framework ``to``, and what they do not express.

    ``version``: of the framework, the newest on record where not given; ``stem``: name of the files without their ends.
    Raises ``NotRunnableError`` where the framework cannot run the plan, ``InputError`` for an unknown name or version
    and for a model that is no plain decoder, ``PlanError`` for a plan that breaks a rule.
    """
    target = target_named(to)
    case = LaunchCase(
        model=model,
        cluster=cluster,
        num_accelerators=num_accelerators,
        job=job,
        plan=plan,
        stack=stack_of(target, version),
        companions=companions,
        stem=stem,
    )
    check_plans((plan,), case.setting)
    case.check()
    module = import_module(f"shardplan.launch.export.{target.module}")
    export: Export = getattr(module, target.call)(case)
    return export


def export_estimate(
    to: str, question: Question, answer: Estimate, *, version: str | None = None, stem: str = "launch"
) -> Export:
    """The launch files of an answer's plan, in the version that it is for where none is named. Raises InputError."""
    made = export_plan(
        to,
        model=question.model,
        cluster=question.cluster,
        num_accelerators=answer.num_accelerators_used,
        job=question.job,
        plan=answer.plan,
        companions=question.given_companions,
        version=version or version_meant(target_named(to), answer.framework),
        stem=stem,
    )
    idle = (f"which accelerators stay idle: the job {question.uses}",) if question.uses else ()
    return replace(made, not_expressed=(*made.not_expressed, *idle))


def target_named(name: str) -> ExportFramework:
    """The framework of that name. Raises ``UnknownNameError``."""
    if name.strip().lower() not in TARGETS:
        known = ", ".join(TARGETS)
        raise UnknownNameError("framework to export to", name[:60], TARGETS, hint=f"one of {known}")
    return TARGETS[name.strip().lower()]


def version_meant(target: ExportFramework, framework: str | None) -> str | None:
    """The version that a plan for ``framework`` (``torchtitan 0.3.0``) is written for; None: the newest."""
    name, _, version = (framework or "").partition(" ")
    return version if name == target.name and version else None


def stack_name(to: str) -> str:
    """What ``--stack`` calls the framework. Raises ``UnknownNameError``."""
    target = target_named(to)
    where = _ONLY_HERE.get(target.name)
    return target.name if where is None else str(where)


def stack_of(target: ExportFramework, version: str | None) -> Stack:
    """What the framework can run, in the version that is meant. Raises ``InputError``."""
    stack = _newest(target.name)
    if version is None:
        return stack
    found = stack.at_version(version)
    can = found.can_run
    if target.versions and can is not None and not any(can.at(each) for each in target.versions):
        raise InputError(
            f"the version of {target.name} is {can.version}; launch files are written for {', '.join(target.versions)}",
            rule="launch files are written for versions whose names of options are on record",
            hint=f"set --version to {' or '.join(target.versions)}, or leave it out",
        )
    return found


@cache
def _newest(name: str) -> Stack:
    """The framework in the newest version on record."""
    return load_stack(_ONLY_HERE.get(name, name))
