"""What commands read: here-strings, here-documents, files that were written, and what the command in front prints.

``read`` and ``mapfile`` as in the Bash Reference Manual, section 4.2; of ``tr``, ``wc``, ``cut``, ``head``, ``tail``,
``grep -q`` and ``bc`` what stands in launch scripts. All else, and text that is not decided, stays asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from shardplan.launch.read.bash import slurm
from shardplan.launch.read.bash.arithmetic import ArithmeticUndecidedError
from shardplan.launch.read.bash.conditions import FAILS, HOLDS, Truth
from shardplan.launch.read.bash.expansion import ExpandedWord
from shardplan.launch.read.bash.shell_files import ShellFiles
from shardplan.launch.read.bash.text import EMPTY, Text, joined, literal, of_text, undecided

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_HOSTS: Final = 10_000
"""Nodes of a job whose names are listed."""
_OF_READ, _OF_MAPFILE = frozenset("adinNptu"), frozenset("dnsOuCc")
"""Options of ``read`` and of ``mapfile`` that take a word."""
_NAME: Final = re.compile(r"[A-Za-z_]\w*")


class ShellInput(ShellFiles):
    """Commands that read what comes in."""

    def redirected_input(self, redirects: Sequence[Node]) -> tuple[bool, Text | None]:
        """Whether the input is redirected, and what is read then; None where that is not decided."""
        for redirect in reversed(redirects):
            if redirect.type == "heredoc_redirect":
                return True, self.here_text(redirect)
            if redirect.type == "herestring_redirect":
                source = self.source.text(redirect).partition("<<<")[2].strip()
                return True, joined((self.expansion.single(source, self.source.line(redirect)), literal("\n")))
            destination = redirect.child_by_field_name("destination")
            if destination is not None and any(child.type == "<" for child in redirect.children):
                return True, self._of_file(self.source.text(destination), self.source.line(redirect))
        return False, None

    def _of_file(self, source: str, line: int) -> Text | None:
        """The text of ``< file`` and ``< <(command)``."""
        if source.startswith("<("):
            text = self.capture_output(source[2:-1], line)
            return joined((text, literal("\n"))) if text.is_words else text
        name = self.expansion.single(source, line)
        return self.texts.get(name.known or name.shown)

    def run_with_input(self, redirects: Sequence[Node], run: Callable[[], None]) -> None:
        """Runs something that reads what ``redirects`` say, or what is read outside of it."""
        is_redirected, text = self.redirected_input(redirects)
        if not is_redirected:
            run()
            return
        outer, self.state.input = self.state.input, text
        run()
        self.state.input = outer

    def do_read(self, fields: list[ExpandedWord], line: int) -> None:
        """``read names``."""
        given, names = _options([field.text.known for field in fields], _OF_READ)
        text, array = self.state.input, given.get("a")
        if text is None or {"u", "n", "N", "t"} & given.keys() or ("r" not in given and "\\" in text.shown):
            self._read_nothing(names, array, line, ())
            return
        found, rest = _until(text, given.get("d", "\n")[:1])
        self.state.input = EMPTY if rest is None else rest
        if not _is_whole(found) and (array is not None or len(names) != 1):
            self._read_nothing(names, array, line, found.needs)  # which may hold ends of lines and separators
            self.state.input = None
            return
        if array is not None:
            parts = self.expansion.split(of_text(found, quoted=False, splits=True))
            self.context.assign(array, tuple(each.text for each in parts))
        else:
            self._read_names(names, found)
        self.status = FAILS if rest is None else HOLDS

    def _read_nothing(self, names: Sequence[str], array: str | None, line: int, needs: tuple[str, ...]) -> None:
        """Names whose values are not decided, or an array of any number of words."""
        for name in names if array is None else ():
            self.context.assign(name, undecided(needs or (f"cmd:read {name}",), line, self.source.file))
        if array is not None:
            open_ = undecided((f"cmd:read {array}", *needs), line, self.source.file, splits=True)
            self.context.assign(array, (open_,))
        self.status = Truth(None, needs or ("cmd:read",))

    def _read_names(self, names: Sequence[str], text: Text) -> None:
        """The last name takes what is left, without blanks at its ends."""
        value = self.context.state.variables.get("IFS")
        known = value.known if isinstance(value, Text) else None
        separators = " \t\n" if known is None else known
        left: Text | None = text
        for place, name in enumerate(names or ["REPLY"]):
            rest = _stripped(left or EMPTY, separators) if names else left or EMPTY
            if place < len(names) - 1:
                rest, left = _cut(rest, separators)
            else:
                alone, after = _cut(rest, separators)
                rest = alone if after is not None and after.known == "" else rest
            self.context.assign(name, rest)

    def do_mapfile(self, fields: list[ExpandedWord], line: int) -> None:
        """``mapfile -t name``."""
        given, names = _options([field.text.known for field in fields], _OF_MAPFILE)
        name, text = names[0] if names else "MAPFILE", self.state.input
        if text is None or not text.is_words or {"d", "n", "s", "O", "u", "C"} & given.keys():
            self._read_nothing([], name, line, () if text is None else text.needs)
            return
        lines, left = list[Text](), text
        while left.pieces:
            found, rest = _until(left, "\n")
            lines.append(found if "t" in given or rest is None else joined((found, literal("\n"))))
            left = EMPTY if rest is None else rest
        self.context.budget.spend(1 + len(lines) // 8)
        self.context.assign(name, tuple(lines))
        self.state.input, self.status = EMPTY, HOLDS

    def do_filter(self, name: str, fields: list[ExpandedWord], line: int) -> None:
        """A command that prints something of what it reads."""
        words, text = [field.text.known for field in fields], self.state.input
        known = [word for word in words if word is not None]
        made = None
        if text is not None and text.is_words and len(known) == len(words):
            self.context.budget.spend(1 + len(text.pieces) // 8)
            self.context.budget.write(sum(len(piece.text) for piece in text.pieces))
            made = self._grep(known, text) if name == "grep" else _filtered(name, known, text)
            made = self._sum(text, line) if name == "bc" and not words else made
        if made is None:
            self.emit([ExpandedWord(literal(name, line, self.source.file), splits=False), *fields], {}, line)
            return
        if self.capturing is not None:
            self.capturing.append(made)
        self.status = self.status if name == "grep" else HOLDS

    def _grep(self, words: list[str], text: Text) -> Text | None:
        """``grep -q word``: whether a text holds it."""
        if len(words) != 2 or words[0] not in ("-q", "-qi", "-iq") or not re.fullmatch(r"[\w -]+", words[1]):
            return None
        known = text.known
        if known is None:
            return None
        sought = (words[1].lower(), known.lower()) if "i" in words[0] else (words[1], known)
        self.status = HOLDS if sought[0] in sought[1] else FAILS
        return EMPTY

    def _sum(self, text: Text, line: int) -> Text | None:
        """What ``bc`` makes of whole numbers."""
        source = (text.known or "").strip()
        if not re.fullmatch(r"[-+*/()\d\s]{1,200}", source) or "\n" in source or "**" in source:
            return None
        try:
            return literal(f"{self.context.number(source, line)}\n", line, self.source.file)
        except ArithmeticUndecidedError:
            return None

    def do_scontrol(self, fields: list[ExpandedWord], line: int) -> None:
        """``scontrol show hostnames``: as many names as the job has nodes."""
        known = [field.text.known for field in fields[:2]]
        nodes = slurm.value_of(self.context.directives, "SLURM_NNODES")
        number = int(nodes[0]) if nodes is not None and nodes[0].isdecimal() and len(nodes[0]) < 6 else 0
        if known not in (["show", "hostnames"], ["show", "hostname"]) or not 0 < number <= MOST_HOSTS:
            self.emit([ExpandedWord(literal("scontrol", line, self.source.file), splits=False), *fields], {}, line)
            return
        self.context.budget.spend(number)
        host = undecided(("cmd:scontrol show hostnames",), line, self.source.file, is_word=True)
        assumed = Text((), () if nodes is None else (nodes[2],))
        if self.capturing is not None:
            self.capturing.append(joined((*(joined((host, literal("\n"))) for _ in range(number)), assumed)))
        self.status = HOLDS


def _options(words: Sequence[str | None], with_word: frozenset[str]) -> tuple[dict[str, str], list[str]]:
    """Options by letter, and the names."""
    given, names, position = dict[str, str](), list[str](), 0
    while position < len(words):
        word = words[position] or ""
        position += 1
        if not re.fullmatch(r"-[A-Za-z].*", word, re.DOTALL):
            names += [word] if _NAME.fullmatch(word) else []
            continue
        for place, letter in enumerate(word[1:], 2):
            given[letter] = ""
            if letter in with_word:
                rest = word[place:]
                if not rest and position < len(words):
                    rest, position = words[position] or "", position + 1
                given[letter] = rest
                break
    return given, names


def _until(text: Text, end: str) -> tuple[Text, Text | None]:
    """What is before the first ``end``, and what is after it; None where there is none."""
    for number, piece in enumerate(text.pieces):
        if end and piece.undecided is None and end in piece.text:
            head, _, tail = piece.text.partition(end)
            before = (*text.pieces[:number], *((piece._replace(text=head),) if head else ()))
            after = (*((piece._replace(text=tail),) if tail else ()), *text.pieces[number + 1 :])
            return Text(before, text.assumes), Text(after, text.assumes)
    return text, None


def _is_whole(text: Text) -> bool:
    """Whether what is not decided in a text is whole words, or folders: ``$DATA/wiki,$DATA/code``."""
    is_folder = [*(piece.text[:1] == "/" for piece in text.pieces[1:]), False]
    each = zip(text.pieces, is_folder, strict=False)
    return all(not piece.undecided or piece.undecided.is_word or before for piece, before in each)


def _stripped(text: Text, separators: str) -> Text:
    """Without blanks of the separators at both ends."""
    blanks = "".join(each for each in separators if each in " \t\n")
    pieces = list(text.pieces)
    while blanks and pieces and pieces[0].undecided is None:
        pieces[0] = pieces[0]._replace(text=pieces[0].text.lstrip(blanks))
        if pieces[0].text:
            break
        del pieces[0]
    while blanks and pieces and pieces[-1].undecided is None:
        pieces[-1] = pieces[-1]._replace(text=pieces[-1].text.rstrip(blanks))
        if pieces[-1].text:
            break
        del pieces[-1]
    return Text(tuple(pieces), text.assumes)


def _cut(text: Text, separators: str) -> tuple[Text, Text | None]:
    """The first field, and what is after the separator behind it; None where there is none."""
    blanks = "".join(each for each in separators if each in " \t\n")
    hard = "".join(each for each in separators if each not in " \t\n")
    for number, piece in enumerate(text.pieces if separators else ()):
        place = next((i for i, each in enumerate(piece.text) if each in separators), None)
        if piece.undecided is None and place is not None:
            head, tail = piece.text[:place], piece.text[place:].lstrip(blanks)
            tail = tail[1:] if tail[:1] and tail[0] in hard else tail
            before = (*text.pieces[:number], *((piece._replace(text=head),) if head else ()))
            after = (*((piece._replace(text=tail),) if tail else ()), *text.pieces[number + 1 :])
            return Text(before, text.assumes), Text(after, text.assumes)
    return text, None


def _filtered(name: str, words: list[str], text: Text) -> Text | None:
    """What a command prints of ``text``; None where it is not read."""
    made = _BY_NAME[name](words, text) if name in _BY_NAME else None
    return None if made is None else Text(made.pieces, text.assumes)


def _lines(text: Text) -> list[Text]:
    found, left = list[Text](), text
    while left.pieces:
        line, rest = _until(left, "\n")
        found.append(line)
        left = EMPTY if rest is None else rest
    return found


def _printed(lines: Sequence[Text]) -> Text:
    return joined(joined((line, literal("\n"))) for line in lines)


def _count(words: list[str], text: Text) -> Text | None:
    """``wc -l`` and ``wc -w``."""
    if words == ["-l"]:
        return literal(f"{sum(piece.text.count(chr(10)) for piece in text.pieces)}\n")
    marked = "".join(piece.text if piece.undecided is None else "x" for piece in text.pieces)
    return literal(f"{len(marked.split())}\n") if words == ["-w"] else None


def _ends(words: list[str], text: Text, *, is_head: bool) -> Text | None:
    """``head -n 1``, ``head -1`` and the same of ``tail``; ``tail -n +2``."""
    shown = re.fullmatch(r"(?:-n ?)?(\+?)-?(\d{1,6})", " ".join(words)) if words else re.fullmatch(r"(\+?)(\d+)", "10")
    if shown is None or (words and not words[0].startswith("-")):
        return None
    number, lines = int(shown[2]), _lines(text)
    if shown[1]:
        return None if is_head else _printed(lines[max(0, number - 1) :])
    return _printed(lines[:number] if is_head else lines[-number:] if number else [])


_RANGES: Final = {"a-z": "abcdefghijklmnopqrstuvwxyz", "A-Z": "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0-9": "0123456789"}
_SETS: Final = {**_RANGES, "[:lower:]": _RANGES["a-z"], "[:upper:]": _RANGES["A-Z"], "[:digit:]": _RANGES["0-9"],
                "[:space:]": " \t\n", "\\n": "\n", "\\t": "\t"}  # fmt: skip


def _translated(words: list[str], text: Text) -> Text | None:
    """``tr a b`` and ``tr -d a``."""
    known = text.known
    sets = [_SETS.get(word, word if len(word) == 1 else None) for word in words if word != "-d"]
    if known is None or None in sets or len(words) != 2 or words[1] == "-d":
        return None
    first, second = sets[0] or "", "" if words[0] == "-d" else sets[1] or ""
    if words[0] == "-d":
        return literal("".join(each for each in known if each not in (sets[0] or "")))
    table = {each: second[min(place, len(second) - 1)] for place, each in enumerate(first)}
    return literal("".join(table.get(each, each) for each in known))


def _columns(words: list[str], text: Text) -> Text | None:
    """``cut -d , -f 2``."""
    found = re.fullmatch(r"-d ?(.) -f ?(\d{1,4})(-?)|-f ?(\d{1,4})(-?) -d ?(.)", " ".join(words))
    known = text.known
    if found is None or known is None:
        return None
    sign, number = found[1] or found[6], int(found[2] or found[4])
    made = list[str]()
    for line in known.splitlines():
        parts = line.split(sign)
        chosen = parts[number - 1 :] if found[3] or found[5] else parts[number - 1 : number]
        made.append(line if len(parts) == 1 else sign.join(chosen))
    return literal("".join(f"{line}\n" for line in made)) if number else None


_BY_NAME: Final[Mapping[str, Callable[[list[str], Text], Text | None]]] = {
    "cat": lambda words, text: text if words in ([], ["-"]) else None,
    "wc": _count,
    "tr": _translated,
    "cut": _columns,
    "head": lambda words, text: _ends(words, text, is_head=True),
    "tail": lambda words, text: _ends(words, text, is_head=False),
}


def _filter(name: str) -> Callable[[Any, list[ExpandedWord], int], None]:
    return lambda self, fields, line: self.do_filter(name, fields, line)


HANDLERS: Final[Mapping[str, Callable[[Any, list[ExpandedWord], int], None]]] = {
    "read": ShellInput.do_read,
    "mapfile": ShellInput.do_mapfile,
    "readarray": ShellInput.do_mapfile,
    "scontrol": ShellInput.do_scontrol,
    **{name: _filter(name) for name in (*_BY_NAME, "grep", "bc")},
}
"""What these commands do, by name."""
