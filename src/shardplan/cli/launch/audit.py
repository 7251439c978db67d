"""``shardplan audit``: a launch script or configuration, understood, judged and improved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardplan.cli.flags.flag import flag
from shardplan.cli.flags.option_groups import with_flags
from shardplan.cli.flags.plan import DetailFlags, OutputFlags
from shardplan.inputs.readers.typed import whole

if TYPE_CHECKING:
    from shardplan.inputs.cluster import Cluster
    from shardplan.inputs.model import ModelConfig


FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="Script or configuration. It is read, never run.", show_default=False)
]
ArgsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- ARGS...]", help="Arguments of the script, after --.", show_default=False),
]
ModelFlag = Annotated[
    str | None,
    flag("Model, where the file does not have its dimensions: name or path.", panel="Question", metavar="NAME|FILE"),
]
ClusterFlag = Annotated[
    str | None,
    flag("Cluster: name (see `shardplan clusters`) or path of a file.", panel="Question", metavar="NAME|FILE"),
]
GpusFlag = Annotated[
    str | None,
    flag(
        "Number of accelerators, where the file does not state it.",
        "--gpus",
        "--num-accelerators",
        panel="Question",
        metavar="N",
    ),
]
EnvFlag = Annotated[
    list[str] | None, flag("Value of an environment variable. Can be repeated.", panel="Question", metavar="NAME=VALUE")
]
GivenFlag = Annotated[
    list[str] | None,
    flag("Value that the file leaves open: vocab_size=128256. Can be repeated.", panel="Question", metavar="KEY=VALUE"),
]
EntryFlag = Annotated[str | None, flag("Function of a configuration in Python.", panel="Question", metavar="NAME")]
ObservedFlag = Annotated[
    list[str] | None,
    flag(
        'Measurement to explain: "step 7.9s", 1500tok/s, "120 TFLOP/s", "MFU 38%", "OOM rank 0". Can be repeated.',
        panel="Question",
        metavar="TEXT",
    ),
]
KeepFlag = Annotated[
    str | None,
    flag("Fields of the plan that improvements leave as they are: tp,pp.", panel="Question", metavar="FIELDS"),
]


@with_flags
def audit(
    *,
    file: FileArgument,
    args: ArgsArgument = None,
    model: ModelFlag = None,
    cluster: ClusterFlag = None,
    gpus: GpusFlag = None,
    env: EnvFlag = None,
    given: GivenFlag = None,
    entry: EntryFlag = None,
    observed: ObservedFlag = None,
    keep: KeepFlag = None,
    output: OutputFlags,
    details: DetailFlags,
) -> int:
    """Say what a launch script runs, which rules it breaks, and what would be better.

    Nothing of the file is executed. Exits with 1 if a broken rule stops the run or it does not fit in memory.
    """
    target = output.checked_target(file, model, cluster)
    from shardplan.launch.audit.answer import audit_launch
    from shardplan.launch.dialects.ask import Ask

    values = dict(pairs("--given", given))
    if gpus is not None:
        values["num_accelerators"] = str(whole(gpus, "--gpus", most=10_000_000))
    ask = Ask(path=file, env=dict(pairs("--env", env)), arguments=tuple(args or ()), entry=entry, given=values)
    found = audit_launch(
        ask,
        model=named_model(model),
        cluster=named_cluster(cluster),
        keep=tuple(name.strip() for name in (keep or "").split(",") if name.strip()),
        observed=tuple(observed or ()),
    )
    from shardplan.answers.audit import audit_document
    from shardplan.cli.show.document import show_document

    document = audit_document(found, states_assumptions=details.states_assumptions, is_whole=details.all)
    return show_document(document, target)


def pairs(flag: str, texts: Sequence[str] | None) -> list[tuple[str, str]]:
    """``NAME=VALUE`` as two texts; the value may be empty. Raises InputError."""
    from shardplan.errors import InputError, shown

    found = []
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not name.strip() or not equals:
            raise InputError(
                f"{flag} is {shown(text)}; it takes NAME=VALUE",
                rule=f"{flag} takes NAME=VALUE",
                hint=f"write {flag} NODES=64",
            )
        found.append((name.strip(), value))
    return found


def named_model(name: str | None) -> ModelConfig | None:
    """The model of ``--model``. Raises InputError."""
    if name is None:
        return None
    from shardplan.cli.model_argument import model_argument
    from shardplan.inputs.readers.catalog import load_model

    return load_model(model_argument(name))


def named_cluster(name: str | None) -> Cluster | None:
    """The cluster of ``--cluster``. Raises InputError."""
    if name is None:
        return None
    from shardplan.inputs.readers.catalog import load_cluster

    return load_cluster(name)
