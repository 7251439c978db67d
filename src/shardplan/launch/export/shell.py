"""Launch scripts for bash: Slurm, one block to fill in, the environment, options, one command; where they go."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from shardplan.base.errors import InputError, shown
from shardplan.base.fields import dataclass
from shardplan.base.outputs import JsonTarget, OwnFile
from shardplan.launch.export.written import END, START, Export, LaunchCase, Placeholder, head

HEAD_NODE: Final = 'HEAD_NODE=${HEAD_NODE:-$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)}'


class Given(NamedTuple):
    """A word that names a placeholder, such as ``path=$TOKENIZER``: bash puts its value in."""

    name: str
    before: str = ""
    after: str = ""


Word = str | Given
"""A literal, or a placeholder."""


def quoted(word: Word) -> str:
    """A word as bash reads it."""
    return f'"{word.before}${word.name}{word.after}"' if isinstance(word, Given) else shlex.quote(word)


@dataclass(frozen=True, kw_only=True)
class Launcher:
    """What starts the processes where it is not torchrun."""

    words: Sequence[str]
    """In front of the program, as bash reads them."""
    tasks_per_node: int = 1
    """Tasks that Slurm starts on a node; 0: no Slurm."""
    environment: Sequence[str] = ()
    """Lines that name the first node to it."""


def exported(
    case: LaunchCase,
    program: Sequence[Word],
    *,
    lost: Collection[str],
    relies_on: Collection[str],
    placeholders: Sequence[Placeholder],
    environment: Mapping[str, str],
    options: Mapping[str, Sequence[Sequence[Word]]],
    launcher: Launcher | None = None,
    beside: Mapping[str, str] | None = None,
    to_fill: Sequence[str] = (),
) -> Export:
    """The export with a launch script; by default torchrun starts the processes of every node.

    ``program``: what every process runs; ``options``, each a line of words, follow in groups. ``lost``: what the files
    do not say; ``relies_on``: defaults of the framework that the plan takes for granted. ``beside``: files that the
    script names, ``to_fill``: their keys that a user fills in.
    """
    given = [f"{each.name}={shlex.quote(each.value)} # {each.about}" for each in placeholders]
    start = () if launcher is None else launcher.environment
    parts = [
        ["#!/bin/bash", *(f"# {line}".rstrip() for line in head(case, lost, relies_on))],
        _slurm(case, 1 if launcher is None else launcher.tasks_per_node),
        ["set -euo pipefail"],
        [f"# {START}", *given, f"# {END}"],
        [f"export {name}={shlex.quote(value)}" for name, value in environment.items()],
        [HEAD_NODE, *start] if case.num_nodes > 1 and (launcher is None or start) else [],
        ["OPTIONS=(", *(line for group in options.items() for line in _group(*group)), ")"],
        _command(case, f'{" ".join(map(quoted, program))} "${{OPTIONS[@]}}"', launcher),
    ]
    script = "\n\n".join("\n".join(part) for part in parts if part) + "\n"
    return Export(
        framework=case.stack.label,
        files={f"{case.stem}.sh": script, **(beside or {})},
        not_expressed=tuple(lost),
        placeholders=(*(each.name for each in placeholders), *to_fill),
        relies_on=tuple(relies_on),
    )


def _slurm(case: LaunchCase, tasks: int) -> list[str]:
    if tasks == 0:
        return []
    return [
        f"#SBATCH --nodes={case.num_nodes}",
        f"#SBATCH --ntasks-per-node={tasks}",
        f"#SBATCH --gpus-per-node={case.processes_per_node}",
    ]


def _group(title: str, options: Sequence[Sequence[Word]]) -> list[str]:
    lines = ["    " + " ".join(map(quoted, option)) for option in options]
    return [f"    # {title}", *lines] if lines else []


def _command(case: LaunchCase, program: str, launcher: Launcher | None) -> list[str]:
    if launcher is not None:
        return [" ".join((*launcher.words, program))]
    if case.num_nodes == 1:
        return [f"torchrun --standalone --nproc-per-node {case.processes_per_node} {program}"]
    return [
        "# Without Slurm: set HEAD_NODE to the name of the first node and run what follows srun on every node.",
        f"srun torchrun --nnodes {case.num_nodes} --nproc-per-node {case.processes_per_node} --rdzv-backend c10d \\",
        '    --rdzv-endpoint "$HEAD_NODE:29500" --rdzv-id "${SLURM_JOB_ID:-1}" \\',
        f"    {program}",
    ]


def blocking(case: LaunchCase) -> dict[str, str]:
    """The environment where launches are waited for."""
    return {"CUDA_LAUNCH_BLOCKING": "1"} if case.job.software.blocking_launches else {}


EXPORTED: Final = OwnFile("empty (an exported file may hold what you filled in)", re.compile(rb"(?!)"))
"""Nothing that is there is ours to replace."""


class ExportTarget:
    """The file that an export is written to, with those that belong to it next to it."""

    def __init__(
        self, where: str, flag: str, *, beside: str = "", is_forced: bool = False, forced_by: str = "--force"
    ) -> None:
        """``where``: the file that is run; ``flag`` is by what it was given; ``beside``: end of the file next to it."""
        self.where, self.flag, self.beside = where, flag, beside
        self.is_forced, self.forced_by = is_forced, forced_by
        if not where or where == "-" or not Path(where).name:
            raise InputError(
                f"{flag} is {shown(where)}", rule=f"{flag} names a file", hint=f"set {flag} to a file such as launch.sh"
            )

    @property
    def stem(self) -> str:
        """Name of the files without their ends."""
        return Path(self.where).stem

    def check(self, *reads: str | Path | None) -> None:
        """Finds out early whether the files can be written, and are none of ``reads``. Raises ``InputError``."""
        first = Path(self.where)
        for path in (first, first.with_suffix(self.beside)) if self.beside else (first,):
            self._target(path).check(*reads)

    def write(self, export: Export) -> tuple[Path, ...]:
        """Writes all files of ``export`` or, where one cannot be written, none. Raises ``InputError``."""
        texts = {self._path(at, name): text for at, (name, text) in enumerate(export.files.items())}
        for path in texts:
            self._target(path).check_content(b"")
        for path, text in texts.items():
            self._target(path).write_text(text)
        return tuple(texts)

    def _path(self, at: int, name: str) -> Path:
        first = Path(self.where)
        return first if at == 0 else first.with_name(name)

    def _target(self, path: Path) -> JsonTarget:
        return JsonTarget(str(path), self.flag, kind=EXPORTED, is_forced=self.is_forced, forced_by=self.forced_by)
