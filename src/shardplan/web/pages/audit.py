"""Audit: what a launch script runs, which rules it breaks, and what would be better."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from shardplan.errors import InputError
from shardplan.fields import dataclass
from shardplan.inputs.readers.typed import whole
from shardplan.web.pages.rendering import fragment, page
from shardplan.web.pages.view import AUDIT as VIEW
from shardplan.web.state import BOTH, MOST_ACCELERATORS, PageQuestion, named, names_of
from shardplan.web.work.answering import answer as answered
from shardplan.web.work.workplace import Cancelled

MOST_TEXT: Final = 500_000
"""Characters of a script."""
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


async def whole_page(request: Request) -> HTMLResponse:
    """The page, with an example to begin with."""
    return await page(request, VIEW, "audit.html", answer, script=await _script(request), clusters=names_of("cluster"))


async def _script(request: Request) -> PastedScript:
    """What is sent, or the example. Raises InputError."""
    if request.method == "POST":
        return PastedScript.of((await request.body()).decode("utf-8", errors="replace"))
    from shardplan.files import example_files

    question = PageQuestion.of(request.query_params.multi_items())
    cluster = request.query_params.get("audit_cluster", question.cluster)
    return PastedScript(text=example_files()[EXAMPLE].decode(), cluster=cluster, env={}, given={})


async def answer(request: Request) -> HTMLResponse:
    """The audit."""
    script = await _script(request)
    if not script.text.strip():
        return fragment(request, "audit_empty.html")
    shown = await answered(request, lambda cancelled: _audited(script, cancelled), key=("audit", repr(script)))
    return fragment(request, "audit_answer.html", script=script, models=names_of("model"), **shown)


def _audited(script: PastedScript, cancelled: Cancelled) -> dict[str, Any]:
    """What the template shows. The script is read in an empty folder: it can name no other file. Raises InputError."""
    from shardplan.api.audits import audit
    from shardplan.web.pages.audit_texts import audit_texts

    count = script.num_accelerators
    with TemporaryDirectory(prefix="shardplan-") as folder:
        file = Path(folder) / script.name
        file.write_text(script.text, encoding="utf-8")
        try:
            found = audit(
                file,
                model=named("model", script.model) if script.model else None,
                cluster=named("cluster", script.cluster) if script.cluster else None,
                num_accelerators=whole(count, "--gpus", most=MOST_ACCELERATORS) if count else None,
                env=script.env,
                given=script.given,
                stop=cancelled,
                observed=[each.strip() for each in script.observed.split(",") if each.strip()],
            )
        except InputError as error:
            raise InputError(
                error.message.replace(f"{folder}/", ""), rule=error.rule, hint=error.hint.replace(f"{folder}/", "")
            ) from None
        return audit_texts(found, script, folder)


ROUTES: Final = (
    Route("/audit", whole_page, methods=BOTH),
    Route("/audit/answer", answer, methods=["POST"]),
)
