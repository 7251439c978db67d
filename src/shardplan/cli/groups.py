"""How commands and groups of them behave: unknown names in our words, flags under the titles of their groups."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from typer.core import TyperCommand, TyperGroup

from shardplan.errors import UnknownNameError

SETTINGS: Final[dict[str, Any]] = {"help_option_names": ["--help", "-h"], "max_content_width": 110}
"""How help is asked for and laid out."""


def examples(lines: Iterable[str]) -> str:
    """Examples at the end of a command's help."""
    return "Examples:\n\n\b\n" + "\n".join(f"    {line}" for line in lines)


class Group(TyperGroup):
    """A group of commands that says what a name that is none might have meant."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As typer's, with our words for a name that is none."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            shown = [name for name, command in self.commands.items() if not command.hidden]
            raise UnknownNameError("command", args[0][:100], shown, hint=f"one of {', '.join(shown)}")
        return super().resolve_command(ctx, args)


class Command(TyperCommand):
    """A command whose help groups its flags, and never cuts their names off."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes arguments and flags under the titles of their groups."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                title = getattr(parameter, "rich_help_panel", None) or f"{parameter.param_type_name.capitalize()}s"
                groups.setdefault(title, []).append(record)
        for title in sorted(groups, key=lambda title: title == "Options"):
            if groups[title]:
                with formatter.section(title):
                    formatter.write_dl(groups[title])


class CorrectedCommand(Command):
    """A command whose ``--corrected`` may stand alone, for all corrections, or with the names of some."""

    NAMES = re.compile(r"all|none|Q\d+([,+]\s*Q\d+)*", re.IGNORECASE)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As typer's, which knows no flags whose value may be left out."""
        given = [
            "--corrected=all" if arg == "--corrected" and not self.NAMES.fullmatch(following) else arg
            for arg, following in zip(args, [*args[1:], ""], strict=False)
        ]
        return super().parse_args(ctx, given)
