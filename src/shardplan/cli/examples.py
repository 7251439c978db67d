"""``shardplan examples``: writes the files that the help and the documentation use."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from shardplan.cli.flags.option_groups import with_flags
from shardplan.cli.flags.plan import OutputFlags
from shardplan.cli.json_target import JsonTarget
from shardplan.errors import InputError
from shardplan.files import example_files, has_content

FOLDER: Final = "examples"
FolderArgument = Annotated[str, typer.Argument(metavar="FOLDER", help="Where to write them; it is made if needed.")]
ForceFlag = Annotated[bool, typer.Option("--force", help="Replace files that differ from the examples.")]


@with_flags
def examples(*, output: OutputFlags, folder: FolderArgument = FOLDER, force: ForceFlag = False) -> int:
    """Write the example files that the help and the documentation use.

    Models, a cluster, measured runs, plan files and notebooks. A file that is there and differs is not replaced.
    """
    files = {Path(folder) / name: content for name, content in example_files().items()}
    target = JsonTarget(output.json)
    target.check(*files)
    missing = {path: content for path, content in files.items() if not _attempt(path, has_content, content)}
    if not force:
        _check_free([*missing])
    for path, content in missing.items():
        _attempt(path, _write, content)
    record = {"schema": "shardplan/examples/1", "folder": folder, "written": [path.name for path in missing]}
    target.write({**record, "unchanged": [path.name for path in files if path not in missing]})
    if not target.is_stdout:
        _show(folder, files, missing)
    return 0


def _check_free(paths: Sequence[Path]) -> None:
    """Raises InputError where a file would be replaced."""
    there = [path for path in paths if os.path.lexists(path)]
    if there:
        more = f" and {len(there) - 1} more" if len(there) > 1 else ""
        raise InputError(
            f"{str(there[0])[:200]!r}{more} is there and is not the example",
            rule="files that differ from the examples are not replaced",
            hint="name another folder, or --force to replace them",
        )


def _attempt(path: Path, action: Callable[[Path, bytes], Any], content: bytes) -> Any:
    """What ``action`` returns. Raises InputError where the file system refuses it."""
    try:
        return action(path, content)
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot write {str(path)[:200]!r}: {getattr(error, 'strerror', None) or error}",
            rule="the examples are written to a folder that can be written",
            hint="name another folder",
        ) from None


def _write(path: Path, content: bytes) -> None:
    """The file takes its place as a whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _show(folder: str, files: Mapping[Path, bytes], written: Mapping[Path, bytes]) -> None:
    from shardplan.cli.layout import Page

    page = Page()
    page.line(f"{len(written)} of {len(files)} files written to {folder}", indent=0)
    page.bullets(path.name + ("" if path in written else " (was there)") for path in files)
    page.heading("Next steps")
    where = Path(folder)
    page.line(f"{where / 'README.md'} says what each file is for.")
    page.verbatim(f"  shardplan plan {where / 'config.json'} --cluster {where / 'my-cluster.yaml'} --gpus 64\n")
