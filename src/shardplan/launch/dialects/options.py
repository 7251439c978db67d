"""Options of a program: ``--flag value``, ``--flag=value``, bare flags and ``key=value``; the last one counts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final

from shardplan.fields import dataclass
from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.values import Convert
from shardplan.launch.read.facts import Word

_FLAG: Final = re.compile(r"--?[A-Za-z][\w.:-]*")


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option with its values."""

    name: str
    """Without the leading hyphens."""
    words: tuple[Word, ...]
    """Its values; none where it is bare."""
    file: str
    line: int

    @property
    def place(self) -> str:
        """File, line and name."""
        return f"{self.file.rpartition('/')[2]}:{self.line} --{self.name}"

    @property
    def needs(self) -> tuple[str, ...]:
        """What decides its values where the file does not."""
        return tuple(need for word in self.words if word.text is None for need in word.needs or (word.shown,))

    @property
    def value(self) -> str | None:
        """Its only value, or several joined by blanks; None where it is bare or not decidable."""
        texts = [word.text for word in self.words]
        return None if not texts or None in texts else " ".join(each for each in texts if each is not None)


@dataclass(frozen=True, kw_only=True)
class Options:
    """All options of a command, by name; the last of equal names counts."""

    given: Mapping[str, Option]
    repeated: Mapping[str, tuple[Option, ...]]
    """Names that are given more than once with different values, in order."""
    loose: tuple[Word, ...] = ()
    """Words that belong to no option."""
    open: tuple[Word, ...] = ()
    """Undecided words that may hold further options."""
    unset: tuple[Word, ...] = ()
    """Variables alone in a word that no file sets: a shell puts nothing in their place."""
    seen: set[str] = field(default_factory=set, compare=False)
    """Names that a dialect looks for."""

    def get(self, *names: str) -> Option | None:
        """The option under the first of ``names`` that is given."""
        self.seen.update(names)
        return next((self.given[name] for name in names if name in self.given), None)

    def __contains__(self, name: str) -> bool:
        """Whether it is given."""
        self.seen.add(name)
        return name in self.given

    def renamed(self, names: Mapping[str, str]) -> Options:
        """The same options, some under the names of another program."""
        return Options(given={names.get(name, name): each for name, each in self.given.items()}, repeated={})


def options_of(words: Iterable[Word], *, bare: frozenset[str] = frozenset(), fold: bool = False) -> Options:
    """The options in ``words``; ``bare``: flags that never take a value; ``fold``: underscores are hyphens."""
    found: list[tuple[str, list[Word], Word]] = []
    loose, undecided = [], []
    for word in words:
        name, value = _flag(word)
        if name is not None:
            found.append((name.replace("_", "-") if fold else name, [] if value is None else [value], word))
        elif word.text is None and word.splits and not _is_path(word) and (_holds(word) or not _waits(found, bare)):
            undecided.append(word)
        elif found and found[-1][0] not in bare and not _has_value_attached(found[-1]):
            found[-1][1].append(word)
        else:
            loose.append(word)
    return _options(found, loose, undecided)


def _options(
    found: Sequence[tuple[str, list[Word], Word]], loose: Sequence[Word], undecided: Sequence[Word]
) -> Options:
    each = [Option(name=name, words=tuple(values), file=at.file, line=at.line) for name, values, at in found]
    by_name: dict[str, list[Option]] = {}
    for option in each:
        by_name.setdefault(option.name, []).append(option)
    repeated = {name: tuple(those) for name, those in by_name.items() if len({o.value for o in those}) > 1}
    given = {name: those[-1] for name, those in by_name.items()}
    unset = tuple(word for word in undecided if _is_unset(word))
    others = tuple(word for word in undecided if not _is_unset(word))
    return Options(given=given, repeated=repeated, loose=tuple(loose), open=others, unset=unset)


def _is_unset(word: Word) -> bool:
    """Whether a word is one variable that no file sets."""
    name = word.shown[len("<env:") : -1]
    return word.needs == (f"env:{name}",) and word.shown == f"<env:{name}>" and name.isidentifier()


def take_open(facts: Facts, options: Options) -> None:
    """What may hold further options; a variable that no file sets holds none, which is noted."""
    words = (*options.open, *(options.unset if facts.unset_is_open else ()))
    facts.open = tuple(need for word in words for need in word.needs or (word.shown,))
    for word in () if facts.unset_is_open else options.unset:
        name = word.needs[0].removeprefix("env:")
        facts.note(f"line {word.line}: {name} is set in no file and taken as empty; --env {name}=... if it is set")


def _flag(word: Word) -> tuple[str | None, Word | None]:
    """The name of the flag that a word is, and the value that is attached by ``=``."""
    text = word.text if word.text is not None else word.shown
    name, equals, value = text.partition("=")
    if not _FLAG.fullmatch(name):
        return None, None
    if not equals:
        return (name.lstrip("-"), None) if word.text is not None else (None, None)
    known = None if word.text is None else value
    attached = Word(text=known, shown=value, line=word.line, file=word.file, needs=word.needs)
    return name.lstrip("-"), attached


def _waits(found: Sequence[tuple[str, list[Word], Word]], bare: frozenset[str]) -> bool:
    """Whether the last option still waits for its value."""
    return bool(found) and not found[-1][1] and found[-1][0] not in bare


_LISTS: Final = re.compile(r"<(?:env:|cmd:read )\w*(?:ARG|OPT|OPTION|FLAG|PARAM)S>", re.IGNORECASE)
_MARK: Final = re.compile(r"<(?:env|arg|cmd|code|file):[^<>]*>")


def _is_path(word: Word) -> bool:
    """Whether a word has a folder beside what is not decided (``$PWD/data``): it is one word."""
    return "/" in _MARK.sub("", word.shown)


def _holds(word: Word) -> bool:
    """Whether a word is a variable that is named as a list of options (``${MODEL_ARGS[@]}``)."""
    return _LISTS.fullmatch(word.shown) is not None


def _has_value_attached(entry: tuple[str, list[Word], Word]) -> bool:
    return bool(entry[1]) and "=" in (entry[2].text or entry[2].shown)


def pairs_of(words: Iterable[Word]) -> dict[str, Option]:
    """Overrides such as ``model.tp=4`` or ``+model.tp=4``; the last of equal keys counts."""
    found = {}
    for word in words:
        name, equals, value = (word.text if word.text is not None else word.shown).partition("=")
        if equals and re.fullmatch(r"[+~]{0,2}[A-Za-z_][\w./@-]*", name):
            known = None if word.text is None else value.strip("'\"")
            own = Word(text=known, shown=value, line=word.line, file=word.file, needs=word.needs)
            key = name.lstrip("+~")
            found[key] = Option(name=key, words=(own,), file=word.file, line=word.line)
    return found


def take(facts: Facts, key: str, option: Option | None, convert: Convert) -> bool:
    """States ``key`` by ``option``; whether it was given. What does not convert is missing and not understood."""
    if option is None:
        return False
    value = option.value
    converted = None if value is None else convert(value)
    if converted is not None:
        facts.state(key, converted, option.place, option.name)
        for word in option.words:
            for taken in word.assumes:
                facts.note(f"{taken}: the default in the file, as it is not given")
    else:
        facts.miss(key, option.needs or (f"{option.place} {value or ''}".strip(),))
        if value is not None:
            facts.doubt(f"{option.place} {value}")
    return True
