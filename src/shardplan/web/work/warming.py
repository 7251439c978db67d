"""What the first questions need, fetched while nobody waits: modules, tables, and the code that answers."""

from __future__ import annotations

from functools import cache
from threading import Thread


@cache
def warm_up() -> Thread:
    """Starts to fetch it, in a thread of its own; once in a process."""
    thread = Thread(target=_fetch, name="shardplan-warming", daemon=True)
    thread.start()
    return thread


def _fetch() -> None:
    from shardplan.api.calls import search
    from shardplan.reports.explanation import explain, explained_record
    from shardplan.web.json import asking  # noqa: F401  # imported ahead of the first question
    from shardplan.web.json.document import document_of

    found = search("llama-3.1-70b", "dgx-h100", 256, top=3)
    explained_record(found, explain(found))
    document_of()
