"""Files that a script writes, reads or sources, and templates that it fills in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, NamedTuple

from shardplan.launch.read.bash.builtins import Builtins
from shardplan.launch.read.bash.conditions import HOLDS
from shardplan.launch.read.bash.expansion import ExpandedWord
from shardplan.launch.read.bash.syntax import arguments, children
from shardplan.launch.read.bash.text import EMPTY, Text, TextPiece, joined, literal, undecided, unique
from shardplan.launch.read.facts import UNREAD

if TYPE_CHECKING:
    from tree_sitter import Node

_PLAIN: Final = re.compile(r"[\w <>{}@%#:=,-]+")
"""Patterns that stand for themselves."""
Atoms = list[str | TextPiece]
"""Characters, and pieces that are not decided."""
_MOST_BLANKS: Final = 1000
"""Blanks in front of a here-document that are looked for."""
_SEPARATORS: Final = re.compile(r"[\s;]*")


class Substitution(NamedTuple):
    """``s/pattern/replacement/``."""

    pattern: str
    replacement: Text
    every: bool
    """Whether it replaces more than the first on a line."""


def filled(commands: Sequence[Sequence[Text]], template: Callable[[Text], Text | None]) -> Text | None:
    """What a pipeline of ``cat`` and ``sed`` prints; None where one of them does something else.

    ``template`` opens a file.
    """
    text: Text | None = None
    for number, words in enumerate(commands):
        name = words[0].known if words else None
        if name == "cat" and number == 0 and len(words) == 2:
            text = template(words[1])
        elif name == "sed":
            text = _edited(words[1:], text, template, is_first=number == 0)
        else:
            return None
        if text is None:
            return None
    return text


def _edited(
    words: Sequence[Text], text: Text | None, template: Callable[[Text], Text | None], *, is_first: bool
) -> Text | None:
    """What ``sed`` prints of ``text``, or of its only file where it is the first."""
    has_flags = any(word.known == "-e" for word in words)
    rest = [word for word in words if word.known not in {"-e", "-u"}]
    number = len(rest) - is_first if has_flags else 1
    expressions, files = rest[:number], rest[number:]
    if len(files) != is_first or any((word.known or "").startswith("-") for word in rest):
        return None
    text = template(files[0]) if is_first else text
    for expression in expressions:
        steps = substitutions(expression)
        if steps is None or text is None:
            return None
        for step in steps:
            text = _replaced(text, step)
    return text


def substitutions(expression: Text) -> list[Substitution] | None:
    """The steps of an expression; None where one is no substitution of plain text."""
    left, found = Atoms(_atoms(expression)), list[Substitution]()
    while left:
        while left and isinstance(left[0], str) and _SEPARATORS.fullmatch(left[0]):
            del left[0]
        if not left:
            break
        if len(left) < 2 or left[0] != "s" or not isinstance(left[1], str):
            return None
        parts, left = _parts(left[2:], left[1])
        step = None if parts is None else _step(parts, left)
        if step is None:
            return None
        found.append(step)
    return found or None


def _atoms(text: Text) -> Iterator[str | TextPiece]:
    """Characters, and pieces that are not decided."""
    for piece in text.pieces:
        if piece.undecided:
            yield piece
        else:
            yield from piece.text


def _parts(atoms: Atoms, sign: str) -> tuple[tuple[Atoms, Atoms] | None, Atoms]:
    """What is before the next two signs, and what is left."""
    places = [place for place, atom in enumerate(atoms) if atom == sign][:2]
    if len(places) < 2:
        return None, []
    return (atoms[: places[0]], atoms[places[0] + 1 : places[1]]), atoms[places[1] + 1 :]


def _step(parts: tuple[Atoms, Atoms], left: Atoms) -> Substitution | None:
    """A substitution, whose flags are taken from ``left``."""
    every = bool(left) and left[0] == "g"
    if every:
        del left[0]
    pattern = "".join(atom if isinstance(atom, str) else "\0" for atom in parts[0])
    if not _PLAIN.fullmatch(pattern) or {"&", "\\"} & {atom for atom in parts[1] if isinstance(atom, str)}:
        return None
    pieces = tuple(TextPiece(atom, 0, "") if isinstance(atom, str) else atom for atom in parts[1])
    return Substitution(pattern, Text(pieces), every)


def _replaced(text: Text, step: Substitution) -> Text:
    """``text`` with the pattern replaced, on every line once or wherever it is."""
    token = re.compile(f"({re.escape(step.pattern)}|\n)")
    found, is_done = list[TextPiece](), False
    for piece in text.pieces:
        for part in (None,) if piece.undecided else token.split(piece.text):
            is_done = is_done and part != "\n"
            if part == step.pattern and (step.every or not is_done):
                found += step.replacement.pieces
                is_done = True
            elif part is None or part:
                found.append(piece if part is None else piece._replace(text=part))
    return Text(tuple(found), unique((*text.assumes, *step.replacement.assumes)))


class ShellFiles(Builtins):
    """Reads and keeps files."""

    def do_source_file(self, fields: list[ExpandedWord], line: int) -> None:
        """``source file``."""
        if not fields:
            return
        target, rest = fields[0].text, [field.text for field in fields[1:]]
        opened = self._open_file(target.known) if target.known else self._open_near(target, line)
        if opened is None:
            self.context.note(f"line {line}: sources {target.shown}, {UNREAD}")
            self.status = HOLDS
            return
        text, file = opened
        self.context.budget.read(len(text))
        saved = self.state.positional, self.state.counts_arguments
        if rest:
            self.state.positional, self.state.counts_arguments = tuple(rest), True
        outer, self.pending = self.pending, []
        self.run_source(text, file)
        self.catch(("return",), outer, line)
        if rest:
            self.state.positional, self.state.counts_arguments = saved
        self.status = HOLDS

    def _open_near(self, target: Text, line: int) -> tuple[str, str] | None:
        """The file of a path that begins with something undecided, such as ``$(pwd)``: the rest, next to the script."""
        first = next((number for number, piece in enumerate(target.pieces) if not piece.undecided), 0)
        rest = "".join(piece.text for piece in target.pieces[first:])
        if not first or any(piece.undecided for piece in target.pieces[first:]) or not rest.startswith("/"):
            return None
        opened = self._open_file(rest[1:])
        if opened:
            self.context.note(f"line {line}: {target.shown} is taken to be {opened[1]}, next to the script")
        return opened

    def target(self, redirects: list[Node]) -> Text | None:
        """The file that output goes to: of ``>``, ``>>`` or of ``tee``."""
        for redirect in redirects:
            if redirect.type == "file_redirect":
                signs = [child.type for child in redirect.children if not child.is_named]
                destination = redirect.child_by_field_name("destination")
                descriptor = redirect.child_by_field_name("descriptor")
                if (
                    destination is not None
                    and signs[-1:]
                    and signs[-1] in (">", ">>", "&>", ">|")
                    and descriptor is None
                ):
                    return self.expansion.single(self.source.text(destination), self.source.line(destination))
            elif redirect.type == "heredoc_redirect":
                found = self.target(redirect.children) or self._tee(redirect)
                if found:
                    return found
        return None

    def _tee(self, redirect: Node) -> Text | None:
        pipeline = next((child for child in redirect.children if child.type == "pipeline"), None)
        command = next((child for child in children(pipeline) if child.type == "command"), None) if pipeline else None
        words = list(self.source.words(arguments(command))) if command is not None else []
        if not words or words[0][0] != "tee":
            return None
        names = [word for word in words[1:] if not word[0].startswith("-")]
        return self.expansion.single(*names[0]) if names else None

    def appends(self, redirects: list[Node]) -> bool:
        """Whether output is added to the file."""
        return any(child.type == ">>" for redirect in redirects for child in redirect.children) or any(
            self.appends([child])
            for redirect in redirects
            for child in redirect.children
            if child.type == "file_redirect"
        )

    def write(self, here: Node, target: Text | None, words: list[Node]) -> None:
        """``cat <<EOF > file``: keeps the text by the name of the file."""
        text, line = self.here_text(here), self.source.line(here)
        named = [word for word, _ in self.source.words(words[1:]) if not word.startswith("-")]
        if target is None and named and self.source.text(words[0]) == "tee":
            target = self.expansion.single(named[0], line)
        self.status = HOLDS
        if target is not None:
            self.keep(target, text, line, appends=self.appends([here]))
        elif self.capturing is not None:
            self.capturing.append(text)

    def here_text(self, here: Node) -> Text:
        """The text of a here-document."""
        start = next((child for child in here.children if child.type == "heredoc_start"), None)
        body = next((child for child in here.children if child.type == "heredoc_body"), None)
        if start is None or body is None:
            return EMPTY
        begin, data = body.start_byte, self.source.data
        while begin > max(1, body.start_byte - _MOST_BLANKS) and data[begin - 1] in b" \t\n":
            begin -= 1  # the grammar leaves out blanks in front
        begin = max(begin, data.find(b"\n", begin, body.start_byte) + 1)
        text = self.source.between(begin, body.end_byte)
        line = self.source.line(body) - data.count(b"\n", begin, body.start_byte)
        if any(child.type == "<<-" for child in here.children):
            text = re.sub(r"^\t+", "", text, flags=re.MULTILINE)
        if re.search(r"['\"\\]", self.source.text(start)):
            return literal(text, line, self.source.file)
        return self.expansion.here(text, line)

    def keep(self, target: Text, text: Text, line: int, *, appends: bool) -> None:
        """Keeps what is written to a file."""
        name = str(PurePosixPath(target.shown)) if target.shown else ""
        if not name or name.startswith("/dev/"):
            return
        if self.when:
            label = "; ".join(self.when)
            self.context.note(f"line {line}: {name} is written only if: {label}")
            if name in self.texts:
                text = undecided((f"code:{label}",), line, self.source.file)
        before = self.texts.get(name, EMPTY) if appends else EMPTY
        self.texts[name] = joined((before, text))
        if len(self.texts) > 200:
            self.texts.pop(next(iter(self.texts)))
