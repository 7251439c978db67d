"""Flags of commands: typer's options derive from the fields of forms and records among a command's parameters.

Flags of questions are declared in :mod:`shardplan.ask.forms`, those of files and output here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields, is_dataclass
from functools import cached_property, update_wrapper
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, get_type_hints

import typer

from shardplan.base.fields import Described, FieldOf, FieldsOf, asked, dataclass, described, switch
from shardplan.base.outputs import JSON, JsonTarget, OwnFile
from shardplan.base.words import switch_word
from shardplan.cli.groups import DETAILS
from shardplan.inputs.readers.typed import values_of

if TYPE_CHECKING:
    from shardplan.answers.estimate import AnswerDetail

MOST_STAGE: Final = 2**20
METAVARS: Final = {int: "N", float: "N", tuple: "N,N,..."}


def flag(text: str, *names: str, panel: str | None = None, **more: Any) -> Any:
    """A flag with its help; ``panel`` is its heading in the help. Other arguments are typer's."""
    return typer.Option(*names, help=text, rich_help_panel=panel, **more)


def with_flags(command: Callable[..., int]) -> Callable[..., int]:
    """A command with one option for each field of the forms among its parameters.

    A form is a dataclass; the command gets one with the given values, with numbers parsed. Fields of a record
    (``FieldsOf``) stay as they were typed.
    """
    return _Command(command)


class _Command:
    """A command whose options are made when typer asks for them, since only one command of a file is used."""

    def __init__(self, command: Callable[..., int]) -> None:
        update_wrapper(self, command)
        self.command = command

    @cached_property
    def parts(self) -> dict[str, _Part]:
        """Its parameters."""
        parameters = inspect.signature(self.command).parameters
        return _parts(self.command, {name: parameter.default for name, parameter in parameters.items()})

    @cached_property
    def __signature__(self) -> inspect.Signature:
        """The signature that typer reads."""
        options = [option for part in self.parts.values() for option in part.options]
        self.__annotations__ = {option.name: option.annotation for option in options}
        return inspect.Signature(options, return_annotation=int)

    def __call__(self, **given: Any) -> int:
        """Runs the command."""
        return self.command(**{name: part.take(given) for name, part in self.parts.items()})


class _Part(NamedTuple):
    """A parameter of a command, or a field of a form."""

    options: list[inspect.Parameter]
    take: Callable[[dict[str, Any]], Any]
    """Takes its value from those of the options."""


def _parts(owner: Any, defaults: dict[str, Any]) -> dict[str, _Part]:
    """The parameters of a command, or the fields of a form, by name."""
    hints = get_type_hints(owner, include_extras=True)
    known = described(owner) if isinstance(owner, type) else {}
    return {
        name: _field_part(name, known[name], owner) if name in known else _part(name, hints[name], default)
        for name, default in defaults.items()
    }


def _part(name: str, hint: Any, default: Any) -> _Part:
    """A single option, the fields of a record, or a form, which may hold forms."""
    marks = getattr(hint, "__metadata__", ())
    record = next((each for each in marks if isinstance(each, FieldsOf)), None)
    if record is not None:
        return _record_part(record)
    field = next((each for each in marks if isinstance(each, FieldOf)), None)
    if field is not None:
        return _field_part(name, described(field.form)[field.name], field.form)
    if is_dataclass(hint):
        empty = inspect.Parameter.empty
        parts = _parts(hint, {each.name: empty if each.default is MISSING else each.default for each in fields(hint)})
        options = [option for part in parts.values() for option in part.options]
        return _Part(options, lambda given: hint(**{field: part.take(given) for field, part in parts.items()}))  # type: ignore[operator]  # a class
    option = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)
    return _Part([option], lambda given: given.pop(name))


def _record_part(record: FieldsOf) -> _Part:
    """The given fields of a record, as they were typed."""
    known = described(record.record)

    def take(given: dict[str, Any]) -> dict[str, Any]:
        taken = {name: given.pop(name) for name in known}
        return {name: value for name, value in taken.items() if value is not None}

    return _Part([_option(name, field, record.title) for name, field in known.items()], take)


def _field_part(name: str, field: Described, form: type[Any]) -> _Part:
    """A field of a form with its parsed value, or its default."""

    def take(given: dict[str, Any]) -> Any:
        value = given.pop(name)
        return field.default if value is None else values_of(form, {field.name: value})[field.name]

    return _Part([_option(name, field, "")], take)


def _option(name: str, field: Described, title: str) -> inspect.Parameter:
    """The typer parameter for a field: help, default, choices and completion."""
    about = field.about
    kind: Any = {bool: bool, list: list[str], Path: Path}.get(field.kind.base, str)
    more: dict[str, Any] = {"help": help_of(field), "show_default": False}
    metavar = about.metavar or ("NAME" if field.kind.choices else METAVARS.get(field.kind.base))
    more |= {} if metavar is None else {"metavar": metavar}
    completion = listed_by(*about.completes) if about.completes else one_of(field.kind.choices)
    more |= {"autocompletion": completion} if about.completes or field.kind.choices else {}
    if about.is_argument:
        made = typer.Argument(**more)
    else:
        panel = (about.panel or title) + DETAILS * about.is_rare
        names = about.flags or (() if about.has_opposite else (field.flag,))
        made = typer.Option(*names, rich_help_panel=panel or None, **more)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, made]
    )


def help_of(field: Described) -> str:
    """The help of a field, with its choices and its default."""
    text, names, default = field.about.help, field.kind.choices, field.default
    choices = f" {', '.join(names[:-1])} or {names[-1]}." if names and text.endswith(":") else ""
    if default is None or default is MISSING or not field.about.has_opposite or "Default:" in text:
        return text + choices
    return f"{text}{choices} [default: {switch_word(default)}]"


def one_of(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Completion with these names."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def listed_by(module: str, function: str) -> Callable[[str], list[str]]:
    """Completion with the names that a function of a module lists; it is imported only when needed."""

    def complete(incomplete: str) -> list[str]:
        return one_of(getattr(import_module(f"shardplan.{module}"), function)())(incomplete)

    return complete


@dataclass(frozen=True, kw_only=True)
class DetailFlags:
    """How much of the answer is printed."""

    PANEL = "Output"

    explain: bool = switch("Also print reasons: limits, alternatives, nearest runs.")
    assumptions: bool = switch("Also print all assumptions.")
    all: bool = switch("Print everything.")

    @property
    def explains(self) -> bool:
        """Whether the reasons are printed."""
        return self.explain or self.all

    @property
    def states_assumptions(self) -> bool:
        """Whether the assumptions are printed."""
        return self.assumptions or self.all

    def of_answer(self, more: PlanDetailFlags | None = None) -> AnswerDetail:
        """How much an answer says about its plan."""
        from shardplan.answers.estimate import AnswerDetail

        of_plan = () if more is None else (more.stage, more.layout)
        return AnswerDetail(self.explains, self.states_assumptions, *of_plan)


@dataclass(frozen=True, kw_only=True)
class PlanDetailFlags:
    """More about a plan: one pipeline stage tensor by tensor, and where its ranks are."""

    PANEL = "Output"

    stage: int | None = asked(
        "Also print what is in memory at the peak of this pipeline stage, from 0; --explain does so for the fullest.",
        least=0,
        most=MOST_STAGE,
    )
    layout: bool = switch("Also print which ranks form each group, where they are, and what each group sends.")


@dataclass(frozen=True, kw_only=True)
class OutputFlags:
    """Where the answer goes."""

    PANEL = "Output"

    json: str | None = asked("Write the answer as JSON; - is standard output.", metavar="FILE|-")
    force: bool = switch("Overwrite files that shardplan did not write.", is_rare=True)

    def target(self, where: str | None = None, flag: str = "--json", kind: OwnFile = JSON) -> JsonTarget:
        """Target of the file of ``flag``, by default that of ``--json``."""
        return JsonTarget(self.json if flag == "--json" else where, flag, kind=kind, is_forced=self.force)

    def checked_target(self, *reads: str | Path | None) -> JsonTarget:
        """Like ``target``, after checking that it can be written and is none of ``reads``. Raises InputError."""
        target = self.target()
        target.check(*reads)
        return target
