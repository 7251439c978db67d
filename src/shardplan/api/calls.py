"""``shardplan.search``, ``estimate``, ``export`` and ``search_frameworks``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from shardplan.api.answers import FrameworkAnswers, PlanAnswer, SearchAnswer
from shardplan.api.questions import JobFields, PlanLike, ask, plan_of
from shardplan.ask.names import ClusterLike, ModelLike, ProfileLike, StackLike, cluster_of
from shardplan.ask.questions import choices_in, estimated, searched
from shardplan.base.errors import InputError, check_kind, shown
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.launch.export.shell import ExportTarget
from shardplan.launch.export.targets import export_estimate
from shardplan.launch.export.written import Export
from shardplan.physics.frameworks.stack import Stack
from shardplan.physics.frameworks.usual_stack import USUAL, published_stacks, stack_for
from shardplan.planner.related.frameworks import answers_of
from shardplan.planner.restrictions import Given
from shardplan.planner.stopping import Stop
from shardplan.planner.survey import Progress

if TYPE_CHECKING:
    from shardplan.api.rl import RlAnswer


def search(
    model: ModelLike,
    cluster: ClusterLike,
    num_accelerators: int,
    *,
    job: Job | Mapping[str, Any] | None = None,
    fix: Given | None = None,
    limit: Given | None = None,
    exclude: Given | None = None,
    without: str | Sequence[str] | None = None,
    top: int = 10,
    stack: StackLike = USUAL,
    profile: ProfileLike | None = None,
    progress: Progress | None = None,
    stop: Stop | None = None,
    simulate_top: int | None = None,
    prune: bool = False,
    use_all: bool = False,
    **fields: Unpack[JobFields],
) -> SearchAnswer:
    """Finds the fastest plans that fit: ``search("llama-3.1-70b", "dgx-h100", 512, global_batch_size=512)``.

    Fields of the job are keywords, or those of ``job``; missing ones take the framework's default or that of
    ``default_job``, and the answer's assumptions say so. ``fix`` and ``limit`` replace the candidates of a field of the
    plan, ``exclude`` removes values: ``fix={"tp": 8}``, ``limit={"tp": [4, 8]}``; plans must run ``without`` these
    libraries: ``["deepep"]``. If nothing fits, the answer has no estimates, but suggestions. Only plans that a training
    framework can run are listed: ``stack``, or the usual one of the accelerator; with ``stack=None`` no framework
    limits them. ``stop`` is called between pieces of work, such as a ``Deadline``. With ``simulate_top``, at most this
    many of the best plans are simulated and ranked by that (``ties.retimed`` has the times); 50 is enough for most
    questions. ``prune`` skips plans that a bound shows to be too slow (``num_plans_pruned``); the answer is the same,
    but how many plans fit is not known. If fewer accelerators take less time, the answer is for these
    (``question.num_idle``, ``fewer``), unless ``use_all`` is set.

    Raises ``InputError`` for unknown or malformed arguments, for what the framework never runs and for ``top`` below
    one, ``SearchStopped`` if ``stop`` returns true.
    """
    asked = {"job": job, "profile": profile, "stack": stack, "without": without, **fields}
    record = {"model": model, "cluster": cluster, "num_accelerators": num_accelerators, **asked}
    record |= {"fix": fix, "limit": limit, "exclude": exclude}
    how: dict[str, Any] = {"top": top, "simulate_top": simulate_top, "prune": prune, "use_all": use_all}
    return SearchAnswer.of(searched(record, progress=progress, stop=stop, **how))


def estimate(
    model: ModelLike,
    cluster: ClusterLike,
    num_accelerators: int,
    plan: PlanLike,
    *,
    job: Job | Mapping[str, Any] | None = None,
    stack: StackLike = USUAL,
    profile: ProfileLike | None = None,
    **fields: Unpack[JobFields],
) -> PlanAnswer:
    """Predicts one plan: ``estimate("llama-3.1-70b", "dgx-h100", 64, {"tp": 4, "pp": 4}, global_batch_size=128)``.

    A field of ``plan`` that is missing, or at its default in a ``Plan``, takes the framework's default, as on
    the command line; the answer's assumptions say so. The plan of an answer or of a plan file is priced as it is.

    A plan that is valid but does not fit in memory is an answer: ``feasible`` is false and ``reason`` says why.
    ``refusals`` say why the framework ``stack`` cannot run it. Fields of the job are as for :func:`search`. Raises
    ``PlanError`` if the plan breaks a rule, ``InputError`` if the question does.
    """
    record = {"model": model, "cluster": cluster, "num_accelerators": num_accelerators, **fields}
    question, answer = estimated(record | {"job": job, "profile": profile, "stack": stack}, *plan_of(plan))
    return PlanAnswer.of(answer, question)


def export(
    answer: PlanAnswer | SearchAnswer | RlAnswer,
    to: str,
    *,
    pick: int | None = None,
    path: str | os.PathLike[str] | None = None,
    version: str | None = None,
    overwrite: bool = False,
) -> Export:
    """Launch files of a plan for the framework ``to``: ``export(answer, "torchtitan", path="launch.sh")``.

    For a search it exports the recommended plan. For a step of :func:`rl`, ``to`` is verl, nemo-rl or slime, and
    ``pick`` the number of a placement in its table (default: the first). The result holds the texts by file name
    (``files``) and what they do not say (``not_expressed``); with ``path`` they are written, the script there and the
    others next to it. Raises ``NotRunnableError`` if the framework cannot run the plan, ``InputError`` for an unknown
    name, for a model that is not a decoder of attention layers, and for an existing file, unless ``overwrite`` is set.
    """
    from shardplan.api.rl import RlAnswer

    check_kind("answer", answer, PlanAnswer, SearchAnswer, RlAnswer, hint="what estimate, search, load or rl returned")
    where = (
        None if path is None else ExportTarget(os.fspath(path), "path", is_forced=overwrite, forced_by="overwrite=True")
    )
    stem = "launch" if where is None else where.stem
    if isinstance(answer, RlAnswer):
        made = _exported_step(answer, to, pick, version, stem)
    elif pick is None:
        made = _exported_plan(answer, to, version, stem)
    else:
        raise InputError(f"pick is {pick}", rule="pick numbers the placements of an RL step", hint="leave it out")
    if where is not None:
        where.write(made)
    return made


def _exported_plan(answer: PlanAnswer | SearchAnswer, to: str, version: str | None, stem: str) -> Export:
    picked = answer.recommended or answer.fastest if isinstance(answer, SearchAnswer) else answer
    if picked is None:
        raise InputError("no plan of the search fits", rule="a plan is exported", hint="see its suggestions")
    return export_estimate(to, answer.question, picked, version=version, stem=stem)


def _exported_step(answer: RlAnswer, to: str, pick: int | None, version: str | None, stem: str) -> Export:
    from shardplan.rl.launches.export import export_rl

    check_kind("pick", pick, int, type(None), hint="a number of its table, from 1")
    check_kind("to", to, str, hint="verl, nemo-rl or slime")
    if version is not None:
        raise InputError(f"version is {shown(version)}", rule="an RL step has one version each", hint="leave it out")
    return export_rl(answer.to_dict(), to.strip().lower(), pick, stem)


def search_frameworks(
    model: ModelLike,
    cluster: ClusterLike,
    num_accelerators: int,
    *,
    job: Job | Mapping[str, Any] | None = None,
    stacks: Sequence[Stack | str] | None = None,
    fix: Given | None = None,
    limit: Given | None = None,
    exclude: Given | None = None,
    use_all: bool = False,
    profile: ProfileLike | None = None,
    stop: Stop | None = None,
    **fields: Unpack[JobFields],
) -> FrameworkAnswers:
    """The recommended plan of each framework that runs on the accelerator, fastest first; those without one last.

    ``stacks`` are the frameworks, by default the published ones. Other arguments are those of :func:`search`. Raises
    the same errors, except for what a framework cannot run: that is an answer.
    """
    check_kind("stacks", stacks, Sequence, type(None), hint="a list of names or stacks")
    vendor = cluster_of(cluster).accelerator.vendor
    choices = choices_in({"fix": fix, "limit": limit, "exclude": exclude})

    def posed(stack: Stack) -> tuple[Question, tuple[str, ...]]:
        asked = ask(model, cluster, num_accelerators, job=job, profile=profile, stack=stack, **fields)
        return asked.question, asked.restricted(choices).assumptions

    named = published_stacks(vendor) if stacks is None else [_framework(each, vendor) for each in stacks]
    found = answers_of(named, posed, use_all=use_all, stop=stop, **choices)
    lifted = (each if each.result is None else replace(each, result=SearchAnswer.of(each.result)) for each in found)
    return FrameworkAnswers(lifted)


def _framework(stack: Stack | str, vendor: str) -> Stack:
    """The framework called so. Raises InputError."""
    found = stack_for(stack, vendor)
    if found is None:
        raise InputError(
            f"stacks has {shown(stack)}",
            rule="frameworks that are compared are named",
            hint="name one of `shardplan stacks`, or leave stacks out",
        )
    return found
