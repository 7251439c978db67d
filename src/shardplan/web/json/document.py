"""The OpenAPI document: paths from the tasks, schemas from the bodies and from the readers of our own files."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from shardplan.base.records import Record
from shardplan.base.version import VERSION
from shardplan.web.json.routes import CATALOGUES, PLAN_FILE, TASKS, Task

REFERENCE: Final = "#/components/schemas/{model}"
ABOUT: Final = (
    "Plans the distributed training of large transformer models. Answers are the records that the command line writes "
    "with --json; units are in the keys. Where the server has a token, requests bring it as a bearer token."
)
ERROR: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["rule", "message", "hint"],
            "properties": {
                "rule": {"type": "string", "description": "What was broken."},
                "message": {"type": "string", "description": "With the values."},
                "hint": {"type": "string", "description": "What to do."},
            },
        }
    },
}
REFUSALS: Final = {
    "400": "The request is malformed, or comes from another site.",
    "401": "The token is missing or wrong.",
    "403": "The request comes from a page of another site.",
    "404": "There is no such path or name.",
    "408": "The request did not arrive in time.",
    "413": "The body is too large.",
    "415": "The body is not said to be JSON.",
    "422": "The question cannot be answered as it is.",
    "503": "The server has more questions than it can answer; Retry-After says when to ask again.",
    "504": "The answer took longer than this server allows.",
}


@cache
def document_of(root_path: str = "") -> Record:
    """The document. ``root_path``: under which a proxy serves the app."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "shardplan", "version": VERSION, "description": ABOUT, "license": {"name": "Apache-2.0"}},
        "servers": [{"url": root_path or "/"}],
        "paths": {**_catalogues(), **{f"/api/{task.name}": {"post": _post(task)} for task in TASKS}, **_health()},
        "components": {
            "schemas": _schemas(),
            "responses": {f"Error{status}": _error(text) for status, text in REFUSALS.items()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _post(task: Task) -> Record:
    content: Record = {"schema": _reference(task.body.__name__)}
    if task.example is not None:
        content["examples"] = {"example": {"value": dict(task.example)}}
    return {
        "operationId": task.name,
        "summary": task.summary,
        "requestBody": {"required": True, "content": {"application/json": content}},
        "responses": {"200": _answer(*map(_answer_name, (task.schema, *task.also))), **_refusals()},
    }


def _catalogues() -> Record:
    paths: Record = {}
    for each in CATALOGUES:
        paths[f"/api/{each.name}"] = {
            "get": {
                "operationId": f"list_{each.name}",
                "summary": f"List the {each.summary}.",
                "responses": {"200": _answer(_answer_name(f"{each.name}/1")), **_refusals("422")},
            }
        }
        paths[f"/api/{each.name}/{{name}}"] = {
            "get": {
                "operationId": f"show_{each.one}",
                "summary": f"Show one of the {each.summary}, with every value.",
                "parameters": [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}],
                "responses": {"200": _answer(_answer_name(f"{each.one}/1")), **_refusals()},
            }
        }
    return paths


def _health() -> Record:
    schema = {
        "type": "object",
        "required": ["status", "version"],
        "properties": {"status": {"const": "ok"}, "version": {"type": "string"}},
    }
    ok = {"description": "The server is up.", "content": {"application/json": {"schema": schema}}}
    return {
        "/healthz": {
            "get": {
                "operationId": "healthz",
                "summary": "Say that the server is up.",
                "responses": {"200": ok, **_refusals("401", "404", "413", "415", "422", "503", "504")},
            }
        }
    }


def _refusals(*without: str) -> Record:
    return {status: {"$ref": f"#/components/responses/Error{status}"} for status in REFUSALS if status not in without}


def _error(text: str) -> Record:
    return {"description": text, "content": {"application/json": {"schema": _reference("Error")}}}


def _answer(*names: str) -> Record:
    """The response with one of several answers."""
    known = [_reference(name) for name in names]
    schema: Record = known[0] if len(known) == 1 else {"anyOf": known}
    return {"description": "The answer.", "content": {"application/json": {"schema": schema}}}


def _reference(name: str) -> Record:
    return {"$ref": REFERENCE.format(model=name)}


def _answer_name(schema: str) -> str:
    """Name of a schema among the components: ``PlanFile``, ``Comparison``."""
    return "".join(part.capitalize() for part in schema.partition("/")[0].split("-"))


def _schemas() -> Mapping[str, Any]:
    """Bodies with what they hold, and answers."""
    from pydantic.json_schema import models_json_schema

    from shardplan.reports.plan_file_schema import schema_of_files

    models: Any = [(task.body, "validation") for task in TASKS]
    _, found = models_json_schema(models, ref_template=REFERENCE)
    known = {schema for task in TASKS for schema in (task.schema, *task.also)}
    kinds = known | {f"{name}/1" for each in CATALOGUES for name in (each.name, each.one)}
    answers = {_answer_name(kind): _record(kind) for kind in sorted(kinds - {PLAN_FILE})}
    file = schema_of_files().model_json_schema(ref_template=REFERENCE)
    return {**answers, **found["$defs"], **file.pop("$defs", {}), "PlanFile": file, "Error": ERROR}


def _record(schema: str) -> Record:
    """An answer whose keys docs/output.md lists."""
    return {
        "type": "object",
        "description": f"The record `shardplan/{schema}`; the documentation of --json lists its keys.",
        "required": ["schema"],
        "properties": {"schema": {"const": f"shardplan/{schema}"}},
    }
