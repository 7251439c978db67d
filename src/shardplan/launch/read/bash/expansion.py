"""Expansion of words: quotes, parameters, arithmetic and the splitting into fields."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from shardplan.launch.read.bash import syntax
from shardplan.launch.read.bash.arithmetic import ArithmeticUndecidedError
from shardplan.launch.read.bash.parameters import ParameterExpansion
from shardplan.launch.read.bash.state import Context
from shardplan.launch.read.bash.text import Segment, Text, TextPiece, literal, of_text, to_text, undecided, unique

_PLAIN: Final = {
    "word": re.compile(r"[^\\'\"$`\n]+"),
    "double": re.compile(r"[^\\\"$`\n]+"),
    "here": re.compile(r"[^\\$`\n]+"),
}
_PARAMETER: Final = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_ANSI: Final = re.compile(r"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|U[0-9a-fA-F]{1,8}|[0-7]{1,3}|c.|.)", re.DOTALL)
_ANSI_ESCAPES: Final = {
    "n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v",
}  # fmt: skip


_LONGEST_OLD: Final = 1000
"""Characters of old arithmetic, ``$[ ]``, whose end is looked for."""


class ExpandedWord(NamedTuple):
    """One word after expansion."""

    text: Text
    splits: bool
    """Whether undecided text in it is unquoted."""


class Expansion(ParameterExpansion):
    """Expands words of one evaluation."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._line = 0

    def fields(self, source: str, line: int) -> list[ExpandedWord]:
        """The words that ``source`` becomes."""
        self.context.budget.spend()
        made = syntax.braces(source) if "{" in source else None
        if made is None:
            return self.split(self.segments(source, line))
        size = sum(map(len, made))
        self.context.budget.spend(len(made) + size // 16)
        self.context.budget.write(size)
        self.context.budget.enter()
        found = [field for word in made for field in self.fields(word, line)]
        self.context.budget.leave()
        return found

    def single(self, source: str, line: int) -> Text:
        """The text that ``source`` becomes where it is not split: in assignments, ``case`` and ``[[ ]]``."""
        self.context.budget.spend()
        return to_text(self.segments(source, line))

    def here(self, body: str, line: int) -> Text:
        """The text of a here-document."""
        return to_text(self.segments(body, line, "here"))

    def pattern(self, source: str, line: int) -> list[tuple[str, bool]] | None:
        """The text of a pattern, with what of it is quoted; None where it is not decidable."""
        found = self.segments(source, line)
        if any(segment.undecided for segment in found):
            return None
        return [(segment.text, segment.quoted) for segment in found]

    def segments(self, source: str, line: int, mode: str = "word") -> list[Segment]:
        """``source`` cut where quoting changes, with all expansions done."""
        self.context.budget.enter()
        found, position, in_double = list[Segment](), 0, mode == "double"
        if mode == "word" and (tilde := re.match(r"~([\w+-]*)(?=/|$)", source)):
            home = self.context.element("HOME", line)
            other = undecided((f"code:{tilde[0]}",), line, self.context.file)
            found, position = of_text(other if tilde[1] else home, quoted=True), tilde.end()
        while position < len(source):
            char = source[position]
            current = "here" if mode == "here" else "double" if in_double else "word"
            run = _PLAIN[current].match(source, position)
            if run:
                found.append(Segment(run[0], quoted=current != "word", line=line, file=self.context.file))
                position = run.end()
                continue
            if char == '"' and mode != "here":
                in_double = not in_double or mode == "double"
                found.append(Segment("", quoted=True, line=line, file=self.context.file))
                end = position + 1
            else:
                end = self._special(source, position, line, current, found)
            line += source.count("\n", position, end)
            position = end
        self.context.budget.leave()
        return found

    def _special(self, source: str, start: int, line: int, mode: str, found: list[Segment]) -> int:
        """Reads the escape, quote, newline or expansion at ``start``; the index after it."""
        char, following = source[start], source[start + 1 : start + 2]
        file = self.context.file
        end = start + 1
        if char == "\\":
            end = start + 2
            escapes = mode == "word" or following in ('$`\\"' if mode == "double" else "$`\\")
            text = "" if following == "\n" else following if escapes and following else char + following
            if text:
                found.append(Segment(text, quoted=True, line=line, file=file))
        elif char == "'":
            end = syntax.end_of_single(source, start)
            found.append(Segment(source[start + 1 : end - 1], quoted=True, line=line, file=file))
        elif char == "`":
            end = syntax.end_of_backticks(source, start)
            inner = re.sub(r"\\([$`\\])", r"\1", source[start + 1 : end - 1])
            found.extend(of_text(self.context.capture(inner, line), quoted=mode != "word", splits=mode == "word"))
        elif char == "$" and following:
            end = self._dollar(source, start, line, mode, found)
        else:
            found.append(Segment(char, quoted=mode != "word", line=line, file=file))
        return end

    def _dollar(self, source: str, start: int, line: int, mode: str, found: list[Segment]) -> int:
        following = source[start + 1]
        quoted = mode != "word"
        if following == "(":
            end = syntax.end_of_parentheses(source, start + 1)
            inner = source[start + 2 : end - 1]
            is_sum = inner[:1] == "(" and inner[-1:] == ")" and syntax.end_of_parentheses(inner, 0) == len(inner)
            text = self.arithmetic(inner[1:-1], line) if is_sum else self.context.capture(inner, line)
            found.extend(of_text(text, quoted=quoted, splits=not quoted))
        elif following == "{":
            end = syntax.end_of_braces(source, start, in_double=quoted)
            found.extend(self.braced(source[start + 2 : end - 1], line, mode))
        elif following == "[" and (stop := source.find("]", start, start + _LONGEST_OLD)) > 0:
            end = stop + 1
            found.extend(of_text(self.arithmetic(source[start + 2 : stop], line), quoted=quoted, splits=not quoted))
        elif following == "'" and not quoted:
            end = syntax.end_of_ansi(source, start + 1)
            found.append(
                Segment(_unescaped(source[start + 2 : end - 1]), quoted=True, line=line, file=self.context.file)
            )
        elif following == '"' and not quoted:
            end = start + 1
        elif name := _PARAMETER.match(source, start + 1):
            end = name.end()
            found.extend(self.plain(name[0], line, quoted=quoted))
        else:
            end = start + 1
            found.append(Segment("$", quoted=quoted, line=line, file=self.context.file))
        return end

    def arithmetic(self, source: str, line: int) -> Text:
        """``$((source))``."""
        text = to_text(self.segments(source, line, "double"))
        if text.known is None:
            return undecided(text.needs, line, self.context.file, assumes=text.assumes)
        outer, self.context.assumed = self.context.assumed, []
        try:
            number = self.context.number(text.known, line)
            assumes = unique((*text.assumes, *self.context.assumed))
        except ArithmeticUndecidedError as error:
            return undecided(error.needs, line, self.context.file, assumes=text.assumes)
        finally:
            self.context.assumed = outer
        return literal(str(number), line, self.context.file, assumes)

    def split(self, segments: list[Segment]) -> list[ExpandedWord]:
        """The fields of an expanded word."""
        blanks = self._separators()
        return _Splitter(blanks).fields(segments) if segments else []

    def _separators(self) -> str:
        value = self.context.state.variables.get("IFS")
        known = value.known if isinstance(value, Text) else None
        return " \t\n" if known is None else known


class _Splitter:
    """Splits by the separators of IFS (Bash Reference Manual, section 3.5.7)."""

    def __init__(self, separators: str) -> None:
        blanks = "".join(char for char in separators if char in " \t\n")
        others = "".join(char for char in separators if char not in " \t\n")
        space = f"[{blanks}]" if blanks else "(?!)"
        hard = f"[{re.escape(others)}]" if others else "(?!)"
        self._cut = re.compile(f"(?P<hard>{space}*{hard}{space}*)|(?P<soft>{space}+)") if separators else None
        self._found: list[ExpandedWord] = []
        self._pieces: list[TextPiece] | None = None
        self._splits = self._gone = False
        self._assumes: list[str] = []

    def fields(self, segments: list[Segment]) -> list[ExpandedWord]:
        for segment in segments:
            if segment.is_break:
                self._end()
                continue
            if segment.is_gone:
                self._gone = True
            self._assumes.extend(segment.assumes)
            if segment.undecided:
                self._add(segment.piece)
                self._splits |= not (segment.quoted or segment.undecided.is_word)
            elif segment.splits and self._cut is not None:
                self._cut_up(segment, self._cut)
            elif segment.text or (segment.quoted and not segment.is_gone):
                self._add(segment.piece)
        self._end()
        return self._found

    def _cut_up(self, segment: Segment, cut: re.Pattern[str]) -> None:
        position, line = 0, segment.line
        for found in cut.finditer(segment.text):
            if found.start() > position:
                self._add(segment.piece._replace(text=segment.text[position : found.start()], line=line))
            line += found[0].count("\n") if segment.line else 0
            if found.lastgroup == "hard":
                self._pieces = self._pieces or []
            self._end()
            position = found.end()
        if position < len(segment.text):
            self._add(segment.piece._replace(text=segment.text[position:], line=line))

    def _add(self, piece: TextPiece) -> None:
        self._pieces = self._pieces or []
        if piece.text or piece.undecided:
            self._pieces.append(piece)

    def _end(self) -> None:
        if self._pieces is not None and not (self._gone and not self._pieces):
            self._found.append(ExpandedWord(Text(tuple(self._pieces), unique(self._assumes)), self._splits))
            self._assumes = []
        self._pieces, self._splits, self._gone = None, False, False


def _unescaped(text: str) -> str:
    """The characters of ``$'text'``."""

    def char(found: re.Match[str]) -> str:
        code = found[1]
        if code[0] in "xuU" and len(code) > 1:
            number = int(code[1:], 16)
            return chr(number) if number < 0xD800 or 0xDFFF < number < 0x110000 else "?"
        if code[0] in "01234567":
            return chr(int(code, 8) % 256)
        return _ANSI_ESCAPES.get(code, code if code in "\\'\"?" else "\\" + code)

    return _ANSI.sub(char, text)
