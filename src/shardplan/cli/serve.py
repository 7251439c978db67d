"""``shardplan serve``: the web app and its JSON API."""

from __future__ import annotations

import sys
from typing import Annotated, Any

from shardplan.base.errors import InputError
from shardplan.base.fields import FieldsOf, Given
from shardplan.cli.flags import flag, with_flags
from shardplan.inputs.readers.typed import values_of
from shardplan.web.settings import ServerSettings

ServerFlags = Annotated[Given, FieldsOf(ServerSettings, "Server")]
OpenFlag = Annotated[bool, flag("Open the app in the browser.", "--open", panel="Server", show_default=False)]


@with_flags
def serve(*, server: ServerFlags, open_it: OpenFlag = False) -> int:
    """Serve the web app and its JSON API. Nothing leaves this machine.

    Only programs on this machine can reach it. Another address, such as --host 0.0.0.0, needs a token: that of --token
    or SHARDPLAN_TOKEN, or one that is made and printed. Ctrl-C ends it.
    """
    settings = ServerSettings(**values_of(ServerSettings, server))
    serving = _serving()
    what = "JSON API" if settings.api_only else "app"

    def ready(shown: str, address: str) -> None:
        sys.stdout.write(f"The {what} is at {shown} (Ctrl-C ends it).\n")
        sys.stdout.flush()
        if open_it:
            serving.open_browser(address)

    return int(serving.run(settings, ready=ready))


def _serving() -> Any:
    """The server. Raises InputError if its libraries are not installed."""
    try:
        from shardplan.web import serving
    except ModuleNotFoundError as error:
        raise InputError(
            f"{error.name} is not installed",
            rule="the web app has libraries of its own",
            hint="pip install 'shardplan[ui]'",
        ) from None
    return serving
