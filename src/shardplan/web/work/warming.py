"""What the first questions need, fetched while nobody waits: modules, tables, and the code that answers."""

from __future__ import annotations

from functools import cache
from threading import Thread


@cache
def warm_up(*, has_pages: bool) -> Thread:
    """Starts to fetch it, in a thread of its own; once in a process."""
    thread = Thread(target=_fetch, args=(has_pages,), name="shardplan-warming", daemon=True)
    thread.start()
    return thread


def _fetch(has_pages: bool) -> None:  # noqa: FBT001  # an argument of a thread
    """What is asked for first comes first."""
    if has_pages:
        _first_page()
        import shardplan.web.pages.plan_answers  # noqa: F401  # imported ahead of the first question
    from shardplan.api.calls import search
    from shardplan.reports.explanation import explain, explained_record
    from shardplan.web.json import asking  # noqa: F401  # imported ahead of the first question
    from shardplan.web.json.document import document_of

    found = search("llama-3.1-70b", "dgx-h100", 256, top=3)
    explained_record(found, explain(found))
    if has_pages:
        _other_pages()
    document_of()


def _first_page() -> None:
    from shardplan.web.pages.form import form_context
    from shardplan.web.pages.rendering import templates

    templates().get_template("plan.html")
    form_context()


def _other_pages() -> None:
    from shardplan.web.pages import routes_of
    from shardplan.web.pages.view import VIEWS

    for view in VIEWS:
        routes_of(view)
