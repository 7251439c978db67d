"""Options that are taken out of a launch file and put in: a change, before anybody makes it in the file itself."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from shardplan.launch.dialects.launches import Launch
from shardplan.launch.dialects.settings import Option
from shardplan.launch.dialects.values import whole
from shardplan.launch.read.facts import Document, Stated, Word

_SAID: Final = re.compile(r"(--)?([A-Za-z_][\w./-]*)(?: *[=:] *| +|$)(.*)", re.DOTALL)
"""``--name value``, ``--name``, ``name=value``, ``a.name: value`` and ``a.name = value``."""


class Said(NamedTuple):
    """An option or a key as a text says it."""

    name: str
    """With hyphens in place of underscores, without those in front."""
    value: str
    """Empty where it is bare."""
    written: str
    """The name as it is written."""


def said(text: str) -> Said | None:
    """What a text says; None where it is no option.

    >>> said("--micro-batch-size 2"), said("train.micro_batch_size: 2").name
    (Said(name='micro-batch-size', value='2', written='micro-batch-size'), 'train.micro-batch-size')
    """
    found = _SAID.fullmatch(text)
    return None if found is None else Said(plain(found[2]), found[3], found[2])


def plain(name: str) -> str:
    """A name however it is spelt."""
    return name.lstrip("-").replace("_", "-")


class Edit(NamedTuple):
    """One text that is taken out, or put in."""

    text: str
    """As it is printed, without its place."""
    file: str = ""
    """The file where it stands; empty: the one that was named, or any where it is taken out."""


class Edits(NamedTuple):
    """A change of a launch file and those beside it."""

    removed: tuple[Edit, ...] = ()
    added: tuple[Edit, ...] = ()

    def in_launch(self, launch: Launch, file: str) -> Launch:
        """The launch with what is changed in its line."""
        front = {plain(name): name for name in launch.options}
        gone = _names(each.text for each in self.removed)
        options = {name: each for name, each in launch.options.items() if plain(name) not in gone}
        for each in map(said, (edit.text for edit in self.added)):
            if each is not None and each.name in front:
                value = _word(each.value, file)
                options[front[each.name]] = Option(name=front[each.name], words=(value,), file=file, line=0)
        return replace(launch, words=self.in_words(launch.words, file, but=front), options=options)

    def in_words(self, words: Sequence[Word], file: str, *, but: Collection[str] = ()) -> tuple[Word, ...]:
        """The words of a line with what is changed in them; ``but``: names that stand elsewhere."""
        gone = [each.text for each in self.removed if each.file in ("", file)]
        put = [each.text for each in self.added if each.file in ("", file)]
        put = [each for each in put if (name := said(each)) is None or name.name not in but]
        return (*_without(words, gone), *(_word(part, file) for text in put for part in shlex.split(text)))

    def in_document(self, document: Document, file: str, *, is_named: bool) -> Document:
        """The configuration with what is changed in it; ``is_named``: whether it is the one that was named."""
        places = (file, "") if is_named else (file,)
        names = _names(each.text for each in self.removed if each.file in (file, ""))
        put = [each for edit in self.added if edit.file in places for each in _pieces(edit.text)]
        names |= {plain(WHOLE) for each in put if each.written == MODE}
        kept = {key: each for key, each in document.values.items() if not _is_named(plain(key), names)}
        for each in put:
            key = _key(each.written, document.values)
            kept[key] = Stated(value=_value(each.value), line=0, file=document.file)
        return replace(document, values=kept)


NONE: Final = Edits()


WORD: Final = re.compile(r"activation-checkpoint:(\w+)")
"""The word of a line of torchtitan that chooses recomputation, and what configurations have in its place."""
MODE, WHOLE = "activation_checkpoint.mode", "activation_checkpoint.__class__"


def _pieces(text: str) -> Iterator[Said]:
    """The options of a text that has several: ``--a 1 --b 2``."""
    for piece in re.split(r" (?=--[a-z])", WORD.sub(rf"{MODE}=\1", text)):
        if (found := said(piece)) is not None:
            yield found


def _names(texts: Iterable[str]) -> set[str]:
    return {each.name for text in texts for each in _pieces(text)}


def _is_named(key: str, names: set[str]) -> bool:
    """Whether a key is one of ``names``, with or without the sections in front."""
    parts = key.split(".")
    return any(plain(".".join(parts[start:])) in names for start in range(len(parts)))


def _key(name: str, values: Mapping[str, Stated]) -> str:
    """The key of ``name`` in a document: as it is there, or in the section that it names, wherever that stands."""
    there = next((key for key in values if _is_named(plain(key), {plain(name)})), None)
    section, dot, _ = name.rpartition(".")
    mark = f".{section}." if dot else ".--"  # options of a line under a section of their own
    fronts = (key[: key.find(mark) + (1 if dot else len(mark))] for key in values if mark in key)
    return there or f"{next(fronts, '')}{name}"


def _value(text: str) -> str | int | bool:
    """A value as a document has it; a bare name is on."""
    known = {"": True, "true": True, "false": False}.get(text.lower())
    number = whole(text)
    return known if known is not None else number if number is not None else text.strip("\"'")


def _word(text: str, file: str) -> Word:
    return Word(text=text, shown=text, line=0, file=file)


def _without(words: Sequence[Word], gone: Sequence[str]) -> Iterator[Word]:
    """The words of a line without these options and their values."""
    names, whole = _names(gone), {*gone}
    drops = False
    for word in words:
        is_flag = re.match(r"--?[A-Za-z]", word.shown) is not None
        pair = re.match(r"[+~]{0,2}([A-Za-z_][\w./@-]*)=", word.shown)
        if is_flag:
            drops = plain(word.shown.partition("=")[0]) in names
        elif pair is not None or word.shown in whole:
            drops = False
        is_own = (pair is not None and plain(pair[1]) in names) or word.shown in whole
        if not (drops or is_own):
            yield word
        drops = drops and "=" not in word.shown
