"""The OpenAPI document describes what the server does: random requests of its schemas, and some that break them.

``SHARDPLAN_FUZZ=100000`` asks for more of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import CHECKS, load_all_checks
from tests.web.conftest import serving

from shardplan.web.json.document import document_of
from shardplan.web.settings import ServerSettings

FUZZ = int(os.environ.get("SHARDPLAN_FUZZ", "0"))
EXAMPLES = max(4, FUZZ // 100)

load_all_checks()
WANTED = [CHECKS.get_one(name) for name in (
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance",
)]  # fmt: skip
schema = schemathesis.openapi.from_dict(document_of())
schema.config.phases.coverage.enabled = FUZZ > 0  # every bound of every field: minutes


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving(ServerSettings(api_only=True, time_limit=5.0)) as served:
        yield f"http://localhost:{served.port}"


@schema.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
def test_requests_of_the_schemas_get_answers_of_the_schemas(case: Any, address: str) -> None:
    case.call_and_validate(base_url=address, checks=WANTED)


def _references(value: Any) -> Iterator[str]:
    """All references in a document."""
    if isinstance(value, dict):
        yield from (value["$ref"],) if isinstance(value.get("$ref"), str) else ()
        for each in value.values():
            yield from _references(each)
    elif isinstance(value, list):
        for each in value:
            yield from _references(each)


def test_the_document_is_whole() -> None:
    document = document_of()
    for reference in _references(document):
        found = document
        for part in reference.removeprefix("#/").split("/"):
            found = found[part]
    names = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("path", sorted(document_of()["paths"]))
def test_every_path_has_a_summary_and_says_how_it_answers(path: str) -> None:
    for operation in document_of()["paths"][path].values():
        assert operation["summary"].endswith(".")
        assert "200" in operation["responses"]
