"""Pages and fragments from templates. Everything that is put into a template is escaped.

Addresses are written as paths of the app (``/step?...``) and sent relative to the page, so that they hold under any
path of a proxy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import cache, partial
from importlib.metadata import version
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from shardplan.answers.document import Block, Part
from shardplan.answers.plans import band_text
from shardplan.base.errors import ShardplanError
from shardplan.base.fields import described
from shardplan.base.units import format_bytes, format_count, format_rate, format_time
from shardplan.base.version import VERSION
from shardplan.inputs.plan import Plan
from shardplan.render.html import Address, Html, blocks_html
from shardplan.reports.texts.answer import percent, signed_percent
from shardplan.web.pages import VIEWS, View, static_url

HERE: Final = "here"
"""Value of ``answer`` in an address whose page has the answer in it: for browsers without JavaScript."""
TITLES: Final = {
    401: "This server needs its token",
    403: "The request comes from another site",
    404: "There is no such page",
    405: "This address takes no such request",
    408: "The request took too long to arrive",
    413: "That is too much to send",
    422: "This question has no answer yet",
    503: "The server is busy",
    504: "The answer takes too long",
}
"""Of what went wrong, by the status."""
QUANTITIES: Final = {
    "time": format_time,
    "bytes": format_bytes,
    "flops": partial(format_rate, unit="FLOP"),
    "percent": percent,
    "count": format_count,
    "band": band_text,
    "signed": signed_percent,
}
"""Filters of templates that write a number, or the band of an estimate, with its unit."""
UNREADABLE: Final = "The server does not take this request"


@cache
def templates() -> Environment:
    """All templates."""
    found = Environment(
        loader=PackageLoader("shardplan.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.policies["json.dumps_kwargs"] = {"sort_keys": False}
    found.filters |= {"here": _here, "sentence": _sentence, **QUANTITIES}
    address = f"/plotly.min.js?v={version('plotly')}"
    found.globals |= {"static": static_url, "version": VERSION, "plotly": address}
    return found


def _sentence(clause: str) -> str:
    """A clause of an error with a capital; a name, such as llama-3.1-70b, tp=4 or tp, stays as it is written."""
    first = clause.partition(" ")[0]
    return clause[:1].upper() + clause[1:] if first.isalpha() and first not in described(Plan) else clause


@pass_context
def _here(context: Context, address: str) -> str:
    """An address from the page that is made: a page of an error may lie deeper than all others."""
    return str(context.get("root", "")) + relative(address)


def relative(address: str) -> str:
    """An address of the app from its pages, which all lie next to one another. Others stay as they are."""
    if not address.startswith("/"):
        return address
    rest = address[1:]
    return rest if rest and not rest.startswith(("?", "#")) else f"./{rest}"


def is_in_page(request: Request) -> bool:
    """Whether the answer is part of the page."""
    return request.query_params.get("answer") == HERE


async def page(
    request: Request, view: View, template: str, answer: Callable[[Request], Awaitable[Response]], **context: Any
) -> HTMLResponse:
    """The whole page of ``view``: navigation, form and the place of the answer.

    Scripts load ``answer`` into it. A browser without them asks for the page with the answer in it.
    """
    shown: dict[str, Any] = {}
    if is_in_page(request):
        try:
            shown = {"answer": _html(await answer(request))}
        except ShardplanError as error:
            status = 422
            panel = fragment(request, "error.html", status=status, **problem_context(error, status))
            shown = {"answer": _html(panel), "status": status}
    return fragment(request, template, view=view, views=VIEWS, **shown, **context)


async def parts(request: Request, **functions: Callable[[Request], Awaitable[Response]]) -> dict[str, Html]:
    """Pieces of an answer that scripts load later, where the answer is part of the page; otherwise empty ones."""
    if not is_in_page(request):
        return dict.fromkeys(functions, Html())
    return {name: _html(await function(request)) for name, function in functions.items()}


def html_of(blocks: Sequence[Block], address: Address | None = None) -> Html:
    """Blocks of a document for a template. ``address``: of the rows of tables."""
    return blocks_html(blocks, address and (lambda row: relative(address(row))))


def shown_parts(parts: Iterable[Part], address: Address | None = None) -> list[tuple[Part, Html]]:
    """Parts of a document with their HTML, but for those that a page does not show."""
    return [(each, html) for each in parts if (html := html_of(each.blocks, address))]


def _html(response: Response) -> Html:
    return Html(bytes(response.body).decode())


def fragment(
    request: Request, template: str, *, status: int = 200, address: str | None = None, **context: Any
) -> HTMLResponse:
    """A piece of a page. ``address``: the page's address that the browser shows from now on."""
    text = templates().get_template(template).render(request=request, **context)
    headers = {} if address is None else {"HX-Replace-Url": relative(address)}
    return HTMLResponse(text, status_code=status, headers={"Cache-Control": "no-store", **headers})


def problem_panel(request: Request, error: ShardplanError, status: int) -> HTMLResponse:
    """What went wrong, and the next step: a panel for a page that is open, otherwise a page."""
    context = problem_context(error, status)
    if "hx-request" in request.headers:
        return fragment(request, "error.html", status=status, **context)
    path = request.scope["path"]
    view = next((each for each in VIEWS if path.startswith(each.path) and each.path != "/"), VIEWS[0])
    root = "../" * (path.count("/") - 1)
    return fragment(request, "problem.html", status=status, view=view, views=VIEWS, root=root, **context)


def problem_context(error: ShardplanError, code: int) -> dict[str, Any]:
    """What the template of a problem needs."""
    from shardplan.web.pages.form import fixes

    return {"error": error, "code": code, "title": TITLES.get(code, UNREADABLE), "fixes": fixes(error)}
