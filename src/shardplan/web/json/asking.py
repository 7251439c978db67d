"""From bodies to records: every function takes a body, and whether to stop, and answers as ``--json`` does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from shardplan.answers.comparison import compare, comparison_document, sides_of
from shardplan.api.decisions import budget
from shardplan.ask.forms import HOW
from shardplan.ask.names import cluster_of, companions_of_job, model_of, profile_of, stack_of
from shardplan.ask.questions import estimated, searched
from shardplan.ask.rl_forms import RlDecisionForm, RlForm
from shardplan.base.errors import InputError
from shardplan.base.fields import described
from shardplan.base.records import Record
from shardplan.estimation.estimate import Estimate
from shardplan.inputs.plan import Plan
from shardplan.physics.frameworks.usual_stack import USUAL
from shardplan.planner.stopping import check
from shardplan.render.record import document_record
from shardplan.reports.plan_file import PlanFile, plan_file_from_record, plan_file_record
from shardplan.web.workplace import Cancelled

MOST_PASSES: Final = 400_000
"""Forward passes of chunks that one request has simulated: some seconds."""


def plan_answer(body: Any, cancelled: Cancelled) -> Record:
    """The plan file of a search, with what explains it."""
    from shardplan.answers.search import search_document
    from shardplan.reports.explanation import explain

    stated = {"cluster": None} | body.stated()
    how = {name: getattr(body, name) for name in HOW}
    record = {name: value for name, value in stated.items() if name not in how}
    found = searched(record, reads_files=False, stop=cancelled, **how).stating_what_was_not_searched()
    return document_record(search_document(found, explain(found)))


def estimate_answer(body: Any, _cancelled: Cancelled) -> Record:
    """The plan file of one plan."""
    asked = {"cluster": None} | body.stated()
    given = asked.pop("plan")
    question, answer = estimated(asked, Plan(**given), {*given}, reads_files=False)
    return plan_file_record(PlanFile(question=question, estimates=(answer,)))


def compare_answer(body: Any, cancelled: Cancelled) -> Record:
    """Plans side by side."""
    files = []
    for each in body.files:
        check(cancelled)
        files.append(plan_file_from_record(each))
    picks = body.picks
    if picks is not None and len(files) > 1:
        picks = picks * len(files) if len(picks) == 1 else picks
        if len(picks) != len(files):
            raise InputError(
                f"picks has {len(picks)} elements for {len(files)} files",
                rule="picks names one plan for all files, or one for each",
                hint="leave picks out for the recommended ones",
            )
    names = ["file"] if len(files) == 1 else [f"file {number}" for number in range(1, len(files) + 1)]
    return document_record(comparison_document(compare(sides_of(files, names, picks))))


def export_answer(body: Any, _cancelled: Cancelled) -> Record:
    """The launch files of a plan."""
    from shardplan.launch.export.targets import export_estimate
    from shardplan.reports.forms import export_record

    file, estimate_ = _picked(body)
    return export_record(export_estimate(body.to, file.question, estimate_, version=body.version))


def simulate_answer(body: Any, cancelled: Cancelled) -> Record:
    """The simulated step of a plan."""
    from shardplan.answers.timeline import simulated_plan_document
    from shardplan.physics.schedules.registry import load_any_schedule
    from shardplan.simulation.exchanges import Replicas
    from shardplan.simulation.plan import simulate_plan
    from shardplan.simulation.step import Disturbance

    file, estimate_ = _picked(body)
    slow = _by_number(body.slow_replicas)
    simulated = simulate_plan(
        file.question,
        estimate_.plan,
        load_any_schedule((body.schedule or estimate_.plan.effective_schedule).lower()),
        disturbance=Disturbance(jitter=body.jitter, seed=body.seed, slowdown=_by_number(body.slow_ranks)),
        replicas=Replicas(count=body.replicas or (max(*slow, 1) + 1 if slow else 1), slowdown=slow),
        most_passes=MOST_PASSES,
        between=lambda: check(cancelled),
    )
    return document_record(simulated_plan_document(simulated))


def audit_answer(body: Any, cancelled: Cancelled) -> Record:
    """What a launch script runs, and what would be better. It is read in an empty folder: it can name no other file."""
    from shardplan.api.audits import audit

    with alone(body.name, body.text) as file:
        found = audit(
            file,
            model=None if body.model is None else model_of(body.model, reads_files=False),
            cluster=None if body.cluster is None else cluster_of(body.cluster, reads_files=False),
            num_accelerators=body.num_accelerators,
            env=body.env,
            arguments=body.arguments,
            entry=body.entry,
            given=body.given,
            observed=body.observed,
            keep=body.keep,
            stop=cancelled,
        )
        return _without(str(file.parent), found.to_dict())


@contextmanager
def alone(name: str, text: str) -> Iterator[Path]:
    """A file in an empty folder, which no error names."""
    with TemporaryDirectory(prefix="shardplan-") as folder:
        file = Path(folder) / name
        file.write_text(text, encoding="utf-8")
        try:
            yield file
        except InputError as error:
            message, hint = (each.replace(f"{folder}/", "") for each in (error.message, error.hint))
            raise InputError(message, rule=error.rule, hint=hint) from None


def budget_answer(body: Any, cancelled: Cancelled) -> Record:
    """Accelerators, days, money and energy of a run."""
    asked = body.stated()
    replaced = asked.pop("overrides", {})
    clusters = [cluster_of(each, overrides=replaced, reads_files=False) for each in asked.pop("clusters")]
    asked |= {"model": model_of(asked["model"], reads_files=False), "stop": cancelled}
    asked |= {"stack": stack_of(asked.get("stack", USUAL), reads_files=False)}
    asked |= {"profile": profile_of(asked.get("profile"), reads_files=False)}
    companions_of_job({**(asked.get("job") or {}), **asked}.get("companion"), reads_files=False)  # built-in ones alone
    return budget(asked.pop("model"), clusters, **asked).to_dict()


def rl_answer(body: Any, cancelled: Cancelled) -> Record:
    """The best plan of every placement of an RL step."""
    from shardplan.api.rl import planned
    from shardplan.rl.question import RlQuestion, checked_step

    asked = {"cluster": None} | body.stated()
    step, besides = (
        {name: asked.pop(name) for name in described(form) if name in asked} for form in (RlForm, RlDecisionForm)
    )
    sizes = asked["num_accelerators"] if isinstance(asked.get("num_accelerators"), list) else ()
    question = RlQuestion(record=asked, step=checked_step(step), reads_files=False, stop=cancelled)
    return planned(question, besides=besides, sizes=sizes).to_dict()


def _picked(body: Any) -> tuple[PlanFile, Estimate]:
    """A plan file, and the plan of it that is meant. Raises InputError."""
    file = plan_file_from_record(body.file)
    return file, file.pick(body.pick or file.best_pick)


def _by_number(factors: Mapping[str, float] | None) -> dict[int, float]:
    return {int(number): factor for number, factor in (factors or {}).items()}


def _without(folder: str, value: Any) -> Any:
    """A record without the folder in its texts."""
    if isinstance(value, str):
        return value.replace(f"{folder}/", "")
    if isinstance(value, dict):
        return {name: _without(folder, each) for name, each in value.items()}
    return [_without(folder, each) for each in value] if isinstance(value, list) else value
