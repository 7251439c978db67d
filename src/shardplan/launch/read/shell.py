"""Shell scripts: the commands that they run, by reading alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from shardplan.base.errors import InputError
from shardplan.base.files import printable, read_text
from shardplan.launch.read.bash.evaluator import Evaluator
from shardplan.launch.read.bash.slurm import options_in
from shardplan.launch.read.bash.state import Context, flat
from shardplan.launch.read.bash.text import literal, unique
from shardplan.launch.read.documents import document_of_text
from shardplan.launch.read.facts import ENDS, Need, Script, Word
from shardplan.launch.read.trees import (
    LAUNCH_FILE,
    LONG_FILE,
    MOST_BYTES,
    MOST_OF_HERE,
    check_length,
    refuse,
    whole_characters,
)

_HERE: Final = re.compile(r"(?<!<)<<(?!<)(-?)\s*(?:[\"']([^\"']+)[\"']|\\?(\w+))")
"""Start of a here-document: whether tabs are taken off, and its last line."""
_PLACEHOLDER: Final = re.compile(
    r"<(?!env:|arg:|cmd:|file:|code:|key:)[\w .\-/]+>|\b(?:your|my)[_-](?:own|path|data|model|token|dir)"
    r"|/?path/to/|\bTODO\b|\bFIXME\b|\bXXX+\b",
    re.IGNORECASE,
)
_WHY: Final = {
    "env": "the environment variable is used and not set in the script",
    "arg": "the script uses this argument, and it was not given",
    "cmd": "only running this command gives its output",
    "file": "whether this file exists is not known",
    "code": "reading alone does not decide this",
    "key": "the key is not in the file",
}
_MOST_NOTED: Final = 20


def read_script(
    path: Path,
    *,
    env: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
    folders: Sequence[Path] = (),
    directives: Mapping[str, Word] | None = None,
    node: int | None = None,
) -> Script:
    """What the shell script at ``path`` runs, given environment variables and arguments.

    ``directives`` are those of the scheduler's command or script that starts it; they count before its own. ``node``:
    accelerators of a node, where the script counts them.

    Files that it sources are read where they are in its folder, or in one of ``folders``. Raises ``InputError``.
    """
    text = read_text(path, LONG_FILE)
    roots = [path.resolve().parent, *(folder.resolve() for folder in folders)]
    return _evaluated(text, str(path), env or {}, arguments, lambda name: _open_in(roots, path, name), directives, node)


def parse_script(
    text: str, file: str, *, env: Mapping[str, str] | None = None, arguments: Sequence[str] = ()
) -> Script:
    """What a script given as text runs; files that it sources are not opened. Raises ``InputError``."""
    return _evaluated(text, file, env or {}, arguments, lambda _: None)


def _open_in(roots: Sequence[Path], script: Path, name: str) -> tuple[str, str] | None:
    """Text and path of a sourced file; None where it is not there or outside the folders that may be read."""
    if "\0" in name:
        return None
    for candidate in (Path(name), script.parent / name, *(root / name for root in roots)):
        try:
            found = candidate.resolve()
            if found.is_file() and any(found.is_relative_to(root) for root in roots):
                return read_text(found, LAUNCH_FILE), str(candidate)
        except (OSError, RuntimeError, InputError):
            continue
    return None


def _evaluated(
    text: str,
    file: str,
    env: Mapping[str, str],
    arguments: Sequence[str],
    open_file: Callable[[str], tuple[str, str] | None],
    outer: Mapping[str, Word] | None = None,
    node: int | None = None,
) -> Script:
    file, text = printable(file), whole_characters(text)
    check_length(text, file)
    if "\0" in text:
        refuse(file, "holds null characters", LAUNCH_FILE.rule)
    is_long = len(text) > MOST_BYTES
    directives = {**dict(_directives(text, file)), **(outer or {})}
    context = Context(file, env, directives)
    context.node = node
    evaluator = Evaluator(context, open_file)
    context.state.positional = tuple(literal(argument) for argument in arguments)
    context.state.counts_arguments = bool(arguments)
    context.state.exported = set(env)
    if is_long:
        text = commands_of(text)
        context.note("a long file: its comments and long here-documents are not read")
        if (length := len(text) - text.count("\n")) > MOST_BYTES:
            why = f"has {length:,} characters of commands, more than {MOST_BYTES:,}"
            refuse(file, why, LAUNCH_FILE.rule, LAUNCH_FILE.hint)
    if "\r\n" in text:
        text = text.replace("\r\n", "\n")
        context.note("the lines end as on Windows; bash does not run such a script")
    try:
        context.budget.read(len(text) - text.count("\n") if is_long else len(text))
        evaluator.run_source(text, file)
    except RecursionError:
        refuse(file, "is nested too deep", "a launch script is shallow")
    return _script(file, evaluator)


def commands_of(text: str) -> str:
    """A script with empty lines in place of comments and of long here-documents."""
    kept, ends = list[str](), list[tuple[str, bool]]()
    begin = size = 0
    for line in text.split("\n"):
        kept.append(line)
        if ends:
            size += len(line)
            end, is_indented = ends[0]
            if (line.lstrip("\t") if is_indented else line).rstrip("\r") == end:
                if size > MOST_OF_HERE:
                    kept[begin:-1] = [""] * (len(kept) - 1 - begin)
                ends, begin, size = ends[1:], len(kept), 0
        elif line.lstrip().startswith("#"):
            kept[-1] = ""
        elif "<<" in line:
            ends = [(found[2] or found[3], bool(found[1])) for found in _HERE.finditer(line)]
            begin, size = len(kept), 0
    return "\n".join(kept)


def _script(file: str, evaluator: Evaluator) -> Script:
    context = evaluator.context
    commands = tuple(evaluator.commands)
    texts = {name: text.word(0, file) for name, text in evaluator.texts.items()}
    written = {name: document_of_text(text, name) for name, text in evaluator.texts.items()}
    words = [word for command in commands for word in (*command.words, *command.assignments.values())]
    environment = {
        name: flat(value).word(0, file) for name, value in context.state.variables.items() if value is not None
    }
    return Script(
        file=file,
        commands=commands,
        environment=environment,
        exported=frozenset(name for name in context.state.exported if name in environment),
        directives=context.directives,
        documents={name: document for name, document in written.items() if document is not None},
        texts=texts,
        asked=frozenset(name for name in context.asked if name.isidentifier()),
        needs=_needs([*words, *texts.values(), *context.directives.values()]),
        notes=tuple(_notes(evaluator, words)),
    )


def _needs(words: Sequence[Word]) -> tuple[Need, ...]:
    found: dict[str, Need] = {}
    for word in words:
        for name in word.needs:
            if name not in found:
                found[name] = Need(name=name, file=word.file, line=word.line, why=_WHY[name.partition(":")[0]])
    return tuple(found.values())


def _notes(evaluator: Evaluator, words: Sequence[Word]) -> Iterator[str]:
    context = evaluator.context
    yield from context.notes
    line, status = evaluator.ended
    if context.state.flow == "exit" and status != "0" and "PIPESTATUS" not in str(status):
        yield f"line {line}: {ENDS} with status {status}"
    found = [(word, _PLACEHOLDER.search(word.shown)) for word in words]
    placeholders = unique(
        f"line {word.line}: a placeholder: {_around(word.shown, each)}" for word, each in found if each is not None
    )
    yield from placeholders[:_MOST_NOTED]
    unused = sorted(
        name for name in context.state.variables if name not in context.used and name not in context.state.exported
    )
    if unused:
        yield f"set and never used: {', '.join(unused[:_MOST_NOTED])}"


def _around(text: str, found: re.Match[str]) -> str:
    """A match with the words around it, on one line."""
    return " ".join(text[max(0, found.start() - 40) : found.end() + 40].split())


def _directives(text: str, file: str) -> Iterator[tuple[str, Word]]:
    """Options of ``#SBATCH`` lines; Slurm stops at the first command."""
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            return
        if stripped.startswith("#SBATCH"):
            for name, value in options_in(stripped.removeprefix("#SBATCH").partition(" #")[0]).items():
                yield name, literal(value, number, file).word(number, file)
