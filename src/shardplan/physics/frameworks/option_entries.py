"""Options of a framework as a capability record writes them: texts with values of the plan in braces.

``--context-parallel-size {cp}`` gives an option of every plan, ``{option: ..., when: "cp > 1"}`` one of some plans.
Expressions in braces and conditions are those of :mod:`shardplan.physics.frameworks.conditions`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, fields
from functools import cache
from string import Formatter
from typing import Any, Final, NamedTuple

import numpy as np

from shardplan.base.errors import UnknownNameError
from shardplan.base.fields import dataclass
from shardplan.base.files import DATA, shipped_document
from shardplan.inputs.plan import Plan, chunk_layers
from shardplan.inputs.plan_numbers import Degrees, Setting
from shardplan.physics.frameworks.conditions import FACTS, SWITCHES, Condition, Fact, Facts, parse_condition, wrong
from shardplan.physics.frameworks.stage_layers import hybrid_pattern, is_hybrid, megatron_layout

OF_JOB: Final = ("sequence_length", "global_batch_size", "precision", "optimizer")
"""Fields of a job that options say besides those of a plan."""
SAID: Final = (*(each.name for each in fields(Plan)), *OF_JOB)
"""Fields that options say."""
_KEYS: Final = ("option", "default", "when", "says", "words")


def _layers(s: Setting, d: Degrees) -> tuple[int, ...]:
    plan = d.plan
    return plan.stage_layers or chunk_layers(s.model.num_hidden_layers, plan.pp * plan.vp, s.model.num_mtp_layers)


def _has_short_ends(layers: tuple[int, ...]) -> bool:
    return len(layers) > 2 and {*layers[1:-1]} == {layers[0] + 1} and layers[-1] == layers[0]


VALUES: Final[Mapping[str, Fact]] = {
    **FACTS,
    "chunk_layers": _layers,
    "short_ends": lambda s, d: _has_short_ends(_layers(s, d)),
    "layout": lambda s, d: megatron_layout(_layers(s, d), s.model.num_mtp_layers),
    "hybrid": lambda s, _d: is_hybrid(s.model),
    "hybrid_pattern": lambda s, d: hybrid_pattern(s.model, _layers(s, d)),
}
"""What options may name: facts of conditions, and of one plan the layers of every model chunk (``chunk_layers``),
whether first and last have one layer less than all others (``short_ends``), and all in Megatron's notation
(``layout``; of a model for which ``hybrid`` holds, ``hybrid_pattern``)."""

_SAYS: Final = dict.fromkeys(("uneven", "chunk_layers", "short_ends", "layout", "hybrid_pattern"), "stage_layers")
"""Fields that facts of another name say."""


class Piece(NamedTuple):
    """A part of a text: words, then a value if there is one."""

    words: str
    value: Condition | None
    separator: str
    """Between the members of a list."""


@dataclass(frozen=True, kw_only=True)
class OptionEntry:
    """An option of some plans, or what the framework does without one."""

    text: str = ""
    """The option with expressions in braces; empty where the framework's own default gives what the plan has."""
    pieces: tuple[Piece, ...] = field(default=(), repr=False)
    """The text as it was parsed."""
    when: Condition | None = None
    """Which plans need it; None: all."""
    says: tuple[str, ...] = ()
    """Fields of the plan or the job that it expresses."""
    words: Mapping[str, str] = field(default_factory=dict)
    """The framework's own words for values."""

    def holds(self, known: Facts) -> bool:
        """Whether it concerns this plan."""
        return self.when is None or bool(self.when.of(known))

    def written(self, known: Facts) -> str:
        """The option for one plan."""
        return written(self.pieces, known, self.words)


def written(pieces: Iterable[Piece], known: Facts, words: Mapping[str, str]) -> str:
    """Pieces with the values of one plan; ``words``: other words for values."""
    return "".join(
        piece.words if piece.value is None else piece.words + _word(piece.value.of(known), piece.separator, words)
        for piece in pieces
    )


def _word(value: Any, separator: str, words: Mapping[str, str]) -> str:
    if isinstance(value, tuple):
        return separator.join(word for each in value if (word := _word(each, separator, words)))
    word = _text(value)
    return words.get(word, word)


def _text(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    return value if isinstance(value, str) else f"{float(value):.12g}"


class OptionTable:
    """The options of a record. They are parsed when one asks for them: most questions do not."""

    def __init__(self, raw: list[Any], where: str) -> None:
        """``raw``: the entries as a file has them; ``where`` names them in errors."""
        self.raw = raw
        self.where = where
        self._entries: tuple[OptionEntry, ...] | None = None

    @property
    def entries(self) -> tuple[OptionEntry, ...]:
        """Every entry. Raises ``InputError``."""
        if self._entries is None:
            entries = enumerate(self.raw)
            self._entries = tuple(_entry(each, f"value[{number}] of {self.where}") for number, each in entries)
        return self._entries

    def __eq__(self, other: object) -> bool:
        """Whether both have the same entries."""
        return isinstance(other, OptionTable) and self.raw == other.raw

    def __hash__(self) -> int:
        """Of tables that are equal the same."""
        return hash(len(self.raw))


class ReadOption(NamedTuple):
    """An option of a record as one who reads launch files looks for it."""

    field: str
    names: tuple[str, ...]
    """In the newest version first, then those of older versions."""
    read: str | Mapping[str, str]
    """``number`` or ``switch``, the name of the field, or the framework's words with ours."""
    value: object = None
    """What the field is where the option is a switch that is given."""


@cache
def read_backwards(stack: str) -> tuple[ReadOption, ...]:
    """The options of a shipped record whose text is names with a field each, or a switch for one value of a field.

    Rules of a dialect read others, such as a switch for one module of ``recompute``.
    """
    found = dict[tuple[str, object], ReadOption]()
    for raw in _shipped_options(stack):
        for each in _backwards(raw):
            known = found.setdefault((each.field, each.value), each)
            found[each.field, each.value] = known._replace(names=tuple(dict.fromkeys((*known.names, *each.names))))
    return tuple(found.values())


def _shipped_options(stack: str) -> Iterator[Mapping[str, Any]]:
    """The options of a shipped record, those of earlier versions too."""
    document = shipped_document(DATA / "stacks" / f"{stack}.yaml")
    for record in (document["can_run"], *document.get("can_run_before", ())):
        for raw in record.get("options", {"value": ()})["value"]:
            yield {"option": raw} if isinstance(raw, str) else raw


def bare_options(stack: str) -> frozenset[str]:
    """Options that a shipped record writes without a value."""
    pieces = [
        each for raw in _shipped_options(stack) for each in re.split(r"(?:^| )--(?=[a-z])", raw.get("option", ""))
    ]
    names = [re.fullmatch(r"([a-z][\w.-]*)(.*)", each, re.DOTALL) for each in pieces if each]
    valued = {found[1] for found in names if found is not None and found[2].strip()}
    return frozenset(found[1] for found in names if found is not None) - valued


_PAIR: Final = r"(?:--)?([A-Za-z_][\w.-]*)(?: |=|: | = )\{(\w+)\}"
"""A name with the value of one field."""


def _backwards(given: Mapping[str, Any]) -> Iterator[ReadOption]:
    text = given.get("option", "")
    pairs = re.findall(_PAIR, text)
    if pairs and re.fullmatch(rf"{_PAIR}(?: {_PAIR})*", text) and {name for _, name in pairs} <= {*SAID, *SWITCHES}:
        for name, of_field in pairs if pairs[0][1] in given.get("says", (pairs[0][1],)) else ():
            words = {word: value for value, word in given.get("words", {}).items()}
            kind = "switch" if of_field in SWITCHES else of_field
            yield ReadOption(of_field, (name,), words or kind)
    elif switch := re.fullmatch(r"--([a-z][\w.-]*)", text):
        for of_field, value in _switched(given):
            yield ReadOption(of_field, (switch[1],), "switch", value)


def _switched(given: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """The field that a switch turns on or off, or sets to a word."""
    when = given.get("when", "")
    facts = re.sub(r'"[^"]*"', "", when)
    says = given.get("says", [name for name in SAID if re.search(rf"\b{name}\b", facts)])
    if len(says) == 1 and says[0] in SWITCHES:
        yield says[0], not re.search(rf"\bnot {says[0]}\b", when)
    elif len(says) == 1 and (found := re.search(rf'\b{says[0]} == "([\w-]+)"', when)):
        yield says[0], found[1]


def read_options(raw: object, where: str) -> OptionTable:
    """The entries in ``raw``, which must be a list. Raises ``InputError``."""
    if not isinstance(raw, list):
        raise wrong(f"value of {where}", raw, "options are a list", 'value: ["--tensor-parallel {tp}"]')
    return OptionTable(raw, where)


def _entry(raw: object, where: str) -> OptionEntry:
    given = {"option": raw} if isinstance(raw, str) else raw
    if not isinstance(given, Mapping) or ("option" in given) == ("default" in given):
        rule = "an option is a text, or has an option or a default with further keys"
        raise wrong(
            where, raw, rule, 'write "--cp {cp}", {option: "--cp {cp}", when: "cp > 1"} or {default: "cp == 1"}'
        )
    for name in given:
        if name not in _KEYS:
            raise UnknownNameError(f"field of {where}", str(name)[:60], _KEYS, hint=f"one of {', '.join(_KEYS)}")
    condition = given.get("default", given.get("when"))
    when = None if condition is None else parse_condition(condition, f"when of {where}", VALUES)
    text = given.get("option", "")
    pieces = () if "default" in given else pieces_of(text, f"option of {where}")
    return OptionEntry(
        text=text,
        pieces=pieces,
        when=when,
        says=_says(given.get("says"), pieces, when, where),
        words=_words(given.get("words", {}), where),
    )


def pieces_of(text: object, where: str) -> tuple[Piece, ...]:
    """The parts of a text with values in braces. Raises ``InputError``."""
    if not isinstance(text, str) or not text.strip():
        raise wrong(where, text, "an option is a text", 'option: "--tensor-parallel {tp}"')
    try:
        parts = list(Formatter().parse(text))
    except ValueError:
        raise wrong(where, text, "values are in braces", "write {{ and }} for braces") from None
    return tuple(
        Piece(words, None if value is None else parse_condition(value, f"value of {where}", VALUES), separator or " ")
        for words, value, separator, _ in parts
    )


def _says(given: object, pieces: tuple[Piece, ...], when: Condition | None, where: str) -> tuple[str, ...]:
    """Fields that an entry expresses: the given ones, or those that its values and its condition name."""
    if given is None:
        read = [piece.value for piece in pieces if piece.value is not None] + ([] if when is None else [when])
        names = [_SAYS.get(name, name) for each in read for name in each.names]
        return tuple(dict.fromkeys(name for name in names if name in SAID))
    if not isinstance(given, list):
        raise wrong(f"says of {where}", given, "says is a list of fields", "says: [recompute]")
    for name in given:
        if name not in SAID:
            raise UnknownNameError(f"field in says of {where}", str(name)[:60], SAID, hint=f"one of {', '.join(SAID)}")
    return tuple(given)


def _words(given: object, where: str) -> dict[str, str]:
    if not isinstance(given, Mapping) or not all(isinstance(each, str) for pair in given.items() for each in pair):
        raise wrong(f"words of {where}", given, "words are texts for texts", 'words: {activation: "moe_act"}')
    return dict(given)
