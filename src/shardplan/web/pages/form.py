"""The form of a question: names to choose from, and a field for each field of a job and of a plan.

A view keeps in its address what other views read of the question, and shows three fields where it is about one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from shardplan.ask.forms import Replaced
from shardplan.base.errors import ShardplanError
from shardplan.base.fields import Described, described
from shardplan.base.units import format_bytes, format_count
from shardplan.inputs.defaults import precisions_of
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.readers.catalog import load_accelerator, load_cluster, load_model
from shardplan.reports.texts.answer import question_title
from shardplan.web.answered import PageAnswer
from shardplan.web.state import LOCK, NAMES, SET, SETS, FieldError, PageQuestion, names_of

FIRST: Final = ("sequence_length", "global_batch_size", "precision", "tokens")
"""Fields of the job that everyone needs; the others are folded away."""
LOCKED: Final = ("tp", "pp", "vp", "cp", "ep", "micro_batch_size", "sharding", "recompute")
"""Fields of the plan that most people lock."""
SHORT_HELP: Final = {
    "sequence_length": "8192 or 8k",
    "global_batch_size": "Sequences per step",
    "tokens": "For days and money: 15.6T",
}


class FormOption(NamedTuple):
    """A name to choose, and what it is in a few words."""

    value: str
    label: str


class FormField(NamedTuple):
    """A field of the form."""

    name: str
    label: str
    help: str
    placeholder: str
    choices: tuple[tuple[str, str], ...]
    """Pairs of value and label; empty where any text may be typed."""
    is_switch: bool = False
    no_choices: tuple[str, ...] = ()
    """Values of choices that do not go with the question."""


@cache
def models() -> tuple[FormOption, ...]:
    """All built-in models with their size."""
    return tuple(FormOption(name, _model_label(name)) for name in names_of("model"))


def _model_label(name: str) -> str:
    model = load_model(name)
    active = f", {format_count(model.num_active_parameters)} active" if model.is_moe else ""
    return f"{format_count(model.num_parameters)} parameters{active}"


@cache
def clusters() -> tuple[FormOption, ...]:
    """All clusters with their accelerator."""
    found = ((name, load_cluster(name)) for name in names_of("cluster"))
    return tuple(
        FormOption(name, f"{each.accelerators_per_node} x {each.accelerator.full_name}") for name, each in found
    )


@cache
def accelerators() -> tuple[FormOption, ...]:
    """All accelerators with their memory."""
    found = ((name, load_accelerator(name)) for name in names_of("accelerator"))
    return tuple(FormOption(name, f"{each.full_name}, {format_bytes(each.memory_bytes)}") for name, each in found)


@cache
def stacks() -> tuple[tuple[str, str], ...]:
    """All frameworks."""
    words = {"usual": "Usual one", "any": "None"}
    return tuple((name, words.get(name, name)) for name in names_of("stack"))


@cache
def job_fields() -> tuple[tuple[FormField, ...], tuple[FormField, ...]]:
    """Fields of the job: those that everyone needs, and the others."""
    known = described(Job)
    others = [name for name in known if name not in FIRST]
    first = tuple(_field(known[name]) for name in FIRST)
    return first, tuple(_field(known[name]) for name in others)


@cache
def lock_fields() -> tuple[tuple[FormField, ...], tuple[FormField, ...]]:
    """Fields of the plan that can be locked: the usual ones, and the others."""
    known = described(Plan)
    others = [name for name in known if name not in LOCKED and name != "stage_layers"]
    return tuple(_lock(known[name]) for name in LOCKED), tuple(_lock(known[name]) for name in others)


@cache
def set_fields() -> tuple[FormField, ...]:
    """Values of the cluster that can be replaced."""
    known = ((name, described(Replaced)[name].about.in_form) for name in SETS)
    return tuple(FormField(SET + name, label, "", example, ()) for name, (label, example) in known)


def _field(field: Described) -> FormField:
    label = field.name.replace("_", " ").capitalize()
    is_switch = field.kind.base is bool
    usual = str(field.default) if field.kind.choices else ""
    choices = (("", f"default ({usual})"), *((name, name) for name in field.kind.choices)) if usual else ()
    text = SHORT_HELP.get(field.name) or ("" if choices else field.about.help)
    return FormField(field.name, label, text, "default", choices, is_switch)


def _lock(field: Described) -> FormField:
    label = field.name if len(field.name) == 2 else field.name.replace("_", " ")  # degrees
    if field.kind.base is bool:
        return FormField(LOCK + field.name, label, "", "any", (("", "any"), ("on", "on"), ("off", "off")))
    if field.kind.choices:
        return FormField(
            LOCK + field.name, label, "", "any", (("", "any"), *((each, each) for each in field.kind.choices))
        )
    return FormField(LOCK + field.name, label, "", "any", ())


def _of_part(field: FormField, question: PageQuestion) -> FormField:
    """The field without the choices that the accelerator of the question does not have."""
    if field.name != "precision":
        return field
    try:
        known = {"", *precisions_of(question.cluster_asked().accelerator), question.job.get("precision")}
    except ShardplanError:
        return field  # the answer says what is wrong with the cluster
    return field._replace(no_choices=tuple(name for name, _ in field.choices if name not in known))


def form_context(question: PageQuestion) -> dict[str, Any]:
    """What the template of the form needs besides the question."""
    first, others = job_fields()
    return {
        "models": models(),
        "clusters": clusters(),
        "accelerators": accelerators(),
        "stacks": stacks(),
        "job_fields": (tuple(_of_part(each, question) for each in first), others),
        "lock_fields": lock_fields(),
        "set_fields": set_fields(),
    }


MOST_FIXES: Final = 6
WORD: Final = re.compile(r"[\w.+-]*\w")


def fixes(error: ShardplanError) -> list[tuple[str, str]]:
    """What an error offers, as texts and settings of a field: ``bf16`` and ``precision=bf16``."""
    from shardplan.web.verdict import changed

    if not isinstance(error, FieldError):
        return []
    words = [word for word in WORD.findall(error.hint) if word in _names_of_field(error.field)]
    words = words or WORD.findall(error.hint.partition("one of ")[2].partition("the ")[0])
    named = [(word, f"{error.field}={word}") for word in words if error.field]
    if error.settings is not None:
        return [*dict.fromkeys((*named, *error.settings))][:MOST_FIXES]
    usual = PageQuestion().pairs()
    pairs = [pair for pair in changed(PageQuestion(), error.offered).pairs() if pair not in usual]
    counted = [(f"{_words(name)} {value}", f"{name}={value}") for name, value in pairs if value[:1].isdigit()]
    return [*dict.fromkeys((*named, *counted))][:MOST_FIXES]


def _words(name: str) -> str:
    return NAMES.get(name, name.removeprefix(LOCK).replace("_", " "))


def _names_of_field(name: str) -> Collection[str]:
    """The names that a field may have; none where it takes numbers."""
    if name in ("model", "cluster", "accelerator", "stack"):
        return names_of(name)
    known = {**described(Job), **{LOCK + field: each for field, each in described(Plan).items()}}
    return known[name].kind.choices if name in known else ()


Fields = Iterable[tuple[str, str]]
NEVER: Final = ("config", "answer", "token")
"""What no address carries: uploaded models travel in the body, and the others are no part of a question."""


def others(given: Fields, own: Collection[str]) -> list[tuple[str, str]]:
    """The fields that are not the view's ``own``, for hidden fields of its form."""
    return [(name, value) for name, value in given if value and name not in own and name not in NEVER]


def address(path: str, given: Fields, own: Mapping[str, str]) -> str:
    """The address of the page with these values of its own; what is empty is left out."""
    stated = [(name, value) for name, value in own.items() if value]
    text = urlencode([*others(given, own), *stated])
    return f"{path}?{text}" if text else path


SHOWN: Final = ("model", "cluster", "gpus", "show", "config")
"""Fields that the form of the view has itself."""


def question_context(question: PageQuestion) -> dict[str, Any]:
    """What the template of the form needs."""
    kept = [(name, value) for name, value in question.pairs() if name not in SHOWN]
    return {"question": question, "kept": kept, "models": models(), "clusters": clusters()}


def title_of(found: PageAnswer) -> str:
    """The question in one line."""
    return question_title(found.posed.question)
