"""Commands that the shell runs itself: ``echo``, ``set``, ``shift``, ``eval`` and the like."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from shardplan.launch.read.bash.arithmetic import ArithmeticUndecidedError
from shardplan.launch.read.bash.conditions import FAILS, HOLDS, Truth
from shardplan.launch.read.bash.expansion import ExpandedWord
from shardplan.launch.read.bash.inputs import HANDLERS, ShellInput
from shardplan.launch.read.bash.shell_files import filled
from shardplan.launch.read.bash.syntax import arguments, children
from shardplan.launch.read.bash.text import Text, joined, literal, undecided

if TYPE_CHECKING:
    from tree_sitter import Node


class ShellCommands(ShellInput):
    """What commands of the shell do; each takes its words and its line."""

    def fill(self, body: Node, target: Text, line: int, *, appends: bool) -> None:
        """Keeps what ``sed`` makes of a template next to the script."""
        nodes = children(body) if body.type == "pipeline" else [body]
        if all(node.type == "command" for node in nodes) and self.source.text(nodes[0]).startswith(("sed", "cat")):
            made = filled([self._words(node) for node in nodes], lambda name: self._template(name, line))
            if made is not None:
                self.context.budget.write(sum(len(piece.text) for piece in made.pieces))
                self.keep(target, made, line, appends=appends)

    def _words(self, node: Node) -> list[Text]:
        words = self.source.words(arguments(node))
        return [field.text for source, at in words for field in self.expansion.fields(source, at)]

    def _template(self, name: Text, line: int) -> Text | None:
        """The text of a file: one that the script wrote, or one next to it."""
        if name.known in self.texts:
            return self.texts[name.known]
        opened = self._open_file(name.known) if name.known else None
        if opened is None:
            return None
        self.context.budget.read(len(opened[0]))
        return literal(opened[0], line, opened[1])

    def do_echo(self, fields: list[ExpandedWord], line: int) -> None:
        """``echo words``."""
        ends, escapes = "\n", False
        while fields and re.fullmatch(r"-[neE]+", fields[0].text.known or ""):
            flag = fields[0].text.known or ""
            ends = "" if "n" in flag else ends
            escapes = "e" in flag or escapes
            fields = fields[1:]
        text = joined((joined((field.text for field in fields), " "), literal(ends)))
        if escapes and any("\\" in piece.text for piece in text.pieces):
            text = undecided(("code:echo -e",), line, self.source.file)
        self._print(text)

    def _print(self, text: Text) -> None:
        if self.capturing is not None:
            self.context.budget.write(sum(len(piece.text) for piece in text.pieces))
            self.capturing.append(text)
        self.status = HOLDS

    def do_printf(self, fields: list[ExpandedWord], line: int) -> None:
        """``printf template words``."""
        template = fields[0].text.known if fields else ""
        if template == "-v" and len(fields) > 2 and fields[1].text.known:
            self.context.assign(fields[1].text.known, undecided(("code:printf",), line, self.source.file))
            self.status = HOLDS
        elif template in ("%s", "%s\n", "%s\\n") and len(fields) == 2:
            self._print(joined((fields[1].text, literal("\n" if "n" in template[2:] or "\n" in template else ""))))
        else:
            self._print(undecided(("code:printf",), line, self.source.file))

    def _answer(self, name: str, fields: list[ExpandedWord], line: int, made: Text | None) -> None:
        """Prints what a command is known to print, where somebody takes them; else notes the command."""
        if made is None or self.capturing is None:
            self.emit([ExpandedWord(literal(name, line, self.source.file), splits=False), *fields], {}, line)
        else:
            self._print(made)

    def do_dirname(self, fields: list[ExpandedWord], line: int) -> None:
        """``dirname path``."""
        known = fields[0].text.known if len(fields) == 1 else None
        made = None if known is None else self._line(str(PurePosixPath(known).parent), line)
        self._answer("dirname", fields, line, made)

    def do_basename(self, fields: list[ExpandedWord], line: int) -> None:
        """``basename path suffix``."""
        known, made = [field.text.known for field in fields if field.text.known is not None], None
        if len(known) == len(fields) and len(known) in (1, 2):
            name, suffix = PurePosixPath(known[0]).name, "".join(known[1:])
            made = self._line(name.removesuffix(suffix) or name, line)
        self._answer("basename", fields, line, made)

    def _line(self, text: str, line: int) -> Text:
        return literal(f"{text}\n", line, self.source.file)

    def do_seq(self, fields: list[ExpandedWord], line: int) -> None:
        """``seq first last``."""
        known = [field.text.known or "" for field in fields]
        if not 0 < len(known) < 4 or not all(re.fullmatch(r"-?\d{1,6}", each) for each in known):
            self._answer("seq", fields, line, None)
            return
        numbers = [int(each) for each in known]
        first, step, last = (
            (1, 1, numbers[0]) if len(numbers) == 1 else (numbers[0], 1, numbers[1]) if len(numbers) == 2 else numbers
        )
        made = range(first, last + (1 if step > 0 else -1), step) if step else range(0)
        self.context.budget.spend(len(made))
        self._answer("seq", fields, line, literal("".join(f"{each}\n" for each in made), line, self.source.file))

    def do_expr(self, fields: list[ExpandedWord], line: int) -> None:
        """``expr a + b``."""
        known = [field.text.known or "" for field in fields]
        if not known or not all(re.fullmatch(r"-?\d{1,18}|[-+*/%()]", each) for each in known):
            self._answer("expr", fields, line, None)
            return
        try:
            made = self._line(str(self.context.number(" ".join(known), line)), line)
        except ArithmeticUndecidedError as error:
            made = undecided(error.needs, line, self.source.file)
        self._answer("expr", fields, line, made)

    def do_exit(self, fields: list[ExpandedWord], line: int) -> None:
        """``exit``."""
        self.state.flow = "exit"
        self.ended = line, fields[0].text.shown if fields else "0"

    def do_return(self, fields: list[ExpandedWord], line: int) -> None:
        """``return``."""
        for field in fields[:1]:
            is_zero = field.text.known == "0"
            self.status = Truth(None if field.text.known is None else is_zero, field.text.needs)
        self.state.flow = "return"

    def leave(self, kind: str, fields: list[ExpandedWord], line: int) -> None:
        """``break`` and ``continue``."""
        if fields and fields[0].text.known != "1":
            self.context.note(f"line {line}: {kind} out of several loops is read as out of one")
        self.state.flow = kind

    def do_shift(self, fields: list[ExpandedWord], line: int) -> None:
        """``shift``."""
        known = fields[0].text.known if fields else "1"
        number = int(known) if known and known.isdecimal() and len(known) < 6 else 1
        if len(self.state.positional) < number and not self.state.counts_arguments:
            self.state.positional = ()
        elif len(self.state.positional) >= number:
            self.state.positional = self.state.positional[number:]
        self.status = HOLDS if number else FAILS

    def do_set(self, fields: list[ExpandedWord], line: int) -> None:
        """``set``."""
        self.status = HOLDS
        known = [field.text.known for field in fields]
        if "-a" in known or ("-o" in known and "allexport" in known):
            self.state.exports_all = True
        elif "+a" in known:
            self.state.exports_all = False
        if "--" in known:
            rest = fields[known.index("--") + 1 :]
        elif known and known[0] is not None and not known[0].startswith(("-", "+")):
            rest = fields
        else:
            return
        self.state.positional, self.state.counts_arguments = tuple(field.text for field in rest), True

    def do_eval(self, fields: list[ExpandedWord], line: int) -> None:
        """``eval words``."""
        text = joined((field.text for field in fields), " ")
        self.context.budget.spend(10 + sum(len(piece.text) for piece in text.pieces) // 16)  # it is parsed
        if text.known is not None:
            self.run_source(text.known, self.source.file, line)
            return
        marked, needs = list[str](), dict[str, Text]()
        for piece in text.pieces:
            if piece.undecided:
                name = f"__undecided_{len(needs)}"
                needs[name] = Text((piece,), text.assumes)
                marked.append(f"${{{name}}}")
            else:
                marked.append(piece.text)
        self.state.variables.update(needs)
        self.run_source("".join(marked), self.source.file, line)
        for name in needs:
            self.state.variables.pop(name, None)

    def do_let(self, fields: list[ExpandedWord], line: int) -> None:
        """``let expressions``."""
        for field in fields:
            self.compute(field.text.known or "", line)

    def do_exec(self, fields: list[ExpandedWord], line: int) -> None:
        """``exec words``."""
        if fields:
            self._call(fields, {}, line)
            self.state.flow = "exit"

    def do_false(self, fields: list[ExpandedWord], line: int) -> None:
        """``false``."""
        self.status = FAILS

    def do_test_builtin(self, fields: list[ExpandedWord], line: int) -> None:
        """``test words``."""
        self.status = self.conditions.single([field.text for field in fields], line)

    def do_local_words(self, fields: list[ExpandedWord], line: int) -> None:
        """``local words``."""
        self._declare_fields(fields, line, is_export=False)
        self.status = HOLDS

    def do_unset_words(self, fields: list[ExpandedWord], line: int) -> None:
        """``unset names``."""
        for field in fields:
            self.unset(field.text.known or "")
        self.status = HOLDS

    def do_getopts(self, fields: list[ExpandedWord], line: int) -> None:
        """``getopts options name``."""
        for name in (field.text.known or "" for field in fields[1:2]):
            self.context.assign(name, undecided((f"cmd:getopts {name}",), line, self.source.file))
        self.context.assign("OPTARG", undecided(("arg:1",), line, self.source.file))
        if not self.state.positional:
            self.status = Truth(
                value=False, needs=("arg:1",), assumes=() if self.state.counts_arguments else ("arg:#=0",)
            )
            if not self.state.counts_arguments:
                self.context.note(f"line {line}: no arguments were given, so that options keep their defaults")
                self.status = FAILS
        else:
            self.status = Truth(None, ("code:getopts",))


_BUILTINS: Final[Mapping[str, Callable[[Any, list[ExpandedWord], int], None]]] = {
    "source": ShellCommands.do_source_file,
    ".": ShellCommands.do_source_file,
    "echo": ShellCommands.do_echo,
    "printf": ShellCommands.do_printf,
    "dirname": ShellCommands.do_dirname,
    "basename": ShellCommands.do_basename,
    "seq": ShellCommands.do_seq,
    "expr": ShellCommands.do_expr,
    "exit": ShellCommands.do_exit,
    "return": ShellCommands.do_return,
    "break": lambda self, fields, line: self.leave("break", fields, line),
    "continue": lambda self, fields, line: self.leave("continue", fields, line),
    "shift": ShellCommands.do_shift,
    "set": ShellCommands.do_set,
    "eval": ShellCommands.do_eval,
    **HANDLERS,
    "let": ShellCommands.do_let,
    "exec": ShellCommands.do_exec,
    "false": ShellCommands.do_false,
    "test": ShellCommands.do_test_builtin,
    "local": ShellCommands.do_local_words,
    "unset": ShellCommands.do_unset_words,
    "getopts": ShellCommands.do_getopts,
}

ShellCommands.handlers = _BUILTINS
