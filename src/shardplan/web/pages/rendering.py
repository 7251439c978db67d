"""Pages and fragments from templates. Everything that is put into a template is escaped."""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from shardplan.version import VERSION
from shardplan.web.pages.view import View

STATIC: Final = Path(__file__).parents[1] / "static"


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
    found.globals["static"] = static_url
    found.globals["version"] = VERSION
    found.globals["plotly"] = f"/plotly.min.js?v={version('plotly')}"
    return found


@cache
def static_url(name: str) -> str:
    """Address of a file of ours, which changes with its content, so that a browser may keep it for ever."""
    path = STATIC / name
    content = path.read_bytes() if path.is_file() else b""
    return f"/static/{name}?v={blake2b(content + VERSION.encode(), digest_size=6).hexdigest()}"


def page(request: Request, view: View, template: str, *, status: int = 200, **context: Any) -> HTMLResponse:
    """The whole page of ``view``: navigation, form and the place of the answer."""
    return fragment(request, template, status=status, view=view, views=request.app.state.views, **context)


def fragment(
    request: Request, template: str, *, status: int = 200, address: str | None = None, **context: Any
) -> HTMLResponse:
    """A piece of a page. ``address``: the page's address that the browser shows from now on."""
    text = templates().get_template(template).render(request=request, **context)
    headers = {} if address is None else {"HX-Replace-Url": address}
    return HTMLResponse(text, status_code=status, headers={"Cache-Control": "no-store", **headers})
