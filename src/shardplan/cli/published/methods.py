"""``published methods`` and ``plan --method``: what other methods count, and what they answer to a question of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from shardplan.ask.forms import SearchForm
from shardplan.base.errors import InputError
from shardplan.base.outputs import JsonTarget
from shardplan.cli.flags.flag import flag
from shardplan.cli.flags.option_groups import OutputFlags, listed_by, with_flags
from shardplan.cli.published.case import show_answer

if TYPE_CHECKING:
    from shardplan.estimation.question import PutQuestion

DEFAULT_ROWS = 10
OURS = "shardplan"
"""Our own search, as `shardplan published methods` calls it."""

NameArgument = Annotated[
    str | None, typer.Argument(metavar="NAME", show_default=False, help="One of the list, to show all of it.")
]
MethodFlag = Annotated[
    str | None,
    flag(
        "Ask another method in place of our search (see `shardplan published methods`): the question in its terms, "
        "what it ignores, its configurations, and our estimate of each.",
        panel="Search in detail",
        metavar="NAME",
        autocompletion=listed_by("methods.catalogue", "list_methods"),
    ),
]


@with_flags
def methods(*, output: OutputFlags, name: NameArgument = None) -> int:
    """List the methods of estimating a training run: ours, the published ones, and those of other packages.

    Each with what it counts, what it leaves out or has wrong, and where it was published.
    """
    target = output.checked_target()
    from shardplan.answers.methods import catalogue

    if name is None:
        return show_answer(catalogue.methods_document(catalogue.method_entries()), target)
    return show_answer(catalogue.entry_document(catalogue.method_entry(name)), target)


def plan_with_method(name: str, ask: Callable[[], PutQuestion], search: SearchForm, target: JsonTarget) -> int:
    """Answers the question that ``ask`` puts with the method called ``name``. Raises ShardplanError."""
    _check_flags(name, search)
    from shardplan.answers.methods.question import ask_method, method_document, with_assumptions
    from shardplan.methods.catalogue import load_method

    method, asked = load_method(name), ask()
    report = with_assumptions(ask_method(method, asked.question, top=search.top or DEFAULT_ROWS), asked.assumptions)
    return show_answer(method_document(report), target)


def _check_flags(name: str, search: SearchForm) -> None:
    """Another method searches a space of its own."""
    for name_of_flag in ("fix", "limit", "exclude", "simulate-top", "use-all"):
        if getattr(search, name_of_flag.replace("-", "_")):
            raise InputError(
                f"--{name_of_flag} is given with --method {name:.60}",
                rule="--fix, --limit, --exclude, --simulate-top and --use-all are of our own search",
                hint=f"leave out --{name_of_flag}, or --method",
            )
