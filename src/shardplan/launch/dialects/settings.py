"""Keys and values of a configuration, wherever they are written: documents, overrides on the line, options."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from shardplan.fields import dataclass
from shardplan.launch.dialects.options import Option, Options
from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.values import Convert
from shardplan.launch.read.facts import Document, Word

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


def state(facts: Facts, key: str, setting: NamedSetting | None, convert: Convert) -> bool:
    """States ``key`` by ``setting``; whether it is given. What does not convert is missing and not understood."""
    if setting is None:
        return False
    facts.asked_places.add(setting.place)
    value = None if setting.needs and setting.value is None else convert(setting.value)
    if value is not None:
        facts.state(key, value, setting.place, setting.name)
        return True
    facts.miss(key, setting.needs or (f"{setting.place} = {_shown(setting.value)}",))
    if not setting.needs:
        facts.doubt(f"{setting.place} = {_shown(setting.value)}")
    return True


def state_all(facts: Facts, settings: Settings, table: Table) -> None:
    """States every key of ``table`` that is given."""
    for key, (names, convert) in table.items():
        state(facts, key, settings.first(*names), convert)


def assume_all(facts: Facts, defaults: Mapping[str, object]) -> None:
    """The framework's defaults where nothing is said."""
    for key, value in defaults.items():
        facts.assume(key, value)


def _shown(value: object) -> str:
    return str(value)[:80]


def world_of(facts: Facts) -> None:
    """Data parallelism from the world and the degrees."""
    total = facts.number("num_accelerators")
    values = [facts.number(key) for key in ("tp", "cp", "pp")]
    if total is None or "dp" in facts or None in values:
        return
    product = 1
    for value in values:
        product *= value or 1
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


def words_of(words: Mapping[str, str]) -> Convert:
    """Reads one of ``words``, in any case of letters."""
    return lambda value: words.get(str(value).strip().lower())
