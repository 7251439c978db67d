"""One flag of a command."""

from __future__ import annotations

from typing import Any

import typer


def flag(text: str, *names: str, panel: str | None = None, **more: Any) -> Any:
    """A flag with its help; ``panel``: the heading of the help under which it stands. Others as for typer."""
    return typer.Option(*names, help=text, rich_help_panel=panel, **more)
