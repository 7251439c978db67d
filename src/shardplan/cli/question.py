"""Questions of commands: the question of the flags, what the user set, and the chosen plan of a file."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from shardplan.ask.forms import QuestionForm, Replaced, SpaceForm
from shardplan.ask.questions import CHOICES, ask, ask_again, ask_search, choices_in, record_of, software_of, space_of
from shardplan.base.errors import InputError, shown
from shardplan.base.fields import described
from shardplan.base.files import looks_like_path
from shardplan.base.units import Kind, with_unit
from shardplan.base.words import switch_word
from shardplan.inputs.job import Job
from shardplan.inputs.readers.typed import RANGE, STDIN, whole

if TYPE_CHECKING:
    from shardplan.decide.searching import Searches
    from shardplan.estimation.estimate import Estimate
    from shardplan.estimation.question import PosedQuestion
    from shardplan.reports.plan_file import Pick, PlanFile


def asked(flags: QuestionForm, space: SpaceForm | None = None) -> PosedQuestion:
    """The question of the flags; ``space`` is that of the searches that answer it. Raises InputError."""
    record = record_of(flags, space)
    posed = ask(record) if space is None else ask_search(record)
    return posed._replace(assumptions=tuple(dict.fromkeys((*posed.assumptions, *posed.warnings))))


def asked_again(file: PlanFile, flags: QuestionForm, framework: str | None) -> PosedQuestion:
    """The question of a plan file, with the given flags replacing its values. Raises InputError."""
    return ask_again(file.question, record_of(flags), framework, is_outdated=file.has_other_constants)


def searched(
    flags: QuestionForm, space: SpaceForm, posed: PosedQuestion | None = None
) -> tuple[PosedQuestion, Searches, tuple[str, ...]]:
    """The question of a decision with all assumptions, how it is searched, and what the answer says first.

    ``posed`` is the question, if it is not that of the flags alone. Raises InputError.
    """
    from shardplan.decide.searching import Searches

    posed = posed or asked(flags, space)
    restricted = choices_in(space_of(space))
    given = (*given_by_user(flags, space), *posed.warnings)
    return posed.restricted(restricted), Searches.of(stack=posed.stack, **restricted), given


def asked_of_file(flags: QuestionForm) -> PosedQuestion | None:
    """The question of a plan file in place of a model; None of a model. Raises InputError."""
    from shardplan.reports.plan_file import is_plan_file, read_plan_file

    if flags.model is None or not is_plan_file(flags.model):
        return None
    read = read_plan_file(flags.model)
    framework = picked_from(read, None).framework if read.estimates else None
    return asked_again(read, replace(flags, model=None), framework)


def are_several(flags: QuestionForm) -> bool:
    """Whether ``--gpus`` or ``--nodes`` is a range or a list."""
    return any("," in text or RANGE.search(text) for text in (flags.num_accelerators, flags.nodes) if text)


def words_of(flags: QuestionForm, space: SpaceForm | None = None, *, with_size: bool = True) -> str:
    """The question as words of a command, without the framework; empty if a command would not find it again."""
    if flags.model in (None, STDIN) or (flags.stack is not None and looks_like_path(flags.stack)):
        return ""
    size = {} if with_size else {"num_accelerators": None, "nodes": None}
    words = [str(flags.model)]
    for name, field in described(QuestionForm).items():
        value = size.get(name, getattr(flags, name))
        if name not in ("model", "stack") and value is not None:
            words += [part for each in (value if field.kind.base is list else [value]) for part in (field.flag, each)]
    for record, given in ((Job, flags.job), (Replaced, flags.overrides)):
        for name, value in given.items():
            flag = described(record)[name].flag
            words += [flag, str(value)] if not isinstance(value, bool) else [flag if value else f"--no-{flag[2:]}"]
    for name in () if space is None else (*CHOICES, "without"):
        words += [part for each in getattr(space, name) or () for part in (f"--{name}", each)]
    return shlex.join(words)


def given_by_user(flags: QuestionForm, search: SpaceForm | None = None) -> tuple[str, ...]:
    """What the user set in place of the cluster's, the framework's or the search's own, for the first lines."""
    rare = {name: value for name, value in flags.job.items() if described(Job)[name].about.is_rare}
    values = {**flags.overrides, **software_of(flags.software), **rare}
    values |= {name: with_unit(text, of_kind) for name, text, of_kind in _quantities(flags.overrides)}
    texts = [f"{name.replace('_', ' ')} {switch_word(value)}" for name, value in values.items()]
    if search is not None:
        for name in ("fix", "limit", "exclude"):
            texts += [f"{name} {text}" for text in getattr(search, name) or ()]
    return tuple(texts)


def _quantities(overrides: Mapping[str, str]) -> Iterator[tuple[str, str, Kind]]:
    """Name, text and kind of the replaced values that have a unit."""
    for name, text in overrides.items():
        kind: Any = next(iter(described(Replaced)[name].about.quantity), None)
        if kind is not None:
            yield name, text, kind


MOST_PICK: Final = 1_000_000


def picked_from(file: PlanFile, text: str | None) -> Estimate:
    """The plan of ``file`` that --pick names, by default the recommended one. Raises InputError."""
    return file.pick(file.best_pick if text is None else picked(text))


def picked(text: str) -> Pick:
    """The plan of a file that --pick names. Raises InputError."""
    if text.strip() == "recommended":
        return "recommended"
    if not text.strip().isdecimal():
        wanted = "a whole number, or recommended"
        raise InputError(
            f"--pick is {shown(text)}; it must be {wanted}", rule=f"--pick is {wanted}", hint=f"set --pick to {wanted}"
        )
    return whole(text, "--pick", most=MOST_PICK)
