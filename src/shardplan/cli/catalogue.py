"""Commands that list or show what is built in: models, clusters, accelerators, frameworks, constants, examples."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Final

import typer

from shardplan.base.errors import InputError
from shardplan.base.files import example_files, has_content
from shardplan.base.outputs import JsonTarget, OwnFile
from shardplan.cli.flags import OutputFlags, flag, with_flags
from shardplan.cli.output import make_folder, show_document
from shardplan.inputs.readers.typed import whole


def _name(text: str) -> object:
    """The optional argument that names the entry to show; without it there is a list."""
    return typer.Argument(metavar="NAME", show_default=False, help=text)


NameArgument = Annotated[str | None, _name("Name of an entry to show, or path of a file.")]
ProfileArgument = Annotated[str | None, _name("A generation of accelerators, or the path of a profile.")]
LONGEST = 2**31
LengthFlag = Annotated[
    str | None,
    flag("Tokens of a sequence, for the FLOP per token. Default: the model's own, 8192 at most.", metavar="N"),
]
ReleasesFlag = Annotated[bool, flag("Show what changed from release to release, and when.", "--releases")]
FieldsFlag = Annotated[bool, flag("List the settings of --software, with values and defaults.", "--fields")]


@with_flags
def models(*, output: OutputFlags, name: NameArgument = None, sequence_length: LengthFlag = None) -> int:
    """List the built-in models, or show one."""
    target = output.checked_target(name)
    from shardplan.answers import catalogue

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

    Every value is shown with its source, and marked if confidence in it is low.
    """
    target = output.checked_target(name)
    from shardplan.answers import catalogue
    from shardplan.inputs.readers.catalog import load_cluster

    document = catalogue.clusters_document() if name is None else catalogue.cluster_document(load_cluster(name))
    return show_document(document, target)


@with_flags
def accelerators(*, output: OutputFlags, name: NameArgument = None) -> int:
    """List the built-in accelerators, or show one.

    Every value is shown with its source, and marked if confidence in it is low.
    """
    target = output.checked_target(name)
    from shardplan.answers import catalogue

    if name is None:
        return show_document(catalogue.accelerators_document(), target)
    from shardplan.inputs.readers.catalog import load_accelerator
    from shardplan.inputs.readers.names import name_meant, taken_as

    part = load_accelerator(name)
    taken = taken_as("accelerator", name) if name_meant("accelerator", name) else ""
    return show_document(catalogue.accelerator_document(part, taken), target)


@with_flags
def stacks(
    *, output: OutputFlags, name: NameArgument = None, fields: FieldsFlag = False, releases: ReleasesFlag = False
) -> int:
    """List the training frameworks with known defaults, or show one.

    Every default of a framework is shown with its source, and so is everything that it can run. torchtitan@0.3 shows
    that version, and torchtitan@2024-12 the framework as it was in that month; without either it is the newest.
    """
    target = output.checked_target(name)
    if fields:
        _check_fields_alone(name, releases=releases)
    if releases and name is None:
        raise InputError(
            "--releases is given without a framework",
            rule="--releases shows the history of one framework",
            hint="shardplan stacks torchtitan --releases",
        )
    from shardplan.answers.stacks import fields_document, releases_document, stack_document, stacks_document
    from shardplan.physics.frameworks.stack import list_stacks, load_stack

    if fields:
        return show_document(fields_document(), target)
    if name is None:
        return show_document(stacks_document(load_stack(each) for each in list_stacks()), target)
    shown = releases_document if releases else stack_document
    return show_document(shown(load_stack(name)), target)


def _check_fields_alone(name: str | None, *, releases: bool) -> None:
    """Refuses ``--fields`` together with a framework or its releases. Raises InputError."""
    if releases:
        raise InputError("both --fields and --releases are given", rule="one list is shown", hint="leave one out")
    if name is not None:
        raise InputError(
            f"both {name[:60]} and --fields are given",
            rule="--fields lists what can be set, of no framework",
            hint=f"leave one out; `shardplan stacks {name[:60]}` shows the values of that framework",
        )


@with_flags
def profiles(*, output: OutputFlags, name: ProfileArgument = None) -> int:
    """List the calibration profiles, or show every constant of one.

    A constant is shown with value and unit, its source or the runs it was fitted to, its value before the fit, and its
    uncertainty.
    """
    target = output.checked_target(name)
    from shardplan.answers.profiles import profile_document, profiles_document

    if name is None:
        return show_document(profiles_document(), target)
    from shardplan.ask.names import profile_named

    profile = profile_named(name)
    return show_document(profile_document(profile, profile.generation), target)


FOLDER: Final = "examples"
EXAMPLE: Final = OwnFile("the example of that name", re.compile(rb"(?!)"))
"""No file counts as ours: an equal one is left as it is, and any other belongs to the user."""
FolderArgument = Annotated[str, typer.Argument(metavar="FOLDER", help="Folder to write them to; created if needed.")]


@with_flags
def examples(*, output: OutputFlags, folder: FolderArgument = FOLDER) -> int:
    """Write the example files that the help and the documentation use.

    These are models, a cluster, measured runs, plan files and notebooks. An existing file that differs is not replaced.
    """
    folder = folder or "."
    files = {Path(folder) / name: content for name, content in example_files().items()}
    answer = output.checked_target(*files)
    make_folder(Path(folder), "FOLDER", "give another folder")
    missing = {path: content for path, content in files.items() if not has_content(path, content)}
    targets = {path: JsonTarget(str(path), "FOLDER", kind=EXAMPLE, is_forced=output.force) for path in missing}
    for target in targets.values():
        target.check()
    for path, target in targets.items():
        target.write_bytes(missing[path])
    record = {"schema": "shardplan/examples/1", "folder": folder, "written": [path.name for path in missing]}
    answer.write({**record, "unchanged": [path.name for path in files if path not in missing]})
    if not answer.is_stdout:
        _show_examples(folder, files, missing)
    return 0


def _show_examples(folder: str, files: Collection[Path], written: Collection[Path]) -> None:
    from shardplan.render.page import Page

    page = Page()
    page.line(f"{len(written)} of {len(files)} files written to {folder}", indent=0)
    page.bullets(path.name + ("" if path in written else " (unchanged)") for path in files)
    page.heading("Next steps")
    where = Path(folder)
    page.line(f"{where / 'README.md'} says what each file is for.")
    page.verbatim(f"  shardplan plan {where / 'config.json'} --cluster {where / 'my-cluster.yaml'} --gpus 64\n")
