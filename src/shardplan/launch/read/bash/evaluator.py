"""Statements of a script, in the order in which they would run."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from shardplan.base.errors import shortened
from shardplan.launch.read.bash import slurm
from shardplan.launch.read.bash.arithmetic import ArithmeticUndecidedError
from shardplan.launch.read.bash.commands import ShellCommands
from shardplan.launch.read.bash.conditions import FAILS, HOLDS, Truth
from shardplan.launch.read.bash.syntax import Source, arguments, children, is_broken, more_words, parse, split_words
from shardplan.launch.read.bash.text import (
    EMPTY,
    Text,
    joined,
    literal,
    quoted_placeholders,
    undecided,
    without_comment_words,
    without_end,
)

if TYPE_CHECKING:
    from tree_sitter import Node


_WAITS: Final = re.compile(r"(?<![\w./-])sleep\s")
"""What a loop that waits for something does."""


class Evaluator(ShellCommands):
    """Walks the tree of a script."""

    def run_source(self, text: str, file: str, first_line: int = 1) -> None:
        """Runs a text: a script, a sourced file, or the words of ``eval``."""
        self.context.budget.enter()
        data = without_comment_words(quoted_placeholders(text)).encode("utf-8", errors="replace")
        outer, self.source = self.source, Source(data, file, first_line)
        outer_file, self.context.file = self.context.file, file
        root = self.context.budget.timed(lambda left: parse(self.source.data, left))
        if is_broken(root, self.source.data) and not any(child.is_error for child in root.children):
            self._cannot_read(root)
        else:
            self.run_all(root.children)
        self.source, self.context.file = outer, outer_file
        self.context.budget.leave()

    def run_all(self, nodes: list[Node]) -> None:
        """Runs statements until one ends the course."""
        for node in nodes:
            if self.state.flow:
                return
            if node.is_named and node.type != "comment":
                self.run(node)

    def run(self, node: Node) -> None:
        """Runs one statement."""
        self.context.budget.spend()
        if is_broken(node, self.source.data) or (node.has_error and node.type not in self._statements):
            self._cannot_read(node)
            return
        run = self._statements.get(node.type)
        if run is None:
            self._cannot_read(node)
            return
        self.context.budget.enter()
        run(self, node)
        self.context.budget.leave()

    def _cannot_read(self, node: Node) -> None:
        line = self.source.line(node)
        text = " ".join(self.source.text(node).split())
        if text:
            self.context.note(f"line {line}: not read: {shortened(text, 80)}")
        self.not_read.append((self.source.file, line))
        self.forget_assigned(self.source.text(node), line)
        self.status = Truth(None, (f"code:line {line}",))

    def _block(self, node: Node) -> None:
        if node.children and node.children[0].type == "((":
            inner = self.source.between(node.children[0].end_byte, node.children[-1].start_byte)
            self.compute(inner, self.source.line(node))
        else:
            self.run_all(node.children)

    def compute(self, source: str, line: int) -> None:
        """``(( source ))``: its status is whether the number is not zero."""
        text = self.expansion.single(f'"{source}"' if '"' not in source else source, line)
        needs = text.needs
        if text.known is not None:
            try:
                self.status = HOLDS if self.context.number(text.known, line) else FAILS
            except ArithmeticUndecidedError as error:
                needs = error.needs
            else:
                return
        self.forget_assigned(source, line)
        self.status = Truth(None, needs)

    def _subshell(self, node: Node) -> None:
        self.apart(partial(self.run_all, node.children))

    def apart(self, course: Callable[[], None]) -> None:
        """Runs something whose variables are lost."""
        before, outer = self.state.fork(self.context.budget), self.pending
        self.pending = []
        course()
        self.context.state, self.pending = before, outer

    def _pipeline(self, node: Node) -> None:
        parts, outer, mark = children(node), self.state.input, 0
        for number, child in enumerate(parts):
            mark = len(self.commands)
            printed = None if number == len(parts) - 1 else list[Text]()
            self.apart(partial(self._part, child, printed))
            self.state.input = joined(printed) if printed and len(self.commands) == mark else None
        self.state.input = outer
        if len(self.commands) > mark:
            self.status = Truth(None, (f"cmd:{self._short(node)}",))

    def _part(self, node: Node, printed: list[Text] | None) -> None:
        """A part of a pipeline, whose output is kept for the next one."""
        outer = self.capturing
        if printed is not None:
            self.capturing = printed
        self.run(node)
        self.capturing = outer

    def _short(self, node: Node) -> str:
        return shortened(" ".join(self.source.text(node).split()), 80)

    def _negated(self, node: Node) -> None:
        self.run_all(node.children)
        self.status = self.status.negated()

    def _list(self, node: Node) -> None:
        left, right = node.children[0], node.children[-1]
        sign = node.children[1].type
        self.run(left)
        if self.state.flow:
            return
        assignments = ("variable_assignment", "variable_assignments", "declaration_command")
        may_fail = sign == "||" and right.type in assignments
        saved = self.status
        outcome = HOLDS if saved.expected and not may_fail else saved

        def stay() -> None:
            self.status = saved

        go = partial(self.run, right)
        label, line = self._short(left), self.source.line(node)
        courses = (go, stay) if sign == "&&" else (stay, go)
        self.branch(outcome, label, line, *courses)

    def _if(self, node: Node) -> None:
        clauses = [child for child in node.children if child.type in ("elif_clause", "else_clause")]
        self._clause([node, *clauses], 0)

    def _clause(self, clauses: list[Node], number: int) -> None:
        if number == len(clauses):
            self.status = HOLDS
            return
        clause = clauses[number]
        if is_broken(clause, self.source.data):
            self._cannot_read(clause)
            return
        if clause.type == "else_clause":
            self.run_all(clause.children)
            return
        tests = children(clause, clause.children[0].type, ("then",))
        self.run_all(tests)
        outcome = self.status
        body = children(clause, "then", ("elif_clause", "else_clause", "fi"))
        label = " ".join(self.source.text(test) for test in tests)
        if outcome.value is False and not outcome.assumes:
            self._clause(clauses, number + 1)
            return
        courses = partial(self.run_all, body), partial(self._clause, clauses, number + 1)
        self.branch(outcome, label, self.source.line(clause), *courses)

    def _case(self, node: Node) -> None:
        value = node.child_by_field_name("value")
        start = value.start_byte if value else node.start_byte
        stop = next(child for child in node.children if child.type == "in").start_byte
        subject = self.expansion.single(self.source.between(start, stop).strip(), self.source.line(node))
        self._items(subject, [child for child in node.children if child.type == "case_item"], 0)

    def _items(self, subject: Text, items: list[Node], number: int) -> None:
        while number < len(items):
            item = items[number]
            if is_broken(item, self.source.data):
                self._cannot_read(item)
                return
            outcome, label, close = self._item_outcome(subject, item)
            if outcome.value is not False or outcome.assumes:
                body = [child for child in item.children if child.start_byte >= close]
                if any(child.type in (";&", ";;&") for child in item.children):
                    self._cannot_read(item)
                    return
                courses = partial(self.run_all, body), partial(self._items, subject, items, number + 1)
                self.branch(outcome, f"case {subject.shown} in {label}", self.source.line(item), *courses)
                return
            number += 1
        self.status = HOLDS

    def _item_outcome(self, subject: Text, item: Node) -> tuple[Truth, str, int]:
        close = next(child for child in item.children if child.type == ")")
        begin = item.children[1] if item.children[0].type == "(" else item.children[0]
        source = self.source.between(begin.start_byte, close.start_byte)
        needs: dict[str, None] | None = None
        for pattern in split_words(source, frozenset({"|"})):
            if pattern != "|":
                found = self.conditions.match(subject, pattern, self.source.line(item))
                if found.value:
                    return found, source, close.end_byte
                if found.value is None:
                    needs = {} if needs is None else needs
                    needs.update(dict.fromkeys(found.needs))
        return FAILS if needs is None else Truth(None, tuple(needs)), source, close.end_byte

    def _for(self, node: Node) -> None:
        name = node.child_by_field_name("variable")
        body = node.child_by_field_name("body")
        line = self.source.line(node)
        if name is None or body is None or node.children[0].type == "select":
            self._cannot_read(node)
            return
        values = [child for child in node.children if name.end_byte <= child.start_byte < body.start_byte]
        listed = [child for child in values if child.is_named and child.type != "comment"]
        is_listed = any(child.type == "in" for child in values)
        words = self.source.words(listed) if is_listed else iter([('"$@"', line)])
        fields = iter([field for source, at in words for field in self.expansion.fields(source, at)])
        variable = self.source.text(name)

        def test() -> Truth:
            field = next(fields, None)
            if field is None:
                return FAILS
            self.context.assign(variable, field.text)
            return Truth(None, field.text.needs) if field.splits and field.text.needs else HOLDS

        self.loop(test, lambda: self.run(body), f"for {variable} in ...", line)

    def _c_for(self, node: Node) -> None:
        opening = next((child for child in node.children if child.type == "(("), None)
        closing = next((child for child in node.children if child.type == "))"), None)
        body = node.child_by_field_name("body")
        if opening is None or closing is None or body is None:
            self._cannot_read(node)
            return
        parts = self.source.between(opening.end_byte, closing.start_byte).split(";")
        line = self.source.line(node)
        if len(parts) != 3:
            self._cannot_read(node)
            return
        self.compute(parts[0], line)

        def test() -> Truth:
            if not parts[1].strip():
                return HOLDS
            self.compute(parts[1], line)
            return self.status

        def step() -> None:
            self.run(body)
            if not self.state.flow or self.state.flow == "continue":
                self.compute(parts[2], line)

        self.loop(test, step, f"for (({';'.join(parts)}))", line)

    def _while(self, node: Node) -> None:
        body = node.child_by_field_name("body")
        if body is None:
            self._cannot_read(node)
            return
        is_until = node.children[0].type == "until"
        tests = [child for child in node.children[1:] if child.start_byte < body.start_byte]
        label, line = " ".join(self.source.text(each) for each in tests), self.source.line(node)

        def test() -> Truth:
            self.run_all(tests)
            return self.status.negated() if is_until else self.status

        if _WAITS.search(self.source.text(body)):
            self.wait(test, lambda: self.run(body), label, line)
        else:
            self.loop(test, lambda: self.run(body), label, line, ends_when_idle=True)

    def _function(self, node: Node) -> None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is None or body is None:
            self._cannot_read(node)
            return
        self.state.functions[self.source.text(name)] = (body, self.source)
        self.status = HOLDS

    def _test(self, node: Node) -> None:
        line, opening = self.source.line(node), node.children[0].type
        inner = self.source.between(node.children[0].end_byte, node.children[-1].start_byte)
        if opening == "[[":
            self.status = self.conditions.double(inner, line)
        elif opening == "((":
            self.compute(inner, line)
        else:
            fields = [field for source in split_words(inner) for field in self.expansion.fields(source, line)]
            self.status = self.conditions.single([field.text for field in fields], line)

    def _assignment(self, node: Node) -> None:
        self.assign_node(node)
        self.status = HOLDS

    def _assignments(self, node: Node) -> None:
        for child in children(node):
            self._assignment(child)

    def _command(self, node: Node) -> None:
        redirects = [child for child in node.children if child.type == "herestring_redirect"]
        self.run_with_input(redirects, lambda: self.run_command(node, arguments(node)))

    def _unset(self, node: Node) -> None:
        for source, line in self.source.words(children(node)):
            for field in self.expansion.fields(source, line):
                if field.text.known and not field.text.known.startswith("-"):
                    self.unset(field.text.known)
        self.status = HOLDS

    def _redirected(self, node: Node) -> None:
        redirects = [child for child in node.children if child.type.endswith("_redirect")]
        self.run_with_input(redirects, lambda: self._with_output(node, redirects))

    def _with_output(self, node: Node, redirects: list[Node]) -> None:
        body = node.child_by_field_name("body")
        extra = [word for redirect in redirects for word in more_words(redirect)]
        output: list[Text] | None = None
        target = self.target(redirects)
        here = next((each for each in redirects if each.type == "heredoc_redirect"), None)
        if body is not None and body.type == "command":
            words = [*arguments(body), *extra]
            name = self.source.text(words[0]) if words else ""
            if here is not None and name in ("cat", "tee"):
                self.write(here, target, words)
            elif target is not None and name in ("echo", "printf"):
                output = []
                outer, self.capturing = self.capturing, output
                self.run_command(body, words)
                self.capturing = outer
                self.keep(target, joined(output), self.source.line(node), appends=self.appends(redirects))
            else:
                self.run_command(body, words)
        elif body is not None:
            self.run(body)
        if target is not None and here is None and output is None and body is not None:
            self.fill(body, target, self.source.line(node), appends=self.appends(redirects))
        if here is not None and (right := here.child_by_field_name("right")) is not None:
            self.run(right)

    def capture_output(self, source: str, line: int) -> Text:
        """``$(source)``: what it prints where that is decidable; nothing where it holds comments alone."""
        if all(each.lstrip()[:1] in ("", "#") for each in source.splitlines()):
            return EMPTY
        counted = slurm.devices_of_node(self.context.directives) if slurm.COUNTS.fullmatch(source) else None
        if counted is not None:
            return literal(str(counted[0]), line, self.context.file, (f"sbatch:{counted[1].text} on a node",))
        if self.context.node is not None and slurm.COUNTS.fullmatch(source):
            number = self.context.node
            self.context.note(f"line {line}: a node of the cluster has {number} accelerators, which the script counts")
            return literal(str(number), line, self.context.file, ("sbatch:a node of the cluster",))
        outer, outer_when, mark = self.capturing, self.when, len(self.commands)
        outer_status, notes = self.status, dict(self.context.notes)
        output = list[Text]()
        self.capturing = output
        self.when = []
        before, pending = self.state.fork(self.context.budget), self.pending
        self.run_source(source, self.context.file, line)
        ran, changed = self.commands[mark:], bool(self.pending) or self.state.flow not in ("", "exit")
        del self.commands[mark:]
        self.context.state, self.pending = before, pending
        self.capturing, self.when, self.status, self.context.notes = outer, outer_when, outer_status, notes
        if ran or changed or not output:
            return undecided((f"cmd:{shortened(' '.join(source.split()), 200)}",), line, self.context.file)
        return without_end(joined(output))

    _statements: Final = {
        "program": _block,
        "compound_statement": _block,
        "do_group": _block,
        "command": _command,
        "declaration_command": ShellCommands.declare,
        "unset_command": _unset,
        "variable_assignment": _assignment,
        "variable_assignments": _assignments,
        "redirected_statement": _redirected,
        "pipeline": _pipeline,
        "list": _list,
        "negated_command": _negated,
        "subshell": _subshell,
        "if_statement": _if,
        "case_statement": _case,
        "for_statement": _for,
        "c_style_for_statement": _c_for,
        "while_statement": _while,
        "function_definition": _function,
        "test_command": _test,
    }
