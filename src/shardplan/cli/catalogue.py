"""``shardplan models``, ``clusters`` and ``accelerators``: what ships, and every value of one with its source."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shardplan.cli.flags.flag import flag
from shardplan.cli.flags.option_groups import with_flags
from shardplan.cli.flags.plan import OutputFlags
from shardplan.inputs.readers.typed import whole
from shardplan.outputs.target import JsonTarget

if TYPE_CHECKING:
    from shardplan.cli.layout import Page
    from shardplan.reports.catalogue import CatalogueEntry


NameArgument = Annotated[
    str | None, typer.Argument(metavar="NAME", show_default=False, help="One of the list, or the path of a file.")
]
LONGEST = 2**31
LengthFlag = Annotated[
    str | None,
    flag("Tokens of a sequence, for the FLOP per token. Default: the model's own, 8192 at most.", metavar="N"),
]


@with_flags
def models(*, output: OutputFlags, name: NameArgument = None, sequence_length: LengthFlag = None) -> int:
    """List the built-in models, or show one."""
    target = output.checked_target(name)
    from shardplan.inputs.readers.typed import model_argument
    from shardplan.reports import catalogue

    if name is None:
        return _list("models", catalogue.model_entries(), target)
    length = (
        None if sequence_length is None else whole(sequence_length, "--sequence-length", most=LONGEST, is_length=True)
    )
    details = catalogue.model_details(model_argument(name), sequence_length=length)
    return _one(details, target, lambda page, show: show.show_model(page, details))


@with_flags
def clusters(*, output: OutputFlags, name: NameArgument = None) -> int:
    """List the built-in clusters, or show one.

    Every value is shown with its source, and a mark where confidence in it is low.
    """
    target = output.checked_target(name)
    from shardplan.reports import catalogue

    if name is None:
        return _list("clusters", catalogue.cluster_entries(), target)
    from shardplan.inputs.readers.catalog import load_cluster

    cluster = load_cluster(name)
    return _one(catalogue.cluster_details(cluster), target, lambda page, show: show.show_cluster(page, cluster))


@with_flags
def accelerators(*, output: OutputFlags, name: NameArgument = None) -> int:
    """List the built-in accelerators, or show one.

    Every value is shown with its source, and a mark where confidence in it is low.
    """
    target = output.checked_target(name)
    from shardplan.reports import catalogue

    if name is None:
        return _list("accelerators", catalogue.accelerator_entries(), target)
    from shardplan.inputs.readers.catalog import load_accelerator
    from shardplan.inputs.readers.names import name_meant, taken_as

    part = load_accelerator(name)
    taken = taken_as("accelerator", name) if name_meant("accelerator", name) else ""

    def show(page: Page, pages: Any) -> None:
        if taken:
            page.line(taken, style="dim", indent=0)
        pages.show_accelerator(page, part)

    return _one(catalogue.accelerator_details(part), target, show)


def _list(kind: str, entries: tuple[CatalogueEntry, ...], target: JsonTarget) -> int:
    from shardplan.reports.catalogue import list_record

    target.write(list_record(kind, entries))
    if not target.is_stdout:
        from shardplan.cli.layout import Page
        from shardplan.cli.show import catalogue as show_catalogue

        show_catalogue.show_list(Page(), kind, entries)
    return 0


def _one(record: dict[str, Any], target: JsonTarget, show: Callable[[Page, Any], None]) -> int:
    target.write(record)
    if not target.is_stdout:
        from shardplan.cli.layout import Page
        from shardplan.cli.show import catalogue as show_catalogue

        show(Page(), show_catalogue)
    return 0
