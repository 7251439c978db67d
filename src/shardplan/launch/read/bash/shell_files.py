"""Files of a script: those that it sources, and texts that it writes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from shardplan.launch.read.bash.builtins import Builtins
from shardplan.launch.read.bash.conditions import HOLDS
from shardplan.launch.read.bash.expansion import ExpandedWord
from shardplan.launch.read.bash.syntax import arguments, children
from shardplan.launch.read.bash.text import EMPTY, Text, joined, literal, undecided
from shardplan.launch.read.facts import UNREAD

if TYPE_CHECKING:
    from tree_sitter import Node


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
        text, line = self.source.text(body), self.source.line(body)
        if any(child.type == "<<-" for child in here.children):
            text = re.sub(r"^\t+", "", text, flags=re.MULTILINE)
        if re.search(r"['\"\\]", self.source.text(start)):
            return literal(text, line, self.source.file)
        return self.expansion.here(text, line)

    def with_input(self, here: Node) -> None:
        """Notes what the command that was noted last reads from a here-document."""
        if self.commands and self.commands[-1].line <= self.source.line(here):
            text = self.here_text(here).word(self.source.line(here), self.source.file)
            self.commands[-1] = replace(self.commands[-1], standard_input=text)

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
