"""``shardplan serve``: the web app and its JSON API."""

from __future__ import annotations

from typing import Annotated

import typer

from shardplan.cli.flags.option_groups import with_flags
from shardplan.cli.flags.records import FlagsOf, Given, values_of
from shardplan.web.settings import Settings

ServerFlags = Annotated[Given, FlagsOf(Settings, "Server")]
OpenFlag = Annotated[
    bool, typer.Option("--open", help="Open the app in the browser.", rich_help_panel="Server", show_default=False)
]


@with_flags
def serve(*, server: ServerFlags, open_browser: OpenFlag = False) -> int:
    """Serve the web app and its JSON API. Nothing leaves this machine."""
    settings = Settings(**values_of(Settings, server))
    from shardplan.web.serving import run

    return run(settings, open_browser=open_browser)
