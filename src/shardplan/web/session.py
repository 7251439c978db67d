"""A session as a file: a plan file that also holds the address of its page, and the uploaded model if there is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

from shardplan.errors import InputError
from shardplan.fields import described
from shardplan.files import parse_json
from shardplan.frameworks.stack import list_stacks
from shardplan.frameworks.usual_stack import ANY
from shardplan.inputs.job import Job
from shardplan.reports.plan_file import PlanFile, plan_file_from_record, plan_file_record
from shardplan.reports.texts.plan import field_text
from shardplan.web.state import PageQuestion, names_of

PAGE: Final = "page"
"""Key of a plan file that only pages read."""


def session_record(question: PageQuestion, file: PlanFile) -> dict[str, Any]:
    """The plan file with its page."""
    return plan_file_record(file) | {PAGE: {"query": question.query(), "config": question.config}}


def session_in(text: str) -> PageQuestion:
    """The question of a session, or of a plan file that the command line wrote. Raises InputError."""
    record = parse_json(text, "the session")
    if not isinstance(record, Mapping):
        raise InputError("the session is not a JSON object", rule="a session is a plan file", hint="open a plan file")
    file = plan_file_from_record(record)
    page = record.get(PAGE)
    if isinstance(page, Mapping) and isinstance(page.get("query"), str):
        config = page.get("config")
        return PageQuestion.of([*parse_qsl(page["query"]), ("config", config if isinstance(config, str) else "")])
    return _of_plan_file(file)


def _of_plan_file(file: PlanFile) -> PageQuestion:
    """The question of a plan file by the names that it holds. Raises InputError for a model or cluster of the user."""
    asked = file.question
    for what, name in (("model", asked.model.name), ("cluster", asked.cluster.name)):
        if name not in names_of(what):
            raise InputError(
                f"the {what} of the plan file, {name[:80]}, is not built in",
                rule="a page puts the question of a plan file by names",
                hint="save the session from its page, or give the model as a config.json",
            )
    framework = next((each.framework for each in file.estimates if each.framework), "")
    return PageQuestion(
        model=asked.model.name,
        cluster=asked.cluster.name,
        gpus=str(asked.num_accelerators),
        stack=next((name for name in list_stacks() if framework.partition(" ")[0] == name), ANY),
        job=_stated(asked.job),
    )


def _stated(job: Job) -> dict[str, str]:
    """Fields of the job that are not at their default."""
    values = {name: getattr(job, name) for name, field in described(Job).items() if getattr(job, name) != field.default}
    return {name: f"{value:.0f}" if name == "tokens" else field_text(value) for name, value in values.items()}
