"""What was written of an export, and what is left to do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shardplan.cli.layout import Page
from shardplan.launch.export.written import Export
from shardplan.words import joined


def show_export(page: Page, made: Export, written: Sequence[Path]) -> None:
    """The files, what a user fills in, and what the files do not say."""
    page.labelled("Written", f"{joined(str(path) for path in written)}, for {made.framework}")
    page.labelled("Fill in", ", ".join(made.placeholders))
    if made.not_expressed:
        page.line("Not expressed:", style="bold")
        page.bullets(made.not_expressed)
    if made.relies_on:
        page.line("Left to the framework's defaults:", style="dim")
        page.bullets(made.relies_on, style="dim")
