"""Audit: what a pasted launch script runs, which rules it breaks, and what would be better."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from shardplan.answers.audit import assumed_texts, change_texts, read_parts, what_runs
from shardplan.answers.document import AnswerDocument
from shardplan.answers.sections import observed_part
from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass
from shardplan.inputs.readers.typed import whole
from shardplan.launch.audit.answer import Audit
from shardplan.launch.dialects.reading import Taken
from shardplan.render.html import Html, assumed_html
from shardplan.reports.texts.plan import field_text
from shardplan.reports.truth import truth_of
from shardplan.web.decisions import asked_of
from shardplan.web.decisions import shown as shown_document
from shardplan.web.json.asking import alone
from shardplan.web.pages import AUDIT as VIEW
from shardplan.web.pages.rendering import fragment, html_of, page, shown_parts
from shardplan.web.panels import shown_plan
from shardplan.web.settings import MOST_TEXT
from shardplan.web.state import BOTH, MOST_ACCELERATORS, PageQuestion, named, names_of
from shardplan.web.verdict import truth_shown
from shardplan.web.workplace import Cancelled
from shardplan.web.workplace import answer as answered

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
    from shardplan.base.files import example_files

    question = PageQuestion.of(request.query_params.multi_items())
    cluster = request.query_params.get("audit_cluster", question.cluster)
    return PastedScript(text=example_files()[EXAMPLE].decode(), cluster=cluster, env={}, given={})


async def answer(request: Request) -> HTMLResponse:
    """The audit."""
    script = await _script(request)
    if not script.text.strip():
        return fragment(request, "audit_empty.html")
    shown = await answered(request, lambda cancelled: _audited(script, cancelled), key=("audit", repr(script)))
    template = "audit_rl_answer.html" if "fits" in shown else "audit_answer.html"
    return fragment(request, template, script=script, models=names_of("model"), **shown)


def _audited(script: PastedScript, cancelled: Cancelled) -> dict[str, Any]:
    """What the template shows. The script is read in an empty folder: it can name no other file. Raises InputError."""
    from shardplan.api.audits import AuditAnswer, audit
    from shardplan.rl.launches.audit import OpenStepError

    count = script.num_accelerators
    with alone(script.name, script.text) as file:
        try:
            found = audit(
                file,
                root=file.parent,
                model=named("model", script.model) if script.model else None,
                cluster=named("cluster", script.cluster) if script.cluster else None,
                num_accelerators=whole(count, "--gpus", most=MOST_ACCELERATORS) if count else None,
                env=script.env,
                given=script.given,
                stop=cancelled,
                observed=[each.strip() for each in script.observed.split(",") if each.strip()],
            )
        except OpenStepError as error:
            return rl_texts(None, script, {"needs": [*_needs(dict(error.needs))], "framework": error.framework})
        if not isinstance(found, AuditAnswer):
            found.launch.facts.file = script.name  # not its path, which is the server's
            return rl_texts(found.document(is_whole=True), script, {"needs": [*_needs(_taken(found.taken))]})
        return audit_texts(found, script, str(file.parent))


ROUTES: Final = (
    Route("/audit", whole_page, methods=BOTH),
    Route("/audit/answer", answer, methods=["POST"]),
)

FLAG: Final = re.compile(r"\s*\(--[^)]*\)|: --\S+")
"""Flags of the command line in what is missing; a page has fields."""
VARIABLE: Final = re.compile(r"env:([A-Za-z_]\w*)")
SEVERITIES: Final = {"stops": "Stops the run", "changes": "Changed silently", "notice": "Has no effect"}
FIELDS: Final = {"model": "audit_model", "num_accelerators": "audit_gpus", "cluster": "audit_cluster"}


def audit_texts(audit: Audit, script: PastedScript, folder: str) -> dict[str, Any]:
    """All of it. ``folder``: where the script was read, which no text names."""
    reading, posed = audit.reading, audit.posed
    read, question = read_parts(audit), posed.question
    estimate = None if question is None else audit.estimate
    return {
        "framework": f"{reading.framework} {reading.version}".strip(),
        "runs": audit.runs,
        "is_complete": not posed.missing,
        "what_runs": html_of(what_runs(audit)[1:]),
        "needs": [*_needs({**posed.missing, **_taken(audit.taken)})],
        "told": [*_told(script)],
        "violations": audit.violations,
        "severities": SEVERITIES,
        "shown": None if estimate is None else shown_plan(estimate),
        "truth": None if estimate is None or question is None else truth_shown(truth_of(question, estimate)),
        "improvements": [(each, change_texts(each)) for each in audit.improvements],
        "observed": [(part.note, html_of(part.blocks)) for part in map(observed_part, audit.observed)],
        "read": [(each, Html(html.replace(f"{folder}/", ""))) for each, html in shown_parts(read)],
        "assumed": assumed_html(assumed_texts(audit)),
    }


def _taken(taken: Taken) -> dict[str, str]:
    """What was taken for what is open, as what is asked for."""
    return {key: f"{field_text(value)} is assumed: {why}" for key, (value, why) in taken.items()}


def rl_texts(document: AnswerDocument | None, script: PastedScript, others: dict[str, Any]) -> dict[str, Any]:
    """What is shown of a launch file of post-training; no document where values are missing."""
    texts = {"told": [*_told(script)], "is_complete": document is not None, "fits": False, **others}
    if document is None:
        return texts
    own = {"fits": document.is_yes, "tone": "good" if document.is_yes else "bad"}
    return {**texts, **shown_document(document), **asked_of(document), **own}


def _words(key: str) -> str:
    return key.replace("_", " ")


def _needs(missing: dict[str, str]) -> Iterator[dict[str, str]]:
    """A field for everything that must be given; what follows from other missing values needs none."""
    asked: set[str] = set()
    for key, why in missing.items():
        variables = VARIABLE.findall(why)
        text = FLAG.sub("", why)
        if key in FIELDS and not variables:
            yield {"name": FIELDS[key], "label": _words(key).capitalize(), "why": text, "kind": key}
        for name in variables:
            if name not in asked:
                asked.add(name)
                yield {
                    "name": f"{ENV}{name}",
                    "label": f"Environment variable {name}",
                    "why": f"decides {_words(key)}",
                    "kind": "env",
                }
        if key not in FIELDS and not variables and why not in missing:
            yield {"name": f"{GIVEN}{key}", "label": _words(key).capitalize(), "why": text, "kind": "given"}


def _told(script: PastedScript) -> Iterator[dict[str, str]]:
    """Fields that the visitor has filled, which stay."""
    for name, value, label in (
        ("audit_model", script.model, "Model"),
        ("audit_gpus", script.num_accelerators, "Num accelerators"),
    ):
        if value:
            yield {"name": name, "value": value, "label": label}
    for name, value in script.env.items():
        yield {"name": f"{ENV}{name}", "value": value, "label": f"Environment variable {name}"}
    for name, value in script.given.items():
        yield {"name": f"{GIVEN}{name}", "value": value, "label": _words(name).capitalize()}
