"""Text of words with what is not decided in it, patterns of the shell over it, and placeholders.

A word is made of segments, between which quoting changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from shardplan.base.errors import shortened
from shardplan.launch.read.facts import Word

_ASSIGNED: Final = re.compile(
    r"^([ \t]*(?:export[ \t]+)?\w{1,100}=)(<[A-Za-z][^<>'\"\n]{0,200}>[^\s'\"`$;&|<>]{0,200})[ \t]*$", re.MULTILINE
)
"""The whole line: so that a redirection, which follows a command, is never one."""


_OPTION: Final = re.compile(r"(?<=[ \t])(--[\w-]{1,60}=)(<[A-Za-z][\w .-]{0,60}>)(?=[ \t\n])")
"""The value of an option."""


def quoted_placeholders(text: str) -> str:
    """``text`` with placeholders in quotes, so that what follows them is read; lines stay where they are.

    >>> quoted_placeholders("A=<your path>_x")
    "A='<your path>_x'"
    >>> quoted_placeholders("srun --image=<name> run")
    "srun --image='<name>' run"
    """
    return _OPTION.sub(r"\1'\2'", _ASSIGNED.sub(r"\1'\2'", text))


_COMMENT: Final = re.compile(r"(?<=[ \t\n])`#[^`\\\n]{0,500}`(?=[ \t\n])")
"""A substitution that is a whole word and runs a comment alone: it leaves nothing."""


def without_comment_words(text: str) -> str:
    """``text`` without comments in backticks; lines stay where they are.

    >>> without_comment_words("run --tp 2 `# of 8` --pp 4")
    'run --tp 2  --pp 4'
    """
    return _COMMENT.sub("", text)


_MOST_SHOWN: Final = 80
_WORDS: Final = re.compile(r"\s+|\S+")


class Undecided(NamedTuple):
    """Something that reading alone does not decide."""

    needs: tuple[str, ...]
    """What would decide it."""
    is_unset: bool = False
    """Whether it is a variable or an argument that nobody gave: tests for empty text assume that there is none."""
    splits: bool = False
    """Whether it may be several words or none, even in quotes: elements that an array has in one branch only."""
    is_word: bool = False
    """Whether it is one word and not empty: a variable that every job has, the name of a host."""


class TextPiece(NamedTuple):
    """A run of characters, or something undecided, with the place where it is written."""

    text: str
    line: int
    file: str
    undecided: Undecided | None = None

    @property
    def shown(self) -> str:
        """The characters; what is undecided in angle brackets."""
        if self.undecided is None:
            return self.text
        return f"<{shortened(', '.join(self.undecided.needs), _MOST_SHOWN)}>"


class Text(NamedTuple):
    """What a variable or a word holds."""

    pieces: tuple[TextPiece, ...]
    assumes: tuple[str, ...] = ()

    @property
    def known(self) -> str | None:
        """The characters; None where some are undecided."""
        if any(piece.undecided for piece in self.pieces):
            return None
        return "".join(piece.text for piece in self.pieces)

    @property
    def needs(self) -> tuple[str, ...]:
        """What decides the undecided pieces."""
        return unique(need for piece in self.pieces if piece.undecided for need in piece.undecided.needs)

    @property
    def shown(self) -> str:
        """The characters, undecided pieces in angle brackets."""
        return "".join(piece.shown for piece in self.pieces)

    @property
    def splits(self) -> bool:
        """Whether this may be several words or none even in quotes."""
        return any(piece.undecided.splits for piece in self.pieces if piece.undecided)

    @property
    def is_words(self) -> bool:
        """Whether what is undecided in this are whole words that are not empty."""
        return all(piece.undecided.is_word for piece in self.pieces if piece.undecided)

    @property
    def is_not_empty(self) -> bool:
        """Whether something is in it for certain."""
        return any(piece.text or (piece.undecided and piece.undecided.is_word) for piece in self.pieces)

    @property
    def is_unset(self) -> bool:
        """Whether this is nothing but variables that nobody gave."""
        return bool(self.pieces) and all(piece.undecided and piece.undecided.is_unset for piece in self.pieces)

    def word(self, line: int, file: str, *, splits: bool = False) -> Word:
        """The word of a command or the value of a variable that this is."""
        place = next(((piece.line, piece.file) for piece in self.pieces if piece.line), (line, file))
        return Word(
            text=self.known,
            shown=self.shown,
            line=place[0],
            file=place[1],
            needs=self.needs,
            assumes=self.assumes,
            splits=splits or self.splits,
        )


EMPTY: Final = Text(())


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """``names``, each once, in order."""
    return tuple(dict.fromkeys(names))


def literal(text: str, line: int = 0, file: str = "", assumes: tuple[str, ...] = ()) -> Text:
    """Known text."""
    return Text((TextPiece(text, line, file),) if text else (), assumes)


def undecided(
    needs: Iterable[str],
    line: int = 0,
    file: str = "",
    *,
    is_unset: bool = False,
    splits: bool = False,
    is_word: bool = False,
    assumes: tuple[str, ...] = (),
) -> Text:
    """Text of which only is known what would decide it."""
    return Text((TextPiece("", line, file, Undecided(unique(needs), is_unset, splits, is_word)),), assumes)


def joined(texts: Iterable[Text], separator: str = "") -> Text:
    """``texts`` after each other."""
    pieces: list[TextPiece] = []
    assumes: list[str] = []
    for number, text in enumerate(texts):
        if number and separator:
            pieces.append(TextPiece(separator, 0, ""))
        pieces.extend(text.pieces)
        assumes.extend(text.assumes)
    return Text(tuple(pieces), unique(assumes))


def either(texts: Sequence[Text], needs: tuple[str, ...], line: int, file: str) -> Text:
    """What is in all of ``texts``, and something undecided between the first and the last word that differ."""
    lists = [_tokens(text) for text in texts]
    shortest = min(len(tokens) for tokens in lists)
    first = lists[0]
    head = 0
    while head < shortest and all(_same(tokens[head], first[head]) for tokens in lists):
        head += 1
    tail = 0
    while tail < shortest - head and all(_same(tokens[-1 - tail], first[-1 - tail]) for tokens in lists):
        tail += 1
    middle = unique(
        need for tokens in lists for p in tokens[head : len(tokens) - tail] if p.undecided for need in p.undecided.needs
    )
    gap = TextPiece("", line, file, Undecided(unique((*needs, *middle)), splits=True))
    differ = ["".join(p.shown for p in tokens[head : len(tokens) - tail]) for tokens in lists]
    blank = (TextPiece(" ", line, file),)
    before = blank if all(not text or text[0].isspace() for text in differ) else ()
    after = blank if all(not text or text[-1].isspace() for text in differ) else ()
    end = tuple(first[len(first) - tail :])
    return Text((*first[:head], *before, gap, *after, *end), unique(each for text in texts for each in text.assumes))


def _tokens(text: Text) -> list[TextPiece]:
    found: list[TextPiece] = []
    for piece in text.pieces:
        if piece.undecided:
            found.append(piece)
        else:
            found.extend(piece._replace(text=each) for each in _WORDS.findall(piece.text))
    return found


def _same(left: TextPiece, right: TextPiece) -> bool:
    return left.text == right.text and left.undecided == right.undecided


def same_text(left: Text, right: Text) -> bool:
    """Whether two texts hold the same, wherever it was written."""
    return left.shown == right.shown and left.needs == right.needs


def without_end(text: Text) -> Text:
    """Without newlines at the end, as command substitution leaves them out."""
    pieces = list(text.pieces)
    while pieces and not pieces[-1].undecided:
        stripped = pieces[-1].text.rstrip("\n")
        if stripped:
            pieces[-1] = pieces[-1]._replace(text=stripped)
            break
        pieces.pop()
    return Text(tuple(pieces), text.assumes)


_CLASSES: Final[Mapping[str, Callable[[str], bool]]] = {
    "alpha": str.isalpha,
    "digit": str.isdigit,
    "alnum": str.isalnum,
    "space": str.isspace,
    "upper": str.isupper,
    "lower": str.islower,
    "punct": lambda char: char.isprintable() and not char.isalnum() and not char.isspace(),
}


class Atom(NamedTuple):
    """One element of a pattern."""

    kind: str
    """``char``, ``any`` (?), ``star`` or ``set``."""
    text: str = ""
    """The character, or what is between the brackets."""

    def takes(self, char: str) -> bool:
        """Whether the element matches one character."""
        if self.kind == "char":
            return char == self.text
        return self.kind == "any" or (self.kind == "set" and _in_set(self.text, char))


def pattern_atoms(parts: list[tuple[str, bool]]) -> list[Atom] | None:
    """The elements of a pattern made of (text, whether it is quoted); None for extended patterns such as ``@(a|b)``."""
    found: list[Atom] = []
    for text, is_quoted in parts:
        if is_quoted:
            found.extend(Atom("char", char) for char in text)
            continue
        position = 0
        while position < len(text):
            char = text[position]
            if char in "@!+?*" and text[position + 1 : position + 2] == "(":
                return None
            if char == "[" and (end := _set_end(text, position)) > 0:
                found.append(Atom("set", text[position + 1 : end]))
                position = end
            elif char == "\\" and position + 1 < len(text):
                position += 1
                found.append(Atom("char", text[position]))
            else:
                found.append(Atom({"*": "star", "?": "any"}.get(char, "char"), char))
            position += 1
    return found


def pattern_matches(pattern: list[Atom], text: str) -> bool:
    """Whether the whole of ``text`` matches: the usual walk that goes back to the last star."""
    at, position, star, mark = 0, 0, -1, 0
    while position < len(text):
        if at < len(pattern) and pattern[at].kind == "star":
            star, mark = at, position
            at += 1
        elif at < len(pattern) and pattern[at].takes(text[position]):
            at, position = at + 1, position + 1
        elif star >= 0:
            mark += 1
            at, position = star + 1, mark
        else:
            return False
    return all(atom.kind == "star" for atom in pattern[at:])


def _set_end(text: str, start: int) -> int:
    position = start + 1
    if text[position : position + 1] in ("!", "^"):
        position += 1
    if text[position : position + 1] == "]":
        position += 1
    while position < len(text):
        if text.startswith("[:", position) and (close := text.find(":]", position)) > 0:
            position = close + 2
        elif text[position] == "]":
            return position
        else:
            position += 1
    return -1


def _in_set(members: str, char: str) -> bool:
    negated = members[:1] in ("!", "^")
    rest = members[1:] if negated else members
    position, found = 0, False
    while position < len(rest):
        if rest.startswith("[:", position) and (close := rest.find(":]", position)) > 0:
            test = _CLASSES.get(rest[position + 2 : close])
            found = found or bool(test and test(char))
            position = close + 2
        elif rest[position + 1 : position + 2] == "-" and position + 2 < len(rest):
            found = found or rest[position] <= char <= rest[position + 2]
            position += 3
        else:
            found = found or rest[position] == char
            position += 1
    return found != negated


class Segment(NamedTuple):
    """Characters, or something undecided, of an expanded word."""

    text: str
    quoted: bool
    line: int
    file: str
    splits: bool = False
    """Whether it comes from an unquoted expansion, so that blanks end the word."""
    undecided: Undecided | None = None
    assumes: tuple[str, ...] = ()
    is_break: bool = False
    """Between two elements of ``"$@"`` or ``"${A[@]}"``: the next word begins."""
    is_gone: bool = False
    """Where ``"$@"`` has no elements: quotes around it alone make no word."""

    @property
    def piece(self) -> TextPiece:
        """The text as a piece of a word."""
        return TextPiece(self.text, self.line, self.file, self.undecided)


BREAK = Segment("", quoted=False, line=0, file="", is_break=True)
GONE = Segment("", quoted=False, line=0, file="", is_gone=True)


def of_text(text: Text, *, quoted: bool, splits: bool = False) -> list[Segment]:
    """The segments of expanded text."""
    found = [
        Segment(
            piece.text,
            quoted=quoted,
            splits=splits,
            line=piece.line,
            file=piece.file,
            undecided=piece.undecided,
            assumes=text.assumes,
        )
        for piece in text.pieces
    ]
    return found or [Segment("", quoted=False, line=0, file="", assumes=text.assumes)]


def to_text(segments: list[Segment]) -> Text:
    """All segments as one text, elements of arrays joined by blanks."""
    pieces = [
        TextPiece(" ", 0, "") if segment.is_break else segment.piece
        for segment in segments
        if segment.text or segment.undecided or segment.is_break
    ]
    return Text(tuple(pieces), unique(each for segment in segments for each in segment.assumes))
