"""``shardplan plan --method``: a question of ours as another method answers it, ours next to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from shardplan.ask.forms import SearchForm
from shardplan.cli.flags.flag import flag
from shardplan.cli.flags.option_groups import listed_by
from shardplan.errors import InputError
from shardplan.outputs.target import JsonTarget

if TYPE_CHECKING:
    from shardplan.estimation.question import PutQuestion


DEFAULT_ROWS = 10
OURS = "shardplan"
"""Our own search, as `shardplan methods` calls it."""

MethodFlag = Annotated[
    str | None,
    flag(
        "Ask another method in place of our search (see `shardplan methods`): the question in its terms, what it "
        "ignores, its configurations, and our estimate of each.",
        panel="Search in detail",
        metavar="NAME",
        autocompletion=listed_by("published.catalogue", "list_methods"),
    ),
]


def plan_with_method(name: str, ask: Callable[[], PutQuestion], search: SearchForm, target: JsonTarget) -> int:
    """Answers the question that ``ask`` puts with the method called ``name``. Raises ShardplanError."""
    _check_flags(name, search)
    from shardplan.published.catalogue import load_method
    from shardplan.reports.methods.question import ask_method, method_report_record, with_assumptions

    method, asked = load_method(name), ask()
    report = with_assumptions(ask_method(method, asked.question, top=search.top or DEFAULT_ROWS), asked.assumptions)
    target.write(method_report_record(report))
    if not target.is_stdout:
        from shardplan.cli.layout import Page
        from shardplan.cli.show.methods_answer import show_report

        show_report(Page(), report)
    return 0 if report.is_yes else 1


def _check_flags(name: str, search: SearchForm) -> None:
    """Another method searches a space of its own."""
    for name_of_flag in ("fix", "limit", "exclude", "simulate-top", "use-all"):
        if getattr(search, name_of_flag.replace("-", "_")):
            raise InputError(
                f"--{name_of_flag} is given with --method {name:.60}",
                rule="--fix, --limit, --exclude, --simulate-top and --use-all are of our own search",
                hint=f"leave out --{name_of_flag}, or --method",
            )
