"""``shardplan models``, ``clusters`` and ``accelerators``: what ships, and every value of one with its source."""

from __future__ import annotations

from typing import Annotated

import typer

from shardplan.cli.flags.flag import flag
from shardplan.cli.flags.option_groups import OutputFlags, with_flags
from shardplan.inputs.readers.typed import whole

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
    from shardplan.answers import catalogue
    from shardplan.cli.show.document import show_document

    if name is None:
        return show_document(catalogue.models_document(), target)
    from shardplan.inputs.readers.typed import model_argument

    length = (
        None if sequence_length is None else whole(sequence_length, "--sequence-length", most=LONGEST, is_length=True)
    )
    return show_document(catalogue.model_document(model_argument(name), sequence_length=length), target)


@with_flags
def clusters(*, output: OutputFlags, name: NameArgument = None) -> int:
    """List the built-in clusters, or show one.

    Every value is shown with its source, and a mark where confidence in it is low.
    """
    target = output.checked_target(name)
    from shardplan.answers import catalogue
    from shardplan.cli.show.document import show_document

    if name is None:
        return show_document(catalogue.clusters_document(), target)
    from shardplan.inputs.readers.catalog import load_cluster

    return show_document(catalogue.cluster_document(load_cluster(name)), target)


@with_flags
def accelerators(*, output: OutputFlags, name: NameArgument = None) -> int:
    """List the built-in accelerators, or show one.

    Every value is shown with its source, and a mark where confidence in it is low.
    """
    target = output.checked_target(name)
    from shardplan.answers import catalogue
    from shardplan.cli.show.document import show_document

    if name is None:
        return show_document(catalogue.accelerators_document(), target)
    from shardplan.inputs.readers.catalog import load_accelerator
    from shardplan.inputs.readers.names import name_meant, taken_as

    part = load_accelerator(name)
    taken = taken_as("accelerator", name) if name_meant("accelerator", name) else ""
    return show_document(catalogue.accelerator_document(part, taken), target)
