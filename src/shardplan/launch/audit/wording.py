"""A change of a plan in the words of the file that states the plan: options to remove, and options to add.

The options of a framework's record are those of its files in some dialects. In others a field is changed by the option
that states it, or by the one that the record of the dialect has for it. Which of both is right is found out by reading
the changed file (``improve``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Final, NamedTuple

from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan
from shardplan.inputs.software import CHOSEN
from shardplan.launch.audit.nearby import Change
from shardplan.launch.dialects.accelerate import STRATEGIES
from shardplan.launch.dialects.edits import Edit, Edits
from shardplan.launch.dialects.frameworks import maxtext, torchtitan
from shardplan.launch.dialects.frameworks.small_frameworks import TABLES
from shardplan.launch.dialects.megatron_core import flagscale, forks, megatron, neox, recipes, swift
from shardplan.launch.dialects.megatron_core.nemo import NEMO
from shardplan.launch.dialects.reading import GIVEN, PLAN_KEYS, Reading, plain_name
from shardplan.launch.dialects.records import Dialect
from shardplan.launch.dialects.values import Convert, degree, on_off, switch, whole, words_of, zero_stage
from shardplan.physics.frameworks.options import options_of
from shardplan.physics.frameworks.stack import Stack

StatedOptions = Mapping[str, tuple[str, ...]]
"""Every option of a plan, with the fields that it states."""


class FileOption(NamedTuple):
    """An option of the file that states a field."""

    option: str
    """As it is written: ``--num-layers-per-virtual-pipeline-stage``."""
    place: str
    """File and line."""

    @property
    def name(self) -> str:
        """What names it however it is spelt."""
        return self.option.lstrip("-").replace("-", "_")


class Wording(NamedTuple):
    """How a file states a plan."""

    stated: Mapping[str, FileOption]
    """The option of each field that the file states."""
    defaults: frozenset[str]
    """Fields that the file leaves at the framework's default."""
    file: str = ""
    """Its name."""
    given: frozenset[str] = frozenset()
    """Fields that come with the question, which the file cannot change."""
    dialect: Dialect | None = None
    """The record of its dialect."""
    is_earlier: bool = False
    """Whether its keys are of a version before the record's: what it does not state has no key that is known."""
    is_own: bool = False
    """Whether the file's names are not those of the record that prices it: changes are said by its own names."""
    doubted: frozenset[str] = frozenset()
    """Fields at a default that something in the file, which is not understood, may contradict."""
    shards: int | None = None
    """Degree of sharding that the file states, where the world is the product of all degrees."""
    names: frozenset[str] = frozenset()
    """Options and keys of the file; none where they are not known."""
    instead: Mapping[tuple[str, object], str] = MappingProxyType({})
    """What the file has to say where leaving an option out gives another value than in the record."""
    spell: Callable[[str], tuple[str, ...]] = lambda option: (option,)
    """Options of the record as the file spells them."""
    known: frozenset[str] = frozenset()
    """Options of the record that the framework of the file has too; empty where it has all."""

    @property
    def sayable(self) -> frozenset[str]:
        """Fields that an option of the dialect states."""
        return frozenset(name for name in PLAN_KEYS if _option_of(name, self) is not None) | {"schedule"}

    def has_others(self, change: Change, options: StatedOptions) -> bool:
        """Whether the file states what changes under other names than ``options``: those of an earlier version."""
        known = " ".join(options).replace("-", "_")
        return any(self.stated[name].name not in known for name in change if name in self.stated)


class WordedChange(NamedTuple):
    """What a change takes out and puts in."""

    edits: Edits
    removed: tuple[str, ...]
    """As they are printed, with their places."""
    added: tuple[str, ...]


NO_WORDING: Final = Wording({}, frozenset())
NO_CHANGE: Final = WordedChange(Edits(), (), ())

OF_RECORD: Final = frozenset(
    {"megatron-lm", "megatron-deepspeed", "ms-swift", "flagscale", "torchtitan", "maxtext", "nanotron"}
    | {"megatron-bridge", "nemo"}
)
"""Dialects whose options are those of the record that prices them."""
OWN_NAMES: Final = frozenset({("nemo", NEMO.version), (neox.NAME, neox.VERSION)})
"""Dialects that are priced by the record of a framework with other names."""
INSTEAD: Final[Mapping[tuple[str, str], Mapping[tuple[str, object], str]]] = {
    (swift.NAME, swift.VERSION): swift.INSTEAD
}
"""Dialects whose defaults are not those of the record that prices them."""
SPELLINGS: Final[Mapping[tuple[str, str], Callable[[str], tuple[str, ...]]]] = {
    (flagscale.NAME, flagscale.VERSION): flagscale.as_settings,
    (megatron.NAME, forks.EPFL): forks.with_underscores,
    (swift.NAME, swift.VERSION): swift.as_options,
    (torchtitan.NAME, torchtitan.TOML): torchtitan.as_keys,
}
"""How dialects spell the options of their record, where it is not the record's way."""
KNOWN: Final[Mapping[tuple[str, str], frozenset[str]]] = {
    (megatron.NAME, forks.EPFL): forks.EPFL_PLANS,
    (swift.NAME, swift.VERSION): swift.OF_PLANS,
}
"""What forks have of the options of their record, where they lack some."""
_PLACE: Final = re.compile(r"(.*?:\d+) (\S+)")
"""The beginning of a reason: file and line, and the option as it is written."""


def wording_of(reading: Reading) -> Wording:
    """The options of a launch file."""
    places = {key: _PLACE.match(fact.why) for key, fact in reading.facts.items() if fact.origin != "assumed"}
    stated = {
        field_of(key): FileOption(found[2].removesuffix(":"), found[1])
        for key, found in places.items()
        if key in reading.options and found is not None
    }
    whose = reading.framework, reading.version
    dialect = _dialect(*whose)
    earlier = dialect.record.get("earlier", "")
    is_earlier = any(re.fullmatch(earlier, each.option.lstrip("-")) for each in stated.values())
    return Wording(
        stated,
        frozenset(map(field_of, reading.assumed)),
        reading.file.rpartition("/")[2],
        frozenset(field_of(key) for key, fact in reading.facts.items() if fact.why == GIVEN),
        dialect,
        is_earlier,
        is_earlier or reading.framework not in OF_RECORD or whose in OWN_NAMES or whose == (swift.NAME, swift.TRAINER),
        frozenset(doubted(reading)),
        degree(reading.value("shards")),
        reading.names,
        INSTEAD.get(whose, {}),
        SPELLINGS.get(whose, NO_WORDING.spell),
        KNOWN.get(whose, NO_WORDING.known),
    )


@cache
def _dialect(framework: str, version: str) -> Dialect:
    known = {each.name: each for each in (*TABLES, maxtext.RECORD)}
    is_recipe = framework == "megatron-bridge" or (framework == NEMO.name and version != NEMO.version)
    return recipes.RECORD if is_recipe else known.get(framework) or Dialect(name=framework)


_WORDS: Final = {
    "recompute": r"recomput|checkpointing|remat",
    "offload": r"offload",
    "sharding": r"shard|zero_|fsdp",
    **dict.fromkeys(("overlap_dp", "overlap_tp", "overlap_ep"), r"overlap|prefetch"),
    "kernels": r"compil|liger|fus",
    "fused_loss": r"liger|loss|cross_entropy",
    "cuda_graphs": r"graph",
    "moe_dispatcher": r"dispatch|deepep|alltoall",
}
"""Words of names that may say something of a field."""


def doubted(reading: Reading) -> Iterator[str]:
    """Fields at a default that something in the file, which is not understood, may contradict."""
    text = " ".join(reading.not_understood).lower()
    for name, words in _WORDS.items():
        is_stated = any(name == field_of(key) for key in reading.stated)
        if not is_stated and re.search(words, text):
            yield name


def field_of(key: str) -> str:
    """What a record names by ``key``: software that plans choose is a field of theirs."""
    name = key.removeprefix("software.")
    return name if name in CHOSEN else key


def stated_options(question: Question, plan: Plan, stack: Stack | None) -> StatedOptions:
    """Options of a plan, each with the fields that it states."""
    found = None if stack is None else options_of(stack, question.setting, plan)
    return {} if found is None else dict(zip(found.options, found.says, strict=True))


OPTION: Final = re.compile(r"--[a-z][a-z0-9-]*")
"""Names of options in a text of a record."""
OF_BATCH: Final = frozenset({"micro_batch_size", "tp", "cp", "pp"})
"""Fields that change the batch where the file states accumulation, or nothing of both."""


class Removed(NamedTuple):
    """An option to remove."""

    text: str
    place: str = ""
    """File and line; empty where the option may stand anywhere."""

    @property
    def printed(self) -> str:
        """With its place."""
        return f"{self.text} ({self.place})" if self.place else self.text


def _difference(removed: Iterable[Removed], added: Iterable[Edit], file: str) -> WordedChange:
    """``file``: the one that was named; what goes into another is printed with that."""
    gone, posed = tuple(dict.fromkeys(removed)), tuple(dict.fromkeys(added))
    return WordedChange(
        Edits(tuple(Edit(each.text, _file_of(each.place)) for each in gone), posed),
        tuple(each.printed for each in gone),
        tuple(each.text if each.file in ("", file) else f"{each.text} ({each.file})" for each in posed),
    )


def _file_of(place: str) -> str:
    """The file of a place with a line."""
    return place.rpartition(":")[0].rpartition("/")[2]


def by_record(change: Change, before: StatedOptions, after: StatedOptions, wording: Wording) -> WordedChange | None:
    """The options of the record that differ, and the global batch where the file leaves it to what is changed.

    None where the framework of the file lacks one of them.
    """
    new = [name for each in after if each not in before for name in OPTION.findall(each)]
    if wording.known and not wording.known.issuperset(new):
        return None
    batch = "global_batch_size" not in wording.stated and not OF_BATCH.isdisjoint(change)
    differ = (each for each in after if each not in before or (batch and after[each] == BATCH))
    added = (*(piece for each in differ for piece in wording.spell(each)), *_instead(change, wording))
    return _difference(_removed(before, after, change, wording), map(Edit, added), wording.file)


BATCH: Final = ("global_batch_size",)


def _instead(change: Change, wording: Wording) -> Iterator[str]:
    found = (wording.instead.get((name, new)) for name, (_, new) in change.items())
    return (each for each in found if each is not None)


def _removed(before: StatedOptions, after: StatedOptions, change: Change, wording: Wording) -> Iterator[Removed]:
    """Options to remove, in the words of the file; none that the file leaves at its default."""
    known = " ".join(before).replace("-", "_")
    for option, says in before.items():
        if option in after or (says and wording.defaults.issuperset(says)):
            continue
        own = [wording.stated[name] for name in says if name in change and name in wording.stated]
        others = [Removed(each.option, each.place) for each in own if each.name not in known]
        yield from others or (Removed(spelt) for piece in _pieces(option, wording) for spelt in wording.spell(piece))


_PIECE: Final = re.compile(r" (?=--|\w[\w.]*=)")


def _pieces(option: str, wording: Wording) -> Iterator[str]:
    """What the file has of an option that the record writes in several pieces."""
    pieces = [each for each in _PIECE.split(option) if not wording.names or plain_name(each) in wording.names]
    if pieces:
        yield " ".join(pieces)


class _Own(NamedTuple):
    """The option of a dialect that states a field."""

    name: str
    convert: Convert
    stands: FileOption | None
    """Where the file has it."""


_CODED: Final[tuple[tuple[str, Convert], ...]] = (
    (r"(?:.*[._])?stage", zero_stage),
    (r".*sharding_strategy", STRATEGIES),
    (r".*reshard_after_forward", on_off("zero3", "zero2")),
    (r".*(?:gradient|activation)_checkpointing", on_off("full", "none")),
    (r".*offload_optimizer\.device", words_of({"cpu": "optimizer", "none": "none"})),
    (r"activation_checkpoint\.mode", words_of({"none": "none", "full": "full"})),
    (r".*overlap_\w+|.*sequence_parallel\w*", switch),
    (r".*", whole),
)
"""How options are read that no row of a record has, by their names."""
SWITCHED: Final = ("true", "false")
_SPELLINGS: Final = (*SWITCHED, *map(str, range(4)), "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "cpu", "none", "full")
"""Values that are tried in turn; a number is written as it is."""


def _option_of(field: str, wording: Wording) -> _Own | None:
    """The option that states a field: the one that the file has, or the first that its dialect has."""
    if field in wording.given or wording.dialect is None:
        return None
    rows = [each for each in wording.dialect.rows if each.field == field and each.value is None]
    stands = wording.stated.get(field)
    if stands is not None:
        name = stands.option.lstrip("-")
        row = next((each for each in rows if name.replace("-", "_") in each.names or name in each.names), None)
        coded = next(convert for pattern, convert in _CODED if re.fullmatch(pattern, name))
        return _Own(stands.option, coded if row is None else row.convert, stands)
    if field in wording.dialect.record.get("of_some_programs", ()) or wording.is_earlier or not rows:
        return None
    return _Own(rows[0].names[0], rows[0].convert, None)


def by_own_names(change: Change, plan: Plan, batch: Batch, wording: Wording) -> WordedChange | None:
    """Every field by the option of the dialect; None where one of them has none. ``plan``: the changed one."""
    removed, added = list[Removed](), list[Edit]()
    values: dict[str, object] = {name: new for name, (_, new) in change.items() if name != "schedule"}
    for name, value in (values | _of_batch(change, plan, batch, wording) | _of_world(change, wording)).items():
        own = _option_of(name, wording)
        text = None if own is None else _spelled(value, own.convert)
        if own is None or (text is None and value is not None):
            return None
        if own.stands is not None:
            removed.append(Removed(own.stands.option, own.stands.place))
        if text is not None:
            added.append(_written(own, text, wording))
    return _difference(removed, added, wording.file)


class Batch(NamedTuple):
    """What a job has in every step."""

    num_accelerators: int
    global_batch_size: int


def _of_batch(change: Change, plan: Plan, batch: Batch, wording: Wording) -> dict[str, object]:
    """Accumulation where the file states it, or neither it nor the global batch, and the change moves it."""
    both = [name for name in ("global_batch_size", "gradient_accumulation") if name in wording.stated]
    if OF_BATCH.isdisjoint(change) or both == ["global_batch_size"]:
        return {}
    dp = batch.num_accelerators // (plan.tp * plan.cp * plan.pp)
    if both or _option_of("gradient_accumulation", wording) is not None:
        return {"gradient_accumulation": batch.global_batch_size // (plan.micro_batch_size * dp)}
    return {"global_batch_size": batch.global_batch_size}


def _of_world(change: Change, wording: Wording) -> dict[str, object]:
    """The shards of a file whose world is the product of all degrees, so that it stays."""
    moved = [pair for name, pair in change.items() if name in ("tp", "cp", "ep")]
    if wording.shards is None or not moved:
        return {}
    old, new = (math.prod(int(str(pair[at])) for pair in moved) for at in (0, 1))
    return {"shards": wording.shards * old // new}


def _spelled(value: object, convert: Convert) -> str | None:
    """A value as the dialect reads it back."""
    tried = (str(value),) if type(value) is int else (*_SPELLINGS, str(value))
    return next((text for text in tried if convert(text) == value), None)


_ENDS: Final = {".toml": " = ", ".py": " = ", ".yaml": ": ", ".yml": ": ", ".json": ": ", ".jsonc": ": "}
"""What is between a key and its value, by the end of a file's name; a line has a blank."""
_IN_PAIRS: Final = frozenset({"nemo", "megatron-bridge", "maxtext"})
"""Dialects whose lines have ``name=value``."""


def _written(own: _Own, text: str, wording: Wording) -> Edit:
    """An option with its value, in the file where it stands."""
    file = wording.file if own.stands is None else _file_of(own.stands.place)
    sign = next((sign for end, sign in _ENDS.items() if file.endswith(end)), None)
    name = own.name.lstrip("-")
    if sign is not None:
        is_word = whole(text) is None and text not in SWITCHED
        text = f'"{text}"' if is_word and sign == " = " else text
        return Edit(f"{name}{sign}{text.capitalize() if file.endswith('.py') and not is_word else text}", file)
    is_pair = wording.dialect is not None and wording.dialect.name in _IN_PAIRS
    return Edit(f"{name}={text}" if is_pair else f"--{name} {text}", file)
