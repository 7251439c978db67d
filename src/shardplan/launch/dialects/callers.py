"""How the repository of a launch file starts it: the line of its documentation, or of a script, that names the file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from shardplan.base.errors import ShardplanError, shortened
from shardplan.base.files import read_text
from shardplan.launch.dialects.ask import Ask
from shardplan.launch.dialects.configured import configuration_of
from shardplan.launch.dialects.launches import BESIDES, Launch, is_beside, launches
from shardplan.launch.read import Script, Word, parse_script, read_script
from shardplan.launch.read.facts import Command
from shardplan.launch.read.places import is_inside
from shardplan.launch.read.trees import LONG_FILE

SCRIPTS: Final = (".sh", ".bash", ".slurm", ".sbatch")
MOST_FILES: Final = 64
"""Files near a launch file that are searched for its name."""
MOST_NAMING: Final = 6
"""Files that name it and are read."""
MOST_BYTES: Final = 400_000
"""Of such a file."""
_BLOCK: Final = re.compile(r"^[ \t]*(```|~~~)[^\n]*\n(.*?)^[ \t]*\1", re.MULTILINE | re.DOTALL)
"""A block of commands in Markdown."""
_INLINE: Final = re.compile(r"(?<!`)`([^`\n]{3,400})`(?!`)")
"""A command within a sentence."""
_PROMPT: Final = re.compile(r"^[ \t]*[$!%>][ \t]*", re.MULTILINE)


class Start(NamedTuple):
    """A command that names a launch file."""

    command: Command
    script: Script
    """The text that holds it."""
    path: Path
    """The file of that text."""
    at: int
    """The place of the launch file among the words."""

    @property
    def place(self) -> str:
        """Where it stands."""
        return f"{self.path.name}:{self.command.line}"

    @property
    def said(self) -> str:
        """The command as it is quoted."""
        return shortened(" ".join(word.shown for word in self.command.words), 160)

    def asked(self, ask: Ask) -> Ask:
        """What is asked of the file that holds it, in the place of the one that it names."""
        return replace(ask, path=self.path, places=replace(ask.places, starts=False))


def started(ask: Ask) -> Ask:
    """A script with the arguments and variables of the first line that starts it, where it leaves them open."""
    if ask.arguments or ask.path.suffix.lower() not in SCRIPTS or not ask.path.is_file():
        return ask
    script, found = None, list[Start]()
    for start in starts(ask):
        words = start.command.words[start.at + 1 :]
        script = script or _script(ask)
        if script is None:
            return ask
        wants = any(need.name.startswith("arg:") for need in script.needs)
        own = {name: word for name, word in _variables(start).items() if f"env:{name}" in _needs(script)}
        if all(word.text is not None for word in words) and ((wants and words) or own):
            found.append(start)
    if not found or script is None:
        return ask
    first = found[0]
    others = {start.said for start in found} - {first.said}
    which = f", the first of {len(others) + 1} such lines" if others else ""
    env = {name: word.shown for name, word in _variables(first).items() if f"env:{name}" in _needs(script)}
    note = f"taken as {first.place} starts it{which}: {first.said}; other arguments after --, variables by --env"
    arguments = tuple(word.shown for word in first.command.words[first.at + 1 :])
    return replace(ask, arguments=arguments, env={**env, **ask.env}, started=note)


def _needs(script: Script) -> set[str]:
    return {need.name for need in script.needs}


def _variables(start: Start) -> Mapping[str, Word]:
    """Decided variables that the command passes on."""
    given = {**start.command.exported, **start.command.assignments}
    return {name: word for name, word in given.items() if word.text is not None}


def _script(ask: Ask) -> Script | None:
    folders = ask.places.folders(ask.path.parent)
    try:
        return read_script(ask.path, env=ask.env, folders=folders, directives=ask.directives, node=ask.node)
    except ShardplanError:
        return None


def starts(ask: Ask) -> Iterator[Start]:
    """Commands in files near a launch file that name it, the nearest file first."""
    number = 0
    for path in _near(ask):
        scripts = list(_scripts(ask, path)) if number < MOST_NAMING else []
        number += bool(scripts)
        for script in scripts:
            for command in script.commands:
                at = next((i for i, word in enumerate(command.words) if names_file(ask, path, word)), None)
                if at is not None and not _converts(path, command, at):
                    yield Start(command, script, path, at)


def _converts(path: Path, command: Command, at: int) -> bool:
    """Whether a command runs the file for something else than training: by its script's name or by an argument."""
    words = [word.shown for word in command.words[at + 1 :] if not word.shown.startswith("-")]
    return is_beside(path.name.lower()) or any(BESIDES.match(word.lower()) for word in words)


def launches_with(ask: Ask) -> Iterator[tuple[Start, Launch]]:
    """Lines of the repository that launch a program with a configuration; not those with another of the same name."""
    for start in starts(ask):
        if any(name.rpartition("/")[2] == ask.path.name for name in start.script.texts):
            continue  # the script writes it
        for launch in launches(start.script):
            word = configuration_of(launch)
            if launch.command is start.command and word is not None and names_file(ask, start.path, word):
                yield start, launch


def _near(ask: Ask) -> list[Path]:
    """Documentation and scripts in the folder of a file and in those above it within its repository."""
    folder = ask.path.parent.resolve()
    roots = [root.resolve() for root in ask.places.folders(ask.path.parent)]
    own = [root for root in roots if folder.is_relative_to(root)]
    outer = min(own, key=lambda root: len(root.parts), default=folder)
    above = [each for each in (folder, *folder.parents) if each.is_relative_to(outer)]
    texts = [path for each in above for path in sorted(each.glob("README*.md"))]
    scripts = [path for each in (*above, outer / "scripts") for path in sorted(each.glob("*"))]
    found = dict.fromkeys((*texts, *(path for path in scripts if path.suffix.lower() in SCRIPTS)))
    return [path for path in found if path != ask.path.resolve() and is_inside(path, outer)][:MOST_FILES]


def _scripts(ask: Ask, path: Path) -> Iterator[Script]:
    """The texts of a file that may start another, each read as a script; those that do not name it are left out."""
    try:
        if path.stat().st_size > MOST_BYTES:
            return
        text = read_text(path, LONG_FILE)
        if ask.path.name not in text:
            return
        if path.suffix.lower() != ".md":
            yield read_script(path, folders=ask.places.folders(path.parent), node=ask.node)
            return
    except (ShardplanError, OSError):
        return
    for found in (
        *_BLOCK.finditer(text),
        *_INLINE.finditer(_BLOCK.sub(lambda block: "\n" * block[0].count("\n"), text)),
    ):
        inner = found[found.lastindex or 0]
        if ask.path.name in inner:
            before = "\n" * text.count("\n", 0, text.find(inner))
            try:
                yield parse_script(before + _PROMPT.sub("", inner), str(path))
            except ShardplanError:
                continue


def names_file(ask: Ask, path: Path, word: Word) -> bool:
    """Whether a word in the file at ``path`` is the launch file's: with its folder, or from a file in the same one."""
    text = (word.text or "").removeprefix("@")
    parts = [part for part in Path(text).parts if part not in (".", "..", "/")]
    if not parts or parts[-1] != ask.path.name:
        return False
    own = ask.path.resolve().parts
    return own[-len(parts) :] == tuple(parts) and (len(parts) > 1 or path.parent.resolve() == ask.path.parent.resolve())
