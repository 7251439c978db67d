"""Parameter expansion: ``$V``, ``${V:-default}``, ``${A[@]}`` (Bash Reference Manual, section 3.5.3)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from shardplan.launch.read.bash.state import Context, Variable
from shardplan.launch.read.bash.text import (
    BREAK,
    EMPTY,
    GONE,
    Segment,
    Text,
    TextPiece,
    joined,
    literal,
    of_text,
    pattern_atoms,
    pattern_matches,
    to_text,
    undecided,
    unique,
)

if TYPE_CHECKING:
    from shardplan.launch.read.bash.text import Atom

_BRACED: Final = re.compile(
    r"(?P<mark>[!#](?=[A-Za-z_0-9@*]))?(?P<name>[A-Za-z_]\w*|\d{1,9}|[@*#?$!-])(?:\[(?P<index>[^\]]*(?:\[[^\]]*\][^\]]*)*)\])?"
    r"(?P<operator>:?[-=+?]|:|##?|%%?|//|/#|/%|/|\^\^?|,,?|@)?(?P<word>.*)",
    re.DOTALL,
)


class ParameterExpansion:
    """The values of parameters and what operators make of them."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def segments(self, source: str, line: int, mode: str = "word") -> list[Segment]:
        """The segments of a word; the class that expands words has it."""
        raise NotImplementedError

    def arithmetic(self, source: str, line: int) -> Text:
        """The value of an expression; the class that expands words has it."""
        raise NotImplementedError

    def plain(self, name: str, line: int, *, quoted: bool) -> list[Segment]:
        """``$name``."""
        if name in "@*":
            return self._listed(self._arguments(), name, quoted=quoted)
        return of_text(self._counted(self._simple(name, line)), quoted=quoted, splits=not quoted)

    def _counted(self, text: Text) -> Text:
        """``text``, whose size is counted."""
        self.context.budget.spend(1 + len(text.pieces) // 4)
        self.context.budget.write(sum(len(piece.text) for piece in text.pieces))
        return text

    def braced(self, inner: str, line: int, mode: str) -> list[Segment]:
        """``${inner}``."""
        quoted = mode != "word"
        found = _BRACED.fullmatch(inner)
        if not found or (found["mark"] and found["operator"] and found["mark"] == "#"):
            return of_text(undecided((f"code:${{{inner}}}",), line, self.context.file), quoted=quoted)
        name, index, word = found["name"], found["index"], found["word"]
        if found["mark"] == "#":
            return of_text(self._length(name, index, line), quoted=quoted, splits=not quoted)
        if found["mark"] == "!":
            return self._indirect(name, index, line, quoted=quoted)
        if not found["operator"] and word:
            return of_text(undecided((f"code:${{{inner}}}",), line, self.context.file), quoted=quoted)
        operator = found["operator"] or ""
        if operator[-1:] and operator[-1] in "-=+?":
            return self._default(name, index, operator, word, line, mode)
        if name in ("@", "*") or index in ("@", "*"):
            elements = self._elements(name, line) if name not in ("@", "*") else self._arguments()
            each = self._each(elements, operator, word, line, is_positional=name in ("@", "*"))
            return self._listed(each, index or name, quoted=quoted)
        text = self._simple(name, line) if index is None else self._indexed(name, index, line)
        changed = self._counted(self._changed(text, operator, word, line))
        return of_text(changed, quoted=quoted, splits=not quoted)

    def _simple(self, name: str, line: int) -> Text:
        context = self.context
        if name.isdecimal():
            return context.argument(int(name), line)
        if name == "#":
            count = str(len(context.state.positional))
            if any(each.splits for each in context.state.positional):
                return undecided(("arg:1",), line, context.file)
            assumes = () if context.state.counts_arguments else ("arg:#=0",)
            return literal(count, line, context.file, assumes)
        if name in "?$!-":
            return undecided((f"cmd:${name}",), line, context.file)
        return context.element(name, line)

    def _indexed(self, name: str, index: str, line: int) -> Text:
        value = self.context.look_up(name, line)
        key = (
            to_text(self.segments(index, line, "double"))
            if not isinstance(value, dict)
            else to_text(self.segments(index, line))
        )
        if key.known is None:
            return undecided(key.needs, line, self.context.file)
        return self.context.at(value, key.known, line)

    def _arguments(self) -> list[Text]:
        if not self.context.state.positional and not self.context.state.counts_arguments:
            self.context.note("no arguments were given: what is passed on by $@ or $* is taken as nothing")
        return list(self.context.state.positional)

    def _elements(self, name: str, line: int) -> list[Text]:
        value: Variable = self.context.look_up(name, line)
        if isinstance(value, Text):
            return [value] if self.context.is_set(name) is not False else []
        return list(value.values() if isinstance(value, dict) else value)

    def _listed(self, elements: list[Text], mark: str, *, quoted: bool) -> list[Segment]:
        if mark == "*" and quoted:
            return of_text(self._counted(joined(elements, self._join_character())), quoted=True)
        found: list[Segment] = [] if elements else [GONE]
        for number, element in enumerate(elements):
            if number:
                found.append(BREAK)
            if quoted:
                found.append(Segment("", quoted=True, line=0, file=""))
            found.extend(of_text(self._counted(element), quoted=quoted, splits=not quoted))
        return found

    def _join_character(self) -> str:
        value = self.context.state.variables.get("IFS")
        known = value.known if isinstance(value, Text) else None
        return " " if known is None else known[:1]

    def _length(self, name: str, index: str | None, line: int) -> Text:
        if index in ("@", "*") or name in ("@", "*"):
            elements = self._elements(name, line) if index in ("@", "*") else list(self.context.state.positional)
            vague = [each for each in elements if each.splits or (len(elements) == 1 and each.is_unset)]
            if vague:
                return undecided((need for each in vague for need in each.needs), line, self.context.file)
            return literal(str(len(elements)), line, self.context.file)
        text = self._simple(name, line) if index is None else self._indexed(name, index, line)
        if text.known is None:
            return undecided(text.needs, line, self.context.file)
        return literal(str(len(text.known)), line, self.context.file, text.assumes)

    def _indirect(self, name: str, index: str | None, line: int, *, quoted: bool) -> list[Segment]:
        if index in ("@", "*"):
            value = self.context.look_up(name, line)
            keys = list(value) if isinstance(value, dict) else [str(n) for n in range(len(self._elements(name, line)))]
            return self._listed([literal(key, line, self.context.file) for key in keys], index, quoted=quoted)
        target = self._simple(name, line)
        if target.known is None or not re.fullmatch(r"[A-Za-z_]\w*", target.known):
            needs = target.needs or (f"code:${{!{name}}}",)
            return of_text(undecided(needs, line, self.context.file), quoted=quoted)
        return of_text(self.context.element(target.known, line), quoted=quoted, splits=not quoted)

    def _default(self, name: str, index: str | None, operator: str, word: str, line: int, mode: str) -> list[Segment]:
        """``${V:-word}`` and its relatives."""
        quoted = mode != "word"
        listed = name in ("@", "*") or index in ("@", "*")
        elements = self._arguments() if name in ("@", "*") else self._elements(name, line) if listed else []
        text = (
            joined(elements, " ")
            if listed
            else self._simple(name, line)
            if index is None
            else self._indexed(name, index, line)
        )
        is_set = self.context.is_set(name) if index is None and not listed else bool(text.pieces) or None
        vague, assumes = False, text.assumes
        if is_set is None and (text.is_unset or not text.pieces):
            is_used, assumes = False, (*(need + "=" for need in text.needs), *assumes)
        elif operator[0] == ":":
            is_used, vague = text.known != "", text.known is None and not text.is_not_empty
        else:
            is_used = bool(is_set)
        sign = operator[-1]
        if vague and sign in "-=+":
            alternative = to_text(self._word(word, line, mode))
            needs = unique((*text.needs, *alternative.needs))
            return of_text(undecided(needs, line, self.context.file), quoted=quoted)
        if sign == "+":
            made = self._word(word, line, mode) if is_used else of_text(EMPTY, quoted=quoted)
            return [*made, *of_text(Text((), assumes), quoted=quoted)]
        if is_used:
            if listed:
                return self._listed(elements, index or name, quoted=quoted)
            return of_text(text, quoted=quoted, splits=not quoted)
        if sign == "?":
            return of_text(undecided(text.needs or (f"env:{name}",), line, self.context.file), quoted=quoted)
        made = self._word(word, line, mode)
        shown = to_text(made)
        stated = tuple(
            need + shown.shown if need.endswith("=") and need[:4] in ("env:", "arg:") else need for need in assumes
        )
        if sign == "=" and index is None and not name.isdecimal():
            self.context.assign(name, Text(shown.pieces, unique((*shown.assumes, *stated))))
        return [*made, *of_text(Text((), stated), quoted=quoted)]

    def _word(self, word: str, line: int, mode: str) -> list[Segment]:
        if mode != "word":
            return self.segments(word, line, "double")
        return [
            segment if segment.quoted or segment.is_break or segment.is_gone else segment._replace(splits=True)
            for segment in self.segments(word, line)
        ]

    def _each(self, elements: list[Text], operator: str, word: str, line: int, *, is_positional: bool) -> list[Text]:
        if operator != ":":
            return [self._changed(element, operator, word, line) for element in elements]
        bounds = self._bounds(word, line)
        if isinstance(bounds, Text) or any(element.splits for element in elements):
            needs = bounds.needs if isinstance(bounds, Text) else tuple(n for each in elements for n in each.needs)
            return [undecided(needs, line, self.context.file, splits=True)]
        start, length = bounds
        everything = [literal(self.context.script), *elements] if is_positional else elements
        start = max(0, len(everything) + start) if start < 0 else start
        return everything[start:] if length is None else everything[start : start + max(0, length)]

    def _bounds(self, word: str, line: int) -> tuple[int, int | None] | Text:
        parts = [self.arithmetic(part, line) for part in _colon_parts(word)]
        unknown = next((part for part in parts if part.known is None), None)
        if unknown is not None:
            return unknown
        numbers = [int(part.known or 0) for part in parts]
        return numbers[0], numbers[1] if len(numbers) > 1 else None

    def _changed(self, text: Text, operator: str, word: str, line: int) -> Text:
        """What an operator makes of a text."""
        if not operator:
            return text
        known = text.known
        if known is None:
            return undecided(text.needs, line, self.context.file, assumes=text.assumes)
        self.context.budget.write(len(known))
        made: str | None
        if operator == ":":
            bounds = self._bounds(word, line)
            if isinstance(bounds, Text):
                return bounds
            made = _slice(known, *bounds)
        elif operator in ("^", "^^", ",", ",,"):
            made = _cased(known, operator) if not word else None
        elif operator == "@":
            made = {"U": known.upper(), "L": known.lower(), "u": known[:1].upper() + known[1:]}.get(word)
        else:
            made = self._by_pattern(known, operator, word, line)
        if made is None:
            return undecided((f"code:${{...{operator}{word}}}",), line, self.context.file)
        place = text.pieces[0] if text.pieces else TextPiece("", line, self.context.file)
        return literal(made, place.line, place.file, text.assumes)

    def _by_pattern(self, known: str, operator: str, word: str, line: int) -> str | None:
        source, replacement = _split_slash(word, operator) if operator[0] == "/" else (word, "")
        found = self.segments(source, line)
        parts = [(each.text, each.quoted) for each in found]
        atoms = None if any(each.undecided for each in found) else pattern_atoms(parts)
        new = to_text(self.segments(replacement, line)).known
        if atoms is None or new is None:
            return None
        self.context.budget.spend(1 + len(known) * (1 + len(known) // 64) // 64)
        if operator[0] in "#%":
            return _trimmed(known, operator, atoms)
        return _replaced(known, operator, atoms, new, self.context.budget.spend)


def _colon_parts(word: str) -> list[str]:
    """``offset:length``; a colon of ``a ? b : c`` in brackets does not count."""
    level = 0
    for position, char in enumerate(word):
        level += (char in "({") - (char in ")}")
        if char == ":" and level == 0:
            return [word[:position], word[position + 1 :]]
    return [word]


def _slice(known: str, start: int, length: int | None) -> str:
    if start < 0:
        start += len(known)
    if start < 0:
        return ""
    end = len(known) if length is None else start + length if length >= 0 else len(known) + length
    return known[start : max(start, end)]


def _cased(known: str, operator: str) -> str:
    change: Callable[[str], str] = str.upper if operator[0] == "^" else str.lower
    return change(known) if len(operator) == 2 else change(known[:1]) + known[1:]


def _split_slash(word: str, operator: str) -> tuple[str, str]:
    position = 0
    while position < len(word):
        if word[position] == "\\":
            position += 1
        elif word[position] in "'\"" and (end := word.find(word[position], position + 1)) > 0:
            position = end
        elif word[position] == "/" and (position or (len(operator) > 1 and operator != "//")):
            return word[:position], word[position + 1 :]
        position += 1
    return word, ""


def _trimmed(known: str, operator: str, atoms: list[Atom]) -> str:
    """Without the shortest or longest head or tail that matches."""
    lengths = range(len(known) + 1) if len(operator) == 1 else range(len(known), -1, -1)
    for length in lengths:
        if operator[0] == "#" and pattern_matches(atoms, known[:length]):
            return known[length:]
        if operator[0] == "%" and pattern_matches(atoms, known[len(known) - length :]):
            return known[: len(known) - length]
    return known


def _replaced(known: str, operator: str, atoms: list[Atom], new: str, spend: Callable[[int], None]) -> str:
    if not atoms:
        return {"/#": new + known, "/%": known + new}.get(operator, known)
    made, position = list[str](), 0
    is_fixed = all(atom.kind != "star" for atom in atoms)
    while position < len(known):
        if operator == "/#" and position:
            break
        rest = len(known) - position
        lengths = (len(atoms),) if is_fixed else range(rest, 0, -1)
        spend(1 if is_fixed else 1 + rest * rest // 64)
        ends = (position + length for length in lengths if 0 < length <= rest)
        found = (end for end in ends if operator != "/%" or end == len(known))
        end = next((end for end in found if pattern_matches(atoms, known[position:end])), None)
        if end is None:
            made.append(known[position : position + 1])
            position += 1
            continue
        made.append(new)
        position = end
        if operator != "//":
            break
    return "".join(made) + known[position:]
