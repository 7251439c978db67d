"""Simple commands: assignment, functions, files that are sourced, text that is written."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from shardplan.launch.read.bash.branches import Branches
from shardplan.launch.read.bash.conditions import HOLDS, Truth
from shardplan.launch.read.bash.expansion import ExpandedWord
from shardplan.launch.read.bash.state import Context, Variable, flat
from shardplan.launch.read.bash.syntax import Source, braces, children, end_of_assignment
from shardplan.launch.read.bash.text import EMPTY, Text, joined, literal, undecided
from shardplan.launch.read.facts import Command, Word

if TYPE_CHECKING:
    from tree_sitter import Node

_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)(?:\[[^\]]*\])?(\+?=)")
_STATED: Final = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_CHANGED: Final = re.compile(
    r"(?<![\w$-])([A-Za-z_]\w*+)(?:\[[^\]\[]*+\])?+\s*+(?:[-+*/%]?=(?!=)|\+\+|--)|(?:\+\+|--)([A-Za-z_]\w*)"
)
_SILENT: Final = frozenset(
    {":", "true", "pwd", "cd", "pushd", "popd", "trap", "umask", "ulimit", "shopt", "module", "hash", "wait", "alias"}
)
_QUERIES: Final = frozenset(
    {"command", "which", "type", "hash", "grep", "egrep", "fgrep", "pgrep", "diff", "cmp", "ping", "kill", "nvidia-smi",
     "timeout", "nc", "curl", "wget"}
)  # fmt: skip
"""Commands whose status is a question; others are expected to succeed in ``a && b``."""


class Builtins(Branches):
    """Runs simple commands."""

    handlers: Mapping[str, Callable[[Any, list[ExpandedWord], int], None]] = {}
    """What the commands of the shell do, by name."""

    def __init__(self, context: Context, open_file: Callable[[str], tuple[str, str] | None]) -> None:
        super().__init__(context)
        context.capture = self.capture_output
        self.source = Source(b"", context.file, 1)
        self.capturing: list[Text] | None = None
        self.texts: dict[str, Text] = {}
        self.not_read: list[tuple[str, int]] = []
        self.ended = 0, "0"
        """Line and status of the last ``exit``."""
        self._open_file = open_file
        self._locals: list[dict[str, Variable | None]] = []
        self._exports: dict[str, Word] = {}
        self._exported_words: dict[str, tuple[Variable, Word]] = {}
        """Words of exported variables, with the values that they are of; commands share them."""

    def capture_output(self, source: str, line: int) -> Text:
        """What a command prints; the evaluator has it."""
        raise NotImplementedError

    def run_source(self, text: str, file: str, first_line: int = 1) -> None:
        """Runs a text; the evaluator has it."""
        raise NotImplementedError

    def run(self, node: Node) -> None:
        """Runs a statement; the evaluator has it."""
        raise NotImplementedError

    def compute(self, source: str, line: int) -> None:
        """Computes ``(( source ))``; the evaluator has it."""
        raise NotImplementedError

    def run_command(self, node: Node, nodes: list[Node]) -> None:
        """A simple command: prefixes, name and words."""
        line = self.source.line(node)
        prefixes = [child for child in node.children if child.type == "variable_assignment"]
        begin = max((end_of_assignment(prefix) for prefix in prefixes), default=0)
        nodes = [each for each in nodes if each.start_byte >= begin or each.start_byte < node.start_byte]
        fields = [field for source, at in self.source.words(nodes) for field in self.expansion.fields(source, at)]
        saved = {name: self.state.variables.get(name) for name in map(self._name_of, prefixes)}
        exported = set(self.state.exported)
        for prefix in prefixes:
            self.assign_node(prefix)
        if fields:
            values = {
                name: flat(self.state.variables.get(name) or EMPTY).word(line, self.source.file) for name in saved
            }
            self._call(fields, values, line)
            for name, value in saved.items():
                self.state.variables[name] = value
                if value is None and name not in exported:
                    del self.state.variables[name]
        else:
            self.status = HOLDS

    def _name_of(self, node: Node) -> str:
        found = _ASSIGNMENT.match(self.source.text(node))
        return found[1] if found else ""

    def _call(self, fields: list[ExpandedWord], prefixes: Mapping[str, Word], line: int) -> None:
        name = fields[0].text.known or ""
        if name in self.state.functions and fields[0].text.known is not None:
            self._call_function(name, [field.text for field in fields[1:]], line)
        elif name in self.handlers:
            self.handlers[name](self, fields[1:], line)
        elif name in _SILENT:
            self.status = HOLDS if name != "pwd" or self.capturing is None else Truth(None, (f"cmd:{name}",))
            if self.capturing is not None and name == "pwd":
                self.emit(fields, prefixes, line)
        else:
            self.emit(fields, prefixes, line)

    def emit(self, fields: list[ExpandedWord], prefixes: Mapping[str, Word], line: int) -> None:
        """Notes a command that would run."""
        file = self.source.file
        words = tuple(field.text.word(line, file, splits=field.splits) for field in fields)
        self.context.budget.spend(len(words) + len(self.state.exported) // 8)
        self.context.budget.write(sum(len(word.shown) for word in words))
        self.commands.append(
            Command(
                words=words,
                assignments=dict(prefixes),
                line=line,
                file=file,
                when=tuple(self.when),
                exported=self.exports(line),
            )
        )
        need = f"cmd:{' '.join(word.shown for word in words)[:80]}"
        self.status = Truth(None, (need,), expected=words[0].text not in _QUERIES)

    def exports(self, line: int) -> Mapping[str, Word]:
        """Exported variables as they are now; commands between which none changes share one table."""
        found: dict[str, Word] = {}
        for name in sorted(self.state.exported):
            value = self.state.variables.get(name)
            if value is not None:
                found[name] = self._exported_word(name, value, line)
        if found != self._exports:
            self._exports = found
        return self._exports

    def _exported_word(self, name: str, value: Variable, line: int) -> Word:
        known = self._exported_words.get(name)
        if known is None or known[0] is not value:
            known = self._exported_words[name] = value, flat(value).word(line, self.source.file)
        return known[1]

    def assign_node(self, node: Node, *, is_export: bool = False) -> str:
        """``NAME=value``, ``NAME+=value``, ``NAME[i]=value``, ``NAME=(words)``; the name."""
        source, line = self.source.between(node.start_byte, end_of_assignment(node)), self.source.line(node)
        found = _ASSIGNMENT.match(source)
        if not found:
            self.context.note(f"line {line}: an assignment that is not read")
            self.forget_assigned(source, line)
            return ""
        name, adds = found[1], found[2] == "+="
        array = next((child for child in node.children if child.type == "array"), None)
        if array is not None:
            self._assign_array(name, array, line, adds=adds)
        else:
            text = self.expansion.single(source[found.end() :], line)
            index = source[len(name) : found.start(2)]
            self._assign_text(name, index, text, line, adds=adds)
        if is_export:
            self.state.exported.add(name)
        return name

    def _assign_text(self, name: str, index: str, text: Text, line: int, *, adds: bool) -> None:
        if index:
            key = self.expansion.single(index[1:-1], line)
            if key.known is None:
                self.context.assign(name, undecided(key.needs, line, self.source.file))
                return
            before = self.context.at(self.context.look_up(name, line), key.known, line) if adds else EMPTY
            self.context.set_element(name, key.known, joined((before, text)), line)
            return
        value = self.state.variables.get(name)
        if adds and isinstance(value, tuple) and not isinstance(value, Text):
            self.context.assign(name, (joined((value[0] if value else EMPTY, text)), *value[1:]))
            return
        if adds:
            text = joined((flat(self.context.look_up(name, line)), text))
            self.context.budget.write(sum(len(piece.text) for piece in text.pieces))
            self.context.budget.spend(len(text.pieces) // 16)
        self.context.assign(name, text)

    def _assign_array(self, name: str, node: Node, line: int, *, adds: bool) -> None:
        entries = list(self.source.words(children(node)))
        if name in self.state.tables or isinstance(self.state.variables.get(name), dict):
            self._assign_table(name, entries, line, adds=adds)
            return
        indexed = [re.match(r"\[(\d+)\]=", source) for source, _ in entries]
        if entries and not adds and [found and int(found[1]) for found in indexed] == list(range(len(entries))):
            each = zip(indexed, entries, strict=True)
            texts = tuple(
                self.expansion.single(source[found.end() if found else 0 :], at) for found, (source, at) in each
            )
            self.context.assign(name, texts)
            return
        if any(re.match(r"\[[^\]]+\]=", source) for source, _ in entries):
            self.context.assign(name, undecided((f"code:{name}=([index]=value)",), line, self.source.file))
            return
        texts = tuple(
            Text((piece._replace(undecided=piece.undecided._replace(splits=True)),), field.text.assumes)
            if field.splits and len(field.text.pieces) == 1 and (piece := field.text.pieces[0]).undecided
            else field.text
            for source, at in entries
            for field in self.expansion.fields(source, at)
        )
        before = self.state.variables.get(name) if adds else None
        old = (before,) if isinstance(before, Text) else before if isinstance(before, tuple) else ()
        self.context.budget.spend(1 + len(old) // 16)
        self.context.assign(name, (*old, *texts))

    def _assign_table(self, name: str, entries: list[tuple[str, int]], line: int, *, adds: bool) -> None:
        before = self.state.variables.get(name)
        table = dict(before) if adds and isinstance(before, dict) else {}
        for source, at in entries:
            found = re.match(r"\[(.*?)\]=", source, re.DOTALL)
            key = self.expansion.single(found[1], at).known if found else None
            if not found or key is None:
                self.context.assign(name, undecided((f"code:{name}[...]",), line, self.source.file))
                return
            table[key] = self.expansion.single(source[found.end() :], at)
        self.context.assign(name, table)

    def declare(self, node: Node) -> None:
        """``export``, ``declare``, ``local``, ``readonly`` and ``typeset``."""
        kind = node.children[0].type
        line, flags, end = self.source.line(node), "", 0
        self.status = HOLDS
        for child in node.children[1:]:
            if child.start_byte < end:
                continue
            end = end_of_assignment(child) if child.type == "variable_assignment" else end
            source = self.source.text(child)
            if child.type == "word" and re.match(r"[-+]\w", source):
                flags += source[1:]
                continue
            is_export = kind == "export" or "x" in flags
            name = self._name_of(child) if child.type == "variable_assignment" else source
            if child.type in ("variable_assignment", "variable_name"):
                self._declare_name(
                    name,
                    flags,
                    is_local=kind == "local"
                    or (kind != "export" and bool(self._locals) and "g" not in flags and kind != "readonly"),
                )
            made = braces(source) if child.type == "variable_assignment" and "=(" not in source else None
            if made:  # words of these commands are expanded before they are assigned
                for each in made:
                    self._assign_text(name, "", self.expansion.single(each.partition("=")[2], line), line, adds=False)
                self.state.exported.update({name} if is_export else ())
            elif child.type == "variable_assignment":
                self.assign_node(child, is_export=is_export)
            elif child.type == "variable_name":
                self.state.exported.update({name} if is_export and "n" not in flags else ())
            elif child.is_named and child.type != "comment":
                self._declare_fields(self.expansion.fields(source, line), line, is_export=is_export)
        if "i" in flags or ("n" in flags and kind != "export"):
            self.context.note(f"line {line}: declare -{flags} is not followed")
            self.forget_assigned(self.source.text(node), line)

    def _declare_name(self, name: str, flags: str, *, is_local: bool) -> None:
        if is_local and self._locals and name not in self._locals[-1]:
            self._locals[-1][name] = self.state.variables.get(name)
            self.state.variables[name] = EMPTY
        if "A" in flags:
            self.state.tables.add(name)

    def _declare_fields(self, fields: list[ExpandedWord], line: int, *, is_export: bool) -> None:
        for field in fields:
            found = _STATED.fullmatch(field.text.known or "")
            if found:
                self.context.assign(found[1], literal(found[2], line, self.source.file))
                self.state.exported.update({found[1]} if is_export else ())
            elif is_export and re.fullmatch(r"[A-Za-z_]\w*", field.text.known or ""):
                self.state.exported.add(field.text.known or "")
            elif stated := re.match(r"([A-Za-z_]\w*)=", field.text.shown):
                self.context.assign(stated[1], undecided(field.text.needs, line, self.source.file))
            elif field.text.known is None:
                self.context.note(f"line {line}: which variables are exported is not decidable: {field.text.shown}")

    def unset(self, name: str) -> None:
        """``unset NAME``."""
        self.context.assign(name, None)
        self.state.exported.discard(name)
        self.state.functions.pop(name, None)

    def forget_assigned(self, source: str, line: int) -> None:
        """Makes undecided what a text that is not read may assign."""
        for found in _CHANGED.finditer(source):
            name = found[1] or found[2]
            self.context.assign(name, undecided((f"code:line {line}",), line, self.source.file))

    def _call_function(self, name: str, arguments: list[Text], line: int) -> None:
        body, source = self.state.functions[name]
        self.context.budget.enter()
        saved = self.state.positional, self.state.counts_arguments
        outer_source, outer_file, outer = self.source, self.context.file, self.pending
        self.state.positional, self.state.counts_arguments = tuple(arguments), True
        self.source, self.context.file, self.pending = source, source.file, []
        self._locals.append({})
        self.run(body)
        self.catch(("return",), outer, line)
        for local, value in self._locals.pop().items():
            if value is None:
                self.state.variables.pop(local, None)
            else:
                self.state.variables[local] = value
        self.state.positional, self.state.counts_arguments = saved
        self.source, self.context.file = outer_source, outer_file
        self.context.budget.leave()
