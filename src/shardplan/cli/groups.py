"""Commands and groups of commands: loaded when used, our errors for unknown names, flags under their titles."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from shardplan.base.errors import MOST_SHOWN, InputError, UnknownNameError, shortened
from shardplan.base.words import folded

SETTINGS: Final[dict[str, Any]] = {"help_option_names": ["--help", "-h"], "max_content_width": 110}
"""Names of the help flag, and the layout of help."""

LONGEST: Final = 300
"""Most characters of the first sentence of a command's help."""
FILES: Final = "examples/"
"""The folder of the files that examples use."""
DETAILS: Final = " in detail"
"""End of the titles of groups of flags that few people need."""
HELP_ALL: Final = "--help-all"


def examples(lines: Sequence[str]) -> str:
    """Examples at the end of a command's help."""
    origin = f" (`shardplan examples` writes {FILES})" if any(FILES in line for line in lines) else ""
    return f"\b\nExamples{origin}:\n" + "\n".join(f"    {line}" for line in lines)


class CommandEntry(NamedTuple):
    """A command that is imported when it is used: help of a group needs only this."""

    summary: str
    """First sentence of its help."""
    examples: tuple[str, ...] = ()
    module: str = ""
    """Its module below ``shardplan.cli``; by default its own name."""
    kind: type[TyperCommand] | None = None
    """Class of the command; by default :class:`PlainCommand`."""


class LazyCommands(MutableMapping[str, Any]):
    """The commands of a group by name; each is imported and built when it is first used."""

    def __init__(self, entries: Mapping[str, CommandEntry], built: MutableMapping[str, Any]) -> None:
        """``built`` are commands that exist already."""
        self.entries, self.built = entries, built

    def __getitem__(self, name: str) -> Any:
        """The command called ``name``."""
        if name not in self.built:
            self.built[name] = _built(name, self.entries[name])
        return self.built[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self.built[name] = command

    def __delitem__(self, name: str) -> None:
        del self.built[name]

    def __iter__(self) -> Iterator[str]:
        """Names in the order of the entries, then those without an entry."""
        yield from self.entries
        yield from (name for name in self.built if name not in self.entries)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _built(name: str, entry: CommandEntry) -> Any:
    """The command of an entry."""
    module = import_module(f"shardplan.cli.{entry.module or name}")
    if hasattr(module, "app"):  # a group
        group = typer.main.get_command(module.app)
        group.name = name
        return group
    one = typer.Typer(rich_markup_mode=None, add_completion=False)
    one.command(name, cls=entry.kind or PlainCommand, epilog=examples(entry.examples))(getattr(module, name))
    return typer.main.get_command(one)


class CommandGroup(TyperGroup):
    """A group of commands that suggests what an unknown name may have meant."""

    ENTRIES: Mapping[str, CommandEntry] = {}
    """The commands, in the order of the reference."""
    TITLES: Mapping[str, tuple[str, ...]] = {}
    """The commands under each title of the help; without titles, all under one."""

    OTHERWISE: Mapping[str, str] = {}
    """Commands by other words that people type, folded."""
    RENAMED: Mapping[str, str] = {}
    """Commands by a former name, which still works but is not listed."""

    def __init__(self, **settings: Any) -> None:
        """Like typer's."""
        super().__init__(**settings)
        self.commands = LazyCommands(self.ENTRIES, self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  # of the method that it replaces
        """Names and summaries, without importing a command."""
        if not self.ENTRIES:
            with formatter.section("Commands"):
                shown = [(name, each) for name, each in self.commands.items() if not each.hidden]
                formatter.write_dl([(name, each.get_short_help_str(LONGEST)) for name, each in shown])
            return
        widest = max(map(len, self.ENTRIES))
        for title, names in (self.TITLES or {"Commands": tuple(self.ENTRIES)}).items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), self.ENTRIES[name].summary) for name in names])

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Like typer's; texts are read as they are."""
        _read_plainly(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Like typer's, with former names, and our error for an unknown name."""
        args = [self.RENAMED.get(args[0], args[0]), *args[1:]] if args else args
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            shown = [name for name, command in self.commands.items() if not command.hidden]
            group = "" if ctx.parent is None else f" {ctx.info_name}"
            usage, meant = f"see `shardplan{group} --help`", self.OTHERWISE.get(folded(args[0]))
            if meant is None:
                raise UnknownNameError("command", args[0][:100], shown, hint=usage)
            said = f"did you mean `shardplan {meant}`?"
            raise InputError(
                f"unknown command '{args[0][:100]}': {said}", rule="command is known", hint=f"{said} {usage}"
            )
        return super().resolve_command(ctx, args)


class PlainCommand(TyperCommand):
    """A command whose help groups its flags, and never truncates their names."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Like typer's; texts are read as they are, and ``--help-all`` is complete help."""
        _read_plainly(self.get_params(ctx))
        ctx.meta[HELP_ALL] = HELP_ALL in args
        args = ["--help" if arg == HELP_ALL else arg for arg in args]
        _, _, order = self.make_parser(ctx).parse_args(args=[*args])
        check_given_once(order, args)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes arguments and flags under the titles of their groups; rarely needed ones only by name."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        details: dict[str, list[str]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            title = getattr(parameter, "rich_help_panel", None) or f"{parameter.param_type_name.capitalize()}s"
            if _is_detail(parameter) and not ctx.meta.get(HELP_ALL):
                details.setdefault(title.removesuffix(DETAILS), []).append(parameter.opts[0])
            else:
                groups.setdefault(title, []).append(record)
        for title in sorted((name for name in groups if groups[name]), key=lambda title: title == "Options"):
            with formatter.section(title):
                formatter.write_dl(groups[title])
        if details:
            with formatter.section(f"More flags, which {HELP_ALL} explains"):
                _write_names(formatter, details)


def check_given_once(order: Sequence[Any], arguments: Sequence[str]) -> None:
    """Refuses a repeated flag of one value; ``order`` are the parsed parameters in order. Raises InputError.

    Flags that can be repeated take a list; a repeated switch without an opposite means the same.
    """
    for parameter in dict.fromkeys(order):
        if order.count(parameter) == 1 or not _has_one_value(parameter):
            continue
        names = (*parameter.opts, *parameter.secondary_opts)
        given = [*_given(names, arguments)]
        raise InputError(
            f"{parameter.opts[0]} is given {order.count(parameter)} times: {shortened(', '.join(given), MOST_SHOWN)}",
            rule=f"{parameter.opts[0]} is given once",
            hint=f"give {parameter.opts[0]} once; for each of several values run a command of its own",
        )


def _has_one_value(parameter: Any) -> bool:
    if parameter.param_type_name != "option" or parameter.multiple or parameter.count:
        return False
    return not parameter.is_flag or bool(parameter.secondary_opts)


def _given(names: Sequence[str], arguments: Sequence[str]) -> Iterator[str]:
    """What follows each of the names: their values; for a switch the name that was typed."""
    for place, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name in names:
            following = arguments[place + 1 : place + 2]
            yield value if equals else following[0] if following and not following[0].startswith("--") else name


def _write_names(formatter: Any, names: Mapping[str, list[str]]) -> None:
    """Flags by name only, a paragraph for each title; no line breaks inside a name."""
    widest = max(len(title) for title in names)
    for title, flags in names.items():
        lead = " " * formatter.current_indent + title.ljust(widest + 2)
        text = textwrap.fill(
            ", ".join(flags),
            formatter.width,
            initial_indent=lead,
            subsequent_indent=" " * len(lead),
            break_on_hyphens=False,
            break_long_words=False,
        )
        formatter.write(text + "\n")


def _is_detail(parameter: Any) -> bool:
    """Whether few people need a flag."""
    return (getattr(parameter, "rich_help_panel", None) or "").endswith(DETAILS)


class CorrectedCommand(PlainCommand):
    """A command whose ``--corrected`` means all corrections, or takes the names of some."""

    NAMES = re.compile(r"all|none|Q\d+([,+]\s*Q\d+)*", re.IGNORECASE)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Like typer's, which has no flags with an optional value."""
        given = [
            "--corrected=all" if arg == "--corrected" and not self.NAMES.fullmatch(following) else arg
            for arg, following in zip(args, [*args[1:], ""], strict=False)
        ]
        return super().parse_args(ctx, given)


ARGUMENTS: Final = "arguments of the script"
"""Key of the script's arguments in the context of a command."""


class ScriptCommand(PlainCommand):
    """A command on a script; words after ``--`` belong to the script."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Like typer's, which would take those words for files."""
        place = args.index("--") if "--" in args else len(args)
        ctx.meta[ARGUMENTS] = args[place + 1 :]
        return super().parse_args(ctx, args[:place])


def _paths(texts: Iterable[str]) -> list[Path]:
    return [Path(text) for text in texts]


READERS: Final[dict[Any, Callable[[Any], Any]]] = {
    bool: bool,
    str: str,
    Path: Path,
    list[str]: list,
    list[Path]: _paths,
}
"""Readers of a flag's value, by its type."""


def _read_plainly(parameters: Iterable[Any]) -> None:
    """Lets flags read their texts without the validator that typer builds for each: 80 ms for those of a command."""
    for parameter in parameters:
        read = READERS.get(getattr(getattr(parameter, "type_descriptor", None), "annotation", None))
        if read is not None:
            parameter.process_value = _plain_reader(parameter, read)


def _plain_reader(parameter: Any, read: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """A replacement for a parameter's own ``process_value``."""
    validated = type(parameter).process_value

    def process(context: Any, value: Any) -> Any:
        if parameter.required and not value:
            return validated(parameter, context, value)  # it reports what is missing
        value = None if value is None else read(value)
        return value if parameter.callback is None else parameter.callback(context, parameter, value)

    return process
