"""``shardplan examples``: writes the files that the help and the documentation use."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Final

import typer

from shardplan.base.errors import InputError, visible
from shardplan.base.files import example_files, has_content
from shardplan.base.outputs import JsonTarget, OwnFile
from shardplan.cli.flags.option_groups import OutputFlags, with_flags

FOLDER: Final = "examples"
EXAMPLE: Final = OwnFile("the example of that name", re.compile(rb"(?!)"))
"""None is recognised: one that is the same is left as it is, and any other is somebody's own."""
FolderArgument = Annotated[str, typer.Argument(metavar="FOLDER", help="Where to write them; it is made if needed.")]


@with_flags
def examples(*, output: OutputFlags, folder: FolderArgument = FOLDER) -> int:
    """Write the example files that the help and the documentation use.

    Models, a cluster, measured runs, plan files and notebooks. A file that exists and differs is not replaced.
    """
    folder = folder or "."
    files = {Path(folder) / name: content for name, content in example_files().items()}
    answer = output.checked_target(*files)
    _make(folder)
    missing = {path: content for path, content in files.items() if not has_content(path, content)}
    targets = {path: JsonTarget(str(path), "FOLDER", kind=EXAMPLE, is_forced=output.force) for path in missing}
    for target in targets.values():
        target.check()
    for path, target in targets.items():
        target.write_bytes(missing[path])
    record = {"schema": "shardplan/examples/1", "folder": folder, "written": [path.name for path in missing]}
    answer.write({**record, "unchanged": [path.name for path in files if path not in missing]})
    if not answer.is_stdout:
        _show(folder, files, missing)
    return 0


def _make(folder: str) -> None:
    """Makes the folder if needed. Raises InputError."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot write into '{visible(folder[:200])}': {getattr(error, 'strerror', None) or error}",
            rule="FOLDER is a folder that can be written",
            hint="give another folder",
        ) from None


def _show(folder: str, files: Collection[Path], written: Collection[Path]) -> None:
    from shardplan.render.page import Page

    page = Page()
    page.line(f"{len(written)} of {len(files)} files written to {folder}", indent=0)
    page.bullets(path.name + ("" if path in written else " (unchanged)") for path in files)
    page.heading("Next steps")
    where = Path(folder)
    page.line(f"{where / 'README.md'} says what each file is for.")
    page.verbatim(f"  shardplan plan {where / 'config.json'} --cluster {where / 'my-cluster.yaml'} --gpus 64\n")
