"""Options of a line and keys of a configuration: both are looked up by name, and state a key of a reading.

Options are ``--flag value``, ``--flag=value``, bare flags and ``key=value``; the last one counts.

Also the configurations that torchtitan has by name: their model, precision and the options that they set.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cache
from math import prod
from typing import Final, TypeAlias

from shardplan.base.fields import dataclass
from shardplan.base.files import DATA, shipped_document
from shardplan.inputs.readers.names import shape_within
from shardplan.launch.dialects.models import named_model
from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.values import Convert
from shardplan.launch.read.facts import Document, Word

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
    written: str = ""
    """The name as the file has it, where hyphens stand for its underscores."""

    @property
    def place(self) -> str:
        """File, line and name."""
        return f"{self.file.rpartition('/')[2]}:{self.line} --{self.written or self.name}"

    @property
    def needs(self) -> tuple[str, ...]:
        """What decides its values where the file does not."""
        return tuple(need for word in self.words if word.text is None for need in word.needs or (word.shown,))

    @property
    def said(self) -> str:
        """Place and value, as they are quoted where they are not understood."""
        return f"{self.place} {self.value or ''}".strip()

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

    def first(self, *names: str) -> Option | None:
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
    each = [
        Option(name=name, words=tuple(values), file=at.file, line=at.line, written=_flag(at)[0] or name)
        for name, values, at in found
    ]
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


_LISTS: Final = re.compile(r"<(?:env:|cmd:read )\w*(?:ARG|OPT|OPTION|FLAG|PARAM)S(?:, [^<>]*)?>", re.IGNORECASE)
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


Table: TypeAlias = Mapping[str, tuple[tuple[str, ...], Convert]]
"""Our key: names in the framework, the first that is given counts, and how the value is read."""


@dataclass(frozen=True, kw_only=True)
class NamedSetting:
    """A value with its place."""

    name: str
    value: object
    place: str
    needs: tuple[str, ...] = ()
    shown: str = ""
    """The text of a value that is not decidable, with marks for what is open."""

    @property
    def said(self) -> str:
        """Place and value, as they are quoted where they are not understood."""
        return f"{self.place} = {str(self.value)[:80]}"


class Settings(dict[str, NamedSetting]):
    """Settings by dotted key; those that a dialect looks for are kept in :attr:`seen`."""

    def __init__(self, *given: Mapping[str, NamedSetting]) -> None:
        super().__init__(*given)
        self.seen: set[str] = set()
        self.undecided: dict[str, NamedSetting] = {}
        """Settings that were looked for and that the file leaves open, by place."""

    def __contains__(self, name: object) -> bool:
        """Whether it is given."""
        self.seen.add(str(name))
        return super().__contains__(name)

    @classmethod
    def of(cls, document: Document, prefix: str = "") -> Settings:
        """The values of a document, or of the section under ``prefix``."""
        return cls(
            {
                key.removeprefix(prefix): NamedSetting(
                    name=key,
                    value=each.value,
                    place=f"{each.file.rpartition('/')[2]}:{each.line} {key}",
                    needs=each.needs,
                )
                for key, each in document.values.items()
                if key.startswith(prefix)
            }
        )

    @classmethod
    def of_options(cls, options: Options | Mapping[str, Option], fold: Callable[[str], str] = str) -> Settings:
        """Options of a line; a bare one is true."""
        given = options.given if isinstance(options, Options) else options
        return cls({fold(name): _of_option(option) for name, option in given.items()})

    def values_of(self, pattern: str = ".*") -> dict[str, object]:
        """Values by key where the key is of a pattern."""
        return {key: each.value for key, each in self.items() if re.fullmatch(pattern, key)}

    def section(self, prefix: str) -> Settings:
        """The settings under ``prefix``, without it."""
        start = f"{prefix}."
        return Settings({key.removeprefix(start): each for key, each in self.items() if key.startswith(start)})

    def over(self, other: Mapping[str, NamedSetting]) -> Settings:
        """These, on top of ``other``."""
        return Settings({**other, **self})

    def first(self, *names: str) -> NamedSetting | None:
        """The setting under the first of ``names`` that is there and is not null."""
        found = (self[name] for name in names if name in self)
        chosen = next((each for each in found if each.value is not None or each.needs), None)
        if chosen is not None and chosen.value is None:
            self.undecided[chosen.place] = chosen
        return chosen

    def value(self, *names: str) -> object:
        """Its value; None where there is none."""
        found = self.first(*names)
        return None if found is None else found.value

    def has(self, prefix: str) -> bool:
        """Whether a section or a key is there; an empty one is not."""
        own = self.get(prefix)
        is_set = own is not None and (bool(own.needs) or own.value not in (None, "", (), []))
        return is_set or any(key.startswith(f"{prefix}.") for key in self)


def _of_option(option: Option) -> NamedSetting:
    value: object = True if not option.words else None if option.value == "null" else option.value
    shown = option.words[0].shown if len(option.words) == 1 else ""
    return NamedSetting(name=option.name, value=value, place=option.place, needs=option.needs, shown=shown)


def as_option(setting: NamedSetting, name: str) -> Option:
    """A setting as the option ``name`` that says the same; true is a bare one, a list has several words."""
    file, _, line = setting.place.rsplit(" ", 1)[0].rpartition(":")
    number = int(line) if line.isdigit() else 0
    listed = setting.value if isinstance(setting.value, tuple | list) else (setting.value,)
    shown = " ".join(map(str, listed))
    text = None if setting.needs or setting.value is None else shown
    word = Word(text=text, shown=shown, line=number, file=file, needs=setting.needs)
    return Option(name=name, words=() if setting.value is True else (word,), file=file, line=number)


def state(facts: Facts, key: str, found: Option | NamedSetting | None, convert: Convert) -> bool:
    """States ``key`` by what was found; whether it is given. What does not convert is missing and not understood."""
    if found is None:
        return False
    facts.asked_places.add(found.place)
    value = None if found.value is None else convert(found.value)
    named = _known_folder(found) if key == "model" and value is None else None
    if named is not None:
        facts.derive(key, named, f"{found.place}, by the name of its folder", found.name)
    elif value is None:
        facts.miss(key, found.needs or (found.said,))
        if found.value is not None and not found.needs:
            facts.doubt(found.said)
    if value is None:
        return True
    facts.state(key, value, found.place, found.name)
    for word in found.words if isinstance(found, Option) else ():
        for taken in (each for each in word.assumes if not each.startswith("sbatch:")):
            facts.note(_default_text(taken))
    return True


def _default_text(taken: str) -> str:
    """That a default of the file was taken: ``env:NODES=8`` in words."""
    what, _, value = taken.partition("=")
    kind, _, name = what.rpartition(":")
    missing = f"argument {name} is not given" if kind == "arg" else f"{name} is not set"
    return "no argument is given" if name == "#" else f"{missing}, so the file's default is taken: {value or 'empty'}"


def _known_folder(found: Option | NamedSetting) -> str | None:
    """The name of a known model's folder in a folder that is not decidable: ``$HOME/models/Qwen3-8B``."""
    shown = found.words[0].shown if isinstance(found, Option) and len(found.words) == 1 else getattr(found, "shown", "")
    folder, slash, name = shown.rstrip("/").rpartition("/")
    is_known = bool(slash and _MARK.search(folder)) and (
        named_model(name) is not None or shape_within(name) is not None
    )
    return name if is_known else None


def world_of(facts: Facts) -> None:
    """Data parallelism from the world and the degrees."""
    total = facts.number("num_accelerators")
    values = [facts.number(key) for key in ("tp", "cp", "pp")]
    if total is None or "dp" in facts or None in values:
        return
    product = prod(value or 1 for value in values)
    if product and total % product == 0:
        facts.derive("dp", total // product, f"{total} / (tp cp pp = {product})")


def batch_of(facts: Facts) -> None:
    """What is left of global batch, micro-batch, accumulation and data parallelism follows from the others."""
    gbs, mbs = facts.number("global_batch_size"), facts.number("micro_batch_size")
    accumulation, dp = facts.number("gradient_accumulation"), facts.number("dp")
    if gbs is None and mbs and accumulation and dp:
        rule = f"micro-batch {mbs} x accumulation {accumulation} x dp {dp}"
        facts.missing.pop("global_batch_size", None)
        facts.derive("global_batch_size", mbs * accumulation * dp, rule)
    elif gbs and mbs and dp and accumulation is None and gbs % (mbs * dp) == 0:
        facts.missing.pop("gradient_accumulation", None)
        facts.derive("gradient_accumulation", gbs // (mbs * dp), f"batch {gbs} / (micro-batch {mbs} x dp {dp})")
    elif gbs and accumulation and dp and mbs is None and gbs % (accumulation * dp) == 0:
        facts.missing.pop("micro_batch_size", None)
        facts.derive(
            "micro_batch_size", gbs // (accumulation * dp), f"batch {gbs} / (accumulation {accumulation} x dp {dp})"
        )


@dataclass(frozen=True, kw_only=True)
class NamedConfiguration:
    """A function of torchtitan that gives a model of a size."""

    module: str
    config: str
    model: str
    """Built-in model with the same layers."""
    precision: str = "bf16"
    """Of its products: converters in its Python decide it, and no option does."""
    sets: Mapping[str, object]
    """Options that it sets, by name."""


@cache
def named_configurations() -> tuple[NamedConfiguration, ...]:
    """Those on record."""
    document = shipped_document(DATA / "launch" / "torchtitan.yaml")
    return tuple(NamedConfiguration(**each) for each in document["configurations"])


def configuration_named(module: object, config: object) -> NamedConfiguration | None:
    """The configuration of that name; None where it is not on record."""
    return next((each for each in named_configurations() if (each.module, each.config) == (module, config)), None)
